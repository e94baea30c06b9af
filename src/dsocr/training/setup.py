"""What a training starts from: the samples that fit, and the network with the adapter that is configured."""

import hashlib
import math
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedModel, TrainingArguments, set_seed

from dsocr.config import RunConfig, TrainingSection
from dsocr.data.augment import Augmentation, changes
from dsocr.document import Sample
from dsocr.errors import ConfigError
from dsocr.images import open_image, read_bytes
from dsocr.models.adapters import attach_adapter, layers_without_gradient, vision_parameters
from dsocr.models.batch import IGNORED, collate, drop_ignored_positions, normalize_pixels
from dsocr.models.deepseek_images import Views
from dsocr.models.deepseek_ocr import Encoded, Processor
from dsocr.models.feature_cache import FeatureCache, Features, FeatureStore, MemoryStore, Store, cache_folder, code_hash
from dsocr.models.loading import choose_device, choose_dtype, load_base
from dsocr.training.distributed import Ranks
from dsocr.training.preview import VariedImages, measure_lengths
from dsocr.training.sampler import LengthOrder

_NO_VIEWS = Views(np.empty((3, 0, 0), dtype=np.uint8))


def _with_features(encoder: Processor, features: Features, text: str) -> Encoded:
    """A sample with features in place of pixels."""
    prompt, answer = encoder.prompt_ids(features.grid), encoder.answer_ids(text)
    return Encoded(prompt, answer, _NO_VIEWS, encoder.resolution.row_ends, features.tokens)


class EncodedSamples(Dataset[Encoded]):
    """The samples of one split as model inputs, in the order given.

    With an augmentation each image is varied, as drawn from (seed, epoch, index); the Trainer calls `set_epoch`.
    """

    def __init__(
        self, samples: Sequence[Sample], encoder: Processor, *, augmentation: Augmentation = 0.0, seed: int = 0
    ) -> None:
        self._samples = samples
        self._encoder = encoder
        self._augmentation = augmentation
        self._seed = seed
        # In shared memory, so that worker processes that live on see the epoch change.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]
        self._images = VariedImages(samples, encoder.resolution, augmentation=augmentation, seed=seed)
        self._encoded: dict[int, Encoded] = {}
        self._cache: FeatureCache | None = None
        self._views = 0
        self._hashes: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def samples(self) -> Sequence[Sample]:
        """What is encoded."""
        return self._samples

    @property
    def encoder(self) -> Processor:
        """What encodes it."""
        return self._encoder

    @property
    def epoch(self) -> int:
        """The epoch that was told last."""
        return int(self._epoch)

    def __getitem__(self, index: int) -> Encoded:
        if self._cache is not None:
            return self._seen(self._cache, index)
        if not changes(self._augmentation):
            return self._unchanged(index)
        return self._encoder.encode(self.varied(index), self._samples[index].text)

    def varied(self, index: int) -> Image.Image:
        """The image of a sample as it is varied in this epoch, before it is encoded."""
        return self._images.varied(index, self._view)

    def set_epoch(self, epoch: int) -> None:
        """Vary the images anew."""
        self._epoch.fill_(epoch)

    def use_cache(self, cache: FeatureCache, views: int) -> None:
        """Take from now on what the vision towers say from a cache; epoch e shows variation e modulo `views`."""
        self._cache = cache
        self._views = views if changes(self._augmentation) else 1

    def keys(self, index: int) -> list[str]:
        """The names in the cache of all variations of a sample's image."""
        assert self._cache is not None
        return [self._cache.key(self._made_of(index, view)) for view in range(self._views)]

    def shown(self, index: int, view: int) -> Encoded:
        """A sample with the pixels of a variation, from its file."""
        image = (
            self._images.varied(index, view) if changes(self._augmentation) else open_image(self._samples[index].image)
        )
        return self._encoder.encode(image, self._samples[index].text)

    def look(self, indices: Sequence[int]) -> None:
        """Have the vision towers look at these samples as they are in this epoch, in one batch, and keep it."""
        assert self._cache is not None
        named = {self._cache.key(self._made_of(index, self._view)): index for index in indices}
        self._cache.fill({key: self.shown(index, self._view) for key, index in named.items()})

    def forget(self) -> None:
        """Give back the memory of what was remembered."""
        self._images.forget()
        self._encoded.clear()

    @property
    def _view(self) -> int:
        return int(self._epoch) % self._views if self._views else int(self._epoch)

    def _seen(self, cache: FeatureCache, index: int) -> Encoded:
        """A sample with features in place of pixels; computed where they are not in the cache, or not any more."""
        key = cache.key(self._made_of(index, self._view))
        features = cache.get(key) or cache.fill({key: self.shown(index, self._view)})[key]
        return _with_features(self._encoder, features, self._samples[index].text)

    def _made_of(self, index: int, view: int) -> str:
        """All that the pixels of a variation depend on, beside code and resolution."""
        if index not in self._hashes:
            self._hashes[index] = hashlib.sha256(read_bytes(self._samples[index].image)).hexdigest()
        varied = f" {self._augmentation} {self._seed} {index} {view}" if changes(self._augmentation) else ""
        return self._hashes[index] + varied

    def _unchanged(self, index: int) -> Encoded:
        if index in self._encoded:
            return self._encoded[index]
        encoded = self._encoder.encode(open_image(self._samples[index].image), self._samples[index].text)
        if self._images.takes(encoded.views.nbytes):
            self._encoded[index] = encoded
        return encoded


