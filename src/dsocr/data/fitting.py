"""What of a source fits into a target format: lines it can hold, names it can write, and what has no place in it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dsocr.data.notes import Notes
from dsocr.data.sources.layout import Item, LeftOut, Outline, Reason, SourceImage, SourceLine
from dsocr.data.sources.outlines import ROLES as OUTLINE_ROLES
from dsocr.data.sources.tables import USUAL_NAMES, roles_of
from dsocr.data.targets import TargetFormat
from dsocr.data.writers import Names
from dsocr.text import is_blank


@dataclass(frozen=True, slots=True)
class Fitting:
    """A source's images as a target can hold them; `read` begins anew each time."""

    read: Callable[[], Iterator[Item]]
    names: Names
    target: TargetFormat

    def images(self, notes: Notes) -> Iterator[SourceImage]:
        """The images that have lines; all else is noted."""
        for item in notes.sifted(self.read()):
            image = self._fitted(self.names.named(item, notes), notes)
            if image.lines:
                yield image

    def _fitted(self, image: SourceImage, notes: Notes) -> SourceImage:
        if not image.lines:
            notes.add(LeftOut(Reason.NO_TRANSCRIPTION, _told(image.where), "no line stands on the image"))
        lines = []
        for line in image.lines:
            stripped = replace(line, text=line.text.strip(), where=_told(line.where))
            fitted = self._line(stripped)
            if isinstance(fitted, LeftOut):
                notes.add(fitted)
            else:
                lines.append(fitted)
        return replace(
            image,
            lines=tuple(lines),
            where=_told(image.where),
            writer=image.writer and _told(image.writer),
            page=image.page and _told(image.page),
            document=image.document and _told(image.document),
            columns={_told(name): _told(value) for name, value in image.columns.items()},
        )

    def _line(self, line: SourceLine) -> SourceLine | LeftOut:
        """The line, without a text where it only has its place on a page."""
        if line.outline and self.target.whole and not _has_area(line.outline):
            return LeftOut(Reason.TOO_SMALL, line.where, "the line's box holds no pixel")
        if is_blank(line.text):
            if line.outline and self.target.whole:
                return replace(line, text="")
            return LeftOut(Reason.NO_TEXT, line.where, "the transcription is empty")
        if found := self.target.forbidden.search(line.text):
            message = f"the transcription holds {found[0]!a}, which {self.target.name} has no place for"
            return LeftOut(Reason.UNWRITABLE, line.where, message)
        return line


def _has_area(outline: Outline) -> bool:
    left, top, right, bottom = outline.box
    return left < right and top < bottom


def _told(name: str) -> str:
    """A name as it can be written, half characters escaped."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(slots=True)
class Survey:
    """What there is to be written: counts, the columns that say something, and which names are used once."""

    asked: Mapping[str, str]
    images: int = 0
    outlines: int = 0
    regions: int = 0
    writers: int = 0
    documents: int = 0
    other_pages: int = 0
    columns: dict[str, None] = field(default_factory=dict)
    _seen: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, images: Iterable[SourceImage], asked: Mapping[str, str]) -> "Survey":
        """The survey of these images; `asked` are the columns that were given by name."""
        survey = cls(asked)
        for image in images:
            survey._add(image)
        return survey

    def _add(self, image: SourceImage) -> None:
        self.images += 1
        self.outlines += sum(line.outline is not None for line in image.lines)
        self.regions += sum(line.region is not None for line in image.lines)
        self.writers += image.writer is not None
        self.documents += image.document is not None
        self.other_pages += image.page is not None and image.page.rpartition("/")[2] != _own_name(image)
        self.columns.update(dict.fromkeys(name for name, value in image.columns.items() if value))
        self._seen[_own_name(image).casefold()] += 1

    def short_name(self, image: SourceImage) -> str:
        """The image's own name where no other has it, else with its folders."""
        own = _own_name(image)
        return own if self._seen[own.casefold()] == 1 else image.name

    def columns_for(self, target: TargetFormat) -> tuple[list[str], list[str]]:
        """The source's own columns, those that were not read for what they say: which the target takes, which not.

        A column that has the name of a role would be taken for it when the target is read again.
        """
        unread = set() if self.outlines else set(OUTLINE_ROLES)
        read = {column for role, column in roles_of(list(self.columns), self.asked).items() if role not in unread}
        reserved = {*(target.columns or ()), *(name for names in USUAL_NAMES.values() for name in names)}
        others = [name for name in self.columns if name not in read]
        carried = [name for name in others if target.columns is not None and name not in reserved]
        return carried, [name for name in others if name not in carried and name not in target.origin]

    def left_behind(self, target: TargetFormat, columns: Sequence[str]) -> list[str]:
        """What the target has no place for, in sentences."""
        told = []
        if self.outlines and not target.whole:
            told.append(f"{self.outlines} lines were cut out of their pages; the pages are not in this format")
            if target.columns is None:
                told.append("polygons and baselines are not in this format")
        if self.regions and not target.regions:
            told.append(f"regions are not in this format: {self.regions} lines stood in one")
        if not target.names:
            told += self._names_left_behind()
        if columns:
            told.append(f"columns that have no place here: {', '.join(columns)}")
        return told

    def _names_left_behind(self) -> list[str]:
        """What is lost where a file's name is the page's, and nothing tells writers and documents."""
        sentences = {
            "writers are not in this format: {} images had one": self.writers,
            "documents are not in this format: {} images had one": self.documents,
            "pages are named by their images here: {} images had another page": self.other_pages,
        }
        return [sentence.format(count) for sentence, count in sentences.items() if count]


def _own_name(image: SourceImage) -> str:
    return image.name.rpartition("/")[2]
