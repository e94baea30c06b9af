"""Parquet files as the Hugging Face Hub keeps them: a column of images, as bytes or by name, and a column of texts.

Texts are read first and images when they are cut, a few rows at a time, so a shard may be larger than the memory.
"""

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr.document import Line, Page, Skipped, SkipReason, format_points
from dsocr.errors import DataError
from dsocr.formats.tables import COLUMNS_HINT, Columns, missing_columns, read_box, roles_of
from dsocr.formats.writing import Added, LineCutter, LineImage, Pictures
from dsocr.images import MAX_BYTES
from dsocr.io.files import list_files, parse_split, relative, split_of_folder, split_of_name

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


def read_parquet(source: Path, columns: Columns) -> Iterator[Page | Skipped]:
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
            yield Skipped(SkipReason.BAD_SOURCE, relative(path, root), error.message)


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


def _source_images(shard: Shard, root: Path, pictures: Pictures) -> Iterator[Page | Skipped]:
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
            yield Skipped(SkipReason.NO_IMAGE, place, error.message)
            continue
        yield known.image(image, relative(image.with_suffix(""), root), None)


@dataclass(frozen=True, slots=True)
class _Known:
    """What a row says besides its image."""

    shard: Shard
    cells: Mapping[str, str]
    root: Path
    place: str

    def image(self, image: Path, name: str, content: "partial[bytes] | None") -> Page:
        said = {role: self.cells.get(column, "").strip() for role, column in self.shard.roles.items()}
        file = self.shard.path
        if "split" in said:
            split = parse_split(said["split"])
        else:
            split = split_of_name(file.stem) or split_of_folder(file.relative_to(self.root).parent)
        return Page(
            image=image,
            name=name,
            where=self.place,
            lines=(Line(self.cells.get(self.shard.roles["text"], ""), self.place),),
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


SHARD_BYTES = 300_000_000
GROUP_BYTES = 1_000_000
"""A row group is what is read at once for a single image, so it is small."""

_TYPES = {"bbox": pa.list_(pa.int32()), "fold": pa.int32()}


def schema(columns: Sequence[str]) -> pa.Schema:
    """`image` and then `columns`, with the note by which `datasets` knows that `image` is one."""
    types = {name: _TYPES.get(name, pa.string()) for name in columns}
    features: dict[str, Any] = {"image": {"_type": "Image"}}
    features |= {name: {"dtype": "string", "_type": "Value"} for name in columns if name not in _TYPES}
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    told = json.dumps({"info": {"features": features}}, ensure_ascii=False)
    return pa.schema([("image", image), *types.items()], metadata={"huggingface": told})


class Shards:
    """The files of one split in `folder`, each closed when it has grown large enough; `close` names them."""

    def __init__(self, folder: Path, name: str, columns: Sequence[str]) -> None:
        self._folder = folder
        self._name = name
        self._schema = schema(columns)
        self._drafts: list[Path] = []
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[Mapping[str, Any]] = []
        self._held = 0
        self._written = 0

    def add(self, path: str, content: bytes, row: Mapping[str, Any]) -> None:
        """An image with the path it is known by, and the other columns."""
        self._rows.append({"image": {"bytes": content, "path": path}, **row})
        self._held += len(content)
        if self._held >= GROUP_BYTES:
            self._flush()
        if self._written >= SHARD_BYTES:
            self._end()

    def close(self) -> None:
        """Writes what is left, and names the files now that their number is known."""
        self._flush()
        self._end()
        for place, draft in enumerate(self._drafts):
            draft.rename(self._folder / f"{self._name}-{place:05d}-of-{len(self._drafts):05d}.parquet")

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            self._drafts.append(self._folder / f".{self._name}-{len(self._drafts)}")
            # Images are compressed already and never alike: no dictionary and no statistics of theirs.
            self._writer = pq.ParquetWriter(
                self._drafts[-1], self._schema, compression="none", use_dictionary=False, write_statistics=False
            )
        self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
        self._written += self._held
        self._rows, self._held = [], 0

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self._written = None, 0


PARQUET_COLUMNS = ("image", "text", "writer", "page", "document", "source", "bbox", "polygon", "baseline")
ORIGIN = frozenset({"source", "bbox", "polygon", "baseline"})
"""What a source of line images may tell in columns of these names: where they were cut."""

UNSPLIT = "unsplit"

_CUT = ".cut"
_FOLDER = "data"

Row = dict[str, Any]


class ParquetWriter:
    """Writes shards; `columns` are the source's own, which follow ours."""

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        self.folder = folder
        self.columns = columns
        self._shards: dict[str, Shards] = {}
        self._cut = folder / _CUT
        self._cutter = LineCutter(self._cut)
        (folder / _FOLDER).mkdir()

    def add(self, image: Page, stem: str) -> Added:
        """Cuts the lines and takes their images into the shards of the image's split."""
        lines, left_out = self._cutter.cut(image, stem)
        name = image.split or UNSPLIT
        if name not in self._shards:
            self._shards[name] = Shards(self.folder / _FOLDER, name, [*PARQUET_COLUMNS[1:], *self.columns])
        for line in lines:
            content = (self._cut / line.file).read_bytes()
            self._shards[name].add(line.file, content, self._row(image, line))
        for line in lines:
            (self._cut / line.file).unlink(missing_ok=True)
        return Added(len(lines), left_out)

    def _row(self, image: Page, line: LineImage) -> Row:
        return {
            "text": line.line.text,
            "writer": image.writer or "",
            "page": image.page or "",
            "document": image.document or "",
            **_origin(image, line.line),
            **{column: image.columns.get(column, "") for column in self.columns},
        }

    def close(self) -> None:
        """Writes what is left, and names the shards now that their number is known."""
        for shards in self._shards.values():
            shards.close()
        if self._cut.exists():
            self._cut.rmdir()


def _origin(image: Page, line: Line) -> Row:
    """Where the line was cut; of a line image, what the source tells of that in columns of these names."""
    outline = line.outline
    if outline is None:
        told = {name: image.columns.get(name, "") for name in ("polygon", "baseline")}
        box = read_box(image.columns.get("bbox", ""))
        return {"source": image.columns.get("source") or line.where, "bbox": box and list(box), **told}
    shape = {"polygon": format_points(outline.polygon), "baseline": format_points(outline.baseline)}
    return {"source": line.where, "bbox": list(outline.box), **shape}
