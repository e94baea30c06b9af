"""Conversations that other programs train on: ms-swift, LLaMA-Factory and Unsloth, in JSONL or one JSON list.

A sample is the image of a row and what the assistant says about it. What the user asks is dropped, because the prompt
belongs to the configuration of a run.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from dsocr.document import Line, Page, Skipped, SkipReason, Split
from dsocr.errors import DataError
from dsocr.formats.format import SURROGATES, Columns, Format, Written
from dsocr.formats.image_export import IMAGES, LineCutter
from dsocr.formats.image_finder import ImageFinder
from dsocr.io.encodings import head, parse_json, read_json, read_text
from dsocr.io.files import list_files, relative, split_of_folder, split_of_name

PROMPT = "Free OCR."

_SUFFIXES = frozenset({".jsonl", ".json"})
_HEAD = {
    ".jsonl": re.compile(rb'\A\s*\{[^\n]*"(?:messages|conversations)"\s*:\s*\['),
    ".json": re.compile(rb'\A\s*\[.*"(?:messages|conversations)"\s*:\s*\[', re.DOTALL),
}
_ASSISTANT = frozenset({"assistant", "gpt", "model"})
_FORBIDDEN = re.compile(f"[{SURROGATES}]|<(?:image|video|audio)>")
"""Unpaired surrogates, and placeholders that the programs would replace by an image."""
_UNSPLIT = "lines"
"""File stem for lines without a split."""


def find_messages(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the files of conversations in a folder, judged by their first kilobytes, or the one file named."""
    files = [source] if source.is_file() else list_files(source, _SUFFIXES)
    return [path for path in files if is_messages(path)]


def is_messages(path: Path) -> bool:
    """Return whether a file begins with a conversation."""
    pattern = _HEAD.get(path.suffix.lower())
    return pattern is not None and bool(pattern.match(head(path)))


def read_messages(source: Path, columns: Columns | None = None) -> Iterator[Page | Skipped]:
    """Read every conversation about one image."""
    root = source.parent if source.is_file() else source
    images = ImageFinder(root)
    for path in find_messages(source):
        where = relative(path, root)
        split = split_of_name(path.stem) or split_of_folder(path.relative_to(root).parent)
        try:
            for place, row in _rows(path, where):
                yield row if isinstance(row, Skipped) else _read_row(row, place, path, root, images, split)
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, where, error.message)


def _rows(path: Path, where: str) -> Iterator[tuple[str, object]]:
    """Yield the place and value of each row of a JSONL file or JSON list; a line that is not JSON is skipped."""
    if path.suffix.lower() == ".json":
        rows = read_json(path)
        if not isinstance(rows, list):
            raise DataError("it is not a list of conversations", code="json-not-list", where=path)
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


def _read_row(
    row: object, place: str, path: Path, root: Path, images: ImageFinder, split: Split | None
) -> Page | Skipped:
    try:
        name, text, columns = _parse_row(row)
    except DataError as error:
        return Skipped(SkipReason.BAD_SOURCE, place, error.message)
    try:
        image = images.find(name, near=path.parent)
    except DataError as error:
        return Skipped(SkipReason.NO_IMAGE, place, error.message)
    name = relative(image.with_suffix(""), root)
    return Page(image, name, place, (Line(text, place),), split=split, columns=columns)


def _parse_row(row: object) -> tuple[str, str, dict[str, str]]:
    """Return the image's name, the transcription, and the row's other scalar values."""
    if not isinstance(row, dict):
        raise DataError("it is not a JSON object", code="json-not-object")
    messages = row.get("messages", row.get("conversations"))
    if not isinstance(messages, list):
        raise DataError("it has no list of messages", code="messages-missing")
    turns = [_Turn(turn) for turn in messages]
    answers = [turn.text for turn in turns if turn.is_answer]
    if len(answers) != 1:
        raise DataError(f"the assistant speaks {len(answers)} times, where once is expected", code="answer-count")
    names = _image_names(row.get("images", row.get("image"))) or [name for turn in turns for name in turn.images]
    if len(names) != 1:
        raise DataError(f"{len(names)} images in one conversation, where one is expected", code="image-count")
    columns = {key: str(value) for key, value in row.items() if isinstance(value, str | int | float)}
    return names[0], answers[0], columns


