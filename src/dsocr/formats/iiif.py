"""IIIF Presentation 2 and 3: manifests, collections and annotations in, manifests with annotations out.

Annotations hold the texts of lines, each with a box (`xywh`) or a polygon (SVG) in coordinates of the canvas, which are
those of the image only by chance.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from dsocr.document import Line, Outline, Page, Point, ProcessingStep, bounds
from dsocr.errors import DataError
from dsocr.formats.format import LARGEST_COORDINATE, Format, stated_size
from dsocr.formats.manifest import ImageService, LanguageMap, Manifest, ManifestPage, Part, index_of_image
from dsocr.formats.xml import replace_forbidden

CONTEXT = "http://iiif.io/api/presentation/3/context.json"
_MARK = re.compile(r"iiif\.io/api/presentation|shared-canvas\.org")
_TEXT_PROFILES = re.compile(r"alto|primaresearch\.org/PAGE", re.IGNORECASE)
_XYWH = re.compile(r"xywh=(?:(pixel|percent|pct):)?([-\d.,eE+]+)")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_PATH = re.compile(rf"[A-Za-z]|{_NUMBER}")
_ARGUMENTS = {"M": 2, "L": 2, "T": 2, "H": 1, "V": 1, "Q": 4, "S": 4, "C": 6, "A": 7}
"""Numbers of each command of an SVG path; the last two are where it ends."""
_TRANSCRIBING = ("supplementing", "transcribing")
_MAX_POINTS = 5000
_RECT = ("x", "y", "width", "height")
_MEDIA = "http://www.w3.org/TR/media-frags/"
_WHOLE = 0.95
"""Least share of both sides of an image that a box around the whole image takes."""
_BLOCKS = re.compile(r"[bh]r|lb|p|div|li|[uod]l|d[dt]|tr|table|pre|blockquote|section|h[1-6]")
_HTML = re.compile(r"</?(?:p|br|div|span)\b[^<>]*>", re.IGNORECASE)


def is_iiif(document: object) -> bool:
    """Whether a JSON document is a IIIF manifest or collection."""
    if not isinstance(document, dict) or not _MARK.search(json.dumps(document.get("@context", ""))):
        return False
    return _type(document) in {"Manifest", "Collection"} or "sequences" in document


def is_collection(document: Mapping[str, Any]) -> bool:
    """Whether a document lists others."""
    return _type(document) in {"Collection", "CollectionPage"}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _dicts(value: object) -> list[dict[str, Any]]:
    return [entry for entry in _list(value) if isinstance(entry, dict)]


def id_of(value: object) -> str:
    """Return the id of an object, or of a mere reference by id."""
    if isinstance(value, dict):
        value = value.get("id") or value.get("@id")
    return value if isinstance(value, str) else ""


def join(address: str, id_: str) -> str:
    """Return an id relative to an address as an address; others are returned unchanged."""
    try:
        return urljoin(address, id_)
    except ValueError:
        return id_


def _type(value: object) -> str:
    """Return the type without its prefix, such as `Image` for `dctypes:Image`."""
    types = value.get("type") or value.get("@type") if isinstance(value, dict) else ""
    return next((name for name in _list(types) if isinstance(name, str)), "").rpartition(":")[2]


def language_map(value: object) -> LanguageMap:
    """Return a label of any version as a language map: a text, a text with a language, a list of them, or a map."""
    labels: LanguageMap = {}
    for entry in _list(value):
        if isinstance(entry, str):
            labels.setdefault("none", []).append(entry)
        elif isinstance(entry, dict) and "@value" in entry:
            labels.setdefault(str(entry.get("@language") or "none"), []).append(str(entry["@value"]))
        elif isinstance(entry, dict):
            for language, texts in entry.items():
                labels.setdefault(str(language), []).extend(text for text in _list(texts) if isinstance(text, str))
    return {language: texts for language, texts in labels.items() if texts}


def collection_members(document: Mapping[str, Any]) -> list[Any]:
    """Return a collection's items: manifests, collections and further pages of itself, whole or as addresses."""
    listed = [entry for key in ("items", "manifests", "collections", "members") for entry in _list(document.get(key))]
    members = [entry for entry in listed if isinstance(entry, str) or _type(entry) in {"", "Manifest", "Collection"}]
    more = [document[key] for key in ("first", "next") if document.get(key)]
    return members + more


