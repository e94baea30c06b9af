"""Names for the files of a transcription: those of the inputs, made fit for every system, and no two alike."""

import re

from dsocr.data.file_names import is_reserved

_FORBIDDEN = re.compile(r'[<>:"|?*\\\x00-\x1f]')


class UniqueNames:
    """Gives out relative paths without suffix, no two alike where upper and lower case are the same."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str, suffix: str) -> str:
        """The name; where it is taken the one with the file's suffix (`scan_png`), else with a number."""
        fit = "/".join(map(_fit, name.split("/")))
        free, number = fit, 1
        if free.casefold() in self._taken and suffix:
            free = fit = f"{fit}_{_fit(suffix.lstrip('.'))}"
        while free.casefold() in self._taken:
            number += 1
            free = f"{fit}-{number}"
        self._taken.add(free.casefold())
        return free


def _fit(part: str) -> str:
    """A part of a path that Windows takes."""
    fit = _FORBIDDEN.sub("_", part).rstrip(" .") or "_"
    return f"{fit}_" if is_reserved(fit) else fit
