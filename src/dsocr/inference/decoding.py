"""Generate text from batches of model inputs, greedily or by beam search, with a score for each token.

A guard forbids repeated n-grams, a criterion stops lines that loop anyway, and looping lines are read again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation.logits_process import LogitsProcessor
from transformers.generation.stopping_criteria import StoppingCriteria

from dsocr.inference.confidence import ScoredText, TokenScore, TokenSpans
from dsocr.inference.generation import Generation, batches
from dsocr.models.deepseek_images import Resolution, another_resolution
from dsocr.models.deepseek_ocr import Encoded, Processor
from dsocr.text import is_looping, loop_start

_CHECK_INTERVAL = 16
"""Tokens between two checks for a loop."""
_STRICT_NGRAM = 10
"""N-gram size of the guard when a looping line is read again; its window is then the whole text."""


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


class ModelScores(LogitsProcessor):  # type: ignore[misc]
    """Hold the model's own scores of a step; precedes processors that change them, which must not do so in place."""

    def __init__(self) -> None:
        self.scores: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores unchanged."""
        self.scores = scores
        return scores


class ChosenTokens(StoppingCriteria):  # type: ignore[misc]
    """Record each chosen token's log probability and whether the model would have chosen another one; never stops."""

    def __init__(self, model_scores: ModelScores) -> None:
        self._model_scores = model_scores
        self._log_probabilities: list[Tensor] = []
        self._overruled: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: object, **kwargs: object) -> Tensor:
        """Record the last token of each row."""
        own = self._model_scores.scores
        assert own is not None, "the processor runs first"
        chosen = own.gather(1, input_ids[:, -1:]).squeeze(1)
        self._log_probabilities.append(chosen - own.logsumexp(1))
        self._overruled.append(chosen < own.amax(1))
        self._model_scores.scores = None
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

    def by_row(self) -> tuple[list[list[float]], list[list[bool]]]:
        """Return each row's log probabilities and whether its tokens were overruled, one value per step."""
        log_probabilities = torch.stack(self._log_probabilities, 1).tolist()
        return log_probabilities, torch.stack(self._overruled, 1).tolist()


class StopLoops(StoppingCriteria):  # type: ignore[misc]
    """Stop rows whose text loops, while others continue; `stopped` holds their numbers of tokens."""

    def __init__(self, loops: Callable[[list[int]], bool], *, prompt: int, end: int) -> None:
        self._loops, self._prompt, self._end = loops, prompt, end
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
            if row not in self.stopped and self._end not in ids and self._loops(ids):
                self.stopped[row] = length
                self._done[row] = True
        return self._done.clone()


@dataclass(frozen=True, slots=True)
class Decoded:
    """What was generated for one image.

    `tokens` counts the end token; a `truncated` text has none. A `looping` text ends in a loop, where it was stopped;
    it is `truncated` too unless the model ended it itself. `scores` has one entry for each token. A `retried` line
    looped and was read again with a stricter guard; `other_resolution` says that its text comes from a third attempt.
    """

    text: str
    tokens: int
    truncated: bool
    looping: bool = False
    scores: tuple[TokenScore, ...] = field(default=(), repr=False)
    retried: bool = False
    other_resolution: bool = False

    @property
    def scored(self) -> ScoredText:
        """The text with its scores."""
        return ScoredText(self.text, self.scores)

    @property
    def overruled(self) -> int:
        """The number of tokens at which the guard forbade the model's choice."""
        return sum(score.overruled for score in self.scores)

    @property
    def is_complete(self) -> bool:
        """Whether the text neither loops nor is truncated."""
        return not (self.looping or self.truncated)


@torch.inference_mode()
def decode(
    network: PreTrainedModel, processor: Processor, samples: Sequence[Encoded], generation: Generation
) -> list[Decoded]:
    """Generate a text for each sample of a batch. Leaves the network in evaluation mode."""
    network.eval()
    batch = processor.collate(samples, padding="left", device=network.device, dtype=network.dtype)
    if generation.num_beams > 1:
        return _beam_search(network, processor, samples, batch, generation)
    spans, prompt, end = TokenSpans(processor.tokenizer), batch["input_ids"].shape[1], processor.end_id
    model_scores = ModelScores()
    chosen = ChosenTokens(model_scores)
    stop = StopLoops(lambda ids: is_looping(spans.text(ids)), prompt=prompt, end=end)
    rows = network.generate(
        **batch,
        generation_config=_generation_config(processor, generation),
        logits_processor=LogitsProcessorList([model_scores, *_loop_guard(generation, processor, prompt)]),
        stopping_criteria=StoppingCriteriaList([chosen, stop]),
    )[:, prompt:]
    log_probabilities, overruled = chosen.by_row()
    return [
        _decoded(spans, _generated_ids(row, end, stop.stopped.get(i)), end, log_probabilities[i], overruled[i])
        for i, row in enumerate(rows)
    ]


