"""Batches of samples of networks that write tokens, and texts generated from them, greedily or by beam search.

Each token has a score. A guard forbids repeated n-grams, and a criterion stops lines that loop anyway. Shapes: `B`
batch, `T` tokens, `S` side of the canvas, `s` side of a tile, `N` tiles of the whole batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation.logits_process import LogitsProcessor
from transformers.generation.stopping_criteria import StoppingCriteria

from dsocr.errors import ModelError, setting
from dsocr.models.family import IGNORED
from dsocr.models.generation import Decoded, Generation, ScoredText, TokenScore
from dsocr.runs import READING
from dsocr.text import is_looping

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CHECK_INTERVAL = 16
"""Tokens between two checks for a loop."""
_REPLACEMENT = "\ufffd"
"""How a tokenizer decodes bytes that are not a complete character."""
_MAX_BYTES = 4
"""The most tokens that one UTF-8 character can be spread over."""


@dataclass(slots=True)
class ImageFeatures:
    """The features of each image of a batch, which the native forward takes instead of pixels.

    Not frozen, because beam search in transformers repeats them in place.
    """

    pooler_output: list[Tensor] | Tensor
    deepstack_features: list[list[Tensor]] | None = None
    """What Qwen3-VL adds in its first layers: for each layer, the features of each image."""

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "ImageFeatures":
        """Move the features to a device."""
        return self._map(lambda image: image.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "ImageFeatures":
        """Copy the features to pinned memory."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "ImageFeatures":
        pooled = self.pooler_output
        return ImageFeatures(
            change(pooled) if isinstance(pooled, Tensor) else [change(image) for image in pooled],
            self.deepstack_features and [[change(image) for image in layer] for layer in self.deepstack_features],
        )


def collate(
    samples: Sequence[Any],
    pad_id: int,
    *,
    padding: Literal["left", "right"],
    dtype: torch.dtype | None = torch.float32,
    join_features: bool = False,
) -> dict[str, Any]:
    """Return `input_ids`, `attention_mask` (B, T), the samples' marks and images and, for training, `labels` (B, T).

    Pixels become `dtype`, or stay as they are with None. If the samples have features, `mm_encoder_outputs` replaces
    all pixels, of `join_features` as one tensor.

    Labels are `IGNORED` except for the transcription and its end token. Training pads right, generation left. Raises
    ModelError for samples with and without transcription, or with and without features, in one batch.
    """
    if len({bool(sample.answer_ids) for sample in samples}) != 1:
        raise ModelError("Samples with and without transcription cannot share a batch", code="batch-mixed")
    features = list_features(samples)
    rows = [(*sample.prompt_ids, *sample.answer_ids) for sample in samples]
    batch: dict[str, Any] = {
        "input_ids": pad_rows(rows, pad_id, padding),
        "attention_mask": pad_rows([(1,) * len(row) for row in rows], 0, padding),
    }
    for name in samples[0].marks:
        marks = [(*sample.marks[name], *(0,) * len(sample.answer_ids)) for sample in samples]
        batch[name] = pad_rows(marks, 0, padding)
    batch |= samples[0].stack_images(samples)
    if samples[0].answer_ids:
        labels = [(*(IGNORED,) * len(sample.prompt_ids), *sample.answer_ids) for sample in samples]
        batch["labels"] = pad_rows(labels, IGNORED, padding)
    if features:
        batch["mm_encoder_outputs"] = {"image": _join_features(features, join=join_features)}
    return batch if dtype is None else normalize_pixels(batch, dtype)


def list_features(samples: Sequence[Any]) -> list[Tensor]:
    """Return the features of samples, none if no sample has any. Raises ModelError if only some have."""
    features = [sample.features for sample in samples if sample.features is not None]
    if len(features) not in (0, len(samples)):
        raise ModelError("Samples with and without features cannot share a batch", code="batch-mixed")
    return features


