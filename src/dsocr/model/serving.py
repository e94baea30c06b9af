"""How other programs serve an export, as far as it is known from their documentation and source.

vLLM has classes of its own for DeepSeek-OCR and DeepSeek-OCR-2, with the published sizes written into them.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsocr.model.architectures import Architecture

VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes as --max-lora-rank."""

_GUARD = "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"
_OPTIONS = ["--logits-processors", _GUARD, "--no-enable-prefix-caching", "--mm-processor-cache-gb", "0"]


def is_served(architecture: Architecture | None) -> bool:
    """True where a base is in the authors' layout, which the servers know; None is one that is not at hand."""
    return architecture is None or architecture.original


def serve_merged(folder: Path) -> str:
    """The command that serves merged weights with vLLM."""
    return shlex.join(["vllm", "serve", folder.as_posix(), *_OPTIONS])


def serve_adapter(base: str, revision: str | None, folder: Path, name: str, rank: int) -> str:
    """The command that serves a base with an adapter, under a name for requests, with vLLM."""
    at = ["--revision", revision] if revision else []
    most = next(most for most in VLLM_RANKS if most >= rank)
    lora = ["--enable-lora", "--max-lora-rank", str(most), "--lora-modules", f"{name}={folder.as_posix()}"]
    return shlex.join(["vllm", "serve", base, *at, *lora, *_OPTIONS])


def served_resolution(architecture: Architecture | None) -> str:
    """The resolution at which vLLM shows images, by its name here: the whole view, and tiles, six at most."""
    return "gundam" if architecture and architecture.family == "deepseek_ocr_2" else "gundam_vllm"


def request_settings(generation: Mapping[str, Any]) -> dict[str, Any]:
    """What a request to vLLM holds besides model, prompt and image, so that it decodes as dsocr does."""
    settings: dict[str, Any] = {"temperature": 0, "skip_special_tokens": False}
    if "max_new_tokens" in generation:
        settings["max_tokens"] = generation["max_new_tokens"]
    if size := generation.get("no_repeat_ngram_size"):
        settings["vllm_xargs"] = {"ngram_size": size, "window_size": generation.get("no_repeat_ngram_window", size)}
    return settings
