"""Fetch the pages of a IIIF manifest, a IIIF collection or a METS file into a folder that is a source like any other.

The folder has the images, a PAGE file for each image whose lines are annotated, ALTO and PAGE files as they came, and
an index. It stays in the user's cache, so that the next command has it already, and an interrupted one resumes: a file
has its name only when it is whole.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dsocr.document import Page, SkipReason
from dsocr.errors import DataError, group_messages
from dsocr.formats import parse_xml_page
from dsocr.formats.format import ImageFinder, usual_suffix
from dsocr.formats.iiif import (
    collection_members,
    id_of,
    image_address,
    is_collection,
    is_iiif,
    join,
    parse_manifest,
    parse_service,
    read_lines,
)
from dsocr.formats.manifest import (
    INDEX,
    ORIGINAL,
    Manifest,
    ManifestPage,
    SourceIndex,
    plain,
    read_index,
)
from dsocr.formats.mets import parse_mets
from dsocr.formats.page import page_document
from dsocr.formats.xml import escape_text, read_xml, serialize
from dsocr.formats.xml_tree import XmlTree
from dsocr.images import IMAGE_SUFFIXES, MAX_PAGE_PIXELS, decode_image, read_bytes, upright_size
from dsocr.io.budget import Budget
from dsocr.io.encodings import head, parse_json
from dsocr.io.files import cache_path, current_time, inside, safe_stem
from dsocr.io.processes import ProgressCallback
from dsocr.io.web import DEFAULT_FETCH, FetchOptions, WebClient, WebError
from dsocr.io.work import explain_disk_errors, hash_file, write_file

Parsed = TypeVar("Parsed")

_ADDRESS = re.compile(r"(https?):/+(.+)")
_METS = re.compile(rb"<(?:[\w.-]+:)?mets[\s>]")
_IIIF = re.compile(rb"iiif\.io/api/presentation|shared-canvas\.org")
_MAX_DOCUMENT = 64 * 1024 * 1024
_MAX_IMAGE = 512 * 1024 * 1024
_MAX_COLLECTIONS = 500
_MAX_ANNOTATION_PAGES = 100
_CONTENT_KEYS = ("items", "sequences", "manifests", "collections", "members", "first")
"""Keys of a manifest or collection that is there whole, not only its address."""
_SHOWN_REASONS = 3
_READING = 2
"""Changes when annotations are read otherwise, so that sources fetched before are fetched again."""
_JSON = "application/ld+json, application/json;q=0.9, */*;q=0.1"
_NOT_SUPPORTED = frozenset({400, 404, 405, 406, 410, 414, 415, 422, 501})
"""Answers of image services to a size that they do not offer."""
_TOLERANCE = 2
"""Pixels by which servers may round sides differently."""


def web_address(source: Path) -> str | None:
    """Return the address that a path was made of, which has lost a slash; None for any other path."""
    match = _ADDRESS.fullmatch(source.as_posix())
    return f"{match[1]}://{match[2]}" if match else None


def is_manifest(source: Path) -> bool:
    """Whether a source is an address, or a file with a IIIF manifest or collection or METS."""
    if web_address(source):
        return True
    suffix = source.suffix.lower()
    pattern = {".json": _IIIF, ".jsonld": _IIIF, ".xml": _METS, ".mets": _METS}.get(suffix)
    return pattern is not None and source.is_file() and pattern.search(head(source)) is not None


def fetch_source(
    source: Path, folder: Path, options: FetchOptions = DEFAULT_FETCH, progress: ProgressCallback | None = None
) -> tuple[Path, SourceIndex]:
    """Fetch all pages of a manifest; files fetched before are reused unless damaged, and failures tried again.

    Returns the folder, which is `folder` for a METS file whose files are all local. Raises DataError if the manifest
    itself cannot be fetched or read.
    """
    address = web_address(source)
    raw = None if address else Budget(size=_MAX_DOCUMENT).read(source)
    name = address or hashlib.sha256(raw or b"").hexdigest()
    key = f"{_READING} {name}\n{options.size}\n{options.group}\n{options.texts}"
    root = cache_path("sources") / hashlib.sha256(key.encode()).hexdigest()[:20]
    if raw is not None and _METS.search(raw[:65536]):
        pages = parse_mets(raw, str(source)).pages
        if not any("://" in place for page in pages for place in (page.image, *page.texts)):
            root = folder  # the files beside it may change
    if options.fresh:
        shutil.rmtree(root, ignore_errors=True)
    if (known := read_index(root)) is not None:
        paths = {inside(root, name): digest for name, digest in known.files.items()}
        damaged = [path for path, digest in paths.items() if not (path.is_file() and hash_file(path) == digest)]
        for path in damaged:
            path.unlink(missing_ok=True)
        if not damaged and not known.skipped:
            return root, known
    with explain_disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        fetcher = _Fetcher(root, WebClient(options), options, None if address else source.resolve().parent)
        where = address or source.resolve().as_uri()

        def parse(content: bytes) -> tuple[bytes, Any]:
            if _METS.search(content[:65536]):
                mets = parse_mets(content, where, base=address or "", images=options.group, texts=options.texts)
                return content, mets
            return content, _parse_manifest(content, where)

        content, parsed = fetcher.document(address, parse) if address else parse(raw or b"")
        is_mets = isinstance(parsed, Manifest)
        if is_mets:
            manifests = [parsed]
            _write_whole(root / ORIGINAL, content)
        else:
            manifests = list(fetcher.manifests(parsed, where, progress))
        fetched = fetcher.fetch(manifests, progress)
        if fetcher.skipped and not any(manifest.pages for manifest in fetched):
            reasons = group_messages((page, reason) for _, page, reason in fetcher.skipped)
            listed = "\n  ".join(reasons[:_SHOWN_REASONS])
            message = f"no page could be fetched:\n  {listed}"
            raise DataError(message, code="nothing-fetched", where=where, hint="run the same command again to resume")
        below = [] if root == folder else sorted(root.rglob("*"))
        files = [path for path in below if path.is_file() and path != root / INDEX]
        index = SourceIndex(
            address or source.name,
            "mets" if is_mets else "iiif",
            current_time().isoformat(timespec="seconds"),
            tuple(fetched),
            tuple(fetcher.skipped),
            tuple(fetcher.notes),
            {path.relative_to(root).as_posix(): hash_file(path) for path in files},
        )
        _write_whole(root / INDEX, index.to_json().encode())
    return root, index


def _parse_json(content: bytes) -> Any:
    return parse_json(content.decode("utf-8-sig", "replace"), "the answer of the server")


def _parse_manifest(content: bytes, where: str) -> Any:
    with suppress(ValueError, RecursionError):
        if is_iiif(document := json.loads(content)):
            return document
    message, hint = "is no IIIF manifest, IIIF collection or METS file", "look for the manifest's own address"
    raise DataError(message, code="not-a-manifest", where=where, hint=hint)


def _write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, content)


@dataclass(slots=True)
class _Fetcher:
    """Fetches into `root`; `local` is the folder of a manifest that is a file."""

    root: Path
    client: WebClient
    options: FetchOptions
    local: Path | None
    skipped: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def document(self, address: str, parse: Callable[[bytes], Parsed]) -> Parsed:
        """Return a parsed document, which stays in the folder for a run that resumes; not if `parse` raises."""
        path = self.root / ".documents" / hashlib.sha256(address.encode()).hexdigest()[:20]
        if path.is_file():
            return parse(path.read_bytes())
        try:
            content, _ = self.client.get(address, limit=_MAX_DOCUMENT, accept=_JSON)
        except WebError as error:
            hint = "check the address in a browser, and the network; run the same command again to resume"
            raise DataError(str(error), code="web-unreachable", where=address, hint=hint) from error
        parsed = parse(content)
        _write_whole(path, content)
        return parsed

    def skip(self, where: str, message: str) -> None:
        self.skipped.append((SkipReason.NOT_FETCHED.value, where, message))

    def manifests(self, document: Any, address: str, progress: ProgressCallback | None) -> Iterator[Manifest]:
        """Yield the manifests of a collection in its order, each once, or the one that a manifest is.

        Ends when there are as many pages as may be fetched; a collection may hold itself under ever new names.
        """
        waiting, seen, collections, pages = [(document, address)], {id_of(document), address}, 0, 0
        while waiting:
            if pages >= self.options.pages or collections > _MAX_COLLECTIONS:
                limit = f"{pages} pages" if pages >= self.options.pages else f"{_MAX_COLLECTIONS} collections in it"
                self.skip(address, f"{len(waiting)} of its entries are beyond the limit of {limit}")
                return
            item, base = waiting.pop(0)
            is_whole = isinstance(item, dict) and any(item.get(key) for key in _CONTENT_KEYS)
            if item is not document and not is_whole:
                target = join(base, id_of(item))
                try:
                    item, base = self.document(target, partial(_parse_manifest, where=target)), target
                except DataError as error:
                    self.skip(target, error.message)
                    continue
            if is_collection(item):
                members = [member for member in collection_members(item) if id_of(member) not in seen]
                seen |= {id_of(member) for member in members}
                waiting = [(member, base) for member in members] + waiting
                collections += 1
            else:
                manifest = parse_manifest(item, base)
                pages += len(manifest.pages)
                yield manifest
            if progress:
                progress(0, pages)

    def fetch(self, manifests: list[Manifest], progress: ProgressCallback | None) -> list[Manifest]:
        """Fetch the pages of all manifests, as many as the limit allows."""
        total, done, fetched = sum(len(manifest.pages) for manifest in manifests), 0, []
        limit = self.options.pages
        if total > limit:
            message = f"{total - limit} of {total} pages are beyond the limit; pages={total} allows them"
            self.skip(manifests[0].id, message)
        for number, manifest in enumerate(manifests, start=1):
            name = f"{number:04d}_{safe_stem(plain(manifest.label))[:40]}"
            folder = self.root / name.rstrip("_") if len(manifests) > 1 else self.root
            pages = []
            for place, page in enumerate(manifest.pages[: max(limit - done, 0)], start=1):
                done += 1
                stem = f"{place:04d}_{safe_stem(plain(page.label))[:40]}".rstrip("_")
                where = plain(page.label) or page.id
                try:
                    pages.append(self._fetch_page(page, folder, stem, where))
                except (WebError, DataError) as error:
                    self.skip(page.id, str(error))
                if progress:
                    progress(done, min(total, limit))
            fetched.append(replace(manifest, pages=tuple(pages)))
        return fetched

    def _fetch_page(self, page: ManifestPage, folder: Path, stem: str, where: str) -> ManifestPage:
        if page.problem:
            raise WebError(page.problem)
        if page.note:
            self.notes.append(f"{where}: {page.note}")
        known = [path for path in folder.glob(f"{stem}.*") if path.suffix.lower() in IMAGE_SUFFIXES]
        if known:
            path = known[0]
            size = upright_size(path)
        else:
            content, expected = self._image_content(page)
            decoded = decode_image(content, name=stem, max_pixels=MAX_PAGE_PIXELS)
            size = decoded.image.size
            if expected and any(abs(a - b) > _TOLERANCE for a, b in zip(size, expected, strict=True)):
                sizes = [f"{width} x {height} pixels" for width, height in (size, expected)]
                raise WebError(f"the server sent {sizes[0]} instead of {sizes[1]}")
            path = folder / (stem + usual_suffix(decoded.format))
            _write_whole(path, content)
        file = path.relative_to(self.root).as_posix()
        if not (folder / f"{stem}.xml").is_file():
            try:
                self._fetch_lines(page, path, size, where)
            except (WebError, DataError) as error:
                self.skip(page.id, f"its text: {error}")
        return replace(page, annotations=(), file=file, file_size=size)

    def _image_content(self, page: ManifestPage) -> tuple[bytes, tuple[int, int] | None]:
        """Return an image file and the size that it should have, asked for as the server understands it."""
        if self.local is not None and "://" not in page.image and page.service is None:
            return read_bytes(ImageFinder(self.local).find(page.image, near=self.local)), None
        service = page.service
        if service is None:
            if page.region != "full" or page.rotation != "0":
                raise WebError("a part or a rotation of an image can be had from an image service only")
            return self._image(page.image), None
        is_known = service.level >= 1 and page.image_size is not None
        for with_info in [False, True] if is_known else [True]:
            try:
                if with_info:
                    info = self.document(f"{service.id}/info.json", _parse_json)
                    described = parse_service(info, service.id)
                    stated = info.get("width"), info.get("height")
                    size = stated if all(isinstance(side, int) and side > 0 for side in stated) else page.image_size
                    page = replace(page, image_size=size)
                    service = replace(described, level=described.level if described.level >= 0 else service.level)
                address, expected = image_address(page, service, self.options.size)
                return self._image(address), expected
            except (DataError, ValueError, AttributeError, WebError) as error:
                if isinstance(error, WebError) and error.status not in _NOT_SUPPORTED:
                    raise
                refusal = error
        # Some services are only announced, or have only sizes that they do not list.
        if not page.image or page.region != "full" or page.rotation != "0":
            raise WebError(str(refusal)) from refusal
        return self._image(page.image), None

    def _image(self, address: str) -> bytes:
        accept = "image/jpeg, image/*;q=0.9, */*;q=0.1"
        content, kind = self.client.get(address, limit=_MAX_IMAGE, accept=accept)
        if not kind.startswith("image/") and kind not in {"application/octet-stream", "text/plain"}:
            raise WebError(f"the server sent {kind} instead of an image")
        return content

    def _fetch_lines(self, page: ManifestPage, image: Path, size: tuple[int, int], where: str) -> None:
        """Write the lines of a page's annotations, else of its first ALTO or PAGE file, beside its image."""
        target = image.with_suffix(".xml")
        lines, omitted = read_lines(self._annotation_pages(page), page, size)
        self.notes += [f"{where}: {message}" for message in omitted]
        if len(page.texts) > (0 if lines else 1):
            self.notes.append(f"{where}: of its texts, only {'annotations are' if lines else 'the first file is'} read")
        if lines:
            document, _ = page_document(Page(image, image.stem, where, tuple(lines), size))
            _write_whole(target, serialize(document))
            return
        for address in page.texts[:1]:
            if self.local is not None and "://" not in address:
                path = inside(self.local, address)
                if not path.is_file():
                    raise DataError(f"no file {address!r}", code="input-missing")
                content = read_xml(path)
            else:
                content, _ = self.client.get(address, limit=_MAX_DOCUMENT, accept="application/xml, text/xml")
            _write_whole(target, name_image(content, image.name))
            try:
                parse_xml_page(target)
            except DataError:
                target.unlink()
                raise

    def _annotation_pages(self, page: ManifestPage) -> Iterator[dict[str, Any]]:
        waiting, seen = list(page.annotations), set[str]()
        while waiting:
            node = waiting.pop(0)
            address = id_of(node)
            if not isinstance(node, dict) or not (node.get("items") or node.get("resources")):
                if not address or address in seen or len(seen) >= _MAX_ANNOTATION_PAGES:
                    continue
                seen.add(address)
                node = self.document(address, _parse_json)
            if isinstance(node, dict):
                yield node
                if following := id_of(node.get("next")):
                    waiting.append(join(address, following))


def name_image(content: bytes, name: str) -> bytes:
    """Return an ALTO or PAGE file that names another image; the rest stays as it is."""
    tree = XmlTree(content)
    for element in [*tree.iter("fileName")][:1]:
        if element.end:
            element.content = [escape_text(name)]
    for element in tree.iter("Page"):
        element.set({"imageFilename": name}, add=False)
    return tree.content()
