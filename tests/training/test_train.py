"""A whole training on the embedded base: what it leaves, how it resumes, what it refuses."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers.models.unlimited_ocr.modeling_unlimited_ocr import UnlimitedOcrVisionModel

from dsocr.config import RunConfig, load_config
from dsocr.errors import RunError
from dsocr.evaluation.evaluate import evaluate
from dsocr.inference.confidence import Calibration
from dsocr.inference.reader import LocalReader
from dsocr.models.adapters import WEIGHTS
from dsocr.models.base_folder import find_base
from dsocr.models.loading import load_base
from dsocr.runs import CALIBRATION, ReadingSettings, RunFolder
from dsocr.training.callbacks import TrainingProgress
from dsocr.training.checkpoint import latest_checkpoint
from dsocr.training.train import fresh_adapter, train
from tests.raising import raises_code


class PowerCutError(Exception):
    """Stands for the power going off."""


def changed(config: RunConfig, **sections: object) -> RunConfig:
    """The configuration with some values of its sections changed."""
    values = config.model_dump()
    for name, value in sections.items():
        values[name] = {**values[name], **value} if isinstance(value, dict) else value
    return RunConfig.model_validate(values)


def metrics(run: Path, kind: str) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in RunFolder(run).metrics.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["kind"] == kind]


def test_a_training_leaves_a_whole_run(small_config: RunConfig) -> None:
    reported: list[TrainingProgress] = []
    result = train(small_config, on_progress=reported.append)
    run = RunFolder.open(small_config.output)
    assert result.steps == 8
    assert [progress.step for progress in reported] == list(range(1, 9))
    assert ReadingSettings.load(run.adapter).base == "nano"
    assert {file.name for file in run.adapter.iterdir()} == {
        WEIGHTS,
        "adapter_config.json",
        "calibration.json",
        "reading.json",
        "manifest.json",
    }
    assert len(metrics(run.path, "train")) == 8
    assert [row["step"] for row in metrics(run.path, "validation")] == [4, 8]
    assert any(run.tensorboard.iterdir())
    assert "step 8: validation loss" in run.log.read_text(encoding="utf-8")
    provenance = json.loads(run.provenance.read_text(encoding="utf-8"))
    assert set(provenance["dataset"]) == {"train", "validation", "test"}
    assert str(run.path.parent) not in (run.adapter / "adapter_config.json").read_text(encoding="utf-8")


def calibration_file(run: Path) -> bytes:
    return (RunFolder(run).adapter / CALIBRATION).read_bytes()


def test_a_training_ends_with_confidences_fitted_on_what_the_best_adapter_read(small_config: RunConfig) -> None:
    result = train(changed(small_config, validation={"max_samples": None}))
    run = RunFolder.open(small_config.output)
    fitted = Calibration.load(run.adapter)
    assert result.calibrated_on == fitted.lines == 4
    # Reading the same split with the finished run comes to the same,.
    evaluate(run, with_base=False, calibrate=True)
    again = Calibration.load(run.adapter)
    for kind in ("character", "word", "line"):
        ours, theirs = getattr(fitted, kind), getattr(again, kind)
        assert (ours.slope, ours.offset) == pytest.approx((theirs.slope, theirs.offset), abs=1e-3)
    RunFolder.open(small_config.output)  # a calibration that was fitted anew is no damage


def test_the_loss_falls(small_config: RunConfig) -> None:
    train(changed(small_config, training={"max_steps": 30}, validation={"every_steps": 30}))
    losses = [row["loss"] for row in metrics(small_config.output, "train")]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


@pytest.mark.parametrize(("scope", "augmentation"), [("decoder", 0.0), ("decoder+vision", 1.0)])
def test_a_killed_training_resumes_as_if_nothing_had_happened(
    scope: str, augmentation: float, small_config: RunConfig, tmp_path: Path
) -> None:
    small_config = changed(small_config, adapter={"target_modules": scope}, training={"augmentation": augmentation})
    uninterrupted = changed(small_config, output=tmp_path / "uninterrupted")
    train(uninterrupted)

    def stop(progress: TrainingProgress) -> None:
        if progress.step == 6:
            raise PowerCutError

    with pytest.raises(PowerCutError):
        train(small_config, on_progress=stop)
    with pytest.raises(RunError):
        RunFolder.open(small_config.output)
    result = train(small_config)
    assert result.resumed_from == 4

    ours = load_file(RunFolder(small_config.output).checkpoints / "step-0000008" / WEIGHTS)
    theirs = load_file(RunFolder(uninterrupted.output).checkpoints / "step-0000008" / WEIGHTS)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    losses = {row["step"]: row["loss"] for row in metrics(small_config.output, "train")}
    assert losses == {row["step"]: row["loss"] for row in metrics(uninterrupted.output, "train")}
    last = metrics(small_config.output, "validation")[-1], metrics(uninterrupted.output, "validation")[-1]
    assert last[0]["cer"] == last[1]["cer"]
    assert last[0]["loss"] == last[1]["loss"]
    assert calibration_file(small_config.output) == calibration_file(uninterrupted.output)


def test_checkpoints_are_rotated_and_hold_no_pickle(small_config: RunConfig) -> None:
    train(changed(small_config, checkpoints={"every_steps": 2, "keep": 2}))
    folder = RunFolder(small_config.output).checkpoints
    assert sorted(path.name for path in folder.iterdir()) == [
        "best-0000004",  # the best that step 6 knows of
        "best-0000008",
        "step-0000006",
        "step-0000008",
    ]
    suffixes = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".safetensors"}


def test_a_checkpoint_that_is_not_whole_is_not_taken(small_run: RunFolder, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(small_run.checkpoints, tmp_path / "checkpoints"))
    (folder / ".step-0000009.deadbeef.tmp").mkdir()
    (folder / "step-0000010").mkdir()
    assert latest_checkpoint(folder, lambda sentence: None) == folder / "step-0000008"


def test_training_stops_early_when_validation_does_not_get_better(small_config: RunConfig) -> None:
    still = {"max_steps": 40, "learning_rate": 1e-12}
    result = train(changed(small_config, training=still, validation={"every_steps": 2, "patience": 2}))
    assert result.steps == 6
    assert result.best_step == 2


def test_accumulation_changes_nothing_but_memory(small_config: RunConfig, small_run: RunFolder) -> None:
    train(changed(small_config, training={"micro_batch_size": 4}))
    ours = [row["loss"] for row in metrics(small_run.path, "train")]
    theirs = [row["loss"] for row in metrics(small_config.output, "train")]
    assert ours == pytest.approx(theirs, abs=2e-3)


@pytest.mark.parametrize(
    "training",
    [
        pytest.param({"precision": "bf16"}, id="bf16"),
        pytest.param({"gradient_checkpointing": True}, id="gradient checkpointing"),
        pytest.param({"num_workers": 1, "augmentation": 1.0}, id="a worker process and augmentation"),
        pytest.param({"lr_scheduler": "constant", "max_steps": None, "epochs": 0.5}, id="half an epoch"),
    ],
)
def test_a_training_runs_with(training: dict[str, object], small_config: RunConfig) -> None:
    towers_too = changed(small_config, adapter={"target_modules": "decoder+vision"}, validation={"max_samples": 1})
    result = train(changed(towers_too, training={"max_steps": 4, **training}))
    weights = load_file(result.run.adapter / WEIGHTS)
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert any(bool(tensor.any()) for name, tensor in weights.items() if "lora_B" in name)


def test_gradient_checkpointing_learns_the_same(small_config: RunConfig, tmp_path: Path) -> None:
    towers_too = changed(small_config, adapter={"target_modules": "decoder+vision"}, training={"max_steps": 4})
    saving = changed(towers_too, output=tmp_path / "saving", training={"gradient_checkpointing": True})
    train(towers_too)
    train(saving)
    ours = [row["loss"] for row in metrics(towers_too.output, "train")]
    assert ours == pytest.approx([row["loss"] for row in metrics(saving.output, "train")], abs=1e-4)


@pytest.mark.parametrize(("scope", "reached"), [("decoder", False), ("decoder+vision", True)])
def test_checkpointing_leaves_frozen_vision_towers_out_of_the_backward_pass(
    scope: str, reached: bool, small_config: RunConfig
) -> None:
    config = changed(small_config, adapter={"target_modules": scope}, training={"gradient_checkpointing": True})
    base = load_base("nano")
    model = fresh_adapter(base.network, config, revision=None).train()
    features = model.get_image_features(torch.zeros(1, 3, 256, 256)).pooler_output[0]
    assert features.requires_grad is reached


def test_a_finished_run_is_not_trained_over(small_config: RunConfig) -> None:
    config = changed(small_config, training={"max_steps": 2}, validation={"every_steps": 2})
    train(config)
    with raises_code("run-finished"):
        train(config)
    assert train(config, overwrite=True).resumed_from == 0


def test_an_unfinished_run_of_other_settings_is_not_resumed(small_config: RunConfig) -> None:
    def stop(progress: TrainingProgress) -> None:
        if progress.step == 5:
            raise PowerCutError

    with pytest.raises(PowerCutError):
        train(small_config, on_progress=stop)
    with raises_code("other-settings"):
        train(changed(small_config, training={"learning_rate": 1e-5}))


def test_settings_that_stopped_a_training_at_once_may_be_put_right(small_config: RunConfig) -> None:
    with raises_code("target-modules-unmatched"):
        train(changed(small_config, adapter={"target_modules": "^nothing$"}))
    assert train(small_config).steps == 8
    assert len(metrics(small_config.output, "train")) == 8


def test_a_folder_of_something_else_is_left_alone(small_config: RunConfig) -> None:
    small_config.output.mkdir()
    (small_config.output / "letters.txt").write_text("dear", encoding="utf-8")
    with raises_code("not-a-run"):
        train(small_config, overwrite=True)
    assert (small_config.output / "letters.txt").read_text(encoding="utf-8") == "dear"


def test_a_text_over_the_budget_is_an_error_or_a_counted_exclusion(small_config: RunConfig) -> None:
    with raises_code("dataset-has-errors"):
        train(changed(small_config, training={"max_text_tokens": 13}))
    assert not small_config.output.exists(), "a training that did not begin leaves nothing behind"
    relaxed = {"max_text_tokens": 13, "long_text": "exclude"}
    result = train(changed(small_config, training=relaxed))
    assert 0 < result.excluded < 16


def test_a_dataset_with_a_broken_image_is_refused(small_config: RunConfig, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(small_config.dataset, tmp_path / "broken"))
    image = next((broken / "train").rglob("*.png"))
    image.write_bytes(image.read_bytes()[:60])
    with raises_code("dataset-has-errors"):
        train(changed(small_config, dataset=broken))


def test_layers_that_no_gradient_reaches_are_refused_before_training(
    small_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The published code runs its vision towers under no_grad: an adapter there would stay as it was, unnoticed."""
    towers = UnlimitedOcrVisionModel.forward
    monkeypatch.setattr(UnlimitedOcrVisionModel, "forward", torch.no_grad()(towers))
    with raises_code("layers-without-gradient") as error:
        train(changed(small_config, adapter={"target_modules": "decoder+vision"}))
    assert "vision_tower.sam_encoder" in error.value.message
    assert "language_model" not in error.value.message
    assert not small_config.output.exists()


