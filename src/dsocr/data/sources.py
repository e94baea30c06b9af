"""Open what a user names as a source, and read its pages with the names of writers, pages and documents.

A source is a file, a folder, a zip archive or `hf:owner/name`. Everything that is skipped, changed or ambiguous on the
way is collected in a SourceReport.
"""

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from dsocr.data.source_report import SourceReport
from dsocr.document import Item, Line, Note, Page, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.formats import detect_format
from dsocr.formats.format import Format
from dsocr.formats.parquet import close_columns
from dsocr.images import IMAGE_SUFFIXES, UNSUPPORTED_SUFFIXES
from dsocr.io.archives import ARCHIVE_SUFFIXES, is_archive, unpack
from dsocr.io.files import inside, list_files, relative
from dsocr.io.hub import HubDataset, fetch_dataset, is_hub_id
from dsocr.text import is_blank

_IMAGE_CONTAINERS = IMAGE_SUFFIXES | {".parquet", ".pdf"}


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """A source to read at `path`; `name` is what cards call it, `items` were found while opening it."""

    path: Path
    name: str
    items: list[Skipped | Note] = field(default_factory=list)


@contextmanager
def open_source(source: Path, folder: Path) -> Iterator[OpenedSource]:
    """Open a source for the duration of the block.

    Archives are unpacked, also those in a folder without images of its own, and Hub datasets are fetched into the Hub's
    cache. What is unpacked goes to `folder`, which must not exist and is deleted afterwards.
    """
    if dataset := HubDataset.parse(source):
        fetched = fetch_dataset(dataset)
        items: list[Skipped | Note] = [Note(fetched.note)] if fetched.note else []
        with _temporary_folder(folder), _errors_name(source, folder):
            # The Hub's cache consists of links.
            items += _collect(fetched.folder, _image_archives(fetched.folder), folder, follow_links=True)
            yield OpenedSource(folder, f"hf:{dataset.path}@{fetched.commit}", items)
        return
    name = source.resolve().name
    if is_archive(source):
        with _temporary_folder(folder), _errors_name(source, folder):
            items = [_packed_inside(inner) for inner in unpack(source, folder / "source")]
            yield OpenedSource(_unwrapped(folder / "source"), name, items)
    elif source.is_dir() and (archives := _image_archives(source)):
        with _temporary_folder(folder), _errors_name(source, folder):
            yield OpenedSource(folder, name, [*_collect(source, archives, folder)])
    else:
        require_source(source)
        unsupported = list_files(source, UNSUPPORTED_SUFFIXES) if source.is_dir() else []
        yield OpenedSource(source, name, [_unsupported_image(relative(path, source)) for path in unsupported])


def require_source(source: Path) -> None:
    """Raise DataError if the source neither exists nor names a dataset on the Hub."""
    if HubDataset.parse(source) is None and not source.exists():
        hint = f"write hf:{source.as_posix()} for a dataset on the Hub" if is_hub_id(source.as_posix()) else None
        raise DataError("the source does not exist", code="source-missing", where=source, hint=hint)
    if source.exists() and not (source.is_file() or source.is_dir()):
        raise DataError("the source is neither a file nor a folder", code="source-special", where=source)


@contextmanager
def _temporary_folder(folder: Path) -> Iterator[None]:
    folder.mkdir()
    try:
        yield
    finally:
        close_columns()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _errors_name(source: Path, folder: Path) -> Iterator[None]:
    """Make errors about files in the temporary `folder` name the source instead."""
    try:
        yield
    except DataError as error:
        if error.where and str(folder) in error.where:
            raise DataError(error.message, code=error.code, where=source, hint=error.hint) from error
        raise


def _image_archives(folder: Path) -> list[Path]:
    """The archives in a folder without images; next to images, an archive is most likely a copy of them."""
    archives = list_files(folder, ARCHIVE_SUFFIXES)
    return archives if archives and not list_files(folder, _IMAGE_CONTAINERS) else []


def _collect(source: Path, archives: list[Path], folder: Path, *, follow_links: bool = False) -> list[Skipped]:
    """Bring a folder's files into another one, with each archive unpacked into a folder of its name."""
    skipped: list[Skipped] = []
    root = source.resolve()
    for path in list_files(source):
        if path in archives or not (follow_links or path.resolve().is_relative_to(root)):
            continue
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path.resolve(), target)
        except OSError:
            shutil.copyfile(path, target)
    for path in archives:
        target = folder / path.relative_to(source).with_suffix("")
        if target.exists():
            message, hint = "the archive and a folder beside it have the same name", "unpack it and move it away"
            raise DataError(message, code="archive-collision", where=path, hint=hint)
        skipped += [_packed_inside(f"{relative(path, source)}/{name}") for name in unpack(path, target)]
        inner = _unwrapped(target)
        if inner != target:  # `images.zip` often holds `images/`.
            aside = target.with_name(f".{target.name}-{uuid4().hex[:8]}")
            inner.rename(aside)
            shutil.rmtree(target)
            aside.rename(target)
    return skipped


def _unwrapped(folder: Path) -> Path:
    """The innermost folder where each holds one folder and nothing else."""
    entries = list(folder.iterdir())
    return _unwrapped(entries[0]) if len(entries) == 1 and entries[0].is_dir() else folder


def _unsupported_image(name: str) -> Skipped:
    kind = name.rpartition(".")[2].upper()
    return Skipped(SkipReason.BAD_IMAGE, name, f"{kind} images are not supported; save it as PNG, JPEG or TIFF")


def _packed_inside(name: str) -> Skipped:
    return Skipped(SkipReason.ARCHIVE, name, "archives inside archives are not unpacked")


