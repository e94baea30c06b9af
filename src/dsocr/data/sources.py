"""Open a source, name the writers, pages and documents of its images, and group their lines.

A source is a file, a folder, a zip archive, `hf:owner/name`, or a IIIF manifest or METS file, also on the web.
A SourceReport collects skipped, changed and ambiguous items.
"""

import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path, PurePosixPath
from uuid import uuid4
from zlib import crc32

import regex

from dsocr.data.dataset import SourceReport, count_example
from dsocr.data.fetch import fetch_source, is_manifest
from dsocr.document import Line, Note, Outline, Page, SampleUnit, Skipped, SkipReason, bounds_of_boxes, main_type
from dsocr.errors import ConfigError, DataError, first_few, option
from dsocr.formats.format import IMAGE_FOLDERS, Format
from dsocr.formats.manifest import SourceIndex, plain
from dsocr.formats.parquet import close_columns
from dsocr.formats.tables import UNREAD_HINTS, require_readable_kind
from dsocr.formats.xml import image_stem
from dsocr.images import HEIC_SUFFIXES, IMAGE_SUFFIXES, UNSUPPORTED_SUFFIXES, is_image
from dsocr.io.archives import ARCHIVE_SUFFIXES, MAX_BYTES, OTHER_ARCHIVES, is_archive, unpack
from dsocr.io.budget import Budget
from dsocr.io.encodings import head, writable
from dsocr.io.files import link_or_copy, links_out, list_files, relative, rename
from dsocr.io.hub import HubDataset, fetch_dataset, is_hub_id
from dsocr.io.processes import ProgressCallback
from dsocr.io.web import DEFAULT_FETCH, FetchOptions
from dsocr.text import is_blank

_IMAGE_CONTAINERS = IMAGE_SUFFIXES | {".parquet", ".pdf"}


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """A source at `path`: its name in cards, items found while opening it, and the index of a fetched one."""

    path: Path
    name: str
    items: Sequence[Skipped | Note]
    index: SourceIndex | None = None

    def describe(self, page: Page) -> Page:
        """Return the page with its entry in the manifest as columns."""
        entry = self.index and self.index.find(relative(page.image, self.path))
        if not entry:
            return page
        manifest, canvas = entry
        row = {"canvas": canvas.id, "label": plain(canvas.label), "manifest": plain(manifest.label) or manifest.id}
        return replace(page, columns={**page.columns, **row, "rights": manifest.rights or manifest.attribution})


@contextmanager
def open_source(
    source: Path, folder: Path, fetch: FetchOptions | None = None, progress: ProgressCallback | None = None
) -> Iterator[OpenedSource]:
    """Open a source for the duration of the block.

    Archives are unpacked, also those in a folder without images of its own, Hub datasets are fetched into the Hub's
    cache, and the pages of manifests into ours, with `progress`. Unpacked files go to `folder`, which must not
    exist and is deleted afterwards.
    """
    items: list[Skipped | Note] = []
    if is_manifest(source):
        try:
            path, index = fetch_source(source, folder, fetch or DEFAULT_FETCH, progress)
            items += [Skipped(SkipReason(reason), where, message) for reason, where, message in index.skipped]
            yield OpenedSource(path, index.source, [*items, *map(Note, index.notes)], index)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    require_source(source)
    root, name, archives = source, source.resolve().name, []
    dataset = HubDataset.parse(source)
    if dataset:
        root, commit, note = fetch_dataset(dataset, IMAGE_SUFFIXES)
        name = f"hf:{PurePosixPath(dataset.id, dataset.folder)}@{commit}"
        items += [Note(note)] if note else []
    elif root.is_dir():
        message = "a link leads out of the folder; copy the file into it"
        items += [Skipped(SkipReason.BAD_SOURCE, relative(path, root), message) for path in links_out(root)]
    if root.is_dir():
        files = list_files(root, follow_links=dataset is not None)
        # Next to images, an archive is most likely a copy of them.
        if not any(path.suffix.lower() in _IMAGE_CONTAINERS for path in files):
            archives = [path for path in files if path.suffix.lower() in ARCHIVE_SUFFIXES]
    exported = [] if dataset or archives or not root.is_dir() else _images_above(root, files)
    if not (dataset or archives or exported or is_archive(source)):
        yield OpenedSource(source, name, [*items, *_passed_over(source)])
        return
    folder.mkdir(parents=True)
    try:
        if root.is_dir():
            items += _collect(root, files, archives, folder)
            for image in exported:
                link_or_copy(image.resolve(), folder / image.name)
            if exported:
                items += [Note(f"{len(exported)} images are from the folder {exported[0].parent.name} beside or above")]
            path = folder
        else:
            items += [_packed_inside(inner) for inner in unpack(source, folder / "source")]
            path = _unwrapped(folder / "source")
        yield OpenedSource(path, name, [*items, *_passed_over(path)])
    except DataError as error:
        if error.where and str(folder) in error.where:  # It does not say anything to the user.
            raise DataError(error.message, code=error.code, where=source, hint=error.hint) from error
        raise
    finally:
        close_columns()
        shutil.rmtree(folder, ignore_errors=True)


