"""A dataset folder: its card, the report of preparing it, and reading and writing its samples.

Nothing outside the folder is opened.
"""

import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from dsocr.config import RunConfig, problems_in
from dsocr.data.splits import page_key, split_of_fold
from dsocr.document import (
    Item,
    Note,
    PackedImage,
    Page,
    Sample,
    SampleUnit,
    Skipped,
    SkipReason,
    Split,
    parse_points,
)
from dsocr.errors import DataError, option
from dsocr.images import SHARDS_FOLDER, packed_images, read_bytes
from dsocr.io.encodings import reading_json, writable
from dsocr.io.files import CARD_FILE, FIXES_FILE, inside, is_dataset, link_or_copy
from dsocr.io.work import require_free_output
from dsocr.runs import to_json
from dsocr.text import TextPolicy

if TYPE_CHECKING:
    from dsocr.formats.parquet import ShardWriter

METADATA_FILE = "metadata.jsonl"
SOURCES_FILE = "sources.jsonl"
IMAGES_FOLDER = "images"
SKIPPED_FILE = "skipped.jsonl"
FORMAT_VERSION = 1

MAX_EXAMPLES = 10
"""Examples of each kind in a card."""

MAX_CHARACTERS = 100_000
"""Of the text of a line or page; a megabyte of text costs its rules a minute."""

Store = Literal["files", "parquet"]
"""Whether images are files of their own or rows of Parquet files."""


class CountCard(BaseModel):
    """A count and the first examples, as cards store them."""

    count: int
    examples: list[str]


def count_example(cards: dict[str, CountCard], kind: str, example: str) -> None:
    """Count one more of a kind; the first examples are kept."""
    card = cards.setdefault(kind, CountCard(count=0, examples=[]))
    card.count += 1
    if len(card.examples) < MAX_EXAMPLES:
        card.examples.append(example)


@dataclass
class SourceReport:
    """Events while a source was read: items skipped, names unmatched, texts changed, notes for the user.

    `names` counts the images of each writer, page and document that a pattern found, `text_changes` the changes by each
    rule of the text policy, `tagged` the lines that the source records as struck out or unclear, `reused` the pages
    whose crops of an earlier run were used again; `reshaped` has the places of outlines by what was done to them. With
    `strict` the first fault is raised as a DataError instead.
    """

    strict: bool = False
    skipped: list[Skipped] = field(default_factory=list)
    unmatched: dict[str, CountCard] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    reshaped: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    names: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    text_changes: dict[str, CountCard] = field(default_factory=dict)
    tagged: Counter[str] = field(default_factory=Counter)
    pages: int = 0
    reused: int = 0

    def skip(self, item: Skipped) -> None:
        """Record a skipped item."""
        if self.strict and item.reason.is_fault:
            code = item.reason.name.lower().replace("_", "-")
            raise DataError(f"{item.reason}: {item.message}", code=code, where=item.where)
        self.skipped.append(replace(item, where=writable(item.where), message=writable(item.message)))

    def note(self, message: str) -> None:
        """Record something that is no fault but worth knowing."""
        self.notes.append(message)

    def missing_images(self, total: int) -> str:
        """The number of missing images beside `total` others, as a sentence; empty if none is missing."""
        missing = sum(item.reason is SkipReason.NO_IMAGE for item in self.skipped)
        return f"{missing} of {missing + total} images not found" if missing else ""

    def filter_pages(self, items: Iterable[Item]) -> Iterator[Page]:
        """The pages among a source's items; the rest is recorded."""
        for item in items:
            if isinstance(item, Skipped):
                self.skip(item)
            elif isinstance(item, Note):
                self.note(item.message)
            else:
                lines = []
                for line in item.lines:
                    if len(line.text) > MAX_CHARACTERS:
                        message = f"the text has {len(line.text):,} characters, and the limit is {MAX_CHARACTERS:,}"
                        self.skip(Skipped(SkipReason.BAD_SOURCE, line.where, message))
                    else:
                        lines.append(line)
                yield replace(item, lines=tuple(lines))

    def skipped_card(self) -> dict[str, CountCard]:
        """Skipped items by reason, as cards store them."""
        cards: dict[str, CountCard] = {}
        for item in self.skipped:
            count_example(cards, str(item.reason), f"{item.where}: {item.message}")
        return cards

    def explain_empty(self) -> str:
        """The reasons why items were skipped, to follow a message that nothing is left."""
        if not self.skipped:
            return ": the source has none"
        counts = Counter(item.reason for item in self.skipped)
        reasons = "".join(f"\n  {count} x {reason}" for reason, count in counts.most_common())
        first = self.skipped[0]
        return f"; skipped:{reasons}\n  first: {first.where}: {first.message}"


