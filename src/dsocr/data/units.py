"""What a sample is an image of: the lines that a source yields, put together into their regions or whole pages.

A unit with a line that is not transcribed would teach to skip lines, so it is left out whole.
"""

from collections.abc import Sequence
from dataclasses import replace

from dsocr.data.notes import Notes
from dsocr.data.sources import SourceFormat
from dsocr.data.sources.layout import Box, LeftOut, Outline, Reason, SourceImage, SourceLine, Unit, bounds
from dsocr.errors import DataError
from dsocr.text import is_blank

_STICKING_OUT = 0.1
"""Parts of its height that a line may be outside its region and be taken for being inside.

Of 1,316 lines of eScriptorium 18 are drawn more than 10 pixels outside theirs: cut off, their text would say more than
their image shows.
"""


def choose_unit(wanted: Unit | None, format_: SourceFormat) -> Unit:
    """What was asked for, else what the format transcribes; an error where that would have to be taken apart."""
    if wanted not in (None, format_.unit) and format_.unit != "line":
        message = f"{format_.title} are transcribed {format_.unit} by {format_.unit}, so a sample cannot be a {wanted}"
        raise DataError(message, hint=f"leave the unit out, or say {format_.unit}")
    return wanted or format_.unit


class Units:
    """Puts the lines of images together into samples of one unit."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._outlined = self._in_regions = False

    def of(self, image: SourceImage, notes: Notes) -> SourceImage:
        """The image with a line for each unit, the texts of its lines under each other.

        An image that comes whole stays as it is. A region is outlined by its own outline where that holds its lines,
        else by a box around them; a page is the whole image. A line that stands in no region is one by itself.
        """
        self._outlined = self._outlined or any(line.outline for line in image.lines)
        self._in_regions = self._in_regions or any(line.region for line in image.lines)
        return image if self._unit == "line" else _of_units(image, self._unit, notes)

    def demand_regions(self) -> None:
        """An error where regions were asked for and no line stood in one, told when all images have been seen."""
        if self._unit == "region" and self._outlined and not self._in_regions:
            hint = "make samples of whole pages, or of lines"
            raise DataError("no line of the source says which region it stands in", hint=hint)


def _of_units(image: SourceImage, unit: Unit, notes: Notes) -> SourceImage:
    if _comes_whole(image):
        return image
    groups = [(image.where, [*image.lines, *image.lost])] if unit == "page" else regions_of(image)
    found = [_joined(where, lines, unit, frozenset(image.lost)) for where, lines in groups]
    for item in found:
        if isinstance(item, LeftOut):
            notes.add(item)
    return replace(image, lines=tuple(item for item in found if isinstance(item, SourceLine)), lost=())


def _comes_whole(image: SourceImage) -> bool:
    return len(image.lines) == 1 and not image.lost and not (image.lines[0].outline or image.lines[0].region)


def regions_of(image: SourceImage) -> list[tuple[str, list[SourceLine]]]:
    """Where each region stands and its lines, in the order in which the regions begin."""
    groups: dict[str, list[SourceLine]] = {}
    for line in [*image.lines, *image.lost]:
        groups.setdefault(f"{image.where}#{line.region.id}" if line.region else line.where, []).append(line)
    return list(groups.items())


def _joined(where: str, lines: Sequence[SourceLine], unit: Unit, lost: frozenset[SourceLine]) -> SourceLine | LeftOut:
    if all(is_blank(line.text) for line in lines):
        return LeftOut(Reason.NO_TEXT, where, f"nothing on the {unit} is transcribed")
    for line in lines:
        if is_blank(line.text) or line in lost:
            why = "could not be read" if line in lost else "is not transcribed"
            return LeftOut(Reason.GAP, where, f"a line of the {unit} {why}: {line.where}")
    outline = None if unit == "page" else around(lines)
    if unit == "region" and outline is None:
        return LeftOut(Reason.NO_OUTLINE, where, "neither the region nor its lines have an outline")
    return SourceLine("\n".join(line.text for line in lines), where, outline, lines[0].region)


def around(lines: Sequence[SourceLine]) -> Outline | None:
    """The region's own outline where it holds its lines, else a box around them all."""
    boxes = [line.outline.box for line in lines if line.outline]
    region = lines[0].region
    if region and region.outline:
        if not any(_sticks_out(box, region.outline.box) for box in boxes):
            return region.outline
        boxes.append(region.outline.box)
    corners = [corner for left, top, right, bottom in boxes for corner in ((left, top), (right - 1, bottom - 1))]
    return Outline(bounds(corners)) if corners else None


def _sticks_out(line: Box, region: Box) -> bool:
    """True where more of a line is outside its region than tails and accents that a program outlined generously."""
    farthest = max(region[0] - line[0], region[1] - line[1], line[2] - region[2], line[3] - region[3])
    return farthest > _STICKING_OUT * (line[3] - line[1])
