"""What was read as plain text.

Line images are a table, `name<TAB>text`, where line breaks inside a text become ` / `. Of pages it is the running text:
a line a line, an empty line between regions, a form feed between pages, as `pdftotext` writes it.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from dsocr.data.targets.filling import Step
from dsocr.inference.pages import ReadPage
from dsocr.runs import writing_whole


def write_text(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """The texts of all pages, in order."""
    with writing_whole(path) as file:
        before = ""
        for page in pages:
            if page.page.shows == "line":
                for line in page.lines:
                    file.write(f"{line.id}\t{line.text.replace(chr(10), ' / ')}\n")
                continue
            file.write(before + "\n\n".join(_regions(page)) + "\n")
            before = "\f"


def _regions(page: ReadPage) -> Iterator[str]:
    for _, lines in groupby(page.written, key=lambda line: line.region):
        yield "\n".join(line.text for line in lines)