class _Turn:
    """One message: `role` and `content`, or LLaMA-Factory's `from` and `value`; content may be in parts."""

    def __init__(self, turn: object) -> None:
        if not isinstance(turn, dict):
            raise DataError("a message is not a JSON object", code="json-not-object")
        role = str(turn.get("role", turn.get("from", "")))
        # Unsloth writes DeepSeek's own role tokens: <|User|>, <|Assistant|>.
        self.is_answer = role.strip("<|>").lower() in _ASSISTANT
        content = turn.get("content", turn.get("value"))
        parts: list[Any] = content if isinstance(content, list) else [content]
        self.text = "".join(map(_part_text, parts))
        self.images = _image_names(turn.get("images")) + [
            name for part in parts if isinstance(part, dict) for name in _image_names(part.get("image"))
        ]


def _part_text(part: object) -> str:
    text = part.get("text", "") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else ""


def _image_names(images: object) -> list[str]:
    """Return the paths of one image or a list of images, each a string or an object with `path` and `bytes`."""
    found = images if isinstance(images, list) else [] if images is None else [images]
    names = [image.get("path") if isinstance(image, dict) else image for image in found]
    if not all(isinstance(name, str) for name in names):
        raise DataError("an image is not named by its path", code="image-unnamed")
    return list(map(str, names))


@dataclass(frozen=True, slots=True)
class Convention:
    """The conversations of one program: a file suffix, the row for an image and its text, and extra files.

    A `.json` file is one list, a `.jsonl` file has a row per line. `extra_files` maps the stems of the written files to
    further JSON files by name.
    """

    suffix: str
    row: Callable[[str, str], dict[str, Any]]
    extra_files: Callable[[list[str]], Mapping[str, object]] = lambda _: {}


def _row_with_placeholder(image: str, text: str) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": f"<image>\n{PROMPT}"},
            {"role": "assistant", "content": text},
        ],
        "images": [image],
    }


def _row_with_parts(image: str, text: str) -> dict[str, Any]:
    question = [{"type": "image", "image": image}, {"type": "text", "text": PROMPT}]
    return {
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": [{"type": "text", "text": text}]},
        ]
    }


def _dataset_info(names: list[str]) -> Mapping[str, object]:
    """Describe each file for LLaMA-Factory, which needs it before a file can be named as a `dataset`."""
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
    columns = {"messages": "messages", "images": "images"}
    entry = {"formatting": "sharegpt", "columns": columns, "tags": tags}
    return {"dataset_info.json": {name: {"file_name": f"{name}.json", **entry} for name in names}}


class MessagesWriter:
    """Writes line images into `images/` and a row for each."""

    def __init__(self, folder: Path, columns: Sequence[str], *, convention: Convention) -> None:
        self.folder = folder
        self.convention = convention
        self._cutter = LineCutter()
        self._files: dict[str, TextIO] = {}

    def add(self, page: Page, stem: str) -> Written:
        """Write a page's lines."""
        (self.folder / IMAGES).mkdir(exist_ok=True)
        images, skipped = self._cutter.cut(page, stem)
        names = {"writer": page.writer or "", "page": page.page or "", "document": page.document or ""}
        for image in images:
            (self.folder / IMAGES / image.file).write_bytes(image.content)
            row = self.convention.row(f"{IMAGES}/{image.file}", image.line.text)
            self._write(page.split or _UNSPLIT, json.dumps(row | names, ensure_ascii=False))
        return Written(len(images), skipped)

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
        """Finish the files and write the program's extra files."""
        for file in self._files.values():
            file.write("\n]\n" if self.convention.suffix == ".json" else "")
            file.close()
        for name, content in self.convention.extra_files(sorted(self._files)).items():
            (self.folder / name).write_bytes((json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode())


def _conversations(name: str, title: str, convention: Convention, next_step: str) -> Format:
    return Format(
        name=name,
        title=title,
        open_writer=partial(MessagesWriter, convention=convention),
        forbidden=_FORBIDDEN,
        next_step=next_step,
    )


FORMATS = (
    Format(
        name="messages",
        title="conversations of ms-swift and others",
        find=find_messages,
        read=read_messages,
        example="train.jsonl -o data/mine",
    ),
    _conversations(
        "ms-swift",
        "conversations for ms-swift, line images beside",
        Convention(".jsonl", _row_with_placeholder),
        "in {out}: swift sft --dataset FILE.jsonl ... (images are named as seen from there)",
    ),
    _conversations(
        "llama-factory",
        "conversations for LLaMA-Factory, line images beside",
        Convention(".json", _row_with_placeholder, _dataset_info),
        "in a LLaMA-Factory recipe: dataset_dir and media_dir {out}, dataset as in its dataset_info.json",
    ),
    _conversations(
        "unsloth",
        "conversations for Unsloth, line images beside",
        Convention(".jsonl", _row_with_parts),
        "in {out}: datasets.load_dataset('json', data_files='FILE.jsonl') for Unsloth's trainer",
    ),
)
