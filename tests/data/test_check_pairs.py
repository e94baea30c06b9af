"""Checks of pairs: texts that cannot belong to their image, or belong to a neighbour's; correct pairs pass."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr.data.check.findings import CheckedSample
from dsocr.data.check.pair_checks import check_densities, check_neighbours
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.images import open_image
from tests.data.check_samples import run_check, sample, stats

EXAMPLE = Path(__file__).parents[2] / "examples" / "handwriting"


def written(count: int, density: float, writer: str | None, seed: int = 1) -> list[CheckedSample]:
    """Lines of 10 to 60 characters, each about as wide as a writer of that density needs."""
    rng = random.Random(seed)
    lines = []
    for number in range(1, count + 1):
        length = rng.randint(10, 60)
        width = round(60 * length / density * rng.uniform(0.8, 1.25))
        lines.append(sample(number, "д" * length, writer=writer, page=None, size=(width, 60)))
    return lines


def with_text(item: CheckedSample, text: str) -> CheckedSample:
    return replace(item, sample=replace(item.sample, text=text))


def test_writers_of_different_densities_pass() -> None:
    assert (
        run_check(check_densities, written(60, 2.0, "anna") + written(60, 6.0, "boris") + written(5, 3.0, None)) == {}
    )


def test_texts_of_other_images() -> None:
    lines = written(60, 3.0, "anna")
    lines[7] = with_text(lines[7], "д" * 400)
    widest = max(range(60), key=lambda number: len(lines[number].text) if number != 7 else 0)
    lines[widest] = with_text(lines[widest], "да")
    findings = run_check(check_densities, lines)
    assert set(findings) == {"text-too-long", "text-too-short"}
    long, short = findings["text-too-long"], findings["text-too-short"]
    assert (long.severity, long.where, short.where) == ("warning", lines[7].where, lines[widest].where)
    assert long.examples[0].detail.startswith("400 characters")


def test_writer_of_few_lines_is_compared_with_the_whole_dataset() -> None:
    rare = with_text(written(1, 3.0, "vera", seed=5)[0], "д" * 900)
    assert run_check(check_densities, [*written(60, 3.0, "anna"), rare])["text-too-long"].count == 1


def test_few_samples_and_pages_are_not_judged() -> None:
    lines = written(60, 3.0, "anna")
    assert run_check(check_densities, [with_text(lines[0], "д" * 900), *lines[1:19]]) == {}
    assert run_check(check_densities, [*lines[1:], with_text(lines[0], "строка\n" * 100)]) == {}


def test_images_of_one_width_cannot_show_whether_pairs_agree() -> None:
    lines = [replace(item, size=(900, 60)) for item in written(200, 20.0, "anna")]
    assert "pairs-disagree" not in run_check(check_densities, lines)


@pytest.mark.parametrize("by", [1, -1])
def test_shifted_pairs_of_the_shipped_sample(by: int) -> None:
    """Consecutive lines have similar lengths, so that even shifted pairs correlate a little."""
    rows = list(Dataset.open(EXAMPLE).numbered(Split.TRAIN))
    lines = [CheckedSample(where, item, None, open_image(item.image).size) for where, item in rows]
    assert run_check(check_densities, lines) == {}
    texts = [item.text for item in lines]
    shifted = [with_text(item, text) for item, text in zip(lines, texts[by:] + texts[:by], strict=True)]
    finding = run_check(check_densities, shifted)["pairs-disagree"]
    assert (finding.severity, finding.where) == ("warning", lines[0].where)


def page(texts: list[str], true_texts: list[str] | None = None, name: str = "1", start: int = 1) -> list[CheckedSample]:
    """Lines of a page with images as wide as `true_texts` need, give or take a few per cent."""
    rng = random.Random(name)
    widths = [round(len(text) * 12 * rng.gauss(1, 0.03)) for text in true_texts or texts]
    return [
        sample(start + place, text, page=name, image=stats(width), size=(width, 60))
        for place, (text, width) in enumerate(zip(texts, widths, strict=True))
    ]


def random_texts(count: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return ["д" * rng.randint(20, 60) for _ in range(count)]


USUAL = page(random_texts(30, seed=9), name="usual", start=1001)


@pytest.mark.parametrize(
    ("lengths", "swapped"),
    [pytest.param((55, 25), True, id="different lengths"), pytest.param((40, 41), False, id="similar lengths")],
)
def test_swapped_texts(lengths: tuple[int, int], swapped: bool) -> None:
    true_texts = random_texts(12)
    true_texts[4:6] = ["д" * length for length in lengths]
    texts = [*true_texts[:4], true_texts[5], true_texts[4], *true_texts[6:]]
    findings = run_check(check_neighbours, [*USUAL, *page(texts, true_texts)])
    assert set(findings) == ({"neighbours-swapped"} if swapped else set())
    if swapped:
        finding = findings["neighbours-swapped"]
        assert (finding.count, finding.where) == (1, "train/metadata.jsonl:5")
        assert finding.examples[0].other == "train/6.png"


@pytest.mark.parametrize(
    ("shift", "where", "which"),
    [
        pytest.param(lambda own: [*own[1:], own[0]], 2, "before", id="the first text is missing"),
        pytest.param(lambda own: [own[-1], *own[:-1]], 1, "after", id="one text too many at the top"),
        pytest.param(lambda own: [*own[:8], *own[9:], own[8]], 10, "before", id="a text is missing in the middle"),
    ],
)
def test_run_shifted_by_one(shift, where: int, which: str) -> None:  # type: ignore[no-untyped-def]
    true_texts = random_texts(20, seed=4)
    finding = run_check(check_neighbours, [*USUAL, *page(shift(true_texts), true_texts)])["lines-shifted"]
    assert finding.count == 1
    assert int(finding.where.rpartition(":")[2]) == pytest.approx(where, abs=2)
    assert f"the line {which}" in finding.examples[0].detail


def test_correct_pages_and_pages_of_a_few_lines_pass() -> None:
    pages = [item for name in range(50) for item in page(random_texts(20, seed=name), name=str(name))]
    assert run_check(check_neighbours, pages) == {}
    texts = {name: random_texts(4, seed=name) for name in range(30)}
    short = [item for name, text in texts.items() for item in page(text[::-1], text, name=str(name))]
    assert run_check(check_neighbours, short) == {}