def test_the_vision_towers_can_learn_at_a_rate_of_their_own(small_config: RunConfig, tmp_path: Path) -> None:
    towers_too = changed(small_config, adapter={"target_modules": "decoder+vision"}, validation={"every_steps": 9})
    alike = changed(towers_too, training={"max_steps": 1, "warmup_ratio": 0.0})
    train(alike)
    train(changed(alike, output=tmp_path / "slow", training={"vision_learning_rate": 1e-9}))
    same, other = (load_file(run / "adapter" / WEIGHTS) for run in (alike.output, tmp_path / "slow"))
    far = {name for name in same if not torch.allclose(same[name], other[name], atol=1e-6)}
    assert far
    assert all("vision_tower" in name or "multi_modal_projector" in name for name in far)


def test_a_vision_rate_without_a_vision_adapter_is_refused(small_config: RunConfig) -> None:
    config = changed(small_config, training={"vision_learning_rate": 1e-3})
    with raises_code("no-vision-adapter"):
        train(config)


@pytest.mark.parametrize("variant", ["rslora", "dora"])
def test_other_kinds_of_adapter_train_and_come_back(variant: str, small_config: RunConfig) -> None:
    config = changed(
        small_config, adapter={"target_modules": "decoder+vision", "variant": variant}, training={"max_steps": 2}
    )
    train(config)
    assert LocalReader.of_run(RunFolder.open(config.output)).network.active_adapters == ["default"]


