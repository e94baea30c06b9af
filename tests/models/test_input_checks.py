"""Checks of samples before training: labels, ids and image slots that do not belong to the base."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image

from dsocr.models.family import IGNORED
from dsocr.models.loading import BaseModel
from dsocr.models.token_family import TokenEncoded, check_image_slots, check_labels, check_vocabulary

TEXTS = ["йод", "чернила"]


@pytest.fixture
def processor(nano: BaseModel) -> Any:
    return nano.processor(None, "free_ocr")


@pytest.fixture
def samples(processor: Any) -> list[TokenEncoded]:
    return [processor.encode(Image.new("L", (200, 60), 240), text) for text in TEXTS]


def test_details_name_special_tokens_and_count_slots(processor: Any, samples: list[TokenEncoded]) -> None:
    check = check_labels(processor.collate(samples), samples, TEXTS, processor)
    assert check.verdict == "ok"
    masked, trained = (line.split(maxsplit=2) for line in check.details[:2])
    assert masked == ["masked", "84", "<begin>|73 x <image>|\\n|F|r|e|e| |O|C|R|."]
    assert trained == ["trained", "4", "й|о|д|<end>"]


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        pytest.param(lambda ids, answer: [IGNORED] * len(ids), "nothing is learnt", id="all masked"),
        pytest.param(lambda ids, answer: ids, "the published mistake: labels are the input ids", id="all learnt"),
        pytest.param(lambda ids, answer: answer[:-1], "the end is not learnt", id="no end"),
        pytest.param(lambda ids, answer: [*answer, answer[-1]], "it is learnt twice", id="two ends"),
        pytest.param(lambda ids, answer: [answer[1], answer[0], *answer[2:]], "it is another text", id="another text"),
    ],
)
def test_labels_must_be_the_text_and_its_end(
    labels: Callable[[list[int], list[int]], list[int]], reason: str, processor: Any, samples: list[TokenEncoded]
) -> None:
    ids, answer = [*samples[0].prompt_ids, *samples[0].answer_ids], [*samples[0].answer_ids]
    batch = {"labels": torch.tensor([labels(ids, answer)])}
    assert check_labels(batch, samples[:1], TEXTS[:1], processor).verdict == "error", reason


def test_foreign_ids_and_too_few_image_slots_are_refused(
    nano: BaseModel, processor: Any, samples: list[TokenEncoded]
) -> None:
    assert check_vocabulary(samples, 240).verdict == "ok"
    assert check_vocabulary(samples, 10).verdict == "error"
    assert check_image_slots(nano.network, samples, processor).verdict == "ok"
    samples[0] = replace(samples[0], prompt_ids=samples[0].prompt_ids[6:])
    check = check_image_slots(nano.network, samples, processor)
    assert check.verdict == "error"
    assert "141" in check.message
