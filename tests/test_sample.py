"""The promises of the shipped handwriting."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest

from draw_hands import UNSEEN_SEED
from draw_sample import PEOPLE, DrawnPaper, pages_of
from draw_writers import WRITERS, Penman, draw_page
from dsocr.data.check import check_dataset
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "examples" / "handwriting"

LINES = {
    Split.TRAIN: {"anna": 110, "boris": 110, "vera": 110},
    Split.VALIDATION: {"anna": 20, "boris": 20, "vera": 20},
    Split.TEST: {"anna": 30, "boris": 30, "vera": 30, "gleb": 60},
}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return Dataset.open(SAMPLE)


@pytest.fixture(scope="module")
def samples(dataset: Dataset) -> list[Sample]:
    return list(chain.from_iterable(dataset.samples(split) for split in Split))


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def threes(lines: Iterable[str]) -> list[tuple[str, ...]]:
    """All three words in a row, also where a sentence runs on from line to line."""
    run = words(" ".join(lines))
    return list(zip(run, run[1:], run[2:], strict=False))


@pytest.mark.parametrize("split", Split)
def test_every_writer_has_the_lines_that_the_readme_states(dataset: Dataset, split: Split) -> None:
    assert Counter(sample.writer for sample in dataset.samples(split)) == LINES[split]


def test_no_three_words_in_a_row_are_in_two_splits(samples: list[Sample]) -> None:
    splits = defaultdict(set)
    for split in Split:
        for page in {sample.page for sample in samples if sample.split == split}:
            for three in threes(sample.text for sample in samples if sample.page == page):
                splits[three].add(split)
    assert [" ".join(three) for three, found in splits.items() if len(found) > 1] == []


def test_check_finds_nothing_but_the_known_writers_and_rare_characters(dataset: Dataset) -> None:
    """That writers cross is the point of known writers; the hashes say that no file was changed since."""
    found = {(finding.code, finding.severity) for finding in check_dataset(dataset)}
    assert found == {
        ("writer-crosses", "note"),
        ("mixed-punctuation", "note"),
        ("rare-characters", "note"),
        ("seen-once", "note"),
    }


RUSSIAN_SAMPLE = ROOT / "examples" / "russian"


def test_the_russian_sample_is_whole_and_has_the_lines_that_the_readme_states() -> None:
    drawn = Dataset.open(RUSSIAN_SAMPLE)
    assert {finding.severity for finding in check_dataset(drawn)} <= {"note", "warning"}
    lines = [sample for split in Split for sample in drawn.samples(split)]
    for name, person in PEOPLE.items():
        own = [sample for sample in lines if sample.writer == name]
        assert Counter(sample.split for sample in own) == person.lines
    assert len({sample.text for sample in lines}) == len(lines)
    assert {sample.writer for sample in lines} == PEOPLE.keys()
    owners = {(sample.page, sample.split, sample.writer) for sample in lines}
    assert len(owners) == len({sample.page for sample in lines})
    size = sum(path.stat().st_size for path in RUSSIAN_SAMPLE.rglob("*") if path.is_file())
    assert size <= 4 * 2**20


def test_a_drawn_page_is_the_same_again_and_by_a_writer_that_pretraining_never_drew() -> None:
    lines = pages_of("savva", Split.TEST, set())[0][:2]
    drawn = [
        [image.tobytes() for image in draw_page(Penman(number), lines, DrawnPaper(), (number, 1))]
        for number in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert WRITERS not in {1, 1 + UNSEEN_SEED}, "first parts of the seeds of pretraining's lines"
