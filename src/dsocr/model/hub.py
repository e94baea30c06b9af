"""Checkpoints of the Hugging Face Hub: found in its cache, else fetched, at one commit that is written down."""

import re
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from dsocr.errors import ModelError

_FILES = ["*.json", "*.safetensors"]
"""What is fetched: no pickles, and no code."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def is_hub_id(name: str) -> bool:
    """True for `owner/name`, whether or not the Hub has it."""
    return _HUB_ID.fullmatch(name) is not None


def fetch(name: str, revision: str | None) -> tuple[Path, str]:
    """The folder of a Hub checkpoint and its commit, from the cache where it is there.

    Raises ModelError where it is neither in the cache nor to be had, with what to download and where to put it.
    """
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=_FILES))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
        target = f"models/{name.rpartition('/')[2]}"
        at = f" --revision {revision}" if revision else ""
        raise ModelError(
            f"the base {name!r} is neither a folder here nor in the Hub's cache, and could not be fetched"
            f" ({_first_line(error)})",
            hint=f"where there is a network, run `hf download {name}{at} --local-dir {target}`, bring that folder "
            f"here, and set `base: {target}`",
        ) from error
    return folder, folder.name


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
