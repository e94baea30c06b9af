"""Render a larger test set by the writers of the shipped sample, for measurements that need more than 150 lines.

    python tools/render_more.py --fonts FONTS -o more
    dsocr evaluate runs/demo/russian --dataset more
    python tools/render_more.py --fonts FONTS -o more-known --writers anna boris vera

The result is a dataset folder with a test split only; it is not shipped. FONTS is as for `render_sample.py`. The 367
lines of `sample_texts/more.txt` are in no split of the sample. Each is drawn for every writer, with `--drawings 2`
twice, each time on another sheet with another pen. So texts repeat: four writers are four times the lines, but not four
times the texts. Intervals that take lines as independent, as those of `dsocr evaluate` over lines do, may be too narrow
(`lab/verdicts.md` has the numbers). The same fonts and texts give the same images.
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


def more_pages(writers: Iterable[str] = tuple(HANDS), drawings: int = 1) -> Iterator[Page]:
    """Every page of the additional texts by each writer, `drawings` times; pages are drawn independently."""
    texts = [lines for _, lines in read_texts(MORE)]
    for writer in writers:
        for number, lines in enumerate(texts, start=1):
            for drawing in range(1, drawings + 1):
                name = f"{writer}-more-{number:02d}-{drawing}"
                yield Page(name, writer, Split.TEST, lines, (list(HANDS).index(writer) + 1, drawing))


def make_more(fonts: Path, out: Path, pages: Sequence[Page]) -> Card:
    """Draw the pages and prepare them as the dataset folder `out`, which must not exist yet."""
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
    parser.add_argument("--writers", nargs="+", choices=tuple(HANDS), default=tuple(HANDS), help="all if not given")
    parser.add_argument("--drawings", type=int, default=1, help="number of times that each writer writes each text")
    options = parser.parse_args()
    try:
        card = make_more(options.fonts, options.out, list(more_pages(options.writers, options.drawings)))
    except DsocrError as error:
        sys.exit(f"error: {error}")
    print(f"made {options.out}: {card.splits[Split.TEST].samples} test lines")
    print(f"next: dsocr evaluate RUN --dataset {options.out}")


if __name__ == "__main__":
    main()
