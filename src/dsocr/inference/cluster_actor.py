"""What runs on the machines of a cluster: a model that reads groups of pages, and how often each was tried.

Knows nothing of Ray, which calls it.
"""

import json
import os
import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsocr import __version__, errors
from dsocr.errors import DsocrError, RunError
from dsocr.inference.inputs.finding import InputPage
from dsocr.inference.inputs.showing import Opening
from dsocr.inference.reading import Reads, Rows, read_here
from dsocr.model.out_of_memory import is_out_of_memory

_MOST_TRIES = 3
"""So many actors may die over the same pages."""


class Attempts:
    """Counts how often each group was begun and not ended; in a process of its own, as those that read may die."""

    def __init__(self) -> None:
        self._begun: Counter[int] = Counter()

    def begin(self, place: int) -> int:
        """How often the group was begun since it ended last, this time included."""
        self._begun[place] += 1
        return self._begun[place]

    def end(self, place: int) -> int:
        """Forgets the group: one that another's death takes with it on its way back is not to blame."""
        return self._begun.pop(place, 0)


@dataclass(frozen=True, slots=True)
class Settings:
    """How an actor reads: `open_reader` gives it its model, `begin` and `end` count each group's attempts.

    `folder` is where the command was given, `version` that of its dsocr.
    """

    opening: Opening
    open_reader: Callable[[], Reads]
    strict: bool
    folder: str
    begin: Callable[[int], int]
    end: Callable[[int], int]
    version: str = __version__


class Actor:
    """Reads the group whose place in `groups` it is handed, with a model that is loaded when the first one comes.

    The answer is JSON that `rows_of` understands: what reading raises travels in it, so that it arrives as it was.
    """

    def __init__(self, groups: Sequence[Sequence[InputPage]], settings: Settings) -> None:
        self._groups, self._settings = groups, settings
        self._reader: Reads | None = None

    def __call__(self, batch: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
        """A batch of one group, as Ray Data hands it over."""
        place = int(batch["place"][0])
        answer = json.dumps(self._answer(place), ensure_ascii=False)
        self._settings.end(place)
        return {"answer": [answer]}

    def _answer(self, place: int) -> dict[str, Any]:
        pages = self._groups[place]
        try:
            self._demand(pages, self._settings.begin(place))
            settings = self._settings
            (rows,) = read_here([pages], settings.opening, self._opened, strict=settings.strict, workers=1)
            return {"rows": rows}
        except DsocrError as error:
            return {"error": [type(error).__name__, error.message, error.where, error.hint]}
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return {"memory": platform.node()}

    def _opened(self) -> Reads:
        self._reader = self._reader or self._settings.open_reader()
        return self._reader

    def _demand(self, pages: Sequence[InputPage], attempt: int) -> None:
        """A RunError where this machine has another dsocr or other files, or these pages end every process."""
        machine = f"machine {platform.node()} of the cluster"
        if self._settings.version != __version__:
            message = f"has dsocr {__version__}, and this one {self._settings.version}"
            raise RunError(message, where=machine, hint="install the same version on all machines")
        if attempt > _MOST_TRIES:
            hint = "all else that was read is kept: take the page that does it out, or, if memory ends, lower --actors"
            raise RunError(f"{_MOST_TRIES} processes died over these pages", where=_named(pages), hint=hint)
        if not any(page.path.exists() for page in pages):
            hint = "keep scans, run, base and what is written where all machines see them under the same path"
            raise RunError(f"does not see {pages[0].path}", where=machine, hint=hint)
        if Path(self._settings.folder).is_dir():
            # A base may be named by where it lies from there.
            os.chdir(self._settings.folder)


def rows_of(answer: Mapping[str, Any]) -> Rows:
    """The rows in an actor's answer. Raises what it tells of: the error that reading raised, or a MemoryError."""
    if "error" in answer:
        kind, message, where, hint = answer["error"]
        raise getattr(errors, kind)(message, where=where, hint=hint)
    if "memory" in answer:
        raise MemoryError(answer["memory"])
    return [(id_, stamp, row) for id_, stamp, row in answer["rows"]]


def _named(pages: Sequence[InputPage]) -> str:
    more = f" and {len(pages) - 3} more" if len(pages) > 3 else ""
    return ", ".join(page.id for page in pages[:3]) + more
