"""Whether a training keeps what its vision towers say of each image, and the looking at all of them beforehand."""

import shutil
from collections.abc import Callable, Iterator, Sequence

import torch
from peft import PeftModel

from dsocr.config import RunConfig
from dsocr.data.augment import changes
from dsocr.errors import ConfigError
from dsocr.model.adapters import vision_parameters
from dsocr.model.vision_cache import FeatureStore, VisionCache, cache_folder, code_hash
from dsocr.training.collator import EncodedSamples
from dsocr.training.lengths import measure_lengths

Tell = Callable[[str], None]

_CODE = ("data/images.py", "data/packed.py", "data/augment")
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
) -> bool:
    """Make both sets of samples take features from a cache that holds them all; False where that is not to be.

    `dtype` is the format in which training computes. Raises ConfigError where the cache is demanded and cannot be.
    """
    if not _wanted(config, model, training, epochs):
        return False
    limit = int(config.training.vision_cache_gigabytes * 1e9)
    store = FeatureStore(cache_folder(), limit)
    autocast = None if dtype is torch.float32 else dtype
    views = config.training.vision_cache_views if changes(config.training.augmentation) else 1
    sets = [(training, views, VisionCache(store, model, training.encoder, autocast=autocast, about=code_hash(*_CODE)))]
    if validation is not None:
        # Validation computes in the number format of the weights, as transcription does.
        cache = VisionCache(store, model, validation.encoder, autocast=None, about=code_hash(*_CODE))
        sets.append((validation, 1, cache))
    size = sum(_size(samples, views, cache) for samples, views, cache in sets)
    if problem := _too_large(size, limit):
        if config.training.vision_cache == "auto":
            tell(f"no vision cache: {problem}")
            return False
        raise ConfigError(
            f"training.vision_cache: {problem}",
            hint="raise training.vision_cache_gigabytes, lower training.vision_cache_views, or set DSOCR_CACHE",
        )
    for samples, views, cache in sets:
        samples.use_cache(cache, views)
    _fill(sets, size, config.training.samples_per_forward, tell)
    return True


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
    sets: Sequence[tuple[EncodedSamples, int, VisionCache]], size: int, samples_per_forward: int, tell: Tell
) -> None:
    """Let the vision towers look at every image that is not in the cache."""
    wanted = [list(_entries(samples)) for samples, _, _ in sets]
    keys = [key for entries in wanted for key, _, _ in entries]
    found = sets[0][2].claim(keys)
    sets[0][2].make_room(round(size * (1 - len(found) / len(keys))), keys)
    tell(f"vision cache: {len(found)} of {len(keys)} views are in {cache_folder()}, {size / 1e6:.0f} MB in all")
    for (samples, _, cache), entries in zip(sets, wanted, strict=True):
        missing = [entry for entry in entries if entry[0] not in found]
        together = max(8, samples_per_forward)
        for start in range(0, len(missing), together):
            some = missing[start : start + together]
            cache.fill({key: samples.shown(index, view) for key, index, view in some})
        samples.forget()


def _entries(samples: EncodedSamples) -> Iterator[tuple[str, int, int]]:
    """Key, index and variation of all that the samples will be shown as."""
    for index in range(len(samples)):
        for view, key in enumerate(samples.keys(index)):
            yield key, index, view
