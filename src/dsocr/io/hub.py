"""Files of the Hugging Face Hub: models and datasets at one commit, from the local cache where possible.

The huggingface_hub library is slow to import, so that happens only when a function is called.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePath, PurePosixPath
from typing import Literal

from dsocr.errors import ConfigError, DataError, ModelError, require_package
from dsocr.io.archives import ARCHIVE_SUFFIXES
from dsocr.io.kraken import KRAKENS_BASE, KRAKENS_FILES, as_checkpoint

CONVERTED = "refs/convert/parquet"
"""The branch with the Hub's own Parquet conversion of a dataset."""

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_DATASET = re.compile(r"hf:/*(?P<id>[^/@]+/[^/@]+)(?:/(?P<folder>[^@]+))?(?:@(?P<revision>.+))?")

_MODEL_FILES = ["*.jinja", "*.json", "*.safetensors", "*.txt"]
"""Weights, settings, tokenizers and chat templates; no pickles, and no code."""
_PARQUET = frozenset({".parquet"})
_TEXTS = frozenset({".jsonl", ".json", ".csv", ".tsv", ".xml", ".txt"})


class NotFetchedError(Exception):
    """Files are neither cached nor downloadable; the message is one line saying why."""


def is_hub_id(name: str) -> bool:
    """True for `owner/name`, whether or not it exists; False for paths such as `./name` and `../name`."""
    return _HUB_ID.fullmatch(name) is not None


def fetch_model(name: str, revision: str | None) -> tuple[Path, str]:
    """The folder of a model on the Hub and its commit. Raises ModelError if neither cached nor downloadable."""
    try:
        folder, commit = fetch_hub_files(name, revision, "model", _MODEL_FILES)
        return as_checkpoint(folder), commit
    except NotFetchedError as error:
        target = f"models/{name.rpartition('/')[2]}"
        message = f"the base {name!r} is neither a local folder nor cached, and the download failed: {error}"
        hint = _download_hint(name, revision, f"--local-dir {target}", f"set `base: {target}`")
        hint = KRAKENS_FILES if name == KRAKENS_BASE else hint
        raise ModelError(message, code="base-not-found", hint=hint) from error


def snapshot_name(folder: Path) -> tuple[str, str] | None:
    """The Hub id and the commit of a model in the Hub's cache; None for any other folder."""
    repository = folder.parent.parent.name
    if folder.parent.name != "snapshots" or not repository.startswith("models--"):
        return None
    return repository.removeprefix("models--").replace("--", "/", 1), folder.name


def find_cached_model(name: str, revision: str | None) -> Path | None:
    """The cached folder of a model on the Hub, possibly without weights; None if it is not cached."""
    if find_spec("huggingface_hub") is None:
        return None
    try:
        folder = as_checkpoint(fetch_hub_files(name, revision, "model", _MODEL_FILES, offline=True)[0])
    except NotFetchedError:
        return None
    return folder if (folder / "config.json").is_file() else None


def list_dataset_files(name: str, revision: str | None) -> list[str]:
    """The names of all files in a dataset repository."""
    require_package("the Hub of Hugging Face", "huggingface_hub")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        # Unlike list_repo_files, this does not retry for half a minute without a network.
        return [file.rfilename for file in HfApi().dataset_info(name, revision=revision).siblings or []]
    except (HTTPError, OSError, ValueError) as error:
        raise NotFetchedError(_explain(error)) from error


def fetch_hub_files(
    name: str,
    revision: str | None,
    kind: Literal["model", "dataset"],
    patterns: Sequence[str],
    *,
    offline: bool = False,
) -> tuple[Path, str]:
    """The folder with the files that match `patterns`, and its commit."""
    require_package("the Hub of Hugging Face", "huggingface_hub")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        fetched = snapshot_download(
            name, revision=revision, repo_type=kind, allow_patterns=list(patterns), local_files_only=offline
        )
    except (HTTPError, OSError, ValueError) as error:
        raise NotFetchedError(_explain(error)) from error
    folder = Path(str(fetched))
    return folder, folder.name


def upload(
    name: str, kind: Literal["model", "dataset"], files: Mapping[str, Path | bytes], message: str, *, private: bool
) -> None:
    """Send files, by their names there, to a repository in one commit, and create it if need be.

    The token is that of `hf auth login` or of the environment. Raises ConfigError if the Hub refuses.
    """
    require_package("the Hub of Hugging Face", "huggingface_hub")
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError, HTTPError  # type: ignore[attr-defined]

    operations = [CommitOperationAdd(path, content) for path, content in sorted(files.items())]
    try:
        api = HfApi()
        api.create_repo(name, repo_type=kind, private=private, exist_ok=True)
        api.create_commit(name, operations, commit_message=message, repo_type=kind)
    except (HfHubHTTPError, HTTPError, OSError, ValueError) as error:
        hint = "log in with `hf auth login`, with a token that may write there"
        raise ConfigError(f"nothing was sent: {_explain(error)}", code="hub-refused", where=name, hint=hint) from error


