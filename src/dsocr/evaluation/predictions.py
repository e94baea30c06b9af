"""Predictions of any tool, read from the files it left: tables, PAGE or ALTO files, or a text file for each line.

Whose line a prediction is, `matching.py` finds out. Nothing is guessed about texts: a column that may hold the
transcription instead of what was read has to be named.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from dsocr.data.dataset import Dataset
from dsocr.document import Box, Outline, PackedImage, Sample, Split
from dsocr.errors import DataError, DsocrError, RunError, typed
from dsocr.evaluation.compare import System
from dsocr.evaluation.evaluate import open_scored_dataset, require_samples
from dsocr.evaluation.scorecard import Scorecard
from dsocr.evaluation.scores import LineScore, load_lines, score_lines, writer_statuses
from dsocr.formats.alto import describe_page as describe_alto
from dsocr.formats.alto import find_alto
from dsocr.formats.page import describe_page, find_page
from dsocr.formats.tables import USUAL_NAMES, read_rows
from dsocr.formats.xml import parse_xml
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import read_text, text_encoding
from dsocr.io.files import list_files, relative
from dsocr.runs import RunFolder
from dsocr.text import TextPolicy

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
    """All predictions of a file or folder, in its order; `notes` say how it was read."""

    path: Path
    form: Form
    found: list[Found]
    notes: list[str] = field(default_factory=list)


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


Missing = Literal["refuse", "empty"]
"""What a line without a prediction is: a reason to stop, or a line of which nothing was read."""

_OVERLAP = 0.5
"""The share of two boxes together that both must cover, to be one line."""

_HALF = re.compile("[\ud800-\udfff]")
"""Half a character, which JSON can write and UTF-8 cannot."""

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Text:
    """What was read of a line."""

    text: str
    truncated: bool = False
    looping: bool = False


@dataclass(frozen=True, slots=True)
class Matched:
    """A prediction for every sample, by id, and notes on all that was not as plain as that."""

    predictions: Mapping[str, Text]
    notes: Sequence[str]


def match(predictions: Predictions, samples: Sequence[Sample], policy: TextPolicy, *, missing: Missing) -> Matched:
    """The predictions of the samples, their texts treated as the dataset's transcriptions were.

    Raises DataError where lines are without a prediction, unless `missing` is "empty"; where one line has two
    different ones; and where nothing matches.
    """
    by_page = predictions.form in {"page", "alto"}
    found, how = (_by_place if by_page else _by_name)(predictions, samples)
    taken: dict[str, Found] = {}
    repeated = 0
    for sample_id, one in found:
        first = taken.setdefault(sample_id, one)
        if first is not one:
            repeated += 1
            if first.text != one.text:
                message = f"{first.where} and {one.where} are both of the line {sample_id}, and differ"
                raise DataError(message, where=predictions.path, hint="keep one prediction for each line")
    if not taken:
        told = f"none of the {len(predictions.found)} predictions is of one of the {len(samples)} lines"
        hint = f"a line is called {samples[0].id!r}, a prediction {_told_name(predictions.found[0])!r}"
        raise DataError(told, where=predictions.path, hint=hint)
    absent = [sample.id for sample in samples if sample.id not in taken]
    if absent and missing == "refuse":
        message = f"no prediction for {len(absent)} of {len(samples)} lines ({how}): {_some(absent)}"
        hint = "--missing empty counts them as lines of which nothing was read"
        raise DataError(message, where=predictions.path, hint=hint)
    whole = {id_: _HALF.sub("\ufffd", one.text) for id_, one in taken.items()}
    texts = {id_: Text(policy.apply(whole[id_]), one.truncated) for id_, one in taken.items()}
    notes = [*predictions.notes, f"{how}: {len(taken)} of {len(samples)} lines"]
    used = {id(part) for _, one in found for part in (one, *one.parts)}
    extra = [one.where for one in predictions.found if id(one) not in used]
    counts = {
        f"predictions of no line of the split, not used: {_some(extra)}": len(extra),
        f"lines without a prediction, counted as empty: {_some(absent)}": len(absent),
        "predictions that stand there twice, alike": repeated,
        "empty predictions": sum(not text.text for text in texts.values()),
        "predictions with half a character, read as \ufffd": sum(whole[id_] != taken[id_].text for id_ in texts),
        "predictions changed by the dataset's text policy": sum(texts[id_].text != whole[id_] for id_ in texts),
        "predictions not in the normal form NFC, as references are": sum(
            not unicodedata.is_normalized("NFC", one.text) for one in taken.values()
        ),
    }
    notes += [f"{count} {what}" for what, count in counts.items() if count]
    return Matched(texts | {id_: Text("") for id_ in absent}, notes)


_Pairs = list[tuple[str, Found]]


def _by_name(predictions: Predictions, samples: Sequence[Sample]) -> tuple[_Pairs, str]:
    """By the kind of name that most predictions have."""
    best: tuple[_Pairs, str] = ([], "by id")
    for how, key in _NAMES.items():
        by_key: dict[str, list[str]] = defaultdict(list)
        for sample in samples:
            by_key[key(_plain(sample.id))].append(sample.id)
        named = [(by_key.get(key(_plain(one.name)), []), one) for one in predictions.found]
        if any(len(ids) > 1 for ids, _ in named):
            continue  # the same name in two folders says nothing
        pairs = [(ids[0], one) for ids, one in named if ids]
        if len(pairs) > len(best[0]):
            best = pairs, how
    return best


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).replace("\\", "/").removeprefix("./")


def _stem(name: str) -> str:
    path = PurePosixPath(name)
    return path.stem if path.suffix.lower() in IMAGE_SUFFIXES else path.name


_NAMES: Mapping[str, Callable[[str], str]] = {
    "by id": lambda name: name,
    "by id without suffix": lambda name: str(PurePosixPath(name).with_name(_stem(name))) if name else "",
    "by file name": lambda name: PurePosixPath(name).name,
    "by file name without suffix": _stem,
}


def _by_place(predictions: Predictions, samples: Sequence[Sample]) -> tuple[_Pairs, str]:
    """By page and by where on it the lines stand."""
    pages: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        pages[_page_of(sample)].append(sample)
    stems = Counter(PurePosixPath(page).name for page in pages)
    read: dict[str, list[Found]] = defaultdict(list)
    for one in predictions.found:
        read[_plain(one.page or "")].append(one)
    pairs: _Pairs = []
    for page, lines in read.items():
        stem = PurePosixPath(page).name
        same = [name for name in pages if name == page] or [name for name in pages if PurePosixPath(name).name == stem]
        if len(same) > 1:
            message = f"{stems[stem]} pages of the dataset are called {stem}"
            raise DataError(message, where=predictions.path, hint="lay the files into folders as the dataset's were")
        if same:
            pairs += _on_page(pages[same[0]], lines)
    return pairs, "by page and place on it"


def _page_of(sample: Sample) -> str:
    """The file of the source that the sample's page was, without its suffix; else the page's name."""
    file = (sample.source or "").rpartition(":")[0]
    return _plain(str(PurePosixPath(file).with_suffix("")) if file else sample.page or "")


def _on_page(samples: Sequence[Sample], lines: Sequence[Found]) -> _Pairs:
    """Each sample with the line that it covers best, each line taken once; a sample that is a whole page takes all."""
    if len(samples) == 1 and "bbox" not in samples[0].geometry:
        joined = "\n".join(line.text for line in lines if line.text.strip())
        return [(samples[0].id, Found(lines[0].where, lines[0].name, joined, parts=tuple(lines)))]
    boxes = [(line, line.outline.box) for line in lines if line.outline]
    covered = [
        (_overlap(tuple(sample.geometry["bbox"]), box), place, number)
        for place, sample in enumerate(samples)
        if "bbox" in sample.geometry
        for number, (_, box) in enumerate(boxes)
    ]
    pairs: _Pairs = []
    taken: set[tuple[str, int]] = set()
    for share, place, number in sorted(covered, key=lambda one: (-one[0], *one[1:])):
        if share >= _OVERLAP and not {("sample", place), ("line", number)} & taken:
            taken |= {("sample", place), ("line", number)}
            pairs.append((samples[place].id, boxes[number][0]))
    return pairs


def _overlap(one: Box, other: Box) -> float:
    """What two boxes share of what they cover together."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    if across <= 0 or down <= 0:
        return 0.0
    both = across * down
    return both / ((one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - both)


def _told_name(one: Found) -> str:
    return f"{one.page}: {one.name}" if one.page else one.name


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_SHOWN]) + (", ..." if len(listed) > _SHOWN else "")


