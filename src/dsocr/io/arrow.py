"""pyarrow as it is used here, imported at the first use: that takes a third of a second, and 170 MB on the disk."""

from importlib import import_module
from typing import Any

from dsocr.errors import not_installed


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        package, _, _ = map(import_module, ("pyarrow", "pyarrow.compute", "pyarrow.parquet"))
    except ModuleNotFoundError as error:
        raise not_installed("Parquet", "pyarrow", "parquet") from error
    return getattr(package, name)
