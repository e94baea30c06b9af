"""What a user names as a source, made into a folder or file to read.

Archives are unpacked and datasets of the Hub brought together for as long as they are read.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from uuid import uuid4

from dsocr.document import Note, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.formats.parquet import close_columns
from dsocr.formats.pdf import PDF_SUFFIXES
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.archives import ARCHIVE_SUFFIXES, is_archive, unpack
from dsocr.io.files import list_files, relative
from dsocr.io.hub import NotFetchedError, fetch_hub_files, is_hub_id, list_dataset_files

CONVERTED = "refs/convert/parquet"
"""The branch where the Hub keeps what it made of a dataset."""

_PARQUET = frozenset({".parquet"})
_PICTURES = IMAGE_SUFFIXES | ARCHIVE_SUFFIXES | PDF_SUFFIXES
_TOLD = frozenset({".jsonl", ".json", ".csv", ".tsv", ".xml", ".txt"})
_NAME = re.compile(r"hf:/*(?P<id>[^/@]+/[^/@]+)(?:/(?P<folder>[^@]+))?(?:@(?P<revision>.+))?")


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A repository of the Hub, or a folder of it, at a revision; None is the newest."""

    id: str
    folder: str = ""
    revision: str | None = None

    @property
    def path(self) -> str:
        """The repository, and the folder of it where not all of it is meant."""
        return f"{self.id}/{self.folder}" if self.folder else self.id

    @classmethod
    def named(cls, source: PurePath) -> "HubDataset | None":
        """The dataset that `hf:owner/name`, `hf:owner/name/folder` or `hf:owner/name@revision` means."""
        found = _NAME.fullmatch(source.as_posix())
        if not found or not is_hub_id(found["id"]):
            return None
        return cls(found["id"], (found["folder"] or "").strip("/"), found["revision"])


@dataclass(frozen=True, slots=True)
class Fetched:
    """A dataset's files in the Hub's cache, at a commit; `remark` is what must be known about them."""

    folder: Path
    commit: str
    remark: str | None = None


def fetch_dataset(wanted: HubDataset) -> Fetched:
    """The files of a dataset that can be read; DataError where there are none, or where they are not to be had."""
    try:
        names = _listed(wanted, wanted.revision)
    except NotFetchedError as error:
        return _cached(wanted, error)
    if wanted.folder and not names:
        raise DataError(f"the Hub's {wanted.id} has no folder {wanted.folder!r}")
    suffixes = {_suffix(name) for name in names}
    try:
        if ".parquet" in suffixes:
            return _fetched(wanted, wanted.revision, _PARQUET)
        if suffixes & _PICTURES and suffixes & _TOLD:
            return _fetched(wanted, wanted.revision, _PICTURES | _TOLD)
        return _converted(wanted, names)
    except NotFetchedError as error:
        raise _not_had(wanted, error) from error


def _listed(wanted: HubDataset, revision: str | None) -> list[str]:
    names = list_dataset_files(wanted.id, revision)
    return [name for name in names if name.startswith(f"{wanted.folder}/" if wanted.folder else "")]


def _fetched(wanted: HubDataset, revision: str | None, suffixes: frozenset[str], *, offline: bool = False) -> Fetched:
    below = f"{wanted.folder}/" if wanted.folder else ""
    # The Hub's patterns tell cases apart, and cameras write .JPG.
    patterns = [f"{below}*{ending}" for suffix in sorted(suffixes) for ending in (suffix, suffix.upper())]
    folder, commit = fetch_hub_files(wanted.id, revision, "dataset", patterns, offline=offline)
    return Fetched(folder / wanted.folder, commit)


def _converted(wanted: HubDataset, names: Sequence[str]) -> Fetched:
    """What the Hub made of the dataset; an error says why nothing else could be read."""
    try:
        converted = [name for name in list_dataset_files(wanted.id, CONVERTED) if _suffix(name) in _PARQUET]
    except NotFetchedError:
        converted = []
    if not converted:
        has_script = any(_suffix(name) == ".py" for name in names)
        why = "it is made by a script, and code of a dataset is never run" if has_script else "it holds neither"
        message = f"the Hub's {wanted.id} has no Parquet files and no images with texts that could be read: {why}"
        raise DataError(f"{message}; the Hub has no {CONVERTED} of it", hint="download what it reads, and name that")
    fetched = _fetched(HubDataset(wanted.id), CONVERTED, _PARQUET)
    part = " (only a part of it)" if any("partial" in name for name in converted) else ""
    return Fetched(fetched.folder, fetched.commit, f"read from the Hub's {CONVERTED}{part}, as the dataset has none")


def _cached(wanted: HubDataset, error: NotFetchedError) -> Fetched:
    """What an earlier command fetched, at the commit it had then."""
    for revision in (wanted.revision, CONVERTED):
        try:
            return _fetched(wanted, revision, _PARQUET | _PICTURES | _TOLD, offline=True)
        except NotFetchedError:
            continue
    raise _not_had(wanted, error) from error


