"""Text from a batch of model inputs: greedy or by beam search, guarded against loops, with a score for each token."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation.logits_process import LogitsProcessor
from transformers.generation.stopping_criteria import StoppingCriteria

from dsocr.inference.confidence import Pieces, ScoredText, TokenScore
from dsocr.inference.generation import Generation, batches
from dsocr.models.batch import collate
from dsocr.models.deepseek_images import Resolution, another_resolution
from dsocr.models.deepseek_ocr import Encoded, Processor
from dsocr.text import is_looping, loop_start

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


@dataclass(frozen=True, slots=True)
class Reading:
    """What the model wrote for one image. `tokens` counts the end token; `truncated` means that none came.

    `looping` is a text that ends in a loop; it was stopped there, and is `truncated` unless the model ended it itself.
    `scores` has one for each token, the end token included.
    """

    text: str
    tokens: int
    truncated: bool
    looping: bool = False
    scores: tuple[TokenScore, ...] = field(default=(), repr=False)

    @property
    def scored(self) -> ScoredText:
        """The text with its scores."""
        return ScoredText(self.text, self.scores)

    @property
    def overruled(self) -> int:
        """The tokens at which the guard forbade what the model would have written."""
        return sum(score.overruled for score in self.scores)


@torch.inference_mode()
def decode(
    network: PreTrainedModel, encoder: Processor, samples: Sequence[Encoded], generation: Generation
) -> list[Reading]:
    """The readings of a batch of samples, in their order. The network is put into evaluation mode and left there."""
    network.eval()
    batch = collate(samples, encoder.pad_id, padding="left", device=network.device, dtype=network.dtype)
    if generation.num_beams > 1:
        return _searched(network, encoder, samples, batch, generation)
    pieces, prompt, end = Pieces(encoder.tokenizer), batch["input_ids"].shape[1], encoder.end_id
    before = BeforeGuards()
    choices = Choices(before)
    stop = StopLoops(lambda ids: is_looping(pieces.text(ids)), prompt=prompt, end=end)
    written = network.generate(
        **batch,
        generation_config=_settings(encoder, generation),
        logits_processor=LogitsProcessorList([before, *_guard(generation, encoder, prompt)]),
        stopping_criteria=StoppingCriteriaList([choices, stop]),
    )[:, prompt:]
    log_probabilities, overruled = choices.by_row()
    return [
        _reading(pieces, _ids(row, end, stop.stopped.get(place)), end, log_probabilities[place], overruled[place])
        for place, row in enumerate(written)
    ]


def _searched(
    network: PreTrainedModel,
    encoder: Processor,
    samples: Sequence[Encoded],
    batch: dict[str, Any],
    generation: Generation,
) -> list[Reading]:
    """The likeliest texts that a beam search finds; their scores come from a look back at what was written."""
    pieces, prompt, end = Pieces(encoder.tokenizer), batch["input_ids"].shape[1], encoder.end_id
    written = network.generate(
        **batch,
        generation_config=_settings(encoder, generation),
        logits_processor=LogitsProcessorList(_guard(generation, encoder, prompt)),
    )[:, prompt:]
    rows = [_ids(row, end, None) for row in written]
    return [
        _reading(pieces, ids, end, *_looked_back(network, encoder, sample, ids))
        for sample, ids in zip(samples, rows, strict=True)
    ]


def _looked_back(
    network: PreTrainedModel, encoder: Processor, sample: Encoded, ids: Sequence[int]
) -> tuple[list[float], list[bool]]:
    """The log probability of each written token, the tokens before it given.

    None of them counts as overruled: a search leaves the likeliest token out of its own accord. One sample at a time,
    because scores over the whole vocabulary are in memory for all of its tokens.
    """
    answered = Encoded(sample.prompt_ids, tuple(ids), sample.views, sample.stitches_tiles, sample.features)
    batch = collate([answered], encoder.pad_id, padding="right", device=network.device, dtype=network.dtype)
    del batch["labels"]
    logits = network(**batch, logits_to_keep=len(ids) + 1).logits[0, :-1].float()
    chosen = logits.gather(1, torch.tensor(ids, device=logits.device)[:, None]).squeeze(1)
    return (chosen - logits.logsumexp(1)).tolist(), [False] * len(ids)


def _settings(encoder: Processor, generation: Generation) -> GenerationConfig:
    return GenerationConfig(
        do_sample=False,
        num_beams=generation.num_beams,
        use_cache=True,
        max_new_tokens=generation.max_new_tokens,
        bos_token_id=encoder.tokenizer.bos_token_id,
        eos_token_id=encoder.end_id,
        pad_token_id=encoder.pad_id,
    )


def _guard(generation: Generation, encoder: Processor, prompt: int) -> list[NoRepeatNgram]:
    size, window = generation.no_repeat_ngram_size, generation.no_repeat_ngram_window
    if not size:
        return []
    vocabulary = encoder.tokenizer.get_vocab()
    spared = [vocabulary[text] for text in generation.no_repeat_ngram_whitelist if text in vocabulary]
    return [NoRepeatNgram(size, window, prompt=prompt, spared=spared)]


def _ids(row: Tensor, end: int, stopped: int | None) -> list[int]:
    """What was written in a row: until its end token, that included, or until it was stopped, without padding."""
    ids: list[int] = row[:stopped].tolist()
    return ids[: ids.index(end) + 1] if end in ids else ids


def _reading(
    pieces: Pieces, ids: Sequence[int], end: int, log_probabilities: Sequence[float], overruled: Sequence[bool]
) -> Reading:
    ended = bool(ids) and ids[-1] == end
    scored = pieces.scored(ids, log_probabilities[: len(ids)], overruled[: len(ids)], ended=ended)
    return Reading(scored.text, len(ids), not ended, looping=is_looping(scored.text), scores=scored.scores)


_STRICT = 10
"""Tokens in a row that may not come twice in another try, however far back."""


@dataclass(frozen=True, slots=True)
class LineReading:
    """What was read of one line.

    `tried_again` is one that ran into a loop and was read again under a stricter guard, `other_resolution` one whose
    text was read at another resolution, because it looped then too.
    """

    reading: Reading
    tried_again: bool = False
    other_resolution: bool = False


def without_loops(
    network: Any, encoder: Processor, generation: Generation, images: Sequence[Image.Image], readings: Sequence[Reading]
) -> list[LineReading]:
    """The readings of some lines, those that loop replaced; `images` are the lines', one each.

    A second try is greedy, alone and under a stricter guard, a third so at another resolution of the base, if it has
    one that shows the line well. If all loop, the first reading is kept up to where its loop begins, and stays
    `looping`.
    """
    settled = list(map(LineReading, readings))
    looping = [place for place, reading in enumerate(readings) if reading.looping]
    strict = stricter(generation)
    left = []
    for place, reading in _read(network, encoder, strict, images, looping):
        is_good = not (reading.looping or reading.truncated)
        kept = reading if is_good else cut_off(readings[place])
        settled[place] = LineReading(kept, tried_again=True)
        left += [] if is_good else [place]
    for resolution, places in _other_looks(encoder, images, left).items():
        other = replace(encoder, resolution=resolution)
        # No more image slots at once than are read at the own resolution.
        fewer = generation.batch_size * encoder.resolution.slots() // resolution.slots()
        bounded = replace(strict, batch_size=max(1, min(fewer, generation.batch_size)))
        for place, reading in _read(network, other, bounded, images, places):
            if not (reading.looping or reading.truncated):
                settled[place] = replace(settled[place], reading=reading, other_resolution=True)
    return settled


def _read(
    network: Any, encoder: Processor, generation: Generation, images: Sequence[Image.Image], places: Sequence[int]
) -> Iterator[tuple[int, Reading]]:
    """The readings of the images at these places."""
    for batch in batches(places, generation.batch_size):
        readings = decode(network, encoder, [encoder.encode(images[place]) for place in batch], generation)
        yield from zip(batch, readings, strict=True)


def _other_looks(
    encoder: Processor, images: Sequence[Image.Image], places: Sequence[int]
) -> dict[Resolution, list[int]]:
    """The places of images by another resolution that shows them; those for which there is none are not among them."""
    looks: dict[Resolution, list[int]] = {}
    for place in places:
        if resolution := another_resolution(images[place].size, encoder.resolution, encoder.others):
            looks.setdefault(resolution, []).append(place)
    return looks


def stricter(generation: Generation) -> Generation:
    """The same generation under a guard that sees the whole text and shorter repetitions."""
    size = min(generation.no_repeat_ngram_size or _STRICT, _STRICT)
    return replace(generation, no_repeat_ngram_size=size, no_repeat_ngram_window=generation.max_new_tokens, num_beams=1)


def cut_off(reading: Reading) -> Reading:
    """A reading that loops, without its loop."""
    start = loop_start(reading.text)
    if start is None:
        return reading
    scored = reading.scored.cut(start)
    return replace(reading, text=scored.text, scores=scored.scores)
