"""What lies in every export beside its weights: the settings to read with, and its card."""

from pathlib import Path

from dsocr.model.export_target import CARD
from dsocr.model.exported import Exported
from dsocr.model.model_card import model_card


def write_beside(draft: Path, export: Exported, out: Path) -> None:
    """Lay the card and the settings to read with beside what is exported; `out` is where the draft will be."""
    export.settings.save(draft)
    (draft / CARD).write_text(model_card(export, Path(out.resolve().name)), encoding="utf-8", newline="\n")
