"""Prompts that the authors of published readers recommend.

Many readers share one class of transformers and want another prompt each, or none. A checkpoint is known by its own
files first: by what an export of dsocr says it was trained with, then by its name on the Hub, by that of its folder, by
the base that its card names, and at last by its class. Of a prompt that also asks for markup (HTML, LaTeX, front
matter), which transcriptions do not have, only the sentence that asks for the text is taken; the whole one can be given
as `input.prompt`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from dsocr.io.encodings import read_object
from dsocr.io.hub import snapshot_name
from dsocr.models.base_folder import CARD, read_config_json
from dsocr.runs import READING

DEFAULT_PROMPT = "free_ocr"
"""The name of the prompt that a checkpoint was made for."""

ARCHITECTURES = {
    "LightOnOCRForConditionalGeneration": "lighton_ocr",
    "LightOnOcrForConditionalGeneration": "lighton_ocr",
}
"""Types of networks that are published under the name of another: LightOnOCR 1, 2 and 3-1B say `mistral3`, which is
another class (pull request 17806 of SGLang, January 2026)."""

_MOST_CARD = 200_000
"""Characters of a card that are searched for the base it names."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """How a checkpoint is asked for a text, and where its authors say so.

    `system` None leaves the system message to the chat template.
    """

    prompt: str
    source: str
    system: str | None = None
    prompt_first: bool = False

    def asking(self, prompt: str) -> "Instructions":
        """Return them with a prompt of the user's, which also replaces the question in the system message."""
        if prompt in (DEFAULT_PROMPT, self.prompt):
            return self
        return replace(self, prompt=prompt, system="" if self.system is not None else None, source="input.prompt")

    def messages(self) -> list[dict[str, Any]]:
        """Return the conversation up to the answer, as chat templates of transformers take it."""
        parts: list[dict[str, Any]] = [{"type": "image"}]
        if self.prompt:
            parts.insert(0 if self.prompt_first else 1, {"type": "text", "text": self.prompt})
        question = {"role": "user", "content": parts}
        return [question] if self.system is None else [{"role": "system", "content": self.system}, question]


_CHURRO = "profiles of github.com/stanford-oval/Churro, April 2026"

_BY_NAME: Mapping[str, Instructions] = {
    r"lightonocr-?3": Instructions(
        "", "card of LightOnOCR-3-0.8B as quoted with its GGUF files, November 2026: an empty prompt"
    ),
    r"lightonocr": Instructions(
        "", "example of LightOnOcr in the documentation of transformers, January 2026: the image alone"
    ),
    r"chandra": Instructions(
        "OCR this image to HTML.",
        "chandra/prompts.py of github.com/datalab-to/chandra, January 2026, its first sentence",
    ),
    r"olmocr": Instructions(
        "Attached is one page of a document that you must process. Just return the plain text representation of this "
        "document as if you were reading it naturally.",
        "olmocr/prompts/prompts.py of github.com/allenai/olmocr, March 2026, its first two sentences",
        prompt_first=True,
    ),
    r"nanonets-ocr": Instructions(
        "Extract the text from the above document as if you were reading it naturally.",
        f"{_CHURRO}, and its card, the first sentence",
        system="You are a helpful assistant.",
    ),
    r"churro": Instructions("", _CHURRO, system="Transcribe the entirety of this historical document to XML format."),
}
"""Patterns that are searched in names in lower case, in this order."""

_BY_TYPE: Mapping[str, Instructions] = {
    "glm_ocr": Instructions("Text Recognition:", _CHURRO),
    "got_ocr2": Instructions(" OCR: ", "GotOcr2Processor of transformers 5.23"),
    "hunyuan_vl": Instructions(
        "Extract the text in the image.",
        "README of github.com/Tencent-Hunyuan/HunyuanOCR, November 2025; it is sensitive to the system message",
        system="",
    ),
    "lighton_ocr": _BY_NAME["lightonocr"],
    "paddleocr_vl": Instructions("OCR:", _CHURRO),
    "qianfan_ocr": Instructions("Parse this document to Markdown.", _CHURRO),
}
"""Prompts of types of networks that were made for reading only."""

_GENERAL = Instructions("Transcribe the text in this image. Answer with the text only.", "dsocr, for general models")


def network_type(config: Mapping[str, Any]) -> str | None:
    """Return the type of network that a `config.json` describes, whatever name it was published under."""
    for name in config.get("architectures") or ():
        if name in ARCHITECTURES:
            return ARCHITECTURES[name]
    kind = config.get("model_type")
    return kind if isinstance(kind, str) else None


def find_instructions(folder: Path) -> Instructions:
    """Return how the checkpoint in a folder is asked, from its own files, its names, or its type."""
    recorded = read_object(folder / READING)
    known = None
    for name in _names(folder, recorded):
        known = known or next((entry for part, entry in _BY_NAME.items() if re.search(part, name.lower())), None)
    known = known or _BY_TYPE.get(network_type(read_config_json(folder)) or "", _GENERAL)
    trained = recorded.get("prompt")
    if not isinstance(trained, str) or trained in (DEFAULT_PROMPT, known.prompt):
        return known
    return replace(known.asking(trained), source=f"{READING} of the checkpoint, which was trained with it")


def instructions_of(base: str) -> Instructions:
    """Return how a base is asked that need not be on this machine: a folder, or a name on the Hub."""
    if (Path(base) / "config.json").is_file():
        return find_instructions(Path(base))
    return next((entry for part, entry in _BY_NAME.items() if re.search(part, base.lower())), _GENERAL)


def _names(folder: Path, recorded: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of a checkpoint: of the base it was exported from, its own, and of the base its card names."""
    if isinstance(recorded.get("base"), str):
        yield recorded["base"]
    cached = snapshot_name(folder)
    yield cached[0] if cached else folder.resolve().name
    stated = read_config_json(folder).get("_name_or_path")
    if isinstance(stated, str):
        yield stated
    yield from _card_bases(folder / CARD)


def _card_bases(card: Path) -> Iterator[str]:
    try:
        with card.open(encoding="utf-8") as file:
            text = file.read(_MOST_CARD)
        header = yaml.safe_load(text.split("---")[1]) if text.startswith("---") else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, IndexError):
        return  # a card is for people, and may be anything
    bases = header.get("base_model") if isinstance(header, dict) else None
    yield from (base for base in (bases if isinstance(bases, list) else [bases]) if isinstance(base, str))
