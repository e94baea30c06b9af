"""Runs that start from an earlier run's adapter or network."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.errors import DsocrError
from dsocr.evaluation.evaluate import describe_known_lines
from dsocr.inference.reader import LocalReader
from dsocr.io.work import write_manifest
from dsocr.job import list_ancestors, resolve
from dsocr.models.adapters import adapter_tensors
from dsocr.models.base_folder import WEIGHTS, embedded_bases
from dsocr.models.export import export_merged
from dsocr.runs import READING, RunFolder, read_history
from dsocr.training.samples import Setup
from dsocr.workbench.background import find_training_config
from tests.conftest import eight_steps
from tests.raising import raises_code
from tests.training.running import pinned, set_up, train
from tests.training.test_train import changed


def set_up_pinned(config: RunConfig, dataset: Path) -> Setup:
    samples = Dataset.open(dataset).samples(Split.TRAIN)
    return set_up(pinned(config), samples)


@pytest.fixture(scope="module")
def whole(small_dataset: Path, toy: str, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that trained all weights of a network."""
    return train(eight_steps(small_dataset, tmp_path_factory.mktemp("whole") / "run", toy)).run


def test_an_adapter_starts_where_the_run_ended(
    small_run: RunFolder, nano_config: RunConfig, small_dataset: Path
) -> None:
    config = changed(nano_config, adapter={"init_from": small_run.path})
    setup = set_up_pinned(config, small_dataset)
    own, saved = adapter_tensors(setup.model), adapter_tensors(LocalReader.of_run(small_run, merged=False).network)
    assert own.keys() == saved.keys()
    assert all(torch.equal(own[name], tensor) for name, tensor in saved.items())
    fresh = adapter_tensors(set_up_pinned(nano_config, small_dataset).model)
    assert any(not torch.equal(fresh[name], tensor) for name, tensor in own.items())


def test_a_run_that_started_from_another_resumes_bit_by_bit_without_it(
    small_run: RunFolder, nano_config: RunConfig, tmp_path: Path
) -> None:
    start = tmp_path / "start"
    shutil.copytree(small_run.path, start)
    config = changed(
        nano_config,
        adapter={"init_from": start, "dropout": 0.1},
        training={"max_steps": 2},
        validation={"max_samples": 1},
        checkpoints={"every_steps": 1},
    )
    train(config)
    run = RunFolder(config.output)
    weights = (run.adapter / WEIGHTS).read_bytes()
    shutil.rmtree(run.adapter)
    shutil.rmtree(run.checkpoints / "step-0000002")
    shutil.rmtree(start)
    resolve(config)
    assert train(config).resumed_from == 1
    assert (run.adapter / WEIGHTS).read_bytes() == weights


def test_a_run_is_never_worse_than_what_it_started_from(
    small_run: RunFolder, nano_config: RunConfig, tmp_path: Path
) -> None:
    training = {"max_steps": 1, "learning_rate": 0.3, "warmup_ratio": 0.0}
    config = changed(nano_config, adapter={"init_from": small_run.path}, training=training)
    result = train(config)
    assert result.best_step == 0
    assert (result.run.adapter / WEIGHTS).read_bytes() == (small_run.adapter / WEIGHTS).read_bytes()
    first, *later = read_history(result.run.path).validation
    assert first["step"] == 0
    assert all(row["cer"] > first["cer"] for row in later)
    shutil.rmtree(result.run.adapter)
    assert train(config).best_step == 0
    assert (result.run.adapter / WEIGHTS).read_bytes() == (small_run.adapter / WEIGHTS).read_bytes()


def test_provenance_lists_what_a_run_started_from(
    small_run: RunFolder, nano_config: RunConfig, small_dataset: Path, tmp_path: Path
) -> None:
    dataset = Dataset.open(small_dataset)
    export_merged(small_run, tmp_path / "merged")
    (merged,) = list_ancestors(changed(nano_config, base=str(tmp_path / "merged")), dataset)
    (first,) = list_ancestors(changed(nano_config, adapter={"init_from": small_run.adapter}), dataset)
    assert first["run"] == small_run.path.as_posix()
    assert (first["base"], first["known_lines"]) == ("nano", {"validation": 0, "test": 0})
    assert merged["base"] == "nano"
    assert merged["dataset"] == first["dataset"] == json.loads(small_run.provenance.read_text("utf-8"))["dataset"]

    second = train(changed(nano_config, adapter={"init_from": small_run.path}, training={"max_steps": 1})).run
    recorded = json.loads(second.provenance.read_text("utf-8"))["started_from"]
    assert recorded == [first]
    third = list_ancestors(changed(nano_config, adapter={"init_from": second.path}), dataset)
    assert [run["run"] for run in third] == [second.path.as_posix(), small_run.path.as_posix()]
    assert list_ancestors(nano_config, dataset) == []
    assert list_ancestors(changed(nano_config, base=str(embedded_bases()["nano"])), dataset) == []


