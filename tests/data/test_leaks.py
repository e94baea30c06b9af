"""The leak report agrees with manual counts, and is readable."""

import re
from pathlib import Path

import pytest

from dsocr.data.check.leaks import TrainOverlap, leak_tables, report_leaks, summarise, to_markdown
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.document import Split
from tests.data.making import picture, write
from tests.raising import raises_code

ROWS = [
    ("train", "anna", "p1", "мама мыла раму"),
    ("train", "anna", "p1", "Ёлка, ёлка!"),
    ("train", "boris", "p2", "1905"),
    ("validation", "boris", "p3", "мама мыла раму"),
    ("test", "vera", "p2", "елка елка"),
    ("test", "vera", "p4", "кошка мыла раму"),
    ("test", "anna", "p4", "папа, мама мыла раму"),
]


def dataset_of(folder: Path, rows: list[tuple[str, str, str, str]]) -> Dataset:
    source = folder / "source"
    table = ["image\tsplit\twriter\tpage\ttext"]
    for number, row in enumerate(rows):
        picture(source / f"{number}.png", colour=(number, 0, 0))
        table.append("\t".join((f"{number}.png", *row)))
    write(source / "lines.tsv", "\n".join(table))
    return prepare(source, folder / "letters")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return dataset_of(tmp_path_factory.mktemp("leaks"), ROWS)


def test_overlaps_between_splits_are_counted(dataset: Dataset) -> None:
    crossing = report_leaks(dataset).crossing
    assert {kind: found.count for kind, found in crossing.items()} == {
        "writers": 2,
        "documents": 0,
        "pages": 1,
        "texts": 1,
        "texts except for case and punctuation": 2,
    }
    assert crossing["writers"].examples == ("anna", "boris")
    assert crossing["texts"].examples == ("мама мыла раму",)


def test_test_samples_seen_in_training_are_counted(dataset: Dataset) -> None:
    assert report_leaks(dataset).overlap[Split.TEST] == TrainOverlap(
        samples=3,
        same_texts=0,
        near_texts=1,  # елка елка
        known_writers=1,  # anna
        words=9,
        unknown_words=4,  # елка (twice), кошка, папа: ё and е are two words
        forms=6,
        unknown_forms=3,
        ngrams=3,  # one in the line of three words, two in that of four
        known_ngrams=1,
    )


def test_the_paragraph_has_the_numbers(dataset: Dataset) -> None:
    assert re.findall(r"\d[\d.]*(?: %)?", summarise(report_leaks(dataset))) == [
        *("7", "3", "42.9 %", "2", "1", "14.3 %", "1", "3", "42.9 %", "2"),
        *("2", "1", "1"),
        *("3", "0", "0.0 %", "1", "33.3 %", "1", "33.3 %", "4", "44.4 %", "3", "50.0 %", "1", "33.3 %"),
    ]


def test_unknown_metadata_is_reported_and_not_counted_as_zero(tmp_path: Path) -> None:
    rows = [(split, "", "", text) for split, _, _, text in ROWS]
    report = report_leaks(dataset_of(tmp_path, rows))
    quote = summarise(report)
    assert "1 text " in quote
    assert "a writer" not in quote
    tables = {title: (header, table) for title, header, table in leak_tables(report)}
    header, counts = tables["splits"]
    assert {dict(zip(header, row, strict=True))["writers"] for row in counts} == {"unknown"}
    assert dict(row[:2] for row in tables["in more than one split"][1])["writers"] == "unknown"


def test_the_page_of_markdown_holds_every_table_and_hash(dataset: Dataset) -> None:
    report = report_leaks(dataset)
    page = to_markdown(report)
    assert all(f"## {title.capitalize()}" in page for title, _, _ in leak_tables(report))
    assert all(facts.sha256 and facts.sha256 in page for facts in report.splits.values())
    assert all(len(row) == len(header) for _, header, rows in leak_tables(report) for row in rows)


def test_a_fold_is_reported_by_its_own_splits(tmp_path: Path) -> None:
    for number in range(6):
        picture(tmp_path / f"s/{number}.png", colour=(number, 0, 0))
    rows = "".join(f"{number}.png\tтекст {number}\tw{number}\n" for number in range(6))
    write(tmp_path / "s/t.tsv", "image\ttext\twriter\n" + rows)
    out = prepare(tmp_path / "s", tmp_path / "out", folds=3).folder
    report = report_leaks(Dataset.open(out, fold=2))
    assert {"3 folds", "fold 2"} <= set(re.findall(r"3 folds|fold 2", summarise(report)))
    assert report.splits[Split.TEST].sha256 is None, "the hashes are of the folders"


def test_an_empty_dataset_is_an_error(dataset: Dataset, tmp_path: Path) -> None:
    empty = dataset.card.model_copy(update={"splits": {}})
    empty.write(tmp_path)
    with raises_code("no-samples"):
        report_leaks(Dataset.open(tmp_path))
