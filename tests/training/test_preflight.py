"""Checks before training: their refusals, and a network left as it was."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.models.base_folder import WEIGHTS
from dsocr.models.deepseek_ocr import DeepseekProcessor
from dsocr.models.family import IGNORED, Check
from dsocr.models.generation import Generation
from dsocr.training.preflight import (
    check_first_loss,
    check_overfit,
    check_pairs,
    check_setup,
    overfit,
)
from dsocr.training.samples import Setup
from tests.conftest import eight_steps
from tests.making_models import write_first, write_second
from tests.raising import raises_code
from tests.training.running import set_up, train
from tests.training.test_dry_run import with_rows
from tests.training.test_train import changed


def shift(rows: list[dict[str, Any]]) -> None:
    """Give each image the text of the next."""
    texts = [row["text"] for row in rows]
    for row, text in zip(rows, [*texts[1:], texts[0]], strict=True):
        row["text"] = text


def setup_of(config: RunConfig, count: int | None = None) -> tuple[Any, list[Sample]]:
    samples = Dataset.open(config.dataset).samples(Split.TRAIN)[:count]
    return set_up(config, samples), samples


def named(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_a_sound_training_passes_every_check_and_is_left_as_it_was(
    nano_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr.training.preflight.OVERFIT_SAMPLES", 2)
    setup, _ = setup_of(nano_config, 10)
    before = {name: tensor.clone() for name, tensor in setup.model.state_dict().items()}
    drawn = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    modes = [module.training for module in setup.model.modules()]

    checks = named(check_setup(setup, nano_config, thorough=True))
    assert {check.verdict for check in checks.values()} == {"ok"}
    assert set(checks) >= {"labels", "image slots", "first loss", "pairs", "overfit"}

    assert torch.equal(drawn[0], torch.get_rng_state())
    assert drawn[1] == random.getstate()
    assert drawn[2] == np.random.get_state()[1].tolist()  # type: ignore[index]
    assert modes == [module.training for module in setup.model.modules()]
    assert all(torch.equal(before[name], tensor) for name, tensor in setup.model.state_dict().items())
    assert all(parameter.grad is None for parameter in setup.model.parameters())


@pytest.mark.slow
def test_a_training_after_a_preflight_is_the_same_to_the_bit(nano_config: RunConfig, tmp_path: Path) -> None:
    config = changed(nano_config, training={"max_steps": 2, "augmentation": 1.0}, validation={"max_samples": 1})
    other = changed(config, output=tmp_path / "tried")
    train(config)
    train(other, preflight=True)
    ours, theirs = (load_file(one.output / "adapter" / WEIGHTS) for one in (config, other))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_masked_labels_stop_a_training_even_without_trials(
    nano_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    collated = DeepseekProcessor.collate

    def masked(self: DeepseekProcessor, samples: Any, padding: Any = "right") -> dict[str, Any]:
        batch = collated(self, samples, padding)
        if "labels" in batch:
            batch["labels"][:, :-1] = IGNORED  # the gradients' own check still has something to go back from
        return batch

    monkeypatch.setattr(DeepseekProcessor, "collate", masked)
    with raises_code("preflight-failed") as error:
        train(nano_config)
    assert "labels" in error.value.message
    assert not nano_config.output.exists()


def test_texts_of_the_next_image_are_refused_by_what_the_base_reads(nano_config: RunConfig, tmp_path: Path) -> None:
    setup, samples = setup_of(with_rows(nano_config, tmp_path, shift), 8)
    pairs = named(check_setup(setup, nano_config, thorough=True))["pairs"]
    assert pairs.verdict == "error"
    assert any(sample.id in line for sample in samples for line in pairs.details)


def test_equal_images_with_different_texts_cannot_be_memorized(
    nano_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr.training.preflight.OVERFIT_STEPS", 4)
    config = with_rows(nano_config, tmp_path, lambda rows: None)
    images = sorted((Path(config.dataset) / "train").rglob("*.png"))
    for image in images[1:]:
        image.write_bytes(images[0].read_bytes())
    setup, samples = setup_of(config, 5)
    encoded, texts = [setup.samples[place] for place in range(5)], [sample.text for sample in samples]
    result = overfit(setup, encoded, texts, Generation(max_new_tokens=8), learning_rate=3e-3, batch_size=5)
    assert len(result[0]) == 4
    assert check_overfit(*result, 5).verdict == "error"


@pytest.mark.parametrize(
    ("steps", "last", "cer", "seconds", "verdict"),
    [
        pytest.param(60, 0.01, 0.0, 9.0, "ok", id="read without an error"),
        pytest.param(3, float("nan"), 1.0, 1.0, "error", id="not a number"),
        pytest.param(9, 0.9, 0.5, 180.0, "warning", id="a slow machine"),
        pytest.param(9, 1.9, 1.0, 180.0, "warning", id="too slow to tell"),
        pytest.param(60, 1.9, 1.0, 180.0, "error", id="slow, and no progress"),
        pytest.param(60, 3.22, 0.8, 184.0, "error", id="forgets what it knew"),
        pytest.param(2, 2.4, 0.9, 180.0, "warning", id="two steps tell nothing"),
        pytest.param(150, 0.1, 0.2, 60.0, "error", id="equal images"),
    ],
)
def test_the_result_of_overfitting_is_judged(steps: int, last: float, cer: float, seconds: float, verdict: str) -> None:
    assert check_overfit([2.0] * (steps - 1) + [last], cer, seconds, 5).verdict == verdict


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        pytest.param([0.4, 0.6], "ok", id="a base that reads"),
        pytest.param([4.572, 4.573], "warning", id="random weights, as measured: 1.002 of a guess"),
        pytest.param([6.2], "error", id="sure of something else"),
        pytest.param([float("nan"), 0.4], "error", id="not a number"),
    ],
)
def test_the_first_loss_is_compared_with_a_guess(losses: list[float], verdict: str) -> None:
    assert check_first_loss(losses, math.log(96)).verdict == verdict


@pytest.fixture(scope="module")
def sound(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Setup, list[Sample]]:
    config = eight_steps(small_dataset, tmp_path_factory.mktemp("sound") / "run")
    return config, *setup_of(config, 10)


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        pytest.param([6.0] * 10, "ok", id="images matter, and are the right ones"),
        pytest.param([6.0] * 5, "warning", id="so few may all win by chance"),
        pytest.param([0.3, 0.6] * 5, "warning", id="a base that cannot tell"),
        pytest.param([0.4] * 10, "error", id="the image does not reach the loss"),
    ],
)
def test_a_text_must_be_likelier_with_its_own_image(
    other: list[float],
    verdict: str,
    sound: tuple[RunConfig, Setup, list[Sample]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, setup, samples = sound
    count = len(other)
    encoded = [setup.samples[place] for place in range(count)]
    monkeypatch.setattr("dsocr.training.preflight.sample_losses", lambda *_: other)
    assert check_pairs(setup, config, samples[:count], encoded, [0.4] * count).verdict == verdict
    assert check_pairs(setup, config, samples[:1], encoded[:1], [0.4]).verdict == "warning"


@pytest.mark.parametrize(
    ("write", "resolution"),
    [
        pytest.param(write_first, "tiny", id="DeepSeek-OCR"),
        pytest.param(write_second, "small", id="DeepSeek-OCR-2"),
    ],
)
def test_a_base_with_random_weights_is_warned_of_and_its_slots_are_counted(
    write: Callable[[Path], Path], resolution: str, nano_config: RunConfig, tmp_path: Path
) -> None:
    def simplify(rows: list[dict[str, Any]]) -> None:
        for place, row in enumerate(rows):
            row["text"] = ["АБВГ", "ДЕЖЗ", "ИКЛМ", "НОПР"][place % 4]

    base = {"base": str(write(tmp_path / "first")), "input": {"resolution": resolution, "prompt": "<image>\nБВГ"}}
    config = changed(with_rows(nano_config, tmp_path, simplify), **base)
    setup, _ = setup_of(config, 4)
    checks = named(check_setup(setup, config, thorough=False))
    assert checks["image slots"].verdict == "ok"
    assert checks["first loss"].verdict == "warning"
