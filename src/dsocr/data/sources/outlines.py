"""Where lines stand on an image that a table names: the columns `bbox`, `polygon` and `baseline`.

Points are `x,y x,y ...` in pixels, `bbox` is `left,top right,bottom`. Tables of others have columns of these names in
other notations and with other meanings; such a column is not read unless it is asked for by name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dsocr.data.sources.layout import Box, LeftOut, Outline, SourceImage, points
from dsocr.errors import DataError

ROLES = ("bbox", "polygon", "baseline")

_POINT = r"-?\d{1,7},-?\d{1,7}"
_NOTATIONS = {
    "bbox": re.compile(rf"{_POINT} {_POINT}"),
    "polygon": re.compile(rf"{_POINT}(?: {_POINT})*"),
    "baseline": re.compile(rf"{_POINT}(?: {_POINT})*"),
}


def readable_roles(
    path: Path, roles: Mapping[str, str], cells: Sequence[Mapping[str, str]], asked: Iterable[str]
) -> dict[str, str]:
    """The roles without outlines that are somebody's own: in another notation, or those of an imagefolder.

    Each image of an imagefolder, described by its `metadata`, is a sample: its outline is where on a page it was cut.
    """
    kept = {role: column for role, column in roles.items() if role not in ROLES or role in asked}
    if path.stem.lower() == "metadata":
        return kept
    for role in ROLES:
        held = {row.get(roles[role], "").strip() for row in cells} - {""} if role in roles else set()
        if held and all(_NOTATIONS[role].fullmatch(cell) for cell in held):
            kept[role] = roles[role]
    return kept


def outline_of(known: Mapping[str, str]) -> Outline | None:
    """The outline that a row's cells, by role, tell of; None for none, and a DataError for one in another notation."""
    cells = {role: known[role] for role in ROLES if known.get(role)}
    for role, cell in cells.items():
        if not _NOTATIONS[role].fullmatch(cell):
            raise DataError(f"the {role} {cell[:60]!r} is not written `x,y x,y`")
    polygon, baseline = points(cells.get("polygon")), points(cells.get("baseline"))
    if box := read_box(cells.get("bbox", "")):
        return Outline(box, polygon if len(polygon) >= 3 else (), baseline)
    return Outline.of_polygon(polygon, baseline) if polygon else None


def read_box(cell: str) -> Box | None:
    """The box that a cell tells of; None for one that is empty or in another notation."""
    if not _NOTATIONS["bbox"].fullmatch(cell):
        return None
    (left, top), (right, bottom) = points(cell)
    return left, top, right, bottom


def joined(items: Iterable[SourceImage | LeftOut], line_columns: Iterable[str]) -> list[SourceImage | LeftOut]:
    """Rows with an outline on the same image, the same in all but `line_columns`, made one image with their lines."""
    own = set(line_columns)
    found: list[SourceImage | LeftOut] = []
    places: dict[object, int] = {}
    for item in items:
        if isinstance(item, LeftOut) or item.lines[0].outline is None:
            found.append(item)
            continue
        shared = tuple((name, cell) for name, cell in item.columns.items() if name not in own)
        place = places.setdefault((item.image, shared), len(found))
        if place == len(found):
            found.append(item)
        else:
            first = found[place]
            assert isinstance(first, SourceImage)
            found[place] = replace(first, lines=(*first.lines, *item.lines))
    return found
