"""Draws a larger test in the hands of the shipped sample, to measure what its 150 test lines are too few for.

    python tools/render_more.py --fonts FONTS -o more
    dsocr evaluate runs/demo --dataset more
    python tools/render_more.py --fonts FONTS -o more-known --hands anna boris vera

A dataset folder with a test split and nothing else; none of it is shipped. FONTS is as `render_sample.py` wants it. The
texts, `sample_texts/more.txt`, were written for this and stand in no split of the sample: 367 lines. Each is drawn in
every hand, and with `--drawings 2` in each hand twice, always on another sheet with another pen. So the same words come
again: four hands are four times the lines, but not four times the texts, and what takes every line or word for a draw
of its own, as intervals over lines and the errors by chance of `dsocr evaluate` do, may make them too narrow
(`docs/lab/experiments.md` says by how much). The same fonts and texts give the same images.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dsocr.data.dataset import Card
from dsocr.data.prepare import prepare
from dsocr.document import Split
from dsocr.errors import DsocrError
from render_sample import HANDS, TEXTS, Page, read_texts, write_source

MORE = TEXTS / "more.txt"


def more_pages(hands: Iterable[str] = tuple(HANDS), drawings: int = 1) -> Iterator[Page]:
    """Every page of the further texts in each handwriting, repeated; pages are drawn independently."""
    texts = [lines for _, lines in read_texts(MORE)]
    for writer in hands:
        for number, lines in enumerate(texts, start=1):
            for drawing in range(1, drawings + 1):
                name = f"{writer}-more-{number:02d}-{drawing}"
                yield Page(name, writer, Split.TEST, lines, (list(HANDS).index(writer) + 1, drawing))


def make_more(fonts: Path, out: Path, pages: Sequence[Page]) -> Card:
    """Draws the pages and prepares them as the dataset folder `out`, which must not be there yet."""
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "rendered")
        source.mkdir()
        write_source(fonts, list(pages), source)
        return prepare(source, out, split="0/0/1", strict=True).card


def main() -> None:
    """Parse the command line, draw the test set, and print its size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fonts", type=Path, required=True, help="folder with unpacked @fontsource packages")
    parser.add_argument("-o", "--out", type=Path, required=True, help="dataset folder to write")
    parser.add_argument("--hands", nargs="+", choices=tuple(HANDS), default=tuple(HANDS), help="all if not given")
    parser.add_argument("--drawings", type=int, default=1, help="how often each hand writes each text")
    options = parser.parse_args()
    try:
        card = make_more(options.fonts, options.out, list(more_pages(options.hands, options.drawings)))
    except DsocrError as error:
        sys.exit(f"error: {error}")
    print(f"made {options.out}: {card.splits[Split.TEST].samples} test lines")
    print(f"next: dsocr evaluate RUN --dataset {options.out}")


if __name__ == "__main__":
    main()
