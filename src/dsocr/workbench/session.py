"""The state of a workbench, without its windows: reader, training, statistics, advice, who is at which line."""

import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

from dsocr.errors import DataError
from dsocr.evaluation.audit import WrongTexts
from dsocr.evaluation.metrics import ErrorRate, character_errors, pool
from dsocr.images import CropFailure
from dsocr.inference.confidence import Calibration
from dsocr.inference.pages import ImageReader, JudgingReader
from dsocr.inference.review import worth_checking
from dsocr.text import comparable
from dsocr.workbench.archive import Archive, ListedText, Pictures, find_lines
from dsocr.workbench.background import BackgroundReader, BackgroundTraining, Learner, PageFinder
from dsocr.workbench.page_export import ExportReport, export, export_dataset, export_log
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State, StoredLine, StoredPage
from dsocr.workbench.words import WordList, counterpart, read_words, variants

DATASET = "dataset"
"""Export of the accepted lines as a dataset."""
LOG = "log"
"""Export of the history as a table."""
_HELD_SECONDS = 300
_NEW_WORDS_AFTER = 20
_MAX_CANDIDATES = 64
_MIN_JUDGED = 20
"""Number of accepted lines whose errors are enough to correct the model's confidences."""
_TO_TRANSCRIBE = 60
"""Lines of an unfamiliar hand to transcribe before it is worth reading."""
_MAX_PAUSE = 300
"""Seconds between two lines that are not work but a pause."""
_MIN_INTERVALS = 5
_KEPT_ERRORS = 100_000
"""Counted errors of lines that are kept, so that only changed lines are compared again."""

Order = Literal["pages", "doubt", "check"]
"""Lines in the order of the source, the most doubtful first (or those of `only`), or those to check a second time."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The lines that are left: the errors expected in each, in the order of review, over all their characters.

    `length` includes the reviewed lines, which are taken to be right, but no lines that nobody judged.
    """

    expected: tuple[float, ...] = ()
    length: int = 0

    @property
    def cer(self) -> float | None:
        """The estimated CER of all texts as they are now; None if nothing is known."""
        return sum(self.expected) / self.length if self.length else None

    def lines_until(self, cer: float) -> int:
        """How many lines must be reviewed, the most doubtful first, until the estimated CER is that low."""
        left = sum(self.expected)
        for done, errors in enumerate(self.expected):
            if left <= cer * self.length + 1e-9:
                return done
            left -= errors
        return len(self.expected)


@dataclass(frozen=True, slots=True)
class Statistics:
    """The pooled errors of the model on the `judged` lines: accepted ones that it had read.

    `outlook` estimates the errors that are left. `unfamiliar` is the mean confidence of the lines that the model read
    if their hands or script are unlike those it knows, else None.
    """

    errors: ErrorRate
    judged: int
    outlook: Outlook
    unfamiliar: float | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """Quality of the readings and next step: the name and values of a text; `can_learn` if learning can begin now."""

    name: str
    values: Mapping[str, object]
    can_learn: bool = False


@dataclass(eq=False)
class Presence:
    """Who is at which line, so that two people need not do the same one: each window's last line, for some minutes."""

    _held: dict[str, tuple[str, int, str, float]] = field(default_factory=dict)

    def enter(self, window: str, visitor: str, line: int, name: str) -> None:
        """Record that a visitor of that name is at a line in one of their windows."""
        self._held[window] = (visitor, line, name, time.monotonic())

    def leave(self, window: str) -> None:
        """Forget a window that was closed."""
        self._held.pop(window, None)

    def others(self, visitor: str) -> list[tuple[int, str]]:
        """The lines that other visitors are at, each with the name of one."""
        since = time.monotonic() - _HELD_SECONDS
        held = list(self._held.values())
        return [(line, name) for holder, line, name, at in held if holder != visitor and at > since]


