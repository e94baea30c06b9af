"""The recipe of a forecast with a stand-in that trains in no time, and once in earnest."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import dsocr
from dsocr.config import RunConfig, load_config
from dsocr.document import Sample
from dsocr.job import Job, resolve
from dsocr.runs import RunFolder, TrainResult
from tests.raising import raises_code
from tests.training.running import pretend_to_train, train
from tests.training.test_train import changed


@dataclass
class Pretended:
    """Leaves run folders without training, and reads worse where it saw fewer samples."""

    trained: list[tuple[int | None, int | None]] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    stop_at: int = 99

    def train(self, job: Job) -> TrainResult:
        result, training = pretend_to_train(job, len(self.trained), self.stop_at), job.config.training
        self.trained.append((training.max_samples, training.max_steps))
        return result

    def score(self, run: RunFolder, samples: Sequence[Sample]) -> list[tuple[int, int]]:
        self.read.append(run.path.name)
        seen = load_config(run.config).training.max_samples or 16
        return [(max(1, 16 // seen), len(sample.text)) for sample in samples]

    def forecast(self, config: RunConfig, **options: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dsocr.training.recipe.run_job", self.train)
            patch.setattr("dsocr.training.forecast.score_run", self.score)
            return dsocr.forecast(config, **options)


def test_each_size_is_trained_scored_and_kept(small_config: RunConfig) -> None:
    pretended = Pretended()
    result = pretended.forecast(small_config, more=8)
    assert pretended.trained == [(4, 8), (8, 8), (None, 8)]
    assert [(point.samples, point.steps) for point in result.points] == [(4, 8), (8, 8), (16, 8)]
    assert [point.cer for point in result.points] == sorted((point.cer for point in result.points), reverse=True)
    folder = RunFolder(small_config.output).forecast
    written = json.loads((folder / "forecast.json").read_text(encoding="utf-8"))
    assert written["expected"]["samples"] == 24
    again = pretended.forecast(small_config)
    assert len(pretended.trained) == len(pretended.read) == 3
    assert (again.points, again.more) == (result.points, 16)
    (folder / "lines-8.json").write_text("{", encoding="utf-8")
    pretended.forecast(small_config)
    assert pretended.read[3:] == ["lines-8"], "a damaged score is made again"


@pytest.mark.parametrize(("training", "more"), [({"max_samples": 15}, None), ({}, 49)])
def test_too_few_or_too_many_lines_are_refused(
    training: dict[str, Any], more: int | None, small_config: RunConfig
) -> None:
    with raises_code("forecast-sizes"):
        Pretended().forecast(changed(small_config, training=training), more=more)


def test_other_settings_are_refused_and_with_overwrite_trained_again_but_for_the_run_itself(
    small_config: RunConfig,
) -> None:
    pretended = Pretended()
    pretended.forecast(small_config)
    made = RunFolder(small_config.output).provenance
    made.write_text('{"dataset": {"train": "of an earlier state"}}', encoding="utf-8")
    with raises_code("other-dataset"):
        pretended.forecast(small_config)
    made.unlink()
    other = changed(small_config, training={"learning_rate": 1e-3})
    with raises_code("other-settings"):
        pretended.forecast(other)
    with raises_code("other-settings") as refused:
        pretended.forecast(other, overwrite=True)
    assert "dsocr train --overwrite" in refused.value.render()
    assert len(pretended.trained) == 3
    shutil.rmtree(other.output / "adapter")
    shutil.rmtree(other.output / "forecast" / "lines-4")
    (other.output / "config.yaml").unlink()
    pretended.forecast(other, overwrite=True)
    assert len(pretended.trained) == 6


def test_fewer_samples_are_trained_for_as_many_epochs(small_config: RunConfig) -> None:
    config = changed(small_config, training={"max_steps": None, "epochs": 3, "micro_batch_size": 4})
    assert [point.steps for point in Pretended().forecast(config).points] == [3, 6, 12]


def test_a_forecast_in_earnest_leaves_a_run_that_is_trained(toy_config: RunConfig) -> None:
    """Three runs of a step each: the subsets are ordinary runs, and the largest is the run itself."""
    config = changed(toy_config, training={"max_steps": 1}, validation={"every_steps": 1})
    steps: list[tuple[int, int]] = []
    result = dsocr.forecast(config, more=4, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(1, 3), (2, 3), (3, 3)]
    assert [point.samples for point in result.points] == [4, 8, 16]
    assert result.points[0].cer > 0
    assert resolve(config).is_finished()
    with raises_code("output-exists"):
        train(config)
    subset = load_config(config.output / "forecast" / "lines-8" / "config.yaml")
    assert subset.training.max_samples == 8
    assert resolve(subset).is_finished()
