"""The recipe of a forecast with a stand-in that trains in no time, and once in earnest."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import dsocr
from dsocr.config import RunConfig, load_config
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.errors import Interrupted
from dsocr.io.work import write_file, write_folder
from dsocr.job import Job, resolve
from dsocr.runs import RunFolder, TrainResult, to_json
from dsocr.training.forecast import forecast
from tests.models import toy_family
from tests.raising import raises_code
from tests.training.running import train
from tests.training.test_train import changed

SIZES = (0.5, 1.0)
"""Too few for a curve, which takes a moment to fit."""


@dataclass
class Pretended:
    """Leaves run folders without training, and reads worse where it saw fewer samples."""

    trained: list[tuple[int | None, int | None]] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    stop_at: int = 99

    def train(self, job: Job) -> TrainResult:
        run, config = job.run, job.config
        if len(self.trained) == self.stop_at:
            raise Interrupted(2, 3, run.resume_command)
        if job.overwrite:
            shutil.rmtree(run.path)
        write_folder(run.adapter, [])
        write_file(run.config, config.to_yaml())
        hashes = Dataset.open(config.dataset).card.hashes
        write_file(run.provenance, to_json({"begun_at": f"{len(self.trained)}", "dataset": hashes}))
        self.trained.append((config.training.max_samples, config.training.max_steps))
        return TrainResult(run, 1, None, 0.0)

    def predict(self, run: RunFolder, samples: Sequence[Sample], of_base: bool) -> dict[str, str]:
        self.read.append("base" if of_base else run.path.name)
        if of_base:
            return dict.fromkeys((sample.id for sample in samples), "")
        seen = load_config(run.config).training.max_samples or 16
        return {sample.id: sample.text[max(1, 16 // seen) :] for sample in samples}

    def forecast(self, config: RunConfig, **options: Any) -> Any:
        options = {"sizes": SIZES, "train_function": self.train, "predict": self.predict, **options}
        with pytest.MonkeyPatch.context() as patch:  # the page is slow to draw, and shown by another test
            patch.setattr("dsocr.training.forecast.write_forecast", lambda *given: None)
            return forecast(resolve(config, overwrite=True), **options)


def test_each_size_is_trained_scored_and_kept(small_config: RunConfig) -> None:
    pretended, sizes = Pretended(), (0.25, 0.5, 0.75, 1.0)
    result = pretended.forecast(small_config, sizes=sizes, more=[8])
    assert pretended.trained == [(4, 8), (8, 8), (12, 8), (None, 8)]
    assert [(point.samples, point.steps) for point in result.points][:2] == [(0, 0), (4, 8)]
    assert result.points[0].cer == 1, "the base is where the curve begins"
    assert [point.cer for point in result.points] == sorted((point.cer for point in result.points), reverse=True)
    folder = RunFolder(small_config.output).forecast
    written = json.loads((folder / "forecast.json").read_text(encoding="utf-8"))
    assert [point["samples"] for point in written["points"]] == [0, 4, 8, 12, 16]
    assert written["more"][0]["count"] == 24
    again = pretended.forecast(small_config, sizes=sizes, targets=[0.5])
    assert len(pretended.trained) == len(pretended.read) - 1 == 4
    assert again.points == result.points
    (folder / "lines-8-validation.json").write_text("{", encoding="utf-8")
    pretended.forecast(small_config, sizes=sizes)
    assert pretended.read[5:] == ["lines-8"], "a damaged score is made again"


def test_another_split_is_read_without_training_again(small_config: RunConfig) -> None:
    pretended = Pretended()
    pretended.forecast(small_config)
    assert pretended.forecast(small_config, split=Split.TEST).split == "test"
    assert (len(pretended.trained), len(pretended.read)) == (2, 6)


def test_other_settings_are_refused_and_with_overwrite_trained_again_but_for_the_run_itself(
    small_config: RunConfig,
) -> None:
    pretended = Pretended()
    pretended.forecast(small_config)
    other = changed(small_config, training={"learning_rate": 1e-3})
    with raises_code("other-settings"):
        pretended.forecast(other)
    with raises_code("other-settings") as refused:
        pretended.forecast(other, overwrite=True)
    assert "dsocr train --overwrite" in refused.value.render()
    assert len(pretended.trained) == 2
    pretended.forecast(other, overwrite=True, sizes=SIZES[:1])
    assert len(pretended.trained) == 3
    assert pretended.read[3:] == ["lines-8", "base"]


def test_a_dataset_without_the_split_is_refused(small_config: RunConfig, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small_config.dataset, copy)
    card = json.loads((copy / "dataset.json").read_text(encoding="utf-8"))
    del card["splits"]["validation"]
    (copy / "dataset.json").write_text(json.dumps(card), encoding="utf-8")
    shutil.rmtree(copy / "validation")
    with raises_code("split-missing"):
        Pretended().forecast(small_config.model_copy(update={"dataset": copy}))


def test_fewer_samples_are_trained_for_as_many_epochs(small_config: RunConfig) -> None:
    config = changed(small_config, training={"max_steps": None, "epochs": 3, "micro_batch_size": 4})
    assert [point.steps for point in Pretended().forecast(config).points] == [0, 6, 12]


@pytest.mark.usefixtures("rendered_plots")
def test_a_forecast_in_earnest_leaves_a_run_that_is_trained(small_config: RunConfig, tmp_path: Path) -> None:
    """Two runs of two steps each: the subsets are ordinary runs, and the largest is the run itself."""
    base = str(toy_family.write_base(tmp_path / "base"))
    config = changed(small_config, base=base, training={"max_steps": 2}, validation={"every_steps": 2})
    steps: list[tuple[int, int]] = []
    result = dsocr.forecast(
        config, sizes=(0.5, 1.0), more=[4], progress=lambda done, total: steps.append((done, total))
    )
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [point.samples for point in result.points] == [0, 8, 16], "the base is read, too"
    assert result.points[0].cer > 0
    assert (config.output / "forecast" / "forecast.png").stat().st_size > 1000
    assert str(result) == result.reason
    assert resolve(config).is_finished()
    with raises_code("output-exists"):
        train(config)
    subset = load_config(config.output / "forecast" / "lines-8" / "config.yaml")
    assert subset.training.max_samples == 8
    assert resolve(subset).is_finished()
