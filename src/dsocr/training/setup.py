"""What a training starts from: the samples that fit, and the network with the adapter that is configured."""

from collections.abc import Sequence

from peft import PeftModel
from transformers import PreTrainedModel

from dsocr.config import RunConfig
from dsocr.errors import DataError
from dsocr.model.adapters import attach_adapter
from dsocr.model.encoding import Encoder
from dsocr.samples import Sample


def within_budget(samples: Sequence[Sample], encoder: Encoder, config: RunConfig) -> tuple[list[Sample], int]:
    """The samples whose transcription fits, and how many do not. Raises DataError where none does."""
    budget = config.training.max_text_tokens
    fitting = [sample for sample in samples if len(encoder.text_ids(sample.text)) <= budget]
    if not fitting:
        raise DataError("no training sample is left", where=config.dataset, hint="see `dsocr check`")
    return fitting, len(samples) - len(fitting)


def fresh_adapter(network: PreTrainedModel, config: RunConfig, *, revision: str | None) -> PeftModel:
    """The network with an untrained adapter as the configuration describes it; `revision` is the base's commit."""
    adapter = config.adapter
    return attach_adapter(
        network,
        base=config.base,
        revision=revision,
        scope=adapter.scope,
        rank=adapter.rank,
        alpha=adapter.alpha,
        dropout=adapter.dropout,
        variant=adapter.variant,
    )
