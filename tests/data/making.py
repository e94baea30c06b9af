"""Small sources to test with: pictures, ALTO and PAGE files, pairs, tables and Parquet files."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw

from dsocr.document import Sample

SQUARE = "10,10 60,10 60,30 10,30"


def picture(path: Path, size: tuple[int, int] = (100, 50), colour: Any = "white", **options: Any) -> Path:
    """An image file of one colour with a dark bar, so that no two sizes look alike."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", size, colour)
    ImageDraw.Draw(image).rectangle((10, 10, size[0] // 2, 20), fill="navy")
    image.save(path, **options)
    return path


def pair(folder: Path, stem: str, text: str, *, colour: Any = "white", ending: str = ".txt") -> None:
    """`stem.png` and its text."""
    picture(folder / f"{stem}.png", colour=colour)
    write(folder / f"{stem}{ending}", text)


def file_of(sample: Sample) -> Path:
    """Its image, in a separate file."""
    assert isinstance(sample.image, Path)
    return sample.image


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


def png(colour: Any = "white", size: tuple[int, int] = (100, 50)) -> bytes:
    """The bytes of an image file."""
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    return buffer.getvalue()


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path, **options)
    return path


def alto(
    lines: str, *, image: str = "p.png", unit: str = "pixel", size: tuple[int, int] = (100, 50), head: str = ""
) -> str:
    """An ALTO document around `lines`."""
    return f"""<?xml version="1.0" encoding="UTF-8"?>{head}
<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#">
<Description><MeasurementUnit>{unit}</MeasurementUnit>
<sourceImageInformation><fileName>{image}</fileName></sourceImageInformation></Description>
<Layout><Page WIDTH="{size[0]}" HEIGHT="{size[1]}"><PrintSpace>
<TextBlock>{lines}</TextBlock></PrintSpace></Page></Layout></alto>"""


def alto_line(text: str, polygon: str = SQUARE) -> str:
    return (
        f'<TextLine BASELINE="10 25 60 25" HPOS="10" VPOS="10" WIDTH="50" HEIGHT="20">'
        f'<Shape><Polygon POINTS="{polygon}"/></Shape><String CONTENT="{text}"/></TextLine>'
    )


def page_xml(
    regions: str, *, image: str = "p.png", version: str = "2019-07-15", size: tuple[int, int] = (100, 50)
) -> str:
    """A PAGE document around `regions`."""
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/{version}">
<Page imageFilename="{image}" imageWidth="{size[0]}" imageHeight="{size[1]}">{regions}</Page></PcGts>"""


def page_line(text: str, *, custom: str = "", points: str = SQUARE) -> str:
    return (
        f'<TextLine custom="{custom}"><Coords points="{points}"/>'
        f"<TextEquiv><Unicode>{text}</Unicode></TextEquiv></TextLine>"
    )


def write_pages(folder: Path, names: Sequence[str], lines: int = 3) -> Path:
    """ALTO pages with an image each, `lines` lines to a page; no text and no image is there twice."""
    for place, name in enumerate(names, start=len(list(folder.glob("*.png")))):
        picture(folder / f"{name}.png", colour=(255, 255, 250 - place))
        marked = "".join(alto_line(f"{name} строка {number}") for number in range(lines))
        write(folder / f"{name}.xml", alto(marked, image=f"{name}.png"))
    return folder
