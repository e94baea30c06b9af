"""The leak report agrees with manual counts, and is readable."""

from pathlib import Path

import pytest

from dsocr.data.check.leaks import leak_tables, report_leaks
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
    assert crossing == {
        "writers": (2, ["anna", "boris"]),
        "documents": (0, []),
        "pages": (1, ["p2"]),
        "texts": (1, ["мама мыла раму"]),
        "texts except for case and punctuation": (2, ["елкаелка", "мамамылараму"]),
    }


def test_test_samples_seen_in_training_are_counted(dataset: Dataset) -> None:
    report = report_leaks(dataset)
    assert report.splits[Split.TEST].in_train == {
        "samples with a text from train": (0, 3),
        "the same except for case and punctuation": (1, 3),  # елка елка
        "samples by a writer from train": (1, 3),  # anna
        "words from train": (5, 9),  # not елка (twice), кошка, папа: ё and е are two words
        "different words from train": (3, 6),
        "sequences of three words from train": (1, 3),  # one in the line of three words, two in that of four
    }
    *_, (_, header, rows) = leak_tables(report)
    assert dict(zip(header, rows[3], strict=True))["test"] == "5 (55.6 %)"


def test_unknown_metadata_is_reported_and_not_counted_as_zero(tmp_path: Path) -> None:
    rows = [(split, "", "", text) for split, _, _, text in ROWS]
    report = report_leaks(dataset_of(tmp_path, rows))
    tables = {title: (header, table) for title, header, table in leak_tables(report)}
    header, counts = tables["splits"]
    assert {dict(zip(header, row, strict=True))["writers"] for row in counts} == {"unknown"}
    assert dict(row[:2] for row in tables["in more than one split"][1])["writers"] == "unknown"


def test_a_fold_is_reported_by_its_own_splits(tmp_path: Path) -> None:
    for number in range(6):
        picture(tmp_path / f"s/{number}.png", colour=(number, 0, 0))
    rows = "".join(f"{number}.png\tтекст {number}\tw{number}\n" for number in range(6))
    write(tmp_path / "s/t.tsv", "image\ttext\twriter\n" + rows)
    out = prepare(tmp_path / "s", tmp_path / "out", folds=3).folder
    report = report_leaks(Dataset.open(out, fold=2))
    assert [of.samples for of in report.splits.values()] == [2, 2, 2]
    assert report.splits[Split.TEST].sha256 is None, "the hashes are of the folders"


def test_an_empty_dataset_is_an_error(dataset: Dataset, tmp_path: Path) -> None:
    empty = dataset.card.model_copy(update={"splits": {}})
    empty.write(tmp_path)
    with raises_code("no-samples"):
        report_leaks(Dataset.open(tmp_path))
