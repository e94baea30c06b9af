"""Whether a training keeps what its vision towers say of each image, and the looking at all of them beforehand."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from peft import PeftModel

from dsocr.config import RunConfig
from dsocr.data.augment import changes
from dsocr.errors import ConfigError
from dsocr.model.adapters import vision_parameters
from dsocr.model.vision_cache import FeatureStore, MemoryStore, Store, VisionCache, cache_folder, code_hash
from dsocr.training.collator import EncodedSamples
from dsocr.training.lengths import measure_lengths
from dsocr.training.ranks import Ranks

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
    limit = int(config.training.vision_cache_gigabytes * 1e9)
    store = FeatureStore(cache_folder(), limit)
    ours = _cache(store, model, training, dtype)
    sets: list[tuple[EncodedSamples, int, VisionCache]] = [(training, _views(config), ours)]
    if validation is not None:
        # Validation computes in the number format of the weights, as transcription does.
        sets.append((validation, 1, _cache(store, model, validation, torch.float32, frozen=ours.frozen)))
    size = sum(_size(samples, views, cache) for samples, views, cache in sets)
    # Asked once, before anything is written: what is free changes.
    problem = ranks.from_first(partial(_too_large, size, limit))
    if problem:
        if config.training.vision_cache == "auto":
            tell(f"no vision cache: {problem}")
            return False
        raise ConfigError(
            f"training.vision_cache: {problem}",
            hint="raise training.vision_cache_gigabytes, lower training.vision_cache_views, or set DSOCR_CACHE",
        )
    for samples, views, cache in sets:
        samples.use_cache(cache, views)
    _fill(sets, size, config.training.samples_per_forward, tell, stage or _nobody, ranks)
    return True


def keep_features_in_memory(
    config: RunConfig, model: PeftModel, samples: EncodedSamples, *, dtype: torch.dtype, epochs: float
) -> int:
    """For a trial: have samples take features from memory where training would keep them, and count the images.

    0 where it would not. Features are computed when they are asked for first; nothing is read or written.
    """
    if not _wanted(config, model, samples, epochs):
        return 0
    limit, views = int(config.training.vision_cache_gigabytes * 1e9), _views(config)
    cache = _cache(MemoryStore(), model, samples, dtype)
    if _too_large(_size(samples, views, cache), limit):
        return 0
    samples.use_cache(cache, views)
    return views * len(samples)


def _views(config: RunConfig) -> int:
    """Variations of each image that are kept."""
    return config.training.vision_cache_views if changes(config.training.augmentation) else 1


def _cache(
    store: Store,
    model: PeftModel,
    samples: EncodedSamples,
    dtype: torch.dtype,
    *,
    frozen: Callable[[], str] | None = None,
) -> VisionCache:
    autocast, about = None if dtype is torch.float32 else dtype, code_hash(*_CODE)
    return VisionCache(store, model, samples.encoder, autocast=autocast, about=about, frozen=frozen)


def _wanted(config: RunConfig, model: PeftModel, samples: EncodedSamples, epochs: float) -> bool:
    wish = config.training.vision_cache
    if wish is False:
        return False
    adapted, _ = vision_parameters(model)
    if wish is True:
        if adapted:
            raise ConfigError(
                "training.vision_cache: the adapter changes the vision towers, so nothing they say can be kept",
                hint="set adapter.scope to decoder, or leave this at auto",
            )
        return True
    # With a few variations in place of always new ones another thing is learnt, so that has to be asked for.
    fresh = changes(config.training.augmentation)
    return not adapted and not fresh and epochs > 1 and len(samples) >= _WORTHWHILE


def _size(samples: EncodedSamples, views: int, cache: VisionCache) -> int:
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
    sets: Sequence[tuple[EncodedSamples, int, VisionCache]],
    size: int,
    samples_per_forward: int,
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
        together = max(8, samples_per_forward)
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