class NamePatterns:
    """Finds the writer, page and document of an image, each in a column of a table or by a pattern in its name.

    A pattern is searched in the file name, or in the whole path if it contains a slash; the name is its first group, or
    the whole match. None leaves what the source says.
    """

    def __init__(self, patterns: Mapping[str, str | None]) -> None:
        self._patterns = [_NamePattern(kind, pattern) for kind, pattern in patterns.items() if pattern is not None]

    def apply(self, image: Page, report: SourceReport) -> Page:
        """The image with its names; unmatched names are recorded."""
        for pattern in self._patterns:
            image = pattern.apply(image, report)
        return image

    def require_matches(self) -> None:
        """Raise DataError if a pattern matched none of the images it was applied to."""
        for pattern in self._patterns:
            pattern.require_match()


def match_name(pattern: str, name: str) -> str | None:
    """The first group, or else the whole match, of a pattern in an image's name."""
    compiled = re.compile(pattern)
    found = compiled.search(name if "/" in pattern else name.rpartition("/")[2])
    return ((found[1] if compiled.groups else found[0]) or None) if found else None


class _NamePattern:
    def __init__(self, kind: str, pattern: str) -> None:
        self._kind = kind
        self._pattern = pattern
        self._has_matched = False
        self._unmatched: Page | None = None

    def apply(self, image: Page, report: SourceReport) -> Page:
        if self._pattern in image.columns:
            name = image.columns[self._pattern].strip() or None
            self._has_matched = True
        else:
            try:
                name = match_name(self._pattern, image.name)
            except re.error as error:
                message = f"the {self._kind} pattern {self._pattern} is not a regular expression: {error}"
                raise DataError(message, code="bad-pattern") from error
            if name is None:
                report.add_unmatched(self._kind, self._pattern, image.name)
                self._unmatched = self._unmatched or image
            self._has_matched = self._has_matched or name is not None
        if name is not None:
            report.names[self._kind][name] += 1
        return replace(image, **{self._kind: name})  # type: ignore[arg-type]

    def require_match(self) -> None:
        if self._has_matched or self._unmatched is None:
            return
        hint = f"a file name here is {self._unmatched.name!r}"
        if self._unmatched.columns:
            hint += f", and the columns are: {', '.join(self._unmatched.columns)}"
        if self._pattern[:1] == self._pattern[-1:] == "'":
            hint = "the quotes are part of the pattern, as in Windows' cmd: use double quotes there"
        message = f"the {self._kind} pattern {self._pattern} matches no file name"
        raise DataError(message, code="pattern-matches-nothing", hint=hint)


_USUAL_PATTERNS = (r"^(\D*\d+)", r"^([^_-]+)[_-]", r"^(.+)[_-][^_-]*$", r"([^/]+)/[^/]*$")
"""Where names of images usually have a writer: up to the first number, before the first or last separator, folder."""


def suggest_patterns(names: Iterable[str]) -> list[tuple[str, Counter[str]]]:
    """Patterns that divide image names into groups, with the number of images in each group, most groups first.

    A pattern counts only if it matches every name and gives at least two groups, one of them with several images.
    """
    names = list(names)
    found: dict[tuple[str, ...], tuple[str, Counter[str]]] = {}
    for pattern in _USUAL_PATTERNS:
        matched = [match_name(pattern, name) for name in names]
        groups = Counter(group for group in matched if group)
        if groups.total() == len(names) and 1 < len(groups) < len(names):
            found.setdefault(tuple(map(str, matched)), (pattern, groups))
    return sorted(found.values(), key=lambda item: -len(item[1]))


@dataclass(frozen=True, slots=True)
class UntranscribedSource:
    """The lines of a source that have no text yet. Without a `format`, every image is such a line."""

    path: Path
    format: Format | None
    names: NamePatterns

    @classmethod
    def open(cls, path: Path, format_: str | None, patterns: Mapping[str, str | None]) -> "UntranscribedSource":
        """Recognise the format; images without any transcription have none."""
        is_plain = format_ is None and _has_only_images(path)
        return cls(path, None if is_plain else detect_format(path, format_, {}), NamePatterns(patterns))

    @property
    def format_name(self) -> str:
        """The name of the format, for a card."""
        return self.format.name if self.format else "images"

    def pages(self, report: SourceReport) -> Iterator[Page]:
        """The pages with untranscribed lines, reduced to these; everything else is recorded."""
        for page in report.filter_pages(self._items()):
            if lines := tuple(line for line in page.lines if is_blank(line.text)):
                yield self.names.apply(replace(page, lines=lines), report)

    def _items(self) -> Iterator[Item]:
        if self.format is None:
            folder = self.path if self.path.is_dir() else self.path.parent
            for path in list_files(folder, IMAGE_SUFFIXES) if self.path.is_dir() else [self.path]:
                yield _image_as_line(path, relative(path, folder))
            return
        for item in self.format.read(self.path, {}):
            if isinstance(item, Skipped) and item.reason is SkipReason.NO_TRANSCRIPTION and self.path.is_dir():
                try:
                    yield _image_as_line(inside(self.path, item.where), item.where)
                except DataError:
                    yield item
            else:
                yield item


def _has_only_images(source: Path) -> bool:
    """True for an image, and for a folder with images in which no format is recognised."""
    if source.is_file():
        return source.suffix.lower() in IMAGE_SUFFIXES
    if not source.is_dir() or not list_files(source, IMAGE_SUFFIXES):
        return False
    try:
        detect_format(source, None, {})
    except DataError as error:
        return error.code == "no-format-found"
    return False


def _image_as_line(path: Path, where: str) -> Page:
    return Page(path, where.rpartition(".")[0] or where, where, (Line("", where),))
