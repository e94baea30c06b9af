"""What a training works on: the base with a fresh adapter, its optimizer and data, and cached image features."""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, set_seed

from dsocr.config import RunConfig, TrainingSection
from dsocr.data.augment import changes
from dsocr.document import Sample
from dsocr.errors import ConfigError
from dsocr.models.adapters import attach_adapter, layers_without_gradient, vision_parameters
from dsocr.models.batch import normalize_pixels
from dsocr.models.deepseek_ocr import Processor
from dsocr.models.feature_cache import FeatureCache, FeatureStore, MemoryStore, Store, cache_folder, code_hash
from dsocr.models.loading import choose_device, choose_dtype, load_base
from dsocr.training.callbacks import ignore_signals_in_worker
from dsocr.training.distributed import Distributed
from dsocr.training.preview import measure_lengths
from dsocr.training.samples import Collator, EncodedSamples, LengthGroupedSampler, SamplesWithFillers
from dsocr.training.trainer import Precision, Trainer, build_optimizer, build_scheduler

StageProgress = Callable[[str, str, int, int], None]
"""Called during long work before the first step with what is done, the unit, and how many are done of how many."""

_PREPARING_CODE = ("images.py", "data/augment.py")
"""Sources besides the model's own on which the pixels of a training image depend."""
_WORTH_CACHING = 256
"""Training samples below which `feature_cache: auto` does not cache."""
PRECISIONS: dict[torch.dtype, Precision] = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


def prepare_batch(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Normalize the pixels of a training batch on its device, and drop what a causal decoder padded right ignores."""
    return {name: value for name, value in normalize_pixels(dict(batch)).items() if name != "attention_mask"}


def causal_loss(model: torch.nn.Module, batch: Mapping[str, Any], num_items: Tensor) -> Tensor:
    """Return the sum of the losses of a batch's tokens over the number of tokens in the step."""
    loss: Tensor = model(**batch, num_items_in_batch=num_items).loss
    return loss


def forward_backward(model: PeftModel, batch: Mapping[str, Any], dtype: torch.dtype) -> None:
    """Make one forward and backward pass as in training; leaves gradients, and the random numbers as they were."""
    device = next(model.parameters()).device
    moved = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in batch.items()}
    with torch.random.fork_rng(), torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
        model.train()
        model(**normalize_pixels(moved)).loss.backward()


@dataclass(frozen=True, slots=True)
class Setup:
    """The base with a fresh adapter, its processor, and the encoded training samples."""

    model: PeftModel
    processor: Processor
    samples: EncodedSamples
    device: torch.device
    dtype: torch.dtype


def set_up(config: RunConfig, samples: Sequence[Sample]) -> Setup:
    """Load the base, attach a fresh adapter and check that gradients reach it; writes nothing.

    Raises ModelError if the base cannot be loaded, ConfigError if the adapter does not fit it or would not train.
    """
    device = choose_device()
    dtype = choose_dtype(config.training.precision, device)
    set_seed(config.seed)
    base = load_base(config.base, config.base_revision, dtype=dtype, device=device, attention=config.training.attention)
    processor = base.processor(config.input.resolution, config.input.prompt)
    model = fresh_adapter(base.network, config, revision=base.revision)
    encoded = EncodedSamples(samples, processor, augmentation=config.training.augmentation, seed=config.seed)
    require_gradients(model, Collator(processor.pad_id)([encoded[0]]), dtype)
    make_optimizer(model, config.training)  # refuses unknown settings before anything is written
    return Setup(model, processor, encoded, device, dtype)


def fresh_adapter(network: PreTrainedModel, config: RunConfig, *, revision: str | None) -> PeftModel:
    """Attach an untrained adapter to the network; `revision` is the commit of the base."""
    adapter = config.adapter
    model = attach_adapter(
        network,
        base=config.base,
        revision=revision,
        target_modules=adapter.target,
        r=adapter.r,
        alpha=adapter.alpha,
        dropout=adapter.dropout,
        variant=adapter.variant,
    )
    if config.training.compile:
        compile_layers(model)
    else:
        SparseLastBlock(network)
    if config.training.gradient_checkpointing:
        checkpoint_activations(model)
    model.config.use_cache = False
    return model


def require_gradients(model: PeftModel, batch: Mapping[str, Any], dtype: torch.dtype) -> None:
    """Raise ConfigError if a backward pass does not reach a layer of the adapter."""
    forward_backward(model, batch, dtype)
    unreached = layers_without_gradient(model)
    model.zero_grad(set_to_none=True)
    if unreached:
        shown = "".join(f"\n  {name}" for name in unreached[:20])
        raise ConfigError(
            f"adapter.target_modules: no gradient reaches {len(unreached)} layers{shown}",
            code="layers-without-gradient",
            hint="leave these layers out of the pattern",
        )


