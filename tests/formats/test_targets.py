"""What each target format looks like to the programs that it is made for."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from lxml import etree

from dsocr.data.convert import convert
from dsocr.document import Line, Outline, Page, Region
from dsocr.formats import parquet as shards
from dsocr.formats.alto import alto_document, parse_alto
from dsocr.formats.page import page_document, parse_page
from dsocr.images import decode_image
from tests.data.making import alto, alto_line, page_line, page_xml, pair, picture, write
from tests.formats.making_sources import ODD, PLAIN, SOURCES

SCHEMAS = Path(__file__).parent / "schemas"


def page_of(*lines: Line) -> Page:
    return Page(Path("p.png"), "p", "p", lines, size=(100, 50))


def converted(source: str, target: str, folder: Path) -> Path:
    """A source's conversion."""
    SOURCES[source](folder / "source")
    return convert(folder / "source", folder / "out", to=target).output


def require_valid(root: Any, target: str) -> None:
    schema = {"page": "page-2019-lines.xsd", "alto": "alto-4-2-lines.xsd"}[target]
    etree.XMLSchema(etree.parse(SCHEMAS / schema)).assertValid(root)


@pytest.mark.parametrize("source", ["page", "coco", "pairs"])
@pytest.mark.parametrize("target", ["page", "alto"])
def test_xml_is_valid(source: str, target: str, tmp_path: Path) -> None:
    files = sorted(converted(source, target, tmp_path).rglob("*.xml"))
    assert files
    for file in files:
        require_valid(etree.parse(file), target)


@pytest.mark.parametrize("target", ["page", "alto"])
def test_an_untranscribed_line_keeps_its_place(target: str, tmp_path: Path) -> None:
    picture(tmp_path / "source" / "p.png")
    write(tmp_path / "source" / "p.xml", alto(alto_line("есть") + alto_line("", "20,35 40,35 40,45")))
    report = convert(tmp_path / "source", tmp_path / "out", to=target)
    assert (report.conversion.lines, report.skipped) == (2, [])
    (file,) = (tmp_path / "out").rglob("*.xml")
    assert "20,35 40,35 40,45" in file.read_text("utf-8").replace("20 35 40 35 40 45", "20,35 40,35 40,45")
    require_valid(etree.parse(file), target)


def test_the_two_versions_of_page_differ_in_their_name_alone(tmp_path: Path) -> None:
    SOURCES["page"](tmp_path / "source")
    new, old = (convert(tmp_path / "source", tmp_path / to, to=to).output for to in ("page", "page-2013"))
    content = (old / "page" / "p.xml").read_bytes()
    assert b"/pagecontent/2013-07-15" in content
    assert content.replace(b"2013-07-15", b"2019-07-15") == (new / "page" / "p.xml").read_bytes()


def test_page_coordinates_do_not_fall_below_zero(tmp_path: Path) -> None:
    outline = Outline.of_polygon(((-5, 3), (20, -1), (20, 30)), ((-5, 9),))
    root, changes = page_document(page_of(Line("т", "p:1", outline)))
    assert list(changes.values()) == [1]
    require_valid(root, "page")
    (line,) = root.iter("{*}TextLine")
    assert [coords.get("points") for coords in line.iter("{*}Coords")] == ["0,3 20,0 20,30"]


@pytest.mark.parametrize(
    ("document", "parse"), [(page_document, parse_page), (alto_document, parse_alto)], ids=["PAGE", "ALTO"]
)
def test_regions_stay_regions(document: Any, parse: Any) -> None:
    heading = Region("heading", Outline.of_polygon(((1, 1), (50, 1), (50, 20))))
    body, box = Region("body"), Region("box", Outline((3, 3, 90, 45)))
    placed = [(heading, 4), (body, 8), (body, 12), (box, 16)]
    lines = [Line(str(top), "p:1", Outline((5, top, 40, top + 3)), region) for region, top in placed]
    root, _ = document(page_of(*lines))
    found = [line.region for line in parse(root).lines]
    assert [region.outline for region in found] == [heading.outline, *[Outline((5, 8, 40, 15))] * 2, box.outline]
    assert [region.id for region in found] == ["heading", "body", "body", "box"]


