"""IIIF as a source: every quirk of manifests, what is fetched of it, and how it resumes."""

import json
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dsocr.data.dataset import Dataset, SourceReport
from dsocr.data.fetch import fetch_source, is_manifest, web_address
from dsocr.data.prepare import prepare
from dsocr.data.sources import open_source
from dsocr.formats import parse_xml_page
from dsocr.formats.manifest import INDEX, SourceIndex, read_index
from dsocr.inference.inputs import find_pages
from dsocr.io.web import FetchOptions
from tests.loopback import Archive, archive, draw_scan, pauses, png, send
from tests.raising import raises_code

__all__ = ["archive", "pauses"]

LOCAL = FetchOptions(private=True, delay=0.0, timeout=5.0)
V2, V3 = "http://iiif.io/api/presentation/2/context.json", "http://iiif.io/api/presentation/3/context.json"
Json = dict[str, Any]


def fetch(url: str, **options: Any) -> tuple[Path, SourceIndex]:
    return fetch_source(Path(url), Path("unused"), replace(LOCAL, **options))


def service(name: str, version: int = 2, level: int = 2, **more: Any) -> Json:
    kind, key = ("level0" if level == 0 else "img"), "" if version == 3 else "@"
    profile = f"level{level}" if version == 3 else f"http://iiif.io/api/image/2/level{level}.json"
    return {
        f"{key}id": f"{{url}}/{kind}/{name}",
        f"{key}type": f"ImageService{version}",
        "profile": profile,
        **more,
    }


def image(archive: Archive, name: str, size: tuple[int, int] = (600, 800), version: int = 2, **more: Any) -> Json:
    archive.images[name] = size
    key, kind = ("", "Image") if version == 3 else ("@", "dctypes:Image")
    resource = {f"{key}id": f"{{url}}/img/{name}/full/full/0/default.jpg", f"{key}type": kind, "format": "image/jpeg"}
    return {**resource, "width": size[0], "height": size[1], "service": service(name, version), **more}


def canvas2(number: int, body: Any, size: tuple[int, int] = (600, 800), on: str = "", **more: Any) -> Json:
    id_ = f"{{url}}/canvas/{number}"
    painting = {"@type": "oa:Annotation", "motivation": "sc:painting", "resource": body, "on": id_ + on}
    known = {"@id": id_, "@type": "sc:Canvas", "label": f"f. {number}", "width": size[0], "height": size[1]}
    return {**known, "images": [painting] if body else [], **more}


def canvas3(number: int, *bodies: Any, size: tuple[int, int] = (600, 800), on: Any = None, **more: Any) -> Json:
    id_ = f"{{url}}/canvas/{number}"
    paintings = [
        {"type": "Annotation", "motivation": "painting", "body": body, "target": (on or [id_] * 9)[place]}
        for place, body in enumerate(bodies)
    ]
    items = [{"id": f"{id_}/page", "type": "AnnotationPage", "items": paintings}]
    known = {"id": id_, "type": "Canvas", "label": {"none": [f"f. {number}"]}, "width": size[0], "height": size[1]}
    return {**known, "items": items, **more}


def manifest2(*canvases: Json, **more: Any) -> Json:
    head = {"@context": V2, "@id": "{url}/manifest2", "@type": "sc:Manifest", "label": "Letters"}
    return {**head, "sequences": [{"@type": "sc:Sequence", "canvases": list(canvases)}], **more}


def manifest3(*canvases: Json, **more: Any) -> Json:
    head = {"@context": V3, "id": "{url}/manifest3", "type": "Manifest", "label": {"en": ["Letters"]}}
    return {**head, "items": list(canvases), **more}


def sizes(root: Path, index: SourceIndex) -> list[tuple[int, int]]:
    found = []
    for manifest in index.manifests:
        for page in manifest.pages:
            with Image.open(root / page.file) as opened:
                assert opened.size == page.file_size
                found.append(opened.size)
    return found