def _beam_search(
    network: PreTrainedModel,
    processor: Processor,
    samples: Sequence[Encoded],
    batch: dict[str, Any],
    generation: Generation,
) -> list[Decoded]:
    """Return the most likely texts of a beam search, scored afterwards by a pass over what was generated."""
    spans, prompt, end = TokenSpans(processor.tokenizer), batch["input_ids"].shape[1], processor.end_id
    rows = network.generate(
        **batch,
        generation_config=_generation_config(processor, generation),
        logits_processor=LogitsProcessorList(_loop_guard(generation, processor, prompt)),
    )[:, prompt:]
    generated = [_generated_ids(row, end, None) for row in rows]
    return [
        _decoded(spans, ids, end, *_score_tokens(network, processor, sample, ids))
        for sample, ids in zip(samples, generated, strict=True)
    ]


def _score_tokens(
    network: PreTrainedModel, processor: Processor, sample: Encoded, ids: Sequence[int]
) -> tuple[list[float], list[bool]]:
    """Return the log probability of each generated token given those before it, none of them overruled.

    One sample at a time, because the scores over the whole vocabulary are in memory for all of its tokens.
    """
    answered = replace(sample, answer_ids=tuple(ids))
    batch = processor.collate([answered], padding="right", device=network.device, dtype=network.dtype)
    del batch["labels"]
    logits = network(**batch, logits_to_keep=len(ids) + 1).logits[0, :-1].float()
    chosen = logits.gather(1, torch.tensor(ids, device=logits.device)[:, None]).squeeze(1)
    return (chosen - logits.logsumexp(1)).tolist(), [False] * len(ids)


def _generation_config(processor: Processor, generation: Generation) -> GenerationConfig:
    return GenerationConfig(
        do_sample=False,
        num_beams=generation.num_beams,
        use_cache=True,
        max_new_tokens=generation.max_new_tokens,
        bos_token_id=processor.tokenizer.bos_token_id,
        eos_token_id=processor.end_id,
        pad_token_id=processor.pad_id,
    )


def _loop_guard(generation: Generation, processor: Processor, prompt: int) -> list[NoRepeatNgram]:
    size, window = generation.no_repeat_ngram_size, generation.no_repeat_ngram_window
    if not size:
        return []
    vocabulary = processor.tokenizer.get_vocab()
    spared = [vocabulary[text] for text in generation.no_repeat_ngram_whitelist if text in vocabulary]
    return [NoRepeatNgram(size, window, prompt=prompt, spared=spared)]


def _generated_ids(row: Tensor, end: int, stopped: int | None) -> list[int]:
    """Return a row's ids up to and including its end token, or up to where it was stopped, without padding."""
    ids: list[int] = row[:stopped].tolist()
    return ids[: ids.index(end) + 1] if end in ids else ids


def _decoded(
    spans: TokenSpans, ids: Sequence[int], end: int, log_probabilities: Sequence[float], overruled: Sequence[bool]
) -> Decoded:
    ended = bool(ids) and ids[-1] == end
    scored = spans.scored(ids, log_probabilities[: len(ids)], overruled[: len(ids)], ended=ended)
    return Decoded(scored.text, len(ids), not ended, looping=is_looping(scored.text), scores=scored.scores)


def retry_loops(
    network: Any,
    processor: Processor,
    generation: Generation,
    images: Sequence[Image.Image],
    decoded: Sequence[Decoded],
) -> list[Decoded]:
    """Read the images whose text loops again, and return all texts.

    The second attempt is greedy with a stricter guard; the third uses another resolution of the base, if one shows the
    image well. If all loop, the first text is kept up to its loop and stays `looping`.
    """
    results = list(decoded)
    strict = stricter(generation)
    remaining = []
    for i, again in _decode_again(network, processor, strict, images, [i for i, d in enumerate(decoded) if d.looping]):
        results[i] = replace(again if again.is_complete else cut_loop(decoded[i]), retried=True)
        if not again.is_complete:
            remaining.append(i)
    by_resolution: dict[Resolution, list[int]] = {}
    for i in remaining:
        if resolution := another_resolution(images[i].size, processor.resolution, processor.others):
            by_resolution.setdefault(resolution, []).append(i)
    for resolution, indices in by_resolution.items():
        # Not more image slots at once than at the usual resolution.
        fewer = generation.batch_size * processor.resolution.slots() // resolution.slots()
        bounded = replace(strict, batch_size=max(1, min(fewer, generation.batch_size)))
        other = replace(processor, resolution=resolution)
        for i, again in _decode_again(network, other, bounded, images, indices):
            if again.is_complete:
                results[i] = replace(again, retried=True, other_resolution=True)
    return results


def _decode_again(
    network: Any, processor: Processor, generation: Generation, images: Sequence[Image.Image], indices: Sequence[int]
) -> Iterator[tuple[int, Decoded]]:
    for batch in batches(indices, generation.batch_size):
        yield from zip(
            batch, decode(network, processor, [processor.encode(images[i]) for i in batch], generation), strict=True
        )


def stricter(generation: Generation) -> Generation:
    """Return greedy settings with a guard that sees the whole text and shorter repetitions."""
    size = min(generation.no_repeat_ngram_size or _STRICT_NGRAM, _STRICT_NGRAM)
    return replace(generation, no_repeat_ngram_size=size, no_repeat_ngram_window=generation.max_new_tokens, num_beams=1)


def cut_loop(decoded: Decoded) -> Decoded:
    """Remove the loop from the end of a text."""
    start = loop_start(decoded.text)
    if start is None:
        return decoded
    scored = decoded.scored.cut(start)
    return replace(decoded, text=scored.text, scores=scored.scores)
