"""The published splits of IAM: lists of its lines or forms, told by the names of their files.

The official task names lines, "Aachen" forms; papers use either, and others have lists of their own. A score means
something only beside the name of its split, so two of them in one folder are a question.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dsocr.data.images import IMAGE_SUFFIXES
from dsocr.data.paths import list_files, relative
from dsocr.data.sources.texts import read_text
from dsocr.errors import DataError
from dsocr.samples import Split

_KINDS = {
    "the official task": {
        "trainset.txt": Split.TRAIN,
        "validationset1.txt": Split.VALIDATION,
        "validationset2.txt": Split.VALIDATION,
        "testset.txt": Split.TEST,
    },
    "Aachen (uttlist)": {
        "train.uttlist": Split.TRAIN,
        "validation.uttlist": Split.VALIDATION,
        "test.uttlist": Split.TEST,
    },
    "lists of lines (lst)": {"tr.lst": Split.TRAIN, "va.lst": Split.VALIDATION, "te.lst": Split.TEST},
    "lists of lines (ln)": {"train.ln": Split.TRAIN, "val.ln": Split.VALIDATION, "test.ln": Split.TEST},
}
_SUFFIXES = {PurePosixPath(name).suffix for names in _KINDS.values() for name in names}


@dataclass(frozen=True, slots=True)
class Splits:
    """One published split: the name of a line or a form -> where it belongs."""

    kind: str
    files: tuple[str, ...]
    names: dict[str, Split]

    def of(self, line: str, form: str) -> Split | None:
        """Where a line belongs, by its own name or its form's."""
        return self.names.get(line) or self.names.get(form)

    def told(self) -> str:
        """Which split it is, for a sentence."""
        return f"{self.kind}: {', '.join(self.files)}"


def read_splits(source: Path) -> Splits | None:
    """The split whose lists lie in the folder, None where none does; an error where there are several."""
    found: dict[str, list[tuple[Path, Split]]] = defaultdict(list)
    for path in list_files(source, _SUFFIXES):
        for kind, names in _KINDS.items():
            if split := names.get(path.name.lower()):
                found[kind].append((path, split))
    if len(found) > 1:
        told = "; ".join(f"{kind} ({', '.join(path.name for path, _ in files)})" for kind, files in found.items())
        message = f"the folder holds the lists of more than one split: {told}"
        raise DataError(message, where=source, hint="leave one of them in the folder")
    return next((_read(kind, files, source) for kind, files in found.items()), None)


def _read(kind: str, files: list[tuple[Path, Split]], source: Path) -> Splits:
    names: dict[str, Split] = {}
    for path, split in files:
        for row in read_text(path).splitlines():
            name = _name(row)
            if name and names.setdefault(name, split) != split:
                raise DataError(f"{name} stands in the {names[name]} and in the {split} list", where=path)
    return Splits(kind, tuple(relative(path, source) for path, _ in files), names)


def _name(row: str) -> str:
    """The first word of a row, without the folders and the suffix that some lists have."""
    word = PurePosixPath((row.split() or [""])[0])
    return word.stem if word.suffix.lower() in IMAGE_SUFFIXES else word.name