def test_lines_on_which_an_earlier_run_was_trained_are_counted(
    small_run: RunFolder, nano_config: RunConfig, small_dataset: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "swapped"
    shutil.copytree(small_dataset, folder)
    shutil.rmtree(folder / "test")
    shutil.copytree(small_dataset / "train", folder / "test")
    ancestors = list_ancestors(changed(nano_config, adapter={"init_from": small_run.path}), Dataset.open(folder))
    assert ancestors[0]["known_lines"] == {"validation": 0, "test": 16}
    assert len(describe_known_lines(ancestors)) == 1
    assert describe_known_lines(ancestors, ["validation"]) == []


def test_a_base_with_the_same_weights_is_the_same_base(
    small_run: RunFolder, nano_config: RunConfig, tmp_path: Path
) -> None:
    shutil.copytree(embedded_bases()["nano"], tmp_path / "copy")
    resolve(changed(nano_config, base=str(tmp_path / "copy"), adapter={"init_from": small_run.path}))


@pytest.mark.parametrize(
    ("adapter", "remedy"),
    [
        pytest.param({"r": 8}, "adapter.r=4", id="rank"),
        pytest.param({"alpha": 4}, "adapter.alpha=8", id="scaling"),
        pytest.param({"variant": "rslora"}, "adapter.variant=lora", id="variant"),
        pytest.param({"target_modules": "decoder+vision"}, "adapter.target_modules=decoder", id="layers"),
    ],
)
def test_an_adapter_of_another_shape(
    adapter: dict[str, Any], remedy: str, small_run: RunFolder, nano_config: RunConfig
) -> None:
    with raises_code("init-from-shape") as error:
        resolve(changed(nano_config, adapter={"init_from": small_run.path, **adapter}))
    assert f"--set {remedy}" in error.value.render()


def test_an_adapter_of_another_base(small_run: RunFolder, nano_config: RunConfig, tmp_path: Path) -> None:
    start = tmp_path / "start"
    shutil.copytree(small_run.adapter, start)
    settings = json.loads((start / READING).read_text("utf-8"))
    (start / READING).write_text(json.dumps(settings | {"base": "owner/other"}), encoding="utf-8")
    write_manifest(start)
    with raises_code("init-from-base"):
        resolve(changed(nano_config, adapter={"init_from": start}))


def test_what_cannot_be_started_from(
    small_run: RunFolder, whole: RunFolder, nano_config: RunConfig, tmp_path: Path
) -> None:
    with raises_code("init-from-network"):
        resolve(changed(nano_config, adapter={"init_from": whole.path}))
    with raises_code("init-from-network"):
        resolve(changed(nano_config, base=str(whole.path), adapter={"init_from": small_run.path}))
    for folder in (small_run.path, small_run.adapter):
        with raises_code("base-is-adapter") as error:
            resolve(changed(nano_config, base=str(folder)))
        assert "adapter.init_from" in error.value.render()
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    shutil.copyfile(small_run.config, unfinished / "config.yaml")
    for settings in ({"base": str(unfinished)}, {"adapter": {"init_from": unfinished}}):
        with raises_code("run-unfinished"):
            resolve(changed(nano_config, **settings))
    with pytest.raises(DsocrError):
        resolve(changed(nano_config, adapter={"init_from": tmp_path / "absent"}))


def test_the_workbench_goes_on_from_the_run_that_reads(
    small_run: RunFolder, whole: RunFolder, small_dataset: Path
) -> None:
    config = find_training_config(small_run.path, None)
    assert config is not None
    assert config.adapter.init_from == small_run.path
    resolve(config.model_copy(update={"output": small_run.path / "next"}))
    config = find_training_config(whole.path, None)
    assert config is not None
    assert config.base == whole.path.as_posix()
    for run in (None, Path("small")):
        config = find_training_config(run, None)
        assert config is not None
        assert config.base == "small"
    assert find_training_config(small_run.adapter, None) is None
    assert eight_steps(small_dataset, small_run.path).adapter.init_from is None
