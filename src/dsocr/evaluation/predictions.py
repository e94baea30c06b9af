"""Predictions of any tool, read from the files it left: tables, PAGE or ALTO files, or a text file for each line.

Whose line a prediction is, `matching.py` finds out. Nothing is guessed about texts: a column that may hold the
transcription instead of what was read has to be named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dsocr.data.paths import list_files, relative
from dsocr.data.sources.alto import describe_page as describe_alto
from dsocr.data.sources.alto import find_alto
from dsocr.data.sources.layout import Outline
from dsocr.data.sources.markup import parse_xml
from dsocr.data.sources.page import describe_page, find_page
from dsocr.data.sources.tables import USUAL_NAMES, read_rows
from dsocr.data.sources.texts import read_text
from dsocr.errors import DataError

Form = Literal["table", "page", "alto", "texts"]

TEXT_COLUMNS = ("prediction", "predicted", "pred", "prediction_text", "hypothesis", "hyp", "output", "text")
"""Columns that are taken for what was read, the first that there is; `label` and the like hold transcriptions."""

ID_COLUMNS = ("id", *USUAL_NAMES["image"])

_TABLES = frozenset({".jsonl", ".tsv", ".csv"})
_TRUE = frozenset({"true", "1", "yes"})


@dataclass(frozen=True, slots=True)
class Found:
    """One prediction: where it stands, what it calls its line, and where on which page that line is, if it says so.

    `parts` are the predictions that it was put together from.
    """

    where: str
    name: str
    text: str
    truncated: bool = False
    page: str | None = None
    outline: Outline | None = None
    parts: tuple["Found", ...] = ()


@dataclass(frozen=True, slots=True)
class Predictions:
    """All predictions of a file or folder, in its order; `remarks` say how it was read."""

    path: Path
    form: Form
    found: list[Found]
    remarks: list[str] = field(default_factory=list)


def read_predictions(path: Path, columns: Mapping[str, str] | None = None) -> Predictions:
    """The predictions in a table (.jsonl, .tsv, .csv), a PAGE or ALTO file, or a folder of PAGE, ALTO or text files.

    `columns` names a table's columns, `id` and `text`, where they are not the usual ones. Texts in another encoding
    than UTF-8 are read as `text_encoding` says. Raises DataError for what cannot be read or holds nothing.
    """
    if not path.exists():
        raise DataError("no such file or folder", where=path)
    is_table = path.suffix.lower() in _TABLES and path.is_file()
    if columns and not is_table:
        raise DataError("only tables have columns, and this is none", where=path)
    found = _of_table(path, columns or {}) if is_table else _of_pages(path) or _of_texts(path)
    if found is None:
        hint = "give a .jsonl, .tsv or .csv file, or a folder of PAGE, ALTO or .txt files"
        raise DataError("nothing here can be read as predictions", where=path, hint=hint)
    if not found.found:
        raise DataError("holds no prediction", where=path)
    return found


def _of_table(path: Path, columns: Mapping[str, str]) -> Predictions:
    if unknown := sorted(columns.keys() - {"id", "text"}):
        raise DataError(f"unknown column role {unknown[0]!r}; the roles are: id, text", where=path)
    header, rows = read_rows(path, columns)
    id_, text = _column(path, header, "id", columns), _column(path, header, "text", columns)
    found = []
    for number, cells in rows:
        for column, what in ((id_, "says of which line it is"), (text, "says what was read")):
            if column not in cells:
                raise DataError(f"has no {column!r}, which {what}", where=f"{path}:{number}")
        truncated = cells.get("truncated", "").strip().lower() in _TRUE
        found.append(Found(f"{path.name}:{number}", cells[id_].strip(), cells[text], truncated))
    return Predictions(path, "table", found, [f"columns {id_} and {text}"])


def _column(path: Path, header: Sequence[str], role: str, columns: Mapping[str, str]) -> str:
    """The column for a role: the one that was named, else a usual one; without a header the first two are meant."""
    lower = {name.strip().lower(): name for name in reversed(header)}
    told = f"the columns are: {', '.join(header)}"
    if role in columns:
        if columns[role].lower() not in lower:
            raise DataError(f"there is no column {columns[role]!r}; {told}", where=path)
        return lower[columns[role].lower()]
    usual = ("1", *ID_COLUMNS) if role == "id" else ("2", *TEXT_COLUMNS)
    found = next((lower[name] for name in usual if name in lower), None)
    if found is None:
        what = "which line it is" if role == "id" else "what was read"
        raise DataError(f"no column is known to say {what}; {told}", where=path, hint=f"name it: --column {role}=NAME")
    return found


def _of_pages(path: Path) -> Predictions | None:
    folder = path.parent if path.is_file() else path
    forms = {"page": (find_page, describe_page), "alto": (find_alto, describe_alto)}
    files = {form: [file for file in find(folder) if path in (folder, file)] for form, (find, _) in forms.items()}
    held = [form for form, own in files.items() if own]
    if not held:
        return None
    if len(held) > 1:
        told = f"{len(files['page'])} PAGE and {len(files['alto'])} ALTO files"
        raise DataError(f"the folder holds both {told}", where=path, hint="give the folder of one of them")
    form: Form = "page" if held == ["page"] else "alto"
    found = []
    for file in files[form]:
        page = forms[form][1](parse_xml(file))
        name = relative(file.with_suffix(""), folder)
        for line in page.lines:
            where = f"{relative(file, folder)}:{line.row}"
            found.append(Found(where, line.id, line.text, page=name, outline=line.outline))
    return Predictions(path, form, found, [f"{len(files[form])} {form.upper()} files"])


def _of_texts(path: Path) -> Predictions | None:
    """A text file for each line, named as its image; `.gt.txt` holds a transcription and is none."""
    if not path.is_dir():
        return None
    files = [file for file in list_files(path, {".txt"}) if not file.name.lower().endswith(".gt.txt")]
    found = [Found(relative(file, path), _without_suffix(relative(file, path)), read_text(file)) for file in files]
    return Predictions(path, "texts", found, [f"{len(files)} text files"]) if files else None


def _without_suffix(name: str) -> str:
    return name[: -len(".txt")].removesuffix(".pred")
