"""Images with a text each, in files of their own or as databases are published: pairs, IAM, HKR and RIMES.

A pair is an image `x.png` with a text file `x.gt.txt`, `x.txt` or `x.png.txt`, beside it or in a sibling folder
(`words/x.txt`). Of the images of one line that OCRopus writes (`x.nrm.png`, `x.bin.png`), one is read.

IAM: `lines.txt` (in `ascii/` or not), line images, and `forms.txt` for the writers. Lines marked `err` are kept: the
mark is about word segmentation, not about the transcription. The text is the published one, with words and punctuation
separated; other copies of IAM join them, so their scores are not comparable. Lists of a published split in the folder
give the splits; there are several, whose scores are not comparable either.

HKR, the handwritten Kazakh and Russian database: `img/*.jpg`, and for each image `ann/*.json` with a `description`.
`HKR_splitting.csv`, published separately, gives the splits if it is in the folder: `test1` and `test2` are both the
test split. Its other splits share nearly all of their texts; `prepare` counts that.

RIMES as it was published for ICDAR 2011: `training_2011.xml` and `eval_2011_annotated.xml`, many pages to a file. The
evaluation is the test split; a validation split was never published, so papers take a part of the training split.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from lxml import etree

from dsocr.document import Item, Line, Note, Outline, Page, Region, Skipped, SkipReason, Split
from dsocr.errors import DataError
from dsocr.formats.format import (
    IMAGE_FOLDERS,
    LARGEST_COORDINATE,
    Columns,
    Format,
    SourceFile,
    compose_name,
    divide_variant,
    fold_name,
    outlined_page,
    read_files,
)
from dsocr.formats.xml import find_xml, integer_attribute, parse_xml, source_line
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import head, read_json, read_text
from dsocr.io.files import list_files, relative, split_of_folder, split_of_name

_SPLIT_FILES = {
    "the official task": ("trainset.txt", "validationset1.txt", "validationset2.txt", "testset.txt"),
    "Aachen (uttlist)": ("train.uttlist", "validation.uttlist", "test.uttlist"),
    "lists of lines (lst)": ("tr.lst", "va.lst", "te.lst"),
    "lists of lines (ln)": ("train.ln", "val.ln", "test.ln"),
}
_SPLITS = {"tr": Split.TRAIN, "va": Split.VALIDATION, "te": Split.TEST}
"""How the names of their files begin."""
_SPLIT_SUFFIXES = {PurePosixPath(name).suffix for names in _SPLIT_FILES.values() for name in names}
_ROW = re.compile(r"(?P<line>(?P<form>[\w]+-\w+)-\w+) (?:ok|err) \d+(?: -?\d+){5} (?P<text>.*)")
"""Name, status, grey level, number of components, box (left, top, width, height), words with `|` between them."""
_FIRST_ROW = re.compile(rb"(?m)^[\w]+-\w+-\w+ (?:ok|err) \d+(?: -?\d+){5} ")


def find_iam(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the `lines.txt` of a folder whose rows are IAM's."""
    return [path for path in _text_files(source, "lines.txt") if _FIRST_ROW.search(head(path))]


def _text_files(source: Path, name: str) -> list[Path]:
    return [path for path in list_files(source, {".txt"}) if path.name.lower() == name]