def require_source(source: Path, hint: str | None = None) -> None:
    """Raise DataError, with this hint, for a path that is no file, folder, address or dataset on the Hub."""
    if is_manifest(source) or HubDataset.parse(source):
        return
    if not source.exists():
        if is_hub_id(source.as_posix()) and source.suffix.lower() not in _IMAGE_CONTAINERS:
            hint = hint or f"write hf:{source.as_posix()} for a dataset on the Hub"
        hint = hint or f"check its name; the current folder is {Path.cwd()}"
        raise DataError("no such file or folder", code="input-missing", where=source, hint=hint)
    if not (source.is_file() or source.is_dir()):
        raise DataError("is neither a file nor a folder", code="file-special", where=source)
    if source.is_file():
        require_readable_kind(source)


def _collect(source: Path, files: list[Path], archives: list[Path], folder: Path) -> list[Skipped]:
    """Link a folder's files into another one, with each archive unpacked into a folder of its name."""
    skipped: list[Skipped] = []
    for path in files:
        if path not in archives:
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(path.resolve(), target)
    budget = Budget(size=MAX_BYTES)
    for path in archives:
        target = folder / path.relative_to(source).with_suffix("")
        if target.exists():
            message, hint = "the archive and a folder beside it have the same name", "unpack it and move it away"
            raise DataError(message, code="archive-entry", where=path, hint=hint)
        aside = target.with_name(f".{target.name}-{uuid4().hex[:8]}")
        skipped += [_packed_inside(f"{relative(path, source)}/{name}") for name in unpack(path, aside, budget)]
        rename(_unwrapped(aside), target)  # `images.zip` often holds `images/`.
        shutil.rmtree(aside, ignore_errors=True)
    return skipped


def _images_above(root: Path, files: list[Path]) -> list[Path]:
    """The images of a folder of XML files that has none, by their names: beside it, or in a folder such as `../jpg`."""
    xml = [path for path in files if path.suffix.lower() == ".xml"]
    if not xml or any(path.suffix.lower() in IMAGE_SUFFIXES for path in files):
        return []
    stems = {stem for path in xml for stem in (image_stem(path), path.stem.casefold())}
    parent = root.resolve().parent
    siblings = [
        path for path in sorted(parent.iterdir()) if path.name.lower() in IMAGE_FOLDERS and not path.is_symlink()
    ]
    for folder in (parent, *siblings):
        images = [path for path in folder.glob("*") if path.suffix.lower() in IMAGE_SUFFIXES and not path.is_symlink()]
        if named := [path for path in sorted(images) if path.stem.casefold() in stems and path.is_file()]:
            return named
    return []


def _unwrapped(folder: Path) -> Path:
    """The innermost folder where each holds one folder and nothing else."""
    entries = list(folder.iterdir())
    return _unwrapped(entries[0]) if len(entries) == 1 and entries[0].is_dir() else folder


def _passed_over(folder: Path) -> list[Skipped | Note]:
    """The images of a folder that are not read, of another format or without a suffix, and files of office programs."""
    if not folder.is_dir():
        return []
    files = list_files(folder)
    documents = Counter(suffix for path in files if (suffix := path.suffix.lower()) in UNREAD_HINTS)
    locks = sorted(path.name for path in folder.rglob("~$*"))
    items: list[Skipped | Note] = [Note(f"{name} is a file that Office keeps while it edits one") for name in locks]
    items += [
        Note(f"{suffix} files are not read ({count}): {UNREAD_HINTS[suffix]}") for suffix, count in documents.items()
    ]
    for path in files:
        suffix, reason = path.suffix.lower(), SkipReason.BAD_IMAGE
        if suffix in OTHER_ARCHIVES:
            reason, message = SkipReason.ARCHIVE, "of archives, only zip is read; unpack it"
        elif suffix in UNSUPPORTED_SUFFIXES:
            install = 'pip install "dsocr-hw[heic]", or ' if suffix in HEIC_SUFFIXES else ""
            message = f"{suffix[1:].upper()} images are not supported; {install}save it as PNG, JPEG or TIFF"
        elif not suffix[1:].isalpha() and is_image(head(path)):
            message = "an image whose name does not end like one; rename it to end in .png, .jpg or .tif"
        else:
            continue
        items.append(Skipped(reason, relative(path, folder), message))
    return items