def test_regions_are_written_in_the_pixels_of_the_image(tmp_path: Path) -> None:
    lines = f'<TextRegion id="a"><Coords points="2,2 90,2 90,45"/>{page_line("т")}</TextRegion>'
    picture(tmp_path / "source" / "p.png", size=(200, 100))
    write(tmp_path / "source" / "p.xml", page_xml(lines))
    out = convert(tmp_path / "source", tmp_path / "out", to="page").output
    described = parse_page(etree.parse(out / "page" / "p.xml").getroot())
    assert described.lines[0].region == Region("a", Outline.of_polygon(((4, 4), (180, 4), (180, 90))))


def test_a_table_is_read_by_csv(tmp_path: Path) -> None:
    with (converted("page", "tsv", tmp_path) / "lines.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, dialect="excel-tab"))
    assert [row["text"] for row in rows] == [f"'{text}" if text.startswith("=") else text for text in (*PLAIN, *ODD)]
    assert (rows[0]["bbox"], rows[0]["polygon"]) == ("10,10 61,31", "10,10 60,12 58,30 12,29")


def test_parquet_says_which_column_datasets_shows_as_images(tmp_path: Path) -> None:
    (path,) = (converted("alto", "parquet", tmp_path) / "data").glob("train-*.parquet")
    table = pq.read_table(path)
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert (features["image"], features["text"]) == ({"_type": "Image"}, {"dtype": "string", "_type": "Value"})
    assert table.column("text").to_pylist() == [*PLAIN, "ящик"]
    row = table.slice(5, 1).to_pylist()[0]
    assert (row["bbox"], row["page"]) == ([5, 8, 70, 40], "train/p")
    assert decode_image(row["image"]["bytes"], name="a").image.size == (65, 32)


def test_parquet_is_written_in_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "GROUP_BYTES", 1)
    monkeypatch.setattr(shards, "SHARD_BYTES", 1)
    out = converted("pairs", "parquet", tmp_path)
    names = [path.name for path in sorted((out / "data").iterdir())]
    assert names == [f"unsplit-{place:05d}-of-00008.parquet" for place in range(8)]
    assert not (out / ".cut").exists()


ASKED = "<image>\nFree OCR."
PARTS = [{"type": "image", "image": "images/a.png"}, {"type": "text", "text": "Free OCR."}]
ANSWER = [{"type": "text", "text": "слово"}]


@pytest.mark.parametrize(
    ("target", "question", "answer", "images"),
    [
        pytest.param("ms-swift", ASKED, "слово", ["images/a.png"], id="ms-swift: an image's place in the words"),
        pytest.param("unsloth", PARTS, ANSWER, None, id="Unsloth: contents in parts"),
    ],
)
def test_conversations_as_a_program_wants_them(
    target: str, question: object, answer: object, images: list[str] | None, tmp_path: Path
) -> None:
    pair(tmp_path / "source" / "val", "a", "слово")
    out = convert(tmp_path / "source", tmp_path / "out", to=target).output
    (row,) = map(json.loads, (out / "validation.jsonl").read_text("utf-8").splitlines())
    assert row["messages"] == [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    assert row.get("images") == images
    assert (out / "images" / "a.png").is_file()


def test_llama_factory_finds_its_files_by_name(tmp_path: Path) -> None:
    for stem in ("a", "b"):
        pair(tmp_path / "source" / "train", stem, stem)
    pair(tmp_path / "source", "c", "c")
    out = convert(tmp_path / "source", tmp_path / "out", to="llama-factory").output
    info = json.loads((out / "dataset_info.json").read_text("utf-8"))
    assert {name: entry["file_name"] for name, entry in info.items()} == {"lines": "lines.json", "train": "train.json"}
    rows = json.loads((out / info["train"]["file_name"]).read_text("utf-8"))
    assert [row["images"] for row in rows] == [["images/a.png"], ["images/b.png"]]
    entry = info["train"]
    said = rows[0][entry["columns"]["messages"]]
    roles = [message[entry["tags"]["role_tag"]] for message in said]
    assert roles == [entry["tags"]["user_tag"], entry["tags"]["assistant_tag"]]
    assert said[0][entry["tags"]["content_tag"]] == ASKED
