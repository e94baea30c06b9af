"""Learning from scans that nobody transcribed: what is learnt, what is left out, and which training the run is."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import dsocr
from dsocr.config import RunConfig, load_config, load_run_config
from dsocr.data.crops import read_sources
from dsocr.data.dataset import Dataset, image_hash
from dsocr.data.fix import copy_with_folds
from dsocr.document import Split
from dsocr.errors import Interrupted
from dsocr.inference.confidence import Calibration, Prediction
from dsocr.io.work import MANIFEST, hash_file, write_file
from dsocr.job import Job
from dsocr.models.language_model import LanguageModel
from dsocr.runs import READING, RunFolder, TrainResult, UnlabelledReport, read_history, read_provenance
from dsocr.training import unlabelled as module
from dsocr.training.recipe import run_job
from dsocr.training.samples import EncodedSamples, OwnReadings
from tests.conftest import eight_steps
from tests.data.making import page_line, page_xml, write
from tests.raising import raises_code
from tests.training.conftest import true_text
from tests.training.running import train
from tests.training.test_callbacks import StopAfter
from tests.training.test_train import PowerCutError, changed, cut_at

Configured = Callable[..., RunConfig]
Learnt = tuple[TrainResult, list[str], list[OwnReadings]]

READ = 32
"""Eight steps of four lines."""


def cut(*_: Any, **__: Any) -> Any:
    raise PowerCutError


class FakeReader:
    """Reads the text that `text_of` gives for the number of a line; lines with lower numbers are surer."""

    characters: tuple[str, ...] = ()

    def __init__(self, text_of: Callable[[int], str], confidence: float = 1.0) -> None:
        self.text_of, self.confidence = text_of, confidence
        self.names: list[str] = []

    def can_write(self, text: str) -> bool:
        return not self.characters or set(text) <= set(self.characters)

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        for name, _ in images:
            digits = Path(name).stem.partition("-")[2]
            number = int(digits) if digits.isdigit() else 0
            self.names.append(name)
            text = self.text_of(number)
            yield Prediction(name, text, len(text) + 1, False, confidence=self.confidence - number / 1000)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(module, "open_reader", lambda *arguments: self)


@pytest.fixture(scope="module")
def first_run(small_dataset: Path, toy: str, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """What the first training of `configured` leaves."""
    return train(eight_steps(small_dataset, tmp_path_factory.mktemp("first") / "run", toy)).run


@pytest.fixture(scope="module")
def configured(toy: str, small_dataset: Path, scans: Path) -> Configured:
    def configure(
        output: Path, dataset: Path = small_dataset, scans: Path = scans, base: str = toy, **training: Any
    ) -> RunConfig:
        return changed(eight_steps(dataset, output, base), training={"unlabelled": [str(scans)], **training})

    return configure


def weights_of(run: RunFolder) -> dict[str, str]:
    return {path.name: hash_file(path) for path in run.adapter.iterdir() if path.name != MANIFEST}


def readings_of(run: RunFolder) -> list[list[Any]]:
    content = json.loads((run.unlabelled / module.READINGS).read_text(encoding="utf-8"))
    lines: list[list[Any]] = content["result"]["lines"]
    return lines


def copied(run: RunFolder, job: Job) -> TrainResult:
    """Stand in for the first training with an identical run."""
    shutil.copytree(run.path, job.run.path, dirs_exist_ok=True)
    write_file(job.run.config, job.config.to_yaml())
    return TrainResult(job.run, 8, 8, 1.0)


@pytest.fixture(scope="module")
def learnt(configured: Configured, first_run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Learnt:
    """A run that learnt from true readings, what it said, and what its second training was given."""
    given: list[OwnReadings] = []

    def noted(job: Job, **options: Any) -> TrainResult:
        if options.get("own_readings") is None:
            return copied(first_run, job)
        given.append(options["own_readings"])
        return run_job(job, **options)

    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        FakeReader(true_text).install(patch)
        patch.setattr(module, "run_job", noted)
        patch.setattr(module, "is_better", lambda *_: True)
        config = configured(tmp_path_factory.mktemp("learnt") / "run")
        return train(config, on_message=said.append), said, given


def test_what_reads_the_validation_lines_better_is_kept(learnt: Learnt) -> None:
    result, said, _ = learnt
    report = result.unlabelled
    assert report is not None
    assert (report.read, report.shown, report.transcribed) == (READ, 20, 16)
    assert report.before is not None
    assert report.after is not None
    assert report.learnt == report.shown
    first = read_history(result.run.unlabelled / module.FIRST)
    second = read_history(result.run.unlabelled / module.SECOND)
    assert first.best is not None
    assert second.validation[0]["cer"] == first.best["cer"], "the second training starts from the best weights"
    assert read_history(result.run.path).validation == second.validation
    assert second.training[-1]["step"] == first.training[-1]["step"]
    assert said[-1] == report.describe()


def test_the_surest_lines_are_learnt_beside_the_transcribed_ones(learnt: Learnt, small_dataset: Path) -> None:
    result, _, (given,) = learnt
    lines = readings_of(result.run)
    assert {text for _, text, *_ in lines} == {sample.text for sample in given.samples}
    confidences = [confidence for _, _, confidence, *_ in lines]
    assert confidences == sorted(confidences, reverse=True)
    assert {text for _, text, *_ in lines} <= set(map(true_text, range(40)))
    transcribed = Dataset.open(small_dataset).samples(Split.TRAIN)
    mixed = given.mix(transcribed)
    assert 3 * sum(sample in transcribed for sample in mixed) >= len(mixed)
    assert {sample.id for sample in mixed} >= {sample.id for sample in transcribed}


def test_the_run_is_whole_and_says_what_it_learnt(learnt: Learnt) -> None:
    result, said, _ = learnt
    run = RunFolder.open(result.run.path)
    assert result.unlabelled is not None
    assert UnlabelledReport.of(read_provenance(run)) == result.unlabelled
    assert result.unlabelled.describe() in said
    kept = {module.FIRST, module.SECOND, module.READINGS, "dataset"}
    assert {path.name for path in run.unlabelled.iterdir()} == kept
    assert not list(run.unlabelled.rglob("*.safetensors"))
    assert any(run.tensorboard.iterdir())
    config = load_run_config(run.config)
    assert len(config.training.unlabelled) == 1
    assert json.loads((run.adapter / READING).read_text(encoding="utf-8"))["base"] == config.base
    assert result.calibrated_on == 2
    with raises_code("output-exists"):
        train(config)


def test_report_and_card_count_own_readings(learnt: Learnt, tmp_path: Path) -> None:
    result, *_ = learnt
    run = tmp_path / "run"
    shutil.copytree(result.run.path, run)
    dsocr.evaluate(run, base=False, limit=1)
    assert "20 own readings" in (run / "report.html").read_text(encoding="utf-8")
    dsocr.export(run, tmp_path / "merged", form="merged")
    assert "20 own readings" in (tmp_path / "merged" / "README.md").read_text(encoding="utf-8")


def test_a_training_that_reads_no_better_is_not_kept(
    configured: Configured,
    learnt: Learnt,
    scans: Path,
    tmp_path: Path,
    first_run: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run is then identical to one without the scans."""

    def copy(job: Job, **options: Any) -> TrainResult:
        return copied(first_run if options.get("own_readings") is None else learnt[0].run, job)

    FakeReader(true_text).install(monkeypatch)
    monkeypatch.setattr(module, "run_job", copy)
    monkeypatch.setattr(module, "is_better", lambda *_: False)
    result = train(configured(tmp_path / "run"))
    report = result.unlabelled
    assert report is not None
    assert report.before is not None
    assert report.learnt == 0
    assert report.shown == 20
    assert weights_of(result.run) == weights_of(first_run)
    assert read_history(result.run.path) == read_history(first_run.path)
    assert "did not help" in report.describe()


