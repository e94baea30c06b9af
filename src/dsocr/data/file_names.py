"""File names for a dataset's images that every system takes, and that are each used once."""

import hashlib
import unicodedata

_LONGEST = 60
_RESERVED = {"con", "prn", "aux", "nul"} | {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}


class UniqueStems:
    """Gives out file stems, no two alike where upper and lower case are the same."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        """A stem for a name that may hold anything."""
        return self.take_stem(safe_stem(name))

    def take_stem(self, stem: str) -> str:
        """The stem, or one like it where it is taken."""
        free, number = stem, 1
        while free.casefold() in self._taken:
            number += 1
            free = f"{stem}-{number}"
        self._taken.add(free.casefold())
        return free


def safe_stem(name: str) -> str:
    """Letters of any script, digits, `-` and `_`; a name that had to be shortened ends with its own hash."""
    letters = unicodedata.normalize("NFKC", name)
    stem = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in letters)
    if len(stem.encode("utf-8", "replace")) > _LONGEST:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        stem = f"{stem.encode()[:_LONGEST].decode('utf-8', 'ignore')}-{digest}"
    return f"{stem}_" if is_reserved(stem) else stem or "_"


def is_reserved(name: str) -> bool:
    """True of the names that Windows keeps for devices, whatever suffix they have."""
    return name.partition(".")[0].rstrip().casefold() in _RESERVED
