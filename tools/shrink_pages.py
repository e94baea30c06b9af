"""Reduce ALTO pages and their JPEG images to a fraction of their size, as `examples/copiste` was made.

    python tools/shrink_pages.py SOURCE examples/copiste --scale 0.5

SOURCE holds the folders `alto` and `jpg`. Coordinates and sizes in the ALTO files are scaled and rounded; everything
else in them stays as it is.
"""

import argparse
import re
from pathlib import Path

from PIL import Image

_NUMBER = re.compile(r'\b(HPOS|VPOS|WIDTH|HEIGHT)="(\d+)"')
_POINTS = re.compile(r'\b(POINTS|BASELINE)="([^"]*)"')


def shrink_alto(text: str, scale: float) -> str:
    """Return an ALTO document with all its coordinates multiplied by `scale`."""
    text = _NUMBER.sub(lambda found: f'{found[1]}="{round(int(found[2]) * scale)}"', text)
    return _POINTS.sub(
        lambda found: f'{found[1]}="{" ".join(str(round(float(part) * scale)) for part in found[2].split())}"', text
    )


def main() -> None:
    """Parse the command line and write the smaller pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--scale", type=float, default=0.5)
    parser.add_argument("--quality", type=int, default=75)
    options = parser.parse_args()
    for folder in ("alto", "jpg"):
        (options.output / folder).mkdir(parents=True, exist_ok=True)
    for file in sorted((options.source / "alto").glob("*.xml")):
        text = shrink_alto(file.read_text(encoding="utf-8"), options.scale)
        (options.output / "alto" / file.name).write_text(text, encoding="utf-8", newline="\n")
    for file in sorted((options.source / "jpg").glob("*.jpg")):
        with Image.open(file) as image:
            size = (round(image.width * options.scale), round(image.height * options.scale))
            small = image.resize(size, Image.Resampling.LANCZOS)
        small.save(options.output / "jpg" / file.name, "JPEG", quality=options.quality, optimize=True)


if __name__ == "__main__":
    main()
