"""Low pages with lines of zigzags, which a detector finds and learns to find in seconds."""

from pathlib import Path

from PIL import Image, ImageDraw

from dsocr.document import Box
from tests.data.making import page_xml, write

SIZE = (960, 64)
LINES = ((40, 8, 440, 34), (520, 8, 930, 34), (40, 36, 700, 60))


def strips(folder: Path, lines: tuple[Box, ...] = LINES, pages: int = 4) -> Path:
    """Draw low pages with lines of zigzags, and describe them in PAGE files."""
    folder.mkdir(parents=True)
    for number in range(pages):
        image = Image.new("RGB", SIZE, (250, 250, 240 + number))
        pen = ImageDraw.Draw(image)
        drawn: list[str] = []
        for left, top, right, bottom in lines:
            for x in range(left + 6, right - 12, 14):
                pen.line([(x, top + 8), (x + 7, bottom - 9), (x + 12, top + 9)], fill=(20, 20, 60), width=2)
            corners = f"{left},{top} {right},{top} {right},{bottom} {left},{bottom}"
            drawn.append(f'<TextLine id="l{len(drawn)}"><Coords points="{corners}"/></TextLine>')
        whole = '<Coords points="0,0 960,0 960,64 0,64"/>'
        region = f'<TextRegion id="r">{whole}{"".join(drawn)}</TextRegion>'
        image.save(folder / f"p{number}.png")
        write(folder / f"p{number}.xml", page_xml(region, image=f"p{number}.png", size=SIZE))
    return folder
