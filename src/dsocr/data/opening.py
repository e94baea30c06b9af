"""What a user names as a source, made into a folder or file to read.

Archives are unpacked and datasets of the Hub brought together for as long as they are read.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from dsocr.data.archives import ARCHIVE_SUFFIXES, is_archive, unpack
from dsocr.data.hub_datasets import HubDataset, fetch_dataset
from dsocr.data.images import IMAGE_SUFFIXES
from dsocr.data.paths import list_files, relative
from dsocr.data.sources.layout import LeftOut, Reason, Remark
from dsocr.data.sources.parquet import close_columns
from dsocr.errors import DataError
from dsocr.hub import is_hub_id

_HOLDS_IMAGES = IMAGE_SUFFIXES | {".parquet", ".pdf"}


@dataclass(frozen=True, slots=True)
class Opened:
    """A source that can be read at `path`; `name` is what a card calls it, `told` what there is to say about it."""

    path: Path
    name: str
    told: list[LeftOut | Remark] = field(default_factory=list)


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
        told: list[LeftOut | Remark] = [Remark(fetched.remark)] if fetched.remark else []
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


def _gather(source: Path, archives: list[Path], folder: Path, *, links: bool = False) -> list[LeftOut]:
    """Brings a folder's files into another one, each archive unpacked into a folder of its name.

    Without `links`, what lies elsewhere and is only linked to stays there, as everywhere else.
    """
    left_out: list[LeftOut] = []
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
        left_out += [_left_closed(f"{relative(path, source)}/{name}") for name in unpack(path, target)]
        _unwrap(target)
    return left_out


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


def _left_closed(name: str) -> LeftOut:
    return LeftOut(Reason.ARCHIVE, name, "an archive inside an archive is not opened")
