"""Export a run with its model card: its base with the adapter merged in, or the adapter alone for PEFT or vLLM.

Merged weights keep the names, number formats and other files of the base, so whatever serves or converts the base
takes the export instead. They are written tensor by tensor: `save_pretrained` would convert all names at once, which
holds the experts twice, writes one number format for all tensors, and drops the tensors that no code uses.
"""

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal, Self

import torch
import yaml
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from dsocr import __version__
from dsocr.errors import ConfigError, ModelError, option
from dsocr.html import render
from dsocr.io.files import rename
from dsocr.io.work import write_manifest, writing_folder
from dsocr.models.adapters import load_adapter, read_adapter_config, scaled_config, target_modules_of, variant_of
from dsocr.models.base_folder import (
    CARD,
    CONFIG,
    INDEX,
    OWN_FILES,
    PROVENANCE,
    SINGLE,
    WEIGHTS,
    embedded_bases,
    find_base,
    is_plain,
    is_whole_network,
    require_free_export,
    require_same_tensors,
    tensor_headers,
    tensor_shapes,
    tensor_types,
    weight_files,
)
from dsocr.models.family import Family, Serving
from dsocr.models.graph import GRAPH
from dsocr.models.loading import PUBLISHED_BASES, Base, load_base, recognize
from dsocr.runs import CALIBRATION, ReadingSettings, RunFolder, UnlabelledReport, read_provenance, to_json
from dsocr.text import percentage

VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM accepts for --max-lora-rank."""


def request_settings(generation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a vLLM request, besides model, prompt and image, to decode as dsocr does."""
    settings: dict[str, Any] = {"temperature": 0, "skip_special_tokens": False}
    if "max_new_tokens" in generation:
        settings["max_tokens"] = generation["max_new_tokens"]
    if size := generation.get("no_repeat_ngram_size"):
        settings["vllm_xargs"] = {"ngram_size": size, "window_size": generation.get("no_repeat_ngram_window", size)}
    return settings


Form = Literal["merged", "peft", "vllm"]
"""Merged weights, or the adapter as PEFT or vLLM reads it."""


@dataclass(frozen=True, slots=True)
class Export:
    """One export and the facts known of its run.

    `family` is None if the base is not here, `revision` if its commit is not known. `adapter` is the adapter's config
    at the export's `scale`; `provenance` comes from provenance.json, `scores` from scorecard.json, None if not scored.
    `folder` is where it was written.
    """

    form: Form
    name: str
    settings: ReadingSettings
    adapter: Mapping[str, Any]
    provenance: Mapping[str, Any]
    scores: Mapping[str, Any] | None
    family: Family | None = None
    revision: str | None = None
    scale: float = 1.0
    folder: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return name, form, base and scale in JSON's types."""
        return {"name": self.name, "form": self.form, "base": self.settings.base, "scale": self.scale}

    @classmethod
    def of_run(cls, form: Form, run: RunFolder, scores: Mapping[str, Any] | None, scale: float = 1.0) -> Self:
        """Collect the facts in a run's files. Raises ConfigError for a scale that its adapter cannot have.

        Merged weights may have a scale of 0: the base in the form in which vLLM serves adapters on it.
        """
        settings = ReadingSettings.load(run.adapter)
        adapter: Mapping[str, Any] = {} if is_whole_network(run.adapter) else read_adapter_config(run.adapter)
        if adapter and (scale or form != "merged"):
            adapter = scaled_config(adapter, scale)
        return cls(
            form=form,
            name=run.path.resolve().name,
            settings=settings,
            adapter=adapter,
            provenance=read_provenance(run),
            scores=scores,
            revision=settings.base_revision,
            scale=scale,
        )

    @property
    def serving(self) -> Serving | None:
        """How vLLM serves the base; None if it does not, or if the base is not here and not a published one."""
        if self.family is not None:
            return self.family.serving
        return PUBLISHED_BASES.get(self.settings.base)

    def serve_command(self, folder: Path) -> str | None:
        """Return the vLLM command that serves the export in a folder; None if vLLM cannot serve it."""
        serving = self.serving
        if self.form == "peft" or serving is None:
            return None
        options = serving.options_at(self.settings.resolution)
        if self.form == "merged":
            return shlex.join(["vllm", "serve", folder.as_posix(), *options])
        at = ["--revision", self.revision] if self.revision else []
        rank = next(value for value in VLLM_RANKS if value >= self.adapter["r"])
        lora = ["--enable-lora", "--max-lora-rank", str(rank), "--lora-modules", f"{self.name}={folder.as_posix()}"]
        return shlex.join(["vllm", "serve", self.settings.base, *at, *lora, *options])


