"""Parquet files as the Hugging Face Hub has them: a column of images, as bytes or by name, and a column of texts.

Texts are read first and images when they are cut, a few rows at a time, so a shard may be larger than the memory.
"""

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any

from dsocr.document import Item, Line, Page, format_points
from dsocr.errors import DataError
from dsocr.formats.boxes import parse_shape
from dsocr.formats.format import Columns, Format, SourceFile, WritePage, Written, cut_lines, read_files, source_files
from dsocr.formats.registers import write_parquet
from dsocr.formats.tables import guess_roles, require_roles, row_details
from dsocr.io import arrow
from dsocr.io.budget import MB, Budget
from dsocr.io.files import UniqueStems, parse_split, relative, rename

_ROWS = 1024
"""Rows of texts read at once."""
_ROWS_IN_PYTHON = 64
"""Of these, rows made into Python's objects at once: a cell that a dictionary holds once is copied for each row."""
_IMAGES = 16
"""Rows of images read at once."""
_MAX_ROWS = 5_000_000
_MAX_CELL = MB
"""Bytes of a text."""

_COLUMNS = ("image", "text", "writer", "page", "document", "source", "bbox", "polygon", "baseline")
_ORIGIN_COLUMNS = frozenset({"source", "bbox", "polygon", "baseline"})
"""Columns of a source of line images that say where the lines were cut."""
_UNSPLIT = "unsplit"
"""File stem for lines without a split."""

SHARD_BYTES = 300_000_000
GROUP_BYTES = 1_000_000
"""A row group is read at once for a single image, so it is small."""