def read_iam(source: Path, columns: Columns | None = None) -> Iterator[Item]:
    """Read every row of `lines.txt` with its image; the page is its form."""
    description, splits = _read_splits(source)
    if description:
        yield Note(f"the splits are those of {description}")
    images: dict[str, list[Path]] = defaultdict(list)
    for path in list_files(source, IMAGE_SUFFIXES):
        images[path.stem].append(path)
    forms = (row.split() for path in _text_files(source, "forms.txt") for row in read_text(path).split("\n"))
    writers = {form[0]: form[1] for form in forms if len(form) >= 2 and not form[0].startswith("#")}
    for file in find_iam(source):
        for number, row in enumerate(read_text(file).split("\n"), start=1):
            if not row.strip() or row.startswith("#"):
                continue
            where = f"{relative(file, source)}:{number}"
            match = _ROW.fullmatch(row.rstrip("\r"))
            if match is None:
                yield Skipped(SkipReason.BAD_SOURCE, where, f"the row is not one of IAM's: {row[:60].rstrip()!r}")
                continue
            line, form = match["line"], match["form"]
            split = splits.get(line) or splits.get(form)
            if description and split is None:
                yield Skipped(SkipReason.NO_SPLIT, where, f"{line} is in none of {description}")
            elif len(paths := images.get(line, [])) != 1:
                yield Skipped(SkipReason.NO_IMAGE, where, f"{len(paths)} images are called {line!r}, not one")
            else:
                name = relative(paths[0].with_suffix(""), source)
                lines = (Line(match["text"].replace("|", " "), where),)
                yield Page(paths[0], name, where, lines, writer=writers.get(form), page=form, split=split)


def _read_splits(source: Path) -> tuple[str, dict[str, Split]]:
    """Return the published split with lists here and that of each line or form, or nothing; several are an error."""
    by_kind: dict[str, list[Path]] = defaultdict(list)
    for path in list_files(source, _SPLIT_SUFFIXES):
        for kind, names in _SPLIT_FILES.items():
            if path.name.lower() in names:
                by_kind[kind].append(path)
    if len(by_kind) > 1:
        kinds = "; ".join(f"{kind} ({', '.join(path.name for path in files)})" for kind, files in by_kind.items())
        message = f"the folder holds the lists of more than one split: {kinds}"
        raise DataError(message, code="splits-conflict", where=source, hint="leave one of them in the folder")
    splits: dict[str, Split] = {}
    for path in (path for files in by_kind.values() for path in files):
        split = _SPLITS[path.name.lower()[:2]]
        for row in read_text(path).splitlines():
            # Some lists have folders and a suffix.
            word = PurePosixPath((row.split() or [""])[0])
            name = word.stem if word.suffix.lower() in IMAGE_SUFFIXES else word.name
            if name and splits.setdefault(name, split) != split:
                message = f"{name} is in the {splits[name]} and in the {split} list"
                raise DataError(message, code="splits-conflict", where=path)
    described = (f"{kind}: {', '.join(relative(path, source) for path in files)}" for kind, files in by_kind.items())
    return next(described, ""), splits


_ANNOTATION = [re.compile(pattern) for pattern in (rb"\A\s*\{", rb'"name"\s*:', rb'"description"\s*:')]
_SUPERVISELY = re.compile(rb'"classTitle"\s*:')
"""A shape, which annotations of HKR, written by the same program, do not have."""


