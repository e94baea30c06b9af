"""Whether an adapter can be read with, as files tell; loads no network, nor what one needs."""

from pathlib import Path

from dsocr.errors import ModelError
from dsocr.model.finding import base_at_hand
from dsocr.runs import READING, ReadingSettings


def demand_readable(adapter: Path) -> ReadingSettings:
    """The settings to read with. Raises RunError where they are damaged, ModelError where their base is nowhere."""
    settings = ReadingSettings.load(adapter)
    try:
        base_at_hand(settings.base, settings.base_revision)
    except ModelError as error:
        hint = f"{error.hint}; where the base lies in another folder, name it as `base` in {adapter / READING}"
        raise ModelError(error.message, where=error.where, hint=hint) from error
    return settings
