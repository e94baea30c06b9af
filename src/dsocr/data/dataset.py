"""Reading a dataset folder: its card, and the samples of each split, with nothing outside the folder within reach."""

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from dsocr.config import RunConfig, problems_in
from dsocr.data.splits import split_of_fold
from dsocr.document import PackedImage, Sample, Split, Unit, parse_points
from dsocr.errors import DataError
from dsocr.io.files import CARD_FILE, inside
from dsocr.text import TextPolicy

if TYPE_CHECKING:
    from dsocr.data.check import Findings

METADATA_FILE = "metadata.jsonl"
FORMAT_VERSION = 1


Store = Literal["files", "parquet"]
"""How a dataset keeps its images: each in a file of its own, or many in a Parquet file."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class SplitCard(_Part):
    """What one split holds, and the hash of it all."""

    samples: int
    writers: int
    pages: int
    documents: int = 0
    characters: int
    sha256: str


class SkippedCard(_Part):
    """How many things of a kind there were, and the first of them."""

    count: int
    examples: list[str]


class FixedCard(_Part):
    """The list that said where some samples must stand: its file's name and hash, and how many names it has."""

    file: str
    sha256: str
    names: int


class Card(_Part):
    """A dataset's provenance and counts.

    `unit` is what a sample is an image of. `split_by` says what is never shared between splits (a unit of grouping, or
    several joined by `+`); "given" ones were the source's own. `stratified` ones were drawn alike in lengths and
    scripts. With `folds` the splits of the folders are those of fold 1. `like` is the earlier dataset whose groups stay
    in their splits. `crossing` counts the writers, documents, pages and texts that stand in more than one split.
    `text_changes` counts, per rule of the text policy, the texts that it changed. `unmatched` counts, per pattern, the
    names it did not match; their samples are kept with an unknown writer, page or document. `remarks` say how the
    source was read where it could have been read otherwise. `repaired` counts, by the codes of findings, what was put
    right afterwards; `fixes.jsonl` lists it all.
    """

    format: Literal["dsocr-dataset"] = "dsocr-dataset"
    format_version: int = FORMAT_VERSION
    dsocr_version: str
    created: str
    source: str
    source_format: str
    unit: Unit = "line"
    writer: str | None
    page: str | None
    document: str | None = None
    split_by: str
    fractions: dict[Split, float] | None
    seed: int | None
    stratified: bool = False
    folds: int | None = None
    fixed: FixedCard | None = None
    like: str | None = None
    text_policy: dict[str, Any]
    store: Store = "files"
    splits: dict[Split, SplitCard]
    crossing: dict[str, int]
    text_changes: dict[str, SkippedCard] = {}
    left_out: dict[str, SkippedCard]
    unmatched: dict[str, SkippedCard]
    remarks: list[str] = []
    repaired: dict[str, SkippedCard] = {}

    def policy(self) -> TextPolicy:
        """What was done to the texts; what an older card does not tell is as it is by default."""
        try:
            return TypeAdapter(TextPolicy).validate_python(self.text_policy)
        except ValidationError as error:
            message = f"the card of the dataset cannot be used: text_policy: {problems_in(error)[0]}"
            raise DataError(message) from error

    def write(self, folder: Path) -> None:
        """Writes `dataset.json`."""
        text = json.dumps(self.model_dump(mode="json"), ensure_ascii=False, indent=2) + "\n"
        (folder / CARD_FILE).write_text(text, encoding="utf-8", newline="\n")


def read_card(folder: Path) -> Card:
    """The card of a dataset folder; an error says what is wrong with it, or that there is none."""
    path = folder / CARD_FILE
    if not path.is_file():
        why = "it has no dataset.json" if folder.is_dir() else "it is a file" if folder.exists() else "it is not there"
        is_config = folder.suffix in (".yaml", ".yml")
        hint = "give the folder that `dataset:` names there" if is_config else "make one with dsocr prepare"
        raise DataError(f"not a dataset folder: {why}", where=folder, hint=hint)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"the card cannot be read: {error}", where=path) from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        message = f"the dataset has format version {version}, and {FORMAT_VERSION} is the newest known here"
        raise DataError(message, where=path, hint="update dsocr")
    try:
        return Card.model_validate(content)
    except ValidationError as error:
        raise DataError(f"not a card of a dataset: {problems_in(error)[0]}", where=path) from error


def split_hash(metadata: bytes, digests: Iterable[str]) -> str:
    """SHA-256 over a split's `metadata.jsonl` and, in its order, the SHA-256 of each image file."""
    whole = SplitHash()
    whole.add(metadata)
    for digest in digests:
        whole.add(b"", digest)
    return whole.hexdigest()


class SplitHash:
    """A split's hash, as `split_hash` says, while it is written."""

    def __init__(self) -> None:
        self._whole = hashlib.sha256()
        self._digests = bytearray()

    def add(self, metadata: bytes, digest: str = "") -> None:
        """What comes next in the metadata, and the next image's hash."""
        self._whole.update(metadata)
        self._digests += bytes.fromhex(digest)

    def hexdigest(self) -> str:
        """The hash of all that was added."""
        whole = self._whole.copy()
        whole.update(self._digests)
        return whole.hexdigest()