@dataclass(eq=False)
class Session:
    """One source with its corrections; `reader` is None without a model, `training` without settings to train with.

    `only` has the numbers of the lines to review, in their order, with their entries in the table; all lines if empty.
    `audited`: number of lines audited. With `is_shared`, people on other machines may write into the work folder only.
    """

    name: str
    store: CorrectionStore
    archive: Archive
    work: Path
    only: Mapping[int, ListedText] = field(default_factory=dict)
    audited: int = 0
    is_shared: bool = False
    is_closed: bool = False
    calibration: Calibration | None = None
    finder: PageFinder | None = None
    reader: BackgroundReader | None = None
    training: BackgroundTraining | None = None
    learner: Learner | None = None
    presence: Presence = field(default_factory=Presence)
    _words: tuple[int, WordList] | None = None
    _statistics: tuple[int, Statistics] | None = None
    _statistics_lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.pages = dict[int, StoredPage]()
        self.pictures = Pictures(self.archive, self.pages, self.work / "thumbnails")
        self.id = self.store.setting("id") or secrets.token_hex(8)  # tells sources of the same name apart
        self.store.set_setting("id", self.id)
        self._count_errors = lru_cache(_KEPT_ERRORS)(character_errors)
        self.add_pages()

    def add_pages(self) -> None:
        """Take in the pages that were added to the store, and let their lines be read."""
        self.pages |= {page.number: page for page in self.store.pages()}
        if self.reader is not None:
            self.reader.start()

    def find(self, place: str) -> StoredLine | None:
        """The line at a place of the source, such as `0008.xml:43`, which links of findings name; None if unknown."""
        try:
            (number,) = find_lines(self.store, self.archive, [ListedText(place, "")])
        except DataError:
            return None
        return self.store.line(number)

    def read_again(self, load_reader: Callable[[], ImageReader]) -> None:
        """Let another reader read all lines that nobody has touched."""
        self.stop_reading()
        self.reader = BackgroundReader(self.store, self.archive, load_reader, again=True)
        self.reader.start()

    def stop_reading(self) -> None:
        """Stop reading after the current page."""
        if self.reader is not None:
            self.reader.stop()

    def close(self) -> None:
        """Stop what is done in the background; a run that is being trained writes a checkpoint first."""
        self.is_closed = True
        if self.finder is not None:
            self.finder.stop()
        if self.learner is not None:
            self.learner.stop()
        if self.training is not None:
            self.training.stop()
        self.stop_reading()

    def export(self, kind: str, folder: str, *, accepted_only: bool) -> ExportReport:
        """Write the corrections in a format, or as `DATASET` or `LOG`; may take minutes. Raises DataError or RunError.

        An earlier export is replaced.
        """
        out = Path(folder)
        if self.is_shared and not out.resolve().is_relative_to(self.work.resolve() / "exports"):
            hint = f"choose a folder in {self.work / 'exports'}"
            message = "a shared workbench writes into its own folder only"
            raise DataError(message, code="export-outside", where=out, hint=hint)
        if kind == LOG:
            return ExportReport(export_log(self.store, out))
        if kind == DATASET:
            return ExportReport(export_dataset(self.store, self.archive, out, overwrite=True).folder)
        return export(self.store, self.archive, out, to=kind, accepted_only=accepted_only, overwrite=out.exists())

    def line_jpeg(self, number: int) -> bytes:
        """A line between its neighbours as a JPEG file. Raises DataError if there is none."""
        line = self.store.line(number)
        if line is None:
            raise DataError(f"there is no line {number}", code="no-such-place")
        return self.pictures.line(line)

    def statistics(self) -> Statistics:
        """Counts and the model's errors, computed once after each change for all windows."""
        stamp = self.store.stamp()
        with self._statistics_lock:
            if self._statistics is None or self._statistics[0] != stamp:
                judged = [(sure, self._count_errors(text, machine)) for text, machine, sure in self.store.judged()]
                waiting = self.store.confidences()
                rated = [confidence for _, confidence, _ in waiting if confidence is not None]
                calibration = self.calibration
                mean = sum(rated) / len(rated) if rated else None
                unfamiliar = mean if calibration and calibration.is_unfamiliar(mean, len(rated)) else None
                errors, outlook = pool(rate for _, rate in judged), estimate_outlook(judged, waiting)
                self._statistics = (stamp, Statistics(errors, len(judged), outlook, unfamiliar))
            return self._statistics[1]

    def advice(self) -> Advice | None:
        """The next step for somebody who starts with scans; None without a model that reads.

        How the hand is read is measured on accepted lines as the model had read them; learning, on lines not learnt.
        """
        if self.reader is None:
            return None
        statistics, learner = self.statistics(), self.learner
        if not (self.reader.total or statistics.judged):  # all texts came with the source
            return None
        accepted, lesson = self.store.counts()[State.ACCEPTED], None if learner is None else learner.lesson
        is_waiting = learner is not None and accepted >= learner.wanted()
        can_learn = learner is not None and is_waiting and not (learner.is_on or learner.is_learning)
        if lesson is not None:
            before = math.nan if lesson.before is None else lesson.before.rate
            values = {"before": before, "after": lesson.after.rate}
            learnt = "learnt_here" if lesson.same_pages else "learnt"
            name = learnt if lesson.is_better else "learnt_worse" if lesson.is_worse else "learnt_unsure"
            return Advice(name, {**values, "learnt": lesson.learnt, "lines": lesson.lines}, can_learn)
        if statistics.unfamiliar is not None:
            left = max(0, _TO_TRANSCRIBE - accepted)
            return Advice("unfamiliar", {"mean": statistics.unfamiliar, "left": left}, can_learn)
        if statistics.judged < _MIN_JUDGED:
            return Advice("first_lines", {"left": _MIN_JUDGED - statistics.judged})
        measured = {"wrong": round(100 * statistics.errors.rate), "lines": statistics.judged}
        if learner is None or can_learn or is_waiting:
            return Advice("hand_read", measured, can_learn)
        return Advice("hand_read_waits", {**measured, "left": learner.wanted() - accepted})

    def next_line(
        self, order: Order, after: StoredLine | None = None, *, visitor: str = "", name: str = ""
    ) -> StoredLine | None:
        """The next line of an order; None if there is no other.

        Lines that other visitors are at are left to them, except in the order of the pages. `name` is the visitor's.
        """
        if order == "pages":
            return self.store.neighbour(after) if after else None
        waiting = self.store.to_check(name) if order == "check" else self.store.by_doubt()
        if order == "doubt" and self.only:
            left = set(waiting)
            waiting = [number for number in self.only if number in left]
        taken = {line for line, _ in self.presence.others(visitor)} | ({after.number} if after else set())
        number = next((number for number in waiting if number not in taken), None)
        return None if number is None else self.store.line(number)

    def wrong_texts(self) -> WrongTexts | None:
        """How many texts of an audit are wrong: accepted unchanged they are right; None until enough are accepted."""
        stored = ((self.store.line(number), given) for number, given in self.only.items() if given.rank)
        accepted = ((line, given) for line, given in stored if line is not None and line.state is State.ACCEPTED)
        wrong = {given.rank - 1: comparable(line.text) != comparable(given.text) for line, given in accepted}
        return WrongTexts.of(self.audited, wrong) if self.audited else None

    def words(self) -> WordList:
        """The words of accepted texts and of `words.txt` in the work folder; made anew after twenty accepted lines."""
        accepted = self.store.counts()[State.ACCEPTED]
        with self._statistics_lock:
            if self._words is None or abs(accepted - self._words[0]) >= _NEW_WORDS_AFTER:
                self._words = (accepted, WordList(self.store.accepted_texts(), read_words(self.work)))
            return self._words[1]

    def alternatives(self, line: StoredLine, text: str, start: int, end: int, limit: int = 8) -> list[str]:
        """Alternatives for the word between two places of a text, the likeliest first.

        Candidates are the reader's own reading, similar known words, and other letters where the reader doubts; it
        judges them all. Without a reader they are known words, the most similar first.
        """
        word, words = text[start:end], self.words()
        reader = None if self.reader is None else self.reader.reader()
        (image,) = self.archive.cut(self.pages[line.page], [line]) if reader is not None else (None,)
        if reader is None or image is None or isinstance(image, CropFailure):
            return variants(word, (), words, ())[:limit]
        (read,) = reader.read([("line", image)])
        begin, stop = counterpart(text, read.text, start, end)
        frequent = Counter("".join(stored.text for stored in self.store.lines(line.page)).replace(" ", ""))
        letters = [letter for letter, _ in frequent.most_common()]
        others = variants(read.text[begin:stop], read.characters[begin:stop], words, letters)
        readings = dict.fromkeys([read.text[begin:stop], *variants(word, (), words, ()), *others])
        candidates = [other for other in readings if other and other != word][:_MAX_CANDIDATES]
        if candidates and isinstance(reader, JudgingReader):
            likely = reader.log_likelihoods(image, [text[:start] + other + text[end:] for other in candidates])
            candidates = [other for _, other in sorted(zip(likely, candidates, strict=True), reverse=True)]
        return candidates[:limit]