@pytest.mark.parametrize("version", [2, 3])
def test_a_manifest_is_a_source_like_any_other(archive: Archive, version: int, tmp_path: Path) -> None:
    images = [image(archive, f"scan{number}", version=version) for number in (1, 2)]
    make = (canvas2, canvas3)[version - 2]
    canvases = [make(number, image) for number, image in enumerate(images, start=1)]
    url = archive.add("/manifest.json", (manifest2, manifest3)[version - 2](*canvases))
    assert is_manifest(Path(url))
    assert web_address(Path(url)) == url
    with find_pages([Path(url)], tmp_path / "unpacked", fetch=LOCAL) as found:
        assert [(page.id, page.shows) for page in found.pages] == [("0001_f__1.jpg", "page"), ("0002_f__2.jpg", "page")]
    archive.asked.clear()
    (tmp_path / "manifest.json").write_bytes(archive.documents["/manifest.json"])
    for source in (Path(url), tmp_path / "manifest.json"):
        assert is_manifest(source)
        with open_source(source, tmp_path / "other", LOCAL) as opened:
            assert opened.index is not None
            assert [page.id for page in opened.index.manifests[0].pages] == [
                f"{archive.url}/canvas/1",
                f"{archive.url}/canvas/2",
            ]
    assert len(archive.asked) == 2, "the address is in the cache; the file has two images of its own"


@pytest.mark.parametrize(
    ("version", "level", "given", "wanted", "asked", "got"),
    [
        pytest.param(2, 2, (600, 800), 400, "300,", (300, 400), id="scaled, 2"),
        pytest.param(3, 1, (600, 800), 400, "300,", (300, 400), id="scaled, 3"),
        pytest.param(2, 2, (600, 800), 800, "full", (600, 800), id="as large as allowed"),
        pytest.param(2, 2, (600, 800), 0, "full", (600, 800), id="the largest, 2"),
        pytest.param(3, 2, (600, 800), 0, "max", (600, 800), id="the largest, 3"),
        pytest.param(2, 2, (801, 333), 200, "200,", (200, 83), id="landscape"),
    ],
)
def test_the_size_of_images_is_chosen(
    archive: Archive, version: int, level: int, given: Any, wanted: int, asked: str, got: Any
) -> None:
    body = image(archive, "scan", given, version, service=[service("scan", version, level)])
    document = manifest3(canvas3(1, body)) if version == 3 else manifest2(canvas2(1, body))
    root, index = fetch(archive.add("/m", document), size=wanted)
    assert sizes(root, index) == [got]
    assert archive.asked == ["/m", f"/img/scan/full/{asked}/0/default.jpg"]


LISTED = [{"width": 150, "height": 200}, {"width": 300, "height": 400}, {"width": 600, "height": 800}]


@pytest.mark.parametrize(
    ("wanted", "version", "asked"),
    [(350, 2, "300,"), (350, 3, "300,400"), (420, 3, "max"), (0, 2, "full"), (100, 2, "150,")],
)
@pytest.mark.parametrize("embedded", [True, False])
def test_a_level_0_service_has_only_the_sizes_that_it_lists(
    archive: Archive, wanted: int, version: int, asked: str, embedded: bool
) -> None:
    known_sizes: Json = {"sizes": LISTED} if embedded else {}
    body = image(archive, "scan", version=version, service=service("scan", version, 0, **known_sizes))
    archive.add("/level0/scan/info.json", {**service("scan", version, 0), "width": 600, "height": 800, "sizes": LISTED})
    fetch(archive.add("/m", manifest3(canvas3(1, body))), size=wanted)
    assert archive.asked[-1] == f"/level0/scan/full/{asked}/0/default.jpg"


def test_a_server_that_refuses_a_size_is_asked_otherwise(archive: Archive) -> None:
    """Some announce more than they can, or no more than the image of the manifest."""
    for name in ("a", "b"):
        archive.bad[f"/img/{name}/full/300,/0/default.jpg"] = lambda handler: send(handler, b"", status=400)
    archive.add("/img/a/info.json", {**service("a", 2, 0), "width": 600, "height": 800, "sizes": LISTED[:1]})
    root, index = fetch(
        archive.add("/m", manifest2(canvas2(1, image(archive, "a")), canvas2(2, image(archive, "b")))), size=400
    )
    assert sizes(root, index) == [(150, 200), (600, 800)]
    assert archive.asked[-1] == "/img/b/full/full/0/default.jpg"


def choice(version: int, *images: Json) -> Json:
    if version == 3:
        return {"type": "Choice", "items": list(images)}
    return {"@type": "oa:Choice", "default": images[0], "item": list(images[1:])}


