"""Conversations that other programs train on: ms-swift, LLaMA-Factory and Unsloth, in JSONL or one JSON list.

A row's one image and what the assistant says to it are the sample. What the user asks is not kept: the prompt belongs
to the configuration of a run.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from dsocr.document import Line, Page, Skipped, SkipReason, Split
from dsocr.errors import DataError
from dsocr.formats.writing import HALF, IMAGES, Added, LineCutter, Pictures
from dsocr.io.encodings import head, parse_json, read_json, read_text
from dsocr.io.files import list_files, relative, split_of_folder, split_of_name

_SUFFIXES = frozenset({".jsonl", ".json"})
_HEAD = {
    ".jsonl": re.compile(rb'\A\s*\{[^\n]*"(?:messages|conversations)"\s*:\s*\['),
    ".json": re.compile(rb'\A\s*\[.*"(?:messages|conversations)"\s*:\s*\[', re.DOTALL),
}
_ASSISTANT = frozenset({"assistant", "gpt", "model"})


def find_messages(source: Path) -> list[Path]:
    """The files of conversations in a folder, judged by their first kilobytes, or the one file that was named."""
    files = [source] if source.is_file() else list_files(source, _SUFFIXES)
    return [path for path in files if is_messages(path)]


def is_messages(path: Path) -> bool:
    """True of a file that begins with a conversation."""
    pattern = _HEAD.get(path.suffix.lower())
    return pattern is not None and bool(pattern.match(head(path)))


def read_messages(source: Path) -> Iterator[Page | Skipped]:
    """Every conversation about one image."""
    root = source.parent if source.is_file() else source
    pictures = Pictures(root)
    for path in find_messages(source):
        where = relative(path, root)
        split = split_of_name(path.stem) or split_of_folder(path.relative_to(root).parent)
        try:
            for place, row in _rows(path, where):
                yield row if isinstance(row, Skipped) else _source_image(row, place, path, root, pictures, split)
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, where, error.message)


def _rows(path: Path, where: str) -> Iterator[tuple[str, object]]:
    """What stands on each line of a JSONL file, or in a JSON list, and where; a line that is not JSON is left out."""
    if path.suffix.lower() == ".json":
        rows = read_json(path)
        if not isinstance(rows, list):
            raise DataError("it is not a list of conversations", where=path)
        yield from ((f"{where}#{number}", row) for number, row in enumerate(rows, start=1))
        return
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        place = f"{where}:{number}"
        if not line.strip():
            continue
        try:
            yield place, parse_json(line, place)
        except DataError as error:
            yield place, Skipped(SkipReason.BAD_SOURCE, place, error.message)


def _source_image(
    row: object, place: str, path: Path, root: Path, pictures: Pictures, split: Split | None
) -> Page | Skipped:
    try:
        name, text, columns = _described(row)
    except DataError as error:
        return Skipped(SkipReason.BAD_SOURCE, place, error.message)
    try:
        image = pictures.find(name, near=path.parent)
    except DataError as error:
        return Skipped(SkipReason.NO_IMAGE, place, error.message)
    return Page(
        image=image,
        name=relative(image.with_suffix(""), root),
        where=place,
        lines=(Line(text, place),),
        split=split,
        columns=columns,
    )


def _described(row: object) -> tuple[str, str, dict[str, str]]:
    """The image's name, the transcription, and what else the row says in one word."""
    if not isinstance(row, dict):
        raise DataError("it is not a JSON object")
    turns = [_Turn(turn) for turn in _list(row.get("messages", row.get("conversations")))]
    said = [turn.text for turn in turns if turn.is_answer]
    if len(said) != 1:
        raise DataError(f"the assistant speaks {len(said)} times, where once is expected")
    names = _names(row.get("images", row.get("image"))) or [name for turn in turns for name in turn.images]
    if len(names) != 1:
        raise DataError(f"{len(names)} images in one conversation, where one is expected")
    columns = {key: str(value) for key, value in row.items() if isinstance(value, str | int | float)}
    return names[0], said[0], columns


class _Turn:
    """One message: `role` and `content`, or LLaMA-Factory's `from` and `value`; a content may come in parts."""

    def __init__(self, turn: object) -> None:
        if not isinstance(turn, dict):
            raise DataError("a message is not a JSON object")
        role = str(turn.get("role", turn.get("from", "")))
        # Unsloth writes DeepSeek's own tokens for roles: <|User|>, <|Assistant|>.
        self.is_answer = role.strip("<|>").lower() in _ASSISTANT
        content = turn.get("content", turn.get("value"))
        parts: list[Any] = content if isinstance(content, list) else [content]
        self.text = "".join(map(_text, parts))
        self.images = _names(turn.get("images")) + [
            name for part in parts if isinstance(part, dict) for name in _names(part.get("image"))
        ]


def _text(part: object) -> str:
    text = part.get("text", "") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else ""


def _names(images: object) -> list[str]:
    """The paths of images, which come alone or in a list, as words or with their path beside their bytes."""
    held = images if isinstance(images, list) else [] if images is None else [images]
    names = [image.get("path") if isinstance(image, dict) else image for image in held]
    if not all(isinstance(name, str) for name in names):
        raise DataError("an image is not named by its path")
    return list(map(str, names))


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise DataError("it has no list of messages")
    return value


PROMPT = "Free OCR."
MESSAGES_FORBIDDEN = re.compile(f"[{HALF}]|<(?:image|video|audio)>")
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

    def add(self, image: Page, stem: str) -> Added:
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
