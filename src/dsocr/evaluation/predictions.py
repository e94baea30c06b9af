"""Predictions to compare: from evaluated runs, and from the files that other tools write.

Files are tables, PAGE or ALTO files, or one text file per line. Their predictions are matched with the samples of a
split by name or by position on the page. A column that could hold the reference is never guessed to be the prediction.
"""

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

from dsocr.config import load_run_config
from dsocr.data.dataset import Dataset
from dsocr.data.splits import page_key
from dsocr.document import Box, Outline, PackedImage, Sample, Split
from dsocr.errors import DataError, DsocrError, RunError, typed
from dsocr.evaluation.compare import Comparison, System, compare
from dsocr.evaluation.evaluate import open_scored_dataset, require_samples
from dsocr.evaluation.page_scores import read_pages, score_pages, written_pages
from dsocr.evaluation.scorecard import Scorecard
from dsocr.evaluation.scores import LineScore, first_few, load_lines, score_lines, writer_statuses
from dsocr.evaluation.statistics import clusters_of
from dsocr.formats.alto import find_alto, parse_alto
from dsocr.formats.page import find_page, parse_page
from dsocr.formats.tables import USUAL_NAMES, read_rows
from dsocr.formats.xml import parse_xml
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import read_text, text_encoding
from dsocr.io.files import list_files, relative
from dsocr.runs import RunFolder, to_json
from dsocr.text import TextPolicy

TEXT_COLUMNS = ("prediction", "predicted", "pred", "prediction_text", "hypothesis", "hyp", "output", "text")
"""Usual columns of predictions, in order of preference; `label` and the like hold references."""

ID_COLUMNS = ("id", *USUAL_NAMES["image"])

Missing = Literal["error", "empty"]
"""What to do with a line without a prediction: reject the file, or count an empty prediction."""

_TABLE_SUFFIXES = frozenset({".jsonl", ".tsv", ".csv"})
_TRUE = frozenset({"true", "1", "yes"})