def test_the_quirks_of_canvases(archive: Archive) -> None:
    """Each canvas has one; all pages or a counted reason."""
    archive.add("/plain.png", png())
    login = {"@id": "{url}/login", "@type": "AuthCookieService1", "profile": "http://iiif.io/api/auth/1/login"}
    new_login = {"id": "{url}/probe", "type": "AuthProbeService2"}
    part = {"type": "ImageApiSelector", "region": "100,200,300,400"}
    turned = {"type": "ImageApiSelector", "rotation": "90"}
    two = [image(archive, "left", (300, 800), 3), image(archive, "whole", version=3)]
    boxes = ["{url}/canvas/7#xywh=0,0,300,800", {"type": "Canvas", "id": "{url}/canvas/7"}]
    bodies: dict[str, tuple[Json, Any]] = {
        "no service": (canvas3(1, {"id": "{url}/plain.png", "type": "Image"}), (60, 80)),
        "no size": (canvas3(2, image(archive, "c2", version=3, width=None, height=None)), (450, 600)),
        "choice": (canvas3(3, choice(3, image(archive, "c3", version=3), image(archive, "x3"))), (450, 600)),
        "services": (canvas3(4, image(archive, "c4", service=[login, new_login, service("c4", 2)])), (450, 600)),
        "a part": (
            canvas3(5, {"type": "SpecificResource", "source": image(archive, "c5"), "selector": part}),
            (300, 400),
        ),
        "turned": (
            canvas3(6, {"type": "SpecificResource", "source": image(archive, "c6"), "selector": [turned]}),
            (600, 450),
        ),
        "several": (canvas3(7, *two, on=boxes), (450, 600)),
        "sound": (canvas3(8, {"id": "{url}/x.mp3", "type": "Sound"}), "not an image"),
        "text": (canvas3(9, {"type": "TextualBody", "value": "a"}), "not an image"),
        "nothing": (canvas3(10), "no image"),
        "other size": (canvas3(11, image(archive, "c11", version=3), size=(6000, 8000)), (450, 600)),
        "a mapped label": (canvas3(12, image(archive, "c12"), label={"ru": ["лист 1"], "en": ["f. 1"]}), (450, 600)),
        "no label": (canvas3(13, image(archive, "c13"), label=None), (450, 600)),
        "a list": (canvas3(14, [image(archive, "c14"), image(archive, "x14")]), (450, 600)),
        "by fragment": (canvas3(15, image(archive, "c15") | {"id": "{url}/x.jpg#xywh=0,0,600,400"}), (600, 400)),
    }
    archive.add("/img/c2/info.json", {**service("c2", 3), "width": 600, "height": 800})
    ranges = [{"id": "{url}/range/1", "type": "Range", "items": [{"id": "{url}/canvas/1", "type": "Canvas"}]}]
    more = {"structures": ranges, "start": {"id": "{url}/canvas/5", "type": "Canvas"}, "behavior": ["paged"]}
    document = manifest3(*(canvas for canvas, _ in bodies.values()), **more)
    root, index = fetch(archive.add("/m", document), size=600)
    got = {page.id.rpartition("/")[2]: page.file_size for page in index.manifests[0].pages}
    missing = {where.rpartition("/")[2]: message for _, where, message in index.skipped}
    for number, (what, (_, expected)) in enumerate(bodies.items(), start=1):
        if isinstance(expected, str):
            assert expected in missing[str(number)], what
        else:
            assert got[str(number)] == expected, what
    assert len(got) + len(missing) == len(bodies)
    assert len(index.notes) == 1, "the second image of a canvas"
    assert (root / "0012_лист_1.jpg").is_file()


def test_the_quirks_of_version_2(archive: Archive) -> None:
    part = {"@type": "oa:SpecificResource", "full": image(archive, "b"), "selector": {"region": "0,0,300,800"}}
    canvases = [
        canvas2(1, choice(2, image(archive, "a"), image(archive, "x"))),
        canvas2(2, part, (300, 800)),
        canvas2(3, image(archive, "c", service=service("c") | {"profile": [service("c")["profile"], {"maxWidth": 9}]})),
        canvas2(4, {"@id": "{url}/v.mp4", "@type": "dctypes:MovingImage"}),
        canvas2(5, None),
    ]
    texts = {"attribution": [{"@value": "Архив", "@language": "ru"}, "The archive"], "license": ["https://x.org/1"]}
    document = manifest2(*canvases, label={"@value": "Письма", "@language": "ru"}, **texts)
    document["sequences"].append({"@id": "{url}/another-order"})
    root, index = fetch(archive.add("/m", document))
    assert sizes(root, index) == [(600, 800), (300, 800), (600, 800)]
    assert [where.rpartition("/")[2] for _, where, _ in index.skipped] == ["4", "5"]
    assert index.rights == [
        {"id": f"{archive.url}/manifest2", "label": "Письма", "rights": "https://x.org/1", "attribution": "Архив"}
    ]