def _explain(error: Exception) -> str:
    """The error in one line; the first line of some library messages is only a number."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, GatedRepoError):
        return "access is restricted: accept the terms on its page on the Hub, then run `hf auth login`"
    if isinstance(error, RepositoryNotFoundError):
        return "no such repository, or it is private and `hf auth login` was not run"
    if isinstance(error, RevisionNotFoundError):
        return "the repository has no such revision"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A dataset repository or a folder in it, at a revision (None is the newest)."""

    id: str
    folder: str = ""
    revision: str | None = None

    @classmethod
    def parse(cls, source: PurePath) -> "HubDataset | None":
        """Parse `hf:owner/name`, `hf:owner/name/folder` or `hf:owner/name@revision`; None for anything else."""
        match = _DATASET.fullmatch(source.as_posix())
        if not match or not is_hub_id(match["id"]):
            return None
        return cls(match["id"], (match["folder"] or "").strip("/"), match["revision"])


def fetch_dataset(dataset: HubDataset, image_suffixes: frozenset[str]) -> tuple[Path, str, str]:
    """Fetch the readable files of a dataset: Parquet, else images with texts, else the Hub's Parquet conversion.

    Returns their folder in the cache, their commit, and a note for users, which may be empty. Without a network, the
    snapshot of an earlier command is used, at its commit.
    """
    image_suffixes |= ARCHIVE_SUFFIXES | {".pdf"}
    try:
        names = list_dataset_files(dataset.id, dataset.revision)
    except NotFetchedError as error:
        for revision in (dataset.revision, CONVERTED):
            with suppress(NotFetchedError):
                return _fetch(dataset, revision, _PARQUET | image_suffixes | _TEXTS, offline=True)
        raise _not_found(dataset, error) from error
    names = [name for name in names if name.startswith(f"{dataset.folder}/" if dataset.folder else "")]
    if dataset.folder and not names:
        raise DataError(f"{dataset.id} has no folder {dataset.folder!r}", code="hub-dataset-not-found")
    suffixes = set(map(_suffix, names))
    try:
        if suffixes & _PARQUET:
            return _fetch(dataset, dataset.revision, _PARQUET)
        if suffixes & image_suffixes and suffixes & _TEXTS:
            return _fetch(dataset, dataset.revision, image_suffixes | _TEXTS)
        return _fetch_conversion(dataset, has_script=".py" in suffixes)
    except NotFetchedError as error:
        raise _not_found(dataset, error) from error


def _fetch(
    dataset: HubDataset, revision: str | None, suffixes: frozenset[str], *, offline: bool = False
) -> tuple[Path, str, str]:
    below = f"{dataset.folder}/" if dataset.folder else ""
    # The Hub's patterns are case-sensitive, and cameras write .JPG.
    patterns = [f"{below}*{ending}" for suffix in sorted(suffixes) for ending in (suffix, suffix.upper())]
    folder, commit = fetch_hub_files(dataset.id, revision, "dataset", patterns, offline=offline)
    return folder / dataset.folder, commit, ""


def _fetch_conversion(dataset: HubDataset, *, has_script: bool) -> tuple[Path, str, str]:
    converted: list[str] = []
    with suppress(NotFetchedError):
        converted = [name for name in list_dataset_files(dataset.id, CONVERTED) if _suffix(name) in _PARQUET]
    if not converted:
        why = "it is built by a script, which is never run" if has_script else "there is no Parquet conversion of it"
        message = f"{dataset.id} has no Parquet files and no images with texts, and {why}"
        raise DataError(message, code="hub-dataset-unreadable", hint="download its files and pass the folder")
    part = " (partial)" if any("partial" in name for name in converted) else ""
    folder, commit, _ = _fetch(HubDataset(dataset.id), CONVERTED, _PARQUET)
    return folder, commit, f"read from the Hub's {CONVERTED}{part}"


def _not_found(dataset: HubDataset, error: NotFetchedError) -> DataError:
    message = f"the dataset {dataset.id!r} is not cached and the download failed: {error}"
    hint = _download_hint(dataset.id, dataset.revision, "--repo-type dataset --local-dir data/hub", "pass it")
    return DataError(message, code="hub-dataset-not-found", hint=hint)


def _download_hint(name: str, revision: str | None, options: str, use: str) -> str:
    at = f" --revision {revision}" if revision else ""
    command = f"hf download {name}{at} {options}"
    return f"on a machine with a network, run `{command}`, copy that folder here, and {use}"


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()
