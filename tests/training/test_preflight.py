"""What a preflight refuses, each with its reason, and that it leaves no trace."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.errors import RunError
from dsocr.inference.generation import Generation
from dsocr.models.batch import IGNORED, collate
from dsocr.models.deepseek_ocr import Processor
from dsocr.models.family import load_processor
from dsocr.training.learning_checks import (
    Check,
    check_labels,
    check_prompt,
    check_reading_alike,
    check_slots,
    check_trial,
    overfit,
)
from dsocr.training.preflight import (
    PairLosses,
    check_first_loss,
    check_image_matters,
    check_pairs,
    evenly,
    preflight,
    prove,
)
from dsocr.training.setup import Collator, Setup, set_up
from dsocr.training.train import train
from tests.making_models import write_first, write_second
from tests.training.test_train import changed

Rewrite = Callable[[list[dict[str, Any]]], None]


def with_rows(config: RunConfig, folder: Path, rewrite: Rewrite) -> RunConfig:
    """The configuration on a copy of its dataset whose rows of the train split are rewritten."""
    dataset = Path(shutil.copytree(config.dataset, folder / "other"))
    table = dataset / "train" / "metadata.jsonl"
    rows = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]
    rewrite(rows)
    table.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return changed(config, dataset=dataset)


def shift(rows: list[dict[str, Any]]) -> None:
    """Give each image the text of the next."""
    texts = [row["text"] for row in rows]
    for row, text in zip(rows, [*texts[1:], texts[0]], strict=True):
        row["text"] = text


def setup_of(config: RunConfig) -> tuple[Setup, list[Sample]]:
    samples = Dataset.open(config.dataset).samples(Split.TRAIN)
    return set_up(config, samples), samples


def named(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.fixture
def encoder() -> Processor:
    return load_processor("nano", None, "free_ocr")


@pytest.fixture
def batch(encoder: Processor) -> dict[str, Any]:
    image = Image.new("L", (200, 60), 240)
    return collate([encoder.encode(image, text) for text in ("йод", "чернила")], encoder.pad_id, padding="right")


def test_a_sound_training_passes_every_check_and_is_left_as_it_was(small_config: RunConfig) -> None:
    setup, samples = setup_of(small_config)
    before = {name: tensor.clone() for name, tensor in setup.model.state_dict().items()}
    drawn = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    modes = [module.training for module in setup.model.modules()]

    checks = named(prove(setup, samples, small_config, thorough=True))
    assert {check.verdict for check in checks.values()} == {"ok"}
    assert set(checks) >= {"labels", "image slots", "read alike", "first loss", "image matters", "pairs", "overfit"}
    assert "learnt by heart" in checks["overfit"].message

    assert torch.equal(drawn[0], torch.get_rng_state())
    assert drawn[1] == random.getstate()
    assert drawn[2] == np.random.get_state()[1].tolist()  # type: ignore[index]
    assert modes == [module.training for module in setup.model.modules()]
    assert all(torch.equal(before[name], tensor) for name, tensor in setup.model.state_dict().items())
    assert all(parameter.grad is None for parameter in setup.model.parameters())


def test_the_table_of_labels_names_special_tokens_and_counts_slots(encoder: Processor, batch: dict[str, Any]) -> None:
    check = check_labels(batch, ["йод", "чернила"], encoder)
    assert check.verdict == "ok"
    masked, learnt, padding = (line.split(maxsplit=2) for line in check.details[:3])
    assert masked == ["masked", "84", "<begin>|73 x <image>|\\n|F|r|e|e| |O|C|R|."]
    assert learnt == ["learnt", "4", "й|о|д|<end>"]
    assert padding == ["padding", "4"]


def _mask_all(labels: torch.Tensor, ids: torch.Tensor) -> None:
    labels[:] = IGNORED


def _learn_all(labels: torch.Tensor, ids: torch.Tensor) -> None:
    labels[:] = ids


def _forget_the_end(labels: torch.Tensor, ids: torch.Tensor) -> None:
    labels[labels == 1] = IGNORED
    labels[:, -1] = IGNORED
    labels[0, int((labels[0] >= 0).nonzero()[-1])] = IGNORED


def _move_by_one(labels: torch.Tensor, ids: torch.Tensor) -> None:
    labels.copy_(labels.roll(-1, dims=1))


@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        pytest.param(_mask_all, "all is masked", id="nothing is learnt"),
        pytest.param(_learn_all, "padding is learnt", id="the published mistake: labels are the input ids"),
        pytest.param(_learn_all, "image slots are learnt", id="image slots stand in the loss"),
        pytest.param(_forget_the_end, "would not learn to stop", id="no end token in the loss"),
        pytest.param(_move_by_one, "do not stand at the same places", id="labels shifted twice"),
    ],
)
def test_wrong_labels_are_refused_with_their_reason(
    plant: Callable[[torch.Tensor, torch.Tensor], None], reason: str, encoder: Processor, batch: dict[str, Any]
) -> None:
    plant(batch["labels"], batch["input_ids"])
    check = check_labels(batch, ["йод", "чернила"], encoder)
    assert check.verdict == "refused"
    assert reason in check.message


def test_another_text_than_the_transcription_is_refused(encoder: Processor, batch: dict[str, Any]) -> None:
    assert "'йод'" in check_labels(batch, ["мёд", "чернила"], encoder).message


def test_masked_labels_stop_a_training_even_without_trials(
    small_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    collated = Collator.__call__

    def masked(self: Collator, samples: Any) -> dict[str, Any]:
        batch = collated(self, samples)
        batch["labels"][:, :-1] = IGNORED  # the gradients' own check still has something to go back from
        return batch

    monkeypatch.setattr(Collator, "__call__", masked)
    with pytest.raises(RunError, match=r"it would not learn(.|\n)*labels"):
        train(small_config)
    assert not small_config.output.exists()


def test_texts_of_the_next_image_are_refused_by_what_the_base_reads(small_config: RunConfig, tmp_path: Path) -> None:
    setup, samples = setup_of(with_rows(small_config, tmp_path, shift))
    pairs = named(prove(setup, samples, small_config, thorough=True))["pairs"]
    assert pairs.verdict == "refused"
    assert "show the transcription of another sample" in pairs.message
    assert any("its image reads" in line for line in pairs.details)


def test_what_cannot_be_learnt_by_heart_is_refused(small_config: RunConfig, tmp_path: Path) -> None:
    """Equal images with different texts: no training reads them all."""
    config = with_rows(small_config, tmp_path, lambda rows: None)
    images = sorted((Path(config.dataset) / "train").rglob("*.png"))
    for image in images[1:]:
        image.write_bytes(images[0].read_bytes())
    setup, samples = setup_of(config)
    encoded = [setup.samples[place] for place in range(5)]
    texts = [sample.text for sample in samples[:5]]
    generation = Generation(max_new_tokens=24)
    trial = overfit(
        setup.model,
        setup.encoder,
        encoded,
        texts,
        generation,
        rate=3e-3,
        dtype=torch.float32,
        at_once=5,
        steps=12,
    )
    check = check_trial(trial, 5)
    assert trial.steps == 12
    assert check.verdict == "refused"
    assert "not learnt by heart" in check.message


@pytest.mark.parametrize(
    ("rewrite", "settings", "name", "reason"),
    [
        pytest.param(
            lambda rows: rows[0].update(text=""),
            {},
            "dataset",
            "empty",
            id="no text to learn",
        ),
        pytest.param(
            lambda rows: None,
            {"training": {"max_text_tokens": 5}},
            "dataset",
            "longer than the 5 tokens",
            id="texts over budget",
        ),
        pytest.param(
            lambda rows: [row.update(text="漢字") for row in rows][:0] and None,
            {},
            "characters",
            "cannot write '字漢', 2 characters in 16 of 16 texts",
            id="another script",
        ),
        pytest.param(
            lambda rows: None,
            {"input": {"resolution": "gundam"}},
            "configuration",
            "no resolution",
            id="no such resolution",
        ),
        pytest.param(lambda rows: None, {"base": "nowhere"}, "base", "no base model", id="no such base"),
    ],
)
def test_it_refuses(
    rewrite: Rewrite,
    settings: dict[str, Any],
    name: str,
    reason: str,
    small_config: RunConfig,
    tmp_path: Path,
) -> None:
    found = preflight(changed(with_rows(small_config, tmp_path, rewrite), **settings))
    assert [check.name for check in found.refused] == [name]
    assert reason in found.refused[0].message
    assert found.refused[0].fix


def test_a_run_folder_of_another_base_is_refused(small_config: RunConfig, tmp_path: Path) -> None:
    small_config.output.mkdir()
    (small_config.output / "config.yaml").write_text(small_config.to_yaml(), encoding="utf-8")
    other = write_first(tmp_path / "first")
    found = preflight(changed(small_config, base=str(other)))
    assert "run" in [check.name for check in found.refused]
    assert any("holds a run on the base nano" in check.message for check in found.refused)


def test_a_training_after_a_preflight_is_the_same_to_the_bit(small_config: RunConfig, tmp_path: Path) -> None:
    config = changed(small_config, training={"max_steps": 2, "augmentation": 1.0}, validation={"max_samples": 1})
    other = changed(config, output=tmp_path / "tried")
    train(config)
    train(other, preflight=True)
    ours, theirs = (load_file(one.output / "adapter" / "adapter_model.safetensors") for one in (config, other))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


LOST, RANDOM, READS = [0.4, 0.5, 0.3, 0.4], [4.57, 4.57, 4.58, 4.57], [6.0, 6.5, 6.1, 5.9]


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        pytest.param([0.4, 0.6], "ok", id="a base that reads"),
        pytest.param([4.572, 4.573], "warning", id="random weights, as measured: 1.002 of a guess"),
        pytest.param([6.2], "refused", id="sure of something else"),
        pytest.param([float("nan"), 0.4], "refused", id="not a number"),
    ],
)
def test_the_first_loss_is_held_against_a_guess(losses: list[float], verdict: str) -> None:
    assert check_first_loss(losses, 96).verdict == verdict


@pytest.mark.parametrize(
    ("own", "other", "matters", "pairs"),
    [
        pytest.param(LOST, READS, "ok", "ok", id="images matter, and are the right ones"),
        pytest.param(RANDOM, [4.571, 4.569, 4.5802, 4.5699], "warning", "warning", id="a base that reads nothing"),
        pytest.param(RANDOM, RANDOM, "refused", "warning", id="the image does not reach the loss"),
    ],
)
def test_swapped_images_tell_how_sure_it_is(own: list[float], other: list[float], matters: str, pairs: str) -> None:
    losses = PairLosses(own, other)
    assert check_image_matters(losses).verdict == matters
    assert check_pairs(losses, []).verdict == pairs
    assert "standard errors" in check_pairs(losses, []).message


def test_one_sample_alone_is_not_taken_for_an_image_that_does_not_matter() -> None:
    losses = PairLosses([0.4], [0.4])
    assert check_image_matters(losses).verdict == "warning"
    assert check_pairs(losses, []).verdict == "warning"


@pytest.mark.parametrize(
    ("function", "name"),
    [pytest.param("pass_through", "memory", id="the longest batch"), pytest.param("prove", "run", id="a trial")],
)
def test_running_out_of_memory_is_a_refusal_with_settings(
    function: str, name: str, small_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*arguments: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(f"dsocr.training.preflight.{function}", ends)
    refused = preflight(small_config).refused
    assert [check.name for check in refused] == [name]
    assert "--set training.micro_batch_size=1" in refused[0].fix


def test_places_are_spread_from_first_to_last() -> None:
    assert evenly(100, 5) == [0, 25, 50, 74, 99]
    assert evenly(2, 5) == [0, 1]
    assert evenly(1, 3) == [0]


@pytest.mark.parametrize(
    ("write", "resolution"),
    [
        pytest.param(write_first, "tiny", id="DeepSeek-OCR"),
        pytest.param(write_second, "small", id="DeepSeek-OCR-2"),
    ],
)
def test_a_base_with_random_weights_is_warned_of_and_its_slots_are_counted(
    write: Callable[[Path], Path], resolution: str, small_config: RunConfig, tmp_path: Path
) -> None:
    def simpler(rows: list[dict[str, Any]]) -> None:
        for place, row in enumerate(rows):
            row["text"] = ["АБВГ", "ДЕЖЗ", "ИКЛМ", "НОПР"][place % 4]

    base = {"base": str(write(tmp_path / "first")), "input": {"resolution": resolution, "prompt": "<image>\nБВГ"}}
    config = changed(with_rows(small_config, tmp_path, simpler), **base)
    setup, samples = setup_of(config)
    checks = named(prove(setup, samples[:4], config, thorough=False))
    assert checks["image slots"].verdict == "ok"
    assert checks["first loss"].verdict == "warning"
    assert "knows nothing of these texts" in checks["first loss"].message


def test_too_few_image_slots_are_refused(small_config: RunConfig) -> None:
    setup, _ = setup_of(small_config)
    batch = collate([setup.samples[0]], setup.encoder.pad_id, padding="right")
    batch["input_ids"][0, 5] = setup.encoder.pad_id
    check = check_slots(setup.model, batch, setup.encoder)
    assert check.verdict == "refused"
    assert "72 image slots for 73 features" in check.message


def test_a_missing_begin_token_and_foreign_ids_are_refused(encoder: Processor, batch: dict[str, Any]) -> None:
    assert check_prompt(batch, encoder, 240).verdict == "ok"
    assert "the base has 10 tokens" in check_prompt(batch, encoder, 10).message
    batch["input_ids"][1, 0] = encoder.pad_id
    assert check_prompt(batch, encoder, 240).verdict == "refused"


def test_other_pixels_in_training_than_in_reading_are_refused(small_config: RunConfig) -> None:
    setup, samples = setup_of(small_config)
    theirs = setup.samples[0]
    darker = replace(theirs.views, whole=theirs.views.whole // 2)
    assert check_reading_alike(samples[:1], [theirs], setup.encoder).verdict == "ok"
    assert check_reading_alike(samples[:1], [replace(theirs, views=darker)], setup.encoder).verdict == "refused"
    longer = replace(theirs, prompt_ids=(*theirs.prompt_ids, 9))
    assert check_reading_alike(samples[:1], [longer], setup.encoder).verdict == "refused"
