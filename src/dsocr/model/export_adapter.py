"""The recipe of an export of the adapter alone, as PEFT or as vLLM reads it."""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from dsocr.errors import ConfigError
from dsocr.model.adapters import CONFIG, WEIGHTS
from dsocr.model.architectures import read_config_json, recognise
from dsocr.model.export_folder import write_beside
from dsocr.model.export_target import demand_apart, refuse_target
from dsocr.model.exported import Exported
from dsocr.model.finding import EMBEDDED, find_base
from dsocr.model.serving import VLLM_RANKS
from dsocr.model.weights import heads_in
from dsocr.runs import CALIBRATION, ReadingSettings, RunFolder, to_json, writing_folder

_MERGE = "export merged weights instead, with --merged"

# vLLM takes the checkpoint's own names and maps `model.layers.` to where its decoder lies.
_IN_VLLM = re.compile(
    r"base_model\.model\.model\.layers\.\d+\."
    r"(?:self_attn\.(?P<attention>[qkvo]_proj)|mlp\.(?:shared_experts\.)?(?P<mlp>(?:gate|up|down)_proj))"
    r"\.lora_[AB]\.weight"
)


def export_adapter(
    run: RunFolder,
    out: Path,
    form: Literal["peft", "vllm"],
    *,
    scores: Mapping[str, Any] | None = None,
    strength: float = 1.0,
    overwrite: bool = False,
) -> Exported:
    """Write the run's adapter as PEFT or as vLLM reads it; the base need not be at hand.

    `scores` is the run's scorecard as its file holds it, for the card. At a `strength` below 1 the weights are the
    same and the config's alpha is that part of itself. Raises ConfigError where the folder `out` is not free, for a
    strength the adapter cannot have, or where vLLM cannot read such an adapter.
    """
    refuse_target(out, overwrite=overwrite)
    export = Exported.of_run(form, run, scores, strength)
    folder = _base_at_hand(export.settings)
    demand_apart(out, [run.adapter, *([folder] if folder else [])])
    names = [name for name, _, _ in heads_in(run.adapter / WEIGHTS)]
    config = config_for_vllm(export.adapter, names) if form == "vllm" else export.adapter
    if folder is not None:
        export = export.on(recognise(read_config_json(folder), folder), export.revision)
    with writing_folder(out) as draft:
        shutil.copyfile(run.adapter / WEIGHTS, draft / WEIGHTS)
        (draft / CONFIG).write_text(to_json(config), encoding="utf-8", newline="\n")
        # At another strength confidences are others, too.
        if strength == 1 and (run.adapter / CALIBRATION).is_file():
            shutil.copyfile(run.adapter / CALIBRATION, draft / CALIBRATION)
        write_beside(draft, export, out)
    return export


def config_for_vllm(config: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The adapter's config with plain layer names for vLLM, which PEFT still reads as the same layers.

    `names` are those of the adapter's tensors. Raises ConfigError for what vLLM has no place for.
    """
    if config.get("use_dora"):
        raise ConfigError("vLLM has no DoRA, which this adapter was trained with", hint=_MERGE)
    if config["r"] > VLLM_RANKS[-1]:
        raise ConfigError(
            f"vLLM takes a rank of {VLLM_RANKS[-1]} at most, and this adapter's is {config['r']}", hint=_MERGE
        )
    matches = {name: _IN_VLLM.fullmatch(name) for name in names}
    if outside := [name for name, match in matches.items() if match is None]:
        shown = outside[0].removeprefix("base_model.model.")
        raise ConfigError(
            "vLLM takes adapters of the decoder's attention, dense and shared experts only; "
            f"{len(outside)} of {len(names)} tensors lie elsewhere, such as {shown}",
            hint=_MERGE,
        )
    layers = {match["attention"] or match["mlp"] for match in matches.values() if match}
    pattern = config["target_modules"]
    # The second tower has layers of the same names, so for PEFT all that was not trained is left out by name.
    left_out = rf"(?!(?:{pattern})$).*" if isinstance(pattern, str) else config.get("exclude_modules")
    return {**config, "target_modules": sorted(layers), "exclude_modules": left_out}


def _base_at_hand(settings: ReadingSettings) -> Path | None:
    """The base's folder, where finding it fetches nothing."""
    local = settings.base == EMBEDDED or Path(settings.base).is_dir()
    return find_base(settings.base)[0] if local else None