def test_a_collection_without_end_is_asked_a_bounded_number_of_times(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr.data.fetch._MAX_COLLECTIONS", 5)

    def nested(number: int) -> Callable[[BaseHTTPRequestHandler], None]:
        archive.bad[f"/c{number + 1}"] = lambda handler: nested(number + 1)(handler)
        item = {"id": f"{archive.url}/c{number + 1}", "type": "Collection"}
        content = {"@context": V3, "id": f"{archive.url}/c{number}", "type": "Collection", "items": [item]}
        return lambda handler: send(handler, json.dumps(content).encode(), "Content-Type", "application/json")

    archive.bad["/c0"] = nested(0)
    with raises_code("nothing-fetched", "/c0"):
        fetch(f"{archive.url}/c0")
    assert len(archive.asked) == 6


def test_no_more_manifests_are_asked_for_than_pages_are_allowed(archive: Archive) -> None:
    items = []
    for number in range(5):
        url = archive.add(f"/m{number}", manifest3(canvas3(1, image(archive, f"scan{number}", version=3))))
        items.append({"id": url, "type": "Manifest"})
    collection = archive.add("/c", {"@context": V3, "id": "{url}/c", "type": "Collection", "items": items})
    seen: list[tuple[int, int]] = []
    _, index = fetch_source(
        Path(collection), Path("unused"), replace(LOCAL, pages=2), lambda done, total: seen.append((done, total))
    )
    assert [path for path in archive.asked if path.startswith("/m")] == ["/m0", "/m1"]
    assert [len(manifest.pages) for manifest in index.manifests] == [1, 1]
    assert "3 of its entries" in index.skipped[0][2]
    assert seen == [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2)], "there is progress while manifests are read"


def test_a_manifest_whose_images_all_fail_says_why(archive: Archive, tmp_path: Path) -> None:
    canvases = [canvas3(number, image(archive, f"scan{number}", version=3)) for number in range(3)]
    url = archive.add("/m", manifest3(*canvases))
    archive.images.clear()
    asked = [f"/img/scan{number}/full/{size}/0/default.jpg" for number in range(3) for size in ("max", "full")]
    archive.bad |= dict.fromkeys(asked, LYING["closed"])
    with raises_code("nothing-fetched", "/m") as error, open_source(Path(url), tmp_path / "unpacked", LOCAL):
        pass
    assert "and 2 more: the server answers 403" in error.value.message


def test_collections_are_read_to_their_end_and_each_manifest_once(archive: Archive) -> None:
    for number in range(4):
        made = manifest3(
            canvas3(1, image(archive, f"m{number}")), id=f"{{url}}/m{number}", label={"en": [f"Box {number}"]}
        )
        archive.add(f"/m{number}", made)
    inner: Json = {
        "@context": V3,
        "id": "{url}/inner",
        "type": "Collection",
        "items": [{"id": "{url}/m1", "type": "Manifest"}],
    }
    inner["items"] += [{"id": "{url}/top", "type": "Collection"}, {"id": "{url}/m0", "type": "Manifest"}]
    archive.add("/inner", inner)
    page = {"@context": V2, "@id": "{url}/page2", "@type": "sc:Collection", "manifests": [{"@id": "{url}/m2"}]}
    archive.add("/page2", {**page, "members": [{"@id": "{url}/m3", "@type": "sc:Manifest"}, {"@id": "{url}/gone"}]})
    top: Json = {"@context": V3, "id": "{url}/top", "type": "Collection", "next": "{url}/page2"}
    top["items"] = [
        {"id": f"{{url}}/{name}", "type": kind} for name, kind in (("m0", "Manifest"), ("inner", "Collection"))
    ]
    root, index = fetch(archive.add("/top", top))
    assert [manifest.label["en"] for manifest in index.manifests] == [
        ["Box 0"],
        ["Box 1"],
        ["Box 2"],
        ["Box 3"],
    ]
    assert [where for _, where, _ in index.skipped] == [f"{archive.url}/gone"]
    assert index.manifests[2].pages[0].file == "0003_Box_2/0001_f__1.jpg"
    assert len(sizes(root, index)) == 4
    assert [len(manifest.pages) for manifest in fetch(archive.url + "/top", pages=2, fresh=True)[1].manifests] == [1, 1]