_MIN_OVERLAP = 0.5
"""Intersection over union from which two boxes are the same line."""

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character, which JSON can express and UTF-8 cannot."""


@dataclass(frozen=True, slots=True)
class FoundPrediction:
    """A prediction in a file: its location there, the name of its line, and the line's page and outline if known.

    `parts` are the predictions that were joined to make it.
    """

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
    if not path.exists():
        raise DataError("no such file or folder", code="no-such-file", where=path)
    is_table = path.suffix.lower() in _TABLE_SUFFIXES and path.is_file()
    if columns and not is_table:
        raise DataError("columns can only be named for a table", code="not-a-table", where=path)
    found = _read_table(path, columns or {}) if is_table else _read_pages(path) or _read_texts(path)
    if found is None:
        hint = "give a .jsonl, .tsv or .csv file, or a folder of PAGE, ALTO or .txt files"
        raise DataError("cannot be read as predictions", code="unknown-format", where=path, hint=hint)
    if not found.predictions:
        raise DataError("has no predictions", code="no-predictions", where=path)
    return found


def _read_table(path: Path, columns: Mapping[str, str]) -> PredictionFile:
    if unknown := sorted(columns.keys() - {"id", "text"}):
        message = f"unknown column role {unknown[0]!r}; the roles are: id, text"
        raise DataError(message, code="unknown-column-role", where=path)
    header, rows = read_rows(path, columns)
    id_, text = (_find_column(path, header, role, columns) for role in ("id", "text"))
    predictions = []
    for number, cells in rows:
        for column in (id_, text):
            if column not in cells:
                raise DataError(f"has no value for {column!r}", code="value-missing", where=f"{path}:{number}")
        truncated = cells.get("truncated", "").strip().lower() in _TRUE
        predictions.append(FoundPrediction(f"{path.name}:{number}", cells[id_].strip(), cells[text], truncated))
    return PredictionFile(path, predictions, f"columns {id_} and {text}")


def _find_column(path: Path, header: Sequence[str], role: str, columns: Mapping[str, str]) -> str:
    """Return the named column for a role, else a usual one; without a header the first two columns."""
    by_lower = {name.strip().lower(): name for name in reversed(header)}
    usual = ("1", *ID_COLUMNS) if role == "id" else ("2", *TEXT_COLUMNS)
    candidates = [columns[role].lower()] if role in columns else usual
    found = next((by_lower[name] for name in candidates if name in by_lower), None)
    if found is None:
        wanted = f"column {columns[role]!r}" if role in columns else f"known column for the {role} of a line"
        message, hint = f"there is no {wanted}; the columns are: {', '.join(header)}", f"name it: --column {role}=NAME"
        raise DataError(message, code="column-missing", where=path, hint=hint)
    return found


def _read_pages(path: Path) -> PredictionFile | None:
    folder = path.parent if path.is_file() else path
    found = {"PAGE": find_page(folder), "ALTO": find_alto(folder)}
    found = {name: own for name, files in found.items() if (own := [file for file in files if path in (folder, file)])}
    if not found:
        return None
    if len(found) > 1:
        message = " and ".join(f"{len(files)} {name}" for name, files in found.items())
        hint = "give a folder with one format"
        raise DataError(f"the folder has both {message} files", code="mixed-formats", where=path, hint=hint)
    ((name, files),) = found.items()
    parse = {"PAGE": parse_page, "ALTO": parse_alto}[name]
    predictions = []
    for file in files:
        page = relative(file.with_suffix(""), folder)
        for line in parse(parse_xml(file), relative(file, folder)).lines:
            predictions.append(FoundPrediction(line.where, line.id, line.text, page=page, outline=line.outline))
    return PredictionFile(path, predictions, f"{len(files)} {name} files", has_positions=True)


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


@dataclass(frozen=True, slots=True)
class MatchedText:
    """The prediction for a sample."""

    text: str
    truncated: bool = False
    looping: bool = False


class MatchedPredictions(NamedTuple):
    """A prediction for each sample by id, and notes on everything unusual."""

    texts: Mapping[str, MatchedText]
    notes: Sequence[str]


def match(
    file: PredictionFile, samples: Sequence[Sample], policy: TextPolicy, *, missing: Missing
) -> MatchedPredictions:
    """Match predictions with samples, and apply the dataset's text policy to them.

    Raises DataError if a sample has no prediction, unless `missing` is "empty"; if it has two different ones; and if
    nothing matches.
    """
    pairs, how = (_match_by_position if file.has_positions else _match_by_name)(file, samples)
    by_sample: dict[str, FoundPrediction] = {}
    repeated = 0
    for sample_id, found in pairs:
        first = by_sample.setdefault(sample_id, found)
        if first is not found:
            repeated += 1
            if first.text != found.text:
                message = f"{first.where} and {found.where} are different predictions for {sample_id}"
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
        hint = "--missing empty counts them as empty predictions"
        raise DataError(message, code="prediction-missing", where=file.path, hint=hint)
    decoded = {id_: _SURROGATE.sub("\ufffd", found.text) for id_, found in by_sample.items()}
    texts = {id_: MatchedText(policy.apply(decoded[id_]), found.truncated) for id_, found in by_sample.items()}
    used = {id(part) for _, found in pairs for part in (found, *found.parts)}
    unused = [found.where for found in file.predictions if id(found) not in used]
    counts = {
        f"predictions match no line and are not used: {first_few(unused, 5)}": len(unused),
        f"lines have no prediction and count as empty: {first_few(absent, 5)}": len(absent),
        "predictions are identical duplicates": repeated,
        "predictions are empty": sum(not text.text for text in texts.values()),
        "predictions have an invalid character, read as \ufffd": sum(
            decoded[id_] != found.text for id_, found in by_sample.items()
        ),
        "predictions were changed by the dataset's text policy": sum(texts[id_].text != decoded[id_] for id_ in texts),
        "predictions are not in NFC, as the references are": sum(
            not unicodedata.is_normalized("NFC", found.text) for found in by_sample.values()
        ),
    }
    notes = [file.source, f"{how}: {len(by_sample)} of {len(samples)} lines"]
    notes += [f"{count} {what}" for what, count in counts.items() if count]
    return MatchedPredictions(texts | {id_: MatchedText("") for id_ in absent}, notes)


_Pairs = list[tuple[str, FoundPrediction]]


def _normalize_name(name: str) -> str:
    return unicodedata.normalize("NFC", name).replace("\\", "/").removeprefix("./")


def _stem(name: str) -> str:
    path = PurePosixPath(name)
    return path.stem if path.suffix.lower() in IMAGE_SUFFIXES else path.name


_NAME_KEYS: Mapping[str, Callable[[str], str]] = {
    "by id": lambda name: name,
    "by id without suffix": lambda name: str(PurePosixPath(name).with_name(_stem(name))) if name else "",
    "by file name": lambda name: PurePosixPath(name).name,
    "by file name without suffix": _stem,
}


def _match_by_name(file: PredictionFile, samples: Sequence[Sample]) -> tuple[_Pairs, str]:
    """Match by the kind of name that matches most predictions without ambiguity."""
    best: tuple[_Pairs, str] = ([], "by id")
    for how, key in _NAME_KEYS.items():
        by_key: dict[str, list[str]] = defaultdict(list)
        for sample in samples:
            by_key[key(_normalize_name(sample.id))].append(sample.id)
        named = [(by_key.get(key(_normalize_name(found.name)), []), found) for found in file.predictions]
        if any(len(ids) > 1 for ids, _ in named):
            continue  # two folders have the same name
        pairs = [(ids[0], found) for ids, found in named if ids]
        if len(pairs) > len(best[0]):
            best = pairs, how
    return best


def _match_by_position(file: PredictionFile, samples: Sequence[Sample]) -> tuple[_Pairs, str]:
    """Match by page, and on it by bounding box."""
    pages: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        pages[_page_name(sample)].append(sample)
    found_pages: dict[str, list[FoundPrediction]] = defaultdict(list)
    for found in file.predictions:
        found_pages[_normalize_name(found.page or "")].append(found)
    pairs: _Pairs = []
    for page, lines in found_pages.items():
        stem = PurePosixPath(page).name
        same = [page] if page in pages else [name for name in pages if PurePosixPath(name).name == stem]
        if len(same) > 1:
            message = f"{len(same)} pages of the dataset are called {stem}"
            hint = "put the files into folders like those of the dataset's source"
            raise DataError(message, code="page-ambiguous", where=file.path, hint=hint)
        if same:
            pairs += _match_on_page(pages[same[0]], lines)
    return pairs, "by page and position"


def _page_name(sample: Sample) -> str:
    """Return the source file of the sample's page without its suffix, else the page's name."""
    file = (sample.source or "").rpartition(":")[0]
    return _normalize_name(str(PurePosixPath(file).with_suffix("")) if file else sample.page or "")


def _match_on_page(samples: Sequence[Sample], lines: Sequence[FoundPrediction]) -> _Pairs:
    """Pair samples and lines one to one, largest overlap first; a sample that is a whole page takes all lines."""
    if len(samples) == 1 and "bbox" not in samples[0].geometry:
        joined = "\n".join(line.text for line in lines if line.text.strip())
        return [(samples[0].id, FoundPrediction(lines[0].where, lines[0].name, joined, parts=tuple(lines)))]
    overlaps = [
        (-_overlap(tuple(sample.geometry["bbox"]), line.outline.box), place, number)
        for place, sample in enumerate(samples)
        for number, line in enumerate(lines)
        if "bbox" in sample.geometry and line.outline
    ]
    taken: dict[int, int] = {}
    for overlap, place, number in sorted(overlaps):
        if -overlap >= _MIN_OVERLAP and place not in taken and number not in taken.values():
            taken[place] = number
    return [(samples[place].id, lines[number]) for place, number in taken.items()]


def _overlap(one: Box, other: Box) -> float:
    """Return the intersection over union of two boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    return both / ((one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - both)


def parse_name(text: str) -> tuple[str, Path]:
    """Parse `NAME=PATH`, or a path that names itself; an existing path with a `=` is a path."""
    name, equals, path = text.partition("=")
    if equals and name and path and not Path(text).exists() and not {"/", "\\"} & set(name):
        return name, Path(path)
    whole = Path(text)
    return whole.resolve().name if whole.is_dir() else whole.stem, whole


def compare_paths(
    paths: Sequence[str],
    *,
    base: bool = False,
    dataset: Path | None = None,
    split: Split | None = None,
    missing: Missing = "error",
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    pages: bool = False,
    pool_seeds: bool = False,
) -> Comparison:
    """Compare evaluated runs and files of predictions, each given as `NAME=PATH` or a path.

    A single run gives its base and its adapter; `base` puts the first run's base before the others. Predictions are
    scored on the split of `dataset`, by default the one the first run was evaluated on. With `pages`, whole pages are
    compared, and predictions may have any lines. `pool_seeds` makes one system of runs that differ in seed alone.
    Raises DsocrError if something cannot be read, or runs were evaluated on different lines.
    """
    named = [parse_name(text) for text in paths]
    for _, path in named:
        if not path.exists():
            hint = "give run folders, or files or folders of predictions"
            raise DataError("no such file or folder", code="no-such-file", where=path, hint=hint)
    runs = {path: _EvaluatedRun.open(path) for _, path in named if RunFolder(path).config.is_file()}
    first = next(iter(runs.values()), None)
    if base and first is None:
        raise DataError("--base needs a run folder whose base to compare with", code="no-run")
    has_files = any(path not in runs for _, path in named)
    opened = _open_dataset(dataset, first, required=has_files)
    split = split or (Split(first.card.split) if first else Split.TEST)
    for run in runs.values():
        run.require_same_split(split, opened, first, check_dataset=has_files or dataset is not None)
    alone = len(named) == 1 and first is not None
    systems = [first.system("base", "base")] if first and (base or alone) else []
    with text_encoding(encoding):
        for name, path in named:
            if path in runs:
                systems.append(runs[path].system("adapter" if alone else name, "adapter"))
            else:
                assert opened is not None
                score = _score_page_file if pages else _score_file
                systems.append(score(name, path, opened, split, missing, columns))
    images, about = _describe(opened, split, systems)
    if first is not None:
        about["sha256"] = first.card.dataset.get(split)  # as it was scored; it can have changed since
    if pages:
        of_runs = {system.name for system in systems if system.trained or system.name == "base"}
        systems = [replace(one, lines=read_pages(one.lines)) if one.name in of_runs else one for one in systems]
        systems = _whole_pages(systems, opened, split)
    if pool_seeds:
        systems = pool_trainings(systems, {name: _settings_without_seed(path) for name, path in named if path in runs})
        read = {line.id: line.id.partition(_SEED_MARK)[0] for line in systems[0].lines}
        images = {id_: images[name] for id_, name in read.items() if name in images}
    return compare(systems, images=images, about=about, pages=pages)


_SEED_MARK = " (seed "


def _settings_without_seed(run: Path) -> str:
    settings = load_run_config(RunFolder(run).config).model_dump(mode="json")
    return to_json({name: value for name, value in settings.items() if name not in {"seed", "output"}})


def pool_trainings(systems: Sequence[System], settings: Mapping[str, str]) -> list[System]:
    """Make one system of runs with the same settings by name; all others count as often, so that lines stay paired.

    A line of the pooled system has the name of the line and the place of the training. Raises DataError if no two runs
    differ in seed alone, or lines have neither writers nor pages, by which an interval counts several readings once.
    """
    groups: dict[str, list[System]] = {}
    for system in systems:
        groups.setdefault(settings.get(system.name, system.name), []).append(system)
    if all(len(group) == 1 for group in groups.values()):
        hint = "their configurations may differ in `seed` and `output` only"
        raise DataError("no two runs differ in seed alone", code="seeds-none", hint=hint)
    if clusters_of(systems[0].lines).unit == "line":
        message = "seeds cannot be pooled where fewer than five writers and five pages are known"
        raise DataError(message, code="seeds-without-clusters", hint="name writers: prepare --writer")
    times = math.lcm(*(len(group) for group in groups.values()))
    pooled = []
    for group in groups.values():
        lines = [
            replace(line, id=f"{line.id}{_SEED_MARK}{turn + 1})")
            for turn in range(times)
            for line in group[turn % len(group)].lines
        ]
        if len(group) == 1:
            pooled.append(replace(group[0], lines=lines))
            continue
        cers = [one.score.cer.rate for one in group]
        notes = [f"{len(group)} seeds", *(note for one in group for note in one.notes)]
        pooled.append(System(f"{group[0].name} ({len(group)} seeds)", lines, notes, seeds=cers))
    return pooled


@dataclass(frozen=True, slots=True)
class _EvaluatedRun:
    path: Path
    card: Scorecard
    lines: Mapping[str, list[LineScore]]

    @classmethod
    def open(cls, path: Path) -> "_EvaluatedRun":
        run = RunFolder(path)
        return cls(path, Scorecard.load(run.scorecard), load_lines(run.lines))

    def require_same_split(
        self, split: Split, dataset: Dataset | None, first: "_EvaluatedRun | None", *, check_dataset: bool
    ) -> None:
        """Raise RunError unless the run was evaluated on this split, with the same content.

        The content is the first run's, or with `check_dataset` what the dataset has now.
        """
        hint = f"dsocr evaluate {typed(self.path.as_posix())}"
        if dataset is not None:
            hint += f" --dataset {dataset.folder.as_posix()}"
        hint += f" --split {split}"
        if self.card.split != split:
            message = f"was evaluated on the {self.card.split} split, not on {split}"
            raise RunError(message, code="other-split", where=self.path, hint=hint)
        other = first.card.dataset.get(split) if first else None
        if check_dataset and dataset is not None and split in dataset.card.splits:
            other = dataset.card.splits[split].sha256
        own = self.card.dataset.get(split)
        if own is not None and other is not None and own != other:
            message = f"was evaluated on another dataset: its {split} split has the hash {own[:12]}, not {other[:12]}"
            raise RunError(message, code="other-dataset", where=self.path, hint=hint)

    def system(self, name: str, model: str) -> System:
        if model not in self.lines:
            hint = f"dsocr evaluate {typed(self.path.as_posix())}, without --no-base"
            raise RunError(f"was evaluated without its {model}", code="no-base", where=self.path, hint=hint)
        limit = self.card.settings.get("limit")
        notes = [f"run {self.path.as_posix()}, {model}, scored {self.card.created_at}"]
        notes += [f"only the first {limit} lines were read"] if limit else []
        return System(name, self.lines[model], notes, trained=model == "adapter")


def _open_dataset(folder: Path | None, first: _EvaluatedRun | None, *, required: bool) -> Dataset | None:
    """Open the named dataset, else that of the first run; None if that is gone and not required."""
    if folder is not None:
        return Dataset.open(folder, fold=first.card.settings.get("fold") if first else None)
    if first is None:
        hint = "name a dataset: --dataset FOLDER --split test"
        raise DataError("there is nothing to score predictions against", code="no-dataset", hint=hint)
    try:
        return open_scored_dataset(RunFolder(first.path), first.card)
    except DsocrError as error:
        if not required:
            return None
        message = "its dataset has moved, so predictions cannot be scored"
        raise DataError(message, code="no-dataset", where=first.path, hint="name it: --dataset FOLDER") from error


def _score_file(
    name: str, path: Path, dataset: Dataset, split: Split, missing: Missing, columns: Mapping[str, str] | None
) -> System:
    samples = require_samples(dataset, split)
    texts, notes = match(read_predictions(path, columns), samples, dataset.card.policy(), missing=missing)
    trained = {sample.writer for sample in dataset.samples(Split.TRAIN)}
    statuses = writer_statuses(trained, [sample.writer for sample in samples])
    return System(name, score_lines(samples, texts, statuses), [f"predictions {path.as_posix()}", *notes])


def _score_page_file(
    name: str, path: Path, dataset: Dataset, split: Split, missing: Missing, columns: Mapping[str, str] | None
) -> System:
    """Score the pages of a tool that found its own lines: files of PAGE, ALTO or text, or a table of page and text."""
    file, samples = read_predictions(path, columns), require_samples(dataset, split)
    statuses = writer_statuses({one.writer for one in dataset.samples(Split.TRAIN)}, [one.writer for one in samples])
    pages = written_pages(score_lines(samples, {one.id: MatchedText("") for one in samples}, statuses))
    policy = dataset.card.policy()
    names: dict[str, str] = {}
    for sample in samples:
        key = str(page_key(sample.document, sample.page))
        names |= {_normalize_name(_page_name(sample)): key, PurePosixPath(_page_name(sample)).name: key}
    texts: dict[str, list[str]] = {}
    unused: list[str] = []
    for found in file.predictions:
        page = _normalize_name(found.page or found.name)
        place = names.get(page) or names.get(_stem(page)) or names.get(PurePosixPath(page).name)
        if place is None:
            unused.append(found.where)
        else:
            texts.setdefault(place, []).append(policy.apply(_SURROGATE.sub("\ufffd", found.text)))
    notes = [f"predictions {path.as_posix()}", file.source, f"by page: {len(texts)} of {len(pages)} pages"]
    notes += [f"{len(unused)} predictions match no page and are not used: {first_few(unused, 5)}"] if unused else []
    if missing == "empty":
        texts = {key: [] for key in pages} | texts
    return System(name, score_pages(pages, {key: "\n".join(own) for key, own in texts.items()}), notes)


def _whole_pages(systems: Sequence[System], dataset: Dataset | None, split: Split) -> list[System]:
    """Leave out pages with lines in another split too, of which a tool reads more than the references have."""
    if dataset is None:
        return list(systems)
    others = [one for other in Split if other != split for one in dataset.samples(other)]
    divided = {page_key(one.document, one.page) for one in others}
    count = sum(line.page in divided for line in systems[0].lines)
    note = [f"{count} pages have lines in another split and are left out"] if count else []
    return [
        replace(one, lines=[line for line in one.lines if line.page not in divided], notes=[*one.notes, *note])
        for one in systems
    ]


def _describe(
    dataset: Dataset | None, split: Split, systems: Sequence[System]
) -> tuple[dict[str, Path | PackedImage], dict[str, Any]]:
    """Return the images of lines that the dataset still has as they were scored, and what was scored."""
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
