"""Corrections are stored, can be undone, and do not overwrite those of other users."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr.document import Outline
from dsocr.errors import DataError
from dsocr.workbench.store import CorrectionStore, StaleError, open_store
from dsocr.workbench.stored_lines import State, StoredLine, StoredPage, join_lines, line_at, split_line
from tests.raising import raises_code

PAGE = StoredPage(0, "box/one", Path("one.jpg"), 1000, 800, "anna", "letters")


def line(place: int, text: str = "первая строка") -> StoredLine:
    top = 100 * place
    polygon = ((0, top), (500, top + 10), (500, top + 60), (0, top + 50))
    return StoredLine(
        0, 0, place, Outline.of_polygon(polygon, ((0, top + 40), (500, top + 50))), text, State.READ, text
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CorrectionStore]:
    store = CorrectionStore.open(tmp_path / "work" / "corrections.sqlite")
    store.add_page(PAGE, [line(0), line(1, "вторая"), line(2, "третья")])
    yield store
    store.close()


def texts(store: CorrectionStore) -> list[str]:
    return [one.text for one in store.lines()]


def test_changes_are_there_when_opened_again(store: CorrectionStore, tmp_path: Path) -> None:
    before = store.lines()
    store.review(before[0], " поправлено ", State.ACCEPTED, who="anna")
    store.close()
    again = CorrectionStore.open(tmp_path / "work" / "corrections.sqlite")
    assert again.pages() == [replace(PAGE, number=1)]
    first = again.lines()[0]
    assert replace(first, reviewed_at="") == replace(before[0], text="поправлено", state=State.ACCEPTED, version=1)
    assert first.reviewed_at
    assert again.lines()[1:] == before[1:]
    assert not again.add_page(PAGE, [line(0)])
    again.close()


def test_two_people_do_not_overwrite_each_other(store: CorrectionStore) -> None:
    seen = store.lines()[0]
    store.review(seen, "by anna", State.ACCEPTED, who="anna")
    with pytest.raises(StaleError) as error:
        store.review(seen, "by boris", State.ACCEPTED, who="boris")
    assert error.value.line is not None
    assert error.value.line.text == "by anna"
    store.join(store.lines()[1], who="anna")
    with pytest.raises(StaleError):
        store.split(seen, 3, who="boris")
    assert texts(store) == ["by anna", "вторая третья"]


def test_a_model_does_not_overwrite_reviewed_or_changed_lines(store: CorrectionStore) -> None:
    first, second, _ = store.lines()
    assert store.add_reading(first, "новое", [0.9] * 5, 0.9)
    assert store.lines()[0].machine == "новое"
    store.review(second, "", State.UNREADABLE, who="anna")
    assert not store.add_reading(second, "новое", [], None)
    assert not store.add_reading(first, "again, from an old look", [], None)


def test_users_undo_their_own_changes_unless_changed_since(store: CorrectionStore) -> None:
    first, second, _ = store.lines()
    store.review(first, "by anna", State.ACCEPTED, who="anna")
    store.review(second, "by boris", State.ACCEPTED, who="boris")
    undone = store.undo("anna")
    assert undone is not None
    assert undone.what == "accepted"
    assert texts(store)[:2] == ["первая строка", "by boris"]
    assert store.undo("anna") is None
    store.review(store.lines()[1], "anna again", State.ACCEPTED, who="anna")
    with pytest.raises(StaleError):
        store.undo("boris")
    assert [change.who for change in store.history()] == ["boris", "anna"]


STEPS = st.tuples(st.sampled_from(["review", "split", "join"]), st.integers(0, 5), st.integers(0, 14))


@settings(max_examples=25)
@given(st.lists(STEPS, max_size=12))
def test_undoing_everything_restores_the_lines(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    store = CorrectionStore.open(tmp_path_factory.mktemp("store") / "corrections.sqlite")
    store.add_page(PAGE, [line(0), line(1, "вторая"), line(2, "третья")])
    before = [replace(one, version=0) for one in store.lines()]
    for what, place, at in steps:
        lines = store.lines()
        one = lines[place % len(lines)]
        try:
            if what == "review":
                store.review(one, f"text {at}", State.ACCEPTED, who="anna")
            elif what == "split":
                store.split(one, at, who="anna")
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


def test_lines_are_split_and_joined_with_the_edited_text_in_one_change(store: CorrectionStore) -> None:
    first = store.lines()[0]
    for at, text in ((0, None), (13, None), (99, "другой текст")):
        with raises_code("edit-invalid"):
            store.split(first, at, who="anna", text=text)
    assert texts(store) == ["первая строка", "вторая", "третья"]
    left, right = store.split(first, 7, who="anna", text="другой текст")
    assert texts(store)[:2] == ["другой", "текст"]
    assert left.outline.box[2] - 1 == right.outline.box[0] == round(501 * 7 / 12)
    assert left.outline.baseline[-1] == right.outline.baseline[0]
    whole = store.join(left, who="anna", text="иной")
    assert (texts(store)[0], whole.outline.box) == ("иной текст", (0, 0, 501, 61))
    with raises_code("last-line"):
        store.join(store.lines()[-1], who="anna")
    store.undo("anna")
    store.undo("anna")
    assert store.lines()[0] == first


def test_neighbours_cross_page_boundaries(store: CorrectionStore) -> None:
    store.add_page(replace(PAGE, name="box/two"), [line(1, "пятая"), line(0, "четвёртая")])
    lines, walked = store.lines(), [store.lines()[0]]
    while further := store.neighbour(walked[-1]):
        walked.append(further)
    assert walked == lines
    back = [lines[-1]]
    while further := store.neighbour(back[-1], before=True):
        back.append(further)
    assert back == lines[::-1]


def test_every_change_and_undo_changes_the_stamp(store: CorrectionStore) -> None:
    stamps = [store.stamp()]
    store.review(store.lines()[0], "раз", State.ACCEPTED, who="anna")
    stamps.append(store.stamp())
    store.undo("anna")
    assert len({*stamps, store.stamp()}) == 3


def test_a_failed_write_is_an_error_and_the_next_one_works(store: CorrectionStore) -> None:
    first = store.lines()[0]
    store._connection.execute("PRAGMA query_only = 1")
    with raises_code("corrections-not-writable"):
        store.review(first, "потеряно?", State.ACCEPTED, who="anna")
    store._connection.execute("PRAGMA query_only = 0")
    assert store.review(first, "сохранено", State.ACCEPTED, who="anna").text == "сохранено"


def test_lines_are_ordered_by_doubt(store: CorrectionStore) -> None:
    first, second, third = store.lines()
    store.add_reading(first, "a", [0.9], 0.9)
    store.add_reading(second, "b", [0.4], 0.4)
    assert store.by_doubt() == [third.number, second.number, first.number]
    store.review(third, "c", State.ACCEPTED, who="anna")
    assert store.by_doubt() == [second.number, first.number]
    assert store.first() == store.lines()[0]
    assert store.counts() == {State.UNREAD: 0, State.READ: 2, State.ACCEPTED: 1, State.UNREADABLE: 0}


def test_threads_lose_no_changes(store: CorrectionStore) -> None:
    def review(who: str) -> None:
        for number in range(8):
            while True:
                seen = store.lines()[0]
                try:
                    store.review(seen, f"{seen.text} {who}{number}"[-60:], State.ACCEPTED, who=who)
                    break
                except StaleError:
                    continue

    threads = [threading.Thread(target=review, args=(who,)) for who in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.history()) == 16


def test_other_files_are_errors(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("a file", encoding="utf-8")
    with raises_code("corrections-not-writable"):
        CorrectionStore.open(tmp_path / "work" / "corrections.sqlite")
    (tmp_path / "notes.txt").write_text("not a database, but long enough to be looked at as one" * 20, encoding="utf-8")
    with raises_code("corrections-damaged"):
        CorrectionStore.open(tmp_path / "notes.txt")
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("PRAGMA user_version = 99")
    other.close()
    with raises_code("corrections-version"):
        CorrectionStore.open(tmp_path / "other.sqlite")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_only_the_user_can_read_the_corrections(tmp_path: Path) -> None:
    path = tmp_path / "corrections.sqlite"
    for _ in range(3):  # the last time there is a copy
        with open_store(path) as store:
            store.add_page(PAGE, [line(0)])
            files = [file for file in tmp_path.rglob("*") if file.is_file()]
            assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
        path.chmod(0o644)
    assert len(files) > 3, "the file, its log and its copies"


def test_each_start_keeps_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "corrections.sqlite"
    with open_store(path) as store:
        store.add_page(PAGE, [line(0)])
    for number in range(5):
        with open_store(path) as store:
            store.review(store.lines()[0], f"text {number}", State.ACCEPTED, who="anna")
    copies = sorted((tmp_path / "backups").iterdir())
    assert len(copies) == 3
    for number, copy in zip((1, 2, 3), copies, strict=True):
        with closing(CorrectionStore.open(copy)) as store:
            assert texts(store) == [f"text {number}"]


def test_a_damaged_file_is_an_error_that_names_the_copy(tmp_path: Path) -> None:
    path = tmp_path / "corrections.sqlite"
    lines = [replace(line(place), characters=(0.5,) * 13) for place in range(30)]
    with open_store(path) as store:
        store.add_page(PAGE, lines)
        for one in store.lines()[:10]:
            store.review(one, one.text, State.ACCEPTED, who="anna")
    with open_store(path):
        pass
    (copy,) = (tmp_path / "backups").iterdir()
    whole, kept, random = path.read_bytes(), copy.read_bytes(), Random(3)
    errors = []
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(4):
            damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        path.write_bytes(damaged)
        try:
            with closing(CorrectionStore.open(path)) as store:
                store.pages(), store.regions(), store.lines(), store.history(), store.counts(), store.undo("anna")
        except DataError as error:
            errors.append(error)
    assert len(errors) > 12
    assert {error.code for error in errors} <= {"corrections-damaged", "corrections-version"}
    assert all(str(copy) in str(error.hint) for error in errors)
    path.write_bytes(whole[:100])
    with raises_code("corrections-damaged"), open_store(path):
        pass
    assert (copy.read_bytes(), path.read_bytes()) == (kept, whole[:100]), "nothing is replaced"


def test_elements_of_the_source_follow_splits_and_joins(store: CorrectionStore) -> None:
    page = replace(PAGE, name="box/two", markup="two.xml")
    store.add_page(page, [replace(line(place), elements=(place,)) for place in range(2)])
    assert store.pages()[1].markup == "two.xml"
    number = store.pages()[1].number
    store.split(store.lines(number)[0], 7, who="anna")
    assert [one.elements for one in store.lines(number)] == [(0,), (), (1,)]
    store.join(store.lines(number)[1], who="anna")
    assert [one.elements for one in store.lines(number)] == [(0,), (1,)]
    store.join(store.lines(number)[0], who="anna")
    assert [one.elements for one in store.lines(number)] == [(0, 1)]


@given(st.integers(1, 12), st.booleans())
def test_a_split_line_joined_again_covers_the_line(at: int, with_polygon: bool) -> None:
    whole = line(0, "абвгдежзиклмн")
    if not with_polygon:
        whole = replace(whole, outline=Outline((0, 0, 501, 61)))
    first, second = split_line(whole, at)
    again = join_lines(first, second)
    assert again.outline.box == (0, 0, 501, 61)
    assert again.text.replace(" ", "") == whole.text


@pytest.mark.parametrize(
    ("other", "state"),
    [
        pytest.param(State.READ, State.UNREAD, id="nobody wrote either, so they are read again"),
        pytest.param(State.ACCEPTED, State.READ, id="the text that somebody accepted stays"),
    ],
)
def test_joined_lines_are_read_again_unless_somebody_wrote_their_text(other: State, state: State) -> None:
    assert join_lines(line(0), replace(line(1), state=other)).state == state


def test_a_click_hits_the_smallest_line() -> None:
    page, note = Outline((0, 0, 500, 300)), Outline((100, 100, 200, 130))
    lines = [replace(line(place), outline=outline) for place, outline in enumerate((page, note))]
    assert line_at(lines, 150, 110) == lines[1]
    assert line_at(lines, 300, 110) == lines[0]
    assert line_at(lines, 600, 110) is None


def test_a_store_without_pages_leaves_nothing_behind(tmp_path: Path) -> None:
    with open_store(tmp_path / "wrong.workbench" / "corrections.sqlite") as store:
        store.set_setting("source", "wrong")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "work").mkdir()
    with open_store(tmp_path / "work" / "corrections.sqlite"):
        pass
    assert list(tmp_path.rglob("*")) == [tmp_path / "work"], "a folder that was there stays"
    with open_store(tmp_path / "work" / "corrections.sqlite") as store:
        store.add_page(StoredPage(0, "a", Path("a.png"), 100, 100), [])
    assert [path.name for path in tmp_path.rglob("*.*")] == ["corrections.sqlite"], "closed, it is one file"


def test_a_second_person_checks_what_the_first_accepted(store: CorrectionStore) -> None:
    first, second, _ = store.lines()
    accepted = store.review(first, "принято", State.ACCEPTED, who="1", name="Anna")
    store.review(second, "и это", State.UNREADABLE, who="1", name="Anna")
    assert (accepted.author, accepted.checked_by) == ("Anna", "")
    assert store.to_check("Anna") == []
    assert store.to_check("Boris") == [first.number, second.number]
    again = store.review(accepted, "принято.", State.ACCEPTED, who="1", name="Anna")
    assert again.checked_by == "", "nobody checks themselves"
    checked = store.review(again, "Принято.", State.ACCEPTED, who="2", name="Boris")
    assert (checked.author, checked.checked_by, checked.text) == ("Anna", "Boris", "Принято.")
    assert store.to_check("Boris") == [second.number]
    joined = store.join(checked, who="2")
    assert (joined.author, joined.checked_by) == ("", "")


def test_many_texts_are_replaced_and_restored_at_once(store: CorrectionStore) -> None:
    first, second, third = store.lines()
    before = store.lines()
    store.replace_texts([(first, "раз"), (third, "три")], who="anna")
    assert texts(store) == ["раз", "вторая", "три"]
    with pytest.raises(StaleError):
        store.replace_texts([(second, "два"), (third, "четыре")], who="boris")
    assert texts(store) == ["раз", "вторая", "три"]
    store.undo("anna")
    assert store.lines() == before


def test_a_remark_is_kept_and_undone(store: CorrectionStore) -> None:
    line = store.annotate(store.lines()[1], " чернила выцвели ", who="anna")
    assert store.lines()[1].note == line.note == "чернила выцвели"
    store.undo("anna")
    assert store.lines()[1].note == ""


def test_times_of_reviews_are_those_of_one_visitor(store: CorrectionStore) -> None:
    for line, who in zip(store.lines(), ("a/1", "a/2", "ab/1"), strict=True):
        store.review(line, "text", State.ACCEPTED, who=who)
    assert len(store.review_times("a/")) == 2
    store.undo("a/2")
    assert len(store.review_times("a/")) == 1
