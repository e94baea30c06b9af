"""Where the files that ship with the package lie: beside it in a clone, inside it in a wheel."""

from importlib import resources
from pathlib import Path

from dsocr.errors import DataError


def shipped(name: str) -> Path:
    """A shipped file or folder, by its path in the project, e.g. `configs/demo.yaml`."""
    package = Path(str(resources.files("dsocr")))
    for root in (package / "shipped", package.parents[1]):
        if (root / name).exists():
            return root / name
    raise DataError(f"the shipped {name} is missing", hint="install dsocr again, or work in a clone of the project")