def _join_features(features: Sequence[Tensor], *, join: bool) -> ImageFeatures:
    """Return features (n, D), or (n, 1 + layers, D) with those of later layers, as the native forward takes them."""
    if features[0].dim() == 2:
        return ImageFeatures(list(features))
    pooled = [image[:, 0] for image in features]
    deeper = [[image[:, layer] for image in features] for layer in range(1, features[0].shape[1])]
    if join:
        same = len({len(image) for image in pooled}) == 1
        return ImageFeatures(torch.stack(pooled) if same else torch.cat(pooled))
    return ImageFeatures(pooled, deeper or None)


def pad_rows(rows: Sequence[Sequence[int]], value: int, padding: Literal["left", "right"] = "right") -> Tensor:
    """Return rows of numbers as one tensor (B, T), the shorter ones filled with a value."""
    tensors = [torch.tensor(row, dtype=torch.int64) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value, padding_side=padding)


def drop_ignored_positions(batch: dict[str, Any]) -> dict[str, Any]:
    """Restrict `labels` to the positions with a loss, (B, L) with L the largest number of them in a sample.

    The network computes logits for `logits_to_keep` only, which saves most of the memory of a large vocabulary; the
    loss is the same. Call it while `labels` are on the CPU, so that no device has to be waited for.
    """
    following = pad(batch["labels"], (0, 1), value=IGNORED)[:, 1:]
    most = max(1, int((following != IGNORED).sum(1).max()))  # the network needs at least one position
    positions = (following == IGNORED).to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
    labels = following.gather(1, positions)
    return {**batch, "labels": labels, "shift_labels": labels, "logits_to_keep": positions}


def normalize_pixels(batch: Mapping[str, Any], dtype: torch.dtype | None = None) -> dict[str, Any]:
    """Convert a batch's pixels, by default to float32: bytes on their device, so that four times fewer are moved."""
    converted, dtype = dict(batch), dtype or torch.float32
    for name, value in batch.items():
        if isinstance(value, Tensor) and (value.dtype is torch.uint8 or value.is_floating_point()):
            if value.dtype is torch.uint8:  # to -1..1, with the authors' mean and standard deviation of 0.5
                value = value.to(torch.float32).div_(255).sub_(0.5).div_(0.5)
            converted[name] = value.to(dtype)
    return converted