def _open(path: Path, dictionaries: Sequence[str] = ()) -> Any:
    """Open a file to be read page by page: a row group may hold every image of a dataset.

    The columns `dictionaries` are not expanded where they are stored as places in a dictionary.
    """
    file = arrow.parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False, read_dictionary=list(dictionaries))
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    budget = Budget(size=1 << 50, elements=_MAX_ROWS)
    budget.take(path, elements=file.metadata.num_rows)
    budget.unpack(path, packed=path.stat().st_size, unpacked=sum(group.total_byte_size for group in groups))
    return file


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise DataError if the file is damaged."""
    try:
        yield
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"the Parquet file cannot be read: {error}", code="parquet-unreadable", where=path) from error


class ImageColumn:
    """The images inside a Parquet file. Reading forward is cheap; going back restarts the row group, not the file."""

    def __init__(self, path: Path, column: str) -> None:
        """Open the file; `column` is the one with the bytes."""
        self.path = path
        self.column = column
        with _reading(path):
            self._file = _open(path, [column])
            groups = range(self._file.num_row_groups)
            self._ends = list(accumulate(self._file.metadata.row_group(group).num_rows for group in groups))
        self._group = -1
        self._first = 0
        self._values: Any = ()
        self._batches: Iterator[Any] = iter(())

    def read(self, row: int) -> bytes:
        """Return the bytes of the image in a row; rows count from 0."""
        group = bisect_right(self._ends, row)
        if group == len(self._ends):
            raise DataError(f"the Parquet file has no row {row + 1}", code="parquet-unreadable", where=self.path)
        with _reading(self.path):
            self._seek(group, row)
        value = self._values[row - self._first].as_py()
        content: bytes = (value.get("bytes") if isinstance(value, dict) else value) or b""
        if not content:
            raise DataError(f"row {row + 1} holds no bytes of an image", code="image-empty", where=self.path)
        Budget().take(self.path, size=len(content))
        return content

    def _seek(self, group: int, row: int) -> None:
        """Read batches up to the one with the row."""
        if group != self._group or row < self._first:
            self._group, self._values = group, ()
            self._first = self._ends[group - 1] if group else 0
            self._batches = self._file.iter_batches(_IMAGES, row_groups=[group], columns=[self.column])
        while row >= self._first + len(self._values):
            batch = next(self._batches, None)
            if batch is None:
                raise ValueError("a row group is damaged, or has fewer rows than stated")
            self._first += len(self._values)
            self._values = batch.column(0)


_open_column = lru_cache(maxsize=1)(ImageColumn)
"""One column stays open in this process, as shards are read one after the other."""


def read_column_image(path: Path, column: str, row: int) -> bytes:
    """Return the bytes of the image in a row; the arguments are small enough to be sent to another process."""
    return _open_column(path, column).read(row)


def close_columns() -> None:
    """Close the file that is open in this process, because Windows cannot delete an open file."""
    _open_column.cache_clear()


def find_parquet(source: Path, columns: Columns) -> list[Path]:
    """List the Parquet files with known columns, and unreadable ones, so that they are reported."""
    return [path for path in source_files(source, {".parquet"}) if _is_understood(path, columns)]


def _is_understood(path: Path, columns: Columns) -> bool:
    try:
        _identify_columns(path, columns)
    except DataError as error:
        return error.code != "column-role-unknown"
    return True


def read_parquet(source: Path, columns: Columns) -> Iterator[Item]:
    """Read the rows of all Parquet files of a folder, or of one file, each an image with its text."""
    files = find_parquet(source, columns)
    if not files:
        # None is understood: the error about the first one says why.
        for path in source_files(source, {".parquet"})[:1]:
            _identify_columns(path, columns)
    return read_files(source, files, partial(_read_file, columns=columns))


def _identify_columns(path: Path, columns: Columns) -> tuple[dict[str, str], dict[str, Any]]:
    """Return role -> column and the type of every column; without an image or a text, an error lists the columns."""
    with _reading(path), _open(path) as file:
        kinds = {field.name: field.type for field in file.schema_arrow}
    image_columns = [name for name, kind in kinds.items() if _holds_images(kind)]
    roles, packed = guess_roles(_scalars(kinds), columns), guess_roles(image_columns, columns)
    if len(image_columns) == 1 and "image" not in columns:
        packed["image"] = image_columns[0]
    roles |= {"image": packed["image"]} if "image" in packed else {}
    require_roles(roles, columns, kinds, path)
    return roles, kinds


def _holds_images(kind: Any) -> bool:
    """Return whether a column has bytes, or the struct of bytes and path that `datasets` writes."""
    kinds = [field.type for field in kind if field.name == "bytes"] if arrow.types.is_struct(kind) else [kind]
    return any(arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind) for kind in kinds)


def _scalars(kinds: Mapping[str, Any]) -> list[str]:
    """List the columns with one text or number in a row."""
    checks = (arrow.types.is_string, arrow.types.is_large_string, arrow.types.is_integer, arrow.types.is_floating)
    plain = {name: kind.value_type if arrow.types.is_dictionary(kind) else kind for name, kind in kinds.items()}
    return [name for name, kind in plain.items() if any(check(kind) for check in checks)]


def _read_file(file: SourceFile, columns: Columns) -> Iterator[Item]:
    roles, kinds = _identify_columns(file.path, columns)
    column = roles["image"]
    kind = kinds[column]
    is_struct = arrow.types.is_struct(kind)
    has_path = is_struct and any(field.name == "path" for field in kind)
    names = [*_scalars(kinds), *([f"{column}.path"] if has_path else [])]
    folder = relative(file.path.with_suffix(""), file.root)
    for number, row in enumerate(_rows(file.path, names)):
        where = f"{file.where}:{number + 1}"
        image = row.pop(column, None) if is_struct else row.get(column)
        name = str((image.get("path") if isinstance(image, dict) else image) or "")
        cells = {key: "" if value is None else str(value) for key, value in row.items()}
        values = {role: cells.get(of_role, "").strip() for role, of_role in roles.items()}
        split = parse_split(values["split"]) if "split" in values else file.split
        lines = (Line(cells.get(roles["text"], ""), where),)
        details = {**row_details(values, cells), "split": split}
        if not _holds_images(kind):
            yield file.find_page(name, where, lines, **details)
            continue
        stem = PurePosixPath(name.replace("\\", "/")).stem or str(number + 1)
        content = partial(read_column_image, file.path, f"{column}.bytes" if is_struct else column, number)
        yield Page(file.path, f"{folder}/{stem}", where, lines, content=content, **details)


def _rows(path: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    with _reading(path), _open(path, columns) as file:
        for batch in file.iter_batches(batch_size=_ROWS, columns=columns):
            for name, values in zip(batch.schema.names, batch.columns, strict=True):
                texts = values.dictionary if isinstance(values, arrow.DictionaryArray) else values
                if arrow.types.is_string(texts.type) or arrow.types.is_large_string(texts.type):
                    longest = arrow.compute.max(arrow.compute.binary_length(texts)).as_py() or 0
                    Budget(size=_MAX_CELL).take(f"{path}: {name}", size=longest)
            for start in range(0, len(batch), _ROWS_IN_PYTHON):
                yield from batch.slice(start, _ROWS_IN_PYTHON).to_pylist()


def _shard_schema(columns: Sequence[str]) -> Any:
    """Return the schema of `image` and then `columns`, with the metadata that `datasets` recognises images by."""
    special = {"bbox": arrow.list_(arrow.int32()), "fold": arrow.int32()}
    types = {name: special.get(name, arrow.string()) for name in columns}
    features: dict[str, Any] = {"image": {"_type": "Image"}}
    features |= {name: {"dtype": "string", "_type": "Value"} for name in columns if name not in special}
    image = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
    metadata = {"huggingface": json.dumps({"info": {"features": features}}, ensure_ascii=False)}
    return arrow.schema([("image", image), *types.items()], metadata=metadata)


class ShardWriter:
    """Writes the files of one split in `folder`, each closed when it is large enough; `close` names them."""

    def __init__(self, folder: Path, name: str, columns: Sequence[str]) -> None:
        self._folder = folder
        self._name = name
        self._schema = _shard_schema(columns)
        self._drafts: list[Path] = []
        self._writer: Any = None
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
            rename(draft, self._folder / f"{self._name}-{number:05d}-of-{len(self._drafts):05d}.parquet")

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            self._drafts.append(self._folder / f".{self._name}-{len(self._drafts)}")
            # Images are compressed already and never alike, so dictionaries and statistics are useless.
            self._writer = arrow.parquet.ParquetWriter(
                self._drafts[-1], self._schema, compression="none", use_dictionary=False, write_statistics=False
            )
        # Rows that a full disk did not take are not written again when the rest is closed.
        rows, pending, writer = self._rows, self._pending, self._writer
        self._rows, self._pending, self._writer = [], 0, None
        writer.write_table(arrow.Table.from_pylist(rows, self._schema))
        self._writer, self._written = writer, self._written + pending

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self._written = None, 0


@contextmanager
def writing_shards(folder: Path, columns: Sequence[str]) -> Iterator[WritePage]:
    """Write line images into shards, by split; `columns` are the source's own, which follow ours."""
    shards: dict[str, ShardWriter] = {}
    stems = UniqueStems()
    (folder / "data").mkdir()

    def write(page: Page, stem: str) -> Written:
        images, skipped = cut_lines(page, stem, stems)
        name = page.split or _UNSPLIT
        if name not in shards:
            writer = ShardWriter(folder / "data", name, [*_COLUMNS[1:], *columns])
            shards[name] = stack.enter_context(closing(writer))
        names = {"writer": page.writer or "", "page": page.page or "", "document": page.document or ""}
        others = {column: page.columns.get(column, "") for column in columns}
        for file, content, line in images:
            shards[name].add(file, content, {"text": line.text, **names, **_origin(page, line), **others})
        return Written(len(images), skipped)

    with ExitStack() as stack:
        yield write


def _origin(page: Page, line: Line) -> dict[str, Any]:
    """Return where the line was cut; of a line image, the source's columns of these names."""
    outline = line.outline
    if outline is None:
        shape = {name: page.columns.get(name, "") for name in ("polygon", "baseline")}
        written = parse_shape(page.columns.get("bbox", ""))
        box = written.box() if written else None
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
        writing=writing_shards,
        columns=_COLUMNS,
        origin_columns=_ORIGIN_COLUMNS,
        next_step="datasets.load_dataset({out!r}), or hf upload NAME {out} --repo-type dataset",
        write_pages=write_parquet,
        suffix=".parquet",
        is_one_file=True,
    ),
)
