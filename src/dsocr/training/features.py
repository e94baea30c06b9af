"""Image features of frozen vision towers: computed once before a training, which then takes them from the cache."""

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from dsocr.config import RunConfig
from dsocr.data.augment import changes
from dsocr.errors import ConfigError
from dsocr.models.adapters import vision_parameters
from dsocr.models.feature_cache import FeatureCache, FeatureStore, MemoryStore, Store, cache_folder, code_hash
from dsocr.training.distributed import Distributed
from dsocr.training.samples import EncodedSamples, measure_lengths, steps_per_epoch, total_steps

if TYPE_CHECKING:
    from dsocr.training.train import Setup, StageProgress

_PREPARING_CODE = ("images.py", "data/augment.py")
"""Sources besides the model's own on which the pixels of a training image depend."""
_WORTH_CACHING = 256
"""Training samples below which `feature_cache: auto` does not cache."""

Part = tuple[EncodedSamples, FeatureCache, int]
"""Samples, their cache, and the number of views of each image in it."""


def cache_features(
    config: RunConfig,
    setup: "Setup",
    validation: EncodedSamples | None,
    *,
    on_message: Callable[[str], None],
    on_stage: "StageProgress | None" = None,
    dist: Distributed | None = None,
) -> bool:
    """Compute the image features of frozen vision towers once and keep them on disk; False if that is not to be.

    Both sets of samples then take features from the cache. Of several ranks each computes a share. Raises ConfigError
    if the cache is required and cannot be used.
    """
    if not _wants_cache(config, setup):
        return False
    dist = dist or Distributed()
    limit = int(config.training.feature_cache_gb * 1e9)
    store = FeatureStore(cache_folder(), limit)
    ours = _make_cache(store, setup, setup.dtype)
    parts: list[Part] = [(setup.samples, ours, _views(config))]
    if validation is not None:
        # Validation computes in the number format of the weights, as transcription does.
        parts.append((validation, _make_cache(store, setup, torch.float32, weights_hash=ours.weights_hash), 1))
    size = sum(map(_bytes_needed, parts))
    # Decided once, before anything is written: the free space changes.
    problem = dist.broadcast(partial(_why_too_large, size, limit))
    if problem and config.training.feature_cache == "auto":
        on_message(f"no feature cache: {problem}")
        return False
    if problem:
        hint = "raise training.feature_cache_gb, lower training.feature_cache_views, or set DSOCR_CACHE"
        raise ConfigError(f"training.feature_cache: {problem}", code="feature-cache-too-large", hint=hint)
    for samples, cache, views in parts:
        samples.use_cache(cache, views)
    images_per_batch = max(8, config.training.micro_batch_size)
    _fill_cache(parts, size, images_per_batch, on_message, on_stage or (lambda *progress: None), dist)
    return True


def cache_features_in_memory(config: RunConfig, setup: "Setup") -> int:
    """For a measurement: take features from memory if training would cache them, and return the number of images.

    Features are computed when they are first asked for; nothing is read or written.
    """
    if not _wants_cache(config, setup):
        return 0
    cache, views = _make_cache(MemoryStore(), setup, setup.dtype), _views(config)
    size = _bytes_needed((setup.samples, cache, views))
    if _why_too_large(size, int(config.training.feature_cache_gb * 1e9)):
        return 0
    setup.samples.use_cache(cache, views)
    return views * len(setup.samples)


def _wants_cache(config: RunConfig, setup: "Setup") -> bool:
    setting = config.training.feature_cache
    if setting is False:
        return False
    if not setup.processor.family.caches_features:
        if setting is True:
            message = (
                f"training.feature_cache: models of the family {setup.processor.family.name} have no features to cache"
            )
            raise ConfigError(message, code="feature-cache-unsupported", hint="leave it at auto")
        return False
    adapted, _ = vision_parameters(setup.model)
    if setting is True and adapted:
        message = "training.feature_cache: the adapter trains vision layers, so features cannot be cached"
        hint = "set adapter.target_modules to decoder, or leave this at auto"
        raise ConfigError(message, code="feature-cache-not-frozen", hint=hint)
    if setting is True:
        return True
    # A few views instead of ever new ones change what is trained on, so that must be asked for.
    augmented = changes(config.training.augmentation)
    count = len(setup.samples)
    epochs = total_steps(config, count) / steps_per_epoch(config, count)
    return not adapted and not augmented and epochs > 1 and count >= _WORTH_CACHING


def _views(config: RunConfig) -> int:
    """Return the number of cached views of each image."""
    return config.training.feature_cache_views if changes(config.training.augmentation) else 1


def _make_cache(
    store: Store, setup: "Setup", dtype: torch.dtype, *, weights_hash: Callable[[], str] | None = None
) -> FeatureCache:
    autocast, salt = None if dtype is torch.float32 else dtype, code_hash(*_PREPARING_CODE)
    processor: Any = setup.processor  # of a family that caches features
    return FeatureCache(store, setup.model, processor, autocast=autocast, salt=salt, weights_hash=weights_hash)


def _bytes_needed(part: Part) -> int:
    samples, cache, views = part
    lengths = measure_lengths(samples.samples, samples.processor)
    return views * sum(cache.entry_bytes(length.vision) for length in lengths)


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
    parts: Sequence[Part],
    size: int,
    images_per_batch: int,
    on_message: Callable[[str], None],
    on_stage: "StageProgress",
    dist: Distributed,
) -> None:
    """Compute the features that are not in the cache, each rank its share."""
    wanted: list[dict[str, tuple[int, int]]] = []  # index and view by key
    for samples, _, _ in parts:
        wanted.append({})
        for index in range(len(samples)):
            on_stage("looking up cached features", "images", index + 1, len(samples))
            wanted[-1] |= {key: (index, view) for view, key in enumerate(samples.cache_keys(index))}
    keys = [key for entries in wanted for key in entries]
    cache = parts[0][1]
    cached = cache.claim(keys)
    dist.barrier()  # no rank writes before all have looked, or two would compute the same features
    if dist.is_main:
        cache.make_room(round(size * (1 - len(cached) / len(keys))), keys)
    on_message(f"feature cache: {len(cached)} of {len(keys)} views are in {cache_folder()}, {size / 1e6:.0f} MB in all")
    missing = [[entry for entry in entries.items() if entry[0] not in cached] for entries in wanted]
    done, total = 0, sum(map(len, missing))
    for (samples, cache, _), entries in zip(parts, missing, strict=True):
        ours = dist.shard(entries)
        for start in range(0, len(ours), images_per_batch):
            batch = ours[start : start + images_per_batch]
            cache.fill({key: samples.encode_view(*place) for key, place in batch})
            done += len(batch) * dist.world_size
            on_stage("computing image features", "images", min(done, total), total)
        samples.forget()
    dist.barrier()
