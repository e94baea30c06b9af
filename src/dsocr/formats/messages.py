"""Conversations that other programs train on: ms-swift, LLaMA-Factory and Unsloth, in JSONL or one JSON list.

A sample is the image of a row and the assistant's answer about it, the `response` in rows of ms-swift 2. The user's
question is dropped, because the prompt belongs to the configuration of a run.
"""

import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from dsocr.document import Item, Line, Page, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.formats.format import (
    IMAGES,
    SURROGATES,
    Columns,
    Format,
    SourceFile,
    WritePage,
    Written,
    cut_lines,
    read_files,
    source_files,
)
from dsocr.io.encodings import head, parse_json, read_json, read_text
from dsocr.io.files import UniqueStems

PROMPT = "Free OCR."

_TALK = rb'"(?:messages|conversations)"\s*:\s*\[|"query"\s*:.*"response"\s*:|"response"\s*:.*"query"\s*:'
_HEAD = {
    ".jsonl": re.compile(rb"\A\s*\{[^\n]*(?:%b)" % _TALK),
    ".json": re.compile(rb"\A\s*\[.*(?:%b)" % _TALK, re.DOTALL),
}
_ASSISTANT = frozenset({"assistant", "gpt", "model"})
_FORBIDDEN = re.compile(f"[{SURROGATES}]|<(?:image|video|audio)>")
"""Unpaired surrogates, and placeholders that the programs would replace by an image."""
_UNSPLIT = "lines"
"""File stem for lines without a split."""
_DATASET_INFO = {
    "formatting": "sharegpt",
    "columns": {"messages": "messages", "images": "images"},
    "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"},
}
"""Facts about a file that LLaMA-Factory needs before it can be named as a `dataset`."""


