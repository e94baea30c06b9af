"""Manifests and METS there and back: transcribed, written for viewers, and read again with the same texts and boxes."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from dsocr.data.fetch import fetch_source
from dsocr.data.prepare import prepare
from dsocr.formats import parse_xml_page
from dsocr.formats.manifest import Manifest
from dsocr.formats.mets import parse_mets
from dsocr.inference.transcribe import TranscribeReport
from dsocr.io.web import FetchOptions
from dsocr.workbench.archive import import_pages, open_archive
from dsocr.workbench.store import open_store
from tests.data.test_fetch import canvas2, canvas3, image, manifest2, manifest3, service
from tests.inference.reading_pages import Hashes, fake_run, find_bars, transcribe
from tests.loopback import Archive, archive, draw_scan, pauses
from tests.raising import raises_code

__all__ = ["archive", "pauses"]

LOCAL = FetchOptions(private=True, delay=0.0, timeout=5.0)


@pytest.fixture(autouse=True)
def ink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are found by their ink, which needs no network."""
    monkeypatch.setattr("dsocr.layout.detect_lines", find_bars)


def read(source: str | Path, out: Path, format_: str, size: int = 0, **options: Any) -> TranscribeReport:
    run = fake_run(out.parent / f"run-{out.name}")
    fetch = replace(LOCAL, size=size)
    return transcribe(run, [Path(source)], out, format=[format_], reader=Hashes(), fetch=fetch, **options)


Lines = list[tuple[str, Any, Any]]


def found_lines(folder: Path) -> dict[str, Lines]:
    pages = {}
    for path in sorted(set(folder.rglob("*.xml")) - {folder / "mets.xml"}):
        lines = parse_xml_page(path).lines
        places = [(line.outline.box, line.outline.polygon) for line in lines if line.outline]
        pages[path.stem] = [(line.text, *place) for line, place in zip(lines, places, strict=True)]
    return pages


@pytest.mark.parametrize(
    ("version", "canvas", "size"),
    [
        pytest.param(2, (600, 800), 0, id="canvas as the image"),
        pytest.param(2, (6011, 7993), 533, id="odd scale"),
        pytest.param(3, (6000, 8000), 0, id="finer canvas"),
        pytest.param(3, (61, 83), 0, id="coarser canvas"),
        pytest.param(3, (666, 888), 0, id="a little finer"),
    ],
)
def test_texts_and_boxes_come_back(archive: Archive, tmp_path: Path, version: int, canvas: Any, size: int) -> None:
    rights: dict[str, Any] = {"rights": "http://creativecommons.org/licenses/by/4.0/"}
    bodies = [image(archive, f"scan{number}", (600, 800), version) for number in (1, 2)]
    if version == 3:
        said = {"label": {"en": ["Attribution"]}, "value": {"ru": ["Архив"]}}
        canvases = [canvas3(number, body, size=canvas) for number, body in enumerate(bodies, 1)]
        document = manifest3(*canvases, **rights, requiredStatement=said)
    else:
        canvases = [canvas2(number, body, canvas) for number, body in enumerate(bodies, 1)]
        document = manifest2(*canvases, license=rights["rights"], attribution={"@value": "Архив", "@language": "ru"})
    url = archive.add("/m", document)
    assert read(url, tmp_path / "page", "page", size).lines >= 6
    read(url, tmp_path / "iiif", "iiif", size)
    expected = found_lines(tmp_path / "page")
    assert {len(lines) for lines in expected.values()} == {3}
    written = json.loads((tmp_path / "iiif" / "manifest.json").read_text("utf-8"))
    single = json.loads((tmp_path / "iiif" / "0001_f__1.json").read_text("utf-8"))
    assert {**written["items"][0]["annotations"][0], "@context": single["@context"]} == single
    assert [one["id"] for one in written["items"]] == [f"{archive.url}/canvas/{number}" for number in (1, 2)]
    assert (written["rights"], written["requiredStatement"]["value"]) == (rights["rights"], {"ru": ["Архив"]})

    root, index = fetch_source(tmp_path / "iiif" / "manifest.json", Path("unused"), replace(LOCAL, size=size))
    assert found_lines(root) == expected
    assert (index.notes, index.skipped) == ((), ())
    assert index.manifests[0].attribution == "Архив"
    options: dict[str, Any] = {"split": "1/0/0", "split_by": "text", "fetch": replace(LOCAL, size=size)}
    dataset = prepare(tmp_path / "iiif" / "manifest.json", tmp_path / "data", **options)
    written_texts = [text for lines in expected.values() for text, *_ in lines]
    assert sorted(sample.text for sample in dataset) == sorted(written_texts)