def wrong_size(handler: BaseHTTPRequestHandler) -> None:
    send(handler, png((90, 90)), "Content-Type", "image/png")


LYING = {
    "a page of words": lambda handler: send(handler, b"<html>", "Content-Type", "text/html"),
    "not an image": lambda handler: send(handler, b"GIF89a nonsense", "Content-Type", "image/jpeg"),
    "half an image": lambda handler: send(handler, png()[:150], "Content-Type", "image/png"),
    "another size": wrong_size,
    "closed": lambda handler: send(handler, b"", status=403),
    "broken": lambda handler: send(handler, b"", status=500),
    "elsewhere": lambda handler: send(handler, b"", "Location", "file:///etc/passwd", status=302),
}


@pytest.mark.parametrize("kind", LYING)
def test_what_is_no_page_is_counted_and_asked_for_again_next_time(archive: Archive, kind: str) -> None:
    asked = "/img/b/full/300,/0/default.jpg"
    archive.bad[asked] = LYING[kind]
    canvases = [canvas2(number, image(archive, name)) for number, name in enumerate("abc", start=1)]
    url = archive.add("/m", manifest2(*canvases))
    root, index = fetch(url, size=400)
    assert sizes(root, index) == [(300, 400)] * 2
    assert [(reason, where[-2:]) for reason, where, _ in index.skipped] == [("not fetched", "/2")]
    del archive.bad[asked]
    archive.asked.clear()
    root, index = fetch(url, size=400)
    assert (archive.asked, index.skipped, len(sizes(root, index))) == ([asked], (), 3)


def test_interrupted_after_every_page_it_gives_the_same_bytes(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    url = archive.add("/m", manifest2(*(canvas2(number, image(archive, f"s{number}")) for number in range(4))))

    def content(root: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    whole = content(fetch(url)[0])
    archive.asked.clear()
    for page in range(1, 5):

        def interrupt(done: int, total: int, page: int = page) -> None:
            if done == page:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fetch_source(Path(url), Path("unused"), replace(LOCAL, fresh=page == 1), interrupt)
    assert content(fetch(url)[0]) == whole
    assert sum(name.endswith(".jpg") for name in whole) == 4
    assert len(archive.asked) == 5, "nothing was fetched twice"


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(Path.unlink, id="deleted"),
        pytest.param(lambda path: path.write_bytes(b""), id="emptied"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-100] + b"?" * 100), id="changed"),
    ],
)
def test_a_file_that_was_damaged_since_is_fetched_again(archive: Archive, spoil: Callable[[Path], object]) -> None:
    """Only that file: a page was lost in silence, or read as it was."""
    url = archive.add("/m", manifest2(*(canvas2(number, image(archive, f"s{number}")) for number in range(3))))
    root, index = fetch(url)
    damaged = root / index.manifests[0].pages[1].file
    whole = damaged.read_bytes()
    archive.asked.clear()
    assert (fetch(url), archive.asked) == ((root, index), [])
    spoil(damaged)
    again = fetch(url)[1]
    assert damaged.read_bytes() == whole
    assert (len(archive.asked), again.manifests, again.skipped) == (1, index.manifests, ())


def texts3(*lines: tuple[str, str], **more: Any) -> Json:
    items = [
        {
            "type": "Annotation",
            "motivation": "supplementing",
            "body": {"type": "TextualBody", "value": text, "format": "text/plain"},
            "target": f"{{url}}/canvas/1#xywh={box}",
            **more,
        }
        for text, box in lines
    ]
    return {"id": "{url}/texts", "type": "AnnotationPage", "items": items}


def lines_of(root: Path) -> list[tuple[str, Any, int]]:
    (path,) = sorted(root.glob("**/*.xml"))
    return [
        (line.text, line.outline and line.outline.box, len(line.outline.polygon) if line.outline else 0)
        for line in parse_xml_page(path).lines
    ]


TWO = (("первая", "600,1000,4000,400"), ("the second", "600,2000,4000,400"))


