"""A transcription that cannot belong to its image is told, and hands of different widths are let be."""

import random
from pathlib import Path

import pytest

from dsocr.data.check.findings import Checked, Finding, Findings
from dsocr.data.check.pair_checks import check_pairs
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.images import open_image

EXAMPLE = Path(__file__).parents[2] / "examples" / "handwriting"


def lines(count: int, density: float, writer: str | None, seed: int = 1) -> list[Checked]:
    """Lines of 10 to 60 characters, each about as wide as a hand of that density needs."""
    draw = random.Random(seed)
    checked = []
    for number in range(count):
        length = draw.randint(10, 60)
        width = round(60 * length / density * draw.uniform(0.8, 1.25))
        sample = Sample(f"train/{number}.png", Path("a.png"), "д" * length, Split.TRAIN, writer)
        checked.append(Checked(f"train/metadata.jsonl:{number + 1}", sample, None, (width, 60)))
    return checked


def with_text(item: Checked, text: str) -> Checked:
    sample = item.sample
    changed = Sample(sample.id, sample.image, text, sample.split, sample.writer)
    return Checked(item.where, changed, item.digest, item.size)


def found(checked: list[Checked]) -> dict[str, Finding]:
    findings = Findings()
    check_pairs(checked, findings)
    return {finding.code: finding for finding in findings.listed()}


def test_lines_of_several_hands_have_no_findings() -> None:
    assert found(lines(60, 2.0, "anna") + lines(60, 6.0, "boris") + lines(5, 3.0, None)) == {}


def test_a_text_of_another_image_is_told() -> None:
    checked = lines(60, 3.0, "anna")
    checked[7] = with_text(checked[7], "д" * 400)
    wide = max(range(60), key=lambda number: len(checked[number].sample.text) if number != 7 else 0)
    checked[wide] = with_text(checked[wide], "да")
    findings = found(checked)
    assert set(findings) == {"text-too-long", "text-too-short"}
    assert findings["text-too-long"].severity == "warning"
    assert findings["text-too-long"].where == "train/metadata.jsonl:8"
    assert findings["text-too-short"].where == f"train/metadata.jsonl:{wide + 1}"
    assert findings["text-too-long"].examples[0].startswith("train/metadata.jsonl:8: 400 characters where about ")


def test_a_rare_hand_is_judged_by_the_whole_dataset() -> None:
    rare = with_text(lines(1, 3.0, "vera", seed=5)[0], "д" * 900)
    assert found([*lines(60, 3.0, "anna"), rare])["text-too-long"].count == 1


def test_few_samples_and_pages_are_not_judged() -> None:
    checked = lines(19, 3.0, "anna")
    assert found([with_text(checked[0], "д" * 900), *checked[1:]]) == {}
    pages = lines(60, 3.0, "anna")
    assert found([*pages[1:], with_text(pages[0], "строка\n" * 100)]) == {}


def test_shifted_pairs_are_told() -> None:
    checked = lines(200, 3.0, "anna")
    texts = [item.sample.text for item in checked]
    shifted = [with_text(item, text) for item, text in zip(checked, texts[1:] + texts[:1], strict=True)]
    finding = found(shifted)["pairs-disagree"]
    assert (finding.severity, finding.where) == ("warning", "train/metadata.jsonl:1")


def test_images_of_one_width_do_not_tell_whether_pairs_agree() -> None:
    checked = [Checked(item.where, item.sample, None, (900, 60)) for item in lines(200, 20.0, "anna")]
    assert "pairs-disagree" not in found(checked)


@pytest.mark.parametrize("by", [1, -1])
def test_the_shipped_lines_shifted_by_one_are_told(by: int) -> None:
    """Lines that follow each other are alike in length, so that even shifted pairs agree a little."""
    rows = list(Dataset.open(EXAMPLE).numbered(Split.TRAIN))
    checked = [Checked(where, sample, None, open_image(sample.image).size) for where, sample in rows]
    assert found(checked) == {}
    texts = [sample.text for _, sample in rows]
    texts = texts[by:] + texts[:by]
    assert "pairs-disagree" in found([with_text(item, text) for item, text in zip(checked, texts, strict=True)])
