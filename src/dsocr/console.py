"""Messages and progress in a terminal, a notebook or a log: bars where they can be drawn, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from importlib.util import find_spec
from io import TextIOWrapper
from typing import ParamSpec, Protocol, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from dsocr.errors import ErrorText, for_command_line

P = ParamSpec("P")
R = TypeVar("R")
_SECONDS_BETWEEN_LINES = 10


class NotedProgress(Protocol):
    """Called with the number of items done, their total, and a note to show beside them."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...  # noqa: D102


class Reporter:
    """Receives the messages and the progress of long work; this one drops them."""

    def result(self, text: str) -> None:
        """Give a result."""

    def message(self, text: str = "") -> None:
        """Report an action."""

    def complain(self, text: str) -> None:
        """Give a warning or a note."""

    def confirm(self, question: str) -> bool:
        """Ask a question; nobody is here to agree."""
        return False

    @contextmanager
    def progress(self, label: str, unit: str) -> Iterator[NotedProgress]:
        """Count what is done, in a block of work."""
        yield ignore_progress


class Printer(Reporter):
    """Print results to stdout, progress and errors to stderr; `quiet` leaves results and errors.

    For a caller in Python it draws progress bars or nothing. For the `command_line` it prints lines where no bar can be
    drawn, and names options as they are typed. If the results are a text, messages go to stderr too.
    """

    def __init__(self, *, quiet: bool = False, command_line: bool = False, is_text: bool = False) -> None:
        self.quiet, self.command_line = quiet, command_line
        self._form: Callable[[str], str] = for_command_line if command_line else ErrorText
        # Paths and tables are copied and parsed: no wrapping, no colour codes, no markup taken from names and texts.
        self._out = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
        self._err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)
        self._notes = self._err if is_text else self._out

    def result(self, text: str) -> None:
        """Print a result."""
        self._out.print(self._form(text))

    def message(self, text: str = "") -> None:
        """Print a message, unless quiet."""
        if not self.quiet:
            self._notes.print(self._form(text))

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a result in columns. Cells wrap only at the edge of a terminal."""
        table = Table(*(Column(name, overflow="fold") for name in header), box=None, pad_edge=False)
        for cells in rows:
            table.add_row(*map(Text, cells))
        if self._out.is_terminal:
            self._out.print(table, soft_wrap=False)
            return
        wide = Console(width=1000)  # columns, wider than any line
        with wide.capture() as drawn:
            wide.print(table)
        self.result("\n".join(line.rstrip() for line in drawn.get().splitlines()))

    def confirm(self, question: str) -> bool:
        """Ask for a yes; no where nobody can answer."""
        return self.command_line and sys.stdin.isatty() and self._out.input(f"{question} [y/N] ").strip().lower() == "y"

    def complain(self, text: str) -> None:
        """Print a warning or an error to stderr."""
        self._err.print(self._form(text), style="red" if self._err.is_terminal else None)

    @contextmanager
    def progress(self, label: str, unit: str) -> Iterator[NotedProgress]:
        """Show what is reported to the callback: a bar with rate and time left, or a line every ten seconds."""
        has_bars = self._err.is_terminal or (self._err.is_jupyter and find_spec("ipywidgets"))
        if has_bars and not self.quiet:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                _RateColumn(unit),
                TimeRemainingColumn(),
                TextColumn("left  {task.fields[note]}"),
            )
            with Progress(*columns, console=self._err, transient=True) as bar:
                task = bar.add_task(label, total=None, note="")
                yield lambda done, total, note="": bar.update(task, completed=done, total=total, note=note)
        else:
            yield _print_lines(label, unit, self.message) if self.command_line else ignore_progress


_REPORTER: ContextVar[Reporter | None] = ContextVar("reporter", default=None)


def current_reporter() -> Reporter:
    """Return the reporter of the work that runs, else a printer for a caller in Python."""
    return _REPORTER.get() or Printer()


@contextmanager
def reporting_to(reporter: Reporter) -> Iterator[None]:
    """Let all work inside report to this one."""
    token = _REPORTER.set(reporter)
    try:
        yield
    finally:
        _REPORTER.reset(token)


@contextmanager
def progress_bar(progress: Callable[[int, int], None] | None, label: str, unit: str) -> "Iterator[NotedProgress]":
    """Report to the caller's callback, else show progress with the current printer."""
    if progress is not None:
        yield lambda done, total, note="": progress(done, total)
    else:
        with current_reporter().progress(label, unit) as bar:
            yield bar


def shows_progress(label: str, unit: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function to show its progress unless it is called with `progress`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def shown(*args: P.args, **kwargs: P.kwargs) -> R:
            with progress_bar(kwargs.get("progress"), label, unit) as progress:  # type: ignore[arg-type]
                return function(*args, **{**kwargs, "progress": progress})  # type: ignore[arg-type]

        return shown

    return decorate


class _RateColumn(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        return Text(format_rate(task.speed, self._unit) if task.speed else "")


def ignore_progress(done: int, total: int, note: str = "") -> None:
    """Do nothing."""


def _print_lines(label: str, unit: str, write: Callable[[str], None]) -> NotedProgress:
    """Report progress as a line every ten seconds.

    The rate counts from the first report: before it models are loaded, and its count may be from an earlier run.
    """
    started, earlier, last = 0.0, -1, 0.0

    def progress(done: int, total: int, note: str = "") -> None:
        nonlocal started, earlier, last
        now = time.monotonic()
        if earlier < 0:
            started, earlier, last = now, done, now
        if now - last < _SECONDS_BETWEEN_LINES or done <= earlier:
            return
        last = now
        rate = (done - earlier) / (now - started)
        left = format_duration((total - done) / rate)
        note = note and f"  {note}"
        write(f"{label}: {done} of {total}, {format_rate(rate, unit)}, {left} left{note}")

    return progress


def format_rate(per_second: float, unit: str) -> str:
    """Format a rate per second, or per minute below one per second."""
    return f"{per_second:.1f} {unit}/s" if per_second >= 1 else f"{60 * per_second:.1f} {unit}/min"


def format_duration(seconds: float) -> str:
    """Format a duration, e.g. `4 min 05 s`."""
    minutes, rest = divmod(round(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def format_bytes(size: int) -> str:
    """Format memory for people, e.g. `14.6 GiB`."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def make_output_utf8() -> None:
    """Print UTF-8 whatever the locale says, as on a Windows console or under LC_ALL=C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
