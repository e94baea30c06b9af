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
    """The network with an untrained adapter as the configuration describes it; `revision` is the base's commit.

    Where the configuration asks for it, activations are computed twice instead of held.
    """
    adapter = config.adapter
    model = attach_adapter(
        network,
        base=config.base,
        revision=revision,
        scope=adapter.scope,
        rank=adapter.rank,
        alpha=adapter.alpha,
        dropout=adapter.dropout,
        variant=adapter.variant,
    )
    if config.training.gradient_checkpointing:
        _checkpoint(model)
    return model


def _checkpoint(model: PeftModel) -> None:
    # "Activation checkpointing" is what transformers now calls it. Reentrant, it would find no gradient to follow where
    # the embeddings are frozen, so transformers makes embeddings and pixels require one. Not reentrant it needs no
    # such help, which would only draw frozen vision towers into the backward pass.
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    model.disable_input_require_grads()
    model.config.use_cache = False