def test_texts_of_annotations_are_read_in_pixels_of_the_image(archive: Archive, tmp_path: Path) -> None:
    body = image(archive, "scan", version=3)
    rights = {"rights": "http://creativecommons.org/licenses/by/4.0/"}
    said = {"requiredStatement": {"label": {"en": ["By"]}, "value": {"en": ["The archive"]}}}
    canvas = canvas3(1, body, size=(6000, 8000), annotations=[texts3(*TWO)])
    others = [canvas3(n, image(archive, f"s{n}"), annotations=[]) for n in (2,)]
    url = archive.add("/m", manifest3(canvas, *others, **rights, **said))
    root, _ = fetch(url, size=400)
    assert lines_of(root) == [("первая", (30, 50, 230, 70), 0), ("the second", (30, 100, 230, 120), 0)]
    dataset = prepare(url, tmp_path / "data", split="1/0/0", split_by="text", fetch=replace(LOCAL, size=400), workers=1)
    rows = [json.loads(row) for row in (tmp_path / "data/train/metadata.jsonl").read_text("utf-8").splitlines()]
    assert {row["canvas"] for row in rows} == {f"{archive.url}/canvas/1"}
    assert {row["rights"] for row in rows} == {rights["rights"]}
    assert [row["text"] for row in rows] == ["первая", "the second"]
    assert Dataset.open(dataset.folder).card.manifests == [
        {"id": f"{archive.url}/manifest3", "label": "Letters", "rights": rights["rights"], "attribution": "The archive"}
    ]
    assert dataset.card.source == url


BOX, AREA = (60, 100, 460, 140), (60, 100, 461, 141)


def svg(shape: str) -> Json:
    """A selector of an outline."""
    return {"type": "SvgSelector", "value": f'<svg xmlns="http://www.w3.org/2000/svg">{shape}</svg>'}


def fragment(value: str) -> Json:
    return {"type": "FragmentSelector", "value": value}


CHOICE = {
    "@type": "oa:Choice",
    "default": {"value": "xywh=60,100,400,40"},
    "item": svg('<path d="M 60,100 L 460,100 L 460,140 Z"/>'),
}
SELECTORS: list[tuple[Json, Any, int]] = [
    (fragment("xywh=60,100,400,40"), BOX, 0),
    (fragment("xywh=pixel:60,100,400,40"), BOX, 0),
    (fragment("xywh=percent:10,10,50,5"), (60, 80, 360, 120), 0),
    (svg('<path d="M60,100 L460,100 l0,40 H60 Z"/>'), AREA, 4),
    (svg('<path d="m60 100c9 9 9 9 400 0v40h-400z"/>'), AREA, 4),
    (svg("<polygon points='60,100 460,100 460,140'/>"), AREA, 3),
    (svg("<rect x='60' y='100' width='400' height='40'/>"), AREA, 4),
    (svg("<path d='M60,100 h100 v40 h-100z m300,0 h100 v40 h-50z'/>"), AREA, 0),
    (svg("<polygon points='60,100 90,100 90,140'/><polygon points='400,120 460,100 460,140'/>"), AREA, 0),
    (CHOICE, AREA, 3),
]
"""A selector, and the box and the number of corners of the outline."""
NO_LINES = [
    svg("<rect x='6' y='1' width='4' height='4' transform='scale(2)'/>"),
    svg("<path d='M 1e999,0 L 2,2 L 3,3'/>"),
    {"type": "PointSelector", "x": 1, "y": 2},
    fragment("t=1,2"),
]


@pytest.mark.parametrize("version", [2, 3])
def test_selectors(archive: Archive, version: int) -> None:
    selectors = [*(selector for selector, _, _ in SELECTORS), *NO_LINES]
    body = image(archive, "scan", version=version)
    if version == 3:
        targets = [{"type": "SpecificResource", "source": "{url}/canvas/1", "selector": each} for each in selectors]
        pages = [texts3(("слово", ""), target=target) for target in targets]
        url = archive.add("/m", manifest3(canvas3(1, body, annotations=pages)))
    else:
        said = {"@type": "cnt:ContentAsText", "chars": "<p>сло<b>во</b></p>", "format": "text/html"}
        annotation = {"@type": "oa:Annotation", "motivation": ["oa:transcribing"], "resource": [said]}
        places = [{"@type": "oa:SpecificResource", "full": "{url}/canvas/1", "selector": each} for each in selectors]
        resources = [{**annotation, "on": [place]} for place in places]
        archive.add("/list", {"@id": "{url}/list", "@type": "sc:AnnotationList", "resources": resources})
        url = archive.add("/m", manifest2(canvas2(1, body, otherContent=[{"@id": "{url}/list"}])))
    root, index = fetch(url)
    assert lines_of(root) == [("слово", box, corners) for _, box, corners in SELECTORS]
    assert ": 4 " in index.notes[0]