class SplitCard(BaseModel):
    """Counts of a split, and the hash of its metadata and images."""

    model_config = ConfigDict(frozen=True)

    samples: int
    writers: int
    pages: int
    documents: int = 0
    characters: int
    sha256: str


class FixedListCard(BaseModel):
    """The list of names whose split was fixed."""

    model_config = ConfigDict(frozen=True)

    file: str
    sha256: str
    names: int


class Card(BaseModel):
    """Provenance and counts of a dataset, stored in `dataset.json`.

    A sample is an image of a `unit`, of a region with at most `lines_per_region` lines; `regions` are the types of
    regions whose lines were taken. `split_by` is the unit or units that no two splits share ("given": the splits are
    the source's own). `stratified` splits have similar lengths and scripts. With `folds`, the folders are split by
    fold 1. `like` is the earlier dataset whose splits were kept. `crossing` counts the writers, documents, pages and
    texts in more than one split. `text_changes` counts the texts that each rule of the text policy changed, `skipped`
    the lines of the source that are not in the dataset, and `unmatched` the names that a pattern did not match; their
    samples have no writer, page or document. `repaired` counts the fixes made afterwards, listed in `fixes.jsonl`.
    `manifests` are those of a IIIF or METS source: `id`, `label`, `rights` and `attribution`.
    """

    model_config = ConfigDict(frozen=True)

    format: Literal["dsocr-dataset"] = "dsocr-dataset"
    format_version: int = FORMAT_VERSION
    dsocr_version: str
    created: str
    source: str
    source_format: str
    unit: SampleUnit = "line"
    lines_per_region: int | None = None
    regions: list[str] = []
    writer: str | None
    page: str | None
    document: str | None = None
    split_by: str
    fractions: dict[Split, float] | None
    seed: int | None
    stratified: bool = False
    folds: int | None = None
    fixed: FixedListCard | None = None
    like: str | None = None
    text_policy: dict[str, Any]
    store: Store = "files"
    splits: dict[Split, SplitCard]
    crossing: dict[str, int]
    text_changes: dict[str, CountCard] = {}
    skipped: dict[str, CountCard]
    unmatched: dict[str, CountCard]
    notes: list[str] = []
    repaired: dict[str, CountCard] = {}
    manifests: list[dict[str, str]] = []

    @property
    def hashes(self) -> dict[str, str]:
        """The hash of each split, by its name."""
        return {split.value: part.sha256 for split, part in self.splits.items()}

    def policy(self) -> TextPolicy:
        """The text policy; settings that the card lacks have their defaults."""
        try:
            return TypeAdapter(TextPolicy).validate_python(self.text_policy)
        except ValidationError as error:
            message = f"the text policy in the card is invalid: {problems_in(error)[0]}"
            raise DataError(message, code="bad-card") from error

    def write(self, folder: Path) -> None:
        """Write `dataset.json`."""
        text = to_json(self.model_dump(mode="json"))
        (folder / CARD_FILE).write_text(text, encoding="utf-8", newline="\n")


