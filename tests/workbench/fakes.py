"""Sources of drawn pages as PAGE files, two of three lines each or a register, and a reader that needs no network."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from dsocr.data.dataset import SourceReport
from dsocr.document import CellPlace, Line, Outline, Page, Region, Table, TableCell
from dsocr.formats.page import NEWEST, page_document
from dsocr.formats.xml import serialize
from dsocr.inference.confidence import Prediction
from dsocr.workbench.archive import Archive, import_pages, open_archive
from dsocr.workbench.page_changes import carry_out, version_by_hand
from dsocr.workbench.store import CorrectionStore, open_store
from dsocr.workbench.stored_lines import StoredLine, tables_of, version_of

TITLES = [["№", "имя", "лет"], ["1", "Иванъ", "30"], ["2", "Анна", "25"], ["3", "Петръ", "41"], ["4", "Марья", "7"]]
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


def make_register(
    folder: Path, rows: Sequence[Sequence[str]], version: str | None, *, long: Mapping[int, str] | None = None
) -> Path:
    """A page with a ruled table, a line in each cell, and its PAGE file in a version; without one, without the table.

    Columns are 200 pixels wide and rows 100 high, 80 without a version; `long` are rows of one line over all columns.
    """
    (folder / "page").mkdir(parents=True)
    high = 100 if version else 80
    xs, ys = [40 + 200 * n for n in range(len(rows[0]) + 1)], [40 + high * n for n in range(len(rows) + 1)]
    page = Image.new("RGB", (xs[-1] + 60, ys[-1] + 60), (240, 235, 220))
    pen = ImageDraw.Draw(page)
    for x in xs:
        pen.line((x, ys[0], x, ys[-1]), (60, 60, 60), 2)
    for y in ys:
        pen.line((xs[0], y, xs[-1], y), (60, 60, 60), 2)
    cells: list[TableCell] = []
    lines: list[Line] = []
    for row, texts in enumerate(rows):
        for column, text in enumerate(texts):
            id_, outline = f"c{row}_{column}", quad(xs[column], ys[row], xs[column + 1], ys[row + 1])
            cells.append(TableCell(id_, outline, CellPlace(row, column)))
            is_long = row in (long or {})
            if not is_long or column == 0:
                text = (long or {}).get(row, text)
                right = xs[-1] - 60 if is_long else xs[column] + 140
                place = quad(xs[column] + 20, ys[row] + 20, right, ys[row] + 50)
                place = Outline(place.box, place.polygon, ((xs[column] + 20, ys[row] + 44), (right, ys[row] + 44)))
                region = Region(id_, outline) if version else Region("r", quad(xs[0], ys[0], xs[-1], ys[-1]))
                lines.append(Line(text, "", place, region, id=f"l{len(lines)}"))
    page.save(folder / "scan.png")
    tables = (Table("table", quad(xs[0], ys[0], xs[-1], ys[-1]), tuple(cells)),) if version else ()
    described = Page(Path("scan.png"), "scan", "scan", tuple(lines), size=page.size, tables=tables)
    (folder / "page" / "scan.xml").write_bytes(serialize(page_document(described, version or NEWEST)[0]))
    return folder


def quad(left: int, top: int, right: int, bottom: int) -> Outline:
    """A box as a polygon, its corners as cells have them."""
    return Outline.of_polygon(((left, top), (left, bottom), (right, bottom), (right, top)))


@contextmanager
def opened(source: Path, work: Path, *, strict: bool = True) -> Iterator[tuple[CorrectionStore, Archive]]:
    """A source with its pages in the store of a work folder."""
    with open_store(work / "corrections.sqlite") as store, open_archive(store, source, work / "unpacked") as archive:
        store._connection.execute("PRAGMA synchronous = OFF")  # no power fails in these many short transactions
        import_pages(store, archive, SourceReport(strict=strict))
        yield store, archive


def edit(store: CorrectionStore, what: str, lines: Sequence[StoredLine] = (), /, **details: object) -> int | None:
    """Carry out an edit of the first page as a browser sends it, with the versions of now."""
    page = store.pages()[0]
    regions = store.regions(page.number)
    versions = {region.number: region.version for region in regions}
    seen = [(line.number, version_by_hand(line)) for line in lines]
    message: dict[str, object] = {"what": what, "lines": seen, "region": None, **details}
    for table in tables_of(regions)[:1]:
        message["table"] = table.id, version_of(table.id, regions)
    if isinstance(number := details.get("region"), int):
        message["region"] = number, versions.get(number, 0)
    return carry_out(store, page, message, who="anna")


class FakeReader:
    """Reads the same from every image, with a doubtful last word."""

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        for name, picture in images:
            assert picture.width > 500
            yield Prediction(name, "не точно", 4, truncated=False, confidence=0.7, characters=(0.99,) * 3 + (0.4,) * 5)
