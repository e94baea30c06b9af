"""How text is generated: settings alone, so that whoever hands them on needs no torch."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Generation:
    """How text is generated; 0 as `no_repeat_ngram_size` switches the guard off.

    The guard forbids an n-gram of tokens to come back within the last `no_repeat_ngram_window` tokens. It spares the
    tokens of `no_repeat_ngram_whitelist`, named by their text; one that a base does not have is never written there.
    `beams` over 1 searches for the likeliest text. `look_ahead` batches are sorted by length before they are read.
    """

    max_new_tokens: int = 256
    no_repeat_ngram_size: int = 20
    no_repeat_ngram_window: int = 90
    samples_per_batch: int = 16
    no_repeat_ngram_whitelist: Sequence[str] = ("<td>", "</td>")
    beams: int = 1
    look_ahead: int = 8

    def as_dict(self) -> dict[str, Any]:
        """The settings as they stand in a run folder and on a scorecard."""
        return asdict(self) | {"no_repeat_ngram_whitelist": list(self.no_repeat_ngram_whitelist)}