def test_a_base_of_the_hub_is_pinned_to_the_commit_that_was_fetched(
    small_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def fetched(name: str, revision: str | None) -> tuple[Path, str]:
        asked.append(revision)
        return find_base("nano")[0], "c0ffee"

    monkeypatch.setattr("dsocr.models.base_folder.fetch_model", fetched)
    config = changed(small_config, base="somebody/nano")
    with pytest.raises(PowerCutError):
        train(config, on_progress=cut_at_step_five)
    run = RunFolder(config.output)
    assert load_config(run.config).base_revision == "c0ffee"
    train(config)  # nothing is said of a revision, and the one that was begun with is taken
    assert asked[0] is None
    assert set(asked[1:]) == {"c0ffee"}
    assert ReadingSettings.load(run.adapter).base_revision == "c0ffee"
    adapter = json.loads((run.adapter / "adapter_config.json").read_text(encoding="utf-8"))
    assert (adapter["base_model_name_or_path"], adapter["revision"]) == ("somebody/nano", "c0ffee")
    assert json.loads(run.provenance.read_text(encoding="utf-8"))["base_revision"] == "c0ffee"


def cut_at_step_five(progress: TrainingProgress) -> None:
    if progress.step == 5:
        raise PowerCutError


def test_a_base_that_cannot_be_loaded_leaves_nothing_behind(small_config: RunConfig, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(find_base("nano")[0], tmp_path / "base"))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with raises_code("weights-damaged"):
        train(changed(small_config, base=str(folder)))
    assert not small_config.output.exists()
