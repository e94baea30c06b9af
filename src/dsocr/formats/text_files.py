"""Plain text: images with a text file each, and transcriptions as text or JSON lines.

A text file is `x.gt.txt` or `x.txt` for the image `x.png`, beside it or in a sibling folder (`words/x.txt`).
"""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from dsocr.document import Line, Page, ProcessingStep, Skipped, SkipReason, format_points
from dsocr.errors import DataError
from dsocr.formats.format import Columns, Format
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import read_text
from dsocr.io.files import list_files, relative, split_of_folder

_ENDINGS = (".gt.txt", ".txt")
_DOCUMENTATION = frozenset({"readme", "license", "licence", "license-cc-by-4.0", "copying", "notice", "changelog"})


def find_pairs(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the images of a folder that have a text file."""
    return list(_pair(source)[0])


def read_pairs(source: Path, columns: Columns | None = None) -> Iterator[Page | Skipped]:
    """Read every image with its text; an image without a text, or a text without an image, is skipped."""
    pairs, unpaired = _pair(source)
    yield from unpaired
    for image, text_file in pairs.items():
        where = relative(text_file, source)
        try:
            line = Line(read_text(text_file), where)
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, where, error.message)
            continue
        split = split_of_folder(image.parent.relative_to(source))
        yield Page(image, relative(image.with_suffix(""), source), where, (line,), split=split)


def _pair(source: Path) -> tuple[dict[Path, Path], list[Skipped]]:
    """Return image -> text file, and the files without a counterpart."""
    texts = _texts_by_stem(source)
    pairs, unpaired = {}, []
    for image in list_files(source, IMAGE_SUFFIXES):
        text_file = _nearest(image, texts.get(image.stem, []))
        if text_file:
            pairs[image] = text_file
        else:
            where = relative(image, source)
            unpaired.append(Skipped(SkipReason.NO_TRANSCRIPTION, where, "no text file has its name"))
    # A text that was passed over for a better one of the same name is not reported.
    stems = {image.stem for image in pairs}
    for stem, files in texts.items():
        if stem not in stems and stem.lower() not in _DOCUMENTATION:
            unpaired += [
                Skipped(SkipReason.NO_IMAGE, relative(file, source), "no image has its name") for file in files
            ]
    return pairs, unpaired


def _texts_by_stem(source: Path) -> dict[str, list[Path]]:
    texts: dict[str, list[Path]] = {}
    for path in list_files(source, {".txt"}):
        ending = next(ending for ending in _ENDINGS if path.name.lower().endswith(ending))
        texts.setdefault(path.name[: -len(ending)], []).append(path)
    return texts


def _nearest(image: Path, texts: list[Path]) -> Path | None:
    """Return the text beside the image, `.gt.txt` before `.txt`; else the only one in a sibling folder."""
    beside = [text for text in texts if text.parent == image.parent]
    if beside:
        return min(beside, key=lambda text: not text.name.lower().endswith(_ENDINGS[0]))
    near = [text for text in texts if text.parent.parent == image.parent.parent]
    return near[0] if len(near) == 1 else None


def write_text(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write the texts of all pages in order: a blank line between regions, a form feed between pages.

    The text of a line image follows its place and a tab.
    """
    with path.open("w", encoding="utf-8", newline="\n") as file:
        separator = ""
        for page in pages:
            if page.unit == "line":
                for line in page.lines:
                    file.write(f"{line.where}\t{line.text.replace(chr(10), ' / ')}\n")
                continue
            regions = groupby(page.transcribed_lines, key=lambda line: line.region)
            texts = ("\n".join(line.text for line in lines) for _, lines in regions)
            file.write(separator + "\n\n".join(texts) + "\n")
            separator = "\f"


def write_json_lines(pages: Iterable[Page], path: Path, step: ProcessingStep, *, characters: bool = False) -> None:
    """Write a JSON object for each line, with or without text, pages and lines in order."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for page in pages:
            for line in page.lines:
                file.write(json.dumps(line_row(page, line, characters=characters), ensure_ascii=False) + "\n")


def line_row(page: Page, line: Line, *, characters: bool = False) -> dict[str, Any]:
    """Return a line as a JSON object; `characters` includes the confidence of each character."""
    prediction = {name: value for name, value in (line.prediction or {}).items() if characters or name != "characters"}
    row: dict[str, Any] = {"id": line.where, "text": line.text, **prediction}
    if line.prediction is None and line.text:
        row["was_there"] = True
    if line.outline is not None:
        row |= {
            "page": page.where,
            "region": line.region.id if line.region else None,
            "bbox": line.outline.box,
            "polygon": format_points(line.outline.polygon),
            "baseline": format_points(line.outline.baseline),
        }
    return row


FORMATS = (
    Format(
        name="pairs",
        title="images with a text file",
        find=find_pairs,
        read=read_pairs,
        example="lines -o data/mine --page '(.+)_'",
    ),
    Format(name="text", title="plain text", write_pages=write_text, suffix=".txt"),
    Format(
        name="characters",
        title="the same with the confidence of each character",
        write_pages=partial(write_json_lines, characters=True),
        suffix=".jsonl",
    ),
    Format(name="jsonl", title="a line of JSON for each line", write_pages=write_json_lines, suffix=".jsonl"),
)
