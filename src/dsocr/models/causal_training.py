"""Preparation of a network that writes tokens for training, and checks of a batch."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from dsocr.models.batch import aligned_labels
from dsocr.models.family import IGNORED, Check
from dsocr.models.token_inputs import TokenProcessor

_SHOWN_TOKENS = 48
_OTHER_TOKENIZER = "the tokenizer is another base's: download the base again"
_CODE_FAULT = "this is no setting: the base's files do not match its config.json, or the code is wrong"


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


def check_labels(batch: Mapping[str, Any], texts: Sequence[str], processor: Any) -> Check:
    """Check that the labels of a batch are its texts and their end tokens; the details show each sample's tokens."""
    problems: list[str] = []
    details: list[str] = []
    labels = aligned_labels(dict(batch))
    columns = (batch["input_ids"].tolist(), labels.tolist(), batch["attention_mask"].tolist(), texts)
    for ids, learnt, present, text in zip(*columns, strict=True):
        problems += _label_problems(ids, learnt, present, text, processor)
        details += _describe_labels(ids, learnt, present, processor)
    if problems:
        message = f"labels are not the transcriptions: {'; '.join(dict.fromkeys(problems))}"
        fix = "this is no setting: the code that makes the batch is wrong, or its tokenizer.json"
        return Check("labels", "error", message, fix, tuple(details))
    count = int((labels != IGNORED).sum())
    message = f"{count} tokens of {len(texts)} samples are trained on: each transcription and its end token"
    return Check("labels", "ok", message, details=tuple(details))


def _label_problems(
    ids: Sequence[int], labels: Sequence[int], present: Sequence[int], text: str, processor: Any
) -> Iterator[str]:
    """Yield everything that is wrong with the labels of a sample."""
    trained = [place for place, label in enumerate(labels) if label != IGNORED]
    if not trained:
        yield "all positions are masked"
        return
    answer = [labels[place] for place in trained]
    if any(labels[place] != ids[place] for place in trained):
        yield "labels are not aligned with the input ids"
    if not all(present[place] for place in trained):
        yield "padding is trained on"
    if processor.image_token_id in answer:
        yield "image tokens are trained on"
    if trained[0] <= max((place for place, token in enumerate(ids) if token == processor.image_token_id), default=-1):
        yield "the prompt is trained on"
    if answer[-1] == processor.end_id:
        del answer[-1]
    else:
        yield "the end token is not trained on"
    decoded = processor.tokenizer.decode(answer, skip_special_tokens=False).removeprefix(processor.answer_start)
    if decoded != text and not processor.unknown_characters(text):  # for those, see `check_characters`
        yield f"got {decoded[:60]!r}, expected {text[:60]!r}"


def _describe_labels(
    ids: Sequence[int], labels: Sequence[int], present: Sequence[int], processor: Any
) -> Iterator[str]:
    """Yield a line for each stretch of a sequence: its kind, the number of tokens, and which they are."""

    def kind_of(place: int) -> str:
        if labels[place] != IGNORED:
            return "trained"
        return "masked" if present[place] else "padding"

    for kind, stretch in groupby(range(len(ids)), key=kind_of):
        tokens = [ids[place] for place in stretch]
        names: list[str] = []
        for token, same in groupby(tokens if kind != "padding" else ()):
            count = len(list(same))
            name = processor.tokenizer.decode([token], skip_special_tokens=False).replace("\n", "\\n")
            names += [f"{count} x {name}"] if token == processor.image_token_id else [name] * count
        if len(names) > _SHOWN_TOKENS:
            names = [*names[: _SHOWN_TOKENS - 8], "...", *names[-7:]]
        yield f"{kind:<8}{len(tokens):>5}  {'|'.join(names)}".rstrip()


def check_prompt(batch: Mapping[str, Any], processor: TokenProcessor, vocabulary_size: int) -> Check:
    """Check that each row starts with the begin token, has it once, and has only ids that the base knows."""
    begin = int(processor.tokenizer.bos_token_id)
    ids = batch["input_ids"]
    if not bool((ids[:, 0] == begin).all()) or not bool(((ids == begin).sum(1) == 1).all()):
        return Check("begin token", "error", "not every sample starts with exactly one begin token", _CODE_FAULT)
    vocabulary = check_vocabulary(batch, vocabulary_size)
    if vocabulary.verdict == "error":
        return vocabulary
    name = processor.tokenizer.decode([begin], skip_special_tokens=False)
    return Check("begin token", "ok", f"each sample starts with one {name}")


def check_vocabulary(batch: Mapping[str, Any], vocabulary_size: int) -> Check:
    """Check that a batch has only ids that the base knows."""
    largest = int(batch["input_ids"].max())
    if largest >= vocabulary_size:
        message = f"the tokenizer writes id {largest}, and the base has {vocabulary_size} tokens"
        return Check("vocabulary", "error", message, _OTHER_TOKENIZER)
    return Check("vocabulary", "ok", f"the base knows all tokens, up to id {largest} of {vocabulary_size}")


@torch.no_grad()
def check_image_slots(model: Any, batch: Mapping[str, Any], processor: Any) -> Check:
    """Check that the ids have as many image tokens as the vision towers make features."""
    model.eval()
    images = {name: value for name, value in batch.items() if name not in ("input_ids", "attention_mask", "labels")}
    outputs = model.get_image_features(**images).pooler_output
    features = sum(output.numel() for output in outputs) // model.config.get_text_config().hidden_size
    slots = int((batch["input_ids"] == processor.image_token_id).sum())
    if features != slots:
        return Check("image slots", "error", f"{slots} image slots for {features} features", _CODE_FAULT)
    return Check("image slots", "ok", f"{slots} image slots for as many features, in {len(batch['input_ids'])} samples")
