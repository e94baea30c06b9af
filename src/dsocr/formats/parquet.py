"""Parquet files as the Hugging Face Hub has them: a column of images, as bytes or by name, and a column of texts.

Texts are read first and images when they are cut, a few rows at a time, so a shard may be larger than the memory.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr.document import Line, Page, Skipped, SkipReason, format_points
from dsocr.errors import DataError
from dsocr.formats.format import Columns, Format, Written
from dsocr.formats.image_export import LineCutter
from dsocr.formats.image_finder import ImageFinder
from dsocr.formats.tables import COLUMNS_HINT, guess_roles, missing_roles, parse_box
from dsocr.images import MAX_BYTES
from dsocr.io.files import list_files, parse_split, relative, split_of_folder, split_of_name

_ROWS = 1024
"""Rows of texts read at once."""
_IMAGES = 16
"""Rows of images read at once."""
_BUFFER = 1 << 20

_DAMAGE = (pa.ArrowException, OSError, ValueError)

_COLUMNS = ("image", "text", "writer", "page", "document", "source", "bbox", "polygon", "baseline")
_ORIGIN_COLUMNS = frozenset({"source", "bbox", "polygon", "baseline"})
"""Columns of a source of line images that say where the lines were cut."""
_UNSPLIT = "unsplit"
"""File stem for lines without a split."""
_FOLDER = "data"

SHARD_BYTES = 300_000_000
GROUP_BYTES = 1_000_000
"""A row group is read at once for a single image, so it is small."""

_TYPES = {"bbox": pa.list_(pa.int32()), "fold": pa.int32()}


@dataclass(frozen=True, slots=True)
class Shard:
    """A Parquet file with its columns identified; `scalars` are those with one text or number in a row."""

    path: Path
    roles: dict[str, str]
    image: pa.DataType
    scalars: list[str]


class ImageColumn:
    """The images inside a Parquet file. Reading forward is cheap; going back restarts the row group, not the file."""

    def __init__(self, path: Path, column: str) -> None:
        self.path = path
        self.column = column
        self._file: pq.ParquetFile | None = None
        self._ends: list[int] = []
        self._seek(0)
        self._damage: dict[int, str] = {}

    def read(self, row: int) -> bytes:
        """Return the bytes of the image in a row; rows count from 0."""
        value = self._value(row)
        content: bytes = (value.get("bytes") if isinstance(value, dict) else value) or b""
        if not content:
            raise DataError(f"row {row + 1} holds no bytes of an image", code="image-empty", where=self.path)
        if len(content) > MAX_BYTES:
            raise DataError(
                f"the image is larger than {MAX_BYTES // 2**20} MB", code="image-too-large", where=self.path
            )
        return content

    def _value(self, row: int) -> Any:
        group = self._group_of(row)
        if problem := self._damage.get(group):
            raise DataError(problem, code="parquet-unreadable", where=self.path)
        if group != self._group or row < self._first:
            self._seek(group)
        try:
            while row >= self._first + len(self._values):
                self._read_batch()
        except (*_DAMAGE, StopIteration) as error:
            # Remembered, because each row after the damage would read everything before it again.
            self._damage[group] = f"the Parquet file cannot be read further: {error}"
            raise DataError(self._damage[group], code="parquet-unreadable", where=self.path) from error
        return self._values[row - self._first].as_py()

    def _group_of(self, row: int) -> int:
        try:
            if self._file is None:
                self._file = _open(self.path)
                groups = range(self._file.num_row_groups)
                self._ends = list(accumulate(self._file.metadata.row_group(group).num_rows for group in groups))
        except _DAMAGE as error:
            raise DataError(
                f"the Parquet file cannot be read: {error}", code="parquet-unreadable", where=self.path
            ) from error
        if row >= (self._ends or [0])[-1]:
            raise DataError(f"the Parquet file has no row {row + 1}", code="parquet-row-missing", where=self.path)
        return bisect_right(self._ends, row)

    def _seek(self, group: int) -> None:
        self._group = group
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._first = self._ends[group - 1] if group else 0
        self._values: Any = ()

    def _read_batch(self) -> None:
        if self._batches is None:
            assert self._file is not None
            self._batches = self._file.iter_batches(_IMAGES, row_groups=[self._group], columns=[self.column])
        batch = next(self._batches)
        self._first += len(self._values)
        self._values = batch.column(0)


@lru_cache(maxsize=1)
def _open_column(path: Path, column: str) -> ImageColumn:
    """Keep one column open in this process, as shards are read one after the other."""
    return ImageColumn(path, column)


def read_column_image(path: Path, column: str, row: int) -> bytes:
    """Return the bytes of the image in a row; the arguments are small enough to be sent to another process."""
    return _open_column(path, column).read(row)


def close_columns() -> None:
    """Close the file that is open in this process, because Windows cannot delete an open file."""
    _open_column.cache_clear()


def find_parquet(source: Path, columns: Columns) -> list[Path]:
    """List the Parquet files with known columns, and those that cannot be read, so that they are reported."""
    return [path for path in _files(source) if _is_understood(path, columns)]


def read_parquet(source: Path, columns: Columns) -> Iterator[Page | Skipped]:
    """Read the rows of all Parquet files of a folder, or of one file, each an image with its text."""
    files = find_parquet(source, columns)
    if not files:
        # None is understood: the error about the first one says why.
        for path in _files(source)[:1]:
            open_shard(path, columns)
    root = source.parent if source.is_file() else source
    images = ImageFinder(root)
    for path in files:
        try:
            yield from _read_shard(open_shard(path, columns), root, images)
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, relative(path, root), error.message)


def open_shard(path: Path, columns: Columns) -> Shard:
    """Identify the image and text columns of a Parquet file; if there are none, an error lists its columns."""
    kinds = {field.name: field.type for field in _schema(path)}
    image_columns = [name for name, kind in kinds.items() if _holds_images(kind)]
    scalars = [name for name, kind in kinds.items() if _is_scalar(kind)]
    roles, packed = guess_roles(scalars, columns), guess_roles(image_columns, columns)
    if len(image_columns) == 1 and "image" not in columns:
        packed["image"] = image_columns[0]
    roles |= {"image": packed["image"]} if "image" in packed else {}
    if missing := missing_roles(roles, columns):
        message = f"no column is known to hold: {', '.join(missing)}; the columns are: {', '.join(kinds)}"
        raise DataError(message, code="columns-unknown", where=path, hint=COLUMNS_HINT)
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


def _open(path: Path) -> pq.ParquetFile:
    """Open a file to be read page by page: a row group may hold every image of a dataset."""
    return pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)


def _schema(path: Path) -> pa.Schema:
    try:
        with _open(path) as file:
            return file.schema_arrow
    except _DAMAGE as error:
        raise DataError(f"the Parquet file cannot be read: {error}", code="parquet-unreadable", where=path) from error


def _holds_images(kind: pa.DataType) -> bool:
    """Return whether a column has bytes, or the struct of bytes and path that `datasets` writes."""
    if pa.types.is_struct(kind):
        return any(field.name == "bytes" and _is_binary(field.type) for field in kind)
    return _is_binary(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_scalar(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_text or pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _read_shard(shard: Shard, root: Path, images: ImageFinder) -> Iterator[Page | Skipped]:
    where = relative(shard.path, root)
    column = shard.roles["image"]
    packed = f"{column}.bytes" if pa.types.is_struct(shard.image) else column
    for number, (cells, path) in enumerate(_rows(shard)):
        place = f"{where}:{number + 1}"
        if pa.types.is_struct(shard.image) or _is_binary(shard.image):
            stem = PurePosixPath(path.replace("\\", "/")).stem or str(number + 1)
            name = f"{relative(shard.path.with_suffix(''), root)}/{stem}"
            content = partial(read_column_image, shard.path, packed, number)
            yield _read_row(shard, cells, root, place, shard.path, name, content)
            continue
        try:
            image = images.find(path, near=shard.path.parent)
        except DataError as error:
            yield Skipped(SkipReason.NO_IMAGE, place, error.message)
            continue
        yield _read_row(shard, cells, root, place, image, relative(image.with_suffix(""), root), None)


def _read_row(
    shard: Shard,
    cells: Mapping[str, str],
    root: Path,
    place: str,
    image: Path,
    name: str,
    content: Callable[[], bytes] | None,
) -> Page:
    values = {role: cells.get(column, "").strip() for role, column in shard.roles.items()}
    if "split" in values:
        split = parse_split(values["split"])
    else:
        split = split_of_name(shard.path.stem) or split_of_folder(shard.path.relative_to(root).parent)
    return Page(
        image=image,
        name=name,
        where=place,
        lines=(Line(cells.get(shard.roles["text"], ""), place),),
        writer=values.get("writer") or None,
        page=values.get("page") or None,
        document=values.get("document") or None,
        split=split,
        columns=cells,
        content=content,
    )


def _rows(shard: Shard) -> Iterator[tuple[dict[str, str], str]]:
    """Yield the cells of each row as texts, empty for null, and the path of its image."""
    column = shard.roles["image"]
    wanted = list(shard.scalars)
    if pa.types.is_struct(shard.image) and any(field.name == "path" for field in shard.image):
        wanted.append(f"{column}.path")
    try:
        with _open(shard.path) as file:
            for batch in file.iter_batches(batch_size=_ROWS, columns=wanted):
                yield from (_cells(row, column) for row in batch.to_pylist())
    except _DAMAGE as error:
        raise DataError(
            f"the Parquet file cannot be read: {error}", code="parquet-unreadable", where=shard.path
        ) from error


def _cells(row: Mapping[str, Any], column: str) -> tuple[dict[str, str], str]:
    cells = {name: "" if value is None else str(value) for name, value in row.items() if not isinstance(value, dict)}
    image = row.get(column)
    path = image.get("path") if isinstance(image, dict) else image
    return cells, path if isinstance(path, str) else ""


def _shard_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of `image` and then `columns`, with the metadata that `datasets` recognises images by."""
    types = {name: _TYPES.get(name, pa.string()) for name in columns}
    features: dict[str, Any] = {"image": {"_type": "Image"}}
    features |= {name: {"dtype": "string", "_type": "Value"} for name in columns if name not in _TYPES}
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    metadata = {"huggingface": json.dumps({"info": {"features": features}}, ensure_ascii=False)}
    return pa.schema([("image", image), *types.items()], metadata=metadata)