SHARDS = "shards"
"""The folder of a dataset that they lie in."""

_HELD_FILES = 16
_HELD_GROUPS = 4
_DAMAGE = (OSError, ValueError, KeyError, IndexError)  # pyarrow's own errors are of these kinds


def shard_files(dataset: Path, split: Split) -> list[Path]:
    """The Parquet files of a split, in order."""
    return sorted((dataset / SHARDS).glob(f"{split}-*.parquet"))


def packed_images(dataset: Path, split: Split) -> dict[str, PackedImage]:
    """File name in the metadata -> where the image of this name lies."""
    found: dict[str, PackedImage] = {}
    for file in shard_files(dataset, split):
        try:
            with pq.ParquetFile(file) as content:
                paths = _field(content.read(columns=["image.path"]), "path")
        except _DAMAGE as error:
            raise DataError(f"the Parquet file cannot be read: {error}", where=file) from error
        found |= {path: PackedImage(file, row) for row, path in enumerate(paths.to_pylist())}
    return found


def read_packed(image: PackedImage) -> bytes:
    """The bytes of the image file; the rows beside it are read with it, and kept for a while."""
    try:
        state = image.file.stat()
        file = _opened(image.file, state.st_mtime_ns, state.st_size)
        group, row = file.find(image.row)
        content: bytes | None = _group(file, group)[row].as_py()
    except _DAMAGE as error:
        raise DataError(f"the image cannot be read: {error}", where=image) from error
    if not content:
        raise DataError("there is no image in this row", where=image)
    return content


class _File:
    """An open Parquet file that knows where its row groups begin."""

    def __init__(self, path: Path) -> None:
        self.content = pq.ParquetFile(path)
        footer = self.content.metadata
        self._sizes = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]

    def find(self, row: int) -> tuple[int, int]:
        """The row group that holds a row, and which of its rows it is."""
        for group, size in enumerate(self._sizes):
            if row < size:
                return group, row
            row -= size
        raise IndexError(f"it has {sum(self._sizes)} rows")


@lru_cache(maxsize=_HELD_FILES)
def _opened(path: Path, changed: int, size: int) -> _File:
    """The file; `changed` and `size` are there so that one that was written anew is not mistaken for the old one."""
    return _File(path)


@lru_cache(maxsize=_HELD_GROUPS)
def _group(file: _File, group: int) -> pa.Array:
    return _field(file.content.read_row_group(group, columns=["image.bytes"]), "bytes")


def _field(table: pa.Table, name: str) -> pa.Array:
    return table.column("image").combine_chunks().field(name)


class PackedFiles:
    """The packed images of a dataset by the names they would have as files, `train/images/a.png`."""

    def __init__(self, dataset: Path) -> None:
        self._dataset = dataset
        self._images: dict[str, dict[str, PackedImage]] = {}

    def read(self, file: str) -> bytes:
        """The image's bytes; nothing where there is none, or none that can be read."""
        split, _, name = file.partition("/")
        try:
            if split not in self._images:
                self._images[split] = packed_images(self._dataset, Split(split))
            return read_packed(self._images[split][name])
        except (DataError, ValueError, KeyError):
            return b""