def checkpoint_activations(model: PreTrainedModel | PeftModel) -> None:
    """Recompute activations in the backward pass; frozen vision towers stay out of it."""
    # Reentrant checkpointing needs inputs with gradients, which would draw frozen vision towers into the backward pass.
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    model.disable_input_require_grads()
    model.config.use_cache = False


def compile_layers(model: PreTrainedModel | PeftModel) -> None:
    """Have torch compile the decoder and the vision towers at their first call; tensors keep their names."""
    for name, module in model.named_modules():
        if name.endswith((".language_model", ".vision_tower")):
            module.compile()


class SparseLastBlock:
    """Hooks that compute the last block's MLP only at positions that get logits.

    The loss and its gradients stay the same; where logits are wanted everywhere, the hooks do nothing.
    """

    def __init__(self, network: PreTrainedModel) -> None:
        self._positions: Tensor | None = None
        self._size: tuple[int, ...] = ()
        self._is_sparse = False
        network.register_forward_pre_hook(self._remember, with_kwargs=True)
        mlp = network.model.language_model.layers[-1].mlp
        mlp.register_forward_pre_hook(self._gather)
        mlp.register_forward_hook(self._scatter)

    def _remember(self, network: Any, args: Any, inputs: dict[str, Any]) -> None:
        """Keep the positions (B, L) that get logits, also for a backward pass that computes the block again."""
        kept = inputs.get("logits_to_keep")
        self._positions = kept if isinstance(kept, Tensor) and kept.dim() == 2 else None
        self._size = tuple(inputs["input_ids"].shape) if self._positions is not None else ()

    def _gather(self, block: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor] | None:
        (hidden,) = inputs
        # The network's inner model may also be called directly.
        self._is_sparse = self._positions is not None and tuple(hidden.shape[:2]) == self._size
        return (hidden.gather(1, self._index(hidden)),) if self._is_sparse else None

    def _scatter(self, block: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        if not self._is_sparse:
            return None
        return output.new_zeros(*self._size, output.shape[-1]).scatter(1, self._index(output), output)

    def _index(self, hidden: Tensor) -> Tensor:
        assert self._positions is not None
        return self._positions.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])


def make_optimizer(model: PeftModel, training: TrainingSection) -> torch.optim.Optimizer:
    """Make the configured optimizer, with a second parameter group where the vision towers have their own rate.

    Raises ConfigError for unknown optimizers and arguments, and if the adapter has no part in the vision towers.
    """
    vision, others = vision_parameters(model)
    parameters: list[dict[str, Any]] = [{"params": [*others, *vision]}]
    if training.vision_learning_rate is not None:
        if not vision:
            raise ConfigError(
                "training.vision_learning_rate: the adapter has no layer in the vision towers",
                code="no-vision-adapter",
                hint="set adapter.target_modules to decoder+vision, or leave this out",
            )
        parameters = [{"params": others}, {"params": vision, "lr": training.vision_learning_rate}]
    return build_optimizer(
        training.optimizer.name,
        [group for group in parameters if group["params"]],
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        arguments=training.optimizer.arguments,
    )


def make_trainer(
    setup: Setup, config: RunConfig, dist: Distributed | None = None, *, num_workers: int = 0, **options: Any
) -> Trainer:
    """Make a Trainer for the setup as configured; `options` go to it unchanged."""
    dist = dist or Distributed()
    config = fit_to_world_size(config, dist.world_size)
    training, samples = config.training, setup.samples
    max_steps = total_steps(config, len(samples), dist.world_size)
    optimizer = make_optimizer(setup.model, training)
    dataloader: DataLoader[Any] = DataLoader(
        samples if dist.world_size == 1 else SamplesWithFillers(samples),
        batch_sampler=make_sampler(config, samples, dist),
        collate_fn=Collator(setup.processor.pad_id),
        num_workers=num_workers,
        # Each worker keeps the images that it has opened, for all epochs.
        persistent_workers=num_workers > 0,
        multiprocessing_context="spawn" if num_workers else None,
        worker_init_fn=ignore_signals_in_worker if num_workers else None,
        pin_memory=setup.device.type == "cuda",
    )
    return Trainer(
        setup.model,
        optimizer,
        build_scheduler(
            training.lr_scheduler.name,
            optimizer,
            warmup_steps=math.ceil(training.warmup_ratio * max_steps),
            max_steps=max_steps,
            arguments=training.lr_scheduler.arguments,
        ),
        dataloader,
        max_steps=max_steps,
        gradient_accumulation_steps=micro_batches_per_step(config, dist.world_size),
        max_grad_norm=training.max_grad_norm,
        precision=PRECISIONS[setup.dtype],
        log_every=log_interval(max_steps),
        loss_function=causal_loss,
        prepare_batch=prepare_batch,
        seed=config.seed,
        **options,
    )


