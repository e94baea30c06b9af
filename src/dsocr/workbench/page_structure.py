"""Lines, regions and tables of a page in its ALTO or PAGE file: read for the workbench, and written back.

Every element that nobody changed keeps its bytes.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass

from lxml import etree

from dsocr.document import CellPlace, Outline, Table, bounds_of_boxes, format_points
from dsocr.formats.alto import box_attributes, parse_alto
from dsocr.formats.page import REGION_TYPES, parse_page
from dsocr.formats.table_regions import HEADING, TABLE_ID, cell_numbers, parse_cells, table_size
from dsocr.formats.xml import (
    UNGROUPED_BLOCK,
    custom_kind,
    only_page,
    parse_region,
    parse_xml_bytes,
    tag_labels,
)
from dsocr.formats.xml_tree import Element, XmlTree
from dsocr.workbench.stored_lines import StoredLine, StoredRegion, is_editable, tables_of

_CONTAINERS = ("TextRegion", "TableCell", "TextBlock")
"""Elements that lines are in; a region is known by its place among them."""
_CORNERS = "0 1 2 3"
"""The corners of Transkribus' cells: outlines start at the upper left one and continue downwards."""
_NO_RANK = 1 << 30
_RANK = re.compile(r"\s*readingOrder\s*\{\s*(?:index\s*:\s*(\d{1,11}))?[^}]*\}")


def read_regions(raw: bytes) -> list[tuple[StoredRegion, tuple[int, ...]]]:
    """The text regions and cells of an ALTO or PAGE file, in its own pixels, each with its lines, counted from 0.

    Skips the block of lines without a region, regions without an outline, and Transkribus' cells that form no grid.
    """
    root = parse_xml_bytes(raw)
    page, labels = only_page(root), tag_labels(root)
    places = {line: place for place, line in enumerate(page.iter("{*}TextLine"))}
    cells = _read_cells(page)
    regions = []
    for element, container in enumerate(page.iter(*(f"{{*}}{name}" for name in _CONTAINERS))):
        id_, region = container.get("id") or container.get("ID") or "", parse_region(container, labels)
        table, cell = cells.get(container, ("", None))
        is_lost = cell is None and etree.QName(container).localname == "TableCell"
        if region.outline is None or id_ == UNGROUPED_BLOCK or is_lost:
            continue
        lines = tuple(places[line] for line in container.iterchildren("{*}TextLine"))
        regions.append((StoredRegion(0, 0, region.outline, region.kind, id_, element, table=table, cell=cell), lines))
    return regions


def _read_cells(page: etree._Element) -> dict[etree._Element, tuple[str, CellPlace]]:
    """The table and place of cells in tables that can be shown as a grid; each table has an id of its own."""
    places: dict[etree._Element, tuple[str, CellPlace]] = {}
    taken: set[str] = set()
    for number, table in enumerate(page.iter("{*}TableRegion")):
        id_ = table.get("id") or ""
        id_ = id_ if id_ and id_ not in taken else f"{TABLE_ID}_{number}"
        taken.add(id_)
        cells = dict(parse_cells(table))
        if cells and is_editable(list(cells.values())):
            places |= {child: (id_, cell.place) for child, cell in cells.items()}
    return places


