"""What a test asks for and training does not show is told, and a test too small to say much."""

from types import SimpleNamespace
from typing import Any, cast

from dsocr.data.check.findings import Checked, Finding, Findings
from dsocr.data.check.split_checks import check_balance
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from tests.data.checking_samples import sample


def balanced(*items: Checked, split_by: str = "page") -> dict[str, Finding]:
    dataset = cast(Dataset, SimpleNamespace(card=SimpleNamespace(split_by=split_by)))
    findings = Findings()
    check_balance(dataset, items, findings)
    return {finding.code: finding for finding in findings.listed()}


def several(count: int, text: str, split: Split, **options: Any) -> list[Checked]:
    return [sample(number, text, split=split, **options) for number in range(1, count + 1)]


TRAIN = several(60, "обычный текст", Split.TRAIN)
TEST = several(60, "обычный текст", Split.TEST)


def test_an_even_dataset_is_let_be() -> None:
    assert balanced(*TRAIN, *TEST) == {}


def test_a_character_that_training_never_shows() -> None:
    finding = balanced(*TRAIN, *TEST, sample(61, "вѣкъ и вѣра", split=Split.TEST))["unseen-in-train"]
    assert (finding.severity, finding.count) == ("warning", 2)
    assert "test/metadata.jsonl:61: ѣ stands there 2 times" in finding.examples


def test_a_character_that_stands_once_or_is_not_seen_is_told_otherwise() -> None:
    assert balanced(*TRAIN, *TEST, sample(61, "ω\u00ad\u00ad", split=Split.TEST)) == {}


def test_the_rarest_characters_that_matter() -> None:
    train = [*TRAIN, sample(61, "щщ эээээ", split=Split.TRAIN)]
    finding = balanced(*train, *TEST, sample(61, "щщщщщ эээээээ", split=Split.TEST))["rare-characters"]
    assert finding.examples == ("test/metadata.jsonl:61: щ stands there 5 times, in training 2",)


def test_a_test_of_a_few_lines() -> None:
    finding = balanced(*TRAIN, *several(12, "ровно 20 букв и цифр", Split.TEST))["few-samples"]
    assert (finding.severity, finding.where) == ("note", "test/metadata.jsonl")
    assert "12 samples with 240 characters" in finding.message
    # 1.96 * sqrt(0.1 * 0.9 / 240)
    assert "at least 3.8 points" in finding.message


def test_a_test_of_a_few_writers() -> None:
    assert "few-writers" not in balanced(*TRAIN, *TEST)
    assert "by one writer" in balanced(*TRAIN, *TEST, split_by="writer")["few-writers"].message
    hands = [item for hand in "абв" for item in several(20, "обычный текст", Split.TEST, writer=hand)]
    assert balanced(*TRAIN, *hands, split_by="writer") == {}
