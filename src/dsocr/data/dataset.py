"""Reading a dataset folder: its card, and the samples of each split, with nothing outside the folder within reach."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from dsocr.data.card import METADATA_FILE, Card, read_card
from dsocr.data.packed import packed_images
from dsocr.data.paths import inside
from dsocr.data.sources.layout import points
from dsocr.data.splits import split_of_fold
from dsocr.errors import DataError
from dsocr.samples import PackedImage, Sample, Split
from dsocr.settings import problems_in

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
                known[name] = [list(point) for point in points(text)]
        return known


def _read_row(line: str, where: str) -> _Row:
    try:
        return _Row.model_validate_json(line)
    except ValidationError as error:
        raise DataError(problems_in(error)[0], where=where) from error