@dataclass(eq=False)
class PageStructure:
    """The ALTO or PAGE file of a page, to be given lines in reading order and regions, in pixels of the image.

    The `former` regions are the file's, by element; `scale` leads to its pixels. `line_elements` are the lines in the
    file by their numbers; those without a region are in that of number 0.
    """

    tree: XmlTree
    lines: Sequence[StoredLine]
    regions: Mapping[int, StoredRegion]
    former: Mapping[int, StoredRegion]
    scale: tuple[float, float]

    def __post_init__(self) -> None:
        self._is_alto = self.tree.root.name == "alto"
        self._all_lines = list(self.tree.iter("TextLine"))
        self._containers = list(self.tree.iter(*_CONTAINERS))
        self.line_elements = {line.number: self._all_lines[line.elements[0]] for line in self.lines if line.elements}
        places = {number: region.element for number, region in self.regions.items() if region.element is not None}
        self._elements = {number: self._containers[place] for number, place in places.items()}
        self._removed = {self._containers[place] for place in self.former} - set(self._elements.values())
        self._tables: dict[str, Element] = {}
        self._changed_tables: set[str] = set()
        for container in self._containers:
            if container.get("ID") == UNGROUPED_BLOCK:
                self._elements[0] = container

    def write(self, outlines: Mapping[int, Outline], imported: Collection[int]) -> None:
        """Change the file; `outlines` are its lines' by element, `imported` the elements of the workbench's lines."""
        for line in self.lines:
            if line.elements and line.outline != outlines[line.elements[0]]:
                self._reshape(self.line_elements[line.number], line.outline)
        self._change_regions()
        self._change_tables()
        self._add_regions()
        self._place_lines(imported)
        self._remove_regions()
        if self._is_alto:
            self._order_blocks()
        else:
            self._order_cells()
            self._order_regions()

    def _change_regions(self) -> None:
        for region in self.regions.values():
            if region.element is None:
                continue
            element, known = self._elements[region.number], self.former[region.element]
            if region.outline != known.outline:
                self._reshape(element, region.outline)
            if region.kind != known.kind:
                self._retype(element, region.kind)
            if region.cell and region.cell != known.cell:
                roles = [role for roles in element.all("Roles") for role in roles.all("TableCellRole")]
                (roles or [element])[0].set(cell_numbers(region.cell, is_old=not roles))

    def _add_regions(self) -> None:
        filled = {line.region for line in self.lines}
        tables = {table.id: table for table in tables_of(self.regions.values())}
        for region in self.regions.values():
            if region.element is None and region.cell and not self._is_alto:
                self._add_cell(region, tables[region.table])
            elif region.element is None and (region.number in filled or not region.cell):
                self._add_region(region.number, region.outline, region.kind)

    def _change_tables(self) -> None:
        """Find the elements of tables, and give tables with changed cells their size and outline."""
        states = self.regions, self.former
        now, former = ({table.id: table for table in tables_of(regions.values())} for regions in states)
        known = {self._containers[place]: region for place, region in self.former.items() if region.cell}
        for element in self.tree.iter("TableRegion"):
            id_ = next((known[cell].table for cell in element.iter(*_CONTAINERS) if cell in known), None)
            if id_ is None:
                continue
            if id_ not in now:
                self._removed.add(element)
                continue
            self._tables[id_] = element
            cells, former_cells = (
                {(cell.element, cell.cell, cell.outline) for cell in regions.values() if cell.table == id_}
                for regions in states
            )
            if cells != former_cells:
                self._changed_tables.add(id_)
                if (outline := now[id_].outline) and outline != former[id_].outline:
                    self._reshape(element, outline)
                element.set(table_size(now[id_]), add=False)
                for grid in element.all("Grid"):  # where the rulings crossed before
                    element.remove(grid)

    def _place_lines(self, imported: Collection[int]) -> None:
        """Put each line into its region, in reading order; remove old ones, add new ones."""
        parents = self.tree.parents()
        known = {self._containers[place] for place in self.former}
        lines_of: dict[Element | None, list[Element]] = {
            home: [] for home in (*self._containers, *self._elements.values())
        }
        loose: list[Outline] = []
        home: Element | None = None
        is_region = True
        for line in self.lines:
            element = self.line_elements.get(line.number)
            region = self.regions.get(line.region or 0)
            if region is not None:
                home = self._elements[region.number]
            elif element is not None and parents[element] not in known:
                home = parents[element]
            elif element is not None or is_region:  # a new line stays with the one before it
                home = self._elements.get(0)
            is_region = region is not None
            items = lines_of.setdefault(home, [])
            if element is None:
                models = items[-1:] or (home.all("TextLine") if home else []) or self._all_lines
                element = self.line_elements[line.number] = self._new_line(line, next(iter(models), None))
            items.append(element)
            loose += [line.outline] if home is None else []
        if loose:
            outline = Outline(bounds_of_boxes(outline.box for outline in loose))
            lines_of[self._add_region(0, outline, "")] = lines_of.pop(None)
        for place, element in enumerate(self._all_lines):
            if place not in imported:  # it stays behind the line that it was behind
                home = parents[element]
                items, slots = lines_of.setdefault(home, []), home.all("TextLine")
                before = [slot for slot in slots[: slots.index(element)] if slot in items]
                items.insert(items.index(before[-1]) + 1 if before else 0, element)
        read = parse_alto(self.tree.parsed).lines if self._is_alto else ()
        ranks = {self._all_lines[line.index or 0]: rank for rank, line in enumerate(read)}
        for home, items in lines_of.items():
            if home and items != sorted(home.all("TextLine"), key=lambda line: ranks.get(line, _rank(line))):
                _arrange(home, items)

    def _remove_regions(self) -> None:
        """Remove the regions and tables that are gone, unless lines that nobody knows are in them; nested ones stay."""
        parents = self.tree.parents()
        for element in reversed([element for element in self.tree.iter() if element in self._removed]):
            nested, parent = element.all(*_CONTAINERS), parents[element]
            if not nested and not element.all("TextLine"):
                parent.remove(element)
            elif not element.all("TextLine"):
                at = parent.content.index(element)
                parent.content[at : at + 1] = nested

    def _numbers_in_order(self) -> list[int]:
        """The regions with lines, in the order of their first lines."""
        numbers = (line.region if line.region in self.regions else 0 for line in self.lines)
        return [number for number in dict.fromkeys(numbers) if number in self._elements]

    def _order_blocks(self) -> None:
        """Put the blocks of an ALTO file into the order of their lines, in place of an order that it states."""
        places = {element: place for place, element in enumerate(self.tree.iter("TextLine"))}
        expected = [places[self.line_elements[line.number]] for line in self.lines]
        read = parse_alto(parse_xml_bytes(self.tree.content())).lines
        if [line.index for line in read if line.index in set(expected)] == expected:
            return
        order = [block for number in self._numbers_in_order() if (block := self._elements[number]).all("TextLine")]
        self._exchange([block for block in self.tree.iter("TextBlock") if block in order], order)
        parents = self.tree.parents()
        for stated in [*self.tree.iter("ReadingOrder")]:
            parents[stated].remove(stated)
        for block in self.tree.iter():
            if block.get("IDNEXT"):
                block.set({"IDNEXT": None})

    def _order_cells(self) -> None:
        """Put the cells of tables into the order of their lines, an empty one behind that on its left."""
        if not self._tables:
            return
        read = self._regions_as_read()
        ranks = {number: rank for rank, number in enumerate(dict.fromkeys(line.region for line in self.lines))}
        for id_, table in self._tables.items():
            known = {self._elements[number]: region for number, region in self.regions.items() if region.table == id_}
            cells = {child: known[child] for child in table.children if child in known}
            ranked = {ranks[region.number]: cell for cell, region in cells.items() if region.number in ranks}
            ids = [ranked[rank].get("id") for rank in sorted(ranked)]
            if id_ in self._changed_tables or [name for name in read if name in set(ids)] != ids:
                self._changed_tables.add(id_)
                last, order = -1, dict[Element, int]()
                for cell, region in sorted(cells.items(), key=lambda item: astuple(item[1].cell or CellPlace(0, 0))):
                    last = order[cell] = ranks.get(region.number, last)
                self._exchange([*cells], sorted(order, key=order.__getitem__))

    def _order_regions(self) -> None:
        """Give a PAGE file a reading order of its regions, a table as one, if it reads them in another one."""
        ids, tables = dict[int, str](), dict[str, str]()
        for number, element in self._elements.items():
            region, id_ = self.regions.get(number), element.get("id")
            ids[number] = id_
            if region and region.cell:
                ids[number] = tables[id_] = self._tables[region.table].get("id")
        read = list(dict.fromkeys(tables.get(id_, id_) for id_ in self._regions_as_read()))
        ordered = list(dict.fromkeys(ids[number] for number in self._numbers_in_order() if ids[number]))
        (page,) = self.tree.iter("Page")
        groups = page.all("ReadingOrder")
        refs = [ref for group in groups for child in group.iter() if (ref := child.get("regionRef"))]
        present = {element.get("id") for element in page.iter()}
        # Without an order, and in one of cells, these have ranks that are not those of a changed table.
        is_of_cells = bool(self._changed_tables) and (not refs or any(ref in tables for ref in refs))
        if [id_ for id_ in read if id_ in ordered] == ordered and present.issuperset(refs) and not is_of_cells:
            return
        refs = [ref for ref in refs if ref not in tables]
        rest = iter([*ordered, *([] if refs else [id_ for id_ in read if id_ not in ordered])])
        order = [next(rest) if ref in ordered else ref for ref in refs if ref in present]
        former = next(page.iter("OrderedGroup"), None)
        listed = (
            self.tree.new("RegionRefIndexed", {"index": str(index), "regionRef": ref})
            for index, ref in enumerate([*order, *rest])
        )
        id_ = former.get("id") if former else self.tree.free_id("order_0")
        new = self.tree.new("ReadingOrder", {}, self.tree.new("OrderedGroup", {"id": id_}, *listed))
        if groups:
            page.content[page.content.index(groups[0])] = new
        else:
            page.insert(new, after=page.all("AlternativeImage", "Border", "PrintSpace"))

    def _regions_as_read(self) -> list[str]:
        """The ids of the regions with lines in the order in which the file is read now."""
        lines = parse_page(parse_xml_bytes(self.tree.content())).lines
        return list(dict.fromkeys(line.region.id for line in lines if line.region))

    def _exchange(self, slots: Sequence[Element], order: Sequence[Element]) -> None:
        """Put elements, in an order, into the places that they have in the file."""
        parents = self.tree.parents()
        places = [(parents[slot].content, parents[slot].content.index(slot)) for slot in slots]
        for (siblings, at), element in zip(places, order, strict=True):
            siblings[at] = element

    def _add_region(self, number: int, outline: Outline, kind: str) -> Element:
        id_ = self.tree.free_id(f"region_{number}" if number or not self._is_alto else UNGROUPED_BLOCK)
        (page,) = self.tree.iter("Page")
        shape = self._shape(outline)
        if self._is_alto:
            tag = self._tag(kind) if kind else None
            attributes = {"ID": id_, "TAGREFS": tag, **box_attributes(outline.scaled(*self.scale).box)}
            element, parent = self.tree.new("TextBlock", attributes, shape), next(page.iter("PrintSpace"), page)
            parent.insert(element, after=parent.children)
        else:
            element = self.tree.new("TextRegion", {"id": id_, **_page_type(kind, "")}, shape)
            self._add_to_page(page, element)
        self._elements[number] = element
        return element

    def _add_to_page(self, page: Element, element: Element) -> None:
        last = {"Relations", "UserDefined", "Labels"}
        page.insert(element, after=[child for child in page.children if child.name not in last])

    def _add_cell(self, region: StoredRegion, table: Table) -> None:
        """Add a cell to a table of a PAGE file, which is added if it is new."""
        new, place = self.tree.new, region.cell
        assert place
        element = self._tables.get(table.id)
        is_old = bool(element.all("TableCell")) if element else self.tree.namespace[-10:] < "2017"
        if element is None:
            assert table.outline
            size = {} if is_old else table_size(table)
            id_ = self.tree.free_id(f"{TABLE_ID}_1")
            element = self._tables[table.id] = new("TableRegion", {"id": id_, **size}, self._shape(table.outline))
            self._changed_tables.add(table.id)
            self._add_to_page(next(self.tree.iter("Page")), element)
        id_, numbers = self.tree.free_id(f"region_{region.number}"), cell_numbers(place, is_old=is_old)
        shape = self._shape(region.outline)
        if is_old:
            kind = custom_kind(HEADING) if place.is_heading else None
            cell = new("TableCell", {"id": id_, **numbers, "custom": kind}, shape, new("CornerPts", {}, _CORNERS))
        else:
            role = new("TableCellRole", {**numbers, "header": "true" if place.is_heading else None})
            cell = new("TextRegion", {"id": id_}, shape, new("Roles", {}, role))
        element.insert(cell, after=element.children)
        self._elements[region.number] = cell

    def _new_line(self, line: StoredLine, model: Element | None) -> Element:
        """An empty text line of the type of the `model`, a line before it."""
        outline = line.outline.scaled(*self.scale)
        kept = {name: model.attributes.get(name) if model else None for name in ("TAGREFS", "custom")}
        id_ = self.tree.free_id(f"line_{line.number}")
        shape = self._shape(line.outline)
        if self._is_alto:
            baseline = self._alto_baseline(model, outline)
            attributes = {"ID": id_, **kept, **box_attributes(outline.box), "BASELINE": baseline or None}
            return self.tree.new("TextLine", attributes, shape)
        baselines = [self._page_baseline(outline)] if outline.baseline else []
        return self.tree.new("TextLine", {"id": id_, **kept}, shape, *baselines)

    def _shape(self, outline: Outline) -> Element:
        points = format_points(outline.scaled(*self.scale).border)
        if self._is_alto:
            return self.tree.new("Shape", {}, self.tree.new("Polygon", {"POINTS": points}))
        return self.tree.new("Coords", {"points": points})

    def _page_baseline(self, outline: Outline) -> Element:
        return self.tree.new("Baseline", {"points": format_points(outline.baseline)})

    def _alto_baseline(self, line: Element | None, outline: Outline) -> str:
        """Points, or the one height that files before version 4 have; empty if the line has none."""
        stated = line.get("BASELINE") if line else ""
        is_height = len(stated.replace(",", " ").split()) == 1 if stated else "ns-v4" not in self.tree.namespace
        if is_height and outline.baseline:
            return str(round(sum(y for _, y in outline.baseline) / len(outline.baseline)))
        return format_points(outline.baseline)

    def _reshape(self, element: Element, outline: Outline) -> None:
        shape = self._shape(outline)
        for child in element.all(shape.name):
            _set_points(element, child, shape)
        outline = outline.scaled(*self.scale)
        if self._is_alto:
            box = box_attributes(outline.box)
            for part in (element, *element.all("String")):
                part.set(box, add=False)
            if element.name == "TextLine":
                element.set({"BASELINE": self._alto_baseline(element, outline) or None})
            if not element.all("Shape") and outline.polygon:
                element.insert(shape)
            return
        for child in element.all("CornerPts"):
            element.content[element.content.index(child)] = self.tree.new("CornerPts", {}, _CORNERS)
        baselines = element.all("Baseline")
        for child in baselines:
            if outline.baseline:
                _set_points(element, child, self._page_baseline(outline))
            else:
                element.remove(child)
        if outline.baseline and not baselines and element.name == "TextLine":
            element.insert(self._page_baseline(outline), after=element.all("AlternativeImage", "Coords"))

    def _retype(self, region: Element, kind: str) -> None:
        if not self._is_alto:
            region.set(_page_type(kind, region.get("custom")))
            return
        labelled = {tag.get("ID") for tags in self.tree.root.all("Tags") for tag in tags.children if tag.get("LABEL")}
        others = [ref for ref in region.get("TAGREFS").split() if ref not in labelled]
        region.set({"TAGREFS": " ".join([*others, *([self._tag(kind)] if kind else [])]) or None})

    def _tag(self, kind: str) -> str:
        """The id of an ALTO file's tag for a type of region, which is added if it is new."""
        tags = next(iter(self.tree.root.all("Tags")), None)
        if tags is None:
            tags = self.tree.new("Tags", {})
            before = self.tree.root.children[: self.tree.root.children.index(self.tree.root.all("Layout")[0])]
            self.tree.root.insert(tags, after=before)
        known = next((tag.get("ID") for tag in tags.children if tag.get("LABEL") == kind), None)
        if known is None:
            known = self.tree.free_id("region_type")
            tags.insert(self.tree.new("OtherTag", {"ID": known, "LABEL": kind}), after=tags.children)
        return known


