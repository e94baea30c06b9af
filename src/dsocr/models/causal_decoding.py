"""Generate text from batches of model inputs, greedily or by beam search, with a score for each token.

A guard forbids repeated n-grams, and a criterion stops lines that loop anyway.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation.logits_process import LogitsProcessor
from transformers.generation.stopping_criteria import StoppingCriteria

from dsocr.models.generation import Decoded, Generation, ScoredText, TokenScore
from dsocr.text import is_looping

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CHECK_INTERVAL = 16
"""Tokens between two checks for a loop."""
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
    spans = TokenSpans(processor.tokenizer, processor.answer_start)
    prompt, ends = batch["input_ids"].shape[1], processor.end_ids
    chosen, stop = ChosenScores(), StopLoops(lambda ids: is_looping(spans.text(ids)), prompt=prompt, ends=ends)
    is_greedy = generation.num_beams == 1
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
        logits_processor=LogitsProcessorList([*([chosen] * is_greedy), *_loop_guard(generation, processor, prompt)]),
        stopping_criteria=StoppingCriteriaList([stop] * is_greedy),
    )
    generated = [_generated_ids(row, ends, stop.stopped.get(i)) for i, row in enumerate(rows[:, prompt:])]
    if is_greedy:
        scores = chosen.by_row(rows)
    else:  # by a pass over the generated tokens of the best beam
        scores = [
            _score_tokens(processor.family.answer_logits(network, processor, sample, ids), ids)
            for sample, ids in zip(samples, generated, strict=True)
        ]
    return [_decoded(spans, ids, ends, *of_row) for ids, of_row in zip(generated, scores, strict=True)]


def _score_tokens(logits: Tensor, ids: Sequence[int]) -> tuple[list[float], list[bool]]:
    """Return the log probability of each generated token given those before it, none of them overruled."""
    logits = logits.float()
    chosen = logits.gather(1, torch.tensor(ids, device=logits.device)[:, None]).squeeze(1)
    return (chosen - logits.logsumexp(1)).tolist(), [False] * len(ids)


def _loop_guard(generation: Generation, processor: Any, prompt: int) -> list[NoRepeatNgram]:
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
