"""What watches over a generation step by step: loops forbidden, loops stopped, and how sure each choice was.

Shapes: `B` rows of a batch, `T` tokens so far, prompt included, `V` the vocabulary. Nothing here waits for the device
at every step, and of the (B, V) scores only those of one step are held.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers.generation.logits_process import LogitsProcessor
from transformers.generation.stopping_criteria import StoppingCriteria

_EVERY = 16
"""Tokens between two looks for a loop: a loop is stopped so many tokens late at most."""


class NoRepeatNgram(LogitsProcessor):  # type: ignore[misc]
    """Forbids an n-gram of written tokens to come back within the last `window` ones, as vLLM's processor does.

    It does not look at the prompt. `spared` tokens are never forbidden, such as the tags of a table's cells.
    """

    def __init__(self, size: int, window: int, *, prompt: int, spared: Sequence[int] = ()) -> None:
        self._size, self._window, self._prompt, self._spared = size, window, prompt, list(spared)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The scores (B, V), minus infinity where the token would end an n-gram a second time."""
        written = input_ids[:, self._prompt :][:, -self._window :]
        length = written.shape[1]
        if length < self._size:
            return scores
        prefix = written[:, length + 1 - self._size :]
        grams = written.unfold(1, self._size, 1)
        again = (grams[..., :-1] == prefix[:, None]).all(-1)
        forbidden = torch.zeros_like(scores).scatter_add_(1, grams[..., -1], again.to(scores.dtype))
        forbidden[:, self._spared] = 0
        return scores.masked_fill(forbidden > 0, -torch.inf)


class BeforeGuards(LogitsProcessor):  # type: ignore[misc]
    """Holds the model's own scores of this step; stands before whatever changes them, which must not do so in place."""

    def __init__(self) -> None:
        self.scores: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The scores, unchanged."""
        self.scores = scores
        return scores


class Choices(StoppingCriteria):  # type: ignore[misc]
    """Writes down, for each chosen token, its log probability and whether the model would have chosen another one."""

    def __init__(self, before: BeforeGuards) -> None:
        self._before = before
        self._log_probabilities: list[Tensor] = []
        self._overruled: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: object, **kwargs: object) -> Tensor:
        """Never stops a row."""
        own = self._before.scores
        assert own is not None, "the processor runs before"
        chosen = own.gather(1, input_ids[:, -1:]).squeeze(1)
        self._log_probabilities.append(chosen - own.logsumexp(1))
        self._overruled.append(chosen < own.amax(1))
        self._before.scores = None
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

    def by_row(self) -> tuple[list[list[float]], list[list[bool]]]:
        """Of each row, the log probabilities and whether another token was overruled, a value for every step."""
        log_probabilities = torch.stack(self._log_probabilities, 1).tolist()
        return log_probabilities, torch.stack(self._overruled, 1).tolist()


class StopLoops(StoppingCriteria):  # type: ignore[misc]
    """Ends a row whose text has run into a loop, while the others go on; `stopped` says after how many tokens."""

    def __init__(self, loops: Callable[[list[int]], bool], *, prompt: int, end: int) -> None:
        self._loops, self._prompt, self._end = loops, prompt, end
        self.stopped: dict[int, int] = {}
        self._done: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: object, **kwargs: object) -> Tensor:
        """True for each row that is to end."""
        if self._done is None:
            self._done = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        length = input_ids.shape[1] - self._prompt
        if length % _EVERY:
            return self._done
        for row, ids in enumerate(input_ids[:, self._prompt :].tolist()):
            if row not in self.stopped and self._end not in ids and self._loops(ids):
                self.stopped[row] = length
                self._done[row] = True
        return self._done.clone()
