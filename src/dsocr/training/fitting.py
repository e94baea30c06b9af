"""Which settings would make a training fit into a memory it does not fit into."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from dsocr.config import RunConfig
from dsocr.model.loading import choose_dtype

Changes = Mapping[str, Any]
"""Settings by their dotted names, as `--set` takes them."""


def find_smaller(
    config: RunConfig, needed: Callable[[RunConfig], int], free: int, *, device: torch.device, smaller: Sequence[str]
) -> dict[str, Any] | None:
    """The changes that cost least with which `needed` is no more than `free`; None where nothing helps.

    First what changes nothing but the speed, then precision, then what is learnt and seen: `smaller` are the
    resolutions to try, best first. Of each, as many samples at once as fit.
    """
    changes: dict[str, Any] = {}
    least = needed(changed(config, {"training.samples_per_forward": 1}))
    for step in _steps(config, device, smaller):
        tried = changes | step
        smallest = needed(changed(config, tried | {"training.samples_per_forward": 1}))
        if step and smallest >= least:
            continue
        changes, least = tried, smallest
        if smallest <= free:
            return changes | _most_samples(config, changes, needed, free)
    return None


def changed(config: RunConfig, changes: Changes) -> RunConfig:
    """The configuration with some settings changed."""
    values = config.model_dump()
    for name, value in changes.items():
        section, _, key = name.partition(".")
        values[section] = {**values[section], key: value}
    return RunConfig.model_validate(values)


def _steps(config: RunConfig, device: torch.device, smaller: Sequence[str]) -> Iterator[dict[str, Any]]:
    training = config.training
    if training.attention != "sdpa":
        yield {"training.attention": "sdpa"}
    yield {}
    if not training.gradient_checkpointing:
        yield {"training.gradient_checkpointing": True}
    half = choose_dtype("auto", device)
    if half.itemsize < choose_dtype(training.precision, device).itemsize:
        yield {"training.precision": "auto"}
    if config.adapter.scope in ("decoder+experts", "decoder+vision"):
        yield {"adapter.scope": "decoder"}
    for name in smaller:
        yield {"input.resolution": name}


def _most_samples(config: RunConfig, changes: Changes, needed: Callable[[RunConfig], int], free: int) -> dict[str, Any]:
    """The most samples at once, as far as they divide a step, or nothing where all that are set fit."""
    training = config.training
    fewer = range(training.samples_per_forward - 1, 0, -1)
    if changes and needed(changed(config, changes)) <= free:
        return {}
    for count in (count for count in fewer if training.samples_per_step % count == 0):
        setting = {"training.samples_per_forward": count}
        if needed(changed(config, {**changes, **setting})) <= free:
            return setting
    return {}
