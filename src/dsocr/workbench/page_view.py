"""The page with the outlines of its lines, and small images of all pages; their other halves are in the browser."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nicegui import events, ui

from dsocr.workbench.dialogs import Translate
from dsocr.workbench.outline_editing import corners
from dsocr.workbench.store import StoredLine, StoredPage, StoredRegion

_VIEW_LABELS = (
    *("page", "view", "canvas", "zoomIn", "zoomOut", "fitPage", "fitLine", "rotate", "invert", "adjust", "contrast"),
    *("brightness", "read", "shape", "drawLine", "lineBelow", "knife", "merge", "drawRegion", "remove", "findAgain"),
    *("earlier", "later", "kind", "assign", "noRegion", "hint_line", "hint_region", "hint_knife", "hint_chosen"),
    *("hint_choose",),
)
_KINDS = (
    *("paragraph", "heading", "marginalia", "page-number", "header", "footer", "caption", "footnote"),
    *("signature-mark", "catch-word", "drop-capital", "other"),
)
"""The types of PAGE's regions that occur in handwriting."""


class PageView(ui.element, component="page_view.js"):
    """A page image to zoom, turn and click in, and the shapes on it to draw and change.

    `on_pick` gets a clicked point in pixels of the page, `on_select` the number of a clicked line while shapes are
    changed, and `on_edit` what is to be done with them.
    """

    def __init__(
        self,
        translate: Translate,
        on_pick: Callable[[float, float], None],
        on_select: Callable[[int], None],
        on_edit: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        super().__init__()
        ui.add_css(Path(__file__).with_name("page_view.css"))
        labels: dict[str, Any] = {name: translate(f"view_{name}") for name in _VIEW_LABELS}
        labels["kinds"] = {kind: translate(f"region_{kind}") for kind in _KINDS}
        self._props.update({"labels": labels, "kinds": _KINDS, "answered": 0})
        self._props.update({"page": {"number": 0, "width": 1, "height": 1}, "lines": [], "regions": []})

        def pick(event: events.GenericEventArguments) -> None:
            if "line" in event.args:
                on_select(int(event.args["line"]))
            else:
                on_pick(float(event.args["x"]), float(event.args["y"]))

        async def edit(event: events.GenericEventArguments) -> None:
            try:
                await on_edit(event.args)
            finally:
                self._props["answered"] += 1

        self.on("pick", pick)
        self.on("edit", edit)

    def show(
        self, page: StoredPage, lines: Sequence[StoredLine], regions: Sequence[StoredRegion], selected: int
    ) -> None:
        """Show a page; the browser brings the selected line into view when it becomes another."""
        self._props.update(
            {
                "page": {"number": page.number, "width": page.width, "height": page.height},
                "lines": [_shape(line) for line in lines],
                "regions": [_region(region) for region in regions],
                "selected": selected,
            }
        )


def _shape(line: StoredLine) -> Mapping[str, Any]:
    return {
        "number": line.number,
        "version": line.version,
        "state": line.state.value,
        "polygon": line.outline.polygon or corners(line.outline.box),
        "baseline": line.outline.baseline,
        "region": line.region,
    }


def _region(region: StoredRegion) -> Mapping[str, Any]:
    polygon = region.outline.polygon or corners(region.outline.box)
    return {"number": region.number, "version": region.version, "kind": region.kind, "polygon": polygon}


class PageOverview(ui.element, component="page_overview.js"):
    """Small images of all pages with their progress; `on_pick` gets the number of a clicked page.

    The browser loads the list, and the images that it shows, only while they are visible.
    """

    def __init__(self, translate: Translate, on_pick: Callable[[int], None]) -> None:
        super().__init__()
        self._props["labels"] = {"pages": translate("view_pages"), "of": translate("view_of")}
        self.on("pick", lambda event: self._handle(event, on_pick))

    def show(self, page: int, stamp: int) -> None:
        """Mark a page; another `stamp` means that progress may have changed."""
        self._props.update({"page": page, "stamp": stamp})

    @staticmethod
    def _handle(event: events.GenericEventArguments, on_pick: Callable[[int], None]) -> None:
        on_pick(int(event.args["page"]))
