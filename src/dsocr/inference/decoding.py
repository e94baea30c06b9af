"""Text from a batch of model inputs: greedy or by beam search, guarded against loops, with a score for each token."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList

from dsocr.inference.generation import Generation
from dsocr.inference.guards import BeforeGuards, Choices, NoRepeatNgram, StopLoops
from dsocr.inference.spans import Pieces, ScoredText, TokenScore
from dsocr.loops import is_looping
from dsocr.model.collating import collate
from dsocr.model.encoding import Encoded, Encoder


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
    network: PreTrainedModel, encoder: Encoder, samples: Sequence[Encoded], generation: Generation
) -> list[Reading]:
    """The readings of a batch of samples, in their order. The network is put into evaluation mode and left there."""
    network.eval()
    batch = collate(samples, encoder.pad_id, padding="left", device=network.device, dtype=network.dtype)
    if generation.beams > 1:
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
    encoder: Encoder,
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
    network: PreTrainedModel, encoder: Encoder, sample: Encoded, ids: Sequence[int]
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


def _settings(encoder: Encoder, generation: Generation) -> GenerationConfig:
    return GenerationConfig(
        do_sample=False,
        num_beams=generation.beams,
        use_cache=True,
        max_new_tokens=generation.max_new_tokens,
        bos_token_id=encoder.tokenizer.bos_token_id,
        eos_token_id=encoder.end_id,
        pad_token_id=encoder.pad_id,
    )


def _guard(generation: Generation, encoder: Encoder, prompt: int) -> list[NoRepeatNgram]:
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
