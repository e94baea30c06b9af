"""Types of regions are learnt from where lines are and what their texts look like, kept in a file, and given again."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from dsocr.data.region_types import _PLACES, RegionTypes, describe_lines, main_type, name_regions
from dsocr.document import Line, Outline, Page, Region
from tests.raising import raises_code

SIZE = (1000, 1400)


def line(left: int, top: int, right: int, kind: str = "", text: str = "", block: str = "b") -> Line:
    return Line(text, "p#1", Outline((left, top, right, top + 40)), Region(block, kind=kind))


def page(number: int, *, texts: bool = True) -> Page:
    """A page of a book: its number in the upper corner, ten lines, and beside every second a note in the margin."""
    lines = [line(820 - 10 * number, 40, 860, "NumberingZone:page", f"{number + 11}")]
    for row in range(10):
        top = 150 + number * 5 + row * 100
        lines.append(line(120 + number, top, 700, "MainZone", "A line of many words and no number"))
        if row % 2:
            lines.append(line(760 + number, top, 950, "MarginTextZone:note", "short note"))
    lines = lines if texts else [replace(each, text="") for each in lines]
    return Page(Path("p.png"), "p", "p", tuple(lines), SIZE)


def types_of(lines: tuple[Line, ...]) -> list[str]:
    return [main_type(each.region.kind) for each in lines if each.region]


@cache
def learn(count: int = 5, *, texts: bool = True) -> RegionTypes:
    known = RegionTypes.learn(page(number, texts=texts) for number in range(count))
    assert known is not None
    return known


@pytest.mark.parametrize("learnt", [pytest.param(True, id="texts"), pytest.param(False, id="no texts")])
@pytest.mark.parametrize("asked", [pytest.param(True, id="read"), pytest.param(False, id="unread")])
def test_lines_of_other_pages_get_the_types_of_lines_like_them(learnt: bool, asked: bool) -> None:
    other = page(8, texts=asked)
    assert learn(texts=learnt).predict(other.lines, SIZE) == types_of(other.lines)


def test_a_text_decides_where_the_place_does_not() -> None:
    pages = [
        Page(Path("p"), "p", "p", tuple(line(100, top, 200, kind, text) for top, kind, text in rows), SIZE)
        for rows in (
            [(100, "NumberingZone", "17"), (300, "MainZone", "Amen"), (500, "MainZone", "Finis")],
            [(100, "MainZone", "Ende"), (300, "NumberingZone", "4"), (500, "MainZone", "Amen")],
            [(100, "MainZone", "Finis"), (300, "MainZone", "Ende"), (500, "NumberingZone", "112")],
        )
    ]
    known = RegionTypes.learn(pages)
    assert known is not None
    asked = [line(100, 100, 200, text="Omega"), line(100, 300, 200, text="31"), line(100, 500, 200, text="Alpha")]
    assert known.predict(asked, SIZE) == ["MainZone", "NumberingZone", "MainZone"]


def test_types_are_counted_without_what_is_added_to_them() -> None:
    assert learn().counts == {"MainZone": 50, "MarginTextZone": 25, "NumberingZone": 5}
    assert [main_type(kind) for kind in ("MainZone:column#1", "MainZone#2", "paragraph", "")] == [
        "MainZone",
        "MainZone",
        "paragraph",
        "",
    ]


def test_of_a_common_type_lines_throughout_the_pages_are_kept() -> None:
    known = learn(50)
    assert known.counts == {"MainZone": 400, "MarginTextZone": 250, "NumberingZone": 50}
    tops = known.numbers[known.types == "MainZone"][:, 1]
    assert tops.min() == pytest.approx((150 + 20) / SIZE[1])
    assert tops.max() == pytest.approx((150 + 49 * 5 + 900 + 20) / SIZE[1])


@pytest.mark.parametrize(
    "kinds", [pytest.param((), id="none"), pytest.param(("MainZone",), id="only one"), pytest.param(("",), id="blank")]
)
def test_nothing_is_learnt_where_nothing_is_to_be_told_apart(kinds: tuple[str, ...]) -> None:
    lines = tuple(line(100, 100 * number, 700, kind) for number, kind in enumerate(kinds, start=1))
    assert RegionTypes.learn([Page(Path("p"), "p", "p", lines, SIZE)]) is None


def test_lines_without_a_type_are_not_learnt_but_seen() -> None:
    typed = page(0)
    untyped = tuple(replace(each, region=None) if index % 3 == 1 else each for index, each in enumerate(typed.lines))
    known = RegionTypes.learn([replace(typed, lines=untyped)])
    assert known is not None
    assert sum(known.counts.values()) == 11
    whole = RegionTypes.learn([typed])
    assert whole is not None
    assert {tuple(row) for row in known.numbers} < {tuple(row) for row in whole.numbers}


def test_a_rare_type_weighs_as_much_as_a_common_one() -> None:
    corner = ["NumberingZone", "MainZone", "NumberingZone", "MainZone", "MainZone"]
    pages = [
        Page(Path("p"), "p", "p", (line(820, 40, 860, kind), *page(0, texts=False).lines[1:]), SIZE) for kind in corner
    ]
    known = RegionTypes.learn(pages)
    assert known is not None
    assert known.predict(page(0, texts=False).lines, SIZE)[0] == "NumberingZone"


def test_numbers_for_the_place_of_a_line() -> None:
    lines = [line(100, top, right) for top, right in ((100, 700), (160, 700), (300, 700), (160, 150))]
    lines.append(line(800, 165, 900))
    numbers = dict(zip(_PLACES, describe_lines(lines, SIZE)[1].tolist(), strict=False))
    expected = {"gap above": 1.5, "gap below": 0, "beside": 2, "begin alike": 0.6, "end alike": 0.4, "before": 1}
    assert {name: numbers[name] for name in expected} == pytest.approx(expected)
    first = dict(zip(_PLACES, describe_lines(lines, SIZE)[0].tolist(), strict=False))
    assert (first["gap above"], first["gap below"]) == pytest.approx((30, 1.5))
    assert first["left of the text"] == first["right of the text"] == first["above the text"] == 0


@given(st.integers(2, 6), st.integers(0, 9))
def test_a_larger_scan_is_described_alike(scale: int, number: int) -> None:
    lines = page(number).lines
    large = [replace(each, outline=each.outline and each.outline.scaled(scale, scale)) for each in lines]
    size = (SIZE[0] * scale, SIZE[1] * scale)
    assert describe_lines(large, size) == pytest.approx(describe_lines(lines, SIZE), abs=1e-4)


def test_a_page_without_lines_has_no_types() -> None:
    assert learn().predict([], SIZE) == []


def test_lines_of_a_block_are_put_into_regions_of_their_types() -> None:
    found = [replace(each, region=Region("block")) for each in page(7).lines]
    named = name_regions(found, SIZE, learn())
    kinds = [each.region.kind for each in named if each.region]
    assert kinds == ["NumberingZone"] + 10 * ["MainZone"] + 5 * ["MarginTextZone"], "notes do not interrupt the text"
    text = [each.outline for each in page(7).lines if each.text.startswith("A line")]
    assert [each.outline for each in named[1:11]] == text
    regions = {each.region for each in named if each.region}
    assert {region.id: region.outline and region.outline.box for region in regions} == {
        "r1": (750, 40, 860, 80),
        "r2": (127, 185, 700, 1125),
        "r3": (767, 285, 950, 1125),
    }


def test_blocks_stay_apart_and_cells_stay_as_they_are() -> None:
    lines = [replace(each, region=Region(f"b{index // 6}")) for index, each in enumerate(page(7).lines)]
    named = name_regions(lines, SIZE, learn(), cells={"b1"})
    assert named[6:12] == lines[6:12]
    assert {each.outline for each in named} == {each.outline for each in lines}
    others = [each.region.id for each in [*named[:6], *named[12:]] if each.region]
    assert others == ["r1", "r2", "r2", "r2", "r2", "r3", "r4", "r4", "r5", "r5"]


def test_a_file_gives_the_same_types(tmp_path: Path) -> None:
    known, path = learn(), tmp_path / "types"
    path.write_bytes(known.to_bytes())
    opened = RegionTypes.open(path)
    assert opened.counts == known.counts
    assert opened.to_bytes() == known.to_bytes()
    other = page(9)
    assert opened.predict(other.lines, SIZE) == known.predict(other.lines, SIZE)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(learn().to_bytes()[:-5], id="cut off"),
        pytest.param(save({"numbers": np.zeros((2, 28), np.float32)}, {"names": '["a"]'}), id="a tensor is missing"),
        pytest.param(
            save({"numbers": np.zeros((2, 28), np.float32), "types": np.array([0, 7])}, {"names": '["a"]'}),
            id="a name is missing",
        ),
        pytest.param(
            save({"numbers": np.zeros((2, 9), np.float32), "types": np.array([0, 1])}, {"names": '["a", "b"]'}),
            id="other numbers",
        ),
        pytest.param(
            save({"numbers": np.full((2, 28), np.nan, np.float32), "types": np.array([0, 1])}, {"names": '["a", "b"]'}),
            id="not numbers",
        ),
        pytest.param(
            save({"numbers": np.zeros((2, 28), np.float32), "types": np.array([0, 1])}, {"names": json.dumps({})}),
            id="no list",
        ),
        pytest.param(save({"numbers": np.zeros((0, 28), np.float32), "types": np.zeros(0, np.int64)}), id="no lines"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "types"
    path.write_bytes(content)
    with raises_code("region-types-damaged", where="types"):
        RegionTypes.open(path)
