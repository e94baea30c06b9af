"""What the command line looks like: sentences, progress bars on a terminal, plain lines elsewhere.

Knows nothing about what the commands do.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

_UNWRAPPED = 1000
"""Columns: more than any line has."""


class Tell(Protocol):
    """Told how many are done of how many, and what else is worth a glance."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...  # noqa: D102


class Printer:
    """Prints results to stdout and progress and errors to stderr; `quiet` leaves results and errors."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        # Paths and tables are copied and parsed: no wrapping, no colour codes, no markup taken from file names.
        self._out = Console(soft_wrap=True, highlight=False, markup=False)
        self._err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)

    @property
    def interactive(self) -> bool:
        """True where bars can be drawn."""
        return self._err.is_terminal and not self.quiet

    def result(self, text: str) -> None:
        """What the command was asked for."""
        self._out.print(text)

    def say(self, text: str = "") -> None:
        """What is good to know on the way."""
        if not self.quiet:
            self._out.print(text)

    def table(self, header: Sequence[str], rows: Iterable[tuple[Sequence[str], str]]) -> None:
        """A result in columns; each row comes with its style, and wraps only where a terminal ends."""
        table = Table(*(Column(name, overflow="fold") for name in header), box=None, pad_edge=False)
        for cells, style in rows:
            table.add_row(*map(Text, cells), style=style)
        if self._out.is_terminal:
            self._out.print(table, soft_wrap=False)
            return
        wide = Console(width=_UNWRAPPED)
        with wide.capture() as drawn:
            wide.print(table)
        self.result("\n".join(line.rstrip() for line in drawn.get().splitlines()))

    def complain(self, text: str) -> None:
        """What went wrong."""
        self._err.print(text, style="red" if self._err.is_terminal else None)

    @contextmanager
    def progress(self, label: str, unit: str) -> Iterator[Tell]:
        """A function to be told (done, total); shows a bar with rate and time left, or a line now and then."""
        if self.quiet:
            yield tell_nobody
        elif self.interactive:
            with self._bar(unit) as bar:
                yield _Bar(bar, bar.add_task(label, total=None, note=""))
        else:
            yield _Lines(label, unit, self.say)

    def _bar(self, unit: str) -> Progress:
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            _RateColumn(unit),
            TimeRemainingColumn(),
            TextColumn("left  {task.fields[note]}"),
            console=self._err,
            transient=True,
        )


class _RateColumn(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        """How fast it goes."""
        return Text(told_rate(task.speed, self._unit) if task.speed else "")


class _Bar:
    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task

    def __call__(self, done: int, total: int, note: str = "") -> None:
        self._bar.update(self._task, completed=done, total=total, note=note)


def tell_nobody(done: int, total: int, note: str = "") -> None:
    """For where nobody listens."""


class _Lines:
    """Progress where no bar can be drawn: a line every ten seconds.

    How fast it goes is counted from the first report: before it models are loaded, and what it brings may be of
    another day.
    """

    def __init__(self, label: str, unit: str, say: Callable[[str], None], every_seconds: float = 10) -> None:
        self._label, self._unit, self._say, self._every = label, unit, say, every_seconds
        self._first: tuple[float, int] | None = None
        self._last = 0.0

    def __call__(self, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        if self._first is None:
            self._first, self._last = (now, done), now
            return
        started, earlier = self._first
        if now - self._last < self._every or done <= earlier:
            return
        self._last = now
        rate = (done - earlier) / (now - started)
        left = spoken_time((total - done) / rate)
        self._say(f"{self._label}: {done} of {total}, {told_rate(rate, self._unit)}, {left} left{note and f'  {note}'}")


def told_rate(by_second: float, unit: str) -> str:
    """How fast it goes: by the second, or by the minute where that is less than one."""
    return f"{by_second:.1f} {unit}/s" if by_second >= 1 else f"{60 * by_second:.1f} {unit}/min"


def spoken_time(seconds: float) -> str:
    """A duration as people say it, e.g. `4 min 05 s`."""
    minutes, rest = divmod(round(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def make_output_utf8() -> None:
    """Let Cyrillic through whatever the locale says, as on a Windows console or under LC_ALL=C."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")