def body(text: str, format_: str | None = "text/plain", **more: Any) -> Json:
    return {"type": "TextualBody", "value": text, "format": format_, **more}


WHOLE = "0,0,600,800"


@pytest.mark.parametrize(
    ("annotations", "texts", "notes"),
    [
        pytest.param(
            [(body("<p>а,<br/>\nб</p><p>в&amp;<b>г</b></p>", "text/html"), WHOLE)], ["а,\nб\nв&г"], 0, id="HTML"
        ),
        pytest.param([(body("<p>а<br>б</p>", None), WHOLE)], ["а\nб"], 0, id="HTML without a format"),
        pytest.param([(body(f"{'<div>' * 3000}а{'</div>' * 3000}", "text/html"), WHOLE)], ["а"], 0, id="deep HTML"),
        pytest.param([(body("<td>а</td><td>б</td><!-- в --><style>г", "text/html"), WHOLE)], ["а б"], 0, id="a table"),
        pytest.param([(body("а < б\nв"), WHOLE)], ["а < б\nв"], 0, id="plain"),
        pytest.param([(body("а"), WHOLE), (body("б"), "")], ["а\nб"], 0, id="lines on the whole canvas"),
        pytest.param([(body("а"), "percent:1,1,98,98"), (body("б"), "9,9,90,20")], ["б"], 1, id="a page and a line"),
        pytest.param([([body("а"), body("б", purpose="tagging")], "9,9,90,20")], ["а"], 0, id="a tag beside the text"),
        pytest.param([([body("а"), body("б", language="fr")], "9,9,90,20")], [], 1, id="two texts"),
    ],
)
def test_texts_of_pages_and_html_keep_their_breaks(
    archive: Archive, annotations: list[tuple[Any, str]], texts: list[str], notes: int
) -> None:
    page = texts3(*(("", box) for _, box in annotations))
    for item, (content, box) in zip(page["items"], annotations, strict=True):
        item |= {"body": content} | ({} if box else {"target": "{url}/canvas/1"})
    root, index = fetch(archive.add("/m", manifest3(canvas3(1, image(archive, "s"), annotations=[page]))))
    assert [line.text for path in root.glob("**/*.xml") for line in parse_xml_page(path).lines] == texts
    assert len(index.notes) == notes


def test_two_lists_of_texts_of_a_page_are_not_mixed(archive: Archive) -> None:
    pages = [texts3(("original", WHOLE)), texts3(("translation", WHOLE))]
    root, index = fetch(archive.add("/m", manifest3(canvas3(1, image(archive, "s"), annotations=pages))))
    assert (list(root.glob("**/*.xml")), len(index.notes)) == ([], 1)


def test_what_is_no_line_is_omitted_and_counted(archive: Archive) -> None:
    words = texts3(("one", "1,1,50,20"), textGranularity="word")
    lines = texts3(("a line", "60,100,400,40"), textGranularity="line")
    notes = texts3(("nice", "60,100,400,40"), motivation="commenting")
    elsewhere = texts3(("far", ""), target="{url}/canvas/99#xywh=1,1,50,50")
    by_address = texts3(("", "60,100,400,40"), body={"id": "{url}/t.txt", "type": "Text"})
    archive.add("/more", {**lines, "id": "{url}/more", "next": "{url}/last"})
    archive.add("/last", {**texts3(("the last", "60,300,400,40"), textGranularity="line"), "id": "{url}/last"})
    pages = [
        words,
        notes,
        elsewhere,
        by_address,
        {"id": "{url}/more", "type": "AnnotationPage"},
        "{url}/more",
        "{url}/404",
    ]
    url = archive.add("/m", manifest3(canvas3(1, image(archive, "s"), annotations=pages)))
    root, index = fetch(url)
    assert index.skipped[0][1].endswith("/canvas/1")
    archive.add("/404", {"type": "AnnotationPage", "items": []})
    root, index = fetch(url)
    assert [text for text, _, _ in lines_of(root)] == ["a line", "the last"]
    assert [note.partition(": ")[2][:2] for note in index.notes] == ["1 "] * 4