def _packed_inside(name: str) -> Skipped:
    return Skipped(SkipReason.ARCHIVE, name, "archives inside archives are not unpacked")


class NamePatterns:
    """Finds an image's writer, page and document in a column or by a pattern in its name; None keeps the source's."""

    def __init__(self, patterns: Mapping[str, str | None]) -> None:
        self._patterns = {kind: pattern for kind, pattern in patterns.items() if pattern is not None}
        self._matched: set[str] = set()
        self._unmatched: dict[str, Page] = {}

    def apply(self, image: Page, report: SourceReport) -> Page:
        """The image with its names, where bytes that are not UTF-8 are escaped; unmatched names are recorded."""
        names = {"writer": image.writer, "page": image.page, "document": image.document}
        names |= {kind: self._find(kind, pattern, image, report) for kind, pattern in self._patterns.items()}
        return replace(
            image,
            name=writable(image.name),
            where=writable(image.where),
            lines=tuple(replace(line, where=writable(line.where)) for line in image.lines),
            columns={writable(column): writable(value) for column, value in image.columns.items()},
            **{kind: name and writable(name) for kind, name in names.items()},  # type: ignore[arg-type]
        )

    def _find(self, kind: str, pattern: str, image: Page, report: SourceReport) -> str | None:
        is_column = pattern in image.columns
        name = image.columns[pattern].strip() or None if is_column else match_name(pattern, image.name)
        if name is None and not is_column:
            if report.strict:
                message = f"the {kind} pattern {pattern} does not match"
                raise DataError(message, code="pattern-unmatched", where=image.name)
            count_example(report.unmatched, kind, image.name)
            self._unmatched.setdefault(kind, image)
            return None
        self._matched.add(kind)
        if name is not None:
            report.names[kind][name] += 1
        return name

    def require_matches(self) -> None:
        """Raise DataError if a pattern matched none of the images it was applied to."""
        for kind, image in self._unmatched.items():
            if kind in self._matched:
                continue
            pattern, hint = self._patterns[kind], f"a file name here is {image.name!r}"
            if image.columns:
                hint += f", and the columns are: {', '.join(image.columns)}"
            if pattern[:1] == pattern[-1:] == "'":
                hint = "the quotes are part of the pattern, as in Windows' cmd: use double quotes there"
            elif "/" in pattern and "/" not in image.name:
                hint = f"{image.name!r} is in no folder below the source; give the folder above, so that it has one"
            message = f"the {kind} pattern {pattern} matches no file name"
            raise DataError(message, code="pattern-matches-nothing", hint=hint)


_PATTERN_SECONDS = 2.0
"""For one name; a repetition in a repetition, such as (\\w+)+, can take years."""


def match_name(pattern: str, name: str) -> str | None:
    """The first group, or else the whole match, of a pattern in a file name; in its path if the pattern has a slash."""
    try:
        match = regex.search(pattern, name if "/" in pattern else name.rpartition("/")[2], timeout=_PATTERN_SECONDS)
    except regex.error as error:
        message = f"the pattern {pattern} is not a regular expression: {error}"
        hint = "signs that mean themselves need a backslash, such as \\( and \\+"
        raise DataError(message, code="bad-pattern", hint=hint) from error
    except TimeoutError as error:
        message, hint = f"the pattern {pattern} takes for ever on {name!r}", "write a repetition in a repetition as one"
        raise DataError(message, code="pattern-too-slow", hint=hint) from error
    return (match[1] if match.re.groups else match[0]) or None if match else None


_OVERHANG = 0.1
"""Fraction of its height by which a line may extend beyond its region and still count as inside.

Of 1,316 lines of eScriptorium, 18 extend more than 10 pixels beyond their region; cropping them by the region would
leave text without image.
"""


