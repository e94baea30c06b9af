"""What was corrected, for other programs and for training: as any format pages can be written in, or as a dataset."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from dsocr.data.conversion import Conversion, files_of, refuse_conversion
from dsocr.data.file_names import UniqueStems
from dsocr.data.fitting import Fitting
from dsocr.data.notes import Notes
from dsocr.data.prepare import PrepareReport, prepare
from dsocr.data.sources.layout import LeftOut, SourceImage
from dsocr.data.targets import choose_target
from dsocr.data.writers import Names
from dsocr.errors import DataError
from dsocr.runs import writing_folder
from dsocr.workbench.lines import Line, State
from dsocr.workbench.opening import Shelf
from dsocr.workbench.store import Store

FORMATS = ("page", "page-2013", "alto", "tsv")
"""The formats that keep lines on their pages."""

_SPLIT = "0.85/0.15/0"
"""Train and validation: what a model is worth is seen in the next lines that are corrected."""
_PAGES_TO_SPLIT = 10


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: pages, lines with a text, and what had no place in the format."""

    out: Path
    pages: int
    texts: int
    left_out: list[LeftOut]


def export(store: Store, shelf: Shelf, out: Path, *, to: str, accepted_only: bool, overwrite: bool = False) -> Exported:
    """Write every page with its lines to the folder `out`; lines without an (accepted) text keep their place.

    Raises DataError where `out` holds something else than an earlier export.
    """
    target = choose_target(to)
    refuse_conversion(out, shelf.root, overwrite=overwrite)
    notes, stems, texts = Notes(strict=False), UniqueStems(), Counter[str]()
    fitting = Fitting(lambda: _images(store, shelf, accepted_only=accepted_only), Names({}), target)
    with writing_folder(out) as folder:
        with closing(target.open(folder, ())) as writing:
            for image in fitting.images(notes):
                for left in writing.add(image, stems.take(image.name)).left_out:
                    notes.add(left)
                texts[image.name] += sum(bool(line.text) for line in image.lines)
        card = Conversion(
            source=store.setting("source") or shelf.root.name,
            source_format="workbench",
            target=target.name,
            images=len(texts),
            lines=sum(texts.values()),
            splits={},
            left_behind=[],
            left_out={},
            unmatched={},
            remarks=[f"{item.where}: {item.message}" for item in notes.left_out],
            files=files_of(folder),
        )
        card.write(folder)
    return Exported(out, len(texts), sum(texts.values()), notes.left_out)


def export_dataset(store: Store, shelf: Shelf, out: Path, *, overwrite: bool = False) -> PrepareReport:
    """Make a dataset folder of the accepted lines. DataError where there are none, or `out` is something else.

    Writers, else pages, stand in one split each, but from few pages lines are split: one page of three for validation
    would leave too little to learn from.
    """
    accepted = [line for line in store.lines() if line.state is State.ACCEPTED]
    if not accepted:
        raise DataError("no line is accepted yet, so there is nothing to train on", where=out)
    split_by = "text" if len({line.page for line in accepted}) < _PAGES_TO_SPLIT else None
    out.resolve().parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".corrections-", dir=out.resolve().parent) as folder:
        pages = Path(folder) / (store.setting("source") or shelf.root.name)
        export(store, shelf, pages, to="tsv", accepted_only=True)
        return prepare(pages, out, split=_SPLIT, split_by=split_by, overwrite=overwrite, workers=1)


def _images(store: Store, shelf: Shelf, *, accepted_only: bool) -> Iterator[SourceImage]:
    for page in store.pages():
        lines = store.lines(page.number)
        yield shelf.image(page, [_told(line) for line in lines] if accepted_only else lines)


def _told(line: Line) -> Line:
    return line if line.state is State.ACCEPTED else replace(line, text="")
