"""Conversations that ms-swift, LLaMA-Factory and Unsloth train on: line images, and a file for each split.

The image is named as seen from the file's own folder. Writer, page and document stand beside the conversation, where
the programs pass over them and `dsocr prepare --writer writer --page page` finds them.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from dsocr.data.sources.layout import SourceImage
from dsocr.data.targets.images import LineCutter
from dsocr.data.targets.layout import HALF, IMAGES, Added

PROMPT = "Free OCR."
FORBIDDEN = re.compile(f"[{HALF}]|<(?:image|video|audio)>")
"""Half characters, and what the programs would take for an image of its own."""

_UNSPLIT = "lines"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Convention:
    """How a program wants its conversations: a file's suffix, a row for an image and its text, and what else it needs.

    A `.json` file is one list, a `.jsonl` file a row a line. `about` names further files by what they hold, for the
    names of those written.
    """

    suffix: str
    row: Callable[[str, str], Row]
    about: Callable[[list[str]], Mapping[str, object]] = lambda _: {}


def _in_words(image: str, text: str) -> Row:
    return {
        "messages": [
            {"role": "user", "content": f"<image>\n{PROMPT}"},
            {"role": "assistant", "content": text},
        ],
        "images": [image],
    }


def _in_parts(image: str, text: str) -> Row:
    asked = [{"type": "image", "image": image}, {"type": "text", "text": PROMPT}]
    return {
        "messages": [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": [{"type": "text", "text": text}]},
        ]
    }


def _dataset_info(names: list[str]) -> Mapping[str, object]:
    """What LLaMA-Factory must be told about each file before it can be named as a `dataset`."""
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
    columns = {"messages": "messages", "images": "images"}
    entry = {"formatting": "sharegpt", "columns": columns, "tags": tags}
    return {"dataset_info.json": {name: {"file_name": f"{name}.json", **entry} for name in names}}


MS_SWIFT = Convention(".jsonl", _in_words)
LLAMA_FACTORY = Convention(".json", _in_words, _dataset_info)
UNSLOTH = Convention(".jsonl", _in_parts)


class MessagesWriter:
    """Writes the line images into `images/` and a row for each."""

    def __init__(self, folder: Path, convention: Convention) -> None:
        self.folder = folder
        self.convention = convention
        self._cutter = LineCutter(folder / IMAGES)
        self._files: dict[str, TextIO] = {}

    def add(self, image: SourceImage, stem: str) -> Added:
        """Cuts the lines and lets the assistant say them."""
        lines, left_out = self._cutter.cut(image, stem)
        known = {"writer": image.writer or "", "page": image.page or "", "document": image.document or ""}
        for line in lines:
            row = self.convention.row(f"{IMAGES}/{line.file}", line.line.text)
            self._write(image.split or _UNSPLIT, json.dumps(row | known, ensure_ascii=False))
        return Added(len(lines), left_out)

    def _write(self, name: str, row: str) -> None:
        is_list = self.convention.suffix == ".json"
        if name not in self._files:
            path = self.folder / (name + self.convention.suffix)
            self._files[name] = path.open("w", encoding="utf-8", newline="\n")
            self._files[name].write("[\n" if is_list else "")
        elif is_list:
            self._files[name].write(",\n")
        self._files[name].write(row if is_list else row + "\n")

    def close(self) -> None:
        """Ends the files, and writes what else the program needs."""
        for file in self._files.values():
            file.write("\n]\n" if self.convention.suffix == ".json" else "")
            file.close()
        for name, content in self.convention.about(sorted(self._files)).items():
            told = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
            (self.folder / name).write_bytes(told.encode())
