"""METS: the pages of a document with the groups of their files, and a file group of transcriptions added.

A page is a `div` of the physical structure that points to files; images are in one file group, and ALTO or PAGE files
may be in another.
"""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from lxml import etree

from dsocr.errors import DataError
from dsocr.formats.alto import write_alto_pages
from dsocr.formats.format import Format
from dsocr.formats.iiif import join
from dsocr.formats.manifest import ORIGINAL, LanguageMap, Manifest, ManifestPage, index_of_image
from dsocr.formats.page import write_page_files
from dsocr.formats.xml import parse_xml_bytes
from dsocr.formats.xml_tree import Element, XmlTree
from dsocr.images import IMAGE_SUFFIXES

_XLINK = "http://www.w3.org/1999/xlink"
_HREF = f"{{{_XLINK}}}href"
_IMAGE_GROUPS = ("MAX", "ORIGINAL", "MASTER", "OCR-D-IMG", "DEFAULT", "REFERENCE")
_SMALL_GROUPS = ("MIN", "THUMB", "TEASER", "PREVIEW")
_TEXT_GROUPS = ("FULLTEXT", "ALTO", "GT", "PAGE", "OCR")


def parse_mets(raw: bytes, address: str, *, base: str = "", images: str = "", texts: str = "") -> Manifest:
    """Parse a METS file from an address; `images` and `texts` are the file groups to use, chosen by name if empty.

    The pages' addresses are relative to `base`, as in the file without one. Raises DataError if a group does not exist.
    """
    root = parse_xml_bytes(raw)
    if etree.QName(root).localname != "mets":
        raise DataError("the XML is not METS", code="mets-empty", where=address)
    files = {file.get("ID", ""): file for file in root.iter("{*}file")}
    groups = sorted({_group(file) for file in files.values()})
    for group in filter(None, (images, texts)):
        if group.upper() not in groups:
            hint = f"its groups are {', '.join(groups)}"
            raise DataError(f"METS has no file group {group}", code="file-group-missing", where=address, hint=hint)
    pages = []
    for number, div in enumerate(root.iter("{*}div")):
        ids = _file_ids(div)
        is_logical = any(structure.get("TYPE") == "LOGICAL" for structure in div.iterancestors("{*}structMap"))
        if ids and not is_logical and not any(_file_ids(other) for other in div.iterdescendants("{*}div")):
            listed = [files[id_] for id_ in ids if id_ in files]
            id_ = div.get("ID") or f"div-{number}"
            pages.append(_parse_page(div, id_, listed, images.upper(), texts.upper(), base))
    if not pages:
        raise DataError("METS names no pages with files", code="mets-empty", where=address)
    title = _text_of(root, "title") or root.get("LABEL", "")
    rights = next((href for element in root.iter("{*}accessCondition") if (href := element.get(_HREF))), "")
    rights = rights or _text_of(root, "accessCondition", "license", "rights")
    owner = _text_of(root, "owner")
    statement: dict[str, LanguageMap] = {"value": {"none": [owner]}} if owner else {}
    label: LanguageMap = {"none": [title]} if title else {}
    return Manifest(root.get("OBJID") or address, label, rights, statement, tuple(pages))


def _file_ids(div: etree._Element) -> list[str]:
    pointers = (element for fptr in div.iterchildren("{*}fptr") for element in fptr.iter())
    return [id_ for element in pointers if (id_ := element.get("FILEID"))]


def _group(file: etree._Element) -> str:
    return next((use.upper() for group in file.iterancestors("{*}fileGrp") if (use := group.get("USE"))), "")


def _text_of(root: etree._Element, *names: str) -> str:
    """Return the first text in elements of these names, the first name that has one."""
    elements = (element for name in names for element in root.iter(f"{{*}}{name}"))
    titles = (" ".join("".join(map(str, element.itertext())).split()) for element in elements)
    return next(filter(None, titles), "")


