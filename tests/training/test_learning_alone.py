"""Learning from scans alone, without transcribed lines: what is learnt, when it is refused, and how it resumes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import dsocr
from dsocr.config import RunConfig, load_config, load_run_config
from dsocr.data.dataset import Dataset
from dsocr.inference.confidence import Calibration
from dsocr.io.work import write_file
from dsocr.runs import CALIBRATION, RunFolder, UnlabelledReport, read_provenance
from dsocr.training import unlabelled as module
from tests.conftest import eight_steps
from tests.integration.calling import call, fail
from tests.raising import raises_code
from tests.training.conftest import true_text
from tests.training.running import train
from tests.training.test_train import PowerCutError, changed, cut_at
from tests.training.test_unlabelled import FakeReader, cut, weights_of, write_page

Alone = Callable[[Path, Path], RunConfig]


USUAL = Calibration(lines=2, line_quantiles=(0.9, 0.95, 1.0))


@pytest.fixture
def calibrated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The base's confidences were compared with transcribed lines, and a few readings are enough."""
    monkeypatch.setattr(Calibration, "load", lambda folder: USUAL)
    reader = tmp_path / "calibrated" / "adapter"
    reader.mkdir(parents=True)
    write_file(reader / CALIBRATION, USUAL.to_json())
    monkeypatch.setattr("dsocr.training.readers.first_reader", lambda config: RunFolder(reader.parent))


@pytest.fixture
def alone(toy: str) -> Alone:
    """A function that makes the settings of eight steps of a base whose readings are not used."""

    def configured(scans: Path, output: Path) -> RunConfig:
        config = load_config({"base": toy, "output": output, "training": {"unlabelled": [str(scans)]}})
        shown = eight_steps(output, output)
        sections = {name: getattr(shown, name) for name in ("adapter", "checkpoints", "input")}
        training = shown.training.model_copy(update={"unlabelled": config.training.unlabelled})
        return config.model_copy(update={**sections, "training": training})

    return configured


def test_a_run_learns_alone_from_its_surest_readings(
    alone: Alone, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calibrated: None
) -> None:
    FakeReader(true_text).install(monkeypatch)
    said: list[str] = []
    config = alone(scans, tmp_path / "run")
    assert config.learns_alone
    result = train(config, on_message=said.append)
    report = result.unlabelled
    assert report is not None
    assert (report.read, report.shown, report.learnt, report.transcribed) == (40, 24, 24, 0)
    assert UnlabelledReport.of(read_provenance(result.run)) == report
    assert "no transcribed line" in said[-1]
    assert (result.best_cer, result.steps) == (None, 8)
    dataset = Dataset.open(load_run_config(result.run.config).dataset)
    assert {sample.text for sample in dataset} == set(map(true_text, range(24)))
    assert [*dataset.card.splits] == ["train"]
    assert result.calibrated_on == 0
    assert json.loads((result.run.adapter / CALIBRATION).read_text(encoding="utf-8"))["lines"] == USUAL.lines
    assert {path.name for path in result.run.unlabelled.iterdir()} == {"dataset", module.READINGS}
    with raises_code("split-missing"):
        dsocr.evaluate(result.run.path)
    dsocr.export(result.run.path, tmp_path / "merged", form="merged")
    assert "no transcribed line" in (tmp_path / "merged" / "README.md").read_text(encoding="utf-8")
    with raises_code("output-exists"):
        train(config)


