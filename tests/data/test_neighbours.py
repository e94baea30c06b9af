"""Texts that stand at a neighbour's image are told where lengths can tell, and nothing is told where they cannot."""

import random

import pytest

from dsocr.data.check.findings import Checked
from dsocr.data.check.pair_checks import check_neighbours
from tests.data.checking_samples import found, look, sample

WIDTH_OF_A_LETTER = 12


def page(texts: list[str], written: list[str] | None = None, name: str = "1", start: int = 1) -> list[Checked]:
    """Lines of a page whose images are as wide as `written` is, within a few per cent, and whose texts are `texts`."""
    rng = random.Random(name)
    widths = [round(len(text) * WIDTH_OF_A_LETTER * rng.gauss(1, 0.03)) for text in written or texts]
    return [
        sample(start + place, text, page=name, seen=look(width), size=(width, 60))
        for place, (text, width) in enumerate(zip(texts, widths, strict=True))
    ]


def lines(count: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return ["д" * rng.randint(20, 60) for _ in range(count)]


USUAL = page(lines(30, seed=9), name="usual", start=1001)


def test_texts_at_their_own_images_are_let_be() -> None:
    pages = [item for name in range(50) for item in page(lines(20, seed=name), name=str(name))]
    assert found(check_neighbours, pages) == {}


def test_two_swapped_texts() -> None:
    written = lines(12)
    written[4], written[5] = "д" * 55, "д" * 25
    texts = [*written[:4], written[5], written[4], *written[6:]]
    finding = found(check_neighbours, [*USUAL, *page(texts, written)])["neighbours-swapped"]
    assert (finding.count, finding.where) == (1, "train/metadata.jsonl:5")
    assert finding.others == ("train/6.png",)
    assert "25 and 55 characters" in finding.examples[0]


def test_swapped_texts_of_like_length_cannot_be_told() -> None:
    written = lines(12)
    written[4], written[5] = "д" * 40, "д" * 41
    texts = [*written[:4], written[5], written[4], *written[6:]]
    assert found(check_neighbours, [*USUAL, *page(texts, written)]) == {}


@pytest.mark.parametrize(
    ("texts", "where", "which"),
    [
        pytest.param(lambda own: [*own[1:], own[0]], 2, "before", id="the first text is missing"),
        pytest.param(lambda own: [own[-1], *own[:-1]], 1, "after", id="a text too many at the top"),
        pytest.param(lambda own: [*own[:8], *own[9:], own[8]], 10, "before", id="a text is missing in the middle"),
    ],
)
def test_a_run_shifted_by_one(texts, where: int, which: str) -> None:  # type: ignore[no-untyped-def]
    written = lines(20, seed=4)
    finding = found(check_neighbours, [*USUAL, *page(texts(written), written)])["lines-shifted"]
    assert finding.count == 1
    assert int(finding.where.rpartition(":")[2]) == pytest.approx(where, abs=2)
    assert f"the line {which}" in finding.examples[0]


def test_pages_of_a_few_lines_say_nothing() -> None:
    pages = [
        item for name in range(30) for item in page(lines(4, seed=name)[::-1], lines(4, seed=name), name=str(name))
    ]
    assert found(check_neighbours, pages) == {}
