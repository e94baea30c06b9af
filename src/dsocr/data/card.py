"""The card of a dataset folder, `dataset.json`: where the data came from, how it was split, and what is in it."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from dsocr.data.paths import CARD_FILE
from dsocr.data.sources.layout import Unit
from dsocr.errors import DataError
from dsocr.samples import Split
from dsocr.settings import problems_in
from dsocr.text import TextPolicy

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


class LeftOutCard(_Part):
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
    text_changes: dict[str, LeftOutCard] = {}
    left_out: dict[str, LeftOutCard]
    unmatched: dict[str, LeftOutCard]
    remarks: list[str] = []
    repaired: dict[str, LeftOutCard] = {}

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
