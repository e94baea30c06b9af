"""An adapter at a fraction of its strength: 0 is the base, 1 the adapter as it was trained.

LoRA adds `scaling * B A` to a weight, with `scaling` alpha / rank, or alpha / sqrt(rank) for rsLoRA: both are lines
from base to adapter. DoRA also sets the magnitude of the sum, so that between its ends there is no such line.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from peft import PeftModel
from peft.tuners.lora import LoraLayer

from dsocr.errors import ConfigError


def demand_strength(strength: float, config: Mapping[str, Any]) -> None:
    """Raises ConfigError where the adapter of this config cannot be used at this strength."""
    if not 0 <= strength <= 1:
        raise ConfigError(f"a strength is from 0 (the base) to 1 (the adapter), not {strength:g}")
    if config.get("use_dora") and 0 < strength < 1:
        raise ConfigError(
            f"a DoRA adapter has no strength of {strength:g}: it sets magnitudes beside the direction that it adds",
            hint="train with adapter.variant lora or rslora to choose a strength afterwards",
        )


@contextmanager
def at_strength(model: PeftModel, strength: float) -> Iterator[None]:
    """Inside, the adapter works at this fraction of its strength; afterwards exactly as before, whatever happened.

    Raises ConfigError for a strength outside 0 to 1, or one between for DoRA.
    """
    demand_strength(strength, model.peft_config["default"].to_dict())
    scalings = [layer.scaling for layer in model.modules() if isinstance(layer, LoraLayer)]
    kept = [dict(scaling) for scaling in scalings]
    try:
        for scaling in scalings:
            for name, value in scaling.items():
                scaling[name] = value * strength
        yield
    finally:
        for scaling, values in zip(scalings, kept, strict=True):
            scaling.update(values)


def config_at_strength(config: Mapping[str, Any], strength: float) -> dict[str, Any]:
    """A saved adapter's config with which PEFT, and all who multiply by alpha, read it at this strength.

    Raises ConfigError for a strength outside 0 to 1, or one between for DoRA, and for 0: that is the base itself.
    """
    if strength == 0:
        raise ConfigError("at a strength of 0 nothing is left of the adapter", hint="use the base itself")
    demand_strength(strength, config)
    if strength == 1:
        return dict(config)
    patterns = {name: alpha * strength for name, alpha in (config.get("alpha_pattern") or {}).items()}
    return {**config, "lora_alpha": config["lora_alpha"] * strength, "alpha_pattern": patterns}
