"""Systems to compare: evaluated runs, and files of predictions that other tools write.

Files are tables, PAGE or ALTO files, or one text file per line. Their predictions are matched with the lines of a
dataset by name or by position on the page. A column that could hold the reference is never taken for the prediction.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import fspath
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import numpy as np

from dsocr.console import progress_bar
from dsocr.data.dataset import Dataset
from dsocr.data.layouts import box_overlaps
from dsocr.data.splits import page_key
from dsocr.document import Outline, PackedImage, Sample, Split
from dsocr.errors import DataError, DsocrError, RunError, command, first_few, option
from dsocr.evaluation.compare import Comparison, System
from dsocr.evaluation.compare import compare as compare_systems
from dsocr.evaluation.evaluate import require_samples
from dsocr.evaluation.page_metrics import score_pages
from dsocr.evaluation.result_pages import require_free_comparison, write_comparison
from dsocr.evaluation.scorecard import Scorecard, open_scored_dataset
from dsocr.evaluation.scores import MODEL_LABELS, LineScore, ReadText, load_lines, score_lines, writer_statuses
from dsocr.formats import parse_xml_page
from dsocr.formats.alto import find_alto
from dsocr.formats.format import NOT_UTF8
from dsocr.formats.page import find_page
from dsocr.formats.sheets import SHEET_SUFFIXES
from dsocr.formats.tables import USUAL_NAMES, guess_roles, read_rows
from dsocr.formats.xml import summarize
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import read_text, text_encoding
from dsocr.io.files import list_files, relative
from dsocr.options import Columns, Output, Rare, SplitName, StrPath, read_pairs
from dsocr.runs import RunFolder
from dsocr.text import TextPolicy

TEXT_COLUMNS = ("prediction", "predicted", "pred", "prediction_text", "hypothesis", "hyp", "output", "text")
"""Usual columns of predictions, in order of preference; `label` and the like hold references."""

ID_COLUMNS = ("id", *USUAL_NAMES["image"])

Missing = Literal["error", "empty"]
"""Handling of a line without a prediction: reject the file, or count an empty prediction."""

_TABLE_SUFFIXES = frozenset({".jsonl", ".tsv", ".csv"}) | SHEET_SUFFIXES
_TRUE = frozenset({"true", "1", "yes"})

_MIN_OVERLAP = 0.5
"""Least intersection over union of two boxes of the same line."""


def compare(
    *systems: StrPath,
    base: bool = False,
    dataset: StrPath | None = None,
    split: SplitName | None = None,
    missing: Rare[Missing] = "error",
    pages: bool = False,
    columns: Columns | None = None,
    encoding: str | None = None,
    output: Output | None = None,
    overwrite: bool = False,
) -> Comparison:
    """Compare models, and test whether the difference is significant. Scores predictions for the same lines.

    Args:
        systems: Evaluated runs, or files of predictions; NAME=PATH names one.
        base: Also compare with the base of the first run.
        dataset: Dataset that the predictions are of, if not the first run's.
        split: Split that they are of; the first run's if not given, else test.
        missing: What a line without a prediction is: an error, or an empty text.
        pages: Compare whole pages, whatever lines a tool found and in which order.
        columns: Column of a table of predictions, as id=NAME or text=NAME; repeatable.
        encoding: Encoding of texts and tables that are not UTF-8, e.g. cp1251.
        output: Page.html, or a folder for the page, numbers and changed lines.
        overwrite: Replace what an earlier command wrote there.

    A single run is compared with its base.

    Raises:
        DataError: Predictions cannot be read, or do not fit the dataset.
        RunError: A run was not evaluated, or on other lines.
    """
    out, read_columns = None if output is None else Path(output), read_pairs("columns", columns)
    if out is not None:
        require_free_comparison(out, overwrite=overwrite)
    named = [parse_name(fspath(system)) for system in systems]
    for _, path in named:
        if not path.exists():
            hint = "give run folders, or files or folders of predictions"
            raise DataError("no such file or folder", code="input-missing", where=path, hint=hint)
    runs = {
        folder.path: _EvaluatedRun(folder.path, Scorecard.load(folder.scorecard), load_lines(folder.lines))
        for folder in (RunFolder(path) for _, path in named)
        if folder.config.is_file()
    }
    first = next(iter(runs.values()), None)
    if base and first is None:
        raise DataError(f"{option('base')} needs a run folder whose base to compare with", code="no-base")
    has_files = any(path not in runs for _, path in named)
    opened = _open_dataset(None if dataset is None else Path(dataset), first, required=has_files)
    chosen = Split(split or (first.card.split if first else Split.TEST))
    for run in runs.values():
        run.require_same_split(chosen, opened, first, check_dataset=has_files or dataset is not None)
    alone = len(named) == 1 and first is not None
    compared = [first.system("base", "base", pages=pages)] if first and (base or alone) else []
    with text_encoding(encoding):
        for name, path in named:
            if path in runs:
                model = "adapter" if "adapter" in runs[path].lines else "base"  # of a base, nothing was trained
                name = "trained" if alone and name == "base" else name
                compared.append(runs[path].system(name, model, pages=pages))
            else:
                assert opened is not None
                compared.append(_score_file(name, path, opened, chosen, missing, read_columns, pages=pages))
    images, about = _describe(opened, chosen, compared)
    if first is not None:
        about["sha256"] = first.card.dataset.get(chosen)  # as it was scored; it can have changed since
    if pages and opened is not None:  # a tool reads more of a divided page than the split has of it
        others = [sample for other in Split if other != chosen for sample in opened.samples(other)]
        divided = {page_key(sample.document, sample.page) for sample in others}
        count = sum(line.page in divided for line in compared[0].lines)
        note = [f"{count} pages have lines in another split and are omitted"] if count else []
        for place, system in enumerate(compared):
            whole = [line for line in system.lines if line.page not in divided]
            compared[place] = replace(system, lines=whole, notes=[*system.notes, *note])
    comparison = compare_systems(compared, images=images, about=about, pages=pages)
    if out is None:
        return comparison
    with progress_bar(None, "drawing", "lines") as show:
        return replace(comparison, written=write_comparison(comparison, out, show))


@dataclass(frozen=True, slots=True)
class _EvaluatedRun:
    path: Path
    card: Scorecard
    lines: Mapping[str, list[LineScore]]

    def require_same_split(
        self, split: Split, dataset: Dataset | None, first: "_EvaluatedRun | None", *, check_dataset: bool
    ) -> None:
        """Raise RunError unless it was scored on this split of the first run or, to `check_dataset`, the dataset."""
        options = {} if dataset is None else {"dataset": dataset.folder.as_posix()}
        hint = f"run {command('evaluate', self.path.as_posix(), **options, split=str(split))}"
        if self.card.split != split:
            message = f"was evaluated on the {self.card.split} split, not on {split}"
            raise RunError(message, code="other-dataset", where=self.path, hint=hint)
        other = first.card.dataset.get(split) if first else None
        if check_dataset and dataset is not None and split in dataset.card.splits:
            other = dataset.card.splits[split].sha256
        scored = self.card.dataset.get(split)
        if scored is not None and other is not None and scored != other:
            message = (
                f"was evaluated on another dataset: its {split} split has the hash {scored[:12]}, not {other[:12]}"
            )
            raise RunError(message, code="other-dataset", where=self.path, hint=hint)

    def system(self, name: str, model: str, *, pages: bool) -> System:
        if model not in self.lines:
            hint = f"run {command('evaluate', self.path.as_posix())} without {option('base', False)}"
            raise RunError(f"was evaluated without its {model}", code="no-base", where=self.path, hint=hint)
        limit = self.card.settings.get("limit")
        notes = [f"run {self.path.as_posix()}, {MODEL_LABELS[model]}, scored {self.card.created_at}"]
        notes += [f"only the first {limit} lines were read"] if limit else []
        lines = score_pages(self.lines[model]) if pages else self.lines[model]
        return System(name, lines, notes, trained=model == "adapter")


def _open_dataset(folder: Path | None, first: _EvaluatedRun | None, *, required: bool) -> Dataset | None:
    """Open the named dataset, else that of the first run; None if that is gone and not required."""
    if folder is not None:
        return Dataset.open(folder, fold=first.card.settings.get("fold") if first else None)
    if first is None:
        hint = f"name a dataset and a split: {option('dataset', 'FOLDER')}, {option('split', 'test')}"
        raise DataError("there is nothing to score predictions against", code="dataset-missing", hint=hint)
    try:
        return open_scored_dataset(RunFolder(first.path), first.card)
    except DsocrError as error:
        if not required:
            return None
        message = "its dataset has moved, so predictions cannot be scored"
        raise DataError(
            message, code="dataset-missing", where=first.path, hint=f"name it: {option('dataset', 'FOLDER')}"
        ) from error


def _score_file(
    name: str,
    path: Path,
    dataset: Dataset,
    split: Split,
    missing: Missing,
    columns: Mapping[str, str] | None,
    *,
    pages: bool,
) -> System:
    """Score predictions of lines; with `pages`, of a tool with its own lines: PAGE, ALTO, texts or a table of pages."""
    samples, file, policy = require_samples(dataset, split), read_predictions(path, columns), dataset.card.policy()
    trained = {sample.writer for sample in dataset.samples(Split.TRAIN)}
    statuses = writer_statuses(trained, [sample.writer for sample in samples])
    if not pages:
        predicted, notes = match(file, samples, policy, missing=missing)
        return System(name, score_lines(samples, predicted, statuses), [f"predictions {path.as_posix()}", *notes])
    names: dict[str, str] = {}
    for sample in samples:
        key = str(page_key(sample.document, sample.page))
        names |= {normalize_name(page_name(sample)): key, PurePosixPath(page_name(sample)).name: key}
    texts: dict[str, list[str]] = {}
    unused: list[str] = []
    for prediction in file.predictions:
        page = normalize_name(prediction.page or prediction.name)
        place = names.get(page) or names.get(stem_of(page)) or names.get(PurePosixPath(page).name)
        if place is None:
            unused.append(prediction.where)
        else:
            texts.setdefault(place, []).append(policy.apply(NOT_UTF8.sub("\ufffd", prediction.text)))
    pages_read = f"by page: {len(texts)} of {len({*names.values()})} pages"
    notes = [f"predictions {path.as_posix()}", file.source, pages_read]
    notes += [f"{len(unused)} predictions match no page and are not used: {first_few(unused, 5)}"] if unused else []
    if missing == "empty":
        texts = {key: [] for key in names.values()} | texts
    lines = score_lines(samples, {sample.id: ReadText("") for sample in samples}, statuses)
    return System(name, score_pages(lines, {key: "\n".join(read) for key, read in texts.items()}), notes)


def _describe(
    dataset: Dataset | None, split: Split, systems: Sequence[System]
) -> tuple[dict[str, Path | PackedImage], dict[str, Any]]:
    """Return the images of lines that have not changed in the dataset, and facts about the comparison."""
    about: dict[str, Any] = {"split": str(split)}
    if dataset is None or split not in dataset.card.splits:
        return {}, about
    about |= {"dataset": dataset.folder.resolve().name, "sha256": dataset.card.splits[split].sha256}
    references = {line.id: line.reference for line in systems[0].lines}
    try:
        samples = dataset.samples(split, references.keys())
    except DataError:
        return {}, about
    return {sample.id: sample.image for sample in samples if references[sample.id] == sample.text}, about


@dataclass(frozen=True, slots=True)
class FoundPrediction:
    """A prediction: its place in a file, the name, page and outline of its line if known, and `parts` joined in it."""

    where: str
    name: str
    text: str
    truncated: bool = False
    page: str | None = None
    outline: Outline | None = None
    parts: tuple["FoundPrediction", ...] = ()


@dataclass(frozen=True, slots=True)
class PredictionFile:
    """All predictions in a file or folder, in its order; `source` describes how it was read."""

    path: Path
    predictions: list[FoundPrediction]
    source: str
    has_positions: bool = False


def read_predictions(path: Path, columns: Mapping[str, str] | None = None) -> PredictionFile:
    """Read a table (.jsonl, .tsv, .csv), a PAGE or ALTO file, or a folder of PAGE, ALTO or text files.

    `columns` names a table's columns for `id` and `text` if they are not usual ones. Texts are decoded as within
    `text_encoding`. Raises DataError for an unreadable file or one without predictions.
    """
    is_table = path.suffix.lower() in _TABLE_SUFFIXES and path.is_file()
    if columns and not is_table:
        raise DataError("columns can only be named for a table", code="not-a-table", where=path)
    file = _read_table(path, columns or {}) if is_table else _read_pages(path) or _read_texts(path)
    if file is None:
        hint = "give a .jsonl, .tsv, .csv or .xlsx file, or a folder of PAGE, ALTO or .txt files"
        raise DataError("cannot be read as predictions", code="format-unknown", where=path, hint=hint)
    if not file.predictions:
        raise DataError("has no predictions", code="no-predictions", where=path)
    return file


def _read_table(path: Path, columns: Mapping[str, str]) -> PredictionFile:
    if unknown := sorted(columns.keys() - {"id", "text"}):
        message = f"unknown column role {unknown[0]!r}; the roles are: id, text"
        raise DataError(message, code="column-role-unknown", where=path)
    # Without a header the first two columns are used.
    usual = {"id": ("1", *ID_COLUMNS), "text": ("2", *TEXT_COLUMNS)}
    header, rows = read_rows(path, columns, usual)
    roles = guess_roles(header, columns, usual)
    for role in ("id", "text"):
        if role not in roles:
            sought = f"column {columns[role]!r}" if role in columns else f"known column for the {role} of a line"
            message = f"there is no {sought}; the columns are: {', '.join(header)}"
            hint = f"name it: {option('columns', f'{role}=NAME')}"
            raise DataError(message, code="column-missing", where=path, hint=hint)
    id_, text = roles["id"], roles["text"]
    predictions = []
    for number, cells in rows:
        for column in (id_, text):
            if column not in cells:
                raise DataError(f"has no value for {column!r}", code="value-missing", where=f"{path}:{number}")
        truncated = cells.get("truncated", "").strip().lower() in _TRUE
        predictions.append(FoundPrediction(f"{path.name}:{number}", cells[id_].strip(), cells[text], truncated))
    return PredictionFile(path, predictions, f"columns {id_} and {text}")


def _read_pages(path: Path) -> PredictionFile | None:
    folder = path.parent if path.is_file() else path
    by_format = {"PAGE": find_page(folder), "ALTO": find_alto(folder)}
    by_format = {
        name: chosen
        for name, files in by_format.items()
        if (chosen := [file for file in files if path in (folder, file)])
    }
    if not by_format:
        return None
    if len(by_format) > 1:
        message = " and ".join(f"{len(files)} {name}" for name, files in by_format.items())
        hint = "give a folder with one format"
        raise DataError(f"the folder has both {message} files", code="formats-mixed", where=path, hint=hint)
    ((name, files),) = by_format.items()
    pages = {relative(file.with_suffix(""), folder): parse_xml_page(file, relative(file, folder)) for file in files}
    marked = [texts for page in pages.values() for texts in page.readings.values()]
    has_truth = any(texts.is_sure or texts.typed is not None for texts in marked)
    predictions, notes = [], list[tuple[str, str]]()
    for page_name, page in pages.items():
        for line in page.lines:
            text, remark = line.text, line.untranscribed and f"have no text: {line.untranscribed}"
            if texts := page.readings.get(line.index):
                text, remark = texts.read or "", f"are predicted by a program's text ({texts.mark})"
            elif text and marked:
                remark = (
                    "have a transcription only and are not used"
                    if has_truth
                    else "have no mark of a program, but are used"
                )
            notes += [(remark, line.where)] if remark else []
            if texts or not (text and has_truth):
                predictions.append(FoundPrediction(line.where, line.id, text, page=page_name, outline=line.outline))
    source = "; ".join([f"{len(files)} {name} files", *summarize(notes)])
    return PredictionFile(path, predictions, source, has_positions=True)


def _read_texts(path: Path) -> PredictionFile | None:
    """Read a text file per line, named like its image; `.gt.txt` files are references."""
    if not path.is_dir():
        return None
    files = [file for file in list_files(path, {".txt"}) if not file.name.lower().endswith(".gt.txt")]
    predictions = []
    for file in files:
        name = relative(file, path)
        predictions.append(FoundPrediction(name, name[: -len(".txt")].removesuffix(".pred"), read_text(file)))
    return PredictionFile(path, predictions, f"{len(files)} text files") if files else None


class MatchedPredictions(NamedTuple):
    """A prediction for each sample by id, and notes on everything unusual."""

    texts: Mapping[str, ReadText]
    notes: Sequence[str]


def match(
    file: PredictionFile, samples: Sequence[Sample], policy: TextPolicy, *, missing: Missing
) -> MatchedPredictions:
    """Match predictions with samples, and apply the dataset's text policy to them.

    Raises DataError if nothing matches, or a sample has none (unless `missing` is "empty") or two different ones.
    """
    pairs, how = (_match_by_position if file.has_positions else _match_by_name)(file, samples)
    by_sample: dict[str, FoundPrediction] = {}
    repeated = 0
    for sample_id, prediction in pairs:
        first = by_sample.setdefault(sample_id, prediction)
        if first is not prediction:
            repeated += 1
            if first.text != prediction.text:
                message = f"{first.where} and {prediction.where} are different predictions for {sample_id}"
                hint = "keep one prediction per line"
                raise DataError(message, code="prediction-ambiguous", where=file.path, hint=hint)
    if not by_sample:
        first = file.predictions[0]
        name = f"{first.page}: {first.name}" if first.page else first.name
        message = f"none of {len(file.predictions)} predictions matches one of {len(samples)} lines"
        hint = f"a line is called {samples[0].id!r}, a prediction {name!r}"
        raise DataError(message, code="nothing-matches", where=file.path, hint=hint)
    absent = [sample.id for sample in samples if sample.id not in by_sample]
    if absent and missing == "error":
        message = f"{len(absent)} of {len(samples)} lines have no prediction ({how}): {first_few(absent, 5)}"
        hint = f"{option('missing', 'empty')} counts them as empty predictions"
        raise DataError(message, code="prediction-missing", where=file.path, hint=hint)
    decoded = {id_: NOT_UTF8.sub("\ufffd", prediction.text) for id_, prediction in by_sample.items()}
    texts = {id_: ReadText(policy.apply(decoded[id_]), prediction.truncated) for id_, prediction in by_sample.items()}
    used = {id(part) for _, prediction in pairs for part in (prediction, *prediction.parts)}
    unused = [prediction.where for prediction in file.predictions if id(prediction) not in used]
    counts = {
        f"predictions match no line and are not used: {first_few(unused, 5)}": len(unused),
        f"lines have no prediction and count as empty: {first_few(absent, 5)}": len(absent),
        "predictions are identical duplicates": repeated,
        "predictions are empty": sum(not text.text for text in texts.values()),
        "predictions have an invalid character, read as \ufffd": sum(
            decoded[id_] != prediction.text for id_, prediction in by_sample.items()
        ),
        "predictions were changed by the dataset's text policy": sum(texts[id_].text != decoded[id_] for id_ in texts),
    }
    notes = [file.source, f"{how}: {len(by_sample)} of {len(samples)} lines"]
    notes += [f"{count} {note}" for note, count in counts.items() if count]
    return MatchedPredictions(texts | {id_: ReadText("") for id_ in absent}, notes)


_Pairs = list[tuple[str, FoundPrediction]]


def normalize_name(name: str) -> str:
    """Return the name of a file as others write it: in NFC, with slashes, without `./`."""
    return unicodedata.normalize("NFC", name).replace("\\", "/").removeprefix("./")


def stem_of(name: str) -> str:
    """Return a file's name without folders, and without the suffix of an image."""
    path = PurePosixPath(name)
    return path.stem if path.suffix.lower() in IMAGE_SUFFIXES else path.name