@pytest.fixture
def only_first(monkeypatch: pytest.MonkeyPatch, first_run: RunFolder) -> None:
    """Take a finished run for the first training, and let nothing train."""

    def finished(job: Job, **options: Any) -> TrainResult:
        assert options.get("own_readings") is None, "a second training was begun"
        return copied(first_run, job)

    monkeypatch.setattr(module, "run_job", finished)


@pytest.mark.parametrize(
    ("reader", "reason"),
    [
        pytest.param(FakeReader(true_text, confidence=0.3), "hands or script", id="unlike the transcribed hands"),
        pytest.param(FakeReader(lambda number: "" if number > 10 else "a"), "only", id="hardly a reading"),
    ],
)
def test_scans_that_cannot_be_read_are_refused(
    configured: Configured,
    reader: FakeReader,
    reason: str,
    tmp_path: Path,
    first_run: RunFolder,
    only_first: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader.install(monkeypatch)
    usual = Calibration(lines=2, line_quantiles=(0.9, 0.95, 1.0))
    monkeypatch.setattr(Calibration, "load", lambda folder: usual)
    said: list[str] = []
    result = train(configured(tmp_path / "run"), on_message=said.append)
    assert result.unlabelled is not None
    assert (result.unlabelled.learnt, result.unlabelled.shown, result.unlabelled.after) == (0, 0, None)
    assert reason in result.unlabelled.refused
    assert said[-1] == result.unlabelled.describe()
    assert weights_of(result.run) == weights_of(first_run)


def test_what_is_held_out_or_trained_on_is_not_read(
    configured: Configured, small_dataset: Path, tmp_path: Path, only_first: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dataset itself as scans: of its lines only those are read that are neither; their texts are of no use."""
    reader = FakeReader(true_text)
    reader.install(monkeypatch)
    config = configured(tmp_path / "run", scans=small_dataset, max_samples=4)
    result = train(config)
    assert result.unlabelled is not None
    assert (result.unlabelled.held_out, result.unlabelled.known, result.unlabelled.read) == (8, 4, 12)
    samples = Dataset.open(small_dataset).samples(Split.TRAIN)
    assert set(reader.names) <= {sample.id for sample in samples}
    assert len(set(reader.names)) == 12


def write_page(
    folder: Path, name: str, seed: int, count: int, *, texts: bool, left: int = 20, conf: Callable[[int], str] = str
) -> None:
    """Write a page of lines; `conf` gives the attributes of a line's text by its number."""
    folder.mkdir(exist_ok=True)
    Image.effect_noise((300, 400), 20 + seed).save(folder / f"{name}.png")
    lines = ""
    for number in range(count):
        top, bottom = 20 + 70 * number, 70 + 70 * number
        line = page_line(
            f"line {number} of {name}" if texts else "", points=f"{left},{top} 280,{top} 280,{bottom} {left},{bottom}"
        )
        lines += line if conf is str else line.replace("<TextEquiv", f"<TextEquiv {conf(number)}")
    region = f'<TextRegion id="r"><Coords points="0,0 299,0 299,399 0,399"/>{lines}</TextRegion>'
    write(folder / f"{name}.xml", page_xml(region, image=f"{name}.png", size=(300, 400)))


def test_pages_of_the_validation_and_the_test_split_are_known_by_their_scans(
    configured: Configured, tmp_path: Path, only_first: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scans have other lines on the same pages than the dataset, so that no image of a line is the same."""
    source, scans = tmp_path / "source", tmp_path / "scans"
    for seed, name in enumerate(("a", "b", "c", "d")):
        write_page(source, name, seed, 3, texts=True)
        write_page(scans, name, seed, 5, texts=False)
        shutil.copy(source / f"{name}.png", scans)
    write_page(scans, "new", 9, 5, texts=True)
    dataset = dsocr.prepare(source, tmp_path / "data", split="0.5/0.25/0.25", split_by="page")
    cuts = {picture: cut["lines"] for _, picture, cut in read_sources(dataset.folder)}
    assert len(cuts) == 4
    assert {file for lines in cuts.values() for file, _ in lines} == {sample.id for sample in dataset}
    sources = dataset.folder / "sources.jsonl"
    rows = sources.read_text(encoding="utf-8").splitlines(keepends=True)
    for damaged in (rows[:2], [*rows[:3], "{}"], []):
        sources.write_text("".join(damaged), encoding="utf-8")
        with raises_code("bad-metadata"):
            train(configured(tmp_path / "run", dataset.folder, scans))
    sources.write_text("".join(rows), encoding="utf-8")
    reader = FakeReader(true_text)
    reader.install(monkeypatch)
    result = train(configured(tmp_path / "run", copy_with_folds(dataset, tmp_path / "copy", 3).folder, scans))
    assert result.unlabelled is not None
    held_out = {Path(sample.id).name[0] for split in ("validation", "test") for sample in dataset.samples(split)}
    assert result.unlabelled.held_out == len(held_out) == 2
    assert {name[0] for name in reader.names} == {"a", "b", "c", "d", "n"} - held_out
    trained = {image_hash(sample) for sample in dataset.samples("train")}
    assert result.unlabelled.known == len(trained) == 6
    assert len(reader.names) == 5 + 2 * 5 - 6


def taught(
    config: RunConfig, reader: FakeReader, first_run: RunFolder, patch: pytest.MonkeyPatch
) -> tuple[UnlabelledReport, list[list[Any]]]:
    """Return the report and the lines shown of a run whose first and second training are copies."""
    reader.install(patch)
    patch.setattr(module, "_LEAST", 2)
    patch.setattr(module, "is_better", lambda *_: True)
    patch.setattr(module, "run_job", lambda job, **options: copied(first_run, job))
    result = train(config)
    assert result.unlabelled is not None
    return result.unlabelled, readings_of(result.run)


def test_readings_of_a_teacher_are_taken_by_its_confidence_beside_own_ones(
    configured: Configured, scans: Path, tmp_path: Path, first_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they are marked as a program's, next to lines that a person typed."""
    teacher = tmp_path / "teacher"
    write_page(teacher, "a", 1, 5, texts=True, conf=lambda number: f'index="1" dataType="HTR" conf="0.{number}"')
    write_page(teacher, "b", 2, 1, texts=True)
    write_page(teacher, "c", 3, 4, texts=False)
    config = changed(configured(tmp_path / "run"), training={"unlabelled": [str(teacher), str(scans / "scan-01.png")]})
    report, lines = taught(config, FakeReader(true_text), first_run, monkeypatch)
    assert (report.read, report.shown, report.learnt, report.teachers) == (11, 7, 7, {str(teacher): 4})
    assert {(text, confidence) for _, text, confidence, source, _ in lines if source} == {
        ("line 0 of b", None),  # typed, so certain
        *((f"line {number} of a", number / 10) for number in (4, 3, 2)),
    }
    assert f"7 readings ({teacher}: 4, own: 3)" in report.describe()


def test_the_agreement_with_own_readings_ranks_a_teacher_without_confidences(
    configured: Configured, tmp_path: Path, first_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The teacher is a table of images of lines, as `convert` makes PAGE of it."""
    source, page = tmp_path / "source", tmp_path / "page"
    source.mkdir()
    texts = ["abcdefgx", "xxxxxxxx", "abcdefgh", "abcdxxxx", "xbcdefgy"]
    for number, text in enumerate(texts):
        Image.effect_noise((200, 40), 20 + number).save(source / f"{number}.png")
        with (source / "texts.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"image": f"{number}.png", "text": text}) + "\n")
    dsocr.convert(source, page, to="page")
    config = configured(tmp_path / "run", scans=page)
    report, lines = taught(config, FakeReader(lambda number: "abcdefgh"), first_run, monkeypatch)
    assert [(text, distance) for _, text, _, _, distance in lines] == [
        ("abcdefgh", 0.0),
        ("abcdefgx", 1 / 8),
        ("xbcdefgy", 2 / 8),
    ]
    assert (report.teachers, report.confidence) == ({str(page): 3}, None)


def test_a_teacher_teaches_no_page_of_the_dataset_and_no_letter_that_the_run_cannot_write(
    configured: Configured, tmp_path: Path, first_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It found the lines of all scans anew."""
    source, teacher = tmp_path / "source", tmp_path / "teacher"
    for seed, name in enumerate("abcdef"):
        if name < "e":
            write_page(source, name, seed, 3, texts=True)
        write_page(teacher, name, seed, 4, texts=True, left=30)
        if name < "e":
            shutil.copy(source / f"{name}.png", teacher)
    dataset = dsocr.prepare(source, tmp_path / "data", split="0.5/0.25/0.25", split_by="page")
    reader = FakeReader(true_text)
    monkeypatch.setattr(reader, "characters", tuple("0123456789 eilnof"))
    report, lines = taught(configured(tmp_path / "run", dataset.folder, teacher), reader, first_run, monkeypatch)
    assert (report.known, report.held_out, report.read) == (2, 2, 8)
    assert {text for _, text, *_ in lines} <= {f"line {number} of {page}" for number in range(4) for page in "ef"}
    assert report.shown == 5
    monkeypatch.setattr(reader, "characters", tuple("0123456789 eilno"))
    config = configured(tmp_path / "without", dataset.folder, teacher)
    assert taught(config, reader, first_run, monkeypatch)[0].shown == 0


def test_reading_stops_and_resumes_where_it_was(
    configured: Configured, tmp_path: Path, only_first: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LEAST", 1000)  # no second training
    config, whole = configured(tmp_path / "run"), FakeReader(true_text)
    whole.install(monkeypatch)
    chosen = module.Scans._choose
    kept: list[Any] = []

    def noted(*arguments: Any) -> Any:
        kept.append(arguments[1])
        return chosen(*arguments)

    monkeypatch.setattr(module.Scans, "_choose", noted)
    train(changed(config, output=tmp_path / "whole"))
    cut = FakeReader(true_text)
    cut.install(monkeypatch)

    def on_stage(label: str, unit: str, done: int, total: int) -> None:
        if done:
            raise PowerCutError

    with pytest.raises(PowerCutError):
        train(config, on_stage=on_stage)
    first = len(cut.names)
    assert 0 < first < READ
    train(config)
    assert kept[0] == kept[1]
    assert len(cut.names) - len(whole.names) in range(first + 1)


def test_a_second_training_and_the_last_files_resume_bit_by_bit(
    configured: Configured,
    learnt: Learnt,
    first_run: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    def first_copied(job: Job, **options: Any) -> TrainResult:
        return copied(first_run, job) if options.get("own_readings") is None else run_job(job, **options)

    FakeReader(true_text).install(monkeypatch)
    monkeypatch.setattr(module, "run_job", first_copied)
    monkeypatch.setattr(module, "is_better", lambda *_: True)
    config = configured(tmp_path / "run")
    with pytest.raises(PowerCutError):
        train(config, on_step=cut_at(5))
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_folder", cut)
        with pytest.raises(PowerCutError):
            train(config)
    monkeypatch.setattr(module, "run_job", cut)
    result = train(config)
    assert weights_of(result.run) == weights_of(learnt[0].run)
    assert result.unlabelled == learnt[0].unlabelled


def test_a_callback_that_ends_both_trainings_leaves_the_first(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lines for validation cannot tell which is better."""
    FakeReader(true_text).install(monkeypatch)
    monkeypatch.setattr(module, "_LEAST", 2)
    result = train(configured(tmp_path / "run"), callbacks=[StopAfter(2)])
    assert result.unlabelled is not None
    assert (result.unlabelled.learnt, result.unlabelled.refused) == (0, "")
    assert (result.best_step, result.steps) == (None, 2)
    assert RunFolder.open(result.run.path).adapter.is_dir()


def test_a_signal_names_the_command_that_resumes_all(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(job: Job, **options: Any) -> TrainResult:
        raise Interrupted(15, 3, RunFolder(config.output).resume_command)

    monkeypatch.setattr(module, "run_job", interrupted)
    config = configured(tmp_path / "run")
    with pytest.raises(Interrupted) as raised:
        train(config)
    assert raised.value.resume == RunFolder(config.output).resume_command
    assert raised.value.exit_code == 128 + 15


def test_settings_may_change_until_there_is_a_checkpoint(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(job: Job, **options: Any) -> TrainResult:
        job.run.checkpoints.mkdir(parents=True, exist_ok=True)
        write_file(job.run.config, job.config.to_yaml())
        raise PowerCutError

    config = configured(tmp_path / "run")
    monkeypatch.setattr(module, "run_job", cut)
    for rate in (1e-3, 2e-3):
        with pytest.raises(PowerCutError):
            train(changed(config, training={"learning_rate": rate}))
    (tmp_path / "run" / "unlabelled" / "first" / "checkpoints" / "step-0000004").mkdir()
    with raises_code("other-settings"):
        train(config := changed(config, training={"learning_rate": 3e-3}))
    with pytest.raises(PowerCutError):
        train(config, overwrite=True)


def test_nothing_is_begun_that_nobody_could_judge(small_dataset: Path, scans: Path, tmp_path: Path) -> None:
    folder = tmp_path / "lines"
    folder.mkdir()
    shutil.copy(scans / "scan-00.png", folder)
    (folder / "lines.jsonl").write_text('{"file_name": "scan-00.png", "text": "a"}\n', encoding="utf-8")
    dataset = dsocr.prepare(folder, tmp_path / "data", split="1/0/0")
    (tmp_path / "empty").mkdir()
    for learnt, shown, code in (
        (dataset.folder, scans, "unlabelled-unjudged"),
        (small_dataset, tmp_path / "missing", "input-missing"),
        (small_dataset, tmp_path / "empty", "input-empty"),
    ):
        with raises_code(code):
            dsocr.train(dataset=learnt, unlabelled=shown, base="nano", output=tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_several_processes_are_refused(configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.training.many_runs.rank_and_count", lambda: (0, 2))
    with raises_code("launch-unsupported"):
        train(configured(tmp_path / "run"))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("scans/new", ("scans/new",)),
        (Path("scans") / "new", ("scans/new",)),
        (["a", Path("b")], ("a", "b")),
        (None, ()),
    ],
)
def test_scans_are_a_path_or_a_list(given: object, kept: tuple[str, ...]) -> None:
    config = load_config({"dataset": "d", "output": "o", "training": {"unlabelled": given}})
    assert config.training.unlabelled == kept


def test_a_dry_run_says_what_is_read_and_how_long_it_takes(
    configured: Configured, shallow: str, tmp_path: Path
) -> None:
    config = configured(tmp_path / "run", base=shallow)
    result = dsocr.dry_run(config, preflight=False)
    (check,) = [check for check in result.checks if check.name == "unlabelled scans"]
    assert "32 lines" in check.message
    assert not (tmp_path / "run").exists()


def test_own_readings_may_be_texts_of_the_language_model_and_are_no_letters(
    small_dataset: Path, tmp_path: Path, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line recogniser: the second training has the head of the first, and may have the readings as texts too."""
    from tests.models.test_ctc import LETTERS, configuration
    from tests.models.test_ctc_network import write_ctc

    config = configuration(write_ctc(tmp_path / "base", LETTERS), small_dataset, tmp_path / "run", max_steps=2)
    config = changed(config, training={"unlabelled": [str(scans)]})
    monkeypatch.setattr(module, "_LEAST", 5)
    FakeReader(lambda number: "zebra crossing zebra").install(monkeypatch)
    learnt: list[set[str]] = []
    shown: list[int] = []
    fit, start = LanguageModel.fit, EncodedSamples.__init__

    def noted(texts: Iterable[str]) -> LanguageModel:
        learnt.append(set(texts := list(texts)))
        return fit(texts)

    def begun(self: EncodedSamples, samples: Any, *arguments: Any, **options: Any) -> None:
        shown.append(sum("zebra" in sample.text for sample in samples))
        start(self, samples, *arguments, **options)

    monkeypatch.setattr(LanguageModel, "fit", staticmethod(noted))
    monkeypatch.setattr("dsocr.models.ctc.search", lambda *_: "")  # letters that are all as likely take seconds
    monkeypatch.setattr(EncodedSamples, "__init__", begun)
    result = train(config)
    assert max(shown) == 5  # the readings were shown: the most confident of eight
    transcribed = {sample.text for sample in Dataset.open(small_dataset).samples(Split.TRAIN)}
    assert learnt == [transcribed, transcribed, transcribed | {"zebra crossing zebra"}]
    assert result.run.adapter.name == "model"