@dataclass(frozen=True, slots=True)
class Filler:
    """A sample that makes a batch full and is not learnt from."""

    sample: Encoded


class WithFillers(Dataset[Encoded | Filler]):
    """Samples, and beyond them each of them again as a filler for the batches of `LengthOrder`."""

    def __init__(self, samples: Any) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return 2 * len(self._samples)

    def __getitem__(self, index: int) -> Encoded | Filler:
        repeated, place = divmod(index, len(self._samples))
        encoded: Encoded = self._samples[place]
        return Filler(encoded) if repeated else encoded


@dataclass(frozen=True, slots=True)
class Collator:
    """Batches for training: padded right, logits for what is learnt only, pixels as bytes."""

    pad_id: int

    def __call__(self, samples: Sequence[Encoded | Filler]) -> dict[str, Any]:
        """The batch on the CPU; the Trainer moves it and normalizes its pixels."""
        encoded = [sample.sample if isinstance(sample, Filler) else sample for sample in samples]
        batch = collate(encoded, self.pad_id, padding="right", dtype=torch.uint8)
        batch["labels"][[isinstance(sample, Filler) for sample in samples]] = IGNORED
        return drop_ignored_positions(batch)


def pass_through(model: PeftModel, batch: Mapping[str, Any], dtype: torch.dtype) -> None:
    """One forward and backward pass, as training makes them; leaves gradients, and the random numbers as they were."""
    device = next(model.parameters()).device
    moved = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
    with torch.random.fork_rng(), torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
        model.train()
        model(**normalize_pixels(moved)).loss.backward()


def demand_gradients(model: PeftModel, batch: Mapping[str, Any], dtype: torch.dtype) -> None:
    """One forward and backward pass that changes nothing. Raises ConfigError for adapter layers it does not reach."""
    pass_through(model, batch, dtype)
    unreached = layers_without_gradient(model)
    model.zero_grad(set_to_none=True)
    if unreached:
        shown = "".join(f"\n  {name}" for name in unreached[:20])
        raise ConfigError(
            f"adapter.target_modules: {len(unreached)} layers would never learn: no gradient reaches them{shown}",
            hint="leave them out of the pattern",
        )


