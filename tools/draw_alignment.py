"""Draw a page that `dsocr align` has given its text: the scan, and beside each line what it got and how sure that is.

    python tools/draw_alignment.py [--out docs/pictures/aligned.jpg]

The page is one of `examples/copiste`. Its text is given as one block, with a note of an edition in it and without one
of its lines; `small` reads it.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

import dsocr
from dsocr.document import Line
from dsocr.formats.alto import parse_alto
from dsocr.formats.page import parse_page
from dsocr.formats.xml import parse_xml
from dsocr.images import open_image

ROOT = Path(__file__).parents[1]
SAMPLE, PAGE = ROOT / "examples" / "copiste", "wikitexte_0073"
NOTE = "[Note de l'éditeur : la suite manque dans la copie de 1894.]"
LEFT_OUT, NOTE_AFTER = 4, 9
"""The line that the text lacks, and the one after whose second word the note stands."""
SCAN_WIDTH, TEXT_WIDTH, MARGIN = 620, 860, 24
PAPER, INK, QUIET = "#ffffff", "#1d232b", "#6b7480"
SURE, DOUBT, WITHOUT = "#1a7f4b", "#c86a00", "#8a93a0"


def font(size: int) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which matplotlib brings."""
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)


def write_text(path: Path, lines: list[str]) -> None:
    """Write the lines as one block, with a note and without a line."""
    words = lines[NOTE_AFTER].split()
    lines = [*lines[:NOTE_AFTER], " ".join([*words[:2], NOTE, *words[2:]]), *lines[NOTE_AFTER + 1 :]]
    path.write_text(" ".join(line for place, line in enumerate(lines) if place != LEFT_OUT), encoding="utf-8")


def describe(line: Line) -> tuple[str, str, str]:
    """Return a colour, the score, and the text of a line."""
    if line.alignment is None:
        return WITHOUT, "", "no text: this line is not in yours"
    colour = SURE if line.alignment.sure else DOUBT
    return colour, f"{100 * min(line.alignment.score, 0.999):.1f} %", line.text


def fit(text: str, width: int, drawing: ImageDraw.ImageDraw) -> ImageFont.FreeTypeFont:
    """Return the largest font in which the text is not wider."""
    return next(
        (letters for size in range(19, 9, -1) if drawing.textlength(text, letters := font(size)) <= width), font(10)
    )


def draw(scan: Image.Image, lines: Sequence[Line]) -> Image.Image:
    """Draw the scan with the outlines of its lines, and their texts beside them."""
    scale = SCAN_WIDTH / scan.width
    page = scan.resize((SCAN_WIDTH, round(scan.height * scale)), Image.Resampling.LANCZOS)
    top = 64
    bottom = max(line.outline.box[3] for line in lines if line.outline)
    page = page.crop((0, 0, page.width, min(round(bottom * scale) + MARGIN, page.height)))
    picture = Image.new("RGB", (SCAN_WIDTH + TEXT_WIDTH + 3 * MARGIN, page.height + top), PAPER)
    picture.paste(page, (MARGIN, top))
    drawing = ImageDraw.Draw(picture)
    text_left, right = SCAN_WIDTH + 2 * MARGIN, picture.width - MARGIN
    for x, words in ((MARGIN, "the scan, with its lines"), (text_left, "what each line got of the text")):
        drawing.text((x, 20), words, INK, font(19))
    x = right
    for colour, words in ((WITHOUT, "none"), (DOUBT, "in doubt"), (SURE, "sure")):
        x -= round(drawing.textlength(words, font(16)))
        drawing.text((x, 23), words, QUIET, font(16))
        drawing.ellipse((x - 20, 26, x - 8, 38), colour)
        x -= 44
    for line in lines:
        if line.outline is None:
            continue
        colour, score, text = describe(line)
        points = [(MARGIN + x * scale, top + y * scale) for x, y in line.outline.polygon]
        drawing.polygon(points, outline=colour, width=2)
        middle = sum(y for _, y in points) / len(points)
        drawing.ellipse((text_left, middle - 6, text_left + 12, middle + 6), colour)
        drawing.text((text_left + 82, middle), score, colour, font(16), anchor="rm")
        quiet = QUIET if line.alignment is None else INK
        drawing.text((text_left + 98, middle), text, quiet, fit(text, right - text_left - 98, drawing), anchor="lm")
    return picture


def main() -> None:
    """Align the page and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures" / "aligned.jpg")
    out: Path = parser.parse_args().out
    alto = SAMPLE / "alto" / f"{PAGE}.xml"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_text(folder / "text.txt", [line.text for line in parse_alto(parse_xml(alto)).lines])
        report = dsocr.align(alto, folder / "text.txt", folder / "out")
        print(report)
        path = next((folder / "out" / "pages" / "page").glob("*.xml"))
        page = parse_page(parse_xml(path), path.name)
        image = open_image(next(folder.joinpath("out", "pages").rglob(f"{PAGE}.jpg"))).convert("RGB")
        draw(image, page.lines).save(out, quality=82, optimize=True)


if __name__ == "__main__":
    main()
