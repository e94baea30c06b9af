"""Render self-contained HTML pages from Jinja2 templates, with matplotlib plots as inline SVG.

A page is one file: its style, script and images are embedded, and its content security policy forbids everything else.
A package keeps its templates in `templates/`; they extend `dsocr/templates/base.html.jinja`. Every value is escaped.
"""

import base64
import hashlib
import io
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape
from PIL import Image

from dsocr.document import PackedImage
from dsocr.errors import DataError
from dsocr.images import MAX_PAGE_PIXELS, open_image
from dsocr.text import percentage

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.axes import Axes

RUN_COLOURS = ("#1f5fa8", "#c2501c", "#2b8043", "#8a3fa0", "#7a6a10", "#b02a5b", "#188a8a", "#555555")
"""Colours of runs and readings on a light background; `base.css` has their counterparts for a dark one."""
QUIET, GRID, BAR = "#5f666d", "#d9dce0", "#5b84b8"

PAPER = "#fdfdfb"
_NAMED = {colour: f"run{place}" for place, colour in enumerate(RUN_COLOURS)}
_NAMED |= {QUIET: "quiet", GRID: "line", BAR: "bar", PAPER: "paper"}
_VARIABLES = {colour: f"var(--{name}, {colour})" for colour, name in _NAMED.items()}

_RC: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GRID,
    "axes.grid": True,
    "axes.labelcolor": QUIET,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": QUIET,
    "svg.fonttype": "none",
    "svg.hashsalt": "dsocr",
    "text.parse_math": False,
    "xtick.color": GRID,
    "xtick.labelcolor": QUIET,
    "ytick.color": GRID,
    "ytick.labelcolor": QUIET,
}
_NOTHING = Markup()
_KEPT = "\n\N{NO-BREAK SPACE}\u200c\u200d"
"""Not printable, but harmless; the joiners belong to the spelling of some scripts."""


def render(package: str, template: str, *, style: str = "", script: str = "", **context: Any) -> str:
    """Render a template of a package; `style` and `script` name files beside it that become part of the page."""
    folder = f"{package.replace('.', '/')}/templates".removeprefix("dsocr/")

    def source(path: str) -> str:
        return files("dsocr").joinpath(path).read_text(encoding="utf-8")

    code = source(f"{folder}/{script}") if script else ""
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode("ascii")
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    page = {
        "policy": policy + (f"; script-src 'sha256-{digest}'" if script else ""),
        "style": Markup(source("templates/base.css") + (source(f"{folder}/{style}") if style else "")),  # noqa: S704
        "script": Markup(code),  # noqa: S704
    }
    return _environment().get_template(f"{folder}/{template}").render(page | context)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("dsocr", ""),
        autoescape=select_autoescape(disabled_extensions=("md.jinja",), default=True),
        undefined=StrictUndefined,
        finalize=printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"percent": percent, "number": lambda value: f"{value:,}", "counted": counted}
    return environment


def printable(value: Any) -> Any:
    """Replace control characters in a text, which could turn the page around; other values stay."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(sign if sign.isprintable() or sign in _KEPT else "\ufffd" for sign in value)


def percent(value: float | None, digits: int = 1) -> str:
    """Format a fraction in percent; None or infinity, where there is nothing to divide by, is "no text"."""
    return percentage(math.inf if value is None else value, digits).replace(" %", "\N{NO-BREAK SPACE}%")


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: "1 line", "2,000 lines"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def image_tag(image: Image.Image, *, alt: str = "", quality: int = 75) -> Markup:
    """Embed an image as JPEG, which every browser shows."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    data = base64.b64encode(file.getvalue()).decode("ascii")
    tag = Markup('<img alt="{}" width="{}" height="{}" src="data:image/jpeg;base64,{}">')
    return tag.format(printable(alt), image.width, image.height, data)


def run_colour(place: int) -> str:
    """Return the colour of the run or reading at this place."""
    return RUN_COLOURS[place % len(RUN_COLOURS)]


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: title, function that draws it, and size in inches."""

    title: str
    paint: "Callable[[Axes], None]"
    size: tuple[float, float] = (5.0, 2.3)

    def svg(self) -> Markup:
        """Draw it as SVG for a page, whose style has its colours in light and dark; without matplotlib, say so."""
        if find_spec("matplotlib") is None:
            return Markup("<p>{} needs matplotlib: pip install &quot;dsocr-hw[train]&quot;</p>").format(self.title)
        head, _, content = self._draw().decode("utf-8").partition("<svg")[2].partition(">")
        box = head[head.index("viewBox=") :].split('"')[1]
        content = re.sub("#[0-9a-f]{6}", lambda match: _VARIABLES.get(match[0], match[0]), content)
        content = re.sub(r"<style.*?</style>", "", content.replace("xlink:href", "href"), count=1, flags=re.DOTALL)
        opening = f'<svg viewBox="{box}" role="img" aria-label="{escape(printable(self.title))}">'
        return Markup(opening + content)  # noqa: S704 matplotlib escapes its texts

    def _draw(self) -> bytes:
        import matplotlib as mpl
        from matplotlib.figure import Figure

        with mpl.rc_context(_RC), warnings.catch_warnings():
            # matplotlib's font lacks some scripts; the SVG is shown in the reader's fonts.
            warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
            figure, file = Figure(figsize=self.size), io.BytesIO()
            self.paint(figure.subplots())
            metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            figure.savefig(file, format="svg", metadata=metadata, transparent=True)
        return file.getvalue()


@dataclass
class Thumbnails:
    """Creates the thumbnails of one page, opening each file once.

    `largest` is the maximum width and height in pixels. Beyond `most_bytes` of HTML, a sentence replaces the image.
    """

    largest: tuple[int, int]
    most_bytes: int
    bytes: int = 0
    known: dict[Path | PackedImage, Markup] = field(default_factory=dict)

    def of(self, path: Path | PackedImage, *, alt: str = "", missing: Markup = _NOTHING) -> Markup:
        """The image as HTML, or `missing` if it cannot be opened."""
        if self.bytes > self.most_bytes:
            return Markup('<p class="quiet">image omitted to keep this page small</p>')
        if path not in self.known:
            try:
                image = open_image(path, max_pixels=MAX_PAGE_PIXELS)
                image.thumbnail(self.largest)
                self.known[path] = image_tag(image, alt=alt)
            except DataError:
                self.known[path] = missing
        self.bytes += len(self.known[path])
        return self.known[path]