class LastBlock:
    """Two hooks on the last block of a network, which leave it alone where logits are wanted everywhere."""

    def __init__(self, network: PreTrainedModel) -> None:
        self._positions: Tensor | None = None
        self._size: tuple[int, ...] = ()
        self._gathered = False
        network.register_forward_pre_hook(self._remember, with_kwargs=True)
        block = network.model.language_model.layers[-1].mlp
        block.register_forward_pre_hook(self._gather)
        block.register_forward_hook(self._scatter)

    def _remember(self, network: Any, args: Any, inputs: dict[str, Any]) -> None:
        """Which positions (B, L) get logits; kept for the backward pass, which may compute the block again."""
        kept = inputs.get("logits_to_keep")
        self._positions = kept if isinstance(kept, Tensor) and kept.dim() == 2 else None
        self._size = tuple(inputs["input_ids"].shape) if self._positions is not None else ()

    def _gather(self, block: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor] | None:
        (hidden,) = inputs
        # The network's model may also be called for something else.
        self._gathered = self._positions is not None and tuple(hidden.shape[:2]) == self._size
        return (hidden.gather(1, self._rows(hidden)),) if self._gathered else None

    def _scatter(self, block: Any, inputs: tuple[Tensor, ...], made: Tensor) -> Tensor | None:
        if not self._gathered:
            return None
        return made.new_zeros(*self._size, made.shape[-1]).scatter(1, self._rows(made), made)

    def _rows(self, like: Tensor) -> Tensor:
        assert self._positions is not None
        return self._positions.unsqueeze(-1).expand(-1, -1, like.shape[-1])


def training_arguments(
    config: RunConfig, *, samples: int, device: torch.device, dtype: torch.dtype, processes: int = 1
) -> TrainingArguments:
    """What the Trainer is told for a training split of `samples`, with the base's weights in `dtype` on `device`.

    Saving, logging and validation are left to our callbacks and `AdapterTrainer`.
    """
    training = config.training
    per_device = training.micro_batch_size
    arguments = TrainingArguments(
        output_dir=str(config.output),
        max_steps=total_steps(config, samples, processes),
        per_device_train_batch_size=per_device,
        gradient_accumulation_steps=forwards_per_step(config, processes),
        learning_rate=training.learning_rate,
        lr_scheduler_type=training.lr_scheduler.name,
        lr_scheduler_kwargs=dict(training.lr_scheduler.arguments),
        warmup_steps=math.ceil(training.warmup_ratio * total_steps(config, samples, processes)),
        weight_decay=training.weight_decay,
        max_grad_norm=training.max_grad_norm,
        optim="adamw_torch",
        bf16=dtype is torch.bfloat16,
        fp16=dtype is torch.float16,
        dataloader_num_workers=training.num_workers,
        # Each worker remembers the images it has prepared; without this they would be thrown away every epoch.
        dataloader_persistent_workers=training.num_workers > 0,
        dataloader_multiprocessing_context="spawn" if training.num_workers else None,
        dataloader_pin_memory=device.type == "cuda",
        remove_unused_columns=False,
        label_names=["labels"],
        seed=config.seed,
        data_seed=config.seed,
        use_cpu=device.type == "cpu",
        logging_strategy="steps",
        logging_steps=_log_every(total_steps(config, samples, processes)),
        logging_nan_inf_filter=False,
        save_strategy="steps",
        save_steps=config.checkpoints.every_steps,
        eval_strategy="no",
        include_num_input_tokens_seen="non_padding",
        report_to=[],
        disable_tqdm=True,
        # A gradient reaches the whole adapter in every batch: see gradients.py.
        ddp_find_unused_parameters=False,
    )
    # The configuration says it, not what `accelerate launch` wrote into the environment.
    arguments.mixed_precision = "bf16" if arguments.bf16 else "fp16" if arguments.fp16 else "no"
    # Of several graphics cards the Trainer would let one process take all, each with a copy of the base in every step.
    if device.type == "cuda" and arguments.n_gpu > 1:
        arguments._n_gpu = 1
    return arguments