def find_messages(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the files of conversations in a folder, judged by their first kilobytes, or the one file named."""
    return [path for path in source_files(source, _HEAD) if is_messages(path)]


def is_messages(path: Path) -> bool:
    """Return whether a file begins with a conversation."""
    pattern = _HEAD.get(path.suffix.lower())
    return pattern is not None and bool(pattern.match(head(path)))


def _read_file(file: SourceFile) -> Iterator[Item]:
    """Read the rows of a JSONL file or JSON list; a row that cannot be read is skipped."""
    if file.path.suffix.lower() == ".json":
        rows = read_json(file.path)
        if not isinstance(rows, list):
            raise DataError("it is not a list of conversations", code="annotation-invalid", where=file.path)
        for number, row in enumerate(rows, start=1):
            yield _read_row(file, row, f"{file.where}#{number}")
        return
    for number, text in enumerate(io.StringIO(read_text(file.path), newline="\n"), start=1):
        if text.strip():
            yield _read_row(file, text, f"{file.where}:{number}")


def _read_row(file: SourceFile, row: object, place: str) -> Item:
    """Read a row, which is still a text if it is a line of JSONL."""
    try:
        name, text, columns = _parse_row(parse_json(row, place) if isinstance(row, str) else row)
    except DataError as error:
        return Skipped(SkipReason.BAD_SOURCE, place, error.message)
    return file.find_page(name, place, [Line(text, place)], split=file.split, columns=columns)


def _parse_row(row: object) -> tuple[str, str, dict[str, str]]:
    """Return the image's name, the transcription, and the row's other scalar values."""
    messages = row.get("messages", row.get("conversations")) if isinstance(row, dict) else None
    if isinstance(row, dict) and messages is None and "response" in row:
        turns = 1 + len(row.get("history") or ())
        messages = [{"role": "assistant", "content": row["response"]}] * turns
    if not isinstance(row, dict) or not isinstance(messages, list):
        raise DataError("it has no list of messages", code="annotation-invalid")
    answers: list[str] = []
    images = _image_names(row.get("images", row.get("image")))
    in_messages: list[str] = []
    for message in messages:
        if not isinstance(message, dict):
            raise DataError("a message is not a JSON object", code="annotation-invalid")
        # `role` and `content`, or LLaMA-Factory's `from` and `value`; the content may be in parts.
        content = message.get("content", message.get("value"))
        parts = content if isinstance(content, list) else [content]
        # Unsloth writes some models' own role tokens: <|User|>, <|Assistant|>.
        if str(message.get("role", message.get("from", ""))).strip("<|>").lower() in _ASSISTANT:
            answers.append("".join(map(_part_text, parts)))
        in_messages += _image_names(message.get("images"))
        in_messages += [name for part in parts if isinstance(part, dict) for name in _image_names(part.get("image"))]
    if len(answers) != 1:
        raise DataError(f"the assistant speaks {len(answers)} times, where once is expected", code="annotation-invalid")
    names = images or in_messages
    if len(names) != 1:
        raise DataError(f"{len(names)} images in one conversation, where one is expected", code="annotation-invalid")
    return names[0], answers[0], {key: str(value) for key, value in row.items() if isinstance(value, str | int | float)}


def _part_text(part: object) -> str:
    text = part.get("text", "") if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""


def _image_names(images: object) -> list[str]:
    """Return the paths of one image or a list of images, each a string or an object with `path` and `bytes`."""
    entries = images if isinstance(images, list) else [] if images is None else [images]
    names = [image.get("path") if isinstance(image, dict) else image for image in entries]
    if not all(isinstance(name, str) for name in names):
        raise DataError("an image is not named by its path", code="annotation-invalid")
    return list(map(str, names))


def _row_with_placeholder(image: str, text: str) -> dict[str, Any]:
    question = {"role": "user", "content": f"<image>\n{PROMPT}"}
    return {"messages": [question, {"role": "assistant", "content": text}], "images": [image]}


def _row_with_parts(image: str, text: str) -> dict[str, Any]:
    question = [{"type": "image", "image": image}, {"type": "text", "text": PROMPT}]
    answer = [{"type": "text", "text": text}]
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


@contextmanager
def writing_messages(
    folder: Path,
    columns: Sequence[str],
    *,
    row: Callable[[str, str], dict[str, Any]],
    is_list: bool = False,
) -> Iterator[WritePage]:
    """Write line images into `images/`, and for each a `row` made of the image's name and its text.

    The rows of a split are lines of JSONL, or one JSON list with a `dataset_info.json` that describes the files.
    """
    stems = UniqueStems()
    files: dict[str, TextIO] = {}

    def write(page: Page, stem: str) -> Written:
        (folder / IMAGES).mkdir(exist_ok=True)
        images, skipped = cut_lines(page, stem, stems)
        names = {"writer": page.writer or "", "page": page.page or "", "document": page.document or ""}
        split = page.split or _UNSPLIT
        for name, image, line in images:
            (folder / IMAGES / name).write_bytes(image)
            content = json.dumps(row(f"{IMAGES}/{name}", line.text) | names, ensure_ascii=False)
            before = ",\n" if split in files else "[\n"
            if split not in files:
                path = folder / f"{split}{'.json' if is_list else '.jsonl'}"
                files[split] = stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
            files[split].write(before + content if is_list else content + "\n")
        return Written(len(images), skipped)

    with ExitStack() as stack:
        yield write
        if is_list:
            for file in files.values():
                file.write("\n]\n")
            info = {name: {"file_name": f"{name}.json", **_DATASET_INFO} for name in sorted(files)}
            content = json.dumps(info, ensure_ascii=False, indent=2) + "\n"
            (folder / "dataset_info.json").write_bytes(content.encode())


FORMATS = (
    Format(
        name="messages",
        title="conversations of ms-swift and others",
        find=find_messages,
        read=lambda source, _: read_files(source, find_messages(source), _read_file),
        example="train.jsonl -o data/mine",
    ),
    Format(
        name="ms-swift",
        title="conversations for ms-swift, line images beside",
        writing=partial(writing_messages, row=_row_with_placeholder),
        forbidden=_FORBIDDEN,
        next_step="in {out}: swift sft --dataset FILE.jsonl ... (images are named as seen from there)",
    ),
    Format(
        name="llama-factory",
        title="conversations for LLaMA-Factory, line images beside",
        writing=partial(writing_messages, row=_row_with_placeholder, is_list=True),
        forbidden=_FORBIDDEN,
        next_step="in a LLaMA-Factory recipe: dataset_dir and media_dir {out}, dataset as in its dataset_info.json",
    ),
    Format(
        name="unsloth",
        title="conversations for Unsloth, line images beside",
        writing=partial(writing_messages, row=_row_with_parts),
        forbidden=_FORBIDDEN,
        next_step="in {out}: datasets.load_dataset('json', data_files='FILE.jsonl') for Unsloth's trainer",
    ),
)
