"""Whether readings are combined is decided on the validation split, and measured on another."""

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml

import dsocr
from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.evaluation.metrics import character_errors, pool
from dsocr.evaluation.second_reader import describe_vote, fit_on, fit_vote, load_vote, make_combiner, open_seconds
from dsocr.evaluation.statistics import Clusters
from dsocr.inference.combine import combine
from dsocr.inference.confidence import Prediction
from dsocr.inference.reader import LocalReader
from dsocr.runs import RunFolder
from dsocr.training.train import train
from tests.models import toy_family
from tests.raising import raises_code

LETTERS = "абвгдежзик"


def references(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join("".join(draw.choices(LETTERS, k=6)) for _ in range(5)) for _ in range(count)]


def read(texts: list[str], rate: float, seed: int, *, doubt: float | None = 0.4) -> list[Prediction]:
    """Read letters wrongly at a rate, with a confidence of `doubt` where it is wrong and, as often, where it is not."""
    draw = random.Random(seed)
    found = []
    for text in texts:
        letters, confidences = [], []
        for letter in text:
            wrong = letter != " " and draw.random() < rate
            letters.append(draw.choice(LETTERS.replace(letter, "")) if wrong else letter)
            confidences.append(0.95 if doubt is None or not (wrong or draw.random() < rate) else doubt)
        characters = tuple(confidences) if doubt is not None else ()
        found.append(Prediction("line", "".join(letters), 1, False, characters=characters))
    return found


def cer(texts: list[str], predictions: list[Prediction]) -> float:
    return pool(character_errors(text, one.text) for text, one in zip(texts, predictions, strict=True)).rate


