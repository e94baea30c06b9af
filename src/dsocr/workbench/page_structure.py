"""Write the changed lines, regions and tables of a page into its ALTO or PAGE file.

Every element that nobody changed keeps its bytes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from lxml import etree

from dsocr.document import CellPlace, Outline, Table, bounds_of_boxes, format_points
from dsocr.formats.page import REGION_TYPES, parse_page
from dsocr.formats.table_regions import HEADING, TABLE_ID
from dsocr.formats.xml import (
    UNGROUPED_BLOCK,
    ElementSpan,
    XmlEditor,
    custom_kind,
    escape_attribute,
    only_page,
    parse_xml_bytes,
)
from dsocr.workbench.file_regions import CONTAINERS
from dsocr.workbench.stored_lines import StoredLine, StoredPage, StoredRegion, tables_of

_CELL_PARTS = ("Roles", "TableCellRole", "CornerPts")
_LINE, _REGION, _TABLE = "dsocr-line", "dsocr-region", "dsocr-table"
"""Attributes that say, while a file is being edited, which stored line, region or changed table an element is."""
_REMOVED = "removed"
_LOOSE = 0
"""The region of lines that are in none."""
_RANK = re.compile(r"\s*readingOrder\s*\{[^}]*\}")
_TAG = re.compile(r"""<[^\s>]+(?:[^>"']|"[^"]*"|'[^']*')*>""")


@dataclass(frozen=True, slots=True)
class PageStructure:
    """A page as it is to be in its file: lines in reading order and regions, in pixels of the image.

    `line_outlines` and `file_regions` are the file's by element, `scale` leads from the image's pixels to
    the file's.
    """

    page: StoredPage
    lines: Sequence[StoredLine]
    regions: Mapping[int, StoredRegion]
    line_outlines: Mapping[int, Outline]
    file_regions: Mapping[int, StoredRegion]
    scale: tuple[float, float]

    def write(self, raw: bytes) -> tuple[bytes, dict[int, int]]:
        """The file with this structure, and the place of each line in it by the line's number."""
        raw = self._change_in_place(raw)
        raw = self._place_lines(raw)
        raw = _remove_regions(raw)
        raw = self._order_alto(raw) if _is_alto(raw) else self._order_page(self._order_cells(raw))
        file = XmlEditor(raw, {"TextLine", "TableRegion", *CONTAINERS})
        places = {}
        for place, line in enumerate(file.elements("TextLine")):
            if number := _mark(file, line, _LINE):
                places[int(number)] = place
                file.set_attributes(line, {_LINE: None})
        for region in file.elements(*CONTAINERS, "TableRegion"):
            file.set_attributes(region, {_REGION: None, _TABLE: None})
        return file.result(), places

    def _change_in_place(self, raw: bytes) -> bytes:
        """Mark every stored line and region, and give changed ones their outlines and types."""
        raw, tags = self._add_tags(raw)
        file = XmlEditor(raw, {"TextLine", "Shape", "Polygon", "TableRegion", *_CELL_PARTS, *CONTAINERS})
        elements, containers = file.elements("TextLine"), file.elements(*CONTAINERS)
        for line in self.lines:
            if line.elements:
                element = elements[line.elements[0]]
                _add_attribute(file, element, _LINE, line.number)
                if line.outline != self.line_outlines[line.elements[0]]:
                    _reshape(file, element, line.outline.scaled(*self.scale))
        for container in containers:
            if file.attributes(container).get("ID", "")[1:-1] == UNGROUPED_BLOCK:
                _add_attribute(file, container, _REGION, _LOOSE)
        kept = {region.element: region for region in self.regions.values()}
        for place in self.page.regions:
            region = kept.get(place)
            _add_attribute(file, containers[place], _REGION, region.number if region else _REMOVED)
            if region and region.outline != self.file_regions[place].outline:
                _reshape(file, containers[place], region.outline.scaled(*self.scale))
            if region and region.kind != self.file_regions[place].kind:
                _retype(file, containers[place], region.kind, tags)
            if region and region.cell and region.cell != self.file_regions[place].cell:
                roles = [role for roles in containers[place].all("Roles") for role in roles.all("TableCellRole")]
                numbers = _cell_numbers(region.cell, is_old=not roles)
                _set_or_add(file, roles[0] if roles else containers[place], numbers)
        self._change_tables(file, containers)
        return file.result()

    def _change_tables(self, file: XmlEditor, containers: Sequence[ElementSpan]) -> None:
        """Mark the tables that are gone or changed, and give those their size and outline."""
        now, former = (
            {table.id: table for table in tables_of(regions.values())} for regions in (self.regions, self.file_regions)
        )
        for element in file.elements("TableRegion"):
            inside = (
                self.file_regions.get(place)
                for place, container in enumerate(containers)
                if element.start < container.start < element.end
            )
            id_ = next((region.table for region in inside if region and region.cell), None)
            if id_ is None:
                continue
            if id_ not in now:
                _add_attribute(file, element, _REGION, _REMOVED)
            elif _cells_in_file(self.regions, id_) != _cells_in_file(self.file_regions, id_):
                _add_attribute(file, element, _TABLE, escape_attribute(id_))
                if (outline := now[id_].outline) and outline != former[id_].outline:
                    _reshape(file, element, outline.scaled(*self.scale))
                file.set_attributes(element, dict(zip(("rows", "columns"), map(str, now[id_].size), strict=True)))
                for grid in element.all("Grid"):  # where the rulings crossed before
                    file.remove(grid)

    def _add_tags(self, raw: bytes) -> tuple[bytes, dict[str, str]]:
        """An ALTO file with a tag for each type of region that needs one; ids of tags by their labels."""
        if not _is_alto(raw):
            return raw, {}
        root = parse_xml_bytes(raw)
        ids = {tag.get("LABEL") or "": tag.get("ID") or "" for tag in root.iterfind("{*}Tags/{*}*")}
        file = XmlEditor(raw, {"Tags", "Layout"})
        kinds = {
            region.kind
            for region in self.regions.values()
            if region.kind != (known.kind if (known := self.file_regions.get(_element_of(region))) else "")
        }
        (layout,), new = file.elements("Layout"), []
        for number, kind in enumerate(sorted(kinds - ids.keys() - {""})):
            ids[kind] = _free_id(file, "region_type", number)
            new.append(f'<{layout.prefix}OtherTag ID="{ids[kind]}" LABEL="{escape_attribute(kind)}"/>')
        if new and (tags := file.elements("Tags")):
            file.insert(tags[0], tags[0].children, "".join(new))
        elif new:
            whole = f"<{layout.prefix}Tags>{''.join(new)}</{layout.prefix}Tags>"
            file.replace(layout.start, layout.start, whole + file.indent_before(layout))
        return file.result(), ids

    def _place_lines(self, raw: bytes) -> bytes:
        """Put each line into its region, in reading order; remove old ones, write new ones."""
        file = XmlEditor(raw, {"TextLine", "Page", "PrintSpace", "TableRegion", *CONTAINERS})
        elements, containers = file.elements("TextLine"), file.elements(*CONTAINERS)
        homes: list[int | None] = []  # the innermost container of each line
        for element in elements:
            around = [place for place, home in enumerate(containers) if home.start < element.start < home.end]
            homes.append(around[-1] if around else None)
        placed: dict[int | None, list[StoredLine | int]] = {}
        added: dict[int, list[StoredLine | int]] = {
            number: [] for number, region in self.regions.items() if region.element is None
        }
        before: StoredLine | None = None
        at: int | None = None
        for line in self.lines:
            region = self.regions.get(line.region or _LOOSE)
            if region is not None and region.element is None:
                added[region.number].append(line)
                at = None
            else:
                at = region.element if region else self._home_without_region(file, line, before, at, homes, containers)
                (added.setdefault(_LOOSE, []) if at is None else placed.setdefault(at, [])).append(line)
            before = line
        unknown = [place for place in range(len(elements)) if place not in self.page.elements]
        ranks = [_rank(file.attributes(element).get("custom", "")) for element in elements]
        for home, container in enumerate(containers):
            items = placed.get(home, [])
            slots = [place for place in range(len(elements)) if homes[place] == home]
            for place in unknown:  # it stays behind the line that it was behind
                if homes[place] == home:
                    former = slots[: slots.index(place)]
                    items.insert(next((at + 1 for at, item in enumerate(items) if _element(item) in former), 0), place)
            if [_element(item) for item in items] != sorted(slots, key=lambda place: ranks[place]):
                self._write_items(file, container, items, [elements[place] for place in slots])
        cells: dict[str, list[tuple[StoredRegion, Sequence[StoredLine | int]]]] = {}
        for number, items in added.items():
            region = self.regions.get(number)
            if region and region.cell and file.root != "alto":
                cells.setdefault(region.table, []).append((region, items))
            elif items or (region and not region.cell):
                self._write_region(file, region, items)
        for number, table in enumerate(tables_of(self.regions.values()), start=1):
            if table.id in cells:
                self._write_cells(file, table, number, cells[table.id])
        return file.result()

    def _home_without_region(
        self,
        file: XmlEditor,
        line: StoredLine,
        before: StoredLine | None,
        home_before: int | None,
        homes: Sequence[int | None],
        containers: Sequence[ElementSpan],
    ) -> int | None:
        """The container of a line that is in no region: the one it has, unless that is a region; else a new one."""
        if line.elements:
            home = homes[line.elements[0]]
            if home not in self.page.regions:
                return home
        elif home_before is not None and before is not None and self.regions.get(before.region or _LOOSE) is None:
            return home_before
        ids = [file.attributes(container).get("ID", "")[1:-1] for container in containers]
        return ids.index(UNGROUPED_BLOCK) if UNGROUPED_BLOCK in ids else None

    def _write_items(
        self, file: XmlEditor, container: ElementSpan, items: Sequence[StoredLine | int], slots: Sequence[ElementSpan]
    ) -> None:
        elements = file.elements("TextLine")
        texts = self._texts(file, items, [*slots, *elements, container][0])
        for slot, text in zip(slots, texts, strict=False):
            if file.data[slot.start : slot.end] != text.encode():
                file.replace(slot.start, slot.end, text)
        for slot in slots[len(items) :]:
            file.remove(slot)
        if len(items) <= len(slots):
            return
        if slots:
            indent = file.indent_before(slots[-1])
            file.replace(slots[-1].end, slots[-1].end, "".join(indent + text for text in texts[len(slots) :]))
        else:
            last = {"TextEquiv", "TextStyle"}
            file.insert(container, [child for child in container.children if child.name not in last], "".join(texts))

    def _texts(self, file: XmlEditor, items: Sequence[StoredLine | int], model: ElementSpan) -> list[str]:
        """The elements of lines that follow one another in a container; ranks only if one of them has a rank."""
        elements, texts = file.elements("TextLine"), []
        for item in items:
            place = _element(item)
            if place is not None:
                model = elements[place]
                texts.append(file.data[model.start : model.end].decode())
            else:
                assert isinstance(item, StoredLine)
                texts.append(_new_line(file, model, item, item.outline.scaled(*self.scale)))
        if any(_rank(_TAG.match(text)[0]) < _NO_RANK for text in texts if _TAG.match(text)):  # type: ignore[index]
            texts = [_set_rank(text, rank) for rank, text in enumerate(texts)]
        return texts

    def _write_region(self, file: XmlEditor, region: StoredRegion | None, items: Sequence[StoredLine | int]) -> None:
        """Append a region with its lines to the page; without `region` that of the lines which are in none."""
        is_alto = file.root == "alto"
        parents = file.elements("PrintSpace") or file.elements("Page")
        parent, prefix = parents[0], parents[0].prefix
        boxes = [item.outline.box for item in items if isinstance(item, StoredLine)]
        outline = (region.outline if region else Outline(bounds_of_boxes(boxes))).scaled(*self.scale)
        points = format_points(outline.border)
        id_ = (
            UNGROUPED_BLOCK if is_alto and region is None else _free_id(file, "region", region.number if region else 0)
        )
        lines = "".join(self._texts(file, items, parent))
        mark = f' {_REGION}="{region.number if region else _LOOSE}"'
        kind = region.kind if region else ""
        if is_alto:
            root = parse_xml_bytes(file.data) if kind else None
            tags = {} if root is None else {tag.get("LABEL"): tag.get("ID") for tag in root.iterfind("{*}Tags/{*}*")}
            stated = "".join(f' {name}="{value}"' for name, value in _alto_box(outline).items())
            refs = f' TAGREFS="{tags[kind]}"' if kind in tags else ""
            shape = f'<{prefix}Shape><{prefix}Polygon POINTS="{points}"/></{prefix}Shape>'
            new = f'<{prefix}TextBlock ID="{id_}"{mark}{refs}{stated}>{shape}{lines}</{prefix}TextBlock>'
            file.insert(parent, parent.children, new)
            return
        stated = "".join(f' {name}="{value}"' for name, value in _page_type(kind, "").items() if value)
        coords = f'<{prefix}Coords points="{points}"/>'
        new = f'<{prefix}TextRegion id="{id_}"{mark}{stated}>{coords}{lines}</{prefix}TextRegion>'
        self._add_to_page(file, parent, new)

    def _add_to_page(self, file: XmlEditor, page: ElementSpan, new: str) -> None:
        after = [child for child in page.children if child.name not in {"Relations", "UserDefined", "Labels"}]
        file.insert(page, after, new)

    def _write_cells(
        self,
        file: XmlEditor,
        table: Table,
        number: int,
        cells: Sequence[tuple[StoredRegion, Sequence[StoredLine | int]]],
    ) -> None:
        """Add cells with their lines to a table of a PAGE file, which is added if it is new."""
        (page,), mark = file.elements("Page"), escape_attribute(table.id)
        element = next((each for each in file.elements("TableRegion") if _mark(file, each, _TABLE) == mark), None)
        is_old = "TableCell" in {child.name for child in element.children} if element else file.namespace[-10:] < "2017"
        texts = []
        for region, items in cells:
            lines = "".join(self._texts(file, items, element or page))
            points = format_points(region.outline.scaled(*self.scale).border)
            texts.append(_cell_text(file, region, points, lines, page.prefix, is_old=is_old))
        if element:
            file.insert(element, element.children, "".join(texts))
            return
        assert table.outline
        rows, columns = table.size
        size = "" if is_old else f' rows="{rows}" columns="{columns}"'
        prefix, points = page.prefix, format_points(table.outline.scaled(*self.scale).border)
        start = (
            f'<{prefix}TableRegion id="{_free_id(file, TABLE_ID, 1)}" {_TABLE}="{escape_attribute(table.id)}"{size}>'
        )
        whole = f'{start}<{prefix}Coords points="{points}"/>{"".join(texts)}</{prefix}TableRegion>'
        self._add_to_page(file, page, whole)

    def _order_cells(self, raw: bytes) -> bytes:
        """The file with the cells of tables in the order of their lines, an empty one behind that on its left."""
        file = XmlEditor(raw, {"TableRegion", *CONTAINERS})
        tables = file.elements("TableRegion")
        if not tables:
            return raw
        read = list(dict.fromkeys(line.region.id for line in parse_page(parse_xml_bytes(raw)).lines if line.region))
        ranks = {number: rank for rank, number in enumerate(dict.fromkeys(line.region for line in self.lines))}
        for table in tables:
            children = {child.start: (self._region_of(file, child), child) for child in table.children}
            cells = [(region, child) for region, child in children.values() if region and region.cell]
            filled = [(region, child) for region, child in cells if region.number in ranks]
            ordered_ids = [_mark(file, child, "id") for _, child in sorted(filled, key=lambda c: ranks[c[0].number])]
            is_changed = bool(_mark(file, table, _TABLE))
            if not is_changed and [id_ for id_ in read if id_ in set(ordered_ids)] == ordered_ids:
                continue
            if not is_changed:
                _add_attribute(file, table, _TABLE, "ordered")
            for (_, slot), moved in zip(cells, _in_line_order(cells, ranks), strict=True):
                if slot is not moved:
                    file.replace(slot.start, slot.end, file.data[moved.start : moved.end].decode())
        return file.result()

    def _region_of(self, file: XmlEditor, element: ElementSpan) -> StoredRegion | None:
        mark = _mark(file, element, _REGION) if element.name in CONTAINERS else ""
        return self.regions.get(int(mark)) if mark.isdecimal() else None

    def _regions_in_order(self) -> list[str]:
        """The marks of regions with lines, in the order of their first lines."""
        numbers = (line.region if line.region in self.regions else _LOOSE for line in self.lines)
        return list(dict.fromkeys(map(str, numbers)))

    def _order_alto(self, raw: bytes) -> bytes:
        file = XmlEditor(raw, {"TextBlock"})
        blocks = {_mark(file, block, _REGION): block for block in file.elements("TextBlock") if block.all("TextLine")}
        order = [mark for mark in self._regions_in_order() if mark in blocks]
        present = [mark for mark in blocks if mark in set(order)]
        for slot, mark in zip(present, order, strict=True):
            if slot != mark:
                moved = blocks[mark]
                file.replace(blocks[slot].start, blocks[slot].end, file.data[moved.start : moved.end].decode())
        return file.result()

    def _order_page(self, raw: bytes) -> bytes:
        """The file with a reading order of its regions, a table as one, if it reads them in another one."""
        file = XmlEditor(raw, {"Page", "ReadingOrder", "OrderedGroup", "TableRegion", *CONTAINERS})
        ids, tables = self._ids_in_order(file)
        root = parse_xml_bytes(raw)
        regions = (line.region.id for line in parse_page(root).lines if line.region)
        read = list(dict.fromkeys(tables.get(id_, id_) for id_ in regions))
        ordered_ids = list(dict.fromkeys(ids[mark] for mark in self._regions_in_order() if mark in ids))
        orders = root.iterfind(".//{*}ReadingOrder//{*}*")
        refs = [ref for group in orders if (ref := group.get("regionRef"))]
        present = {element.get("id") for element in only_page(root).iter("{*}*")}
        is_changed = any(_mark(file, table, _TABLE) for table in file.elements("TableRegion"))
        if (
            [id_ for id_ in read if id_ in set(ordered_ids)] == ordered_ids
            and present.issuperset(refs)
            # Without an order, and in one of cells, these have ranks that are not those of the changed table.
            and not (is_changed and (not refs or any(ref in tables for ref in refs)))
        ):
            return raw
        refs = [ref for ref in refs if ref not in tables]
        rest = iter([*ordered_ids, *([] if refs else [id_ for id_ in read if id_ not in set(ordered_ids)])])
        order = [next(rest) if ref in set(ordered_ids) else ref for ref in refs if ref in present]
        (page,), former = file.elements("Page"), file.elements("ReadingOrder")
        groups = file.elements("OrderedGroup")
        group = file.attributes(groups[0]).get("id", '""')[1:-1] if groups else _free_id(file, "order", 0)
        prefix = page.prefix
        listed = "".join(
            f'<{prefix}RegionRefIndexed index="{index}" regionRef="{escape_attribute(ref)}"/>'
            for index, ref in enumerate([*order, *rest])
        )
        ordered = f'<{prefix}OrderedGroup id="{group}">{listed}</{prefix}OrderedGroup>'
        new = f"<{prefix}ReadingOrder>{ordered}</{prefix}ReadingOrder>"
        if former:
            file.replace(former[0].start, former[0].end, new)
        else:
            first = [child for child in page.children if child.name in {"AlternativeImage", "Border", "PrintSpace"}]
            file.insert(page, first, new)
        return file.result()

    def _ids_in_order(self, file: XmlEditor) -> tuple[dict[str, str], dict[str, str]]:
        """The ids of regions by their marks, for cells those of their tables, and these by the ids of the cells."""
        ids: dict[str, str] = {}
        tables: dict[str, str] = {}
        for element in file.elements("TextRegion"):
            ids[_mark(file, element, _REGION)] = _mark(file, element, "id")
        for table in file.elements("TableRegion"):
            id_ = _mark(file, table, "id")
            for child in table.children:
                if id_ and (region := self._region_of(file, child)) and region.cell:
                    ids[str(region.number)] = id_
                    tables[_mark(file, child, "id")] = id_
        return ids, tables


_NO_RANK = 1 << 30


def _in_line_order(
    cells: Sequence[tuple[StoredRegion, ElementSpan]], ranks: Mapping[int | None, int]
) -> list[ElementSpan]:
    """The elements of cells by the ranks of their regions; one without a rank follows the cell before it."""
    keys: list[tuple[int, int, int]] = []
    last = -1
    places = {region.number: (region.cell.row, region.cell.column) for region, _ in cells if region.cell}
    by_place = sorted(cells, key=lambda cell: places[cell[0].number])
    for region, _ in by_place:
        last = ranks.get(region.number, last)
        keys.append((last, *places[region.number]))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return [by_place[place][1] for place in order]


def _element_of(region: StoredRegion) -> int:
    return -1 if region.element is None else region.element


def _cells_in_file(regions: Mapping[int, StoredRegion], table: str) -> set[tuple[int, CellPlace, Outline]]:
    return {
        (_element_of(region), region.cell, region.outline)
        for region in regions.values()
        if region.cell and region.table == table
    }


def _is_alto(raw: bytes) -> bool:
    return etree.QName(parse_xml_bytes(raw)).localname == "alto"


def _element(item: StoredLine | int) -> int | None:
    """The place in the file of a line that is in it."""
    if isinstance(item, int):
        return item
    return item.elements[0] if item.elements else None


def _mark(file: XmlEditor, element: ElementSpan, name: str) -> str:
    return file.attributes(element).get(name, "")[1:-1]


def _add_attribute(file: XmlEditor, element: ElementSpan, name: str, value: object) -> None:
    file.replace(element.name_end, element.name_end, f' {name}="{value}"')


def _set_or_add(file: XmlEditor, element: ElementSpan, values: Mapping[str, str]) -> None:
    known = file.attributes(element)
    file.set_attributes(element, {name: value for name, value in values.items() if name in known})
    for name, value in values.items():
        if name not in known and value:
            _add_attribute(file, element, name, value)


def _free_id(file: XmlEditor, stem: str, number: int) -> str:
    id_ = f"{stem}_{number}"
    while f'"{id_}"'.encode() in file.data:
        id_ += "_"
    return id_


def _rank(custom: str) -> int:
    match = re.search(r"readingOrder\s*\{\s*index\s*:\s*(\d{1,11})", custom)
    return int(match[1]) if match else _NO_RANK


def _set_rank(line: str, rank: int) -> str:
    """The element of a line with its place in the reading order of its region."""
    tag = _TAG.match(line)
    assert tag is not None
    new = f"readingOrder {{index:{rank};}}"
    custom = re.search(r"""\scustom\s*=\s*(["'])(.*?)\1""", tag[0], re.DOTALL)
    if custom is None:
        name = re.match(r"<[^\s/>]+", line)
        assert name is not None
        return f'{name[0]} custom="{new}"{line[name.end() :]}'
    kept = _RANK.sub("", custom[2]).strip()
    start, end = custom.span(2)
    return line[:start] + f"{new} {kept}".strip() + line[end:]


def _remove_regions(raw: bytes) -> bytes:
    """The file without the regions marked as gone, unless lines that nobody knows are in them; nested ones stay."""
    while True:
        file = XmlEditor(raw, {"TextLine", "TableRegion", *CONTAINERS})
        containers = file.elements(*CONTAINERS, "TableRegion")
        empty = [container for container in containers if _mark(file, container, _REGION) == _REMOVED]
        empty = [container for container in empty if not container.all("TextLine")]
        if not empty:
            return raw
        nested = [child for child in empty[-1].children if child.name in CONTAINERS]
        if nested:
            kept = b"".join(file.data[child.start : child.end] for child in nested).decode()
            file.replace(empty[-1].start, empty[-1].end, kept)
        else:
            file.remove(empty[-1])
        raw = file.result()


def _page_type(kind: str, custom: str) -> dict[str, str]:
    """The attributes of a PAGE region of a type: its own, or for other types Transkribus' `structure`."""
    rest = re.sub(r"\s*structure\s*\{[^}]*\}", "", custom).strip()
    if kind in REGION_TYPES:
        structure = custom_kind(kind) if rest != custom.strip() else ""
        return {"type": kind, "custom": f"{rest} {structure}".strip()}
    structure = escape_attribute(custom_kind(kind)) if kind else ""
    return {"type": "", "custom": f"{rest} {structure}".strip()}


def _retype(file: XmlEditor, region: ElementSpan, kind: str, tags: Mapping[str, str]) -> None:
    known = file.attributes(region)
    if file.root != "alto":
        _set_or_add(file, region, _page_type(kind, known.get("custom", '""')[1:-1]))
        return
    others = [ref for ref in known.get("TAGREFS", '""')[1:-1].split() if ref not in tags.values()]
    _set_or_add(file, region, {"TAGREFS": " ".join([*others, *([tags[kind]] if kind else [])])})


def _cell_numbers(cell: CellPlace, *, is_old: bool) -> dict[str, str]:
    """The attributes of a cell's place: of Transkribus' TableCell, or of the role that a cell has since 2017."""
    names = ("row", "col") if is_old else ("rowIndex", "columnIndex")
    return dict(zip((*names, "rowSpan", "colSpan"), map(str, astuple(cell)), strict=False))


def _cell_text(file: XmlEditor, region: StoredRegion, points: str, lines: str, prefix: str, *, is_old: bool) -> str:
    """The element of a new cell; its outline begins at its upper left corner and goes on downwards."""
    place = region.cell
    assert place
    numbers = "".join(f' {name}="{number}"' for name, number in _cell_numbers(place, is_old=is_old).items())
    id_ = _free_id(file, "region", region.number)
    start, coords = f'id="{id_}" {_REGION}="{region.number}"', f'<{prefix}Coords points="{points}"/>'
    if is_old:
        kind = f' custom="{custom_kind(HEADING)}"' if place.is_heading else ""
        corners = f"<{prefix}CornerPts>0 1 2 3</{prefix}CornerPts>"
        return f"<{prefix}TableCell {start}{numbers}{kind}>{coords}{lines}{corners}</{prefix}TableCell>"
    header = ' header="true"' if place.is_heading else ""
    role = f"<{prefix}Roles><{prefix}TableCellRole{numbers}{header}/></{prefix}Roles>"
    return f"<{prefix}TextRegion {start}>{coords}{role}{lines}</{prefix}TextRegion>"


def _reshape(file: XmlEditor, element: ElementSpan, outline: Outline) -> None:
    """Give a line or a region another outline."""
    polygon, prefix = format_points(outline.border), element.prefix
    if file.root != "alto":
        coords, baselines = element.all("Coords"), element.all("Baseline")
        for child in coords:
            if "points" in file.attributes(child):
                file.set_attributes(child, {"points": polygon})
            else:
                file.replace(child.start, child.end, f'<{prefix}Coords points="{polygon}"/>')
        for child in element.all("CornerPts"):
            file.replace(child.start, child.end, f"<{prefix}CornerPts>0 1 2 3</{prefix}CornerPts>")
        stated = f'<{prefix}Baseline points="{format_points(outline.baseline)}"/>'
        for child in baselines:
            if outline.baseline and "points" in file.attributes(child):
                file.set_attributes(child, {"points": format_points(outline.baseline)})
            elif outline.baseline:
                file.replace(child.start, child.end, stated)
            else:
                file.remove(child)
        if outline.baseline and not baselines and element.name == "TextLine":
            file.insert(
                element, [child for child in element.children if child.name in {"AlternativeImage", "Coords"}], stated
            )
        return
    box = _alto_box(outline)
    file.set_attributes(element, box)
    if element.name == "TextLine":
        _set_or_add(file, element, {"BASELINE": _alto_baseline(file, element, outline)})
    for string in element.all("String"):
        file.set_attributes(string, box)
    shape = f'<{prefix}Shape><{prefix}Polygon POINTS="{polygon}"/></{prefix}Shape>'
    shapes = element.all("Shape")
    for child in shapes:
        if [part.name for part in child.children] == ["Polygon"]:
            file.set_attributes(child.children[0], {"POINTS": polygon})
        else:
            file.replace(child.start, child.end, shape)
    if not shapes and outline.polygon:
        file.insert(element, [], shape)


def _new_line(file: XmlEditor, model: ElementSpan, line: StoredLine, outline: Outline) -> str:
    """An empty text line of the type of the `model`, a line before it."""
    is_alto, prefix = file.root == "alto", model.prefix
    known = file.attributes(model) if model.name == "TextLine" else {}
    id_ = _free_id(file, "line", line.number)
    polygon = format_points(outline.border)
    name = "ID" if is_alto else "id"
    if is_alto:
        attributes = {**_alto_box(outline), "BASELINE": _alto_baseline(file, model, outline)}
        inner = f'<{prefix}Shape><{prefix}Polygon POINTS="{polygon}"/></{prefix}Shape>'
    else:
        attributes = {}
        baseline = f'<{prefix}Baseline points="{format_points(outline.baseline)}"/>' if outline.baseline else ""
        inner = f'<{prefix}Coords points="{polygon}"/>{baseline}'
    kept = "".join(f" {key}={known[key]}" for key in ("TAGREFS", "custom") if key in known)
    stated = kept + "".join(f' {key}="{value}"' for key, value in attributes.items() if value)
    return f'<{prefix}TextLine {name}="{id_}" {_LINE}="{line.number}"{stated}>{inner}</{prefix}TextLine>'


def _alto_box(outline: Outline) -> dict[str, str]:
    left, top, right, bottom = outline.box
    return {"HPOS": str(left), "VPOS": str(top), "WIDTH": str(right - left), "HEIGHT": str(bottom - top)}


def _alto_baseline(file: XmlEditor, line: ElementSpan, outline: Outline) -> str:
    """Points, or the one height that files before version 4 have; empty if the line has none."""
    stated = file.attributes(line).get("BASELINE", "")[1:-1] if line.name == "TextLine" else ""
    is_height = len(stated.replace(",", " ").split()) == 1 if stated else "ns-v4" not in file.namespace
    if not outline.baseline:
        return ""
    if is_height:
        return str(round(sum(y for _, y in outline.baseline) / len(outline.baseline)))
    return format_points(outline.baseline)
