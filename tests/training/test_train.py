"""A whole training on the embedded base: what it leaves, what it learns, what it refuses."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers.models.unlimited_ocr.modeling_unlimited_ocr import UnlimitedOcrVisionModel

import dsocr
from dsocr.config import RunConfig, load_config
from dsocr.inference.confidence import Calibration
from dsocr.inference.reader import LocalReader
from dsocr.job import resolve
from dsocr.models.base_folder import WEIGHTS, find_base
from dsocr.models.ctc import LineRecognizer
from dsocr.models.loading import load_base
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.training.distributed import limit_threads
from dsocr.training.readers import fit_micro_batch, make_optimizer, make_trainable
from dsocr.training.recipe import run_job
from tests.raising import raises_code
from tests.training.running import train


class PowerCutError(Exception):
    """Stands for a power cut."""


def cut_at(step: int) -> Callable[[int], None]:
    def cut(done: int) -> None:
        if done == step:
            raise PowerCutError

    return cut


def changed(config: RunConfig, **sections: object) -> RunConfig:
    """The configuration with some values of its sections changed."""
    values = config.model_dump()
    for name, value in sections.items():
        values[name] = {**values[name], **value} if isinstance(value, dict) else value
    return RunConfig.model_validate(values)


def metrics(run: Path, kind: str) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in RunFolder(run).metrics.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["kind"] == kind]


def losses(run: Path) -> list[float]:
    return [row["loss"] for row in metrics(run, "train")]


def test_a_training_leaves_a_whole_run(small_run: RunFolder) -> None:
    run = RunFolder.open(small_run.path)
    assert ReadingSettings.load(run.adapter).base == "nano"
    names = {"adapter_config.json", "calibration.json", "reading.json", "manifest.json"}
    assert {file.name for file in run.adapter.iterdir()} == {WEIGHTS, *names}
    assert [row["step"] for row in metrics(run.path, "train")] == list(range(1, 9))
    assert [row["step"] for row in metrics(run.path, "validation")] == [4, 8]
    assert any(run.tensorboard.iterdir())
    assert "step 8: validation loss" in run.log.read_text(encoding="utf-8")
    provenance = json.loads(run.provenance.read_text(encoding="utf-8"))
    assert set(provenance["dataset"]) == {"train", "validation", "test"}
    assert str(run.path.parent) not in (run.adapter / "adapter_config.json").read_text(encoding="utf-8")
    rates = [row["learning_rate"] for row in metrics(run.path, "train")]  # a warmup of 5 % of eight steps is one
    assert rates == pytest.approx([0.0, *(1e-3 * (1 + math.cos(math.pi * step / 7)) for step in range(7))])
    assert sum(losses(run.path)[-4:]) < 0.9 * sum(losses(run.path)[:4])


def test_confidences_are_calibrated_on_what_the_best_adapter_read(small_config: RunConfig) -> None:
    config = changed(small_config, training={"max_steps": 2}, validation={"max_samples": None})
    result = train(config)
    run = RunFolder.open(small_config.output)
    fitted = Calibration.load(run.adapter)
    assert result.calibrated_on == fitted.lines == 4
    # Reading the same split with the finished run gives the same.
    dsocr.evaluate(run.path, base=False, report=False, calibrate=True)
    again = Calibration.load(run.adapter)
    for kind in ("character", "word", "line"):
        ours, theirs = getattr(fitted, kind), getattr(again, kind)
        assert (ours.slope, ours.offset) == pytest.approx((theirs.slope, theirs.offset), abs=1e-3)
    RunFolder.open(small_config.output)  # a calibration that was fitted again is no damage


def test_training_stops_early_when_validation_does_not_get_better(toy_config: RunConfig) -> None:
    still, reported = {"max_steps": 40, "learning_rate": 1e-12}, list[int]()
    config = changed(toy_config, training=still, validation={"every_steps": 1, "patience": 2, "max_samples": 1})
    result = train(config, on_step=reported.append)
    assert (result.steps, result.best_step) == (3, 1)
    assert reported == [1, 2, 3]


@pytest.mark.parametrize(
    ("training", "tolerance"),
    [
        pytest.param({"micro_batch_size": 4}, 2e-3, id="larger micro-batches"),
        pytest.param({"gradient_checkpointing": True}, 1e-4, id="gradient checkpointing"),
    ],
)
def test_settings_of_memory_change_no_loss(
    training: dict[str, object], tolerance: float, nano_config: RunConfig, small_run: RunFolder
) -> None:
    with pytest.raises(PowerCutError):
        train(changed(nano_config, training=training), on_step=cut_at(3))
    assert losses(nano_config.output) == pytest.approx(losses(small_run.path)[:2], abs=tolerance)


@pytest.mark.parametrize(
    ("adapter", "training"),
    [
        pytest.param(
            {},
            {"num_workers": 1, "augmentation": 1.0},
            id="a worker process and augmentation",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"variant": "rslora"},
            {
                "precision": "bf16",
                "lr_scheduler": "constant",
                "max_steps": None,
                "epochs": 0.5,
                "gradient_checkpointing": True,
            },
            id="rsLoRA, gradient checkpointing, half an epoch in bf16",
        ),
        pytest.param({"variant": "dora"}, {}, id="DoRA"),
    ],
)
def test_an_adapter_of_towers_and_decoder_trains_with(
    adapter: dict[str, object], training: dict[str, object], small_config: RunConfig
) -> None:
    config = changed(
        small_config,
        adapter={"target_modules": "decoder+vision", **adapter},
        training={"max_steps": 2, **training},
        validation={"max_samples": 1},
    )
    run = train(config).run
    weights = load_file(run.adapter / WEIGHTS)
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    for part in ("vision_tower", "layers"):
        assert any(bool(tensor.any()) for name, tensor in weights.items() if "lora_B" in name and part in name)
    assert LocalReader.of_run(run, merged=False).network.active_adapters == ["default"]


@pytest.mark.parametrize(("scope", "reached"), [("decoder", False), ("decoder+vision", True)])
def test_checkpointing_leaves_frozen_vision_towers_out_of_the_backward_pass(
    scope: str, reached: bool, small_config: RunConfig
) -> None:
    config = changed(small_config, adapter={"target_modules": scope}, training={"gradient_checkpointing": True})
    model = make_trainable(load_base(config.base).network, config, revision=None).train()
    features = model.get_image_features(torch.zeros(1, 3, 256, 256)).pooler_output[0]
    assert features.requires_grad is reached


def test_the_vision_towers_can_learn_at_a_rate_of_their_own(small_config: RunConfig) -> None:
    adapter, training = {"target_modules": "decoder+vision"}, {"vision_learning_rate": 1e-9}
    config = changed(small_config, adapter=adapter, training=training)
    model = make_trainable(load_base(config.base).network, config, revision=None)
    rates = {
        id(weight): group["lr"]
        for group in make_optimizer(model, config.training).param_groups
        for weight in group["params"]
    }
    trained = [(name, rates[id(weight)]) for name, weight in model.named_parameters() if weight.requires_grad]
    assert {rate for name, rate in trained if "vision_tower" in name or "multi_modal_projector" in name} == {1e-9}
    assert {rate for name, rate in trained if "language_model" in name} == {2e-3}


def test_a_finished_run_is_not_trained_over(toy_config: RunConfig) -> None:
    config = changed(toy_config, training={"max_steps": 1}, validation={"max_samples": 1})
    train(config)
    with raises_code("output-exists"):
        train(config)
    kept = RunFolder(config.output).forecast / "lines-4"
    kept.mkdir(parents=True)
    assert train(config, overwrite=True).resumed_from == 0
    assert kept.is_dir(), "runs of a forecast are kept"


def test_settings_may_change_until_there_is_a_checkpoint(small_config: RunConfig) -> None:
    with raises_code("target-modules-unmatched"):
        train(changed(small_config, adapter={"target_modules": "^nothing$"}))
    with pytest.raises(PowerCutError):
        train(changed(small_config, checkpoints={"every_steps": 1}), on_step=cut_at(2))
    with raises_code("other-settings"):
        train(changed(small_config, checkpoints={"every_steps": 1}, training={"learning_rate": 1e-5}))


def test_a_folder_of_something_else_is_left_alone(small_config: RunConfig) -> None:
    small_config.output.mkdir()
    (small_config.output / "letters.txt").write_text("dear", encoding="utf-8")
    with raises_code("output-occupied"):
        train(small_config, overwrite=True)
    assert (small_config.output / "letters.txt").read_text(encoding="utf-8") == "dear"


def with_broken_image(config: RunConfig, folder: Path) -> RunConfig:
    dataset = Path(shutil.copytree(config.dataset, folder / "broken"))
    image = next((dataset / "train").rglob("*.png"))
    image.write_bytes(image.read_bytes()[:60])
    return changed(config, dataset=dataset)


def with_broken_base(config: RunConfig, folder: Path) -> RunConfig:
    base = Path(shutil.copytree(find_base("nano")[0], folder / "base"))
    weights = base / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    return changed(config, base=str(base))


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        pytest.param(with_broken_image, "dataset-has-errors", id="a broken image"),
        pytest.param(with_broken_base, "weights-damaged", id="a base that cannot be loaded"),
        pytest.param(
            lambda config, folder: changed(config, training={"max_text_tokens": 13}),
            "dataset-has-errors",
            id="a text over the budget",
        ),
        pytest.param(
            lambda config, folder: changed(config, training={"vision_learning_rate": 1e-3}),
            "no-vision-adapter",
            id="a vision rate without a vision adapter",
        ),
    ],
)
def test_a_training_that_is_refused_leaves_nothing_behind(
    spoil: Callable[[RunConfig, Path], RunConfig], code: str, small_config: RunConfig, tmp_path: Path
) -> None:
    with raises_code(code):
        train(spoil(small_config, tmp_path))
    assert not small_config.output.exists()


def test_texts_over_the_budget_may_be_excluded(toy_config: RunConfig) -> None:
    relaxed = {"max_text_tokens": 13, "long_text": "exclude", "max_steps": 1}
    assert 0 < train(changed(toy_config, training=relaxed)).excluded < 16


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


def test_a_run_that_began_since_it_was_resolved_is_refused(toy_config: RunConfig) -> None:
    config = changed(toy_config, training={"max_steps": 2}, checkpoints={"every_steps": 1})
    job = resolve(config)
    with pytest.raises(PowerCutError):
        train(config, on_step=cut_at(2))
    with raises_code("run-begun"):
        run_job(job, preflight=False)


def test_a_base_of_the_hub_is_pinned_to_the_commit_that_was_fetched(
    small_config: RunConfig, shallow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    latest = "c0ffee"

    def fetched(name: str, revision: str | None) -> tuple[Path, str]:
        asked.append(revision)
        return Path(shallow), revision or latest

    monkeypatch.setattr("dsocr.models.base_folder.fetch_model", fetched)
    config = changed(small_config, base="somebody/nano", training={"max_steps": 2}, validation={"max_samples": 1})
    config = changed(config, checkpoints={"every_steps": 1})
    with pytest.raises(PowerCutError):
        train(config, on_step=cut_at(2))
    run = RunFolder(config.output)
    assert load_config(run.config).base_revision == "c0ffee"
    train(config)  # resumes with the revision that it was begun with
    assert asked[0] is None
    assert set(asked[1:]) == {"c0ffee"}
    assert ReadingSettings.load(run.adapter).base_revision == "c0ffee"
    adapter = json.loads((run.adapter / "adapter_config.json").read_text(encoding="utf-8"))
    assert (adapter["base_model_name_or_path"], adapter["revision"]) == ("somebody/nano", "c0ffee")
    assert json.loads(run.provenance.read_text(encoding="utf-8"))["base_revision"] == "c0ffee"

    latest = "decade"
    job = resolve(changed(config, output=run.path.with_name("later")))
    begun = job.with_run(run.path)  # as one of several runs
    assert [of.base and of.base.revision for of in (job, begun)] == ["decade", "c0ffee"]


@pytest.mark.parametrize(
    ("given", "recorded", "free", "decided"),
    [
        pytest.param(None, (), None, None, id="a quiet machine"),
        pytest.param(None, (), 2, 2, id="a busy one"),
        pytest.param(None, (), 8, None, id="more than are used"),
        pytest.param(3, (), 2, 3, id="as the user says"),
        pytest.param(None, (None,), 2, None, id="resumed on a machine that is busy now"),
        pytest.param(None, (2,), None, 2, id="resumed on one that was busy"),
        pytest.param(1, (2,), None, 1, id="resumed as the user says"),
    ],
)
def test_a_run_computes_in_as_many_threads_as_it_began_with(
    given: int | None,
    recorded: tuple[int | None, ...],
    free: int | None,
    decided: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def config(threads: int | None) -> RunConfig:
        return load_config({"dataset": "d", "output": "o", "training": {"threads": threads}})

    monkeypatch.setattr("dsocr.training.distributed.free_threads", lambda: free)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    former = config(*recorded) if recorded else None
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    assert limit_threads(config(given), former)[0].training.threads == decided


@pytest.mark.parametrize(
    ("training", "device", "size"),
    [({}, "cpu", 2), ({"batch_size": 5, "micro_batch_size": 5}, "cpu", 5), ({}, "cuda", 8)],
)
def test_a_cpu_trains_line_recognisers_on_few_lines_at_once(
    training: dict[str, int], device: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr.training.readers.choose_device", lambda: torch.device(device))
    config = load_config({"dataset": "d", "output": "o", "training": training})
    assert fit_micro_batch(config, LineRecognizer()).training.micro_batch_size == size
