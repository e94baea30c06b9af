"""What the shipped handwriting promises to those who learn from it and score on it."""

import json
import re
from collections import Counter, defaultdict
from itertools import chain
from pathlib import Path

import pytest

from dsocr.data.check import check_dataset
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "examples" / "handwriting"
NANO_TOKENIZER = ROOT / "src" / "dsocr" / "models" / "bases" / "nano" / "tokenizer.json"

RUSSIAN = "абвгдеёжзийклмнопрстуфхцчшщъыьэюя"
LATIN = "abcdefghijklmnopqrstuvwxyz"
SIGNS = "0123456789.,:;!?-—«»()№%"

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


def text_of(samples: list[Sample], split: Split, writer: str | None = None) -> str:
    return "\n".join(sample.text for sample in samples if sample.split == split and writer in {None, sample.writer})


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


@pytest.mark.parametrize("split", Split)
def test_every_writer_has_the_lines_the_readme_tells(dataset: Dataset, split: Split) -> None:
    assert Counter(sample.writer for sample in dataset.samples(split)) == LINES[split]


def test_one_writer_occurs_only_in_test(dataset: Dataset) -> None:
    writers = {split: {sample.writer for sample in dataset.samples(split)} for split in Split}
    assert writers[Split.TEST] - writers[Split.TRAIN] - writers[Split.VALIDATION] == {"gleb"}


def test_no_text_is_repeated(samples: list[Sample]) -> None:
    texts = Counter(" ".join(words(sample.text)) for sample in samples)
    assert [text for text, count in texts.items() if count > 1] == []


def test_no_three_words_in_a_row_are_in_two_splits(samples: list[Sample]) -> None:
    """Not even where a sentence runs on from line to line."""
    splits = defaultdict(set)
    for split in Split:
        for page in {sample.page for sample in samples if sample.split == split}:
            run = words(" ".join(sample.text for sample in samples if sample.page == page))
            for three in zip(run, run[1:], run[2:], strict=False):
                splits[three].add(split)
    assert [" ".join(three) for three, found in splits.items() if len(found) > 1] == []


def test_no_page_is_shared_by_two_splits_or_writers(samples: list[Sample]) -> None:
    owners = defaultdict(set)
    for sample in samples:
        owners[sample.page].add((sample.split, sample.writer))
    assert [page for page, owner in owners.items() if len(owner) > 1] == []


@pytest.mark.parametrize(
    ("characters", "split", "writer"),
    [
        pytest.param(
            RUSSIAN + RUSSIAN.upper(), Split.TRAIN, None, id="every Russian letter, large and small, is learnt"
        ),
        pytest.param(LATIN, Split.TRAIN, None, id="every small Latin letter is learnt"),
        pytest.param(SIGNS, Split.TRAIN, None, id="digits and signs are learnt"),
        pytest.param(RUSSIAN + "ЁЖЩФЦЭЮЯ", Split.TEST, None, id="every small Russian letter is asked"),
        pytest.param(SIGNS, Split.TEST, None, id="digits and signs are asked"),
        pytest.param(RUSSIAN + "ФЭ" + SIGNS, Split.TEST, "gleb", id="of the new hand too"),
    ],
)
def test_alphabet(samples: list[Sample], characters: str, split: Split, writer: str | None) -> None:
    assert sorted(set(characters) - set(text_of(samples, split, writer))) == []


def test_lines_are_10_to_44_characters_long(samples: list[Sample]) -> None:
    assert [sample.text for sample in samples if not 10 <= len(sample.text) <= 44] == []


def test_russian_comes_first(samples: list[Sample]) -> None:
    with_cyrillic = sum(bool(re.search("[а-яё]", sample.text.lower())) for sample in samples)
    assert 0.82 <= with_cyrillic / len(samples) <= 0.95


def test_nano_knows_every_character(samples: list[Sample]) -> None:
    if not NANO_TOKENIZER.is_file():
        pytest.skip("the nano base has no tokenizer.json yet")
    vocabulary = json.loads(NANO_TOKENIZER.read_text(encoding="utf-8"))["model"]["vocab"]
    assert sorted(set("".join(sample.text for sample in samples)) - set(vocabulary)) == []


def test_check_finds_nothing_but_the_known_hands_and_rare_characters(dataset: Dataset) -> None:
    """That writers cross is the point of known hands, and a note; the hashes say that no file was changed since."""
    found = {(finding.code, finding.severity) for finding in check_dataset(dataset)}
    assert found == {
        ("writer-crosses", "note"),
        ("mixed-punctuation", "note"),
        ("rare-characters", "note"),
        ("seen-once", "note"),
    }


def test_it_is_small_enough_to_ship() -> None:
    files = [path for path in SAMPLE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 6 * 2**20


def test_it_holds_nothing_about_the_machine_that_made_it() -> None:
    texts = [path for path in SAMPLE.rglob("*") if path.suffix in {".json", ".jsonl", ".md"}]
    assert [
        path.name for path in texts if re.search(r"/tmp|/home|/work|[A-Z]:\\", path.read_text(encoding="utf-8"))
    ] == []
