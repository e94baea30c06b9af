"""Combine the lines of a page into samples of whole regions or pages."""

from collections.abc import Sequence
from dataclasses import replace

from dsocr.data.source_report import SourceReport
from dsocr.document import Box, Line, Outline, Page, Skipped, SkipReason, Unit, bounds
from dsocr.errors import DataError
from dsocr.formats.format import Format
from dsocr.text import is_blank

_OVERHANG = 0.1
"""Fraction of its height by which a line may extend beyond its region and still count as inside.

Of 1,316 lines of eScriptorium, 18 extend more than 10 pixels beyond their region; cropping them by the region would
leave text without image.
"""


def choose_unit(wanted: Unit | None, format_: Format) -> Unit:
    """The unit asked for, else that of the format. Raises DataError if the format's own unit would have to be split."""
    if wanted not in (None, format_.unit) and format_.unit != "line":
        message = f"{format_.title} are transcribed {format_.unit} by {format_.unit}, so a sample cannot be a {wanted}"
        raise DataError(message, code="unit-unsupported", hint=f"leave out the unit, or use {format_.unit}")
    return wanted or format_.unit


class UnitGrouper:
    """Combines the lines of each page into samples of one unit, and remembers whether regions were found."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._has_outlines = self._has_regions = False

    def apply(self, page: Page, report: SourceReport) -> Page:
        """The page with a line for each unit, whose text is that of its lines joined by line breaks.

        A page that is a single whole image stays as it is. A region has its own outline if that contains its lines,
        else a box around them; a page is the whole image. A line outside of regions is a region by itself.
        """
        self._has_outlines = self._has_outlines or any(line.outline for line in page.lines)
        self._has_regions = self._has_regions or any(line.region for line in page.lines)
        if self._unit == "line" or _is_whole_image(page):
            return page
        groups = [(page.where, [*page.lines, *page.skipped])] if self._unit == "page" else group_by_region(page)
        joined = [self._join(where, lines, page.skipped) for where, lines in groups]
        for item in joined:
            if isinstance(item, Skipped):
                report.skip(item)
        return replace(page, lines=tuple(item for item in joined if isinstance(item, Line)), skipped=())

    def require_regions(self) -> None:
        """Raise DataError if regions were asked for and no line was in one; call it after all pages."""
        if self._unit == "region" and self._has_outlines and not self._has_regions:
            message, hint = "the source has no regions", "make samples of whole pages or of lines"
            raise DataError(message, code="no-regions", hint=hint)

    def _join(self, where: str, lines: Sequence[Line], lost: Sequence[Line]) -> Line | Skipped:
        unit = self._unit
        if all(is_blank(line.text) for line in lines):
            return Skipped(SkipReason.NO_TEXT, where, f"nothing on the {unit} is transcribed")
        for line in lines:
            if is_blank(line.text) or line in lost:
                why = "could not be read" if line in lost else "is not transcribed"
                return Skipped(SkipReason.GAP, where, f"a line of the {unit} {why}: {line.where}")
        outline = None if unit == "page" else enclosing_outline(lines)
        if unit == "region" and outline is None:
            return Skipped(SkipReason.NO_OUTLINE, where, "neither the region nor its lines have an outline")
        text, struck = "", []
        for line in lines:
            text += "\n" if text else ""
            struck += [(len(text) + start, len(text) + end) for start, end in line.struck]
            text += line.text
        return Line(text, where, outline, lines[0].region, struck=tuple(struck))


def _is_whole_image(page: Page) -> bool:
    return len(page.lines) == 1 and not page.skipped and not (page.lines[0].outline or page.lines[0].region)


def group_by_region(page: Page) -> list[tuple[str, list[Line]]]:
    """The place and the lines of each region, in the order of their first lines."""
    groups: dict[str, list[Line]] = {}
    for line in [*page.lines, *page.skipped]:
        groups.setdefault(f"{page.where}#{line.region.id}" if line.region else line.where, []).append(line)
    return list(groups.items())


def enclosing_outline(lines: Sequence[Line]) -> Outline | None:
    """The outline of the lines' region if it contains them, else a box around all of them."""
    boxes = [line.outline.box for line in lines if line.outline]
    region = lines[0].region
    if region and region.outline:
        if not any(_extends_beyond(box, region.outline.box) for box in boxes):
            return region.outline
        boxes.append(region.outline.box)
    corners = [corner for left, top, right, bottom in boxes for corner in ((left, top), (right - 1, bottom - 1))]
    return Outline(bounds(corners)) if corners else None


def _extends_beyond(line: Box, region: Box) -> bool:
    """True if more of a line is outside its region than the descenders and accents of a generous outline."""
    farthest = max(region[0] - line[0], region[1] - line[1], line[2] - region[2], line[3] - region[3])
    return farthest > _OVERHANG * (line[3] - line[1])