def _not_had(wanted: HubDataset, error: NotFetchedError) -> DataError:
    at = f" --revision {wanted.revision}" if wanted.revision else ""
    hint = (
        f"where there is a network, run `hf download {wanted.id}{at} --repo-type dataset --local-dir data/hub`, bring "
        "that folder here, and name it"
    )
    return DataError(
        f"the dataset {wanted.id!r} is not in the Hub's cache and could not be fetched: {error}", hint=hint
    )


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


_HOLDS_IMAGES = IMAGE_SUFFIXES | {".parquet", ".pdf"}


@dataclass(frozen=True, slots=True)
class Opened:
    """A source that can be read at `path`; `name` is what a card calls it, `told` what there is to say about it."""

    path: Path
    name: str
    told: list[Skipped | Note] = field(default_factory=list)


@contextmanager
def opened(source: Path, folder: Path) -> Iterator[Opened]:
    """The source as it is, or what it is read from until the block ends.

    An archive, and a folder whose images are all in archives, is unpacked. What `hf:owner/name` means is fetched into
    the Hub's cache, and stays there. What is unpacked or brought together lies in `folder`, which must not exist, and
    is gone afterwards.
    """
    name = source.resolve().name
    if wanted := HubDataset.named(source):
        fetched = fetch_dataset(wanted)
        told: list[Skipped | Note] = [Note(fetched.remark)] if fetched.remark else []
        with _workshop(folder), _named_by(source, folder):
            # The Hub's cache holds links to its files.
            told += _gather(fetched.folder, _archives_with_images(fetched.folder), folder, links=True)
            yield Opened(folder, f"hf:{wanted.path}@{fetched.commit}", told)
    elif is_archive(source):
        with _workshop(folder), _named_by(source, folder):
            closed = unpack(source, folder / "source")
            yield Opened(_without_wrapping(folder / "source"), name, [_left_closed(path) for path in closed])
    elif source.is_dir() and (archives := _archives_with_images(source)):
        with _workshop(folder), _named_by(source, folder):
            yield Opened(folder, name, [*_gather(source, archives, folder)])
    else:
        demand_source(source)
        yield Opened(source, name)


def demand_source(source: Path) -> None:
    """Raises DataError where the source is neither a file or folder nor named as a dataset of the Hub."""
    if HubDataset.named(source) or source.exists():
        return
    hint = f"a dataset of the Hub is named hf:{source.as_posix()}" if is_hub_id(source.as_posix()) else None
    raise DataError("the source does not exist", where=source, hint=hint)


@contextmanager
def _workshop(folder: Path) -> Iterator[None]:
    folder.mkdir()
    try:
        yield
    finally:
        close_columns()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _named_by(source: Path, folder: Path) -> Iterator[None]:
    """Errors about something inside `folder` name the source instead, which is what the user knows."""
    try:
        yield
    except DataError as error:
        if error.where and str(folder) in error.where:
            raise DataError(error.message, where=source, hint=error.hint) from error
        raise


def _archives_with_images(source: Path) -> list[Path]:
    """The archives of a folder without images. Where there are images, an archive is most likely where they were."""
    archives = list_files(source, ARCHIVE_SUFFIXES)
    return archives if archives and not list_files(source, _HOLDS_IMAGES) else []


def _gather(source: Path, archives: list[Path], folder: Path, *, links: bool = False) -> list[Skipped]:
    """Brings a folder's files into another one, each archive unpacked into a folder of its name.

    Without `links`, what lies elsewhere and is only linked to stays there, as everywhere else.
    """
    skipped: list[Skipped] = []
    root = source.resolve()
    for path in list_files(source, {file.suffix.lower() for file in source.rglob("*") if file.is_file()}):
        if path in archives or not (links or path.resolve().is_relative_to(root)):
            continue
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        _link_or_copy(path, target)
    for path in archives:
        target = folder / path.relative_to(source).with_suffix("")
        if target.exists():
            raise DataError("a folder of its name lies beside it", where=path, hint="unpack it, and take it away")
        skipped += [_left_closed(f"{relative(path, source)}/{name}") for name in unpack(path, target)]
        _unwrap(target)
    return skipped


def _link_or_copy(path: Path, target: Path) -> None:
    try:
        os.link(path.resolve(), target)
    except OSError:
        shutil.copyfile(path, target)


def _unwrap(folder: Path) -> None:
    """A folder that holds one folder and nothing else becomes that folder: `images.zip` often holds `images/`."""
    inner = _without_wrapping(folder)
    if inner != folder:
        aside = folder.with_name(f".{folder.name}-{uuid4().hex[:8]}")
        inner.rename(aside)
        shutil.rmtree(folder)
        aside.rename(folder)


def _without_wrapping(folder: Path) -> Path:
    held = list(folder.iterdir())
    return _without_wrapping(held[0]) if len(held) == 1 and held[0].is_dir() else folder


def _left_closed(name: str) -> Skipped:
    return Skipped(SkipReason.ARCHIVE, name, "an archive inside an archive is not opened")