def _parse_page(
    div: etree._Element, id_: str, files: Sequence[etree._Element], images: str, texts: str, base: str
) -> ManifestPage:
    shown = [file for file in files if _kind(file) == "image" and images in ("", _group(file))]
    written = [file for file in files if _kind(file) == "text" and texts in ("", _group(file))]
    image = min(shown, key=lambda file: _rank(_group(file), _IMAGE_GROUPS), default=None)
    text = min(written, key=lambda file: _rank(_group(file), _TEXT_GROUPS), default=None)
    label = div.get("ORDERLABEL") or div.get("LABEL") or div.get("ORDER") or ""
    return ManifestPage(
        id_,
        {"none": [label]} if label else {},
        image="" if image is None else _address(image, base),
        texts=() if text is None else (_address(text, base),),
        problem="" if image is not None else f"no image file in the file group {images}".rstrip(),
    )


def _rank(group: str, names: Sequence[str]) -> tuple[bool, bool, int]:
    """Return a key that sorts groups as a list of names, those named in part after the others, small images last."""
    place = next((place for place, name in enumerate(names) if name in group), len(names))
    return any(name in group for name in _SMALL_GROUPS), group not in names, place


def _address(file: etree._Element, base: str = "") -> str:
    return next((join(base, href) for location in file.iterchildren("{*}FLocat") if (href := location.get(_HREF))), "")


def _kind(file: etree._Element) -> str:
    """Return "image", "text" or another kind of file, by its stated type or else the suffix of its address."""
    if kind := file.get("MIMETYPE", "").lower():
        is_image, is_text = kind.startswith("image/"), "xml" in kind and "tei" not in kind
    else:
        suffix = PurePosixPath(_address(file).partition("?")[0].partition("#")[0]).suffix.lower()
        is_image, is_text = suffix in IMAGE_SUFFIXES, suffix == ".xml"
    return "image" if is_image else "text" if is_text else ""


def write_mets(folder: Path, files: Sequence[tuple[Path, Path]], *, use: str, kind: str) -> None:
    """Write the source's METS file with a new file group of `files`, pairs of an image and its transcription.

    Everything else stays as it is, byte for byte. The new files are named relative to the METS file.
    """
    root, index = index_of_image(files[0][0], "mets")
    written = {image.relative_to(root).as_posix(): path for image, path in files if image.is_relative_to(root)}
    paths = {page.id: written[page.file] for page in index.manifests[0].pages if page.file in written}
    tree = XmlTree((root / ORIGINAL).read_bytes())
    section = next(tree.iter("fileSec"), None)
    if section is None:
        raise DataError("METS has no fileSec", code="mets-empty", where=index.source)
    group, ids = tree.free_id(use), dict[str, str]()
    indent = section.indent_before(section.children[0]) if section.children else ""
    parts: list[Element | str] = []
    for place, (page, path) in enumerate(paths.items(), start=1):
        ids[page] = tree.free_id(f"{group}_{place:04d}")
        href = quote(Path(os.path.relpath(path, folder)).as_posix())
        location = tree.new("FLocat", {"xmlns:xlink": _XLINK, "LOCTYPE": "URL", "xlink:href": href})
        parts += [indent, tree.new("file", {"ID": ids[page], "MIMETYPE": kind}, location)]
    section.insert(tree.new("fileGrp", {"USE": group}, *parts, indent), after=section.children)
    for number, div in enumerate(tree.iter("div")):
        if (id_ := div.get("ID") or f"div-{number}") in ids:
            div.insert(tree.new("fptr", {"FILEID": ids.pop(id_)}), after=div.all("fptr"))
    (folder / "mets.xml").write_bytes(tree.content())


FORMATS = tuple(
    Format(
        name=name,
        title=title,
        write_pages=write_pages,
        write_index=partial(write_mets, use=use, kind=kind),
        suffix=".xml",
        one_page_per_file=True,
        require_original=lambda path, image: index_of_image(image or path, "mets"),
    )
    for name, title, write_pages, use, kind in (
        ("mets", "METS with ALTO", write_alto_pages, "DSOCR-ALTO", "text/xml"),
        ("mets-page", "METS with PAGE", write_page_files, "DSOCR-PAGE", "application/vnd.prima.page+xml"),
    )
)
