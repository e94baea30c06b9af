"""The last feed-forward block of the decoder, computed where something is learnt and nowhere else.

What it makes of any other position reaches no logits that are wanted. Of a line that is an eighth of the work in a
decoder with as few layers as `nano` has. Shapes: `B` batch, `T` tokens, `L` learnt positions, `D` width.
"""

from typing import Any

from torch import Tensor
from transformers import PreTrainedModel


class LastBlock:
    """Two hooks on the last block of a network, which leave it alone where logits are wanted everywhere."""

    def __init__(self, network: PreTrainedModel) -> None:
        self._positions: Tensor | None = None
        self._size: tuple[int, ...] = ()
        self._gathered = False
        network.register_forward_pre_hook(self._remember, with_kwargs=True)
        block = network.model.language_model.layers[-1].mlp
        block.register_forward_pre_hook(self._gather)
        block.register_forward_hook(self._scatter)

    def _remember(self, network: Any, args: Any, inputs: dict[str, Any]) -> None:
        """Which positions (B, L) get logits; kept for the backward pass, which may compute the block again."""
        kept = inputs.get("logits_to_keep")
        self._positions = kept if isinstance(kept, Tensor) and kept.dim() == 2 else None
        self._size = tuple(inputs["input_ids"].shape) if self._positions is not None else ()

    def _gather(self, block: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor] | None:
        (hidden,) = inputs
        # The network's model may also be called for something else.
        self._gathered = self._positions is not None and tuple(hidden.shape[:2]) == self._size
        return (hidden.gather(1, self._rows(hidden)),) if self._gathered else None

    def _scatter(self, block: Any, inputs: tuple[Tensor, ...], made: Tensor) -> Tensor | None:
        if not self._gathered:
            return None
        return made.new_zeros(*self._size, made.shape[-1]).scatter(1, self._rows(made), made)

    def _rows(self, like: Tensor) -> Tensor:
        assert self._positions is not None
        return self._positions.unsqueeze(-1).expand(-1, -1, like.shape[-1])
