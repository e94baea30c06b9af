"""Generate text from batches of model inputs, greedily or by beam search, with a score for each token.

A guard forbids repeated n-grams, a criterion stops lines that loop anyway, and looping lines are read again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation.logits_process import LogitsProcessor
from transformers.generation.stopping_criteria import StoppingCriteria

from dsocr.models.generation import Decoded, Generation, ScoredText, TokenScore, batches, cut_loop
from dsocr.models.token_inputs import TokenProcessor
from dsocr.text import is_looping

_CHECK_INTERVAL = 16
"""Tokens between two checks for a loop."""
_STRICT_NGRAM = 10
"""N-gram size of the guard when a looping line is read again; its window is then the whole text."""


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_REPLACEMENT = "\ufffd"
"""How a tokenizer decodes bytes that are not a complete character."""
_MAX_BYTES = 4
"""The most tokens that one UTF-8 character can be spread over."""


class TokenSpans:
    """Find which characters of a text each token stands for, with one tokenizer; single tokens are cached.

    A text loses `start` if it begins with it.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", start: str = "") -> None:
        self._tokenizer = tokenizer
        self._start = start
        self._text_of: dict[int, str] = {}

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
            piece = self._of(token) if len(waiting) == 1 else self.text(waiting)
            start, whole = whole, len(piece.rstrip(_REPLACEMENT))
            in_part = whole < len(piece)
            spans.append((begin + min(start, whole), begin + len(piece)))
            if not in_part or len(waiting) == _MAX_BYTES:
                pieces.append(piece)
                begin, whole, waiting = begin + len(piece), 0, []
        pieces.append(self.text(waiting))
        return spans if "".join(pieces) == text else self._spans_by_prefix(ids)

    def _spans_by_prefix(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Return the spans for a tokenizer that decodes a token differently in context than alone."""
        lengths = [len(self.text(ids[:count])) for count in range(len(ids) + 1)]
        return [(min(start, end), end) for start, end in pairwise(lengths)]

    def _of(self, token: int) -> str:
        if token not in self._text_of:
            self._text_of[token] = self.text([token])
        return self._text_of[token]


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

    def __call__(self, input_ids: Tensor, _: object, **kwargs: object) -> Tensor:
        """Record the last token of each row."""
        scores = self._model_scores.scores
        assert scores is not None, "the processor runs first"
        chosen = scores.gather(1, input_ids[:, -1:]).squeeze(1)
        self._log_probabilities.append(chosen - scores.logsumexp(1))
        self._overruled.append(chosen < scores.amax(1))
        self._model_scores.scores = None
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

    def by_row(self) -> tuple[list[list[float]], list[list[bool]]]:
        """Return each row's log probabilities and whether its tokens were overruled, one value per step."""
        log_probabilities = torch.stack(self._log_probabilities, 1).tolist()
        return log_probabilities, torch.stack(self._overruled, 1).tolist()


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


def set_token_ids(network: PreTrainedModel, tokenizer: "PreTrainedTokenizerBase") -> None:
    """Set the ids that begin, end and pad a text."""
    network.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )


@torch.inference_mode()
def decode(
    network: PreTrainedModel,
    processor: TokenProcessor,
    samples: Sequence[Any],
    generation: Generation,
) -> list[Decoded]:
    """Generate a text for each sample of a batch. Leaves the network in evaluation mode."""
    network.eval()
    unread = [sample.without_text() for sample in samples]
    batch = processor.on_device(processor.collate(unread, padding="left"), network, network.dtype)
    if generation.num_beams > 1:
        return _beam_search(network, processor, samples, batch, generation)
    spans = TokenSpans(processor.tokenizer, processor.answer_start)
    prompt, ends = batch["input_ids"].shape[1], processor.end_ids
    model_scores = ModelScores()
    chosen = ChosenTokens(model_scores)
    stop = StopLoops(lambda ids: is_looping(spans.text(ids)), prompt=prompt, ends=ends)
    rows = network.generate(
        **batch,
        generation_config=_generation_config(processor, generation),
        logits_processor=LogitsProcessorList([model_scores, *_loop_guard(generation, processor, prompt)]),
        stopping_criteria=StoppingCriteriaList([chosen, stop]),
    )[:, prompt:]
    log_probabilities, overruled = chosen.by_row()
    return [
        _decoded(spans, _generated_ids(row, ends, stop.stopped.get(i)), ends, log_probabilities[i], overruled[i])
        for i, row in enumerate(rows)
    ]