def test_a_base_without_a_calibration_learns_alone_from_a_teacher(
    alone: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own readings, of the lines that the teacher left out, are not learnt."""
    FakeReader(true_text).install(monkeypatch)
    monkeypatch.setattr(Calibration, "load", lambda folder: Calibration())
    monkeypatch.setattr(module, "_LEAST", 3)
    write_page(tmp_path / "teacher", "a", 1, 5, texts=True)
    write_page(tmp_path / "teacher", "b", 2, 5, texts=False)
    result = train(alone(tmp_path / "teacher", tmp_path / "run"))
    assert result.unlabelled is not None
    assert (result.unlabelled.read, result.unlabelled.learnt) == (10, 3)
    assert result.unlabelled.teachers == {str(tmp_path / "teacher"): 3}
    texts = {sample.text for sample in Dataset.open(load_run_config(result.run.config).dataset)}
    assert texts <= {f"line {number} of a" for number in range(5)}


@pytest.mark.parametrize(
    ("reader", "usual", "reason", "overwrite"),
    [
        pytest.param(FakeReader(true_text, confidence=0.5), USUAL, "hands or script", True, id="unlike all it knows"),
        pytest.param(FakeReader(true_text), Calibration(), "never compared", False, id="uncalibrated"),
        pytest.param(FakeReader(lambda n: "" if n > 10 else "a"), USUAL, "only", False, id="hardly a reading"),
    ],
)
def test_a_base_that_reads_too_little_learns_nothing_alone(
    alone: Alone,
    reader: FakeReader,
    usual: Calibration,
    reason: str,
    overwrite: bool,
    scans: Path,
    small_run: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader.install(monkeypatch)
    monkeypatch.setattr(Calibration, "load", lambda folder: usual)
    if overwrite:
        shutil.copytree(small_run.path, tmp_path / "run")
    with raises_code("unlabelled-unread") as raised:
        train(alone(scans, tmp_path / "run"), overwrite=overwrite)
    assert reason in raised.value.message
    run = RunFolder(tmp_path / "run")
    if overwrite:  # the run that was to be replaced is as it was
        assert weights_of(run) == weights_of(small_run)
        assert run.config.read_bytes() == small_run.config.read_bytes()
    else:
        assert not run.config.exists()
        assert not run.unlabelled.exists()


def test_a_run_that_learns_alone_resumes_wherever_it_was(
    alone: Alone, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calibrated: None
) -> None:
    """Cut while it reads, while its dataset is made, and in its training."""

    def cut_in_reading(label: str, unit: str, done: int, total: int) -> None:
        if done:
            raise PowerCutError

    reader = FakeReader(true_text)
    reader.install(monkeypatch)
    whole = train(alone(scans, tmp_path / "whole"))
    config = alone(scans, tmp_path / "run")
    with pytest.raises(PowerCutError):
        train(config, on_stage=cut_in_reading)
    assert not config.dataset.exists()
    with monkeypatch.context() as patch:
        patch.setattr(module, "prepare", cut)
        with pytest.raises(PowerCutError):
            train(config)
    assert not config.dataset.exists()
    before = len(reader.names)
    with pytest.raises(PowerCutError):
        train(config, on_step=cut_at(5))
    with raises_code("other-settings"):
        train(changed(config, training={"weight_decay": 0.5}))
    result = train(config)
    assert len(reader.names) == before
    assert result.resumed_from == 4
    assert result.unlabelled == whole.unlabelled
    assert weights_of(result.run) == weights_of(whole.run)


def test_other_scans_make_another_dataset(
    alone: Alone, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calibrated: None
) -> None:
    FakeReader(true_text).install(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr("dsocr.training.recipe.ReaderLearner", cut)
        with pytest.raises(PowerCutError):
            train(alone(scans, tmp_path / "run"))
    FakeReader(lambda number: f"{true_text(number)}!").install(monkeypatch)
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    for path in sorted(scans.iterdir())[:36]:
        shutil.copy(path, fewer)
    result = train(alone(fewer, tmp_path / "run"))
    texts = {sample.text for sample in Dataset.open(result.run.unlabelled / "dataset")}
    assert texts == {f"{true_text(number)}!" for number in range(22)}


def test_a_finished_run_is_replaced_when_its_successor_has_read(
    alone: Alone, scans: Path, small_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calibrated: None
) -> None:
    FakeReader(true_text).install(monkeypatch)
    shutil.copytree(small_run.path, tmp_path / "run")
    result = train(alone(scans, tmp_path / "run"), overwrite=True)
    assert weights_of(result.run) != weights_of(small_run)
    assert load_run_config(result.run.config).learns_alone
    assert result.unlabelled is not None
    assert result.unlabelled.learnt == 24


def test_only_training_does_without_a_dataset(scans: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"base: nano\noutput: {tmp_path / 'run'}\ntraining: {{unlabelled: {scans}}}\n", encoding="utf-8")
    assert load_config(recipe).learns_alone
    result = dsocr.dry_run(recipe, preflight=False)
    assert not result.errors
    assert "unlabelled scans" in {check.name for check in result.checks}
    with raises_code("dataset-missing"):
        dsocr.forecast(recipe)
    with raises_code("dataset-missing"):
        dsocr.train(base="nano", output=tmp_path / "run")
    with raises_code("input-missing"):
        dsocr.train(unlabelled=tmp_path / "missing", base="nano", output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_name_has_that_of_its_scans(scans: Path) -> None:
    from dsocr.job import complete_config

    config = complete_config(None, None, None, {}, scans, may_learn_alone=True)
    assert config.output == Path("runs") / scans.name
    config = complete_config(None, None, None, {}, [scans / "scan-00.png"], may_learn_alone=True)
    assert config.output == Path("runs") / "scan-00"


def test_the_command_needs_no_dataset_either(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ("--set", "base=nano", "--set", f"output={tmp_path / 'run'}")
    said, _ = call(monkeypatch, capsys, "train", "--unlabelled", scans, "--dry-run", "--no-preflight", *settings)
    assert "next: the same command without --dry-run" in said
    assert fail("train", "--dry-run").code == "dataset-missing"


def test_unlabelled_scans_teach_a_detector_nothing(scans: Path, tmp_path: Path) -> None:
    with raises_code("base-is-detector"):
        dsocr.train(base="detector", unlabelled=scans, output=tmp_path / "run")
