"""Lines and regions are drawn, cut, merged and ordered; undo restores them exactly, and exports read back equal."""

import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsocr.document import Outline, word_boxes
from dsocr.errors import DataError
from dsocr.workbench.archive import Archive
from dsocr.workbench.page_changes import carry_out, move_beside, replace_unreviewed
from dsocr.workbench.page_export import export
from dsocr.workbench.store import CorrectionStore, StaleError
from dsocr.workbench.stored_lines import State, StoredLine, StoredRegion, outline_around, split_line
from tests.raising import raises_code
from tests.workbench.fakes import edit, make_pages, opened
from tests.workbench.test_page_export import MARKUP


def cut(store: CorrectionStore, start: tuple[int, int], end: tuple[int, int]) -> None:
    edit(store, "cut", **{"from": start, "to": end})


def corners(left: int, top: int, right: int, bottom: int) -> list[tuple[int, int]]:
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def snapshot(store: CorrectionStore) -> tuple[list[StoredLine], list[StoredRegion]]:
    return store.lines(), store.regions()


def require_untouched_bytes(store: CorrectionStore, initial: list[StoredLine], markup: str, exported: Path) -> None:
    """Assert that lines with the outline and text of the file keep their bytes, ranks apart."""
    ranks = re.compile(r' custom="readingOrder {index:\d;}"')
    content = ranks.sub("", exported.read_text(encoding="utf-8"))
    now = {line.number: (line.outline, line.text, line.elements) for line in store.lines(1)}
    kept = [(line.outline, line.text, line.elements) == now.get(line.number) for line in initial]
    elements = re.findall("<TextLine.*?</TextLine>", ranks.sub("", markup), re.DOTALL)
    assert [element in content for element, is_kept in zip(elements, kept, strict=True) if is_kept] == [True] * sum(
        kept
    )


def in_groups(store: CorrectionStore) -> list[tuple[Any, list[tuple[str, list[int]]]]]:
    """The regions with lines, in the order of their first lines: type, outline, and its lines as files have them."""
    regions = {region.number: region for region in store.regions()}
    groups: dict[int | None, list[tuple[str, list[int]]]] = {}
    for line in store.lines():
        points = [*line.outline.polygon, *line.outline.baseline]
        groups.setdefault(line.region, []).append((line.text, [number for point in points for number in point]))
    known = {number: (regions[number].kind, regions[number].outline.polygon) for number in groups if number}
    return [(known.get(number or 0), lines) for number, lines in groups.items()]


points = st.tuples(st.integers(0, 285), st.integers(0, 139)).map(lambda point: (2 * point[0], 2 * point[1]))
sides = st.integers(10, 60).map(lambda side: 2 * side)
boxes = st.builds(lambda at, w, h: corners(at[0], at[1], at[0] + w, at[1] + h), points, sides, sides)
KINDS = ["paragraph", "heading", "marginalia", ""]
WHAT = ["addBox", "addRegion", "reshape", "remove", "merge", "cut", "assign", "move", "retype", "removeRegion", "shift"]
edits = st.tuples(st.sampled_from(WHAT), boxes, st.integers(0, 7), st.integers(0, 7), st.sampled_from(KINDS))


def perform(store: CorrectionStore, what: str, box: list[tuple[int, int]], one: int, other: int, kind: str) -> None:
    """Carry out a random edit; what does not make sense on the page as it is does nothing."""
    lines, regions = store.lines(1), store.regions(1)
    line, second = lines[one % len(lines)], lines[other % len(lines)]
    region = regions[one % len(regions)].number if regions else None
    try:
        if what in {"addBox", "addRegion"}:
            edit(store, what, polygon=box, kind=kind)
        elif what == "reshape":
            edit(store, what, [line], shapes=[{"number": line.number, "polygon": box, "baseline": box[2:]}])
        elif what == "remove" or (what == "merge" and line != second):
            edit(store, what, [line] if what == "remove" else [line, second])
        elif what == "cut":
            cut(store, (box[0][0], 0), (box[0][0], 398))
        elif what == "move":
            move_beside(store, line.number, second.number, after=bool(one % 2), who="anna")
        elif what == "assign":
            edit(store, what, [line], region=region)
        elif region and what in {"retype", "removeRegion"}:
            edit(store, what, region=region, kind=kind)
        elif region and what == "shift":
            edit(store, "reshapeRegion", region=region, polygon=box)
    except DataError:
        pass


