"""Text from a batch of model inputs: greedy, with a guard against loops."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel
from transformers.models.unlimited_ocr.generation_unlimited_ocr import (
    UnlimitedOcrSlidingWindowNoRepeatNgramLogitsProcessor as NoRepeatNgramInWindow,
)

from dsocr.model.encoding import Encoded, Encoder, collate


@dataclass(frozen=True, slots=True)
class Generation:
    """How text is generated; 0 as `no_repeat_ngram_size` switches the guard off.

    The guard forbids an n-gram of tokens to come back within the last `no_repeat_ngram_window` tokens.
    """

    max_new_tokens: int = 256
    no_repeat_ngram_size: int = 20
    no_repeat_ngram_window: int = 90
    samples_per_batch: int = 16

    def as_dict(self) -> dict[str, int]:
        """The settings as they stand in a run folder and on a scorecard."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the model wrote for one image. `tokens` counts the end token; `truncated` means that none came."""

    text: str
    tokens: int
    truncated: bool


@torch.inference_mode()
def decode(
    network: PreTrainedModel, encoder: Encoder, samples: Sequence[Encoded], generation: Generation
) -> list[Reading]:
    """The readings of a batch of samples, in their order. The network is put into evaluation mode and left there."""
    network.eval()
    batch = collate(samples, encoder.pad_id, padding="left", device=network.device, dtype=network.dtype)
    ids = network.generate(
        **batch, generation_config=_settings(encoder, generation), logits_processor=_guard(generation)
    )
    return [_reading(row, encoder) for row in ids[:, batch["input_ids"].shape[1] :]]


def _settings(encoder: Encoder, generation: Generation) -> GenerationConfig:
    return GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=generation.max_new_tokens,
        bos_token_id=encoder.tokenizer.bos_token_id,
        eos_token_id=encoder.tokenizer.eos_token_id,
        pad_token_id=encoder.pad_id,
    )


def _guard(generation: Generation) -> LogitsProcessorList:
    """The guard as a processor of its own: as a setting, only one of the two native classes knows its window."""
    size, window = generation.no_repeat_ngram_size, generation.no_repeat_ngram_window
    return LogitsProcessorList([NoRepeatNgramInWindow(size, window)] if size else [])


def _reading(row: Tensor, encoder: Encoder) -> Reading:
    end = (row == encoder.tokenizer.eos_token_id).nonzero()
    tokens = int(end[0]) + 1 if len(end) else len(row)
    # Not `skip_special_tokens`: for DeepSeek-OCR that would also drop table tags, which are text.
    text = encoder.tokenizer.decode(row[: tokens - 1] if len(end) else row, skip_special_tokens=False)
    return Reading(text, tokens, truncated=not len(end))
