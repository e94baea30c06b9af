"""The page with the outlines of its lines, and small images of all pages; their other halves are in the browser."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nicegui import events, ui

from dsocr.workbench.dialogs import Translate
from dsocr.workbench.store import StoredLine, StoredPage, corners

_VIEW_LABELS = (
    *("page", "view", "canvas", "zoomIn", "zoomOut", "fitPage", "fitLine", "rotate", "invert", "adjust", "contrast"),
    *("brightness", "read", "shape"),
)


class PageView(ui.element, component="page_view.js"):
    """A page image to zoom, turn and click in; `on_pick` gets a clicked point in pixels of the page."""

    def __init__(self, translate: Translate, on_pick: Callable[[float, float], None]) -> None:
        super().__init__()
        ui.add_css(Path(__file__).with_name("page_view.css"))
        self._props["labels"] = {name: translate(f"view_{name}") for name in _VIEW_LABELS}
        self._props.update({"page": {"number": 0, "width": 1, "height": 1}, "lines": []})
        self.on("pick", lambda event: on_pick(float(event.args["x"]), float(event.args["y"])))

    def show(self, page: StoredPage, lines: Sequence[StoredLine], selected: int) -> None:
        """Show a page; the browser brings the selected line into view when it becomes another."""
        self._props.update(
            {
                "page": {"number": page.number, "width": page.width, "height": page.height},
                "lines": [_shape(line) for line in lines],
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
    }


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
