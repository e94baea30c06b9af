"""The family of networks that write a text token by token: losses, checks and reading."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from PIL import Image

from dsocr.models.family import UNWRITABLE, Batch, Check, Family
from dsocr.models.generation import Decoded, Generation

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class TokenFamily(Family):
    """Networks that write a text token by token."""

    def limit(self, generation: Generation) -> Generation:
        """Return the settings within the network's limits."""
        return generation

    def prepare_training(
        self, model: Any, network: "PreTrainedModel", *, compile_layers: bool, checkpoint_activations: bool
    ) -> None:
        """Compile the layers, or recompute activations in the backward pass, if wanted."""
        from dsocr.models import causal_training

        if compile_layers:
            causal_training.compile_layers(model)
        if checkpoint_activations:
            causal_training.checkpoint_activations(model)

    def prepare_batch(self, batch: Mapping[str, Any], dtype: "torch.dtype | None" = None) -> Batch:
        """Normalize bytes, and convert the pixels to a number format."""
        from dsocr.models.batch import normalize_pixels

        return normalize_pixels(batch, dtype)

    def logits(self, model: Any, batch: Mapping[str, Any]) -> "Tensor":
        """Return the logits (B, L, V) at the positions of a batch's labels."""
        inputs = {name: value for name, value in batch.items() if name not in ("labels", "shift_labels")}
        logits: Tensor = model(**inputs, use_cache=False).logits
        return logits

    def loss(self, model: Any, batch: Mapping[str, Any], num_items: "Tensor") -> "Tensor":
        """Return the sum of the cross-entropies of a batch's tokens over the number of tokens in the step."""
        from torch.nn.functional import cross_entropy

        logits = self.logits(model, batch).float()
        return cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum") / num_items

    def sample_losses(self, model: Any, batch: Mapping[str, Any]) -> list[float]:
        """Return the mean cross-entropy of a trained token for each sample of a batch."""
        import torch

        losses = []
        with torch.no_grad():
            for logits, labels in zip(self.logits(model, batch), batch["labels"], strict=True):
                kept = labels >= 0  # sample by sample: logits in float32 take much memory
                losses.append(float(torch.nn.functional.cross_entropy(logits[kept].float(), labels[kept])))
        return losses

    def uniform_loss(self, network: Any, processor: Any, samples: Sequence[Any]) -> float:
        """Return the loss of a guess over the whole vocabulary."""
        return math.log(network.config.get_text_config(decoder=True).vocab_size)

    def check_inputs(self, model: Any, processor: Any, samples: Sequence[Any], texts: Sequence[str]) -> list[Check]:
        """Check labels, the tokens' numbers, and image slots."""
        from dsocr.models.causal_training import check_image_slots, check_labels

        batch = processor.collate(samples)
        images = processor.image_inputs(samples, model, model.dtype)
        return [
            check_labels(batch, texts, processor),
            self.check_tokens(batch, processor, int(model.config.get_text_config().vocab_size)),
            check_image_slots(model, {"input_ids": batch["input_ids"], **images}, processor),
        ]

    def check_tokens(self, batch: Mapping[str, Any], processor: Any, vocabulary_size: int) -> Check:
        """Check that a batch has only ids that the base knows."""
        from dsocr.models.causal_training import check_vocabulary

        return check_vocabulary(batch, vocabulary_size)

    def answer_logits(self, network: Any, processor: Any, sample: Any, ids: Sequence[int]) -> "Tensor":
        """Return the logits (n, V) at which each of the generated `ids` was chosen.

        One sample at a time, because the scores over the whole vocabulary are in memory for all of its tokens.
        """
        batch = processor.collate([replace(sample, answer_ids=tuple(ids))])
        return self.logits(network, processor.on_device(batch, network, network.dtype))[0]

    def log_likelihoods(
        self, network: Any, processor: Any, images: "Sequence[Image.Image]", texts: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """Return the log probability of each text of each image, with its end token, by teacher forcing."""
        network.eval()
        results = []
        for image, candidates in zip(images, texts, strict=True):
            unknown = [processor.unknown_characters(text) for text in candidates]
            known = [
                "".join(character for character in text if character not in missing)
                for text, missing in zip(candidates, unknown, strict=True)
            ]
            batch = processor.collate([processor.encode(image, text) for text in known])
            counts = (batch["labels"] >= 0).sum(1).tolist()
            losses = self.sample_losses(network, processor.on_device(batch, network, network.dtype))
            missing = [len(text) - len(kept) for text, kept in zip(candidates, known, strict=True)]
            results.append([m * UNWRITABLE - loss * n for m, loss, n in zip(missing, losses, counts, strict=True)])
        return results

    def decode(self, network: Any, processor: Any, samples: Sequence[Any], generation: Generation) -> list[Decoded]:
        """Generate a text for each sample of a batch, token by token."""
        from dsocr.models.causal_decoding import decode

        return decode(network, processor, samples, self.limit(generation))

    def retry_loops(
        self,
        network: Any,
        processor: Any,
        generation: Generation,
        images: "Sequence[Image.Image]",
        decoded: Sequence[Decoded],
    ) -> list[Decoded]:
        """Read the images whose text loops again: with a stricter guard, then at another resolution if there is one."""
        from dsocr.models.causal_decoding import retry_loops

        return retry_loops(network, processor, self.limit(generation), images, decoded)
