"""A text that was copied to where it does not belong is told; texts that were really written twice are let be."""

import pytest

from dsocr.data.check.findings import Checked
from dsocr.data.check.text_checks import check_repeats
from tests.data.checking_samples import found, sample

TEXT = "Милая Соня, письмо пришло"


def test_a_text_copied_to_the_next_line() -> None:
    finding = found(check_repeats, [sample(1, TEXT), sample(2, TEXT), sample(3, "иначе")])["text-repeats"]
    assert (finding.severity, finding.examples) == ("warning", ("train/metadata.jsonl:2: as train/metadata.jsonl:1",))
    assert finding.others == ("train/1.png",)


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(sample(2, TEXT, page="2"), id="on another page"),
        pytest.param(sample(2, TEXT, writer="boris"), id="by another hand"),
        pytest.param(sample(2, TEXT, digest="train 1"), id="the same image, which is told otherwise"),
    ],
)
def test_a_text_that_may_stand_twice(second: Checked) -> None:
    assert found(check_repeats, [sample(1, TEXT), second]) == {}


def test_short_texts_repeat_by_themselves() -> None:
    assert found(check_repeats, [sample(1, "да, да"), sample(2, "да, да")]) == {}


def test_one_text_at_most_images() -> None:
    items = [sample(number, TEXT if number % 3 else str(number), page=None) for number in range(30)]
    finding = found(check_repeats, items)["all-same-text"]
    assert finding.examples == ("train/metadata.jsonl:1: 20 of 30 in train",)
    assert found(check_repeats, items[:19]) == {}
