"""A dataset folder as a source of line images: its splits, writers and pages, and where each line was cut."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from dsocr.data.dataset import Dataset, read_packed
from dsocr.document import Line, Page, Sample, Skipped, Split, format_points


def read_dataset(folder: Path) -> Iterator[Page | Skipped]:
    """The samples of all splits, each an image with its line.

    Where a line stood on its page is told in `columns`, as `written` has it: it is not where it stands on this image.
    """
    dataset = Dataset.open(folder)
    for split in Split:
        for where, sample in dataset.numbered(split):
            yield Page(
                image=sample.image if isinstance(sample.image, Path) else sample.image.file,
                name=sample.id.rpartition(".")[0],
                where=where,
                lines=(Line(sample.text, where),),
                writer=sample.writer,
                page=sample.page,
                document=sample.document,
                split=sample.split,
                columns=_origin(sample),
                content=None if isinstance(sample.image, Path) else partial(read_packed, sample.image),
            )


def _origin(sample: Sample) -> dict[str, str]:
    known = {"source": sample.source or "", "fold": str(sample.fold or "")}
    if box := sample.geometry.get("bbox"):
        known["bbox"] = format_points(((box[0], box[1]), (box[2], box[3])))
    return known | {name: format_points(sample.geometry.get(name, ())) for name in ("polygon", "baseline")}
