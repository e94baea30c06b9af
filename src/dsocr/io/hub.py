"""The Hugging Face Hub: which names are its own, what a repository holds, and its files, at one commit.

Says what went wrong in a line; which sentence that becomes, the caller knows. The library is slow to import, so that
happens when it is asked for something.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from dsocr.errors import ModelError

Kind = Literal["model", "dataset"]

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")


class NotFetchedError(Exception):
    """Neither in the Hub's cache nor to be had; the message is the first line of what the library said."""


def is_hub_id(name: str) -> bool:
    """True for `owner/name`, whether or not the Hub has it; of `./name` and `../name`, which are paths, False."""
    return _HUB_ID.fullmatch(name) is not None


def list_dataset_files(name: str, revision: str | None) -> list[str]:
    """The names of the files of a dataset's repository."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        # Not list_repo_files: without a network that tries for half a minute.
        return [file.rfilename for file in HfApi().dataset_info(name, revision=revision).siblings or []]
    except (HTTPError, OSError, ValueError) as error:
        raise NotFetchedError(_why(error)) from error


def fetch_hub_files(
    name: str, revision: str | None, kind: Kind, patterns: Sequence[str], *, offline: bool = False
) -> tuple[Path, str]:
    """The folder that holds the files of these patterns, and its commit; from the cache where they are there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        found = snapshot_download(
            name, revision=revision, repo_type=kind, allow_patterns=list(patterns), local_files_only=offline
        )
    except (HTTPError, OSError, ValueError) as error:
        raise NotFetchedError(_why(error)) from error
    folder = Path(str(found))
    return folder, folder.name


def _why(error: Exception) -> str:
    """What went wrong, in our words where the library's first line is a number."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, GatedRepoError):
        return "the Hub has it for those who accept its terms: accept them on its page, then run `hf auth login`"
    if isinstance(error, RepositoryNotFoundError):
        return "the Hub has none of this name, or it is private, and `hf auth login` was not run"
    if isinstance(error, RevisionNotFoundError):
        return "the Hub has it, but not this revision"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


_FILES = ["*.json", "*.safetensors"]
"""What is fetched: no pickles, and no code."""


def fetch(name: str, revision: str | None) -> tuple[Path, str]:
    """The folder of a Hub checkpoint and its commit, from the cache where it is there.

    Raises ModelError where it is neither in the cache nor to be had, with what to download and where to put it.
    """
    try:
        return fetch_hub_files(name, revision, "model", _FILES)
    except NotFetchedError as error:
        target = f"models/{name.rpartition('/')[2]}"
        at = f" --revision {revision}" if revision else ""
        raise ModelError(
            f"the base {name!r} is neither a folder here nor in the Hub's cache, and could not be fetched ({error})",
            hint=f"where there is a network, run `hf download {name}{at} --local-dir {target}`, bring that folder "
            f"here, and set `base: {target}`",
        ) from error


def cached(name: str, revision: str | None) -> Path | None:
    """The folder of a Hub checkpoint in the cache, which may lack weights; None where there is none."""
    try:
        folder, _ = fetch_hub_files(name, revision, "model", _FILES, offline=True)
    except NotFetchedError:
        return None
    return folder if (folder / "config.json").is_file() else None