def test_an_image_on_a_part_of_its_canvas_has_its_texts_there(archive: Archive, tmp_path: Path) -> None:
    part = {"type": "ImageApiSelector", "region": "0,0,600,400", "rotation": "0"}
    body = {"type": "SpecificResource", "source": image(archive, "scan", version=3), "selector": part}
    on = ["{url}/canvas/1#xywh=1000,500,1200,800"]
    url = archive.add("/m", manifest3(canvas3(1, body, size=(4000, 4000), on=on)))
    read(url, tmp_path / "page", "page")
    read(url, tmp_path / "iiif", "iiif")
    (lines,) = found_lines(tmp_path / "page").values()
    content = json.loads((tmp_path / "iiif" / "manifest.json").read_text("utf-8"))
    target = content["items"][0]["annotations"][0]["items"][0]["target"]["selector"]
    first = target[0] if isinstance(target, list) else target
    left, top, width, height = map(int, first["value"].removeprefix("xywh=").split(","))
    x0, y0, x1, y1 = lines[0][1]
    assert (left, top, width, height) == (1000 + 2 * x0, 500 + 2 * y0, 2 * (x1 - x0), 2 * (y1 - y0))
    root, _ = fetch_source(tmp_path / "iiif" / "manifest.json", Path("unused"), replace(LOCAL, size=0))
    assert list(found_lines(root).values()) == [lines]


def test_each_manifest_of_a_collection_gets_its_own(archive: Archive, tmp_path: Path) -> None:
    made = [manifest3(canvas3(n, image(archive, f"s{n}")), id=f"{{url}}/m{n}", label={"en": [f"B{n}"]}) for n in (1, 2)]
    top = {"@context": "http://iiif.io/api/presentation/3/context.json", "id": "{url}/top", "type": "Collection"}
    url = archive.add("/top", {**top, "items": made})
    read(url, tmp_path / "out", "iiif")
    names = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.json"))
    assert names == [
        *("0001_B1/0001_f__1.json", "0001_B1/manifest.json", "0002_B2/0001_f__2.json", "0002_B2/manifest.json"),
        "transcription.json",
    ]


def test_images_of_ones_own_have_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "scans").mkdir()
    draw_scan("x").save(tmp_path / "scans" / "x.png")
    for name in ("iiif", "mets"):
        with raises_code(f"{name}-missing"):
            read(tmp_path / "scans", tmp_path / name, name)
        assert not (tmp_path / name).exists()


def test_the_workbench_opens_a_manifest_and_keeps_it(archive: Archive, tmp_path: Path) -> None:
    from dsocr.data.dataset import SourceReport

    url = archive.add("/m", manifest2(*(canvas2(n, image(archive, f"s{n}")) for n in (1, 2))))
    added = []
    for _ in range(2):
        with (
            open_store(tmp_path / "corrections.sqlite") as store,
            open_archive(store, Path(url), tmp_path / "unpacked", replace(LOCAL, size=0), detect=find_bars) as opened,
        ):
            added.append(import_pages(store, opened, SourceReport()))
            page = store.pages()[0]
            assert opened.page_image(page).size == (600, 800)
    assert added == [2, 0]
    assert len(archive.asked) == 3


