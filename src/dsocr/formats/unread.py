"""Formats that are not read, recognized by the start of their files, and the export to choose instead."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from dsocr.io.encodings import head
from dsocr.io.files import list_files

_TABLE = "write a table with the columns image, text and polygon (or bbox)"
_KINDS: tuple[tuple[str, str, str, str], ...] = (
    ("Supervisely", r"\.json", r'"(?:classTitle|classId|geometryType)"\s*:|"classes"\s*:\s*\[', _TABLE),
    ("VIA", r"\.json", r'"_via_|"region_attributes"\s*:', _TABLE),
    ("labelme", r"\.json", r'"shapes"\s*:\s*\[', _TABLE),
    ("docTR's boxes", r"\.json", r'"(?:typed_words|img_dimensions)"\s*:', _TABLE),
    ("MMOCR", r"\.json", r'"(?:data_list|metainfo)"\s*:', _TABLE),
    ("CVAT", r"\.xml", r"<annotations>\s*<(?:version|meta|image)\b", "export COCO 1.0, with the text as an attribute"),
    ("ABBYY FineReader", r"\.xml", r"abbyy\.com|FineReader", "export ALTO"),
    (
        "TEI",
        r"\.(?:xml|tei)",
        r"<(?:\w+:)?TEI\b",
        "export PAGE or ALTO, or find its lines with `dsocr align SCANS TEI`",
    ),
    ("hOCR", r"\.(?:x?html?|hocr|xml)", r"ocr_page", "export ALTO or PAGE"),
    ("PyLaia", r"\.txt", r"(?m)^\S+ .*<space>", "write a table: image, tab, text, with spaces for <space>"),
    ("a list without tabs", r"\.txt", r"(?i)\A\S+\.(?:png|jpe?g|tiff?)[ ,;]", "write image, tab, text in each line"),
    ("LMDB", r"\.mdb", "", "write its images as files and its labels as a table"),
    ("Arrow", r"\.arrow", "", "`datasets.load_from_disk(FOLDER).to_parquet(FILE)`; for kraken, the XML it was made of"),
    ("HDF5 or TFRecord", r"\.(?:h5|hdf5|tfrecords?)", "", "write its images as files and its texts as a table"),
)
"""Program, ending of names, pattern in the first kilobytes, and remedy."""
_MOST = 1000
"""Files whose start is read for a message."""


def describe_files(files: Iterable[Path]) -> str:
    """Count files by their endings, the most frequent first."""
    counts = Counter(path.suffix.lower() or "without an ending" for path in files).most_common(6)
    return ", ".join(f"{count} {ending}" for ending, count in counts) or "no files"


def explain_unread(source: Path) -> str | None:
    """Return the first file of each format that is recognized among the first 1000, with the remedies."""
    first: dict[str, str] = {}
    for path in [source] if source.is_file() else list_files(source)[:_MOST]:
        for program, ending, start, remedy in _KINDS:
            is_new = program not in first and re.fullmatch(ending, path.suffix, re.IGNORECASE)
            if is_new and (not start or re.search(start, head(path).decode("utf-8", "replace"))):
                first[program] = f"{path.name} looks like {program}: {remedy}"
    return "; ".join(first.values()) or None