def _set_points(parent: Element, child: Element, new: Element) -> None:
    """Give a child the points of a new one, which takes its place if they are not written in the same way."""
    is_shape = [part.name for part in child.children] == [part.name for part in new.children] != []
    part, model = (child.children[0], new.children[0]) if is_shape else (child, new)
    if model.attributes and model.attributes.keys() <= part.attributes.keys():
        part.set(model.attributes)
    else:
        parent.content[parent.content.index(child)] = new


def _arrange(container: Element, items: Sequence[Element]) -> None:
    """Make these the lines of a container, in their order, where its lines are; ranked if one of them has a rank."""
    slots = container.all("TextLine")
    for slot in slots[len(items) :]:
        container.remove(slot)
    places = [container.content.index(slot) for slot in slots[: len(items)]]
    for place, item in zip(places, items, strict=False):
        container.content[place] = item
    last = {"TextEquiv", "TextStyle", "CornerPts"}
    before = items[: len(places)] or [child for child in container.children if child.name not in last]
    for item in items[len(places) :]:
        container.insert(item, after=before)
        before = [item]
    if any(_rank(item) < _NO_RANK for item in items):
        for rank, item in enumerate(items):
            if _rank(item) != rank:
                kept = _RANK.sub("", item.get("custom")).strip()
                item.set({"custom": f"readingOrder {{index:{rank};}} {kept}".strip()})


def _rank(element: Element) -> int:
    match = _RANK.search(element.get("custom"))
    return int(match[1]) if match and match[1] else _NO_RANK


def _page_type(kind: str, custom: str) -> dict[str, str | None]:
    """The attributes of a PAGE region of a type: its own, or for other types Transkribus' `structure`."""
    rest = re.sub(r"\s*structure\s*\{[^}]*\}", "", custom).strip()
    is_known = kind in REGION_TYPES
    structure = custom_kind(kind) if kind and (not is_known or rest != custom.strip()) else ""
    return {"type": kind if is_known else None, "custom": f"{rest} {structure}".strip() or None}