def parse_manifest(document: Mapping[str, Any], address: str) -> Manifest:
    """Parse a manifest of version 2 or 3 from an address, which relative ids are relative to."""
    required = document.get("requiredStatement")
    if isinstance(required, dict):
        statement = {name: language_map(required.get(name)) for name in ("label", "value")}
    else:
        value = language_map(document.get("attribution"))
        statement = {"label": {"en": ["Attribution"]}, "value": value} if value else {}
    # Several sequences are orders of the same canvases.
    sequences = _dicts(document.get("sequences"))[:1]
    canvases = _dicts(sequences[0].get("canvases")) if sequences else _dicts(document.get("items"))
    rights = next((id_of(entry) for entry in _list(document.get("rights") or document.get("license"))), "")
    pages = tuple(_parse_canvas(canvas, number, address) for number, canvas in enumerate(canvases, start=1))
    return Manifest(id_of(document) or address, language_map(document.get("label")), rights, statement, pages)


def _parse_canvas(canvas: dict[str, Any], number: int, address: str) -> ManifestPage:
    size = stated_size(canvas.get("width"), canvas.get("height"))
    seen, problems = [], []
    for body, target in _paintings(canvas):
        resource, region, rotation = _image_resource(body)
        if not resource:
            problems.append(f"its content is {_type(body) or 'unknown'}, not an image")
        elif not (image := join(address, id_of(resource))) and not resource.get("service"):
            problems.append("its image has no address")
        else:
            seen.append((image, resource, region, rotation, _first_part(_target(target)[1], size)))
    annotations = [entry for key in ("annotations", "otherContent") for entry in _list(canvas.get(key))]
    linked = [entry for key in ("seeAlso", "rendering") for entry in _dicts(canvas.get(key))]
    texts = [link for link in linked if _TEXT_PROFILES.search(f"{link.get('profile', '')} {link.get('format', '')}")]
    page = ManifestPage(
        id_of(canvas) or f"{address}#canvas-{number}",
        language_map(canvas.get("label")),
        size,
        annotations=tuple(join(address, entry) if isinstance(entry, str) else entry for entry in annotations),
        texts=tuple(join(address, id_of(link)) for link in texts),
    )
    if not seen:
        return replace(page, problem=next(iter(problems), "it has no image"))
    whole = (0.0, 0.0, *(size or (1, 1)))
    # The first of the largest ones, as others are details, fragments or overlays.
    image, resource, region, rotation, part = max(seen, key=lambda body: math.prod((body[4] or whole)[2:]))
    omitted = len(seen) + len(problems) - 1
    return replace(
        page,
        image=image,
        image_size=stated_size(resource.get("width"), resource.get("height")),
        service=_image_service(resource, address),
        region=region,
        rotation=rotation,
        part=part,
        note=f"only the largest image is read, without {omitted} other contents" if omitted else "",
    )