def without_workers(config: RunConfig) -> RunConfig:
    """The configuration with all samples prepared in the training process."""
    return config.model_copy(update={"training": config.training.model_copy(update={"num_workers": 0})})


def shared_by_processes(config: RunConfig, processes: int) -> RunConfig:
    """The configuration with `micro_batch_size` lowered, if need be, so that each process makes equal batches.

    Raises ConfigError where the samples of a step cannot be shared evenly.
    """
    training = config.training
    if training.batch_size % processes:
        raise ConfigError(
            f"training.batch_size: {training.batch_size} samples cannot be shared by {processes} processes",
            hint=f"set it to a multiple of {processes}",
        )
    a_process = training.batch_size // processes
    per_forward = max(n for n in range(1, training.micro_batch_size + 1) if a_process % n == 0)
    shared = training.model_copy(update={"micro_batch_size": per_forward})
    return config.model_copy(update={"training": shared})


def two_rate_optimizer(model: PeftModel, training: TrainingSection) -> torch.optim.Optimizer | None:
    """AdamW with a learning rate of its own for the vision towers; None, for the Trainer's, where none is asked for.

    Raises ConfigError where it is asked for and the adapter has no part in the vision towers.
    """
    if training.vision_learning_rate is None:
        return None
    vision, others = vision_parameters(model)
    if not vision:
        raise ConfigError(
            "training.vision_learning_rate: the adapter has no part in the vision towers",
            hint="set adapter.target_modules to decoder+vision, or leave this out",
        )
    groups = [
        {"params": others, "lr": training.learning_rate},
        {"params": vision, "lr": training.vision_learning_rate},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], weight_decay=training.weight_decay)


def total_steps(config: RunConfig, samples: int, processes: int = 1) -> int:
    """Optimizer steps of the whole run; an epoch's last, smaller step counts."""
    if config.training.max_steps is not None:
        return config.training.max_steps
    assert config.training.epochs is not None
    return max(1, math.ceil(config.training.epochs * steps_per_epoch(config, samples, processes)))


def steps_per_epoch(config: RunConfig, samples: int, processes: int = 1) -> int:
    """Optimizer steps in which every sample is seen once."""
    return math.ceil(forwards_per_epoch(config, samples, processes) / forwards_per_step(config, processes))


def forwards_per_epoch(config: RunConfig, samples: int, processes: int = 1) -> int:
    """Batches on each device in which every sample is seen once; the last may be smaller."""
    return math.ceil(samples / (config.training.micro_batch_size * processes))