def choose_unit(asked_for: SampleUnit | None, format_: Format) -> SampleUnit:
    """The unit asked for, else that of the format. Raises DataError if the format's own unit would have to be split."""
    if asked_for not in (None, format_.unit) and format_.unit != "line":
        message = f"{format_.title} are transcribed by the {format_.unit}, so a sample cannot be a {asked_for}"
        raise DataError(message, code="unit-unsupported", hint=f"leave out the unit, or use {format_.unit}")
    return asked_for or format_.unit


class RegionChoice:
    """Skips lines in regions of other types than the chosen ones; regions without a type, and no choice, skip none."""

    def __init__(self, types: Sequence[str]) -> None:
        self._types = {kind.casefold().strip() for kind in types}
        self._known: Counter[str] = Counter()

    def apply(self, page: Page, report: SourceReport) -> Page:
        """Return the page with the chosen lines."""
        if not self._types:
            return page
        self._known.update(line.region.kind for line in page.lines if line.region and line.region.kind)
        for line in page.lines:
            if not line.is_in(self._types):
                message = f"its region is of the type {line.region.kind if line.region else ''}"
                report.skip(Skipped(SkipReason.OTHER_REGION, line.where, message))
        lines, skipped = (
            tuple(line for line in lines if line.is_in(self._types)) for lines in (page.lines, page.skipped)
        )
        return replace(page, lines=lines, skipped=skipped)

    def require_types(self) -> None:
        """Raise DataError if a chosen type is none of the source's; call it after all pages."""
        known = {known.casefold() for kind in self._known for known in (kind.strip(), main_type(kind))}
        if missing := sorted(self._types - known):
            types = first_few([f"{kind} ({count} lines)" for kind, count in self._known.most_common()], 10)
            message = f"no region is of the type {missing[0]}"
            hint = f"its types are {types}" if types else "its regions have no types"
            raise DataError(message, code="region-type-unknown", hint=hint)


