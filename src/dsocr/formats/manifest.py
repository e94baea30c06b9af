"""The pages of a document as IIIF and METS describe them, and the index beside its fetched images.

A fetched source is a folder of images and PAGE or ALTO files like any other. The index, a hidden file in it, remembers
where each image is from, so that results can be written back for viewers.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from dsocr.errors import DataError, option
from dsocr.io.encodings import read_object
from dsocr.io.files import until_changed

INDEX = ".source.json"
ORIGINAL = ".original"
"""File beside the index with the METS file as it was fetched."""

LanguageMap = dict[str, list[str]]
"""Language code, "none" for unknown -> texts, as IIIF 3 writes labels."""
Part = tuple[float, float, float, float]
"""Left, top, width, height."""


def plain(label: Mapping[str, list[str]]) -> str:
    """Return a label in its first language."""
    return "; ".join(next(iter(label.values()), []))


@dataclass(frozen=True, slots=True)
class ImageService:
    """An IIIF Image API service; `level` is -1 if it is not stated, and `sizes` are listed widths and heights."""

    id: str
    version: int = 2
    level: int = -1
    sizes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ManifestPage:
    """A page: an IIIF canvas, or a page of a METS file.

    `size` is that of the canvas, and `part` of it shows the image: all, if None. `image` is an address, `image_size`
    the size that the source states; of it, `region` (an Image API region) is shown, turned clockwise by `rotation`.
    `annotations` are annotation pages or their addresses, `texts` addresses of ALTO or PAGE files. `problem` says why
    there is no image to fetch, and `note` the omitted parts of the page. `file` is the image that was fetched, relative
    to the index, and `file_size` its pixels.
    """

    id: str
    label: LanguageMap = field(default_factory=dict)
    size: tuple[int, int] | None = None
    image: str = ""
    image_size: tuple[int, int] | None = None
    service: ImageService | None = None
    region: str = "full"
    rotation: str = "0"
    part: Part | None = None
    annotations: tuple[Any, ...] = ()
    texts: tuple[str, ...] = ()
    problem: str = ""
    note: str = ""
    file: str = ""
    file_size: tuple[int, int] = (0, 0)

    def shown_part(self, image_size: tuple[int, int]) -> Part:
        """Return the part of the canvas that shows the image."""
        return self.part or (0.0, 0.0, *(self.size or image_size))


@dataclass(frozen=True, slots=True)
class Manifest:
    """A document: its pages, its name and rights. `statement` is IIIF's required statement, with label and value."""

    id: str
    label: LanguageMap = field(default_factory=dict)
    rights: str = ""
    statement: dict[str, LanguageMap] = field(default_factory=dict)
    pages: tuple[ManifestPage, ...] = ()

    @property
    def attribution(self) -> str:
        """The required statement's text."""
        return plain(self.statement.get("value", {}))


@dataclass(frozen=True, slots=True)
class SourceIndex:
    """The index of a fetched source: its manifests with the fetched pages.

    `skipped` are reason, place and message of unfetched items. `files` are the other files of its folder with their
    SHA-256; empty if they are not its own.
    """

    source: str
    kind: Literal["iiif", "mets"]
    fetched: str
    manifests: tuple[Manifest, ...]
    skipped: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the content of the index file."""
        return json.dumps({"format": "dsocr-source", **asdict(self)}, ensure_ascii=False, indent=1) + "\n"

    def find(self, file: str) -> tuple[Manifest, ManifestPage] | None:
        """Return the page whose image is this file."""
        pages = ((manifest, page) for manifest in self.manifests for page in manifest.pages)
        return next((pair for pair in pages if pair[1].file == file), None)

    @property
    def rights(self) -> list[dict[str, str]]:
        """Id, label, rights and attribution of each manifest, for a card."""
        rows = (
            {"id": m.id, "label": plain(m.label), "rights": m.rights, "attribution": m.attribution}
            for m in self.manifests
        )
        return [{name: value for name, value in row.items() if value} for row in rows]


def _read_index(folder: Path) -> SourceIndex | None:
    content = read_object(folder / INDEX)
    if content.pop("format", None) != "dsocr-source":
        return None
    try:
        return TypeAdapter(SourceIndex).validate_python(content)
    except ValidationError:
        return None


read_index = until_changed(_read_index, INDEX)
"""Return the index of a folder, None without a readable one; remembered, as that of a thousand pages takes 40 ms."""


def index_of_image(image: Path, kind: str) -> tuple[Path, SourceIndex]:
    """Return the folder and the index that an image was fetched with. Raises DataError for another image."""
    for folder in (image.parent, image.parent.parent):
        index = read_index(folder)
        if index is not None and index.kind == kind:
            return folder, index
    name = "IIIF manifest" if kind == "iiif" else "METS file"
    hint = f"give the {name} itself as the input, or another {option('format', ...)}"
    raise DataError(f"is not a page of a {name}", code=f"{kind}-missing", where=image.name, hint=hint)
