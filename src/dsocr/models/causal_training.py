"""How causal decoders are prepared for training: what is recomputed, compiled, or left out."""

from typing import Any

from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel


def checkpoint_activations(model: PreTrainedModel | PeftModel) -> None:
    """Recompute activations in the backward pass; frozen vision towers stay out of it."""
    # Reentrant checkpointing needs inputs with gradients, which would draw frozen vision towers into the backward pass.
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    model.disable_input_require_grads()
    model.config.use_cache = False


def compile_layers(model: PreTrainedModel | PeftModel) -> None:
    """Have torch compile the decoder and the vision towers at their first call; tensors keep their names."""
    for name, module in model.named_modules():
        if name.endswith((".language_model", ".vision_tower")):
            module.compile()


class SparseLastBlock:
    """Hooks that compute the last block's MLP only at positions that get logits.

    The loss and its gradients stay the same; where logits are wanted everywhere, the hooks do nothing.
    """

    def __init__(self, network: PreTrainedModel) -> None:
        self._positions: Tensor | None = None
        self._size: tuple[int, ...] = ()
        self._is_sparse = False
        network.register_forward_pre_hook(self._remember, with_kwargs=True)
        mlp = network.model.language_model.layers[-1].mlp
        mlp.register_forward_pre_hook(self._gather)
        mlp.register_forward_hook(self._scatter)

    def _remember(self, network: Any, args: Any, inputs: dict[str, Any]) -> None:
        """Keep the positions (B, L) that get logits, also for a backward pass that computes the block again."""
        kept = inputs.get("logits_to_keep")
        self._positions = kept if isinstance(kept, Tensor) and kept.dim() == 2 else None
        self._size = tuple(inputs["input_ids"].shape) if self._positions is not None else ()

    def _gather(self, block: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor] | None:
        (hidden,) = inputs
        # The network's inner model may also be called directly.
        self._is_sparse = self._positions is not None and tuple(hidden.shape[:2]) == self._size
        return (hidden.gather(1, self._index(hidden)),) if self._is_sparse else None

    def _scatter(self, block: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        if not self._is_sparse:
            return None
        return output.new_zeros(*self._size, output.shape[-1]).scatter(1, self._index(output), output)

    def _index(self, hidden: Tensor) -> Tensor:
        assert self._positions is not None
        return self._positions.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
