"""DSOCR-HW: train handwriting recognition on your own archive.

    dataset = dsocr.prepare("scans/", "data/mine")
    run = dsocr.train(dataset=dataset, output="runs/mine")
    print(run.evaluate())
    reader = dsocr.load("runs/mine")

Names are loaded when they are used, so `import dsocr` is fast and never imports torch. `__init__.pyi` lists them, for
type checkers too.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_MODULE_OF = {name: module for module, name in re.findall(r"^from (\S+) import (\w+)", _STUB, re.MULTILINE)}

__all__ = ["__version__", *sorted(_MODULE_OF)]

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'dsocr' has no attribute {name!r}")
        value = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
