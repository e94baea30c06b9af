"""One small source of every format that can be read, all saying the same difficult texts."""

import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from dsocr.data.prepare import prepare
from dsocr.text import TextPolicy
from tests.data.making import alto, page_xml, picture, png, write, write_parquet
from tests.formats.making_pdf import image_object, scan, write_pdf

PLAIN = [
    "Он  сказал: «да»",
    "й — \"кавычки\" и 'одна', <угол> & знак;",
    "ударе\u0301ние и\u0306 ѣ\u0308",
    "№\u202f5\u00a0— 😀 ﬁ",
    "=1+1",
]
"""Two spaces, quotes of every kind, marks that combine, spaces of other kinds, beyond the basic plane, a formula."""

ODD = ["с\tтабом", "две\nстроки", 'раз\r\n"два"\tтри']
"""What only some formats can hold: tabs and line ends inside a text."""

ALL = [*PLAIN, *ODD]

POLYGON = ((10, 10), (60, 12), (58, 30), (12, 29))
BASELINE = ((10, 25), (35, 24), (60, 26))
BOX = (5, 8, 70, 40)


def points(shape: tuple[tuple[int, int], ...], separator: str = ",") -> str:
    return " ".join(f"{x}{separator}{y}" for x, y in shape)


def attribute(text: str) -> str:
    return escape(text).replace("\t", "&#9;").replace("\n", "&#10;").replace("\r", "&#13;")


def pictures(folder: Path, texts: list[str], name: str = "{}.png") -> list[tuple[int, str]]:
    """An image for each text, each of another colour; returns the texts with their numbers."""
    for place in range(len(texts)):
        picture(folder / name.format(place), colour=(255, len(texts), place))
    return list(enumerate(texts))


def make_alto(folder: Path) -> list[str]:
    """Polygons and baselines, a box alone, two pages in two splits."""
    for split, texts in (("train", PLAIN), ("test", ODD)):
        lines = "".join(
            f'<TextLine BASELINE="{points(BASELINE, " ")}" HPOS="10" VPOS="10" WIDTH="50" HEIGHT="20"><Shape>'
            f'<Polygon POINTS="{points(POLYGON, " ")}"/></Shape><String CONTENT="{attribute(text)}"/></TextLine>'
            for text in texts
        )
        lines += '<TextLine HPOS="5" VPOS="8" WIDTH="65" HEIGHT="32"><String CONTENT="ящик"/></TextLine>'
        picture(folder / split / "p.png")
        write(folder / split / "p.xml", alto(lines))
    return [*PLAIN, "ящик", *ODD, "ящик"]


def make_page(folder: Path) -> list[str]:
    """Two regions, polygons and baselines."""
    lines = [
        f'<TextLine><Coords points="{points(POLYGON)}"/><Baseline points="{points(BASELINE)}"/>'
        f"<TextEquiv><Unicode>{escape(text).replace(chr(13), '&#13;')}</Unicode></TextEquiv></TextLine>"
        for text in ALL
    ]
    regions = "".join(
        f'<TextRegion id="r{n}">{"".join(part)}</TextRegion>' for n, part in enumerate((lines[:3], lines[3:]))
    )
    picture(folder / "p.png")
    write(folder / "page" / "p.xml", page_xml(regions))
    return ALL


def make_table(folder: Path) -> list[str]:
    """A CSV file with columns for writer, page and split, and a custom column."""
    rows = "image,text,writer,page,split,note\n"
    for place, text in pictures(folder / "scans", ALL):
        quoted = text.replace('"', '""')
        rows += f'{place}.png,"{quoted}",Анна,стр. {place},{["train", "test", ""][place % 3]},n{place}\n'
    write(folder / "t.csv", rows)
    return ALL


def make_parquet(folder: Path) -> list[str]:
    """Bytes in two shards."""
    rows = [
        {"image": {"bytes": png((255, 255, place)), "path": f"{place}.png"}, "text": text, "writer": "Анна"}
        for place, text in enumerate(ALL)
    ]
    write_parquet(folder / "data" / "train-00000-of-00001.parquet", rows[:4])
    write_parquet(folder / "data" / "validation-00000-of-00001.parquet", rows[4:])
    return ALL


def make_coco(folder: Path) -> list[str]:
    """Polygons and one box."""
    shape: dict[str, Any] = {"segmentation": [[number for point in POLYGON for number in point]]}
    annotations = [
        {"id": place, "image_id": 1, **shape, "attributes": {"translation": text}} for place, text in enumerate(ALL)
    ]
    box = {"id": 99, "image_id": 1, "bbox": [5, 8, 65, 32], "attributes": {"translation": "ящик"}}
    images = [{"id": 1, "file_name": "p.png", "width": 100, "height": 50}]
    picture(folder / "images" / "p.png")
    write(folder / "annotations_val.json", json.dumps({"images": images, "annotations": [*annotations, box]}))
    return [*ALL, "ящик"]