_NAME_KEYS: Mapping[str, Callable[[str], str]] = {
    "by id": lambda name: name,
    "by id without suffix": lambda name: str(PurePosixPath(name).with_name(stem_of(name))) if name else "",
    "by file name": lambda name: PurePosixPath(name).name,
    "by file name without suffix": stem_of,
}


def _match_by_name(file: PredictionFile, samples: Sequence[Sample]) -> tuple[_Pairs, str]:
    """Match by the kind of name that matches most predictions without ambiguity."""
    best: tuple[_Pairs, str] = ([], "by id")
    for how, key in _NAME_KEYS.items():
        by_key: dict[str, list[str]] = defaultdict(list)
        for sample in samples:
            by_key[key(normalize_name(sample.id))].append(sample.id)
        named = [(by_key.get(key(normalize_name(prediction.name)), []), prediction) for prediction in file.predictions]
        if any(len(ids) > 1 for ids, _ in named):
            continue  # two folders have the same name
        pairs = [(ids[0], prediction) for ids, prediction in named if ids]
        if len(pairs) > len(best[0]):
            best = pairs, how
    return best


def _match_by_position(file: PredictionFile, samples: Sequence[Sample]) -> tuple[_Pairs, str]:
    """Match by page, and on it by bounding box."""
    pages: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        pages[page_name(sample)].append(sample)
    found_pages: dict[str, list[FoundPrediction]] = defaultdict(list)
    for prediction in file.predictions:
        found_pages[normalize_name(prediction.page or "")].append(prediction)
    pairs: _Pairs = []
    for page, lines in found_pages.items():
        stem = PurePosixPath(page).name
        same = [page] if page in pages else [name for name in pages if PurePosixPath(name).name == stem]
        if len(same) > 1:
            message = f"{len(same)} pages of the dataset are called {stem}"
            hint = "put the files into folders like those of the dataset's source"
            raise DataError(message, code="prediction-ambiguous", where=file.path, hint=hint)
        if same:
            pairs += _match_on_page(pages[same[0]], lines)
    return pairs, "by page and position"


