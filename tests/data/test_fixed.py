"""A list of names decides where they stand, and what it says wrongly is told with its line."""

from pathlib import Path

import pytest

from dsocr.data.placement import fix, read_fixed
from dsocr.data.splits import Placeable
from dsocr.errors import DataError
from tests.data.making import write

FACTS = [
    Placeable("lines/a01/a01-000u-00", "l:1", "т", writer="000", page="a01-000u"),
    Placeable("lines/a01/a01-000u-01", "l:2", "т", writer="000", page="a01-000u"),
    Placeable("lines/b02/b02-001-00", "l:3", "т", writer="001", page="b02"),
    Placeable("lines/b02/b02", "l:4", "т", writer="002", page="b03"),
    Placeable("old/b02-001-00", "l:5", "т", writer="003", page="b04"),
]


@pytest.mark.parametrize(
    ("text", "splits"),
    [
        pytest.param("000\n", {0: "test", 1: "test"}, id="a writer, in test as no split is said"),
        pytest.param("a01-000u\ttrain\n", {0: "train", 1: "train"}, id="a page, with its split"),
        pytest.param("a01-000u-01.png\tval\n", {1: "validation"}, id="an image with its suffix"),
        pytest.param("lines\\b02\\b02-001-00.png\n", {2: "test"}, id="a whole path, written as on Windows"),
        pytest.param("# published\n\n001\r\n002\tdev\r\n", {2: "test", 3: "validation"}, id="comments, empty lines"),
        pytest.param("page:b02\n", {2: "test"}, id="the kind that is meant"),
        pytest.param("000\ttest\na01-000u\ttest\n", {0: "test", 1: "test"}, id="the same said twice"),
    ],
)
def test_names_are_found(tmp_path: Path, text: str, splits: dict[int, str]) -> None:
    names = read_fixed(write(tmp_path / "list.tsv", text)).names
    assert {place: name.split.value for place, name in fix(names, FACTS).items()} == splits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("000\nq99\n", "list.tsv:2: 'q99' is no writer, document, page or image", id="nothing"),
        pytest.param(
            "b02\n", r"list.tsv:1: 'b02' may be image lines/b02/b02 \(1 samples\) and page b02", id="two kinds"
        ),
        pytest.param(
            "\nb02-001-00\n", "list.tsv:2: .* may be image lines/b02/b02-001-00 .* and image old/", id="two images"
        ),
        pytest.param(
            "000\na01-000u\ttrain\n", "list.tsv:2: .* in train, but list.tsv:1 puts it in test", id="two splits"
        ),
        pytest.param("000\tsometimes\n", "list.tsv:1: 'sometimes' is no split", id="no split"),
        pytest.param("# none\n", "the list names nothing", id="nothing named"),
        pytest.param("writer:b02\n", "'writer:b02' is no writer", id="not of the kind that is said"),
    ],
)
def test_what_cannot_be_meant_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fix(read_fixed(write(tmp_path / "list.tsv", text)).names, FACTS)