def read_card(folder: Path) -> Card:
    """Read and validate the card of a dataset folder."""
    path = folder / CARD_FILE
    if not path.is_file():
        why = (
            "it has no dataset.json" if folder.is_dir() else "it is a file" if folder.exists() else "it does not exist"
        )
        is_config = folder.suffix in (".yaml", ".yml")
        hint = "pass the folder that `dataset:` names in it" if is_config else "create one with `dsocr prepare`"
        raise DataError(f"not a dataset folder: {why}", code="not-a-dataset", where=folder, hint=hint)
    with reading_json(path, DataError, "bad-card", message="the card cannot be read") as content:
        version = content.get("format_version") if isinstance(content, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        message = f"unsupported format version {version} (this release reads {FORMAT_VERSION})"
        raise DataError(message, code="format-version", where=path, hint="update dsocr")
    try:
        return Card.model_validate(content)
    except ValidationError as error:
        raise DataError(f"the card is invalid: {problems_in(error)[0]}", code="bad-card", where=path) from error


def split_hash(metadata: bytes, image_hashes: Iterable[str]) -> str:
    """SHA-256 over a split's `metadata.jsonl`, followed by the SHA-256 of each of its images in order."""
    return hashlib.sha256(metadata + bytes.fromhex("".join(image_hashes))).hexdigest()


@dataclass(frozen=True, slots=True, repr=False)
class Dataset:
    """A dataset folder and its card; samples are read when needed.

    With `fold`, samples are regrouped: this fold is the test split, the next one validates, the others train. `report`
    lists skipped and changed items of `prepare`; it is empty for a dataset that was opened.
    """

    folder: Path
    card: Card
    fold: int | None = None
    report: SourceReport = field(default_factory=SourceReport, compare=False)

    @classmethod
    def open(cls, folder: str | Path, *, fold: int | None = None) -> "Dataset":
        """Open a folder written by `prepare`, with its own splits or those of one of its folds."""
        folder = Path(folder)
        card = read_card(folder)
        if fold is not None and card.folds is None:
            hint = f"prepare it with {option('folds', ...)}, or do not select a fold"
            raise DataError("the dataset has no folds", code="no-folds", where=folder, hint=hint)
        if fold is not None and not 1 <= fold <= (card.folds or 0):
            message = f"fold {fold} does not exist; the dataset has folds 1 to {card.folds}"
            raise DataError(message, code="bad-fold", where=folder)
        return cls(folder, card, fold)

    def to_dict(self) -> dict[str, Any]:
        """Return the folder and the card in JSON's types."""
        return {"dataset": str(self.folder), **self.card.model_dump(mode="json")}

    def __iter__(self) -> Iterator[Sample]:
        for split in Split:
            yield from (sample for _, sample in self.numbered(split))

    def __len__(self) -> int:
        return sum(part.samples for part in self.card.splits.values())

    def samples(self, split: str, only: Container[str] | None = None) -> list[Sample]:
        """The samples of a split in the order of its metadata; empty if the dataset has no such split.

        With `only`, those with an id in it, which is much faster for a few samples of a large dataset.
        """
        return [sample for _, sample in self.numbered(Split(split), only)]

    def numbered(
        self, split: Split, only: Container[str] | None = None, *, may_be_short: bool = False
    ) -> Iterator[tuple[str, Sample]]:
        """Each sample of a split with its place, such as `train/metadata.jsonl:17`; see `stored`."""
        for folder in [split] if self.fold is None else Split:
            stored = self.stored(folder, only, may_be_short=may_be_short)
            yield from ((where, sample) for where, sample in stored if sample.split == split)

    def stored(
        self, split: Split, only: Container[str] | None = None, *, may_be_short: bool = False
    ) -> Iterator[tuple[str, Sample]]:
        """Each sample in the folder of a split, with its place, in any split that its fold puts it in.

        Raises DataError where fewer are left than the card counts, unless `may_be_short`.
        """
        path = self.metadata(split)
        if not path.is_file():
            if split in self.card.splits:
                message = f"the metadata of the {split} split is missing"
                raise DataError(message, code="metadata-missing", where=path)
            return
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError) as error:
            raise DataError(f"the metadata cannot be read: {error}", code="bad-metadata", where=path) from error
        packed, rows = packed_images(self.folder, split), 0
        for number, line in enumerate(lines, start=1):
            if line.strip():
                rows += 1
                where = f"{path}:{number}"
                try:
                    row = _MetadataRow.model_validate_json(line)
                except ValidationError as error:
                    raise DataError(problems_in(error)[0], code="bad-metadata", where=where) from error
                if only is None or f"{split}/{row.file_name}" in only:
                    yield f"{split}/{METADATA_FILE}:{number}", self._sample(split, row, where, packed)
        if only is None and not may_be_short and (lost := self.lost(split, rows)):
            message = f"{lost} of {rows + lost} samples of the {split} split are missing"
            hint = f"prepare the dataset again, or copy the rest with `dsocr check` and {option('fix')}"
            raise DataError(message, code="metadata-short", where=path, hint=hint)

    def lost(self, split: Split, rows: int) -> int:
        """How many samples a split with so many rows of metadata has lost since the card was written."""
        card = self.card.splits.get(split)
        return max(0, card.samples - rows) if card else 0

    def metadata(self, split: Split) -> Path:
        """The path of a split's metadata, whether or not it exists."""
        return self.folder / split / METADATA_FILE

    def _sample(self, folder: Split, row: "_MetadataRow", where: str, packed: Mapping[str, PackedImage]) -> Sample:
        try:
            image = packed.get(row.file_name) or inside(self.folder / folder, row.file_name)
            drawn = {"polygon": row.polygon, "baseline": row.baseline}
            points = {name: [list(point) for point in parse_points(text)] for name, text in drawn.items() if text}
        except DataError as error:
            raise DataError(error.message, code=error.code, where=where, hint=error.hint) from error
        split = folder
        if self.fold is not None:
            folds = self.card.folds or 0
            if row.fold is None or not 1 <= row.fold <= folds:
                raise DataError(f"fold: must be 1 to {folds}, not {row.fold}", code="bad-fold", where=where)
            split = split_of_fold(row.fold, self.fold, folds)
        names: dict[str, Any] = {name: getattr(row, name) or None for name in ("writer", "page", "document", "source")}
        return Sample(
            id=f"{folder}/{row.file_name}",
            image=image,
            text=row.text,
            split=split,
            fold=row.fold,
            page_xml=row.page_xml,
            geometry={"bbox": list(row.bbox), **points} if row.bbox else points,
            aligned=float(row.aligned) if row.aligned else None,
            **names,
        )

    def __str__(self) -> str:
        rows = [
            f"{name:<12}{part.samples:>9}{part.writers:>9}{part.pages:>8}" for name, part in self.card.splits.items()
        ]
        return "\n".join([str(self.folder), f"{'split':<12}{'samples':>9}{'writers':>9}{'pages':>8}", *rows])

    def __repr__(self) -> str:
        sizes = [part.samples for part in self.card.splits.values()]
        if self.fold is not None:  # the card has the sizes of the first fold
            return f"Dataset({self.folder}: fold {self.fold} of {sum(sizes)} {self.card.unit}s)"
        return f"Dataset({self.folder}: {'/'.join(map(str, sizes))} {self.card.unit}s)"

    def _repr_html_(self) -> str:
        """The same table, shown by notebooks."""
        return f"<pre>{escape(str(self))}</pre>"


