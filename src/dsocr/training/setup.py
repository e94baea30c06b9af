"""What a training starts from: the samples that fit, and the network with the adapter that is configured."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from peft import PeftModel
from transformers import PreTrainedModel, set_seed

from dsocr.config import RunConfig
from dsocr.model.adapters import attach_adapter
from dsocr.model.encoding import Encoder
from dsocr.model.loading import choose_device, choose_dtype, load_base
from dsocr.samples import Sample
from dsocr.training.arguments import two_rate_optimizer
from dsocr.training.collator import Collator, EncodedSamples
from dsocr.training.gradients import demand_gradients
from dsocr.training.last_block import LastBlock
from dsocr.training.lengths import measure_lengths
from dsocr.training.order import LengthOrder


@dataclass(frozen=True, slots=True)
class Setup:
    """All that a training works on. `optimizer` is None where the Trainer is to make its own."""

    model: PeftModel
    encoder: Encoder
    samples: EncodedSamples
    optimizer: torch.optim.Optimizer | None
    device: torch.device
    dtype: torch.dtype


def set_up(config: RunConfig, samples: Sequence[Sample]) -> Setup:
    """The base with a fresh adapter, which has been shown to learn from the first sample; writes nothing.

    Raises ModelError where the base cannot be loaded, ConfigError where the adapter does not fit it or would not learn.
    """
    device = choose_device()
    dtype = choose_dtype(config.training.precision, device)
    set_seed(config.seed)
    base = load_base(config.base, config.base_revision, dtype=dtype, device=device, attention=config.training.attention)
    encoder = base.encoder(config.input.resolution, config.input.prompt)
    model = fresh_adapter(base.network, config, encoder, revision=base.revision)
    encoded = encoded_samples(config, samples, encoder)
    demand_gradients(model, Collator(encoder.pad_id)([encoded[0]]), dtype)
    return Setup(model, encoder, encoded, two_rate_optimizer(model, config.training), device, dtype)


def encoded_samples(config: RunConfig, samples: Sequence[Sample], encoder: Encoder) -> EncodedSamples:
    """The samples as model inputs, varied as the configuration says."""
    return EncodedSamples(samples, encoder, augmentation=config.training.augmentation, seed=config.seed)


def sample_order(config: RunConfig, samples: EncodedSamples, processes: int = 1) -> LengthOrder:
    """The order in which each epoch shows the samples; several processes take its batches in turn."""
    training = config.training
    return LengthOrder(
        len(samples),
        [length.sequence for length in measure_lengths(samples.samples, samples.encoder)],
        training.samples_per_forward,
        step=training.samples_per_step,
        window=training.length_window,
        seed=config.seed,
        epoch=lambda: samples.epoch,
        even=1 if processes == 1 else processes * training.samples_per_forward,
    )


def fresh_adapter(network: PreTrainedModel, config: RunConfig, encoder: Encoder, *, revision: str | None) -> PeftModel:
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
    if config.training.compile:
        compile_layers(model)
    else:
        LastBlock(network)
    if config.training.gradient_checkpointing:
        checkpoint_activations(model)
    return model


def checkpoint_activations(model: PreTrainedModel | PeftModel) -> None:
    """Compute activations twice instead of holding them; frozen vision towers stay out of the backward pass."""
    # "Activation checkpointing" is what transformers now calls it. Reentrant, it would find no gradient to follow where
    # the embeddings are frozen, so transformers makes embeddings and pixels require one. Not reentrant it needs no
    # such help, which would only draw frozen vision towers into the backward pass.
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    model.disable_input_require_grads()
    model.config.use_cache = False


def compile_layers(model: PreTrainedModel | PeftModel) -> None:
    """Have torch translate the decoder and the vision towers at their first call; no tensor gets another name."""
    for name, module in model.named_modules():
        if name.endswith((".language_model", ".vision_tower")):
            module.compile()