_FOLDS_HINT = "prepare it with --folds, or ask for no fold"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset folder and its card; samples are read when they are asked for.

    With `fold` the samples are regrouped: this fold is the test, the next one validates, the others train.
    """

    folder: Path
    card: Card
    fold: int | None = None

    @classmethod
    def open(cls, folder: Path, *, fold: int | None = None) -> "Dataset":
        """The dataset in a folder that `prepare` wrote, split as it is there or by one of its folds."""
        card = read_card(folder)
        if fold is not None and card.folds is None:
            raise DataError(f"the dataset has no folds, so none is fold {fold}", where=folder, hint=_FOLDS_HINT)
        if fold is not None and not 1 <= fold <= (card.folds or 0):
            raise DataError(f"the dataset has folds 1 to {card.folds}, and none is fold {fold}", where=folder)
        return cls(folder, card, fold)

    def check(self, *, workers: int | None = None) -> "Findings":
        """Find mistakes in images, texts, pairs and splits; `dsocr.data.check.check_for_base` adds those of a base."""
        from dsocr.data.check import check

        return check(self, workers=workers)

    def samples(self, split: Split, only: Container[str] | None = None) -> list[Sample]:
        """The samples of a split in the order of its metadata; none where the dataset has no such split.

        With `only` those whose ids are in it: in a large dataset a few of them are found far sooner than all.
        """
        return [sample for _, sample in self.numbered(split, only)]

    def numbered(self, split: Split, only: Container[str] | None = None) -> Iterator[tuple[str, Sample]]:
        """Each sample with where it stands: `train/metadata.jsonl:17`."""
        if self.fold is None:
            yield from self.stored(split, only)
            return
        for place in Split:
            for where, sample in self.stored(place, only):
                if sample.split == split:
                    yield where, sample

    def stored(self, split: Split, only: Container[str] | None = None) -> Iterator[tuple[str, Sample]]:
        """Each sample that lies in the folder of a split, whatever its fold makes of it, with where it stands."""
        path = self.metadata(split)
        if not path.is_file():
            if split in self.card.splits:
                raise DataError(f"the card tells of a {split} split, but its metadata is missing", where=path)
            return
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError) as error:
            raise DataError(f"the metadata cannot be read: {error}", where=path) from error
        packed = packed_images(self.folder, split)
        for number, line in enumerate(lines, start=1):
            if line.strip():
                row = _read_row(line, f"{path}:{number}")
                if only is None or f"{split}/{row.file_name}" in only:
                    yield f"{split}/{METADATA_FILE}:{number}", self._sample(split, row, f"{path}:{number}", packed)

    def metadata(self, split: Split) -> Path:
        """Where a split's metadata stands, or would stand."""
        return self.folder / split / METADATA_FILE

    def _split_of(self, fold: int | None, where: str) -> Split:
        assert self.fold is not None
        assert self.card.folds is not None
        if fold is None or not 1 <= fold <= self.card.folds:
            raise DataError(f"fold: must be 1 to {self.card.folds}, not {fold}", where=where)
        return split_of_fold(fold, self.fold, self.card.folds)

    def _sample(self, place: Split, row: "_Row", where: str, packed: Mapping[str, PackedImage]) -> Sample:
        split = place
        try:
            image = packed.get(row.file_name) or inside(self.folder / place, row.file_name)
            geometry = row.geometry()
        except DataError as error:
            raise DataError(error.message, where=where, hint=error.hint) from error
        if self.fold is not None:
            split = self._split_of(row.fold, where)
        return Sample(
            id=f"{place}/{row.file_name}",
            image=image,
            text=row.text,
            split=split,
            writer=row.writer or None,
            page=row.page or None,
            document=row.document or None,
            source=row.source or None,
            fold=row.fold,
            geometry=geometry,
        )


class _Row(BaseModel):
    """A line of `metadata.jsonl`; empty means not known, and columns of the user's own are let be."""

    model_config = ConfigDict(strict=True)

    file_name: str
    text: str
    writer: str | None = None
    page: str | None = None
    document: str | None = None
    source: str | None = None
    bbox: tuple[int, int, int, int] | None = None
    polygon: str | None = None
    baseline: str | None = None
    fold: int | None = None

    def geometry(self) -> dict[str, object]:
        """The geometry that is known."""
        known: dict[str, object] = {"bbox": list(self.bbox)} if self.bbox else {}
        for name, text in (("polygon", self.polygon), ("baseline", self.baseline)):
            if text:
                known[name] = [list(point) for point in parse_points(text)]
        return known


def _read_row(line: str, where: str) -> _Row:
    try:
        return _Row.model_validate_json(line)
    except ValidationError as error:
        raise DataError(problems_in(error)[0], where=where) from error


MANY_WRITERS = 8
"""Writers of the training split from which on one writer after the other is added; below, a writer is too coarse."""


def training_samples(dataset: Dataset, config: RunConfig) -> list[Sample]:
    """The samples to train on, in the dataset's order: all, or `training.max_samples` drawn with the seed."""
    samples, wanted = dataset.samples(Split.TRAIN), config.training.max_samples
    if wanted is None or wanted >= len(samples):
        return samples
    whole_writers = by_whole_writers(samples, {sample.writer for sample in dataset.samples(Split.VALIDATION)})
    chosen = set(nested_order(samples, whole_writers=whole_writers, seed=config.seed)[:wanted])
    return [sample for place, sample in enumerate(samples) if place in chosen]


def by_whole_writers(samples: Sequence[Sample], validation_writers: Collection[str | None]) -> bool:
    """True where fewer samples are to be fewer writers: all are named and many, and validation has none of them.

    Where the model is judged by hands that it has seen, more samples are more of the same hands.
    """
    writers = {sample.writer for sample in samples}
    return None not in writers and len(writers) >= MANY_WRITERS and writers.isdisjoint(validation_writers)


def nested_order(samples: Sequence[Sample], *, whole_writers: bool, seed: int) -> list[int]:
    """The places of all samples in the order in which they join, so that whoever takes more takes the fewer's too.

    With `whole_writers` one writer follows another; else any first part has its share of each writer, or of each page
    where writers are unknown.
    """
    draw = random.Random(seed)  # noqa: S311 - not a secret
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for place, sample in enumerate(samples):
        groups[sample.writer or ("page", sample.page)].append(place)
    members = list(groups.values())
    for group in members:
        draw.shuffle(group)
    if whole_writers:
        draw.shuffle(members)
        return [place for group in members for place in group]
    spread: list[tuple[float, int]] = []
    for group in members:
        start = draw.random()
        spread += [((number + start) / len(group), place) for number, place in enumerate(group)]
    return [place for _, place in sorted(spread)]