_FLOATS = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_TYPES = {**_FLOATS, "I64": torch.int64, "I32": torch.int32, "BOOL": torch.bool}
"""Number formats of weights, and of buffers that hold indices."""

_LAYER = re.compile(r".*?\.layers\.\d+\.")


def weight_types(folder: Path, unused: Sequence[str]) -> dict[str, torch.dtype]:
    """Return the number format of each tensor of a checkpoint. Raises ModelError for quantized weights."""
    kinds = {name: kind for name, kind in tensor_types(folder).items() if name not in unused}
    if quantized := sorted(set(kinds.values()) - _TYPES.keys()):
        raise ModelError(
            f"Cannot merge an adapter into weights of type {', '.join(quantized)}",
            code="weights-quantized",
            where=folder,
            hint=f"use a base whose weights are {', '.join(_FLOATS)}",
        )
    return {name: _TYPES[kind] for name, kind in kinds.items()}


def widest(types: Iterable[torch.dtype]) -> torch.dtype:
    """Return the smallest floating point type that holds the weights of all these types exactly."""
    kinds = {kind for kind in types if kind.is_floating_point}
    return kinds.pop() if len(kinds) == 1 else torch.float32


def _require_same_tensors(network: PreTrainedModel, folder: Path, unused: Sequence[str]) -> None:
    """Raise ModelError if the network's tensors would not be named and shaped as in the base's own files."""
    drafts = revert_weight_conversion(network, {name: t.to("meta") for name, t in network.state_dict().items()})
    shapes = {name: shape for name, shape in tensor_shapes(folder).items() if name not in unused}
    theirs = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    tied = set(getattr(network, "all_tied_weights_keys", None) or ()) - theirs.keys()  # may be there twice or once
    ours = {name: tensor for name, tensor in drafts.items() if name not in tied}
    require_same_tensors(theirs, ours, code="export-mismatch", where=folder)


@torch.no_grad()
def merge(model: PeftModel, *, where: object) -> PreTrainedModel:
    """Merge the adapter into the network's weights. Raises ModelError if the result is not finite."""
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            weight = getattr(layer.get_base_layer(), getattr(layer, "parameter_name", "weight"))
            kind = weight.dtype
            weight.data = weight.data.float()
            layer.merge()
            weight.data = weight.data.to(kind)
            if not weight.isfinite().all():
                raise ModelError("Merged weights are not finite", code="weights-not-finite", where=where)
    return model.unload()


def original_tensors(network: PreTrainedModel, types: Mapping[str, torch.dtype]) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of the network, named and typed as in the base's own files."""
    names = sorted(network.state_dict(), key=_layer)
    tensors = network.state_dict()
    for _, group in groupby(names, key=_layer):
        for name, tensor in revert_weight_conversion(network, {name: tensors[name] for name in group}).items():
            if name in types:
                yield name, tensor.to(types[name])