class TokenSpans:
    """Find which characters of a text each token stands for, with one tokenizer; single tokens are cached.

    A text loses `start` if it begins with it.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", start: str = "") -> None:
        self._tokenizer = tokenizer
        self._start = start
        self._text_of = cache(lambda token: self.text([token]))

    def scored(
        self, ids: Sequence[int], log_probabilities: Sequence[float], overruled: Sequence[bool], *, ended: bool
    ) -> ScoredText:
        """Decode tokens and score them; if the text has `ended`, the last one is the end token."""
        content = ids[: len(ids) - ended]
        text = self.text(content)
        spans = self._spans(content, text)
        spans += [(len(text), len(text))] * ended
        scores = zip(spans, log_probabilities, overruled, strict=True)
        return ScoredText(text, tuple(TokenScore(*span, score, other) for span, score, other in scores))

    def text(self, ids: Sequence[int]) -> str:
        """Decode tokens."""
        # Without `skip_special_tokens`, which for some models would also drop table tags.
        text = str(self._tokenizer.decode(list(ids), skip_special_tokens=False))
        return text.removeprefix(self._start)

    def _spans(self, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
        """Return the span of each token in the text."""
        spans: list[tuple[int, int]] = []
        pieces: list[str] = []
        waiting: list[int] = []
        begin = whole = 0
        for token in ids:
            waiting.append(token)
            piece = self._text_of(token) if len(waiting) == 1 else self.text(waiting)
            start, whole = whole, len(piece.rstrip(_REPLACEMENT))
            in_part = whole < len(piece)
            spans.append((begin + min(start, whole), begin + len(piece)))
            if not in_part or len(waiting) == _MAX_BYTES:
                pieces.append(piece)
                begin, whole, waiting = begin + len(piece), 0, []
        pieces.append(self.text(waiting))
        if "".join(pieces) == text:
            return spans
        # A tokenizer that decodes a token differently in context than alone.
        lengths = [len(self.text(ids[:count])) for count in range(len(ids) + 1)]
        return [(min(start, end), end) for start, end in pairwise(lengths)]


class NoRepeatNgram(LogitsProcessor):  # type: ignore[misc]
    """Forbid repeating an n-gram of generated tokens within the last `window` ones, as vLLM's processor does.

    The prompt is ignored. `spared` tokens, such as the tags of a table's cells, are never forbidden.
    """

    def __init__(self, size: int, window: int, *, prompt: int, spared: Sequence[int] = ()) -> None:
        self._size, self._window, self._prompt, self._spared = size, window, prompt, list(spared)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores (B, V), minus infinity where the token would complete a repeated n-gram."""
        generated = input_ids[:, self._prompt :][:, -self._window :]
        length = generated.shape[1]
        if length < self._size:
            return scores
        prefix = generated[:, length + 1 - self._size :]
        ngrams = generated.unfold(1, self._size, 1)
        repeated = (ngrams[..., :-1] == prefix[:, None]).all(-1)
        forbidden = torch.zeros_like(scores).scatter_add_(1, ngrams[..., -1], repeated.to(scores.dtype))
        forbidden[:, self._spared] = 0
        return scores.masked_fill(forbidden > 0, -torch.inf)


class FiniteScores(LogitsProcessor):  # type: ignore[misc]
    """Notes whether all scores are finite, which they are not if float16 overflows."""

    def __init__(self) -> None:
        self._finite: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores unchanged."""
        self._finite.append(scores.isfinite().all())
        return scores

    def require(self, dtype: torch.dtype) -> None:
        """Raise ModelError if they are not; asked once, since each answer waits for the device."""
        if not torch.stack(self._finite).all():
            message = f"Network computes infinite or undefined numbers in {str(dtype).removeprefix('torch.')}"
            hint = f"set `precision` to bf16 or fp32 in {READING}, for training {setting('training.precision', 'fp32')}"
            raise ModelError(message, code="output-not-finite", hint=hint)


class ChosenScores(LogitsProcessor):  # type: ignore[misc]
    """Record each chosen token's log probability and whether the model would have chosen another one.

    Precedes processors that change the scores, which must not do so in place.
    """

    def __init__(self) -> None:
        self._scores: Tensor | None = None
        self._log_probabilities: list[Tensor] = []
        self._overruled: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores unchanged."""
        self._record(input_ids)
        self._scores = scores
        return scores

    def _record(self, input_ids: Tensor) -> None:
        if self._scores is not None:
            chosen = self._scores.gather(1, input_ids[:, -1:]).squeeze(1)
            self._log_probabilities.append(chosen - self._scores.logsumexp(1))
            self._overruled.append(chosen < self._scores.amax(1))

    def by_row(self, input_ids: Tensor) -> list[tuple[list[float], list[bool]]]:
        """Return each row's log probabilities and whether its tokens were overruled, for all generated tokens."""
        self._record(input_ids)
        columns = torch.stack(self._log_probabilities, 1).tolist(), torch.stack(self._overruled, 1).tolist()
        return list(zip(*columns, strict=True))


