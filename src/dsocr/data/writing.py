"""Writing a dataset folder so that its presence means it is whole, and never at the cost of anything else."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsocr.data.card import METADATA_FILE, SplitCard, split_hash
from dsocr.data.cutting import CutSample
from dsocr.data.paths import CARD_FILE, FIXES_FILE, is_dataset
from dsocr.data.sources.layout import written
from dsocr.errors import DataError
from dsocr.samples import Split

IMAGES = "images"
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
        raise DataError("there is a dataset already", where=out, hint="ask for it to be overwritten, or " + hint)
    strange = sorted({path.name for path in out.iterdir() if not _is_of_a_dataset(path)})
    if strange:
        raise DataError(f"the dataset folder holds other files too: {', '.join(strange[:5])}", where=out, hint=hint)


def _is_of_a_dataset(path: Path) -> bool:
    return path.name in {CARD_FILE, FIXES_FILE, *Split} or path.name.lower() in _OF_THE_SYSTEM


def write_split(folder: Path, split: Split, cut: Path, samples: Sequence[CutSample]) -> SplitCard:
    """Moves the samples' images from the folder `cut` to where they belong, and writes the split's metadata."""
    images = folder / split / IMAGES
    images.mkdir(parents=True)
    for sample in samples:
        (cut / sample.file).rename(images / sample.file)
    metadata = "".join(json.dumps(_row(sample), ensure_ascii=False) + "\n" for sample in samples).encode()
    (folder / split / METADATA_FILE).write_bytes(metadata)
    return SplitCard(
        samples=len(samples),
        writers=len({sample.image.writer for sample in samples} - {None}),
        pages=len({sample.image.page for sample in samples} - {None}),
        characters=sum(len(sample.line.text) for sample in samples),
        sha256=split_hash(metadata, (sample.digest for sample in samples)),
    )


def _row(sample: CutSample) -> dict[str, Any]:
    """Every row of a dataset has the same columns, and each column one type.

    `datasets` refuses a column that is null in all of one split and text in another, so what is not known is an empty
    text. `bbox` is null only where no sample of a source has one.
    """
    outline = sample.line.outline
    return {
        "file_name": f"{IMAGES}/{sample.file}",
        "text": sample.line.text,
        "writer": sample.image.writer or "",
        "page": sample.image.page or "",
        "source": sample.line.where,
        "bbox": list(outline.box) if outline else None,
        "polygon": written(outline.polygon) if outline else "",
        "baseline": written(outline.baseline) if outline else "",
    }