@pytest.fixture(scope="module", params=["alto", "page", "own"])
def described(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = make_pages(tmp_path_factory.mktemp("shapes") / "box")
    (folder / "scan-2.png").unlink()
    (folder / "page" / "scan-2.xml").unlink()
    if request.param in MARKUP:
        (folder / "page" / "scan-1.xml").write_text(MARKUP[request.param], encoding="utf-8", newline="\n")
    return request.param, folder


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(edits, max_size=8))
def test_random_edits_are_undone_exactly_and_exports_read_back_equal(
    described: tuple[str, Path], steps: list[tuple[str, list[tuple[int, int]], int, int, str]]
) -> None:
    format_, folder = described
    with TemporaryDirectory() as temporary:
        work = Path(temporary)
        with opened(folder, work / "work") as (store, archive):
            initial = snapshot(store)
            for step in steps:
                perform(store, *step)
            for to in ("page", "alto"):
                export(store, archive, work / to, to=to, accepted_only=False)
            expected = in_groups(store)
            if format_ in MARKUP:
                require_untouched_bytes(store, initial[0], MARKUP[format_], work / format_ / "page" / "scan-1.xml")
            while store.undo("anna"):
                pass
            assert snapshot(store) == initial
            export(store, archive, work / "undone", to="alto" if format_ == "alto" else "page", accepted_only=True)
            file = Path("page") / "scan-1.xml"
            assert (work / "undone" / file).read_bytes() == (folder / file).read_bytes()
        for to in ("page", "alto"):
            with opened(work / to, work / f"again-{to}") as (again, _):
                found = in_groups(again)
            assert len(found) == len(expected)
            for (_, was_lines), (_, now_lines) in zip(expected, found, strict=True):
                assert [text for text, _ in now_lines] == [text for text, _ in was_lines], to
                for (_, was), (_, now) in zip(was_lines, now_lines, strict=True):
                    assert now == pytest.approx(was, abs=1), f"{to}: the files have half of the image's size"
            named = [(was, now) for (was, _), (now, _) in zip(expected, found, strict=True) if was]
            assert [now for _, now in named] == [was for was, _ in named], to


def test_two_people_do_not_overwrite_each_other(store: CorrectionStore) -> None:
    seen = store.lines(1)
    edit(store, "addRegion", polygon=corners(0, 0, 600, 150), kind="heading")
    added = store.regions(1)[-1]
    with pytest.raises(StaleError):
        edit(store, "remove", seen[:1])
    edit(store, "assign", [store.lines(1)[2]], region=added.number)
    page = store.pages()[0]
    old = {"what": "retype", "lines": [], "region": [added.number, 0], "kind": "other"}
    with pytest.raises(StaleError):
        carry_out(store, page, old, who="boris")
    assert store.undo("boris") is None


def test_shapes_may_be_changed_while_a_model_reads(store: CorrectionStore) -> None:
    seen, other = store.lines(1)[:2]
    assert store.add_reading(seen, "gelsn", (0.5,) * 5, 0.5)
    seen = store.lines(1)[0]
    assert store.add_reading(seen, "gelesen", (0.9,) * 7, 0.9)
    shape = {"number": seen.number, "polygon": corners(0, 0, 600, 80), "baseline": []}
    edit(store, "reshape", [seen], shapes=[shape])
    assert store.lines(1)[0].outline.polygon[2] == (600, 80)
    store.review(other, "typed", State.ACCEPTED, who="boris")
    with pytest.raises(StaleError):
        edit(store, "remove", [other])


def test_changes_of_shapes_are_undone_after_a_model_read_the_lines(store: CorrectionStore) -> None:
    def read() -> None:
        for line in store.lines(1):
            if line.state is State.UNREAD:
                assert store.add_reading(line, "gelesen", (0.9,) * 7, 0.9)

    read()
    before = snapshot(store)
    first, second, third = store.lines(1)
    edit(store, "lineBelow", [third])
    read()
    shape = {"number": first.number, "polygon": corners(0, 0, 600, 80), "baseline": []}
    edit(store, "reshape", [first], shapes=[shape])
    read()
    edit(store, "merge", [store.lines(1)[0], second])
    read()
    for _ in range(3):
        assert store.undo("anna") is not None
    assert snapshot(store) == before
    edit(store, "lineBelow", [third])
    store.review(store.lines(1)[3], "typed", State.ACCEPTED, who="boris")
    with pytest.raises(StaleError):
        store.undo("anna")