@dataclass(frozen=True, slots=True)
class Given:
    """What was named on the command line: `NAME=PATH`, or a path that names itself."""

    path: Path
    name: str

    @classmethod
    def parse(cls, text: str) -> "Given":
        """The name before a first `=`, unless there is a file or folder of that whole name."""
        name, equals, path = text.partition("=")
        if equals and name and path and not Path(text).exists() and not {"/", "\\"} & set(name):
            return cls(Path(path), name)
        path_itself = Path(text)
        return cls(path_itself, path_itself.resolve().name if path_itself.is_dir() else path_itself.stem)

    @property
    def is_run(self) -> bool:
        """True of a run folder."""
        return RunFolder(self.path).config.is_file()


@dataclass(frozen=True, slots=True)
class Readings:
    """Readings of the same lines, the lines' images as far as they are known, and what was read."""

    readings: Sequence[System]
    images: Mapping[str, Path | PackedImage] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)


def gather_readings(
    given: Sequence[str],
    *,
    base: bool = False,
    dataset: Path | None = None,
    split: Split | None = None,
    missing: Missing = "refuse",
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
) -> Readings:
    """The readings in their order; a single run is its base and its adapter, and `base` puts that base before others.

    The lines are those of the dataset's split, or those that the first run was evaluated on. Raises DsocrError where
    what was named cannot be read, or was not made from the same lines.
    """
    named = [Given.parse(text) for text in given]
    for one in named:
        if not one.path.exists():
            hint = "give run folders, or the files or folders of predictions"
            raise DataError("no such file or folder", where=one.path, hint=hint)
    runs = [_Run.open(one) for one in named if one.is_run]
    alone = len(named) == 1 and bool(runs)
    if base and not runs:
        raise DataError("--base asks for the base of a run, and no run folder is given")
    needed = len(runs) < len(named)
    opened = _dataset(dataset, runs, needed=needed)
    split = split or (runs[0].split if runs else Split.TEST)
    for each in runs:
        each.demand(split, opened, runs[0], as_it_is=needed or dataset is not None)
    found: list[System] = []
    if base or alone:
        found.append(runs[0].reading("base", "base"))
    by_path = {run.given.path: run for run in runs}
    with text_encoding(encoding):
        for one in named:
            run = by_path.get(one.path)
            if run is not None:
                found.append(run.reading("adapter" if alone else one.name, "adapter"))
            else:
                found.append(_predicted(one, opened, split, missing, columns))
    return Readings(found, _images(opened, split, found), _about(opened, split, runs))