def make_sampler(config: RunConfig, samples: EncodedSamples, dist: Distributed | None = None) -> LengthGroupedSampler:
    """Make the batch sampler of the training samples for this rank."""
    dist = dist or Distributed()
    training = config.training
    return LengthGroupedSampler(
        [length.sequence for length in measure_lengths(samples.samples, samples.processor)],
        training.micro_batch_size,
        training.batch_size,
        seed=config.seed,
        group=training.group_by_length,
        rank=dist.rank,
        world_size=dist.world_size,
    )


def fit_to_world_size(config: RunConfig, world_size: int) -> RunConfig:
    """Lower `micro_batch_size`, if need be, so that every rank has equally many micro-batches a step.

    Raises ConfigError if the samples of a step cannot be shared evenly.
    """
    training = config.training
    if training.batch_size % world_size:
        raise ConfigError(
            f"training.batch_size: {training.batch_size} samples cannot be shared by {world_size} processes",
            code="batch-size-indivisible",
            hint=f"set it to a multiple of {world_size}",
        )
    share = training.batch_size // world_size
    micro_batch_size = max(n for n in range(1, training.micro_batch_size + 1) if share % n == 0)
    return config.model_copy(update={"training": training.model_copy(update={"micro_batch_size": micro_batch_size})})


def total_steps(config: RunConfig, samples: int, world_size: int = 1) -> int:
    """Return the optimizer steps of the training; the last, smaller step of an epoch counts."""
    if config.training.max_steps is not None:
        return config.training.max_steps
    assert config.training.epochs is not None
    return max(1, math.ceil(config.training.epochs * steps_per_epoch(config, samples, world_size)))


def steps_per_epoch(config: RunConfig, samples: int, world_size: int = 1) -> int:
    """Return the optimizer steps in which every sample is seen once."""
    return math.ceil(micro_batches_per_epoch(config, samples, world_size) / micro_batches_per_step(config, world_size))


def micro_batches_per_epoch(config: RunConfig, samples: int, world_size: int = 1) -> int:
    """Return the micro-batches of each rank in which every sample is seen once."""
    return math.ceil(samples / (config.training.micro_batch_size * world_size))


