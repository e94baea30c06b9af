"""Writing down in the journal what became of each image of the source, and of each line on it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dsocr.data.cutters import CutImage
from dsocr.data.cutting import Cut, CutLine, Refusal, stored_outline
from dsocr.data.file_names import UniqueStems
from dsocr.data.grouping import Placeable
from dsocr.data.journal import Journal, StoredSample, as_json
from dsocr.data.notes import Notes
from dsocr.data.sources.layout import LeftOut
from dsocr.data.writing import sample_row


class Recorder:
    """Gives the samples their names, counts the images, and notes what could not be cut."""

    def __init__(self, journal: Journal, notes: Notes) -> None:
        self.images = 0
        self.recalled = 0
        self._journal = journal
        self._notes = notes
        self._stems = UniqueStems()

    def add(self, found: CutImage) -> None:
        """The next image."""
        self.images += 1
        self.recalled += found.recalled
        image, cut = found.image, found.cut
        if isinstance(cut, Refusal):
            self._notes.add(LeftOut(cut.reason, image.where, cut.message))
            named: Cut | Refusal = cut
        else:
            named = Cut(cut.size, tuple(self._recorded(found, cut)))
        row = {"source": image.where, "image": image.name, "key": found.key, "cut": as_json(named)}
        self._journal.add_source(row)

    def facts(self) -> list[Placeable]:
        """What decides each sample's split, in order."""
        return [_placeable(sample) for sample in self._journal.samples()]

    def _recorded(self, found: CutImage, cut: Cut) -> Iterator[CutLine | Refusal]:
        """The image's lines under the names they will have."""
        image, stem = found.image, self._stems.take(found.image.name)
        for number, (line, result) in enumerate(zip(image.lines, cut.lines, strict=True), start=1):
            if isinstance(result, Refusal):
                self._notes.add(LeftOut(result.reason, line.where, result.message))
                yield result
                continue
            is_whole = line.outline is None and number == 1
            name = stem if is_whole else self._stems.take_stem(f"{stem}_{number:04d}")
            name += Path(result.file).suffix
            row = sample_row(name, replace(line, outline=stored_outline(line, image, cut.size)), image)
            stored = found.folder / result.file
            self._journal.add(StoredSample(stored, result.digest, name, row, image.name, image.split))
            yield replace(result, file=name)


def _placeable(sample: StoredSample) -> Placeable:
    row = sample.row
    return Placeable(
        name=sample.image,
        where=row["source"],
        text=row["text"],
        writer=row["writer"] or None,
        document=row["document"] or None,
        page=row["page"] or None,
        split=sample.given,
    )