class StopLoops(StoppingCriteria):  # type: ignore[misc]
    """Stop rows whose text loops, while others continue; `stopped` holds their numbers of tokens."""

    def __init__(self, loops: Callable[[list[int]], bool], *, prompt: int, ends: Sequence[int]) -> None:
        self._loops, self._prompt, self._ends = loops, prompt, frozenset(ends)
        self.stopped: dict[int, int] = {}
        self._done: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: object, **kwargs: object) -> Tensor:
        """Return True for each row to stop."""
        if self._done is None:
            self._done = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        length = input_ids.shape[1] - self._prompt
        if length % _CHECK_INTERVAL:
            return self._done
        for row, ids in enumerate(input_ids[:, self._prompt :].tolist()):
            if row not in self.stopped and self._ends.isdisjoint(ids) and self._loops(ids):
                self.stopped[row] = length
                self._done[row] = True
        return self._done.clone()


@torch.inference_mode()
def decode(network: PreTrainedModel, processor: Any, samples: Sequence[Any], generation: Generation) -> list[Decoded]:
    """Generate a text for each sample of a batch, with its `TokenProcessor`. Leaves the network in evaluation mode."""
    network.eval()
    unread = [sample.without_text() for sample in samples]
    batch = processor.on_device(processor.collate(unread, padding="left"), network, network.dtype)
    batch = processor.family.encode_images(network, batch)
    spans = TokenSpans(processor.tokenizer, processor.answer_start)
    prompt, ends = batch["input_ids"].shape[1], processor.end_ids
    chosen, stop = ChosenScores(), StopLoops(lambda ids: is_looping(spans.text(ids)), prompt=prompt, ends=ends)
    is_greedy, finite = generation.num_beams == 1, FiniteScores()
    rows = network.generate(
        **batch,
        generation_config=GenerationConfig(
            do_sample=False,
            num_beams=generation.num_beams,
            use_cache=True,
            max_new_tokens=generation.max_new_tokens,
            bos_token_id=processor.tokenizer.bos_token_id,
            eos_token_id=list(ends),
            pad_token_id=processor.pad_id,
        ),
        logits_processor=LogitsProcessorList(
            [finite, *([chosen] * is_greedy), *_loop_guard(generation, processor, prompt)]
        ),
        stopping_criteria=StoppingCriteriaList([stop] * is_greedy),
    )
    finite.require(network.dtype)
    scores = chosen.by_row(rows) if is_greedy else None
    decoded = []
    for place, row in enumerate(rows[:, prompt:]):
        ids: list[int] = row[: stop.stopped.get(place)].tolist()
        # Without the padding behind the end token.
        ids = ids[: 1 + next((at for at, token in enumerate(ids) if token in ends), len(ids))]
        ended = bool(ids) and ids[-1] in ends
        logs, overruled = scores[place] if scores else _score_tokens(network, processor, samples[place], ids)
        scored = spans.scored(ids, logs[: len(ids)], overruled[: len(ids)], ended=ended)
        is_loop = is_looping(scored.text)
        decoded.append(Decoded(scored.text, len(ids), not ended, looping=is_loop, scores=scored.scores))
    return decoded


def _score_tokens(
    network: PreTrainedModel, processor: Any, sample: Any, ids: Sequence[int]
) -> tuple[list[float], list[bool]]:
    """Return the log probability of each generated token given those before it, none of them overruled.

    One sample at a time, because the scores over the whole vocabulary are in memory for all of its tokens.
    """
    batch = processor.collate([replace(sample, answer_ids=tuple(ids))])
    logits = processor.family.logits(network, processor.on_device(batch, network, network.dtype))[0].float()
    chosen = logits.gather(1, torch.tensor(ids, device=logits.device)[:, None]).squeeze(1)
    return (chosen - logits.logsumexp(1)).tolist(), [False] * len(ids)


def _loop_guard(generation: Generation, processor: Any, prompt: int) -> list[NoRepeatNgram]:
    size, window = generation.no_repeat_ngram_size, generation.no_repeat_ngram_window
    if not size:
        return []
    vocabulary = processor.tokenizer.get_vocab()
    spared = [vocabulary[text] for text in generation.no_repeat_ngram_whitelist if text in vocabulary]
    return [NoRepeatNgram(size, window, prompt=prompt, spared=spared)]
