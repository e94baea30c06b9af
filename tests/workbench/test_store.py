"""Corrections are kept, can be taken back, and overwrite nobody's."""

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.document import Outline
from dsocr.errors import DataError
from dsocr.workbench.store import Line, Page, StaleError, State, Store, joined, kept_in, line_at, parted

PAGE = Page(0, "box/one", Path("one.jpg"), 1000, 800, "anna", "letters")


def line(place: int, text: str = "первая строка") -> Line:
    top = 100 * place
    polygon = ((0, top), (500, top + 10), (500, top + 60), (0, top + 50))
    return Line(0, 0, place, Outline.of_polygon(polygon, ((0, top + 40), (500, top + 50))), text, State.READ, text)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "work" / "corrections.sqlite")
    store.add_page(PAGE, [line(0), line(1, "вторая"), line(2, "третья")])
    yield store
    store.close()


def texts(store: Store) -> list[str]:
    return [one.text for one in store.lines()]


def test_what_was_kept_is_there_when_opened_again(store: Store, tmp_path: Path) -> None:
    before = store.lines()
    store.settle(before[0], " поправлено ", State.ACCEPTED, who="anna")
    store.close()
    again = Store.open(tmp_path / "work" / "corrections.sqlite")
    assert again.pages() == [replace(PAGE, number=1)]
    assert again.lines()[0] == replace(before[0], text="поправлено", state=State.ACCEPTED, version=1)
    assert again.lines()[1:] == before[1:]
    assert not again.add_page(PAGE, [line(0)])
    again.close()


def test_two_people_do_not_overwrite_each_other(store: Store) -> None:
    seen = store.lines()[0]
    store.settle(seen, "by anna", State.ACCEPTED, who="anna")
    with pytest.raises(StaleError, match="changed this line meanwhile") as error:
        store.settle(seen, "by boris", State.ACCEPTED, who="boris")
    assert error.value.line is not None
    assert error.value.line.text == "by anna"
    store.join(store.lines()[1], who="anna")
    with pytest.raises(StaleError):
        store.part(seen, 3, who="boris")
    assert texts(store) == ["by anna", "вторая третья"]


def test_what_a_model_reads_does_not_touch_what_somebody_settled(store: Store) -> None:
    first, second, _ = store.lines()
    assert store.read_by_machine(first, "новое", [0.9] * 5, 0.9)
    assert store.lines()[0].machine == "новое"
    store.settle(second, "", State.UNREADABLE, who="anna")
    assert not store.read_by_machine(second, "новое", [], None)
    assert not store.read_by_machine(first, "again, from an old look", [], None)


def test_lines_are_parted_and_joined(store: Store) -> None:
    first, second = store.part(store.lines()[0], 7, who="anna")
    assert (first.text, second.text) == ("первая", "строка")
    assert first.outline.box[2] == second.outline.box[0] == round(501 * 7 / 13)
    assert first.outline.baseline[-1] == second.outline.baseline[0]
    assert [one.number for one in store.lines()][:2] == [first.number, second.number]
    whole = store.join(first, who="anna")
    assert whole.text == "первая строка"
    assert whole.outline.box == (0, 0, 501, 61)
    with pytest.raises(DataError, match="last line"):
        store.join(store.lines()[-1], who="anna")
    for at in (0, 13):
        with pytest.raises(DataError, match="inside its text"):
            store.part(store.lines()[0], at, who="anna")


def test_each_takes_back_their_own_and_nothing_that_was_changed_since(store: Store) -> None:
    first, second, _ = store.lines()
    store.settle(first, "by anna", State.ACCEPTED, who="anna")
    store.settle(second, "by boris", State.ACCEPTED, who="boris")
    undone = store.undo("anna")
    assert undone is not None
    assert undone.what == "accepted"
    assert texts(store)[:2] == ["первая строка", "by boris"]
    assert store.undo("anna") is None
    store.settle(store.lines()[1], "anna again", State.ACCEPTED, who="anna")
    with pytest.raises(StaleError):
        store.undo("boris")
    assert [change.who for change in store.history()] == ["anna", "boris"]


@given(
    st.lists(st.tuples(st.sampled_from(["settle", "part", "join"]), st.integers(0, 5), st.integers(0, 14)), max_size=12)
)
def test_all_taken_back_is_as_it_was(steps: list[tuple[str, int, int]]) -> None:
    store = Store.open(Path(":memory:"))
    store.add_page(PAGE, [line(0), line(1, "вторая"), line(2, "третья")])
    before = [replace(one, version=0) for one in store.lines()]
    for what, place, at in steps:
        lines = store.lines()
        one = lines[place % len(lines)]
        try:
            if what == "settle":
                store.settle(one, f"text {at}", State.ACCEPTED, who="anna")
            elif what == "part":
                store.part(one, at, who="anna")
            else:
                store.join(one, who="anna")
        except StaleError:
            raise
        except DataError:
            continue
    while store.undo("anna"):
        pass
    assert [replace(one, version=0) for one in store.lines()] == before
    store.close()