class UnitGrouper:
    """Combines the lines of each page into samples of one unit, and remembers whether regions were found.

    With `most` a region is divided into neighbouring lines, at most so many together, also where a line has no text. A
    share of these groups, `single`, is divided into its lines; which ones, their places decide.
    """

    def __init__(self, unit: SampleUnit, most: int | None = None, single: float = 0.0) -> None:
        if unit != "region" and most is not None:
            hint = f"add {option('unit', 'region')}, or leave it out"
            message = f"{option('lines_per_region', ...)} is for regions"
            raise ConfigError(message, code="option-without-regions", hint=hint)
        if most is not None and most < 1:
            raise ConfigError(f"{option('lines_per_region', ...)} is at least 1", code="option-invalid")
        if not 0 <= single <= 1 or (single and most is None):
            message = f"{option('single_lines', ...)} is a share from 0 to 1, beside {option('lines_per_region', ...)}"
            raise ConfigError(message, code="option-invalid")
        self.unit, self._most, self._single = unit, most, single
        self._has_outlines = self._has_regions = False

    def apply(self, page: Page, report: SourceReport) -> Page:
        """The page with a line for each unit, whose text is that of its lines joined by line breaks.

        A page that is a single whole image stays as it is. A region has its own outline if that contains its lines,
        else a box around them; a page is the whole image. A line outside of regions is a region by itself.
        """
        has_outlines = any(line.outline for line in page.lines)
        # The outline of several lines is a region.
        has_regions = any(line.region or (line.outline and "\n" in line.text.strip()) for line in page.lines)
        self._has_outlines |= has_outlines
        self._has_regions |= has_regions
        if self.unit == "line" and len(bare := [line for line in page.lines if line.outline is None]) > 1:
            hint = f"give {option('unit', 'page')}, or find its lines with `dsocr align`"
            message = f"{len(bare)} texts are of {page.image.name}, and no outline says where each is: {hint}"
            for line in bare:
                report.skip(Skipped(SkipReason.NO_OUTLINE, line.where, message))
            return replace(page, lines=tuple(line for line in page.lines if line.outline))
        is_whole_image = len(page.lines) == 1 and not (page.skipped or has_outlines or has_regions)
        if self.unit == "line" or is_whole_image:
            return page
        groups, known = [(page.where, [*page.lines, *page.skipped])], tuple(line for line in page.lines if line.outline)
        if self.unit != "page":
            missing = set(page.skipped) | {line for line in page.lines if is_blank(line.text)}
            groups, known = group_by_region(page, self._most, missing if self._most else ()), ()
            singles = {where for where, _ in groups if crc32(where.encode()) < self._single * 2**32}
            groups = [
                part
                for where, lines in groups
                for part in ([(line.where, [line]) for line in lines] if where in singles else [(where, lines)])
            ]
        samples = []
        for where, lines in groups:
            is_line = self._most is not None and len(lines) == 1
            stays = is_line and lines[0].outline is not None and not is_blank(lines[0].text)
            sample = lines[0] if stays else self._join(where, lines, page.skipped)
            if isinstance(sample, Skipped):
                report.skip(sample)
            else:
                samples.append(sample)
        return replace(page, lines=tuple(samples), skipped=(), layout=known)

    def require_regions(self) -> None:
        """Raise DataError if regions were asked for and no line was in one; call it after all pages."""
        if self.unit == "region" and self._has_outlines and not self._has_regions:
            message, hint = "the source has no regions", "make samples of whole pages or of lines"
            raise DataError(message, code="option-without-regions", hint=hint)

    def _join(self, where: str, lines: Sequence[Line], lost: Sequence[Line]) -> Line | Skipped:
        unit = self.unit
        if all(is_blank(line.text) for line in lines):
            return Skipped(SkipReason.NO_TEXT, where, f"nothing on the {unit} is transcribed")
        for line in lines:
            if is_blank(line.text) or line in lost:
                why = "could not be read" if line in lost else "is not transcribed"
                return Skipped(SkipReason.GAP, where, f"a line of the {unit} {why}: {line.where}")
        outline = None if unit == "page" else enclosing_outline(lines, is_part=bool(self._most))
        if unit == "region" and outline is None:
            return Skipped(SkipReason.NO_OUTLINE, where, "neither the region nor its lines have an outline")
        text, struck, unclear, row = "", list[tuple[int, int]](), list[tuple[int, int]](), None
        for line in lines:
            text += "" if not text else "\n" if line.row is None or line.row != row else " "
            row = line.row
            for spans, of_line in ((struck, line.struck), (unclear, line.unclear)):
                spans += [(len(text) + start, len(text) + end) for start, end in of_line]
            text += line.text
        return Line(text, where, outline, lines[0].region, struck=tuple(struck), unclear=tuple(unclear))


def group_by_region(
    page: Page, most: int | None = None, missing: Collection[Line] = ()
) -> list[tuple[str, list[Line]]]:
    """The place and the lines of each region, in the order of their first lines.

    With `most` a region is divided evenly into parts of at most so many neighbouring lines, and at `missing` lines,
    which are parts by themselves. A part has a place of its own; a part of one line has the line's.
    """
    groups: dict[str, list[Line]] = {}
    for line in [*page.lines, *page.skipped]:
        groups.setdefault(f"{page.where}#{line.region.id}" if line.region else line.where, []).append(line)
    if most is None:
        return list(groups.items())
    divided = []
    for where, lines in groups.items():
        parts: list[list[Line]] = []
        for is_missing, together in groupby(lines, key=lambda line: line in missing):
            run = list(together)
            count = len(run) if is_missing else -(-len(run) // most)
            parts += [run[len(run) * part // count : len(run) * (part + 1) // count] for part in range(count)]
        for number, part in enumerate(parts, start=1):
            place = where if len(parts) == 1 else f"{where}-part{number}"
            divided.append((part[0].where if len(part) == 1 else place, part))
    return divided


def enclosing_outline(lines: Sequence[Line], *, is_part: bool = False) -> Outline | None:
    """The outline of the lines' region if it contains them, else a box around all of them; of one line its own."""
    boxes = [line.outline.box for line in lines if line.outline]
    if is_part and len(lines) == 1:
        return lines[0].outline
    region = None if is_part else lines[0].region
    if region and region.outline:
        outer = region.outline.box
        overhangs = (max(outer[0] - box[0], outer[1] - box[1], box[2] - outer[2], box[3] - outer[3]) for box in boxes)
        if all(farthest <= _OVERHANG * (box[3] - box[1]) for farthest, box in zip(overhangs, boxes, strict=True)):
            return region.outline
        boxes.append(outer)
    return Outline(bounds_of_boxes(boxes)) if boxes else None