def find_hkr(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the annotations of a folder: JSON files in a folder `ann` that have a name and a description."""
    files = list_files(source, {".json"})
    heads = ((path, head(path)) for path in files if path.parent.name.lower() == "ann")
    return [
        path
        for path, start in heads
        if all(pattern.search(start) for pattern in _ANNOTATION) and not _SUPERVISELY.search(start)
    ]


def _read_annotation(file: SourceFile, stages: dict[str, str]) -> Iterator[Item]:
    data = read_json(file.path)
    name, text = (data.get(key) if isinstance(data, dict) else None for key in ("name", "description"))
    if not isinstance(name, str) or not isinstance(text, str):
        message = "its name and description are not texts"
        raise DataError(message, code="annotation-invalid", where=file.path)
    in_folder = split_of_folder(file.path.parent.relative_to(file.root))
    split = split_of_name(stages.get(name, "")) if stages else in_folder
    yield file.find_page(name, file.where, [Line(text, file.where)], folder="img", split=split)


def _read_stages(source: Path) -> dict[str, str]:
    """Return image name -> stage; empty if the folder has no table of stages."""
    for path in list_files(source, {".csv"}):
        if head(path).splitlines()[:1] == [b"id,stage"]:
            rows = (row.partition(",") for row in read_text(path).splitlines()[1:])
            return {name.strip(): stage.strip() for name, _, stage in rows}
    return {}


def find_rimes(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the files of a folder that contain RIMES' pages, or the one that was named."""
    files = find_xml(source.parent if source.is_file() else source, root_element="SinglePage")
    return [path for path in files if source in (path, *path.parents)]


def _read_rimes_file(file: SourceFile) -> Iterator[Item]:
    """Read every page with its lines; the paragraphs are the regions."""
    split = Split.TEST if "eval" in file.path.stem.lower() else split_of_name(file.path.stem)
    for element in list(parse_xml(file.path).iter("{*}SinglePage")):
        page = file.find_page(element.get("FileName") or "", f"{file.where}:{source_line(element)}", split=split)
        yield from outlined_page(page, _rimes_lines(element, file))


def _rimes_lines(page: etree._Element, file: SourceFile) -> Iterator[Line]:
    for number, paragraph in enumerate(page.iter("{*}Paragraph"), start=1):
        region = Region(str(number), _outline(paragraph))
        for line in paragraph.iter("{*}Line"):
            text = (line.get("Value") or "").strip()
            yield Line(text, f"{file.where}:{source_line(line)}", _outline(line), region)


def _outline(element: etree._Element) -> Outline | None:
    """Return the box; None if a side is missing or the box is empty."""
    sides = [integer_attribute(element, name) for name in ("Left", "Top", "Right", "Bottom")]
    known = [side for side in sides if side is not None and abs(side) <= LARGEST_COORDINATE]
    if len(known) < 4 or known[0] >= known[2] or known[1] >= known[3]:
        return None
    return Outline((known[0], known[1], known[2], known[3]))


_TEXT_ENDING = re.compile(r"(\.gt)?\.txt\Z", re.IGNORECASE)
_DOCUMENTATION = frozenset({"readme", "license", "licence", "license-cc-by-4.0", "copying", "notice", "changelog"})


def read_pairs(source: Path, columns: Columns | None = None) -> Iterator[Item]:
    """Read every image with its text; an image without a text, or a text without an image, is skipped."""
    counterparts = _pair_files(source)
    yield from (item for item in counterparts.values() if isinstance(item, Skipped))
    images = {text: image for image, text in counterparts.items() if isinstance(text, Path)}

    def read(file: SourceFile) -> Iterator[Item]:
        image, line = images[file.path], Line(read_text(file.path), file.where)
        split = split_of_folder(image.parent.relative_to(source))
        yield Page(image, relative(image.with_suffix(""), source), file.where, (line,), split=split)

    yield from read_files(source, images, read)


def find_pairs(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the images with a text, and the files whose counterpart is ambiguous, so that they are reported."""
    counterparts = _pair_files(source).items()
    return [path for path, item in counterparts if isinstance(item, Path) or item.reason is SkipReason.BAD_SOURCE]


def _pair_files(source: Path) -> dict[Path, Path | Skipped]:
    """Return image -> text file, and every other image or text with the reason why it is skipped.

    A text is beside its image, or in a folder beside, if nothing in either folder has its text or image beside it.
    """
    images, texts = list_files(source, IMAGE_SUFFIXES), list_files(source, {".txt"})
    counterparts: dict[Path, Path | Skipped] = {}
    named = [(path, path.relative_to(source).parent, fold_name(_line_name(path))) for path in [*images, *texts]]
    mixed: set[Path] = set()
    for is_beside in (True, False):
        groups: dict[tuple[Path, str], tuple[list[Path], list[Path]]] = defaultdict(lambda: ([], []))
        for path, folder, name in named:
            if path.parent not in mixed:
                groups[folder if is_beside else folder.parent, name][path.suffix.lower() == ".txt"].append(path)
        for same_images, same_texts in groups.values():
            if same_images and same_texts:
                counterparts |= _match(same_images, same_texts, source)
                mixed.add(same_images[0].parent)
    paired = set(counterparts.values())
    for path in (path for path in [*images, *texts] if path not in counterparts and path not in paired):
        where = relative(path, source)
        if path.suffix.lower() != ".txt":
            counterparts[path] = Skipped(SkipReason.NO_TRANSCRIPTION, where, "no text file has its name")
        elif path.stem.lower().endswith(".pred"):  # Calamari's
            message = "a prediction is no transcription"
            counterparts[path] = Skipped(SkipReason.OTHER_LAYER, where, message)
        elif _line_name(path).lower() not in _DOCUMENTATION:
            counterparts[path] = Skipped(SkipReason.NO_IMAGE, where, "no image has its name")
    return {path: counterparts[path] for path in [*images, *texts] if path in counterparts}


def _line_name(path: Path) -> str:
    """Return the name of a line without the endings of its image or text."""
    name = _TEXT_ENDING.sub("", path.name) if path.suffix.lower() == ".txt" else path.name
    stem, _, ending = name.rpartition(".")
    return divide_variant(stem if f".{ending.lower()}" in IMAGE_SUFFIXES else name)[0]


def _match(images: Sequence[Path], texts: Sequence[Path], source: Path) -> dict[Path, Path | Skipped]:
    """Return the text of each image that has one, of those whose names are alike, and the ones in doubt."""
    if len(images) == len(texts) == 1:
        return {images[0]: texts[0]}
    items: dict[Path, Path | Skipped] = {}
    taken: dict[Path, list[Path]] = defaultdict(list)
    for text in texts:
        ranks = {image: (image.parent.name.lower() not in IMAGE_FOLDERS, _difference(image, text)) for image in images}
        alike = [image for image in images if ranks[image] == min(ranks.values())]
        if len({(image.parent, compose_name(_line_name(image))) for image in alike}) > 1:
            names = " and ".join(relative(image, source) for image in alike)
            message = f"more than one image could be that of the text: {names}"
            items[text] = Skipped(SkipReason.BAD_SOURCE, relative(text, source), message)
        else:
            taken[min(alike, key=lambda image: divide_variant(image.stem)[1])].append(text)
    for image, candidates in taken.items():
        is_other = {text: (".gt." not in text.name.lower(), _difference(image, text)) for text in candidates}
        best = [text for text in candidates if is_other[text] == min(is_other.values())]
        where, names = relative(image, source), " and ".join(relative(text, source) for text in best)
        message = f"the text of {where} is {names}"
        items[image] = best[0]
        if len(best) > 1:
            message = f"more than one text could be that of {where}: {names}"
            items[image] = Skipped(SkipReason.BAD_SOURCE, where, message)
        for text in candidates:
            if items[image] != text:
                items[text] = Skipped(SkipReason.OTHER_LAYER, relative(text, source), message)
    for image in images:
        same = (other for other in taken if other.with_name(_line_name(other)) == image.with_name(_line_name(image)))
        if image not in taken and (other := next(same, None)):
            message = f"{relative(other, source)} shows the same line"
            items[image] = Skipped(SkipReason.OTHER_IMAGE, relative(image, source), message)
    return items


def _difference(image: Path, text: Path) -> int:
    """Rank how a text is named: as its image, but for the endings of both, or but for case and composed letters."""
    if _TEXT_ENDING.sub("", text.name) in {image.name, image.stem}:
        return 0
    return 1 if compose_name(_line_name(text)) == compose_name(_line_name(image)) else 2


FORMATS = (
    Format(
        name="hkr",
        title="HKR annotations",
        find=find_hkr,
        read=lambda source, _: read_files(
            source, find_hkr(source), partial(_read_annotation, stages=_read_stages(source))
        ),
        example="HKR_Dataset -o data/mine --split-by text",
    ),
    Format(
        name="pairs",
        title="images with a text file",
        find=find_pairs,
        read=read_pairs,
        example="lines -o data/mine --page '(.+)_'",
    ),
    Format(name="iam", title="IAM lists of lines", find=find_iam, read=read_iam, example="iam -o data/mine"),
    Format(
        name="rimes",
        title="RIMES pages",
        find=find_rimes,
        read=lambda source, _: read_files(source, find_rimes(source), _read_rimes_file),
        example="rimes -o data/mine",
    ),
)
