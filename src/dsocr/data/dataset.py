"""Reading a dataset folder: its card, and the samples of each split, with nothing outside the folder within reach."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from dsocr.data.card import METADATA_FILE, Card, read_card
from dsocr.data.paths import inside
from dsocr.data.sources.layout import points
from dsocr.errors import DataError
from dsocr.samples import Sample, Split


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset folder and its card; samples are read when they are asked for."""

    folder: Path
    card: Card

    @classmethod
    def open(cls, folder: Path) -> "Dataset":
        """The dataset in a folder that `prepare` wrote."""
        return cls(folder, read_card(folder))

    def samples(self, split: Split) -> list[Sample]:
        """The samples of a split in the order of its metadata; none where the dataset has no such split."""
        return [sample for _, sample in self.numbered(split)]

    def numbered(self, split: Split) -> Iterator[tuple[str, Sample]]:
        """Each sample with where it stands: `train/metadata.jsonl:17`."""
        path = self.metadata(split)
        if not path.is_file():
            if split in self.card.splits:
                raise DataError(f"the card tells of a {split} split, but its metadata is missing", where=path)
            return
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError) as error:
            raise DataError(f"the metadata cannot be read: {error}", where=path) from error
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield f"{split}/{METADATA_FILE}:{number}", self._sample(split, line, f"{path}:{number}")

    def metadata(self, split: Split) -> Path:
        """Where a split's metadata stands, or would stand."""
        return self.folder / split / METADATA_FILE

    def _sample(self, split: Split, line: str, where: str) -> Sample:
        row = _read_row(line, where)
        try:
            image = inside(self.folder / split, row.file_name)
            geometry = row.geometry()
        except DataError as error:
            raise DataError(error.message, where=where, hint=error.hint) from error
        return Sample(
            id=f"{split}/{row.file_name}",
            image=image,
            text=row.text,
            split=split,
            writer=row.writer or None,
            page=row.page or None,
            document=row.document or None,
            source=row.source or None,
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

    def geometry(self) -> dict[str, object]:
        """The geometry that is known."""
        known: dict[str, object] = {"bbox": list(self.bbox)} if self.bbox else {}
        for name, text in (("polygon", self.polygon), ("baseline", self.baseline)):
            if text:
                known[name] = [list(point) for point in points(text)]
        return known


def _read_row(line: str, where: str) -> _Row:
    try:
        return _Row.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise DataError(f"{place}: {first['msg'].lower()}" if place else first["msg"].lower(), where=where) from error
