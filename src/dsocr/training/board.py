"""What TensorBoard is shown of a training: curves, and the same few validation lines at every reading.

Texts go there as markdown and images without any, because no font is sure to be there that has Cyrillic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter

from dsocr.evaluation.differences import marked_differences
from dsocr.evaluation.guard import GuardReading

LINES = 10
_LONGEST = 300
_HEADER = "| line | reference | prediction | [-left out-] {+added+} |\n|---|---|---|---|\n"


@dataclass(frozen=True, slots=True)
class ReadLine:
    """A validation sample as it was read; `seen` is what the model saw of it, (3, S, S) bytes."""

    id: str
    reference: str
    prediction: str
    seen: NDArray[np.uint8]


class Board:
    """Writes event files into a folder; steps from `purge_step` on are forgotten there, as a resumed run makes them."""

    def __init__(self, folder: Path, *, purge_step: int) -> None:
        self._writer = SummaryWriter(str(folder), purge_step=purge_step)

    def curve(self, group: str, values: Mapping[str, float | None], step: int) -> None:
        """One point of each curve; a value that is not known draws none."""
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(f"{group}/{name}", value, step)

    def lines(self, lines: Sequence[ReadLine], step: int) -> None:
        """The lines' images, and beside them a table of what was read in them."""
        if not lines:
            return
        self._writer.add_text("validation/lines", lines_table(lines), step)
        for place, line in enumerate(lines, 1):
            self._writer.add_image(f"validation_lines/{place:02d}", line.seen, step)

    def guard(self, reading: GuardReading, step: int) -> None:
        """The guard set's CER beside the base's, and a text where it fell beyond its margin."""
        self.curve("guard", {"cer": reading.adapter.rate, "base_cer": reading.base.rate}, step)
        if reading.is_beyond:
            self._writer.add_text("guard/warning", _plain(reading.sentence, longest=1000), step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


def lines_table(lines: Sequence[ReadLine]) -> str:
    """A markdown table of the lines, numbered as their images are."""
    rows = [
        [f"{place:02d} {line.id}", line.reference, line.prediction, marked_differences(line.reference, line.prediction)]
        for place, line in enumerate(lines, 1)
    ]
    return _HEADER + "".join(f"| {' | '.join(map(_plain, row))} |\n" for row in rows)


def _plain(text: str, longest: int = _LONGEST) -> str:
    """Text that markdown shows as it stands, in one cell, cut where a loop fills pages."""
    text = " ".join(text.split())
    text = text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"
    return "".join(f"&#{ord(c)};" if c in "|*_`<>&\\~#[]{}!" else c for c in text)
