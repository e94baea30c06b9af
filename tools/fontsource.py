"""Load faces from npm packages `@fontsource/<name>`, unpacked side by side in one folder; none is shipped.

Their Cyrillic files hold letters only, so a word is drawn in runs, each from the file that has its characters.
"""

import json
from functools import cache
from pathlib import Path

from render import Face


def load_face(folder: Path, weight: int = 400, *, slope: str = "normal", capitals_only: bool = False) -> Face:
    """A face of an unpacked @fontsource package, e.g. `fonts/caveat`."""
    files = [
        path
        for subset in ("latin", "cyrillic", "latin-ext", "cyrillic-ext")
        if (path := folder / "files" / f"{folder.name}-{subset}-{weight}-{slope}.woff2").is_file()
    ]
    if not files:
        raise FileNotFoundError(f"{folder} holds no @fontsource files of weight {weight}, {slope}")
    characters = [frozenset(map(chr, _character_map(path))) for path in files]
    name = f"{folder.name}-{weight}" + ("" if slope == "normal" else f"-{slope}")
    return Face(name, tuple(files), tuple(characters), capitals_only)


@cache
def _character_map(path: Path) -> frozenset[int]:
    cache = path.with_suffix(".cmap.json")
    if not cache.is_file():
        from fontTools.ttLib import TTFont  # in the extra `tools`

        cache.write_text(json.dumps(sorted(TTFont(path, lazy=True).getBestCmap())), encoding="utf-8")
    return frozenset(json.loads(cache.read_text(encoding="utf-8")))