def estimate_outlook(
    judged: Sequence[tuple[float | None, ErrorRate]], waiting: Sequence[tuple[bool, float | None, int]]
) -> Outlook:
    """Estimate the errors in the lines that nobody reviewed.

    `judged` are confidence and errors of each line that a model read and somebody accepted; `waiting` are all lines
    with a text: whether it is reviewed, its confidence, and the number of its characters. A line's expected errors are
    (1 - confidence) times its characters, times what that estimate was off by on the judged lines, if they are at least
    20. Lines without a confidence, whose texts came with the source, count only once they are reviewed.
    """
    expected_errors = sum((1 - confidence) * rate.length for confidence, rate in judged if confidence is not None)
    counted = sum(rate.errors for confidence, rate in judged if confidence is not None)
    factor = counted / expected_errors if len(judged) >= _MIN_JUDGED and expected_errors > 0 else 1.0
    left = [(1 - sure, length) for is_reviewed, sure, length in waiting if not is_reviewed and sure is not None]
    if not left:
        return Outlook()
    doubts = [(min(1.0, doubt * factor), length) for doubt, length in left]
    doubts.sort(key=lambda line: -worth_checking(1 - line[0], line[1]))
    expected = [doubt * length for doubt, length in doubts]
    reviewed = sum(length for is_reviewed, _, length in waiting if is_reviewed)
    return Outlook(tuple(expected), reviewed + sum(length for _, length in left))


def seconds_a_line(times: Sequence[str]) -> float | None:
    """The average seconds between reviews at these ISO 8601 times, pauses over five minutes apart; None for too few."""
    moments = sorted(datetime.fromisoformat(time) for time in times)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(moments)]
    working = [gap for gap in gaps if gap <= _MAX_PAUSE]
    return sum(working) / len(working) if len(working) >= _MIN_INTERVALS else None