def test_annotations_that_are_none_leave_the_page_and_are_asked_for_again(archive: Archive) -> None:
    pages: list[Any] = [5, None, "http://[", {"id": 5}, "{url}/texts"]
    url = archive.add("/m", manifest3(canvas3(1, image(archive, "s"), annotations=pages, seeAlso=["http://["])))
    archive.add("/texts", b"<html>come back later")
    root, index = fetch(url)
    assert len(sizes(root, index)) == 1
    assert [where[-9:] for _, where, _ in index.skipped] == ["/canvas/1"]
    archive.add("/m", manifest3(canvas3(1, image(archive, "s"), annotations=["{url}/texts"])))
    archive.add("/texts", texts3(("a line", "60,100,400,40")))
    root, index = fetch(url, fresh=True)
    assert ([text for text, _, _ in lines_of(root)], index.skipped) == (["a line"], ())


def test_what_a_server_sends_instead_of_a_manifest_is_not_kept(archive: Archive) -> None:
    url = archive.add("/m", b"<html>come back later")
    collection = archive.add("/c", {"@context": V3, "id": "{url}/c", "type": "Collection", "items": [url]})
    with raises_code("not-a-manifest"):
        fetch(url)
    with raises_code("nothing-fetched"):
        fetch(collection)
    archive.add("/m", manifest3(canvas3(1, image(archive, "s"))))
    for address in (url, collection):
        assert len(sizes(*fetch(address))) == 1


ALTO = b"""<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description><MeasurementUnit>pixel</MeasurementUnit>
<sourceImageInformation><fileName>D:\\masters\\0001.tif</fileName></sourceImageInformation></Description>
<Layout><Page ID="p" PHYSICAL_IMG_NR="1" WIDTH="1200" HEIGHT="1600"><PrintSpace><TextBlock ID="b">
<TextLine ID="l" HPOS="120" VPOS="200" WIDTH="800" HEIGHT="80"><String CONTENT="text"/></TextLine>
</TextBlock></PrintSpace></Page></Layout></alto>"""


def test_alto_that_a_canvas_links_to_is_its_text(archive: Archive, tmp_path: Path) -> None:
    archive.add("/alto.xml", ALTO)
    linked = [{"@id": "{url}/alto.xml", "format": "text/xml", "profile": "http://www.loc.gov/standards/alto/v3/"}]
    url = archive.add("/m", manifest2(canvas2(1, image(archive, "s"), seeAlso=linked)))
    with open_source(Path(url), tmp_path / "x", LOCAL) as opened:
        report = SourceReport()
        from dsocr.formats import SOURCE_FORMATS

        (page,) = report.filter_pages(SOURCE_FORMATS["alto"].read(opened.path, {}))
    assert (page.lines[0].text, page.size, page.image.name) == ("text", (1200, 1600), "0001_f__1.jpg")


def test_what_is_no_manifest_is_an_error(archive: Archive) -> None:
    for content in (b"<html>", b"[1]", b"{}", b'{"@context": "http://schema.org", "type": "Manifest"}'):
        with raises_code("not-a-manifest"):
            fetch(archive.add("/x", content), fresh=True)
    with raises_code("web-unreachable"):
        fetch(archive.url + "/nothing")
    with raises_code("web-unreachable"):
        fetch_source(Path(archive.add("/m", manifest2())), Path("unused"))


def test_a_table_of_json_is_no_manifest(tmp_path: Path) -> None:
    path = tmp_path / "coco.json"
    path.write_text('{"images": [], "annotations": []}', encoding="utf-8")
    assert not is_manifest(path)
    assert not is_manifest(tmp_path)
    assert web_address(Path("https:/a/b?c=d")) == "https://a/b?c=d"
    assert web_address(tmp_path) is None
    draw_scan("x").save(tmp_path / "x.png")
    assert not is_manifest(tmp_path / "x.png")


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"format": "another"}', '{"format": "dsocr-source", "kind": 1}', "[" * 9999]
)
def test_a_damaged_index_is_no_index(tmp_path: Path, content: str) -> None:
    (tmp_path / INDEX).write_text(content, encoding="utf-8")
    assert read_index(tmp_path) is None
