"""The recipe of an export of merged weights: a run's base with its adapter in it, in the layout of the base's files.

What serves or converts the base takes the export in its place.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from dsocr.errors import ConfigError, ModelError
from dsocr.models.adapters import CONFIG, WEIGHTS, at_strength, load_adapter
from dsocr.models.checkpoint import (
    EMBEDDED,
    INDEX,
    SINGLE,
    find_base,
    heads_in,
    tensor_shapes,
    tensor_types,
    weight_files,
)
from dsocr.models.deepseek_ocr import UNUSED_TENSORS, read_config_json, recognise
from dsocr.models.export_target import CARD, demand_apart, is_plain, refuse_target
from dsocr.models.loading import load_base
from dsocr.models.model_card import VLLM_RANKS, Exported, model_card
from dsocr.runs import CALIBRATION, ReadingSettings, RunFolder, to_json, writing_folder


def write_beside(draft: Path, export: Exported, out: Path) -> None:
    """Lay the card and the settings to read with beside what is exported; `out` is where the draft will be."""
    export.settings.save(draft)
    (draft / CARD).write_text(model_card(export, Path(out.resolve().name)), encoding="utf-8", newline="\n")


_TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}

_LAYER = re.compile(r".*?\.layers\.\d+\.")


def weight_types(folder: Path) -> dict[str, torch.dtype]:
    """The type of each tensor of a checkpoint that its network uses. Raises ModelError for a quantized one."""
    kinds = {name: kind for name, kind in tensor_types(folder).items() if name not in UNUSED_TENSORS}
    if strange := sorted(set(kinds.values()) - _TYPES.keys()):
        raise ModelError(
            f"has weights of type {', '.join(strange)}, which no adapter can be merged into",
            where=folder,
            hint=f"use a base whose weights are {', '.join(_TYPES)}",
        )
    return {name: _TYPES[kind] for name, kind in kinds.items()}


def widest(types: Iterable[torch.dtype]) -> torch.dtype:
    """The smallest type that holds tensors of all these types exactly."""
    kinds = set(types)
    return kinds.pop() if len(kinds) == 1 else torch.float32


def demand_same_tensors(network: PreTrainedModel, folder: Path) -> None:
    """Raises ModelError where the network's tensors would not be called and shaped as in the base's own files."""
    drafts = revert_weight_conversion(network, {name: t.to("meta") for name, t in network.state_dict().items()})
    own = {name: tuple(tensor.shape) for name, tensor in drafts.items()}
    theirs = {name: shape for name, shape in tensor_shapes(folder).items() if name not in UNUSED_TENSORS}
    problems = [f"{name}: not in the base" for name in own.keys() - theirs.keys()]
    problems += [f"{name}: in the base only" for name in theirs.keys() - own.keys()]
    problems += [
        f"{name}: {own[name]}, not {theirs[name]}" for name in own.keys() & theirs.keys() if own[name] != theirs[name]
    ]
    if problems:
        shown = "".join(f"\n  {problem}" for problem in sorted(problems)[:20])
        raise ModelError(f"{len(problems)} tensors would be written otherwise than they were read{shown}", where=folder)


@torch.no_grad()
def merge(model: PeftModel, *, where: object) -> PreTrainedModel:
    """The network with the adapter in its weights and no adapter any more. Raises ModelError for a broken adapter."""
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            weight = getattr(layer.get_base_layer(), getattr(layer, "parameter_name", "weight"))
            kind = weight.dtype
            weight.data = weight.data.float()
            layer.merge()
            weight.data = weight.data.to(kind)
            if not weight.isfinite().all():
                raise ModelError("gives weights that are not finite when it is merged", where=where)
    return model.unload()


def original_tensors(network: PreTrainedModel, types: Mapping[str, torch.dtype]) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the network, named and typed as in the base's own files."""
    names = sorted(network.state_dict(), key=_layer)
    tensors = network.state_dict()
    for _, group in groupby(names, key=_layer):
        for name, tensor in revert_weight_conversion(network, {name: tensors[name] for name in group}).items():
            yield name, tensor.to(types[name])


