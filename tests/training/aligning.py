"""Pages of real handwriting to align with texts."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lxml import etree
from PIL import Image

from dsocr.formats.alto import parse_alto
from dsocr.formats.xml import parse_xml
from dsocr.inference.reader import LocalReader
from dsocr.text import comparable

SAMPLE = Path("examples/copiste")
PAGES = ("imp_wikitexte_0052", "imp_wikitexte_0093")


def copy_pages(folder: Path, *, lines: int | None = None) -> Path:
    """Copy two images and their ALTO files, which have the lines, all or the first so many of each."""
    for name in PAGES:
        for kind, suffix in (("alto", ".xml"), ("jpg", ".jpg")):
            (folder / kind).mkdir(exist_ok=True)
            shutil.copy(SAMPLE / kind / f"{name}{suffix}", folder / kind)
        path = folder / "alto" / f"{name}.xml"
        root = parse_xml(path)
        for line in root.findall(".//{*}TextLine")[lines:] if lines else ():
            line.getparent().remove(line)  # type: ignore[union-attr]
        path.write_bytes(etree.tostring(root))
    return folder


def true_lines(scans: Path, name: str) -> list[str]:
    """Return the texts of a page's lines."""
    return [comparable(line.text) for line in parse_alto(parse_xml(scans / "alto" / f"{name}.xml")).lines]


def reading_once() -> Callable[[LocalReader, Sequence[tuple[str, Image.Image]]], list[Any]]:
    """Return a `read_steps` that reads an image once, however many alignments need it; `small` reads each alone."""
    read_steps, known = LocalReader.read_steps, dict[bytes, Any]()

    def read(reader: LocalReader, images: Sequence[tuple[str, Image.Image]]) -> list[Any]:
        keys = [image.tobytes() for _, image in images]
        new = [pair for pair, key in zip(images, keys, strict=True) if key not in known]
        known.update(zip((image.tobytes() for _, image in new), read_steps(reader, new) if new else [], strict=True))
        return [known[key] for key in keys]

    return read
