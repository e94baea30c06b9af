"""Checks of splits: characters that training lacks, and test splits too small to say much."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dsocr.data.check.findings import CheckedSample, Finding, Findings
from dsocr.data.check.split_checks import check_balance
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from tests.data.check_samples import sample


def found(*samples: CheckedSample, split_by: str = "page") -> dict[str, Finding]:
    dataset = cast(Dataset, SimpleNamespace(card=SimpleNamespace(split_by=split_by)))
    findings = Findings()
    check_balance(dataset, samples, findings)
    return {finding.code: finding for finding in findings}


def several(count: int, text: str, split: Split, **options: Any) -> list[CheckedSample]:
    return [sample(number, text, split=split, **options) for number in range(1, count + 1)]


TRAIN = several(60, "обычный текст", Split.TRAIN)
TEST = several(60, "обычный текст", Split.TEST)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param([], {}, id="balanced"),
        pytest.param(
            [sample(61, "вѣкъ и вѣра", split=Split.TEST)], {"unseen-in-train": ["в, 2x", "ѣ, 2x"]}, id="unseen"
        ),
        pytest.param([sample(61, "ω\u00ad\u00ad", split=Split.TEST)], {}, id="single and invisible characters"),
        pytest.param(
            [sample(61, "щщ эээээ"), sample(61, "щщщщщ эээээээ", split=Split.TEST)],
            {"rare-characters": ["щ, 5x there, 2x in training"]},
            id="the rarest that matter",
        ),
    ],
)
def test_characters_that_training_lacks(samples: list[CheckedSample], expected: dict[str, list[str]]) -> None:
    findings = found(*TRAIN, *TEST, *samples)
    assert {code: [example.detail for example in each.examples] for code, each in findings.items()} == expected


def test_test_split_of_a_few_lines() -> None:
    finding = found(*TRAIN, *several(12, "ровно 20 букв и цифр", Split.TEST))["few-samples"]
    assert (finding.severity, finding.where) == ("note", "test/metadata.jsonl")
    # 1.96 * sqrt(0.1 * 0.9 / 240)
    assert "3.8 points" in finding.message


def test_test_split_of_a_few_writers() -> None:
    assert "few-writers" not in found(*TRAIN, *TEST)
    assert "few-writers" in found(*TRAIN, *TEST, split_by="writer")
    writers = [item for writer in "абв" for item in several(20, "обычный текст", Split.TEST, writer=writer)]
    assert found(*TRAIN, *writers, split_by="writer") == {}