class _MetadataRow(BaseModel):
    """A line of `metadata.jsonl`; an empty string means unknown, and additional columns are ignored."""

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
    aligned: Annotated[str, Field(pattern=r"^(0\.\d+|1\.0+)?$")] | None = None
    page_xml: str = ""


class SplitWriter:
    """Writes the images and metadata of a split, one sample at a time."""

    def __init__(self, dataset: Path, split: Split, store: Store = "files") -> None:
        self._dataset, self._split = dataset, split
        self._is_packed = store == "parquet"
        self._shards: ShardWriter | None = None
        images = dataset / SHARDS_FOLDER if self._is_packed else dataset / split / IMAGES_FOLDER
        (dataset / split).mkdir()
        images.mkdir(exist_ok=True)
        self._metadata = (dataset / split / METADATA_FILE).open("wb")
        self._image_hashes: list[str] = []
        self._characters = 0
        self._writers, self._pages, self._documents = set[str](), set[str](), set[str]()

    def add(self, row: Mapping[str, Any], image: Path | bytes, sha256: str) -> None:
        """Write a row of the metadata and its image; a file becomes a hard link where possible."""
        target = self._dataset / self._split / row["file_name"]
        if self._is_packed:
            from dsocr.formats.parquet import ShardWriter

            others = {name: value for name, value in row.items() if name != "file_name"}
            self._shards = self._shards or ShardWriter(self._dataset / SHARDS_FOLDER, self._split, list(others))
            self._shards.add(row["file_name"], image.read_bytes() if isinstance(image, Path) else image, others)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(image, Path):
                link_or_copy(image, target)
            else:
                target.write_bytes(image)
        self._metadata.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        self._image_hashes.append(sha256)
        self._characters += len(row["text"])
        self._writers.add(row["writer"])
        self._pages.add(page_key(row["document"], row["page"]) or "")
        self._documents.add(row["document"])

    def close(self) -> None:
        """Finish the files."""
        self._metadata.close()
        if self._shards:
            self._shards.close()

    def card(self) -> SplitCard:
        """The counts and the hash of a split whose files are closed."""
        return SplitCard(
            samples=len(self._image_hashes),
            writers=len(self._writers - {""}),
            pages=len(self._pages - {""}),
            documents=len(self._documents - {""}),
            characters=self._characters,
            sha256=split_hash((self._dataset / self._split / METADATA_FILE).read_bytes(), self._image_hashes),
        )


