"""The frame of every page of ours: one file that holds its style, its script and its pictures, and fetches nothing.

Its policy forbids whatever is not in it, and every script but our own. Whoever fills it escapes every text.
"""

import base64
import hashlib
import io
from html import escape
from importlib import resources

from PIL import Image

STYLE = "templates/base.css"
"""The colours, the print rules and the plain elements of all pages."""


def render_frame(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """A whole page: `title` is plain text, `body` is HTML; `style` comes after that of all pages."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    scripts = f"; script-src 'sha256-{digest}'" if script else ""
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'{scripts}"
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{packaged('dsocr', STYLE)}{style}</style>"
    )
    end = f"\n<script>{script}</script>" if script else ""
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}{end}\n</body></html>\n'


def packaged(package: str, name: str) -> str:
    """The text of a style or a script that lies in a package."""
    return (resources.files(package) / name).read_text(encoding="utf-8")


def picture(image: Image.Image, *, alt: str = "", quality: int = 75) -> str:
    """An image as part of a page, in JPEG, which every browser shows."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    data = base64.b64encode(file.getvalue()).decode("ascii")
    size = f'width="{image.width}" height="{image.height}"'
    return f'<img alt="{escape(alt)}" {size} src="data:image/jpeg;base64,{data}">'