def test_what_only_a_model_read_is_read_again_and_never_exported_as_accepted(
    store: CorrectionStore, archive: Archive, tmp_path: Path
) -> None:
    for line, text in zip(store.lines(1), ("gelesen eins", "zwei", "drei"), strict=True):
        assert store.add_reading(line, text, (0.9,) * len(text), 0.9)
    first, second, third = store.lines(1)
    left, top, right, bottom = first.outline.box
    cut(store, ((left + right) // 2, top - 5), ((left + right) // 2, bottom + 5))
    edit(store, "merge", [second, third])
    changed = store.lines(1)
    assert [(line.text, line.state) for line in changed] == [
        ("gelesen", State.UNREAD),
        ("eins", State.UNREAD),
        ("zwei drei", State.UNREAD),
    ]
    store.replace_texts([(changed[1], "typed")], who="anna")
    out = tmp_path / "out"
    export(store, archive, out, to="page", accepted_only=True)
    found = "".join(path.read_text(encoding="utf-8") for path in out.rglob("*.xml"))
    assert "typed" in found
    assert not re.search("gelesen|drei", found)


def test_a_drawn_line_is_as_high_as_the_others(store: CorrectionStore) -> None:
    edit(store, "addLine", baseline=[(100, 380), (600, 390)])
    drawn = store.lines(1)[3]
    assert drawn.outline.baseline == ((100, 380), (600, 390))
    assert 60 <= drawn.outline.box[3] - drawn.outline.box[1] <= 110, "the others have 81 pixels"
    assert drawn.region == store.lines(1)[0].region, "it is in the region around it"
    assert drawn.state is State.UNREAD


def test_a_drawn_line_is_placed_among_the_lines_of_its_region(store: CorrectionStore) -> None:
    first, second, third = store.lines(1)
    edit(store, "addRegion", polygon=corners(0, 385, 600, 399), kind="heading")
    heading = store.regions(1)[-1].number
    edit(store, "assign", [first], region=heading)
    drawn = edit(store, "addBox", polygon=corners(40, 32, 300, 44))
    numbers = [line.number for line in store.lines(1)]
    assert numbers == [first.number, drawn, second.number, third.number], (
        "it is above the first line, in another region"
    )


def test_a_region_is_moved_past_the_region_beside_it(store: CorrectionStore) -> None:
    def order() -> list[str]:
        return [line.text for line in store.lines(1)]

    first, second, third = order()
    before = snapshot(store)
    edit(store, "addRegion", polygon=corners(20, 140, 680, 250), kind="marginalia")
    around, inner = store.regions(1)
    edit(store, "earlier", region=inner.number)
    assert order() == [second, first, third]
    edit(store, "earlier", region=inner.number)
    assert order() == [second, first, third], "it is the first"
    edit(store, "later", region=inner.number)
    assert order() == [first, third, second]
    edit(store, "later", region=around.number)
    assert order() == [second, first, third]
    edit(store, "assign", [store.lines(1)[0]])
    with raises_code("edit-invalid"):
        edit(store, "later", region=inner.number)
    while store.undo("anna"):
        pass
    assert snapshot(store) == before


def test_after_a_line_is_removed_the_next_one_is_chosen(store: CorrectionStore) -> None:
    first, second, third = store.lines(1)
    assert edit(store, "remove", [second]) == third.number
    assert edit(store, "remove", [third]) == first.number


def test_a_cut_line_shares_its_text(store: CorrectionStore) -> None:
    first = store.lines(1)[0]
    with raises_code("edit-invalid"):
        cut(store, (690, 0), (690, 30))
    cut(store, (340, 30), (350, 130))
    left, right = store.lines(1)[:2]
    assert (left.text, right.text) == ("первая", "строка")
    assert left.outline.box[2] - 1 <= 350
    assert right.outline.box[0] >= 340
    assert (left.elements, right.elements) == (first.elements, ())


def test_lines_are_found_again_and_reviewed_ones_stay(store: CorrectionStore) -> None:
    kept = store.review(store.lines(1)[1], "проверено", State.ACCEPTED, who="anna")
    before = snapshot(store)
    found = [Outline((60, top, 600, top + 60)) for top in (50, 160, 270)]
    assert replace_unreviewed(store, 1, found, who="anna") == (2, 2)
    lines = store.lines(1)
    assert [line.text for line in lines] == ["", "проверено", ""]
    assert lines[1].number == kept.number
    store.undo("anna")
    assert snapshot(store) == before
    with raises_code("last-line"):
        edit(store, "remove", store.lines(1))


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        pytest.param([(10, 30), (90, 32)], [(100, 31), (180, 30)], [10, 90, 100, 180], id="side by side"),
        pytest.param([(100, 31), (180, 30)], [(10, 30), (90, 32)], [10, 90, 100, 180], id="the right one first"),
        pytest.param([(10, 30), (90, 32)], [(12, 60), (180, 60)], [10, 90, 180], id="below each other"),
        pytest.param([(10, 30), (90, 32)], [], [10, 90], id="one without"),
    ],
)
def test_the_baseline_of_merged_lines_goes_from_left_to_right(
    first: list[tuple[int, int]], second: list[tuple[int, int]], joined: list[int]
) -> None:
    outlines = [Outline((0, 0, 200, 70), (), tuple(baseline)) for baseline in (first, second)]
    assert [x for x, _ in outline_around(outlines).baseline] == joined


def test_a_text_from_right_to_left_begins_on_the_right(store: CorrectionStore) -> None:
    line = replace(store.lines()[0], text="שלום עולם", outline=Outline((0, 0, 90, 10)))
    first, second = split_line(line, 4)
    assert (first.text, second.text) == ("שלום", "עולם")
    assert first.outline.box[0] >= second.outline.box[2] - 1
    assert first.outline.box[0] == 50, "four of nine letters are on its right"
    assert [box and box[0] for _, _, box in word_boxes(line.text, (0, 0, 90, 10))] == [50, 0]