def make_hkr(folder: Path) -> list[str]:
    """Published splits."""
    stages = "id,stage\n"
    for place, text in pictures(folder / "img", ALL, "0_0_{}.jpg"):
        write(folder / "ann" / f"0_0_{place}.json", json.dumps({"name": f"0_0_{place}", "description": text}))
        stages += f"0_0_{place},{['train', 'val', 'test1', 'test2'][place % 4]}\n"
    write(folder / "HKR_splitting.csv", stages)
    return ALL


def make_iam(folder: Path) -> list[str]:
    """Forms tell the writers."""
    rows = "".join(
        f"a01-000u-0{place} ok 154 19 1 2 3 4 {text.replace(' ', '|')}\n"
        for place, text in pictures(folder / "lines", PLAIN, "a01-000u-0{}.png")
    )
    write(folder / "ascii" / "lines.txt", "# head\n" + rows)
    write(folder / "ascii" / "forms.txt", "a01-000u 007 2 prt 7 5 52 36\n")
    return PLAIN


def make_messages(folder: Path) -> list[str]:
    """Two files named after splits."""
    for name, texts in (("train", PLAIN), ("val", ODD)):
        rows = ""
        for place, text in pictures(folder / "scans", texts, name + "{}.png"):
            said = [{"role": "user", "content": "<image>?"}, {"role": "assistant", "content": text}]
            rows += json.dumps({"messages": said, "images": [f"scans/{name}{place}.png"]}) + "\n"
        write(folder / f"{name}.jsonl", rows)
    return ALL


def make_pairs(folder: Path) -> list[str]:
    """Text files with a line end after the last line, as editors leave it."""
    for place, text in pictures(folder, ALL):
        write(folder / f"{place}.gt.txt", f"{text}\n")
    return ALL


def make_label_studio(folder: Path) -> list[str]:
    """Boxes in hundredths of the image."""
    result: list[dict[str, Any]] = []
    for place, text in enumerate(ALL):
        value = {"x": 10, "y": 4 * place, "width": 50, "height": 30, "rotation": 0}
        size = {"original_width": 100, "original_height": 50}
        result.append({"id": f"r{place}", "type": "textarea", "value": {**value, "text": [text]}, **size})
    picture(folder / "images" / "p.png")
    task = {"id": 5, "annotations": [{"id": 1, "result": result}], "data": {"ocr": "/data/upload/1/0a1b2c3d-p.png"}}
    write(folder / "project.json", json.dumps([task]))
    return ALL


def make_rimes(folder: Path) -> list[str]:
    """Boxes by their four sides."""
    lines = "".join(
        f'<Line Left="10" Top="{2 * place}" Right="60" Bottom="{2 * place + 20}" Value="{attribute(text)}"/>'
        for place, text in enumerate(PLAIN)
    )
    picture(folder / "images_gray" / "p.png")
    page = f'<SinglePage FileName="images_gray/p.png"><Paragraph>{lines}</Paragraph></SinglePage>'
    write(folder / "training_2011.xml", f"<DocumentList>\n{page}</DocumentList>")
    return PLAIN


def make_pdf(folder: Path) -> list[str]:
    """Two scans with a text for each page."""
    write_pdf(folder / "a.pdf", [image_object(scan(place=place)) for place in range(2)])
    texts = ["первая  страница,\nстрока вторая", "вторая"]
    write(folder / "a.txt", "\f".join(texts))
    return texts


def make_dataset(folder: Path) -> list[str]:
    """What `prepare` writes of pages: lines that were cut, and where."""
    texts = make_coco(folder.parent / "cut")
    policy = TextPolicy(unicode="keep", spaces="keep")
    prepare(folder.parent / "cut", folder, split_by="text", text_policy=policy)
    return texts


SOURCES: dict[str, Callable[[Path], list[str]]] = {
    "alto": make_alto,
    "page": make_page,
    "table": make_table,
    "parquet": make_parquet,
    "coco": make_coco,
    "hkr": make_hkr,
    "iam": make_iam,
    "messages": make_messages,
    "pairs": make_pairs,
    "label-studio": make_label_studio,
    "rimes": make_rimes,
    "pdf": make_pdf,
    "dataset": make_dataset,
}
"""Format -> function that writes such a source and returns its texts in any order."""