METS = """<?xml version="1.0" encoding="UTF-8"?>
<mets:mets xmlns:mets="http://www.loc.gov/METS/" xmlns:xlink="http://www.w3.org/1999/xlink" OBJID="urn:x:1">
  <mets:dmdSec ID="D"><mets:mdWrap MDTYPE="MODS"><mets:xmlData><mods xmlns="http://www.loc.gov/mods/v3">
    <titleInfo><title>Письма</title></titleInfo>
    <accessCondition xlink:href="https://creativecommons.org/publicdomain/mark/1.0/">free</accessCondition>
  </mods></mets:xmlData></mets:mdWrap></mets:dmdSec>
  <!-- kept -->
  <mets:fileSec>
    <mets:fileGrp USE="THUMBS">{thumbs}</mets:fileGrp>
    <mets:fileGrp USE="DEFAULT">{default}</mets:fileGrp>
    <mets:fileGrp USE="FULLTEXT"><mets:file ID="T1" MIMETYPE="text/xml">\
<mets:FLocat LOCTYPE="URL" xlink:href="{base}texts/one.xml"/></mets:file></mets:fileGrp>
  </mets:fileSec>
  <mets:structMap TYPE="LOGICAL"><mets:div ID="L"><mets:fptr FILEID="D1"/></mets:div></mets:structMap>
  <mets:structMap TYPE="PHYSICAL"><mets:div TYPE="physSequence"><mets:fptr FILEID="D1"/>
    <mets:div ID="P1" TYPE="page" ORDER="1" ORDERLABEL="1r"><mets:fptr FILEID="S1"/><mets:fptr FILEID="D1"/>\
<mets:fptr><mets:area FILEID="T1"/></mets:fptr></mets:div>
    <mets:div TYPE="page" ORDER="2" ORDERLABEL="1v"><mets:fptr FILEID="S2"/><mets:fptr FILEID="D2"/></mets:div>
    <mets:div ID="P3" TYPE="page" ORDER="3"><mets:fptr FILEID="none"/></mets:div>
  </mets:div></mets:structMap>
</mets:mets>
"""

PAGE = """<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"><Page imageFilename="x/old.tif"
 imageWidth="600" imageHeight="800"><TextRegion id="r"><Coords points="50,90 500,90 500,200"/><TextLine id="l">
<Coords points="50,100 500,100 500,150 50,150"/><TextEquiv><Unicode>known</Unicode></TextEquiv></TextLine>
<TextLine id="m"><Coords points="50,340 500,340 500,390 50,390"/></TextLine></TextRegion></Page></PcGts>"""


def mets(base: str = "") -> bytes:
    def files(letter: str, folder: str) -> str:
        return "".join(
            f'<mets:file ID="{letter}{n}" MIMETYPE="image/png"><mets:FLocat LOCTYPE="URL" '
            f'xlink:href="{base}{folder}/{n}.png"/></mets:file>'
            for n in (1, 2)
        )

    return METS.format(thumbs=files("S", "small"), default=files("D", "big"), base=base).encode()


@pytest.fixture
def mets_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mets"
    for name, size in (("small", (60, 80)), ("big", (600, 800))):
        (folder / name).mkdir(parents=True)
        for number in (1, 2):
            draw_scan(f"{number}", size).save(folder / name / f"{number}.png")
    (folder / "texts").mkdir()
    (folder / "texts" / "one.xml").write_text(PAGE, encoding="utf-8")
    (folder / "mets.xml").write_bytes(mets())
    return folder