def _paintings(canvas: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield body and target of everything painted on a canvas."""
    for annotation in _dicts(canvas.get("images")):
        yield annotation.get("resource"), annotation.get("on")
    for page in _dicts(canvas.get("items")):
        for annotation in _dicts(page.get("items")):
            if "painting" in _list(annotation.get("motivation")):
                yield next(iter(_list(annotation.get("body"))), None), annotation.get("target")


def _image_resource(body: object) -> tuple[dict[str, Any], str, str]:
    """Return the image that a body is or chooses first, with region and rotation; an empty image for other bodies."""
    region, rotation = "full", "0"
    for _ in range(4):
        if not isinstance(body, dict):
            break
        kind = _type(body)
        if kind == "Choice":
            body = next(iter(_list(body.get("default")) or _list(body.get("items")) or _list(body.get("item"))), None)
        elif kind == "SpecificResource" or "full" in body:
            for selector in _dicts(body.get("selector")):
                region = str(selector.get("region") or _region(str(selector.get("value", ""))) or region)
                rotation = str(selector.get("rotation") or rotation)
            body = body.get("source") or body.get("full")
            body = {"id": body, "type": "Image"} if isinstance(body, str) else body
        elif kind in {"Image", ""}:
            return body, _region(id_of(body)) or region, rotation
        else:
            break
    return {}, region, rotation


def _region(fragment: str) -> str:
    """Return the Image API's region for a media fragment; empty if there is none."""
    match = _XYWH.search(fragment)
    return f"{'' if match[1] in (None, 'pixel') else 'pct:'}{match[2]}" if match else ""


def _image_service(resource: Mapping[str, Any], address: str) -> ImageService | None:
    """Return the first image service among services for logging in and searching."""
    for service in _dicts(resource.get("service")):
        described = " ".join(str(service.get(key, "")) for key in ("@context", "type", "@type", "profile"))
        is_image = re.search(r"image/\d|ImageService|image-api|level\d", described)
        if is_image and id_of(service) and not _type(service).startswith("Auth"):
            return parse_service(service, join(address, id_of(service)).rstrip("/"))
    return None


def parse_service(service: Mapping[str, Any], id_: str) -> ImageService:
    """Parse a service as a manifest embeds it, or its `info.json`."""
    described = " ".join(str(service.get(key, "")) for key in ("@context", "type", "@type", "profile"))
    version = re.search(r"(?:/image/|ImageService)([123])", described)
    level = re.search(r"level([012])", described)
    default = 1 if "image-api" in described else 2 if "@id" in service else 3
    sizes = [stated_size(size.get("width"), size.get("height")) for size in _dicts(service.get("sizes"))]
    listed = tuple(sorted(size for size in sizes if size))
    return ImageService(id_, int(version[1]) if version else default, int(level[1]) if level else -1, listed)


def image_address(page: ManifestPage, service: ImageService, longest: int) -> tuple[str, tuple[int, int] | None]:
    """Return the address of an image whose longest side has at most `longest` pixels (0: the largest), and its size.

    The size is None where the server decides. A server of level 0 has only the sizes that it lists; of those the
    smallest is taken that is large enough.
    """
    full = "max" if service.version == 3 else "full"
    known, size = page.image_size, full
    if page.region != "full":
        numbers = _numbers(page.region)
        known = stated_size(round(numbers[2]), round(numbers[3])) if len(numbers) == 4 else None
    expected: tuple[int, int] | None = None
    if service.level < 1 and page.region == "full" and service.sizes:
        fitting = [size for size in service.sizes if longest and max(size) >= longest]
        expected = min(fitting, default=max(service.sizes))
        if expected != page.image_size:
            size = f"{expected[0]}," if service.version == 2 else f"{expected[0]},{expected[1]}"
    elif service.level >= 1 and known and longest and max(known) > longest:
        width = max(round(known[0] * longest / max(known)), 1)
        expected, size = (width, max(round(known[1] * width / known[0]), 1)), f"{width},"
    if expected and page.rotation in {"90", "270"}:
        expected = expected[1], expected[0]
    quality = "native" if service.version == 1 else "default"
    return f"{service.id}/{page.region}/{size}/{page.rotation}/{quality}.jpg", expected


def _numbers(text: str) -> list[float]:
    """Return comma-separated numbers that can be coordinates; empty for anything else."""
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        return []
    return numbers if all(abs(number) <= LARGEST_COORDINATE for number in numbers) else []


def _first_part(selectors: Iterable[str], size: tuple[int, int] | None) -> Part | None:
    """Return the first box among selectors on a canvas of this size; None if they have none."""
    for match in filter(None, map(_XYWH.search, selectors)):
        numbers, unit = _numbers(match[2]), (1, 1)
        if match[1] in ("percent", "pct"):
            unit = size or (0, 0)
            numbers = [number / 100 for number in numbers]
        if len(numbers) == 4 and min(numbers[2:]) > 0 and min(unit) > 0:
            return numbers[0] * unit[0], numbers[1] * unit[1], numbers[2] * unit[0], numbers[3] * unit[1]
    return None


def _target(target: object) -> tuple[str, list[str]]:
    """Return the canvas of a target and its selectors: fragments, SVG, or the types of others."""
    target = next(iter(_list(target)), None)
    if isinstance(target, str):
        canvas, _, fragment = target.partition("#")
        return canvas, [fragment] if fragment else []
    if not isinstance(target, dict):
        return "", []
    source = id_of(target.get("source") or target.get("full")) or id_of(target)
    canvas, _, fragment = source.partition("#")
    selectors = _dicts(target.get("selector"))
    for selector in list(selectors):  # version 2 chooses between a box and a drawing
        selectors += _dicts(selector.get("default")) + _dicts(selector.get("item"))
    values = [str(selector.get("value") or selector.get("chars") or _type(selector)) for selector in selectors]
    return canvas, [value for value in (fragment, *values) if value]


def read_lines(
    annotation_pages: Iterable[Mapping[str, Any]], page: ManifestPage, size: tuple[int, int]
) -> tuple[list[Line], list[str]]:
    """Return the lines that annotations describe, in pixels of the image of this size, and counts of the rest.

    Texts of words, paragraphs and pages are left out where lines are marked as such. Where all texts are of the whole
    canvas, they are one text without an outline, divided by line breaks.
    """
    part = page.shown_part(size)
    lines: list[tuple[str, Line]] = []
    whole: dict[int, list[Line]] = {}
    omitted: Counter[str] = Counter()
    for number, annotated in enumerate(annotation_pages):
        for annotation in _dicts(annotated.get("items")) + _dicts(annotated.get("resources")):
            motivations = " ".join(str(motivation) for motivation in _list(annotation.get("motivation")))
            is_painting = "sc:painting" in motivations and "resource" in annotation
            if not is_painting and not any(word in motivations for word in _TRANSCRIBING):
                omitted["annotations are not transcriptions by their motivation"] += 1
                continue
            text = _text(annotation.get("body") or annotation.get("resource") or {"value": annotation.get("bodyValue")})
            targets = _list(annotation.get("target") or annotation.get("on"))
            canvas, selectors = _target(targets)
            outline = _outline(selectors, page.size, part, size)
            kind = str(annotation.get("textGranularity", ""))
            if text is None:
                omitted["annotations have their text elsewhere, or several texts"] += 1
            elif canvas and canvas.partition("://")[2] != page.id.partition("#")[0].partition("://")[2]:
                omitted["annotations are of another canvas"] += 1
            elif len(targets) != 1 or (outline is None and (selectors or not canvas)):
                omitted["texts have no box on the page, or several"] += 1
            elif kind not in {"word", "glyph"} and (outline is None or _is_whole(outline, size)):
                whole.setdefault(number, []).append(Line(text, f"{page.id}#whole"))
            else:
                lines.append((kind, Line(text, f"{page.id}#{len(lines) + 1}", outline)))
    kinds = {kind for kind, _ in lines}
    line_kinds = {"line"} if "line" in kinds else kinds - {"word", "glyph", "block", "paragraph", "page"}
    omitted["texts are not of lines"] += sum(kind not in line_kinds for kind, _ in lines)
    read = [line for kind, line in lines if kind in line_kinds]
    if len(whole) == 1 and not read:
        texts = next(iter(whole.values()))
        read = [replace(texts[0], text="\n".join(line.text for line in texts if line.text))]
    else:
        message = "texts are of the whole page, which has texts of lines or several lists of texts"
        omitted[message] += sum(map(len, whole.values()))
    messages = [f"{count} {problem}" for problem, count in omitted.items() if count]
    return read, messages


def _is_whole(outline: Outline, size: tuple[int, int]) -> bool:
    left, top, right, bottom = outline.box
    return right - left >= _WHOLE * size[0] and bottom - top >= _WHOLE * size[1]


class _Html(HTMLParser):
    """Collects the text of HTML, with a line break at each block."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.parts.append("\n" if _BLOCKS.fullmatch(tag) else " " if tag in {"td", "th"} else "")

    def handle_endtag(self, tag: str) -> None:
        self.handle_starttag(tag, None)

    def handle_data(self, data: str) -> None:
        """Add a text, where line breaks are spaces."""
        if self.cdata_elem is None:  # scripts and styles
            self.parts.append(re.sub(r"\s+", " ", data))


def _text(body: object) -> str | None:
    """Return the text in an annotation's bodies but for tags and comments; None if they have none, or several."""
    texts = set()
    for entry in _dicts(body):
        text, purpose = entry.get("value", entry.get("chars")), str(entry.get("purpose", ""))
        is_other = _type(entry) == "Tag" or (purpose and not any(word in purpose for word in _TRANSCRIBING))
        if isinstance(text, str) and not is_other:
            if "html" in str(entry.get("format") or ("html" if _HTML.search(text) else "")):
                parser = _Html()
                parser.feed(text)
                parser.close()
                text = "".join(parser.parts)
            lines = (" ".join(line.split()) for line in text.splitlines())
            texts.add(replace_forbidden("\n".join(filter(None, lines))))
    return texts.pop() if len(texts) == 1 else None


def _outline(
    selectors: Sequence[str], canvas: tuple[int, int] | None, part: Part, size: tuple[int, int]
) -> Outline | None:
    across, down = size[0] / part[2], size[1] / part[3]

    def place(x: float, y: float) -> Point:
        return round((x - part[0]) * across), round((y - part[1]) * down)

    for selector in selectors:
        shapes = _svg_shapes(selector) if "<" in selector else []
        corners = tuple(place(x, y) for shape in shapes for x, y in shape)
        if corners:
            return Outline.of_polygon(corners) if len(shapes) == 1 else Outline(bounds(corners))
    if box := _first_part(selectors, canvas):
        left, top, width, height = box
        corner, (right, bottom) = place(left, top), place(left + width, top + height)
        return Outline((*corner, right, bottom)) if right > corner[0] and bottom > corner[1] else None
    return None


def _svg_shapes(svg: str) -> list[list[tuple[float, float]]]:
    """Return the corners of all polygons, rectangles and paths, of curves only where they end; none if one is moved."""
    shapes = []
    for match in re.finditer(r"""\bpoints\s*=\s*["']([^"']*)["']""", svg):
        numbers = [float(number) for number in re.findall(_NUMBER, match[1])[: 2 * _MAX_POINTS]]
        shapes.append(list(zip(numbers[::2], numbers[1::2], strict=False)))
    for match in re.finditer(r"""<path\b[^<>]*?\sd\s*=\s*["']([^"']*)["']""", svg):
        shapes += _path_shapes(match[1])
    for match in re.finditer(r"<rect\b[^<>]*>", svg):
        sides = [re.search(rf"""\s{name}\s*=\s*["']({_NUMBER})["']""", match[0]) for name in _RECT]
        x, y, width, height = (float(side[1]) if side else 0.0 for side in sides)
        shapes += [[(x, y), (x + width, y), (x + width, y + height), (x, y + height)]] if width and height else []
    numbers = [number for shape in shapes for point in shape for number in point]
    is_usable = "transform" not in svg and all(abs(number) <= LARGEST_COORDINATE for number in numbers)
    return [shape for shape in shapes if len(shape) >= 3] if is_usable else []


def _path_shapes(path: str) -> list[list[tuple[float, float]]]:
    tokens = _PATH.findall(path)[: 8 * _MAX_POINTS]
    shapes: list[list[tuple[float, float]]] = [[]]
    x = y = 0.0
    command, place = "", 0
    while place < len(tokens):
        if tokens[place].isalpha():
            command, place = tokens[place], place + 1
            if command in "zZ":
                x, y = shapes[-1][0] if shapes[-1] else (x, y)
                continue
            if command in "mM":
                shapes.append([])
        count = _ARGUMENTS.get(command.upper(), 0)
        numbers = tokens[place : place + count]
        if not count or len(numbers) < count or any(number.isalpha() for number in numbers):
            break
        place += count
        step, (from_x, from_y) = [float(number) for number in numbers], (x, y) if command.islower() else (0.0, 0.0)
        x = x if command in "vV" else from_x + step[0 if command in "hH" else -2]
        y = y if command in "hH" else from_y + step[-1]
        shapes[-1].append((x, y))
        command = {"m": "l", "M": "L"}.get(command, command)
    return shapes


def write_annotation_page(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write the texts of a fetched canvas as an annotation page with a box, and a polygon if known, for each line."""
    for page in pages:
        folder, index = index_of_image(page.image, "iiif")
        indexed = index.find(page.image.relative_to(folder).as_posix())
        if indexed is None or page.size is None:
            raise DataError("is not a page of the manifest that it lies beside", code="iiif-missing", where=page.where)
        content = {"@context": CONTEXT, **_annotation_page(page, indexed[1], page.size, step)}
        path.write_text(_to_json(content), encoding="utf-8", newline="\n")


def _to_json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _annotation_page(page: Page, canvas: ManifestPage, size: tuple[int, int], step: ProcessingStep) -> dict[str, Any]:
    part = canvas.shown_part(size)
    across, down = part[2] / size[0], part[3] / size[1]

    def place(x: float, y: float) -> tuple[float, float]:
        point = part[0] + x * across, part[1] + y * down
        # Whole numbers lose nothing where the canvas is at least as fine as the image.
        digits = (None if across >= 1 else 3), (None if down >= 1 else 3)
        return round(point[0], digits[0]), round(point[1], digits[1])

    id_ = f"{canvas.id}/dsocr"
    items = []
    for number, line in enumerate(page.transcribed_lines, start=1):
        target: str | dict[str, Any] = canvas.id
        if line.outline:
            (left, top), (right, bottom) = place(*line.outline.box[:2]), place(*line.outline.box[2:])
            box = ",".join(f"{value:.10g}" for value in (left, top, right - left, bottom - top))
            selectors = [{"type": "FragmentSelector", "conformsTo": _MEDIA, "value": f"xywh={box}"}]
            if line.outline.polygon:
                corners = " L ".join(",".join(f"{v:.10g}" for v in place(*point)) for point in line.outline.polygon)
                path = f'<svg xmlns="http://www.w3.org/2000/svg"><path d="M {corners} Z"/></svg>'
                selectors.append({"type": "SvgSelector", "value": path})
            target = {
                "type": "SpecificResource",
                "source": canvas.id,
                "selector": selectors if len(selectors) > 1 else selectors[0],
            }
        items.append(
            {
                "id": f"{id_}/{number}",
                "type": "Annotation",
                "motivation": "supplementing",
                "textGranularity": "line",
                "body": {"type": "TextualBody", "value": line.text, "format": "text/plain"},
                "target": target,
            }
        )
    label = {"en": [f"Transcribed with {step.software} {step.version}"]}
    return {"id": id_, "type": "AnnotationPage", "label": label, "items": items}


def write_manifests(folder: Path, files: Sequence[tuple[Path, Path]]) -> None:
    """Write a manifest of version 3 into `folder` for each source manifest, with the annotation pages of its images.

    `files` are pairs of an image and its annotation page.
    """
    root, index = index_of_image(files[0][0], "iiif")
    written = {image.relative_to(root).as_posix(): path for image, path in files if image.is_relative_to(root)}
    for manifest in index.manifests:
        pages = [page for page in manifest.pages if page.file in written]
        if not pages:
            continue
        content: dict[str, Any] = {"@context": CONTEXT, "id": f"{manifest.id}/dsocr", "type": "Manifest"}
        content["label"] = manifest.label or {"none": [manifest.id]}
        if manifest.rights.startswith("http"):
            content["rights"] = manifest.rights
        if manifest.statement:
            content["requiredStatement"] = manifest.statement
        content["items"] = [_canvas(page, written[page.file]) for page in pages]
        below = Path(pages[0].file).parent
        (folder / below / "manifest.json").write_text(_to_json(content), encoding="utf-8", newline="\n")


def _canvas(page: ManifestPage, annotations: Path) -> dict[str, Any]:
    width, height = page.size or page.file_size
    image: dict[str, Any] = {"id": page.image, "type": "Image"}
    if page.image_size:
        image |= {"width": page.image_size[0], "height": page.image_size[1]}
    if service := page.service:
        key, profile = ("", f"level{max(service.level, 0)}")
        if service.version < 3:
            key, profile = "@", f"http://iiif.io/api/image/{service.version}/{profile}.json"
        image["service"] = [
            {f"{key}id": service.id, f"{key}type": f"ImageService{service.version}", "profile": profile}
        ]
    body = image
    if page.region != "full" or page.rotation != "0":
        selector = {"type": "ImageApiSelector", "region": page.region, "rotation": page.rotation}
        body = {"type": "SpecificResource", "source": image, "selector": selector}
    target = page.id
    if page.part:
        target += f"#xywh={','.join(f'{value:.10g}' for value in page.part)}"
    painting = {"id": f"{page.id}/dsocr/image", "type": "Annotation", "motivation": "painting"}
    content = json.loads(annotations.read_text(encoding="utf-8"))
    content.pop("@context")
    return {
        "id": page.id,
        "type": "Canvas",
        "label": page.label or {"none": [Path(page.file).stem]},
        "width": width,
        "height": height,
        "items": [
            {
                "id": f"{page.id}/dsocr/images",
                "type": "AnnotationPage",
                "items": [{**painting, "body": body, "target": target}],
            }
        ],
        "annotations": [content],
    }


FORMATS = (
    Format(
        name="iiif",
        title="IIIF annotations",
        write_pages=write_annotation_page,
        write_index=write_manifests,
        suffix=".json",
        one_page_per_file=True,
        require_original=lambda path, image: index_of_image(image or path, "iiif"),
    ),
)