def test_what_stands_in_the_field_is_parted_and_joined_in_one_change(store: Store) -> None:
    first, _, _ = store.lines()
    with pytest.raises(DataError, match="a place inside its text"):
        store.part(first, 99, who="anna", text="другой текст")
    assert texts(store) == ["первая строка", "вторая", "третья"]
    left, _ = store.part(first, 7, who="anna", text="другой текст")
    assert texts(store)[:2] == ["другой", "текст"]
    store.join(left, who="anna", text="иной")
    assert texts(store)[0] == "иной текст"
    store.undo("anna")
    store.undo("anna")
    assert store.lines()[0] == first


def test_lines_are_walked_over_the_ends_of_pages(store: Store) -> None:
    store.add_page(replace(PAGE, name="box/two"), [line(1, "пятая"), line(0, "четвёртая")])
    lines, walked = store.lines(), [store.lines()[0]]
    while further := store.neighbour(walked[-1]):
        walked.append(further)
    assert walked == lines
    back = [lines[-1]]
    while further := store.neighbour(back[-1], before=True):
        back.append(further)
    assert back == lines[::-1]


def test_one_begins_with_the_first_that_nobody_settled(store: Store) -> None:
    lines = store.lines()
    assert store.first() == lines[0]
    store.settle(lines[0], "x", State.UNREADABLE, who="anna")
    assert store.first() == lines[1]
    for one in lines[1:]:
        store.settle(one, "x", State.ACCEPTED, who="anna")
    assert store.first() == store.lines()[0]


def test_every_change_and_every_undo_gives_another_stamp(store: Store) -> None:
    stamps = [store.stamp()]
    for text in ("раз", "два"):
        store.settle(store.lines()[0], text, State.ACCEPTED, who="anna")
        stamps.append(store.stamp())
        store.undo("anna")
        stamps.append(store.stamp())
    assert len(set(stamps)) == 5


def test_what_cannot_be_kept_is_told_and_the_next_change_is(store: Store) -> None:
    first = store.lines()[0]
    store._connection.execute("PRAGMA query_only = 1")
    with pytest.raises(DataError, match="cannot be kept there"):
        store.settle(first, "потеряно?", State.ACCEPTED, who="anna")
    store._connection.execute("PRAGMA query_only = 0")
    assert store.settle(first, "сохранено", State.ACCEPTED, who="anna").text == "сохранено"


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("a file", encoding="utf-8")
    with pytest.raises(DataError, match="cannot be kept there"):
        Store.open(tmp_path / "work" / "corrections.sqlite")


def test_doubt_orders_what_nobody_settled(store: Store) -> None:
    first, second, third = store.lines()
    store.read_by_machine(first, "a", [0.9], 0.9)
    store.read_by_machine(second, "b", [0.4], 0.4)
    assert store.by_doubt() == [third.number, second.number, first.number]
    store.settle(third, "c", State.ACCEPTED, who="anna")
    assert store.by_doubt() == [second.number, first.number]
    assert store.counts() == {State.UNREAD: 0, State.READ: 2, State.ACCEPTED: 1, State.UNREADABLE: 0}


def test_many_threads_lose_nothing(store: Store) -> None:
    def settle(who: str) -> None:
        for number in range(20):
            while True:
                seen = store.lines()[0]
                try:
                    store.settle(seen, f"{seen.text} {who}{number}"[-60:], State.ACCEPTED, who=who)
                    break
                except StaleError:
                    continue

    threads = [threading.Thread(target=settle, args=(who,)) for who in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.history(store.lines()[0].number)) == 40


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, but long enough to be looked at as one" * 20, encoding="utf-8")
    with pytest.raises(DataError, match="not a file of corrections"):
        Store.open(tmp_path / "notes.txt")
    other = sqlite3.connect(tmp_path / "later.sqlite")
    other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(DataError, match="another version"):
        Store.open(tmp_path / "later.sqlite")


def test_settings_are_kept(store: Store) -> None:
    assert store.setting("run") is None
    store.set_setting("run", "runs/one")
    store.set_setting("run", "runs/two")
    assert store.setting("run") == "runs/two"


def test_a_point_is_in_the_smallest_line_that_holds_it() -> None:
    wide, small = line(0), replace(line(0), outline=Outline((100, 0, 200, 50)))
    assert line_at([wide, small], 150, 20) is small
    assert line_at([wide, small], 50, 20) is wide
    assert line_at([wide, small], 50, 700) is None


@given(st.integers(1, 12), st.booleans())
def test_parts_joined_cover_the_line(at: int, with_polygon: bool) -> None:
    whole = line(0, "абвгдежзиклмн")
    if not with_polygon:
        whole = replace(whole, outline=Outline((0, 0, 501, 61)))
    first, second = parted(whole, at)
    again = joined(first, second)
    assert again.outline.box == (0, 0, 501, 61)
    assert again.text.replace(" ", "") == whole.text


def test_a_store_that_never_held_a_page_leaves_nothing_behind(tmp_path: Path) -> None:
    with kept_in(tmp_path / "wrong.workbench" / "corrections.sqlite") as store:
        store.set_setting("source", "wrong")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "work").mkdir()
    with kept_in(tmp_path / "work" / "corrections.sqlite"):
        pass
    assert list(tmp_path.rglob("*")) == [tmp_path / "work"], "a folder that was there stays"
    with kept_in(tmp_path / "work" / "corrections.sqlite") as store:
        store.add_page(Page(0, "a", Path("a.png"), 100, 100), [])
    assert [path.name for path in tmp_path.rglob("*.*")] == ["corrections.sqlite"], "closed, it is one file"
