"""Parquet files as the Hugging Face Hub keeps them: a column of images, as bytes or by name, and a column of texts.

Texts are read first and images when they are cut, a few rows at a time, so a shard may be larger than the memory.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr.data.images import MAX_BYTES
from dsocr.data.paths import list_files, relative
from dsocr.data.sources.layout import LeftOut, Reason, SourceImage, SourceLine
from dsocr.data.sources.pictures import Pictures
from dsocr.data.sources.tables import COLUMNS_HINT, Columns, missing_columns, roles_of
from dsocr.data.splits import split_called, split_of_folder, split_of_name
from dsocr.errors import DataError

_ROWS = 1024
_IMAGES = 16
_BUFFER = 1 << 20

_DAMAGE = (pa.ArrowException, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Shard:
    """A Parquet file with its columns known; `scalars` are those that hold one text or number in a row."""

    path: Path
    roles: dict[str, str]
    image: pa.DataType
    scalars: list[str]


class ImageColumn:
    """The images inside a Parquet file. Going on is cheap; going back begins the row group anew, never the file."""

    def __init__(self, path: Path, column: str) -> None:
        self.path = path
        self.column = column
        self._file: pq.ParquetFile | None = None
        self._ends: list[int] = []
        self._go_to(0)
        self._damage: dict[int, str] = {}

    def read(self, row: int) -> bytes:
        """The bytes of the image in this row, the first being 0."""
        value = self._value(row)
        content: bytes = (value.get("bytes") if isinstance(value, dict) else value) or b""
        if not content:
            raise DataError(f"row {row + 1} holds no bytes of an image", where=self.path)
        if len(content) > MAX_BYTES:
            raise DataError(f"the image is larger than {MAX_BYTES // 2**20} MB", where=self.path)
        return content

    def _value(self, row: int) -> Any:
        group = self._group_of(row)
        if problem := self._damage.get(group):
            raise DataError(problem, where=self.path)
        if group != self._group or row < self._first:
            self._go_to(group)
        try:
            while row >= self._first + len(self._held):
                self._read_on()
        except (*_DAMAGE, StopIteration) as error:
            # Kept, as the rows behind the damage would each read everything before it again.
            self._damage[group] = f"the Parquet file cannot be read on: {error}"
            raise DataError(self._damage[group], where=self.path) from error
        return self._held[row - self._first].as_py()

    def _group_of(self, row: int) -> int:
        try:
            if self._file is None:
                self._file = _opened(self.path)
                groups = range(self._file.num_row_groups)
                self._ends = list(accumulate(self._file.metadata.row_group(group).num_rows for group in groups))
        except _DAMAGE as error:
            raise DataError(f"the Parquet file cannot be read: {error}", where=self.path) from error
        if row >= (self._ends or [0])[-1]:
            raise DataError(f"the Parquet file has no row {row + 1}", where=self.path)
        return bisect_right(self._ends, row)

    def _go_to(self, group: int) -> None:
        self._group = group
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._first = self._ends[group - 1] if group else 0
        self._held: Any = ()

    def _read_on(self) -> None:
        if self._batches is None:
            assert self._file is not None
            self._batches = self._file.iter_batches(_IMAGES, row_groups=[self._group], columns=[self.column])
        batch = next(self._batches)
        self._first += len(self._held)
        self._held = batch.column(0)


@lru_cache(maxsize=1)
def _column(path: Path, column: str) -> ImageColumn:
    """What this process has open: shards are read one after the other, so one is enough."""
    return ImageColumn(path, column)


def read_packed(path: Path, column: str, row: int) -> bytes:
    """The bytes of the image in a row; what names it is small enough to be sent to another process."""
    return _column(path, column).read(row)


def close_columns() -> None:
    """Lets go of the file that is open in this process; Windows deletes none that is."""
    _column.cache_clear()


def find_parquet(source: Path, columns: Columns) -> list[Path]:
    """The Parquet files whose columns are understood, and those that cannot be read, so that they are reported."""
    return [path for path in _files(source) if _is_understood(path, columns)]


def read_parquet(source: Path, columns: Columns) -> Iterator[SourceImage | LeftOut]:
    """The rows of all Parquet files of a folder, or of one file, each an image with its text."""
    files = find_parquet(source, columns)
    if not files:
        # None is understood: the first one says why.
        for path in _files(source)[:1]:
            open_shard(path, columns)
    root = source.parent if source.is_file() else source
    pictures = Pictures(root)
    for path in files:
        try:
            yield from _source_images(open_shard(path, columns), root, pictures)
        except DataError as error:
            yield LeftOut(Reason.BAD_SOURCE, relative(path, root), error.message)


def open_shard(path: Path, columns: Columns) -> Shard:
    """A Parquet file whose image and text columns are known; an error lists the columns it has where they are not."""
    kinds = {field.name: field.type for field in _schema(path)}
    pictures = [name for name, kind in kinds.items() if _holds_images(kind)]
    scalars = [name for name, kind in kinds.items() if _is_scalar(kind)]
    named, packed = roles_of(scalars, columns), roles_of(pictures, columns)
    if len(pictures) == 1 and "image" not in columns:
        packed["image"] = pictures[0]
    roles = named | ({"image": packed["image"]} if "image" in packed else {})
    if missing := missing_columns(roles, columns):
        message = f"no column is known to hold: {', '.join(missing)}; the columns are: {', '.join(kinds)}"
        raise DataError(message, where=path, hint=COLUMNS_HINT)
    return Shard(path, roles, kinds[roles["image"]], scalars)


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source] if source.suffix.lower() == ".parquet" else []
    return list_files(source, {".parquet"})


def _is_understood(path: Path, columns: Columns) -> bool:
    try:
        _schema(path)
    except DataError:
        return True
    try:
        open_shard(path, columns)
    except DataError:
        return False
    return True


def _opened(path: Path) -> pq.ParquetFile:
    """The file, read page by page: a row group may hold every image of a data set."""
    return pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)


def _schema(path: Path) -> pa.Schema:
    try:
        with _opened(path) as file:
            return file.schema_arrow
    except _DAMAGE as error:
        raise DataError(f"the Parquet file cannot be read: {error}", where=path) from error


def _holds_images(kind: pa.DataType) -> bool:
    """True of bytes, and of the pair of bytes and path that `datasets` writes."""
    if pa.types.is_struct(kind):
        return any(field.name == "bytes" and _is_binary(field.type) for field in kind)
    return _is_binary(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_scalar(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_text or pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _source_images(shard: Shard, root: Path, pictures: Pictures) -> Iterator[SourceImage | LeftOut]:
    where = relative(shard.path, root)
    column = shard.roles["image"]
    packed = f"{column}.bytes" if pa.types.is_struct(shard.image) else column
    for number, (cells, path) in enumerate(_rows(shard)):
        place = f"{where}:{number + 1}"
        known = _Known(shard, cells, root, place)
        if pa.types.is_struct(shard.image) or _is_binary(shard.image):
            stem = PurePosixPath(path.replace("\\", "/")).stem or str(number + 1)
            name = f"{relative(shard.path.with_suffix(''), root)}/{stem}"
            yield known.image(shard.path, name, partial(read_packed, shard.path, packed, number))
            continue
        try:
            image = pictures.find(path, near=shard.path.parent)
        except DataError as error:
            yield LeftOut(Reason.NO_IMAGE, place, error.message)
            continue
        yield known.image(image, relative(image.with_suffix(""), root), None)


@dataclass(frozen=True, slots=True)
class _Known:
    """What a row says besides its image."""

    shard: Shard
    cells: Mapping[str, str]
    root: Path
    place: str

    def image(self, image: Path, name: str, content: "partial[bytes] | None") -> SourceImage:
        said = {role: self.cells.get(column, "").strip() for role, column in self.shard.roles.items()}
        file = self.shard.path
        if "split" in said:
            split = split_called(said["split"])
        else:
            split = split_of_name(file.stem) or split_of_folder(file.relative_to(self.root).parent)
        return SourceImage(
            image=image,
            name=name,
            where=self.place,
            lines=(SourceLine(self.cells.get(self.shard.roles["text"], ""), self.place),),
            writer=said.get("writer") or None,
            page=said.get("page") or None,
            document=said.get("document") or None,
            split=split,
            columns=self.cells,
            content=content,
        )


def _rows(shard: Shard) -> Iterator[tuple[dict[str, str], str]]:
    """The cells of each row as texts, empty where they are null, and the path its image is said to have."""
    column = shard.roles["image"]
    wanted = list(shard.scalars)
    if pa.types.is_struct(shard.image) and any(field.name == "path" for field in shard.image):
        wanted.append(f"{column}.path")
    try:
        with _opened(shard.path) as file:
            for batch in file.iter_batches(batch_size=_ROWS, columns=wanted):
                yield from (_cells(row, column) for row in batch.to_pylist())
    except _DAMAGE as error:
        raise DataError(f"the Parquet file cannot be read: {error}", where=shard.path) from error


def _cells(row: Mapping[str, Any], column: str) -> tuple[dict[str, str], str]:
    cells = {name: "" if value is None else str(value) for name, value in row.items() if not isinstance(value, dict)}
    picture = row.get(column)
    path = picture.get("path") if isinstance(picture, dict) else picture
    return cells, path if isinstance(path, str) else ""
