"""The family of networks that write a text token by token: losses, checks and reading."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from PIL import Image

from dsocr.models.family import IGNORED, UNWRITABLE, Batch, Check, Family
from dsocr.models.generation import Decoded, Generation

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel


_SHOWN_TOKENS = 48
_OTHER_TOKENIZER = "the tokenizer is another base's: download the base again"
_CODE_FAULT = "this is no setting: the base's files do not match its config.json, or the code is wrong"


@dataclass(frozen=True, slots=True)
class TokenFamily(Family):
    """Networks that write a text token by token."""

    def limit(self, generation: Generation) -> Generation:
        """Return the settings within the network's limits."""
        return generation

    def prepare_training(
        self, model: Any, network: "PreTrainedModel", *, compile_layers: bool, checkpoint_activations: bool
    ) -> None:
        """Compile decoder and vision towers, whose tensors keep their names, or recompute activations, if wanted."""
        if compile_layers:
            for name, module in model.named_modules():
                if name.endswith((".language_model", ".vision_tower")):
                    module.compile()
        if checkpoint_activations:
            # Reentrant checkpointing needs inputs with gradients, which would draw frozen vision towers into the
            # backward pass.
            model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
            model.disable_input_require_grads()
            model.config.use_cache = False

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
        batch = processor.collate(samples)
        images = processor.image_inputs(samples, model, model.dtype)
        return [
            check_labels(batch, texts, processor),
            self.check_tokens(batch, processor, int(model.config.get_text_config().vocab_size)),
            check_image_slots(model, {"input_ids": batch["input_ids"], **images}, processor),
        ]

    def check_tokens(self, batch: Mapping[str, Any], processor: Any, vocabulary_size: int) -> Check:
        """Check that a batch has only ids that the base knows."""
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


def check_labels(batch: Mapping[str, Any], texts: Sequence[str], processor: Any) -> Check:
    """Check that the labels of a batch are its texts and their end tokens; the details show each sample's tokens."""
    from dsocr.models.batch import aligned_labels

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


def check_prompt(batch: Mapping[str, Any], processor: Any, vocabulary_size: int) -> Check:
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


def check_image_slots(model: Any, batch: Mapping[str, Any], processor: Any) -> Check:
    """Check that the ids have as many image tokens as the vision towers make features."""
    import torch

    model.eval()
    images = {name: value for name, value in batch.items() if name not in ("input_ids", "attention_mask", "labels")}
    with torch.no_grad():
        outputs = model.get_image_features(**images).pooler_output
    features = sum(output.numel() for output in outputs) // model.config.get_text_config().hidden_size
    slots = int((batch["input_ids"] == processor.image_token_id).sum())
    if features != slots:
        return Check("image slots", "error", f"{slots} image slots for {features} features", _CODE_FAULT)
    return Check("image slots", "ok", f"{slots} image slots for as many features, in {len(batch['input_ids'])} samples")
