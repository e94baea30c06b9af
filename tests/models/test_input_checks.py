"""Checks of a batch before training: wrong labels, prompts and image slots are found, each with its reason."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from PIL import Image

from dsocr.models.batch import collate
from dsocr.models.deepseek_ocr import DeepseekProcessor
from dsocr.models.family import IGNORED
from dsocr.models.loading import BaseModel, load_processor
from dsocr.models.token_family import check_image_slots, check_labels, check_prompt

TEXTS = ["йод", "чернила"]


@pytest.fixture
def processor() -> Any:
    return load_processor("nano", None, "free_ocr")


@pytest.fixture
def batch(processor: DeepseekProcessor) -> dict[str, Any]:
    image = Image.new("L", (200, 60), 240)
    return collate([processor.encode(image, text) for text in TEXTS], processor.pad_id, padding="right")


def test_details_name_special_tokens_and_count_slots(processor: DeepseekProcessor, batch: dict[str, Any]) -> None:
    check = check_labels(batch, TEXTS, processor)
    assert check.verdict == "ok"
    masked, trained, padding = (line.split(maxsplit=2) for line in check.details[:3])
    assert masked == ["masked", "84", "<begin>|73 x <image>|\\n|F|r|e|e| |O|C|R|."]
    assert trained == ["trained", "4", "й|о|д|<end>"]
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


def _learn_another_text(labels: torch.Tensor, ids: torch.Tensor) -> None:
    place = int((labels[0] >= 0).nonzero()[0])
    labels[0, place] = ids[0, place] = int(labels[1].max())


@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        pytest.param(_mask_all, "masked", id="nothing is trained on"),
        pytest.param(_learn_all, "padding", id="the published mistake: labels are the input ids"),
        pytest.param(_learn_all, "image tokens", id="image tokens in the loss"),
        pytest.param(_learn_all, "the prompt", id="the prompt in the loss"),
        pytest.param(_forget_the_end, "end token", id="no end token in the loss"),
        pytest.param(_move_by_one, "aligned", id="labels shifted twice"),
        pytest.param(_learn_another_text, "'йод'", id="another text than the transcription"),
    ],
)
def test_wrong_labels_are_found_with_their_reason(
    plant: Callable[[torch.Tensor, torch.Tensor], None],
    reason: str,
    processor: DeepseekProcessor,
    batch: dict[str, Any],
) -> None:
    plant(batch["labels"], batch["input_ids"])
    check = check_labels(batch, TEXTS, processor)
    assert check.verdict == "error"
    assert reason in check.message


def test_a_missing_begin_token_and_foreign_ids_are_refused(processor: DeepseekProcessor, batch: dict[str, Any]) -> None:
    assert check_prompt(batch, processor, 240).verdict == "ok"
    assert check_prompt(batch, processor, 10).verdict == "error"
    batch["input_ids"][1, 0] = processor.pad_id
    assert check_prompt(batch, processor, 240).verdict == "error"


def test_too_few_image_slots_are_refused(nano: BaseModel, processor: DeepseekProcessor, batch: dict[str, Any]) -> None:
    assert check_image_slots(nano.network, batch, processor).verdict == "ok"
    batch["input_ids"][0, 5] = processor.pad_id
    check = check_image_slots(nano.network, batch, processor)
    assert check.verdict == "error"
    assert "145" in check.message
