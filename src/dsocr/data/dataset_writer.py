"""Writing a dataset folder so that its presence means it is whole, and never at the cost of anything else."""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsocr.data.cutting import Cut, Refusal
from dsocr.data.dataset import METADATA_FILE, SHARDS, SplitCard, SplitHash, Store
from dsocr.data.journal import Journal, StoredSample, from_json
from dsocr.data.splits import page_key
from dsocr.document import Line, Page, Split, format_points
from dsocr.errors import DataError
from dsocr.formats.parquet import Shards
from dsocr.io.files import CARD_FILE, FIXES_FILE, is_dataset

IMAGES = "images"
SOURCES_FILE = "sources.jsonl"
_OF_THE_SYSTEM = frozenset({".ds_store", "thumbs.db", "desktop.ini"})


def refuse_output(out: Path, source: Path, *, overwrite: bool) -> None:
    """An error where writing a dataset to `out` would lose something."""
    here, there = out.resolve(), source.resolve()
    if there.is_relative_to(here):
        message = "the source lies inside the folder that is to be written"
        raise DataError(message, where=out, hint="choose a folder beside the source")
    if not out.exists():
        return
    if not out.is_dir():
        raise DataError("a file of this name is in the way", where=out, hint="choose another folder")
    if any(out.iterdir()):
        _refuse_overwriting(out, overwrite)


def _refuse_overwriting(out: Path, overwrite: bool) -> None:
    hint = "choose another folder"
    if not is_dataset(out):
        raise DataError("the folder is not empty and not a dataset, so it is not touched", where=out, hint=hint)
    if not overwrite:
        raise DataError("there is a dataset already", where=out, hint=f"{hint}, or give --overwrite")
    strange = sorted({path.name for path in out.iterdir() if not _is_of_a_dataset(path)})
    if strange:
        raise DataError(f"the dataset folder holds other files too: {', '.join(strange[:5])}", where=out, hint=hint)


def _is_of_a_dataset(path: Path) -> bool:
    if path.name == SHARDS:
        return all(file.suffix == ".parquet" for file in path.iterdir())
    return path.name in {CARD_FILE, SOURCES_FILE, FIXES_FILE, *Split} or is_of_the_system(path)


def is_of_the_system(path: Path) -> bool:
    """True of what file managers leave in every folder they show."""
    return path.name.lower() in _OF_THE_SYSTEM


def write_split(folder: Path, split: Split, samples: Iterable[StoredSample], store: Store = "files") -> SplitCard:
    """Lays the samples' images where they belong, and writes the split's metadata, one sample at a time."""
    tally = _Tally()
    (folder / split).mkdir()
    laying = _laying_files(folder / split) if store == "files" else _packing(folder / SHARDS, split)
    with (folder / split / METADATA_FILE).open("wb") as metadata, laying as lay:
        for sample in samples:
            lay(sample)
            line = json.dumps(sample.row, ensure_ascii=False).encode() + b"\n"
            metadata.write(line)
            tally.add(sample, line)
    return tally.card()


class _Tally:
    """Counts and hashes a split while it is written."""

    def __init__(self) -> None:
        self._samples = self._characters = 0
        self._writers: set[str] = set()
        self._pages: set[str] = set()
        self._documents: set[str] = set()
        self._hash = SplitHash()

    def add(self, sample: StoredSample, line: bytes) -> None:
        self._samples += 1
        self._characters += len(sample.row["text"])
        self._writers.add(sample.row["writer"])
        self._pages.add(page_key(sample.row["document"], sample.row["page"]) or "")
        self._documents.add(sample.row["document"])
        self._hash.add(line, sample.digest)

    def card(self) -> SplitCard:
        return SplitCard(
            samples=self._samples,
            writers=len(self._writers - {""}),
            pages=len(self._pages - {""}),
            documents=len(self._documents - {""}),
            characters=self._characters,
            sha256=self._hash.hexdigest(),
        )


@contextmanager
def _laying_files(folder: Path) -> Iterator[Callable[[StoredSample], None]]:
    (folder / IMAGES).mkdir()
    yield lambda sample: _lay(sample.stored, folder / sample.row["file_name"])


@contextmanager
def _packing(folder: Path, split: Split) -> Iterator[Callable[[StoredSample], None]]:
    folder.mkdir(exist_ok=True)
    shards: Shards | None = None

    def pack(sample: StoredSample) -> None:
        nonlocal shards
        row = dict(sample.row)
        path = row.pop("file_name")
        shards = shards or Shards(folder, split, list(row))
        content = sample.stored.read_bytes() if isinstance(sample.stored, Path) else sample.stored
        shards.add(path, content, row)

    yield pack
    if shards:
        shards.close()


def _lay(stored: Path | bytes, target: Path) -> None:
    """The file under a second name; a copy where the disk knows no second names."""
    if isinstance(stored, bytes):
        target.write_bytes(stored)
        return
    try:
        os.link(stored, target)
    except OSError:
        shutil.copyfile(stored, target)


def write_sources(folder: Path, journal: Journal) -> None:
    """Writes `sources.jsonl`: each image of the source with the samples it became; what makes the next time short."""
    splits = journal.splits()
    with (folder / SOURCES_FILE).open("w", encoding="utf-8", newline="\n") as file:
        for row in journal.sources():
            for line in row["cut"].get("lines", ()):
                if isinstance(line, list) and (split := next(splits)):
                    line[0] = f"{split}/{IMAGES}/{line[0]}"
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def earlier_cuts(dataset: Path) -> Iterator[tuple[str, Cut | Refusal]]:
    """What a former dataset knows of its sources: keys with cuts whose files are named from the dataset's folder."""
    try:
        with (dataset / SOURCES_FILE).open(encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                yield row["key"], from_json(row["cut"])
    except (OSError, ValueError, LookupError, TypeError):
        return  # Without it everything is cut anew, and comes out the same.


def sample_row(name: str, line: Line, image: Page) -> dict[str, Any]:
    """A sample's row of metadata.

    Every row of a dataset has the same columns, and each column one type: `datasets` refuses a column that is null in
    all of one split and text in another, so what is not known is an empty text. `bbox` is null only where no sample of
    a source has one.
    """
    outline = line.outline
    return {
        "file_name": f"{IMAGES}/{name}",
        "text": line.text,
        "writer": image.writer or "",
        "page": image.page or "",
        "document": image.document or "",
        "source": line.where,
        "bbox": list(outline.box) if outline else None,
        "polygon": format_points(outline.polygon) if outline else "",
        "baseline": format_points(outline.baseline) if outline else "",
    }