@dataclass(frozen=True, slots=True)
class _Run:
    given: Given
    card: Scorecard
    lines: Mapping[str, list[LineScore]]

    @classmethod
    def open(cls, given: Given) -> "_Run":
        run = RunFolder(given.path)
        return cls(given, Scorecard.load(run.scorecard), load_lines(run.lines))

    @property
    def split(self) -> Split:
        return Split(self.card.split)

    def dataset(self) -> Dataset | None:
        """The dataset that it was evaluated on, where it still is in its place."""
        try:
            return open_scored_dataset(RunFolder(self.given.path), self.card)
        except DsocrError:
            return None

    def demand(self, split: Split, dataset: Dataset | None, first: "_Run", *, as_it_is: bool) -> None:
        """An error where the run was evaluated on another split, or on another state of it.

        That state is the first run's, or that of the dataset `as_it_is`.
        """
        hint = f"dsocr evaluate {typed(self.given.path.as_posix())}"
        if dataset is not None:
            hint += f" --dataset {dataset.folder.as_posix()}"
        if self.split != split:
            message = f"was evaluated on the {self.split} split, not on {split}"
            raise RunError(message, where=self.given.path, hint=f"{hint} --split {split}")
        other = first.card.dataset.get(split)
        if as_it_is and dataset is not None and split in dataset.card.splits:
            other = dataset.card.splits[split].sha256
        own = self.card.dataset.get(split)
        if own is not None and other is not None and own != other:
            message = f"was evaluated on another dataset: its {split} split has the hash {own[:12]}, not {other[:12]}"
            raise RunError(message, where=self.given.path, hint=f"{hint} --split {split}")

    def reading(self, name: str, model: str) -> System:
        if model not in self.lines:
            hint = f"dsocr evaluate {typed(self.given.path.as_posix())}, without --no-base"
            raise RunError(f"was evaluated without its {model}", where=self.given.path, hint=hint)
        limit = self.card.settings.get("limit")
        notes = [f"run {self.given.path.as_posix()}, {model}, scored {self.card.created_at}"]
        if limit:
            notes.append(f"only the first {limit} lines were read")
        return System(name, self.lines[model], notes)