class ShardWriter:
    """Writes the files of one split in `folder`, each closed when it is large enough; `close` names them."""

    def __init__(self, folder: Path, name: str, columns: Sequence[str]) -> None:
        self._folder = folder
        self._name = name
        self._schema = _shard_schema(columns)
        self._drafts: list[Path] = []
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[Mapping[str, Any]] = []
        self._pending = 0
        self._written = 0

    def add(self, path: str, content: bytes, row: Mapping[str, Any]) -> None:
        """Add an image with its path and the other columns."""
        self._rows.append({"image": {"bytes": content, "path": path}, **row})
        self._pending += len(content)
        if self._pending >= GROUP_BYTES:
            self._flush()
        if self._written >= SHARD_BYTES:
            self._end_file()

    def close(self) -> None:
        """Write the remaining rows, and name the files now that their number is known."""
        self._flush()
        self._end_file()
        for number, draft in enumerate(self._drafts):
            draft.rename(self._folder / f"{self._name}-{number:05d}-of-{len(self._drafts):05d}.parquet")

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            self._drafts.append(self._folder / f".{self._name}-{len(self._drafts)}")
            # Images are compressed already and never alike, so dictionaries and statistics are useless.
            self._writer = pq.ParquetWriter(
                self._drafts[-1], self._schema, compression="none", use_dictionary=False, write_statistics=False
            )
        self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
        self._written += self._pending
        self._rows, self._pending = [], 0

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self._written = None, 0


