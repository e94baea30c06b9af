"""A list of names fixes splits, and mistakes in it are reported with their line."""

from pathlib import Path

import pytest

from dsocr.data.split_plan import match_fixed, read_fixed_list
from dsocr.data.splits import SplitCandidate
from tests.data.making import write
from tests.raising import raises_code

FACTS = [
    SplitCandidate("lines/a01/a01-000u-00", "l:1", "т", writer="000", page="a01-000u"),
    SplitCandidate("lines/a01/a01-000u-01", "l:2", "т", writer="000", page="a01-000u"),
    SplitCandidate("lines/b02/b02-001-00", "l:3", "т", writer="001", page="b02"),
    SplitCandidate("lines/b02/b02", "l:4", "т", writer="002", page="b03"),
    SplitCandidate("old/b02-001-00", "l:5", "т", writer="003", page="b04"),
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
    names = read_fixed_list(write(tmp_path / "list.tsv", text)).entries
    assert {place: name.split.value for place, name in match_fixed(names, FACTS).items()} == splits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("000\nq99\n", "fixed-list-unknown", id="nothing"),
        pytest.param("b02\n", "fixed-list-ambiguous", id="two kinds"),
        pytest.param("\nb02-001-00\n", "fixed-list-ambiguous", id="two images"),
        pytest.param("000\na01-000u\ttrain\n", "fixed-list-conflict", id="two splits"),
        pytest.param("000\tsometimes\n", "fixed-list-split", id="no split"),
        pytest.param("# none\n", "fixed-list-empty", id="nothing named"),
        pytest.param("writer:b02\n", "fixed-list-unknown", id="not of the kind that is said"),
    ],
)
def test_what_cannot_be_meant_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with raises_code(message):
        match_fixed(read_fixed_list(write(tmp_path / "list.tsv", text)).entries, FACTS)