def _beam_search(
    network: PreTrainedModel,
    processor: TokenProcessor,
    samples: Sequence[Any],
    batch: dict[str, Any],
    generation: Generation,
) -> list[Decoded]:
    """Return the most likely texts of a beam search, scored afterwards by a pass over the generated tokens."""
    spans = TokenSpans(processor.tokenizer, processor.answer_start)
    prompt, ends = batch["input_ids"].shape[1], processor.end_ids
    rows = network.generate(
        **batch,
        generation_config=_generation_config(processor, generation),
        logits_processor=LogitsProcessorList(_loop_guard(generation, processor, prompt)),
    )[:, prompt:]
    generated = [_generated_ids(row, ends, None) for row in rows]
    return [
        _decoded(spans, ids, ends, *_score_tokens(processor.family.answer_logits(network, processor, sample, ids), ids))
        for sample, ids in zip(samples, generated, strict=True)
    ]


def _score_tokens(logits: Tensor, ids: Sequence[int]) -> tuple[list[float], list[bool]]:
    """Return the log probability of each generated token given those before it, none of them overruled."""
    logits = logits.float()
    chosen = logits.gather(1, torch.tensor(ids, device=logits.device)[:, None]).squeeze(1)
    return (chosen - logits.logsumexp(1)).tolist(), [False] * len(ids)


def _generation_config(processor: TokenProcessor, generation: Generation) -> GenerationConfig:
    return GenerationConfig(
        do_sample=False,
        num_beams=generation.num_beams,
        use_cache=True,
        max_new_tokens=generation.max_new_tokens,
        bos_token_id=processor.tokenizer.bos_token_id,
        eos_token_id=list(processor.end_ids),
        pad_token_id=processor.pad_id,
    )


def _loop_guard(generation: Generation, processor: TokenProcessor, prompt: int) -> list[NoRepeatNgram]:
    size, window = generation.no_repeat_ngram_size, generation.no_repeat_ngram_window
    if not size:
        return []
    vocabulary = processor.tokenizer.get_vocab()
    spared = [vocabulary[text] for text in generation.no_repeat_ngram_whitelist if text in vocabulary]
    return [NoRepeatNgram(size, window, prompt=prompt, spared=spared)]


def _generated_ids(row: Tensor, ends: Sequence[int], stopped: int | None) -> list[int]:
    """Return a row's ids up to and including its end token, or up to where it was stopped, without padding."""
    ids: list[int] = row[:stopped].tolist()
    place = next((place for place, token in enumerate(ids) if token in ends), len(ids))
    return ids[: place + 1]


def _decoded(
    spans: TokenSpans,
    ids: Sequence[int],
    ends: Sequence[int],
    log_probabilities: Sequence[float],
    overruled: Sequence[bool],
) -> Decoded:
    ended = bool(ids) and ids[-1] in ends
    scored = spans.scored(ids, log_probabilities[: len(ids)], overruled[: len(ids)], ended=ended)
    return Decoded(scored.text, len(ids), not ended, looping=is_looping(scored.text), scores=scored.scores)


def retry_loops(
    network: Any,
    processor: TokenProcessor,
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
    by_resolution: dict[str, tuple[TokenProcessor, list[int]]] = {}
    for i in remaining:
        if other := processor.at_another_resolution(images[i]):
            by_resolution.setdefault(other.resolution_name, (other, []))[1].append(i)
    for other, indices in by_resolution.values():
        # Not more image slots at once than at the usual resolution.
        fewer = generation.batch_size * processor.image_slots // other.image_slots
        bounded = replace(strict, batch_size=max(1, min(fewer, generation.batch_size)))
        for i, again in _decode_again(network, other, bounded, images, indices):
            if again.is_complete:
                results[i] = replace(again, retried=True, other_resolution=True)
    return results


def _decode_again(
    network: Any,
    processor: TokenProcessor,
    generation: Generation,
    images: Sequence[Image.Image],
    indices: Sequence[int],
) -> Iterator[tuple[int, Decoded]]:
    for batch in batches(indices, generation.batch_size):
        yield from zip(
            batch, decode(network, processor, [processor.encode(images[i]) for i in batch], generation), strict=True
        )


def stricter(generation: Generation) -> Generation:
    """Return greedy settings with a guard that sees the whole text and shorter repetitions."""
    size = min(generation.no_repeat_ngram_size or _STRICT_NGRAM, _STRICT_NGRAM)
    return replace(generation, no_repeat_ngram_size=size, no_repeat_ngram_window=generation.max_new_tokens, num_beams=1)