def unused_tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors that a base has and no code uses, so that its files keep the same names."""
    for file in weight_files(folder):
        with safe_open(file, framework="pt") as tensors:
            for name in UNUSED_TENSORS:
                if name in tensors.keys():  # noqa: SIM118  (not a mapping)
                    yield name, tensors.get_tensor(name)


def _layer(name: str) -> str:
    """What is converted together: a layer, or all that lies in none."""
    match = _LAYER.match(name)
    return match[0] if match else ""


SHARD_BYTES = 2_000_000_000
"""The most a file holds; while it is written, as much is in memory again."""


def write_shards(folder: Path, tensors: Iterable[tuple[str, Tensor]], *, shard_bytes: int = SHARD_BYTES) -> None:
    """Write the tensors, in their order, into an existing folder."""
    files: list[Path] = []
    names_by_file: list[list[str]] = []
    shard: dict[str, Tensor] = {}
    size = total = 0

    def close() -> None:
        file = folder / f"shard-{len(files)}"
        save_file(shard, file, metadata={"format": "pt"})
        files.append(file)
        names_by_file.append(list(shard))
        shard.clear()

    for name, tensor in tensors:
        if shard and size + tensor.nbytes > shard_bytes:
            close()
            size = 0
        shard[name] = tensor.contiguous()
        size += tensor.nbytes
        total += tensor.nbytes
    close()
    if len(files) == 1:
        files[0].rename(folder / SINGLE)
        return
    weight_map: dict[str, str] = {}
    for number, (file, names) in enumerate(zip(files, names_by_file, strict=True), start=1):
        final = f"model-{number:05}-of-{len(files):05}.safetensors"
        file.rename(folder / final)
        weight_map |= dict.fromkeys(names, final)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8", newline="\n")


Progress = Callable[[int, int], None]
"""Told after each tensor: how many are written, and how many there are."""

_OF_AN_EXPORT = {CARD, "reading.json"}


def export_merged(
    run: RunFolder,
    out: Path,
    *,
    scores: Mapping[str, Any] | None = None,
    strength: float = 1.0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write the run's base with its adapter merged in, with the names, types and other files that the base has.

    `scores` is the run's scorecard as its file holds it, for the card; of the adapter as much is merged in as
    `strength` says. Raises ConfigError where the folder `out` is not free, or the adapter cannot have this strength,
    ModelError where it does not fit or a tensor would not come out under the name it went in by.
    """
    refuse_target(out, overwrite=overwrite)
    demand_apart(out, [run.adapter])
    export = Exported.of_run("merged", run, scores, strength)
    settings = export.settings
    folder, _ = find_base(settings.base, settings.base_revision)
    demand_apart(out, [folder])
    types = weight_types(folder)
    base = load_base(settings.base, settings.base_revision, dtype=widest(types.values()))
    demand_same_tensors(base.network, folder)
    export = export.on(base.architecture, base.revision)
    model = load_adapter(base.network, run.adapter)
    with at_strength(model, strength):
        network = merge(model, where=run.adapter)
    unused = dict(unused_tensors(folder))
    with writing_folder(out) as draft:
        tensors = chain(original_tensors(network, types), unused.items())
        write_shards(draft, _told(tensors, len(types) + len(unused), progress))
        for file in _plain_files(folder):
            shutil.copyfile(file, draft / file.name)
        write_beside(draft, export, out)
    return export


def _told(tensors: Iterable[tuple[str, Tensor]], total: int, progress: Progress | None) -> Iterator[tuple[str, Tensor]]:
    for done, tensor in enumerate(tensors, start=1):
        yield tensor
        if progress is not None:
            progress(done, total)


def _plain_files(folder: Path) -> list[Path]:
    """What lies beside a base's weights and is no code, but for what the export has of its own."""
    own = set(folder.glob("*.index.json")) | {folder / name for name in _OF_AN_EXPORT}
    return sorted(path for path in folder.iterdir() if is_plain(path) and path not in own)


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
