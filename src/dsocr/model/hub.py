"""Checkpoints of the Hugging Face Hub: found in its cache, else fetched, at one commit that is written down."""

from pathlib import Path

from dsocr.errors import ModelError
from dsocr.hub import NotFetchedError, fetch_hub_files

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