def test_mets_is_read_by_its_physical_pages() -> None:
    manifest: Manifest = parse_mets(mets("https://x.org/"), "https://x.org/mets.xml")
    assert [(page.id, page.label, page.image, len(page.texts)) for page in manifest.pages] == [
        ("P1", {"none": ["1r"]}, "https://x.org/big/1.png", 1),
        ("div-3", {"none": ["1v"]}, "https://x.org/big/2.png", 0),
        ("P3", {"none": ["3"]}, "", 0),
    ]
    assert (manifest.label, manifest.rights) == (
        {"none": ["Письма"]},
        "https://creativecommons.org/publicdomain/mark/1.0/",
    )
    small = parse_mets(mets(), "x", images="thumbs")
    assert small.pages[0].image == "small/1.png"
    with raises_code("file-group-missing"):
        parse_mets(mets(), "x", images="MAX")
    with raises_code("mets-empty"):
        parse_mets(b'<mets xmlns="http://www.loc.gov/METS/"/>', "x")


@pytest.mark.parametrize(
    ("place", "format_"), [("file", "mets"), ("file", "mets-page"), ("address", "mets-page"), ("relative", "mets")]
)
def test_texts_go_into_mets_and_come_back(
    archive: Archive, mets_folder: Path, tmp_path: Path, place: str, format_: str
) -> None:
    source: str | Path = mets_folder / "mets.xml"
    if place != "file":
        for path in mets_folder.rglob("*.*"):
            archive.add(f"/a/{path.relative_to(mets_folder).as_posix()}", path.read_bytes())
        source = archive.url + "/a/mets.xml"
        archive.documents["/a/mets.xml"] = mets(archive.url + "/a/" if place == "address" else "")
    original = archive.documents.get("/a/mets.xml", mets())
    report = read(source, tmp_path / "out", format_)
    assert (report.images, report.kept) == (2, 1)
    assert [message.partition(":")[0] for message in report.failed] == ["P3"]

    raw = (tmp_path / "out" / "mets.xml").read_bytes()
    group = "DSOCR-ALTO" if format_ == "mets" else "DSOCR-PAGE"
    added = re.compile(
        rb'\s*<mets:fileGrp USE="%b">.*?</mets:fileGrp>|<mets:fptr FILEID="DSOCR-[^"]*"/>' % group.encode(), re.DOTALL
    )
    assert added.sub(b"", raw) == original
    etree.fromstring(raw)
    again = parse_mets(raw, "x", texts=group)
    assert [page.texts for page in again.pages] == [("0001_1r.xml",), ("0002_1v.xml",), ()]
    written = found_lines(tmp_path / "out")
    assert written["0001_1r"][0][0] == "known"
    assert written["0001_1r"][1][0].startswith("слово")

    for path in (tmp_path / "out").glob("*.xml"):
        (mets_folder / path.name).write_bytes(path.read_bytes())
    root, index = fetch_source(mets_folder / "mets.xml", tmp_path / "again", replace(LOCAL, texts=group))
    assert [page.label for page in index.manifests[0].pages] == [{"none": ["1r"]}, {"none": ["1v"]}]
    assert found_lines(root) == written
    if place == "file":
        assert root == tmp_path / "again", "files beside a METS file may change, so nothing of them is kept"


def test_a_local_mets_file_leads_nowhere_else(mets_folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    draw_scan("s").save(secret)
    for href in ("../secret.png", secret.as_uri(), secret.as_posix(), "http://127.0.0.1:1/x.png"):
        (mets_folder / "mets.xml").write_bytes(mets().replace(b"big/1.png", href.encode()))
        _, index = fetch_source(mets_folder / "mets.xml", tmp_path / "x", FetchOptions(delay=0.0))
        assert [where for _, where, _ in index.skipped] == ["P1", "P3"], href


def test_a_service_with_a_level_0_profile_is_written_back(archive: Archive, tmp_path: Path) -> None:
    body = image(archive, "s", version=3, service=[service("s", 3, 0, sizes=[{"width": 600, "height": 800}])])
    read(archive.add("/m", manifest3(canvas3(1, body))), tmp_path / "out", "iiif")
    content = json.loads((tmp_path / "out" / "manifest.json").read_text("utf-8"))
    (painted,) = content["items"][0]["items"][0]["items"]
    assert painted["body"]["service"] == [
        {"id": f"{archive.url}/level0/s", "type": "ImageService3", "profile": "level0"}
    ]