def page_name(sample: Sample) -> str:
    """Return the source file of the sample's page without its suffix, else the page's name."""
    file = (sample.source or "").rpartition(":")[0]
    return normalize_name(str(PurePosixPath(file).with_suffix("")) if file else sample.page or "")


def _match_on_page(samples: Sequence[Sample], lines: Sequence[FoundPrediction]) -> _Pairs:
    """Pair samples and lines one to one, the largest overlap first; a sample that is a whole page takes all lines."""
    if len(samples) == 1 and "bbox" not in samples[0].geometry:
        joined = "\n".join(line.text for line in lines if line.text.strip())
        return [(samples[0].id, FoundPrediction(lines[0].where, lines[0].name, joined, parts=tuple(lines)))]
    overlaps = []
    boxes = np.array([line.outline.box if line.outline else (0, 0, 0, 0) for line in lines], dtype=np.int64)
    for place, sample in enumerate(samples):
        shares = box_overlaps(sample.geometry["bbox"], boxes).tolist() if "bbox" in sample.geometry else []
        overlaps += [(-share, place, number) for number, share in enumerate(shares) if share >= _MIN_OVERLAP]
    taken: dict[int, int] = {}
    for _, place, number in sorted(overlaps):
        if place not in taken and number not in taken.values():
            taken[place] = number
    return [(samples[place].id, lines[number]) for place, number in taken.items()]


def parse_name(text: str) -> tuple[str, Path]:
    """Parse `NAME=PATH`, or a path that names itself; an existing path with a `=` is a path."""
    name, equals, path = text.partition("=")
    if equals and name and path and not Path(text).exists() and not {"/", "\\"} & set(name):
        return name, Path(path)
    whole = Path(text)
    return whole.resolve().name if whole.is_dir() else whole.stem, whole