@pytest.mark.parametrize(
    ("rates", "is_combined"),
    [
        pytest.param((0.1, 0.1), True, id="two that know where they are wrong"),
        pytest.param((0.05, 0.6), False, id="a second that reads badly"),
        pytest.param((0.1, 0.12, 0.14), True, id="three"),
    ],
)
def test_readings_are_combined_where_that_helps(rates: tuple[float, ...], is_combined: bool) -> None:
    fitted, scored = references(60, 1), references(60, 2)
    first, *others = (read(fitted, rate, seed) for seed, rate in enumerate(rates))
    clusters = Clusters("page", np.arange(60) // 5)
    vote = fit_vote(
        [f"r{place}" for place in range(len(rates))], list(zip(first, *others, strict=True)), fitted, clusters
    )
    assert (vote.kept is None) == is_combined
    readers = [read(scored, rate, 10 + seed) for seed, rate in enumerate(rates)]
    best = min(cer(scored, one) for one in readers)
    combined = cer(scored, [combine(line, vote) for line in zip(*readers, strict=True)])
    assert combined < 0.8 * best if is_combined else combined == best
    assert vote.calibration.lines == 60
    assert "r0" in describe_vote(vote)


@pytest.mark.parametrize(
    ("rates", "kept"),
    [
        pytest.param((0.10, 0.098), 0, id="a second that happens to be better"),
        pytest.param((0.10, 0.11), 0, id="a second that is a little worse"),
        pytest.param((0.30, 0.10), 1, id="a second that is clearly better"),
        pytest.param((0.30, 0.15, 0.02), 2, id="the best of two that are clearly better"),
    ],
)
def test_the_first_reader_is_kept_unless_another_is_clearly_better(rates: tuple[float, ...], kept: int) -> None:
    """Readers without confidences, whose vote brings nothing."""
    texts = references(60, 1)
    readers = [read(texts, rate, seed, doubt=None) for seed, rate in enumerate(rates)]
    names = [f"r{place}" for place in range(len(rates))]
    vote = fit_vote(names, list(zip(*readers, strict=True)), texts, Clusters("line", np.arange(60)))
    assert vote.kept == kept


def test_where_readers_agree_a_text_is_more_certain() -> None:
    texts = references(60, 1)
    readers = [read(texts, 0.15, seed, doubt=None) for seed in range(2)]
    vote = fit_vote(["a", "b"], list(zip(*readers, strict=True)), texts, Clusters("line", np.arange(60)))
    judged = [combine(line, vote) for line in zip(*readers, strict=True)]
    assert all(not one.characters for one in judged)  # neither gives any confidence
    with_own = [read(texts, 0.15, 0), readers[1]]
    vote = fit_vote(["a", "b"], list(zip(*with_own, strict=True)), texts, Clusters("line", np.arange(60)))
    assert vote.doubt[2] < -1
    lines = [combine(line, vote) for line in zip(*with_own, strict=True)]
    confidences = [
        (one.confidence, character_errors(text, one.text).errors) for text, one in zip(texts, lines, strict=True)
    ]
    least = sorted((confidence or 0.0, errors) for confidence, errors in confidences)
    assert sum(errors for _, errors in least[:30]) > sum(errors for _, errors in least[30:])


def test_lines_that_a_reader_lacks_do_not_stop_the_fit() -> None:
    texts = references(60, 1)
    first, second = read(texts, 0.1, 0), read(texts, 0.1, 1)
    lines = [
        (one, None if place % 7 == 0 else other) for place, (one, other) in enumerate(zip(first, second, strict=True))
    ]
    vote = fit_vote(["a", "b"], lines, texts, Clusters("line", np.arange(60)))
    assert cer(texts, [combine(line, vote) for line in lines]) < cer(texts, first)


def test_nothing_to_fit_on_is_an_error() -> None:
    with raises_code("no-lines"):
        fit_vote(["a", "b"], [], [], Clusters("line", np.arange(0)))


@pytest.fixture(scope="module")
def toy_run(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of a network that reads in no time."""
    folder = tmp_path_factory.mktemp("trained")
    config = {
        "base": str(toy_family.write_base(folder / "base")),
        "dataset": small_dataset,
        "output": folder / "run",
        "guard": {"lines": 0},
        "training": {"max_steps": 1},
    }
    return train(RunConfig.model_validate(config)).run


@pytest.fixture
def run(toy_run: RunFolder, tmp_path: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(toy_run.path, tmp_path / "run")))


def predictions(dataset: Path, path: Path, splits: tuple[Split, ...]) -> Path:
    """The predictions of a tool that reads all but the last letter of each line."""
    samples = [sample for split in splits for sample in Dataset.open(dataset).samples(split)]
    rows = [json.dumps({"id": sample.id, "text": sample.text[:-1]}, ensure_ascii=False) for sample in samples]
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def test_a_run_and_another_tool_are_scored_alone_and_combined(
    run: RunFolder, small_dataset: Path, tmp_path: Path
) -> None:
    table = predictions(small_dataset, tmp_path / "tool.jsonl", (Split.VALIDATION, Split.TEST))
    card = dsocr.evaluate(run.path, second=table, with_base=False)
    second = card.settings["second"]
    own, tool, combined = second["readers"]
    assert [one["name"] for one in second["readers"]] == ["run", "tool", "combined"]
    assert own["cer"] == card.cer
    assert tool["character_errors"] == 4
    # It reads much better, but four lines are too few to know that.
    assert (combined["cer"], second["combined"]) == (own["cer"], False)
    assert second["validation_lines"] == 4
    assert second["summary"] in card.notes
    assert json.loads(run.combined.read_text(encoding="utf-8"))["vote"]["kept"] == 0
    assert run.combined_page.read_text(encoding="utf-8").count("tool")

    # The vote is stored for this run as it is now, and used for further lines of that tool.
    seconds = open_seconds(run, [f"tool={table.as_posix()}"])
    assert load_vote(run, seconds).lines == 4
    assert make_combiner(run, [str(table)]).vote.lines == 4
    (run.adapter / "reading.json").write_text(
        (run.adapter / "reading.json").read_text(encoding="utf-8") + "\n", encoding="utf-8"
    )
    assert load_vote(run, seconds).lines == 0


def test_without_validation_lines_the_run_is_kept(run: RunFolder, small_dataset: Path, tmp_path: Path) -> None:
    table = predictions(small_dataset, tmp_path / "tool.jsonl", (Split.TEST,))
    with raises_code("nothing-matches"):
        dsocr.evaluate(run.path, second=table, with_base=False)
    combiner = make_combiner(run, [str(table)])
    assert (combiner.vote.kept, combiner.vote.lines) == (0, 0)


def test_a_second_run_is_fitted_when_it_is_first_used(run: RunFolder, tmp_path: Path) -> None:
    other = shutil.copytree(run.path, tmp_path / "other")
    vote = make_combiner(run, [str(other)]).vote
    assert (vote.names, vote.lines, vote.kept) == (("run", "other"), 4, 0)
    assert load_vote(run, open_seconds(run, [str(other)])) == vote


def test_predictions_of_other_lines_are_refused_before_anything_is_read(
    run: RunFolder, small_dataset: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.tsv").write_text("a.jpg\tтекст\n", encoding="utf-8")

    def read(samples: Sequence[Sample], reader: LocalReader) -> list[Prediction]:
        raise AssertionError

    with raises_code("nothing-matches"):
        fit_on(
            run,
            LocalReader.of_run(run),
            open_seconds(run, [str(tmp_path / "other.tsv")]),
            Dataset.open(small_dataset).samples("validation"),
            read,
        )


def test_two_readers_need_two_names(run: RunFolder) -> None:
    with raises_code("duplicate-name"):
        open_seconds(run, [str(run.path)])
    with pytest.raises(DataError, match="combined"):
        open_seconds(run, ["combined=nano"])


@pytest.mark.parametrize(
    ("ancestor", "trained", "lines"),
    [
        pytest.param(False, 1, 3, id="on one of the validation lines"),
        pytest.param(False, 4, 0, id="on all of them"),
        pytest.param(True, 1, 3, id="what it started from, on one"),
    ],
)
def test_validation_lines_that_trained_a_reader_do_not_judge_it(
    run: RunFolder, small_dataset: Path, tmp_path: Path, ancestor: bool, trained: int, lines: int
) -> None:
    dataset = Path(shutil.copytree(small_dataset, tmp_path / "dataset"))
    rows = (dataset / "validation" / "metadata.jsonl").read_text(encoding="utf-8").splitlines()[:trained]
    with (dataset / "train" / "metadata.jsonl").open("a", encoding="utf-8") as file:
        for number, row in enumerate(map(json.loads, rows)):
            shutil.copy(dataset / "validation" / row["file_name"], dataset / "train" / "images" / f"more-{number}.png")
            file.write(json.dumps({**row, "file_name": f"images/more-{number}.png"}) + "\n")
    other = RunFolder(Path(shutil.copytree(run.path, tmp_path / "other")))
    text = other.config.read_text(encoding="utf-8")
    config = yaml.safe_load(text) | {"dataset": dataset.as_posix()}
    if ancestor:
        start = RunFolder(Path(shutil.copytree(run.path, tmp_path / "start")))
        start.config.write_text(yaml.safe_dump(config), encoding="utf-8")
        made = json.loads(other.provenance.read_text(encoding="utf-8"))
        made["started_from"] = [{"run": start.path.as_posix()}]
        other.provenance.write_text(json.dumps(made), encoding="utf-8")
    else:
        other.config.write_text(yaml.safe_dump(config), encoding="utf-8")
    vote = make_combiner(run, [str(other.path)]).vote
    assert (vote.lines, vote.kept) == (lines, 0)
    assert any("other" in note for note in vote.notes)
    assert vote.notes[0] in describe_vote(vote)


def test_a_reader_whose_dataset_is_gone_is_named(run: RunFolder, tmp_path: Path) -> None:
    other = RunFolder(Path(shutil.copytree(run.path, tmp_path / "other")))
    config = yaml.safe_load(other.config.read_text(encoding="utf-8"))
    other.config.write_text(yaml.safe_dump(config | {"dataset": str(tmp_path / "gone")}), encoding="utf-8")
    vote = make_combiner(run, [str(other.path)]).vote
    assert vote.lines == 4
    assert any("other" in note for note in vote.notes)
