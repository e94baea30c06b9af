"""Output formats of a transcription, one file each, and the table of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsocr.data.targets.filling import Step
from dsocr.errors import DataError
from dsocr.inference.formats.hocr import write_hocr
from dsocr.inference.formats.jsonl import write_characters, write_jsonl
from dsocr.inference.formats.markup import write_alto, write_filled, write_page
from dsocr.inference.formats.pdf import write_pdf
from dsocr.inference.formats.tei import write_tei
from dsocr.inference.formats.text import write_text
from dsocr.inference.inputs.finding import Kind
from dsocr.inference.pages import ReadPage


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write what was read: `write` takes pages as they come, and the file is whole when it returns.

    Files end in `suffix`. `single` formats hold one page a file, so several pages need a folder. In a folder pages have
    files of their own, but those of one PDF stay together in formats that are `paged`.
    """

    name: str
    title: str
    suffix: str
    write: Callable[[Iterable[ReadPage], Path, Step], None]
    single: bool = False
    paged: bool = False


FORMATS = {
    format_.name: format_
    for format_ in (
        Format("text", "plain text", ".txt", write_text),
        Format("characters", "the same with the confidence of each character", ".jsonl", write_characters),
        Format("jsonl", "a line of JSON for each line", ".jsonl", write_jsonl),
        Format("page", "PAGE XML", ".xml", write_page, single=True),
        Format("alto", "ALTO 4 XML", ".xml", write_alto, single=True),
        Format("hocr", "hOCR", ".hocr", write_hocr),
        Format("pdf", "searchable PDF", ".pdf", write_pdf, paged=True),
        Format("tei", "TEI P5", ".tei", write_tei),
        Format("filled", "ALTO and PAGE files as they came, with their texts", ".xml", write_filled, single=True),
    )
}

FORMAT_BY_SUFFIX = {format_.suffix: format_ for format_ in FORMATS.values() if format_.suffix != ".xml"}


def choose_formats(out: Path, names: Sequence[str], kinds: Sequence[Kind]) -> tuple[list[Format], bool]:
    """The formats that were asked for, else the one that the name of `out` ends in; and whether `out` is a folder.

    Where nothing is said, ALTO and PAGE files come back filled, and a folder gets PAGE, which says most and which the
    programs of archives read. A folder is what has no suffix that is known, or is there.
    """
    for name in names:
        if name not in FORMATS:
            raise DataError(f"unknown output format {name!r}; the formats are: {', '.join(FORMATS)}")
    suffix = out.suffix.lower()
    asked = [FORMATS[name] for name in dict.fromkeys(names)]
    if not asked and suffix in FORMAT_BY_SUFFIX:
        asked = [FORMAT_BY_SUFFIX[suffix]]
    if not asked and suffix in {"", ".xml"} and set(kinds) == {"markup"}:
        asked = [FORMATS["filled"]]
    if not asked and suffix == ".xml":
        raise DataError("both PAGE and ALTO end in .xml", where=out, hint="give --format page or --format alto")
    if not asked and suffix:
        endings = ", ".join(FORMAT_BY_SUFFIX)
        raise DataError(f"is no kind of output: give a folder, or a file ending in {endings}", where=out)
    asked = asked or [FORMATS["page"]]
    is_folder = out.is_dir() or suffix not in {format_.suffix for format_ in asked}
    if not is_folder and len(asked) > 1:
        raise DataError("a file holds one format", where=out, hint="name a folder")
    return asked, is_folder
