"""An HTTP server that reads images for other programs. Importing it loads neither FastAPI nor torch."""

from pathlib import Path

from dsocr.runs import RunFolder


def adapter_folder(path: Path) -> Path:
    """The folder of weights of a run, of an adapter, or of a shipped base that reads as it is."""
    return RunFolder.to_read_with(path).adapter


def adapter_name(path: Path) -> str:
    """The name that clients use for an adapter: that of its run folder."""
    path = path.resolve()
    return path.parent.name if path.name == "adapter" else path.name