def forwards_per_step(config: RunConfig, processes: int = 1) -> int:
    """Batches on each device whose gradients make one optimizer step."""
    return max(1, config.training.batch_size // (config.training.micro_batch_size * processes))


def _log_every(steps: int) -> int:
    return max(1, min(10, steps // 50))


@dataclass(frozen=True, slots=True)
class Setup:
    """All that a training works on. `optimizer` is None where the Trainer is to make its own."""

    model: PeftModel
    encoder: Processor
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
    encoder = base.processor(config.input.resolution, config.input.prompt)
    model = fresh_adapter(base.network, config, encoder, revision=base.revision)
    encoded = encoded_samples(config, samples, encoder)
    demand_gradients(model, Collator(encoder.pad_id)([encoded[0]]), dtype)
    return Setup(model, encoder, encoded, two_rate_optimizer(model, config.training), device, dtype)


def encoded_samples(config: RunConfig, samples: Sequence[Sample], encoder: Processor) -> EncodedSamples:
    """The samples as model inputs, varied as the configuration says."""
    return EncodedSamples(samples, encoder, augmentation=config.training.augmentation, seed=config.seed)


def sample_order(config: RunConfig, samples: EncodedSamples, processes: int = 1) -> LengthOrder:
    """The order in which each epoch shows the samples; several processes take its batches in turn."""
    training = config.training
    return LengthOrder(
        len(samples),
        [length.sequence for length in measure_lengths(samples.samples, samples.encoder)],
        training.micro_batch_size,
        step=training.batch_size,
        window=int(training.group_by_length),
        seed=config.seed,
        epoch=lambda: samples.epoch,
        even=1 if processes == 1 else processes * training.micro_batch_size,
    )


def fresh_adapter(
    network: PreTrainedModel, config: RunConfig, encoder: Processor, *, revision: str | None
) -> PeftModel:
    """The network with an untrained adapter as the configuration describes it; `revision` is the base's commit.

    Where the configuration asks for it, activations are computed twice instead of held.
    """
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


Tell = Callable[[str], None]
Stage = Callable[[str, str, int, int], None]
"""Told what is being done, of what, and how many are done of how many."""

_CODE = ("data/images.py", "data/packed.py", "data/augment", "data/colours.py")
_WORTHWHILE = 256
"""Training samples below which `auto` does not bother."""


def keep_features(
    config: RunConfig,
    model: PeftModel,
    training: EncodedSamples,
    validation: EncodedSamples | None,
    *,
    dtype: torch.dtype,
    epochs: float,
    tell: Tell,
    stage: Stage | None = None,
    ranks: Ranks | None = None,
) -> bool:
    """Make both sets of samples take features from a cache that holds them all; False where that is not to be.

    `dtype` is the format in which training computes; `stage` is told how far it is. Of several processes each looks
    at a share of the images. Raises ConfigError where the cache is demanded and cannot be.
    """
    if not _wanted(config, model, training, epochs):
        return False
    ranks = ranks or Ranks()
    limit = int(config.training.feature_cache_gb * 1e9)
    store = FeatureStore(cache_folder(), limit)
    ours = _cache(store, model, training, dtype)
    sets: list[tuple[EncodedSamples, int, FeatureCache]] = [(training, _views(config), ours)]
    if validation is not None:
        # Validation computes in the number format of the weights, as transcription does.
        sets.append((validation, 1, _cache(store, model, validation, torch.float32, frozen=ours.weights_hash)))
    size = sum(_size(samples, views, cache) for samples, views, cache in sets)
    # Asked once, before anything is written: what is free changes.
    problem = ranks.from_first(partial(_too_large, size, limit))
    if problem:
        if config.training.feature_cache == "auto":
            tell(f"no vision cache: {problem}")
            return False
        raise ConfigError(
            f"training.feature_cache: {problem}",
            hint="raise training.feature_cache_gb, lower training.feature_cache_views, or set DSOCR_CACHE",
        )
    for samples, views, cache in sets:
        samples.use_cache(cache, views)
    _fill(sets, size, config.training.micro_batch_size, tell, stage or _nobody, ranks)
    return True


def keep_features_in_memory(
    config: RunConfig, model: PeftModel, samples: EncodedSamples, *, dtype: torch.dtype, epochs: float
) -> int:
    """For a trial: have samples take features from memory where training would keep them, and count the images.

    0 where it would not. Features are computed when they are asked for first; nothing is read or written.
    """
    if not _wanted(config, model, samples, epochs):
        return 0
    limit, views = int(config.training.feature_cache_gb * 1e9), _views(config)
    cache = _cache(MemoryStore(), model, samples, dtype)
    if _too_large(_size(samples, views, cache), limit):
        return 0
    samples.use_cache(cache, views)
    return views * len(samples)


def _views(config: RunConfig) -> int:
    """Variations of each image that are kept."""
    return config.training.feature_cache_views if changes(config.training.augmentation) else 1


def _cache(
    store: Store,
    model: PeftModel,
    samples: EncodedSamples,
    dtype: torch.dtype,
    *,
    frozen: Callable[[], str] | None = None,
) -> FeatureCache:
    autocast, about = None if dtype is torch.float32 else dtype, code_hash(*_CODE)
    return FeatureCache(store, model, samples.encoder, autocast=autocast, salt=about, weights_hash=frozen)


def _wanted(config: RunConfig, model: PeftModel, samples: EncodedSamples, epochs: float) -> bool:
    wish = config.training.feature_cache
    if wish is False:
        return False
    adapted, _ = vision_parameters(model)
    if wish is True:
        if adapted:
            raise ConfigError(
                "training.feature_cache: the adapter changes the vision towers, so nothing they say can be kept",
                hint="set adapter.target_modules to decoder, or leave this at auto",
            )
        return True
    # With a few variations in place of always new ones another thing is learnt, so that has to be asked for.
    fresh = changes(config.training.augmentation)
    return not adapted and not fresh and epochs > 1 and len(samples) >= _WORTHWHILE


def _size(samples: EncodedSamples, views: int, cache: FeatureCache) -> int:
    return views * sum(cache.entry_bytes(length.grid) for length in measure_lengths(samples.samples, samples.encoder))


def _too_large(size: int, limit: int) -> str:
    if size > limit:
        return f"{size / 1e9:.2f} GB would be kept, and {limit / 1e9:.2f} are allowed"
    folder = cache_folder()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    return f"{size / 1e9:.2f} GB would be kept, and {free / 1e9:.2f} are free in {folder}" if size > free else ""


def _fill(
    sets: Sequence[tuple[EncodedSamples, int, FeatureCache]],
    size: int,
    micro_batch_size: int,
    tell: Tell,
    stage: Stage,
    ranks: Ranks,
) -> None:
    """Let the vision towers look at every image that is not in the cache, each process at its share of them."""
    wanted = [list(_entries(samples, stage)) for samples, _, _ in sets]
    keys = [key for entries in wanted for key, _, _ in entries]
    found = sets[0][2].claim(keys)
    # Nobody writes before all have seen what is there, or two would write the same.
    ranks.wait()
    if ranks.first:
        sets[0][2].make_room(round(size * (1 - len(found) / len(keys))), keys)
    tell(f"vision cache: {len(found)} of {len(keys)} views are in {cache_folder()}, {size / 1e6:.0f} MB in all")
    missing = [[entry for entry in entries if entry[0] not in found] for entries in wanted]
    done, total = 0, sum(map(len, missing))
    for (samples, _, cache), entries in zip(sets, missing, strict=True):
        ours = ranks.share(entries)
        together = max(8, micro_batch_size)
        for start in range(0, len(ours), together):
            some = ours[start : start + together]
            cache.fill({key: samples.shown(index, view) for key, index, view in some})
            done += len(some) * ranks.count
            stage("looking at images", "images", min(done, total), total)
        samples.forget()
    ranks.wait()


def _nobody(what: str, unit: str, done: int, total: int) -> None:
    pass


def _entries(samples: EncodedSamples, stage: Stage) -> Iterator[tuple[str, int, int]]:
    """Key, index and variation of all that the samples will be shown as."""
    for index in range(len(samples)):
        stage("looking for kept images", "images", index + 1, len(samples))
        for view, key in enumerate(samples.keys(index)):
            yield key, index, view


@contextmanager
def undisturbed(model: PeftModel) -> Iterator[None]:
    """Train, read and draw inside; afterwards weights, modes and random numbers are the old ones, gradients gone.

    Only weights that have gradients are put back: the base is frozen, and a second copy of it may not fit.
    """
    kept = [(parameter, parameter.detach().clone()) for parameter in model.parameters() if parameter.requires_grad]
    modes = [(module, module.training) for module in model.modules()]
    drawn, drawn_by_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(drawn)
        np.random.set_state(drawn_by_numpy)
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            for parameter, old in kept:
                parameter.copy_(old)
        for module, training in modes:
            module.training = training