def require_free_dataset(output: Path, *sources: Path, overwrite: bool, may_be_inside: bool = True) -> None:
    """Raise DataError if a dataset in `output` would destroy something else; a source of scans skips datasets in it."""

    def files(folder: Path) -> list[str] | None:
        shards = (f"{SHARDS_FOLDER}/{path.name}" for path in (folder / SHARDS_FOLDER).glob("*.parquet"))
        names = [CARD_FILE, SOURCES_FILE, SKIPPED_FILE, FIXES_FILE, *(f"{split}/" for split in Split), *shards]
        return names if is_dataset(folder) else None

    require_free_output(output, "dataset", files, overwrite=overwrite, sources=sources, may_be_inside=may_be_inside)


MIN_WHOLE_WRITERS = 8
"""With this many training writers, subsets add one writer after the other; with fewer, a writer is too coarse."""


def training_samples(dataset: Dataset, config: RunConfig) -> list[Sample]:
    """The samples to train on in the dataset's order: all, or as many as the config asks for, drawn with its seed."""
    samples, most = dataset.samples(Split.TRAIN), config.training.max_samples
    if most is None or most >= len(samples):
        return samples
    whole_writers = use_whole_writers(samples, {sample.writer for sample in dataset.samples(Split.VALIDATION)})
    chosen = set(nested_order(samples, whole_writers=whole_writers, seed=config.seed)[:most])
    return [sample for place, sample in enumerate(samples) if place in chosen]


def training_images(config: RunConfig) -> set[str]:
    """Return `image_hash` of each sample to train on. Raises DsocrError if the dataset is gone."""
    return set(map(image_hash, training_samples(Dataset.open(config.dataset, fold=config.fold), config)))


def image_hash(sample: Sample) -> str:
    """Return the SHA-256 of a sample's image file."""
    return hashlib.sha256(read_bytes(sample.image)).hexdigest()


def use_whole_writers(samples: Sequence[Sample], validation_writers: Collection[str | None]) -> bool:
    """True if a smaller training set should have fewer writers: all are known, many, and none is in validation.

    If validation shares writers with train, more samples are more lines of the same writers instead.
    """
    writers = {sample.writer for sample in samples}
    return None not in writers and len(writers) >= MIN_WHOLE_WRITERS and writers.isdisjoint(validation_writers)


def nested_order(samples: Sequence[Sample], *, whole_writers: bool, seed: int) -> list[int]:
    """An order of sample indices whose prefixes are training subsets, so that subsets are nested.

    With `whole_writers` one writer follows another; otherwise every prefix has its share of each writer, or of each
    page where writers are unknown.
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
