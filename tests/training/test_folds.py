"""Cross-validation with a stand-in that trains in no time, and once in earnest; an audit reads its folds."""

import codecs
import csv
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import dsocr
from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.document import Sample
from dsocr.errors import Interrupted
from dsocr.evaluation.audit import ALL, JUDGED, PAGE, TABLE
from dsocr.evaluation.report import gather_contents
from dsocr.evaluation.scores import load_lines
from dsocr.job import Job
from dsocr.runs import RunFolder, TrainResult
from dsocr.training.folds import read_folds
from tests.raising import raises_code
from tests.training.running import pretend_to_train
from tests.training.test_train import changed


@dataclass
class Pretended:
    """Leaves run folders without training, and reads nothing but ids."""

    trained: list[tuple[int, set[str]]] = field(default_factory=list)
    read: list[list[str]] = field(default_factory=list)
    stop_at: int = 99

    def train(self, job: Job) -> TrainResult:
        result, samples = pretend_to_train(job, len(self.trained), self.stop_at), job.samples_from.samples("train")
        self.trained.append((job.config.fold or 0, {sample.writer or "" for sample in samples}))
        return result

    def read_fold(
        self, run: RunFolder, samples: Sequence[Sample], report: Callable[[int], None]
    ) -> list[dict[str, Any]]:
        self.read.append([sample.id for sample in samples])
        report(len(samples))
        return [{"id": sample.id} for sample in samples]

    def folds(self, config: RunConfig, **options: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dsocr.training.recipe.run_job", self.train)
            return read_folds(config, self.read_fold, name="ids", **options)


def test_every_line_is_read_once_by_a_model_that_knows_nothing_of_its_writer(small_config: RunConfig) -> None:
    pretended, work = Pretended(), []
    found = pretended.folds(small_config, progress=lambda done, total, note: work.append((done, total)))
    samples = {sample.id: sample for sample in Dataset.open(small_config.dataset)}
    assert sorted(row["id"] for fold in found for row in fold.rows) == sorted(samples)
    assert [number for number, _ in pretended.trained] == [1, 2, 3], "three writers make three folds, not five"
    for fold, (_, writers) in zip(found, pretended.trained, strict=True):
        assert writers.isdisjoint({samples[row["id"]].writer for row in fold.rows})
    assert work[-1][0] == work[-1][1]
    assert work == sorted(work)


def test_folds_that_were_stopped_go_on_where_they_were(small_config: RunConfig) -> None:
    pretended = Pretended(stop_at=2)
    with pytest.raises(Interrupted):
        pretended.folds(small_config)
    pretended.stop_at = 99
    pretended.folds(small_config)
    pretended.folds(small_config)
    assert [number for number, _ in pretended.trained] == [1, 2, 3]
    assert len(pretended.read) == 3


def test_other_data_and_other_settings_are_refused_and_trained_again_with_overwrite(
    small_config: RunConfig, tmp_path: Path
) -> None:
    pretended = Pretended()
    pretended.folds(small_config)
    other = changed(small_config, training={"learning_rate": 1e-3})
    with raises_code("other-settings"):
        pretended.folds(other)
    pretended.folds(other, overwrite=True)
    assert len(pretended.trained) == len(pretended.read) == 6
    with raises_code("other-dataset"):
        pretended.folds(other, folds=4)
    dataset = Path(shutil.copytree(small_config.dataset, tmp_path / "copy"))
    card = json.loads((dataset / "dataset.json").read_text(encoding="utf-8"))
    card["splits"]["train"]["sha256"] = "0" * 64
    (dataset / "dataset.json").write_text(json.dumps(card), encoding="utf-8")
    with raises_code("other-dataset"):
        pretended.folds(other.model_copy(update={"dataset": dataset}))


def test_folds_are_known_again_where_they_were_moved_to(small_config: RunConfig, tmp_path: Path) -> None:
    pretended, moved = Pretended(), tmp_path / "archive" / "work"
    pretended.folds(small_config)
    moved.parent.mkdir()
    small_config.output.rename(moved)
    pretended.folds(small_config.model_copy(update={"output": moved}))
    assert len(pretended.trained) == len(pretended.read) == 3


def test_folds_of_the_dataset_are_used(small_config: RunConfig) -> None:
    pretended = Pretended()
    pretended.folds(small_config)
    own = small_config.model_copy(
        update={"dataset": small_config.output / "dataset", "output": small_config.output / "own"}
    )
    found = pretended.folds(own)
    assert not (own.output / "dataset").exists()
    assert [len(fold.samples) for fold in found] == [len(read) for read in pretended.read[:3]]
    with raises_code("folds-differ"):
        pretended.folds(own, folds=5)


def test_the_pooled_scorecard_is_of_all_lines_and_has_a_report(toy_config: RunConfig, tmp_path: Path) -> None:
    config = changed(toy_config, training={"max_steps": 1})
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(config.to_yaml(), encoding="utf-8")
    card = dsocr.cross_validate(recipe, base=False)
    folder = RunFolder(RunFolder(config.output).folds)
    lines = load_lines(folder.lines)["adapter"]
    assert len(lines) == len(Dataset.open(config.dataset)) == card.settings["lines"]
    assert {line.writer_status for line in lines} == {"new"}
    contents = gather_contents(folder)
    assert folder.report.stat().st_size > 1000
    assert not contents.warnings
    assert len(contents.images) > 0
    assert not RunFolder(config.output).config.exists(), "the run itself is not trained"


def test_an_audit_ranks_every_line_once(small_dataset: Path, toy: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    quick: dict[str, Any] = {
        "base": toy,
        "max_steps": 1,
        "batch_size": 4,
        "micro_batch_size": 4,
        "validation.max_samples": 1,
    }
    found = dsocr.audit(small_dataset, output=work, lines=5, **quick)
    ids = {sample.id for sample in Dataset.open(small_dataset)}
    rows = [json.loads(line) for line in (work / ALL).read_text(encoding="utf-8").splitlines()]
    assert {row["id"] for row in rows} == ids
    assert [row["rank"] for row in rows] == list(range(1, len(ids) + 1))
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    assert (work / TABLE).read_bytes().startswith(codecs.BOM_UTF8)  # otherwise Excel shows é as Ã©
    with (work / TABLE).open(encoding="utf-8-sig", newline="") as file:
        table = list(csv.DictReader(file))
    assert {row["id"] for row in table} == {row["id"] for row in rows}, "all 24 are to be judged"
    assert {(row["judge"], row["wrong"], row["correction"]) for row in table} == {("yes", "", "")}
    assert (work / PAGE).read_text(encoding="utf-8").count("<img") == len(table)
    assert found.count is None

    with (work / TABLE).open("a", encoding="utf-8", newline="") as file:  # the last answer counts
        csv.writer(file).writerows(
            ["", row["id"], *[""] * 5, "yes" if n < 2 else "no", "да"] for n, row in enumerate(table)
        )
    again = dsocr.audit(small_dataset, output=work, lines=5, **quick)
    assert again.count is not None
    assert (again.count.first_wrong, again.count.interval) == (2, (2, 2)), "all were judged"
    with (work / TABLE).open(encoding="utf-8-sig", newline="") as file:
        assert [(row["wrong"], row["correction"]) for row in csv.DictReader(file)][1:3] == [("yes", "да"), ("no", "да")]
    (work / JUDGED).write_text(f"id,wrong\n{table[5]['id']},Да\n", encoding="utf-8")
    assert dsocr.audit(small_dataset, output=work, lines=5, **quick).to_dict()["wrong"]["interval"] == [3, 3]
    assert (work / "fold-3" / "model").is_dir()

    kept = work / "audit-2.json"
    whole = json.loads(kept.read_text(encoding="utf-8"))
    for name, value in (("likelihoods", {}), ("planted", [["a"]]), ("id", "x")):
        rows = [{**whole["result"][0], name: value}, *whole["result"][1:]]
        kept.write_text(json.dumps({**whole, "result": rows}), encoding="utf-8")
        with raises_code("fold-damaged", "audit-2.json"):
            dsocr.audit(small_dataset, output=work, lines=5, **quick)
    kept.write_text(json.dumps({**whole, "result": whole["result"][1:]}), encoding="utf-8")
    with raises_code("fold-damaged", "audit-2.json"):
        dsocr.audit(small_dataset, output=work, lines=5, **quick)
