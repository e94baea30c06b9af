"""Write a dataset folder: images, metadata, sources, and the checks that protect what is already there."""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsocr.data.dataset import METADATA_FILE, SplitCard, SplitHash, Store
from dsocr.data.journal import Journal, StoredSample, crops_from_json
from dsocr.data.source_report import SKIPPED_FILE
from dsocr.data.splits import page_key
from dsocr.document import Line, Page, Split, format_points
from dsocr.errors import DataError
from dsocr.formats.parquet import ShardWriter
from dsocr.io.cropping import CroppedPage
from dsocr.io.files import CARD_FILE, FIXES_FILE, is_dataset
from dsocr.io.packed import SHARDS_FOLDER

IMAGES_FOLDER = "images"
SOURCES_FILE = "sources.jsonl"
_SYSTEM_FILES = frozenset({".ds_store", "thumbs.db", "desktop.ini"})


def check_output_folder(output: Path, source: Path, *, overwrite: bool) -> None:
    """Raise DataError if writing a dataset to `output` would destroy something else."""
    if source.resolve().is_relative_to(output.resolve()):
        hint = "choose a folder beside the source"
        raise DataError("the source is inside the output folder", code="output-holds-source", where=output, hint=hint)
    if not output.exists():
        return
    hint = "choose another folder"
    if not output.is_dir():
        raise DataError("the output is an existing file", code="output-is-file", where=output, hint=hint)
    if not any(output.iterdir()):
        return
    if not is_dataset(output):
        message = "the output folder is not empty and not a dataset"
        raise DataError(message, code="output-not-empty", where=output, hint=hint)
    if not overwrite:
        hint = f"{hint}, or add --overwrite"
        raise DataError("the output is an existing dataset", code="output-exists", where=output, hint=hint)
    if foreign := sorted({path.name for path in output.iterdir() if not _belongs_to_dataset(path)}):
        message = f"the dataset folder has other files too: {', '.join(foreign[:5])}"
        raise DataError(message, code="output-foreign-files", where=output, hint=hint)


def _belongs_to_dataset(path: Path) -> bool:
    if path.name == SHARDS_FOLDER:
        return all(file.suffix == ".parquet" for file in path.iterdir())
    return path.name in {CARD_FILE, SOURCES_FILE, SKIPPED_FILE, FIXES_FILE, *Split} or is_system_file(path)


def is_system_file(path: Path) -> bool:
    """True for files that file managers create in every folder."""
    return path.name.lower() in _SYSTEM_FILES


def write_split(folder: Path, split: Split, samples: Iterable[StoredSample], store: Store = "files") -> SplitCard:
    """Write the images and metadata of a split, one sample at a time."""
    count = characters = 0
    writers, pages, documents = set[str](), set[str](), set[str]()
    total_hash = SplitHash()
    (folder / split).mkdir()
    writing = _image_files(folder / split) if store == "files" else _image_shards(folder / SHARDS_FOLDER, split)
    with (folder / split / METADATA_FILE).open("wb") as metadata, writing as write_image:
        for sample in samples:
            write_image(sample)
            line = json.dumps(sample.row, ensure_ascii=False).encode() + b"\n"
            metadata.write(line)
            total_hash.add(line, sample.sha256)
            count += 1
            characters += len(sample.row["text"])
            writers.add(sample.row["writer"])
            documents.add(sample.row["document"])
            pages.add(page_key(sample.row["document"], sample.row["page"]) or "")
    return SplitCard(
        samples=count,
        writers=len(writers - {""}),
        pages=len(pages - {""}),
        documents=len(documents - {""}),
        characters=characters,
        sha256=total_hash.hexdigest(),
    )


@contextmanager
def _image_files(folder: Path) -> Iterator[Callable[[StoredSample], None]]:
    """Write images as hard links where possible, else as copies."""

    def write(sample: StoredSample) -> None:
        target = folder / sample.row["file_name"]
        if isinstance(sample.stored, bytes):
            target.write_bytes(sample.stored)
            return
        try:
            os.link(sample.stored, target)
        except OSError:
            shutil.copyfile(sample.stored, target)

    (folder / IMAGES_FOLDER).mkdir()
    yield write


@contextmanager
def _image_shards(folder: Path, split: Split) -> Iterator[Callable[[StoredSample], None]]:
    shards: ShardWriter | None = None

    def write(sample: StoredSample) -> None:
        nonlocal shards
        row = dict(sample.row)
        path = row.pop("file_name")
        shards = shards or ShardWriter(folder, split, list(row))
        content = sample.stored.read_bytes() if isinstance(sample.stored, Path) else sample.stored
        shards.add(path, content, row)

    folder.mkdir(exist_ok=True)
    yield write
    if shards:
        shards.close()


def write_sources(folder: Path, journal: Journal) -> None:
    """Write `sources.jsonl`: each page with its crops, so that the next `prepare` can reuse them."""
    splits = journal.splits()
    with (folder / SOURCES_FILE).open("w", encoding="utf-8", newline="\n") as file:
        for row in journal.pages():
            for line in row["cut"].get("lines", ()):
                if isinstance(line, list) and (split := next(splits)):
                    line[0] = f"{split}/{IMAGES_FOLDER}/{line[0]}"
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def read_earlier_crops(dataset: Path) -> Iterator[tuple[str, CroppedPage]]:
    """The crop keys and crops in `sources.jsonl`, with files relative to the dataset."""
    try:
        with (dataset / SOURCES_FILE).open(encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                crops = crops_from_json(row["cut"])
                if isinstance(crops, CroppedPage):
                    yield row["key"], crops
    except (OSError, ValueError, LookupError, TypeError):
        return  # Without it, pages are cropped again, with the same result.


def sample_row(name: str, line: Line, page: Page) -> dict[str, Any]:
    """A sample's row of metadata.

    All rows have the same columns and types, since the `datasets` library rejects a column that is null in all of one
    split and text in another; unknown values are empty strings. `bbox` is null only if no sample of a source has one.
    """
    outline = line.outline
    return {
        "file_name": f"{IMAGES_FOLDER}/{name}",
        "text": line.text,
        "writer": page.writer or "",
        "page": page.page or "",
        "document": page.document or "",
        "source": line.where,
        "bbox": list(outline.box) if outline else None,
        "polygon": format_points(outline.polygon) if outline else "",
        "baseline": format_points(outline.baseline) if outline else "",
    }