class ParquetWriter:
    """Writes line images into shards; `columns` are the source's own, which follow ours."""

    def __init__(self, folder: Path, columns: Sequence[str]) -> None:
        self.folder = folder
        self.columns = columns
        self._shards: dict[str, ShardWriter] = {}
        self._cutter = LineCutter()
        (folder / _FOLDER).mkdir()

    def add(self, page: Page, stem: str) -> Written:
        """Add a page's lines to the shards of its split."""
        images, skipped = self._cutter.cut(page, stem)
        name = page.split or _UNSPLIT
        if name not in self._shards:
            self._shards[name] = ShardWriter(self.folder / _FOLDER, name, [*_COLUMNS[1:], *self.columns])
        for image in images:
            self._shards[name].add(image.file, image.content, self._row(page, image.line))
        return Written(len(images), skipped)

    def _row(self, page: Page, line: Line) -> dict[str, Any]:
        return {
            "text": line.text,
            "writer": page.writer or "",
            "page": page.page or "",
            "document": page.document or "",
            **_origin(page, line),
            **{column: page.columns.get(column, "") for column in self.columns},
        }

    def close(self) -> None:
        """Finish the shards."""
        for shards in self._shards.values():
            shards.close()


def _origin(page: Page, line: Line) -> dict[str, Any]:
    """Return where the line was cut; of a line image, what the source says in columns of these names."""
    outline = line.outline
    if outline is None:
        shape = {name: page.columns.get(name, "") for name in ("polygon", "baseline")}
        box = parse_box(page.columns.get("bbox", ""))
        return {"source": page.columns.get("source") or line.where, "bbox": box and list(box), **shape}
    shape = {"polygon": format_points(outline.polygon), "baseline": format_points(outline.baseline)}
    return {"source": line.where, "bbox": list(outline.box), **shape}


FORMATS = (
    Format(
        name="parquet",
        title="Parquet files of images and texts",
        find=find_parquet,
        read=read_parquet,
        example="downloaded/data -o data/mine --column text=label",
        takes_columns=True,
        open_writer=ParquetWriter,
        columns=_COLUMNS,
        origin_columns=_ORIGIN_COLUMNS,
        next_step="datasets.load_dataset({out!r}), or hf upload NAME {out} --repo-type dataset",
    ),
)
