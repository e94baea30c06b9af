"""What is made one group ahead."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsocr.errors import DataError
from dsocr.inference.inputs import PagePreparer, choose_segmenter, find_pages
from dsocr.inference.pages import prefetch
from dsocr.io import processes
from dsocr.io.processes import Workers, worker_processes
from tests.inference.reading_pages import draw_page


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([[1, 2], [3], [4, 5]], id="groups"),
        pytest.param([[], [1], [], []], id="empty ones among them"),
        pytest.param([[1]], id="one"),
        pytest.param([], id="nothing"),
    ],
)
def test_results_come_in_order_and_by_group(groups: list[list[int]]) -> None:
    made = prefetch(groups, Workers(1), lambda number: -number)
    assert list(made) == [[-number for number in group] for group in groups]


def test_one_group_is_begun_ahead_and_no_more_than_that() -> None:
    made: list[int] = []
    coming = prefetch([[1], [2], [3], [4]], Workers(1), made.append)
    next(coming)
    assert made == [1, 2]
    next(coming)
    assert made == [1, 2, 3]


def test_an_error_is_raised_when_its_turn_comes() -> None:
    coming = prefetch([[1], [0], [1]], Workers(1), lambda number: 1 // number)
    assert next(coming) == [1]
    with pytest.raises(ZeroDivisionError):
        next(coming)


# Two processes are started, which takes a second or two.
def test_other_processes_open_pages_as_this_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        draw_page(tmp_path / "in" / f"p{number}.png", lines=number + 1)
    (tmp_path / "in" / "p3.png").write_bytes(b"broken")
    opening = PagePreparer("line", choose_segmenter("builtin"))
    monkeypatch.setattr(processes, "START_AFTER", 0.0)
    with find_pages([tmp_path / "in"], tmp_path / "unpacked") as found:
        groups = [found.pages[:2], found.pages[2:]]

        def by(count: int) -> Iterator[object]:
            with worker_processes(count) as crew:
                yield from prefetch(groups, crew, opening.try_prepare)

        here, elsewhere = list(by(1)), list(by(2))
    assert here == elsewhere
    assert [len(group) for group in here] == [2, 2]  # type: ignore[arg-type]


def test_a_kraken_can_be_sent_to_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kraken = tmp_path / "kraken"
    kraken.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    kraken.chmod(0o755)
    draw_page(tmp_path / "page.png")
    monkeypatch.setattr(processes, "START_AFTER", 0.0)
    find_lines = choose_segmenter(str(kraken))
    with worker_processes(2) as crew, pytest.raises(DataError, match="kraken could not find its lines"):
        crew.result(crew.submit(find_lines, (tmp_path / "page.png").read_bytes(), "page"))