def _dataset(folder: Path | None, runs: Sequence[_Run], *, needed: bool) -> Dataset | None:
    """The dataset that was named, else that of the first run; None where only runs are compared and it is gone."""
    if folder is not None:
        fold = next((run.card.settings.get("fold") for run in runs), None)
        return Dataset.open(folder, fold=fold)
    if not runs:
        raise DataError("there is nothing to score predictions against", hint="name it: --dataset FOLDER --split test")
    own = runs[0].dataset()
    if own is None and needed:
        message = "its dataset is not where the run was trained on it, so predictions cannot be told whose they are"
        raise DataError(message, where=runs[0].given.path, hint="name it: --dataset FOLDER")
    return own


def _predicted(
    given: Given, dataset: Dataset | None, split: Split, missing: Missing, columns: Mapping[str, str] | None
) -> System:
    assert dataset is not None
    samples = require_samples(dataset, split)
    matched = match(read_predictions(given.path, columns), samples, dataset.card.policy(), missing=missing)
    writers = [sample.writer for sample in samples]
    hands = writer_statuses({sample.writer for sample in dataset.samples(Split.TRAIN)}, writers)
    notes = [f"predictions {given.path.as_posix()}", *matched.notes]
    return System(given.name, score_lines(samples, matched.predictions, hands), notes)


def _images(dataset: Dataset | None, split: Split, found: Sequence[System]) -> dict[str, Path | PackedImage]:
    """The pictures of lines that the dataset has as they were scored."""
    if dataset is None or not found:
        return {}
    texts = {line.id: line.reference for line in found[0].lines}
    try:
        return {sample.id: sample.image for sample in dataset.samples(split) if texts.get(sample.id) == sample.text}
    except DataError:
        return {}


def _about(dataset: Dataset | None, split: Split, runs: Sequence[_Run]) -> dict[str, Any]:
    about: dict[str, Any] = {"split": str(split)}
    if dataset is not None and split in dataset.card.splits:
        about |= {"dataset": dataset.folder.resolve().name, "sha256": dataset.card.splits[split].sha256}
    if runs:
        about["sha256"] = runs[0].card.dataset.get(split)  # as it was scored, though it may have changed since
    return about