def _unused_tensors(folder: Path, unused: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a base that no code uses, so that its files keep the same names.

    Buffers of indices are omitted: they hold no weights, and vLLM 0.32 refuses DeepSeek-OCR's `position_ids`.
    """
    for file in weight_files(folder):
        with safe_open(file, framework="pt") as tensors:
            for name in unused:
                # Not a mapping, so its names are asked for.
                if name in tensors.keys() and (tensor := tensors.get_tensor(name)).is_floating_point():  # noqa: SIM118
                    yield name, tensor


def _layer(name: str) -> str:
    """Return the group of tensors that is converted together: a layer, or everything outside of layers."""
    match = _LAYER.match(name)
    return match[0] if match else ""


SHARD_BYTES = 2_000_000_000
"""The largest size of a file; while it is written, the same amount is in memory again."""


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
        rename(files[0], folder / SINGLE)
        return
    weight_map: dict[str, str] = {}
    for number, (file, names) in enumerate(zip(files, names_by_file, strict=True), start=1):
        final = f"model-{number:05}-of-{len(files):05}.safetensors"
        rename(file, folder / final)
        weight_map |= dict.fromkeys(names, final)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8", newline="\n")


def export_merged(
    run: RunFolder,
    out: Path,
    *,
    scores: Mapping[str, Any] | None = None,
    scale: float = 1.0,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Export:
    """Write the run's base with its adapter, multiplied by `scale`, merged in.

    `scores` is the run's scorecard as its file holds it, for the model card; `progress` is called with the numbers of
    tensors written and in total. Raises DataError if `out` is not free, ConfigError if the adapter cannot have this
    scale, ModelError if it does not fit or a tensor would not be written under its original name.
    """
    require_free_export(out, run.adapter, overwrite=overwrite)
    export = Export.of_run("merged", run, scores, scale)
    settings = export.settings
    if is_whole_network(run.adapter):
        return _export_network(replace(export, family=recognize(run.adapter), revision=None), run, out)
    found_base = Base.find(settings.base, settings.base_revision)
    folder, patterns = found_base.folder, found_base.family.unused_tensors
    require_free_export(out, folder, overwrite=overwrite)
    unused_names = [name for name in tensor_shapes(folder) if any(re.search(pattern, name) for pattern in patterns)]
    types = weight_types(folder, unused_names)
    base = load_base(found_base, dtype=widest(types.values()))
    _require_same_tensors(base.network, folder, unused_names)
    export = replace(export, family=base.family, revision=base.revision)
    network = base.network
    if scale:
        network = merge(load_adapter(network, run.adapter, scale), where=run.adapter)
    unused = dict(_unused_tensors(folder, unused_names))
    with writing_folder(out) as draft:
        tensors = chain(original_tensors(network, types), unused.items())
        write_shards(draft, _with_progress(tensors, len(types) + len(unused), progress))
        for file in filter(is_plain, folder.iterdir()):
            if file.name in OWN_FILES or file.name.endswith(".index.json"):
                continue
            shutil.copyfile(file, draft / file.name)
        _write_settings_and_card(draft, export, out)
    return export


def _export_network(export: Export, run: RunFolder, out: Path) -> Export:
    """Copy the files of a network all of whose weights were trained. Raises ConfigError for a scale below 1."""
    if export.scale != 1:
        message = "All weights of this network were trained, so there is no adapter to scale"
        raise ConfigError(message, code="scale-invalid", hint=f"leave out {option('scale', ...)}")
    with writing_folder(out) as draft:
        for file in sorted(run.adapter.iterdir()):
            if file.name in {SINGLE, CALIBRATION, GRAPH} or is_plain(file):
                shutil.copyfile(file, draft / file.name)
        if not (draft / GRAPH).is_file():  # an older run
            files = [(file.name, file.read_bytes()) for file in draft.iterdir()]
            for name, content in recognize(draft).graph_files(files):
                (draft / name).write_bytes(content)
        _write_settings_and_card(draft, export, out)
    return export


def _with_progress(
    tensors: Iterable[tuple[str, Tensor]], total: int, progress: Callable[[int, int], None] | None
) -> Iterator[tuple[str, Tensor]]:
    for done, tensor in enumerate(tensors, start=1):
        yield tensor
        if progress is not None:
            progress(done, total)


def _write_settings_and_card(draft: Path, export: Export, out: Path) -> None:
    export.settings.save(draft)
    if export.provenance:  # for a run that starts from this export
        (draft / PROVENANCE).write_text(to_json(export.provenance), encoding="utf-8", newline="\n")
    (draft / CARD).write_text(model_card(export, Path(out.resolve().name)), encoding="utf-8", newline="\n")
    write_manifest(draft)


_MERGE = f"use {option('form', 'merged')} to export merged weights instead"

_CHAT_DECODER = "base_model.model.model.language_model."

# vLLM takes the checkpoint's own names and maps `model.layers.`, in chat models `model.language_model.layers.`, to
# where its decoder lies.
_IN_VLLM = re.compile(
    r"base_model\.model\.model\.(language_model\.)?layers\.\d+\."
    r"(?:self_attn\.(?P<attention>[qkvo]_proj)|mlp\.(?:shared_experts\.)?(?P<mlp>(?:gate|up|down)_proj))"
    r"\.lora_[AB]\.weight"
)


def export_adapter(
    run: RunFolder,
    out: Path,
    form: Literal["peft", "vllm"],
    *,
    scores: Mapping[str, Any] | None = None,
    scale: float = 1.0,
    overwrite: bool = False,
) -> Export:
    """Write the run's adapter as PEFT or vLLM reads it; the base is not needed.

    `scores` is the run's scorecard as its file holds it, for the model card. A `scale` below 1 changes the config's
    alpha only. Raises DataError if `out` is not free, ConfigError if the adapter cannot have
    this scale or vLLM cannot read it.
    """
    base = ReadingSettings.load(run.adapter).base
    is_here = base in embedded_bases() or Path(base).is_dir()  # finding another would download it
    folder = find_base(base)[0] if is_here else None
    require_free_export(out, run.adapter, *([folder] if folder else []), overwrite=overwrite)
    if is_whole_network(run.adapter):
        message = "All weights of this network were trained, so there is no adapter to export"
        raise ConfigError(message, code="export-without-adapter", hint=f"use {option('form', 'merged')}")
    export = Export.of_run(form, run, scores, scale)
    names = [name for name, _, _ in tensor_headers(run.adapter / WEIGHTS)]
    if folder is not None:
        export = replace(export, family=recognize(folder))
    if form == "vllm" and export.serving is None and any(name.startswith(_CHAT_DECODER) for name in names):
        kind = export.settings.base if export.family is None else f"{export.settings.base} ({export.family.name})"
        message = f"vLLM was not tried with adapters of {kind}"
        raise ConfigError(message, code="vllm-unsupported", hint=f"{_MERGE}; PEFT reads the adapter alone")
    config = config_for_vllm(export.adapter, names) if form == "vllm" else export.adapter
    with writing_folder(out) as draft:
        shutil.copyfile(run.adapter / WEIGHTS, draft / WEIGHTS)
        (draft / CONFIG).write_text(to_json(config), encoding="utf-8", newline="\n")
        # The calibration holds for the adapter as it was trained only.
        if scale == 1 and (run.adapter / CALIBRATION).is_file():
            shutil.copyfile(run.adapter / CALIBRATION, draft / CALIBRATION)
        _write_settings_and_card(draft, export, out)
    return export


def config_for_vllm(config: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the adapter's config with plain layer names for vLLM, which PEFT still reads as the same layers.

    `names` are those of the adapter's tensors. Raises ConfigError for adapters that vLLM does not support.
    """
    if config.get("use_dora"):
        raise ConfigError("vLLM does not support DoRA adapters", code="vllm-unsupported", hint=_MERGE)
    if config["r"] > VLLM_RANKS[-1]:
        message = f"vLLM supports ranks up to {VLLM_RANKS[-1]}, and this adapter has {config['r']}"
        raise ConfigError(message, code="vllm-unsupported", hint=_MERGE)
    matches = {name: _IN_VLLM.fullmatch(name) for name in names}
    if outside := [name for name, match in matches.items() if match is None]:
        example = outside[0].removeprefix("base_model.model.")
        raise ConfigError(
            "vLLM supports adapters of the decoder's attention, dense layers and shared experts only; "
            f"{len(outside)} of {len(names)} tensors are elsewhere, for example {example}",
            code="vllm-unsupported",
            hint=_MERGE,
        )
    layers = {match["attention"] or match["mlp"] for match in matches.values() if match}
    pattern = config["target_modules"]
    # The second tower has layers of the same names, so PEFT needs everything that was not trained excluded by name.
    excluded = rf"(?!(?:{pattern})$).*" if isinstance(pattern, str) else config.get("exclude_modules")
    return {**config, "target_modules": sorted(layers), "exclude_modules": excluded}


def model_card(export: Export, folder: Path) -> str:
    """Return the card as Markdown with YAML front matter, for an export in a folder of this name."""
    merged, sides = export.form == "merged", {side: (export.scores or {}).get(side) for side in ("base", "adapter")}
    head = {
        "base_model": export.settings.base,
        "base_model_relation": "finetune" if merged else "adapter",
        "library_name": "transformers" if merged else "peft",
        "pipeline_tag": "image-text-to-text" if export.settings.prompt else "image-to-text",
        "tags": [
            "ocr",
            "handwriting",
            *([export.family.name.replace("_", "-")] if export.family else []),
            "dsocr",
            *([] if merged else ["lora"]),
        ],
    }
    policy = export.settings.text_policy.as_dict()
    return render(
        "dsocr.models",
        "model_card.md.jinja",
        export=export,
        head=yaml.safe_dump(head, sort_keys=False, allow_unicode=True),
        prompt=json.dumps(export.settings.prompt, ensure_ascii=False),
        text_policy=", ".join(f"{key}: {value}" for key, value in policy.items() if isinstance(value, str)),
        scores=export.scores,
        rates=[(name.upper(), *(_rate(sides[side], name) for side in sides)) for name in ("cer", "wer")],
        lines=(sides["adapter"] or sides["base"] or {}).get("lines"),
        command=export.serve_command(folder),
        request=json.dumps(request_settings(export.settings.generation)),
        target_modules=target_modules_of(export.adapter) if export.adapter else "",
        variant=variant_of(export.adapter),
        unlabelled=UnlabelledReport.of(export.provenance),
        version=__version__,
    )


def _rate(score: Mapping[str, Any] | None, name: str) -> str:
    if score is None or score[name]["rate"] is None:
        return "-"
    interval = score.get("intervals", {}).get(name) or {}
    low, high = interval.get("low"), interval.get("high")
    ends = "" if low is None or high is None else f" ({100 * low:.1f} to {percentage(high, 1)})"
    return percentage(score[name]["rate"]) + ends