def micro_batches_per_step(config: RunConfig, world_size: int = 1) -> int:
    """Return the micro-batches of each rank that make an optimizer step."""
    return max(1, config.training.batch_size // (config.training.micro_batch_size * world_size))


def log_interval(max_steps: int) -> int:
    """Return the steps between two logs: about 50 logs in a short training, every 10 steps in a long one."""
    return max(1, min(10, max_steps // 50))


def cache_features(
    config: RunConfig,
    setup: Setup,
    validation: EncodedSamples | None,
    *,
    on_message: Callable[[str], None],
    on_stage: StageProgress | None = None,
    dist: Distributed | None = None,
) -> bool:
    """Compute the image features of frozen vision towers once and keep them on disk; False if that is not to be.

    Both sets of samples then take features from the cache. Of several ranks each computes a share. Raises ConfigError
    if the cache is required and cannot be used.
    """
    if not _wants_cache(config, setup):
        return False
    dist, on_stage = dist or Distributed(), on_stage or (lambda *progress: None)
    limit = int(config.training.feature_cache_gb * 1e9)
    ours = _make_cache(FeatureStore(cache_folder(), limit), setup.model, setup.processor, setup.dtype)
    parts: list[tuple[EncodedSamples, int, FeatureCache]] = [(setup.samples, _views(config), ours)]
    if validation is not None:
        # Validation computes in the number format of the weights, as transcription does.
        store = FeatureStore(cache_folder(), limit)
        theirs = _make_cache(store, setup.model, validation.processor, torch.float32, weights_hash=ours.weights_hash)
        parts.append((validation, 1, theirs))
    size = sum(_cache_bytes(samples, views, cache) for samples, views, cache in parts)
    # Decided once, before anything is written: the free space changes.
    problem = dist.broadcast(partial(_why_too_large, size, limit))
    if problem:
        if config.training.feature_cache == "auto":
            on_message(f"no feature cache: {problem}")
            return False
        raise ConfigError(
            f"training.feature_cache: {problem}",
            code="feature-cache-too-large",
            hint="raise training.feature_cache_gb, lower training.feature_cache_views, or set DSOCR_CACHE",
        )
    for samples, views, cache in parts:
        samples.use_cache(cache, views)
    _fill_cache(parts, size, max(8, config.training.micro_batch_size), on_message, on_stage, dist)
    return True


def cache_features_in_memory(config: RunConfig, setup: Setup) -> int:
    """For a measurement: take features from memory if training would cache them, and return the number of images.

    Features are computed when they are first asked for; nothing is read or written.
    """
    if not _wants_cache(config, setup):
        return 0
    cache = _make_cache(MemoryStore(), setup.model, setup.processor, setup.dtype)
    limit, views = int(config.training.feature_cache_gb * 1e9), _views(config)
    if _why_too_large(_cache_bytes(setup.samples, views, cache), limit):
        return 0
    setup.samples.use_cache(cache, views)
    return views * len(setup.samples)


def _views(config: RunConfig) -> int:
    """Return the number of cached views of each image."""
    return config.training.feature_cache_views if changes(config.training.augmentation) else 1


def _make_cache(
    store: Store,
    model: PeftModel,
    processor: Processor,
    dtype: torch.dtype,
    *,
    weights_hash: Callable[[], str] | None = None,
) -> FeatureCache:
    autocast, salt = None if dtype is torch.float32 else dtype, code_hash(*_PREPARING_CODE)
    return FeatureCache(store, model, processor, autocast=autocast, salt=salt, weights_hash=weights_hash)


def _wants_cache(config: RunConfig, setup: Setup) -> bool:
    setting = config.training.feature_cache
    if setting is False:
        return False
    adapted, _ = vision_parameters(setup.model)
    if setting is True:
        if adapted:
            raise ConfigError(
                "training.feature_cache: the adapter trains vision layers, so features cannot be cached",
                code="feature-cache-not-frozen",
                hint="set adapter.target_modules to decoder, or leave this at auto",
            )
        return True
    # A few views instead of ever new ones change what is trained on, so that must be asked for.
    augmented = changes(config.training.augmentation)
    count = len(setup.samples)
    epochs = total_steps(config, count) / steps_per_epoch(config, count)
    return not adapted and not augmented and epochs > 1 and count >= _WORTH_CACHING


def _cache_bytes(samples: EncodedSamples, views: int, cache: FeatureCache) -> int:
    lengths = measure_lengths(samples.samples, samples.processor)
    return views * sum(cache.entry_bytes(length.grid) for length in lengths)


def _why_too_large(size: int, limit: int) -> str:
    """Return why features of this size cannot be cached; empty if they can."""
    if size > limit:
        return f"{size / 1e9:.2f} GB are needed and {limit / 1e9:.2f} GB allowed"
    folder = cache_folder()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    return f"{size / 1e9:.2f} GB are needed and {free / 1e9:.2f} GB free in {folder}" if size > free else ""


def _fill_cache(
    parts: Sequence[tuple[EncodedSamples, int, FeatureCache]],
    size: int,
    images_per_batch: int,
    on_message: Callable[[str], None],
    on_stage: StageProgress,
    dist: Distributed,
) -> None:
    """Compute the features that are not in the cache, each rank its share."""
    wanted = [list(_cache_entries(samples, on_stage)) for samples, _, _ in parts]
    keys = [key for entries in wanted for key, _, _ in entries]
    found = parts[0][2].claim(keys)
    dist.barrier()  # no rank writes before all have looked, or two would compute the same features
    if dist.is_main:
        parts[0][2].make_room(round(size * (1 - len(found) / len(keys))), keys)
    on_message(f"feature cache: {len(found)} of {len(keys)} views are in {cache_folder()}, {size / 1e6:.0f} MB in all")
    missing = [[entry for entry in entries if entry[0] not in found] for entries in wanted]
    done, total = 0, sum(map(len, missing))
    for (samples, _, cache), entries in zip(parts, missing, strict=True):
        ours = dist.shard(entries)
        for start in range(0, len(ours), images_per_batch):
            batch = ours[start : start + images_per_batch]
            cache.fill({key: samples.encode_view(index, view) for key, index, view in batch})
            done += len(batch) * dist.world_size
            on_stage("computing image features", "images", min(done, total), total)
        samples.forget()
    dist.barrier()


def _cache_entries(samples: EncodedSamples, on_stage: StageProgress) -> Iterator[tuple[str, int, int]]:
    """Yield key, index and view of all views that training will show."""
    for index in range(len(samples)):
        on_stage("looking up cached features", "images", index + 1, len(samples))
        for view, key in enumerate(samples.cache_keys(index)):
            yield key, index, view
