"""A source with two pages of three drawn lines each, as PAGE files, and a reader that needs no network."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from dsocr.inference.confidence import Prediction

TEXTS = [["первая строка", "вторая строка", ""], ["the third", "", "№ 25"]]


def make_pages(folder: Path) -> Path:
    """Two page images and their PAGE files; two lines have no text."""
    (folder / "page").mkdir(parents=True)
    for number, texts in enumerate(TEXTS, start=1):
        page = Image.new("RGB", (700, 400), (240, 235, 220))
        drawing = ImageDraw.Draw(page)
        lines = []
        for place, text in enumerate(texts):
            top = 40 + 110 * place
            drawing.text(
                (60, top + 10), f"line {place + 1} of page {number}", fill=(40, 40, 90), font=ImageFont.load_default(40)
            )
            points = f"40,{top} 640,{top} 640,{top + 80} 40,{top + 80}"
            content = f"<TextEquiv><Unicode>{text}</Unicode></TextEquiv>" if text else ""
            lines.append(f'<TextLine id="l{place}"><Coords points="{points}"/>{content}</TextLine>')
        page.save(folder / f"scan-{number}.png")
        separator = "\n"  # so that each line has a place of its own in the file
        markup = (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15">'
            f'<Page imageFilename="scan-{number}.png" imageWidth="700" imageHeight="400">'
            f'<TextRegion id="r"><Coords points="30,30 660,30 660,380 30,380"/>{separator.join(lines)}</TextRegion>'
            "</Page></PcGts>"
        )
        (folder / "page" / f"scan-{number}.xml").write_text(markup, encoding="utf-8")
    return folder


class FakeReader:
    """Reads the same from every image, with a doubtful last word."""

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        for name, picture in images:
            assert picture.width > 500
            yield Prediction(name, "не точно", 4, truncated=False, confidence=0.7, characters=(0.99,) * 3 + (0.4,) * 5)
