"""Datasets of the Hugging Face Hub as sources: `hf:owner/name`, with a folder of it and a revision where wanted.

Data is fetched, code never is. Where a repository has no Parquet files of its own, its images with what describes them
are taken; where it has neither, the Parquet files that the Hub makes of it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath

from dsocr.data.archives import ARCHIVE_SUFFIXES
from dsocr.data.images import IMAGE_SUFFIXES
from dsocr.data.pdf import PDF_SUFFIXES
from dsocr.errors import DataError
from dsocr.hub import NotFetchedError, fetch_hub_files, is_hub_id, list_dataset_files

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
