"""Kraken's recognisers as checkpoint folders: its PP-OCRv6 networks, tiny, small and medium.

Kraken keeps a network in one safetensors file, whose header holds its codec and line height (`kraken_meta`). A file is
written once, in the user's cache, as transformers loads PaddleOCR's networks: with its names, and with the branches of
depthwise convolutions, which have normalisations of their own, added up to one. Needs no torch.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, PositiveInt, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from dsocr.errors import ModelError, setting
from dsocr.io.encodings import parse_json
from dsocr.io.files import cache_path
from dsocr.io.work import hash_file, writing_folder

Tensors = Mapping[str, NDArray[Any]]

_OLD = {".mlmodel", ".pronn", ".clstm"}
_PICKLED = {".pt", ".pth", ".bin", ".pkl", ".ckpt"}
KRAKENS_BASE = "small-models-for-glam/kraken-ppocrv6-small"
"""Kraken's network for whoever has a network: of the size of `small`, trained on real hands of 44 languages."""

KRAKENS_FILES = (
    f"kraken's PP-OCRv6 recognisers saw real hands in 44 languages: with a network {setting('base', KRAKENS_BASE)} "
    f"fetches one; else copy small.safetensors from huggingface.co/{KRAKENS_BASE}, or from DOI 10.5281/zenodo.21788405 "
    f"(medium 21788410, tiny 21788403), and give the file: {setting('base', 'small.safetensors')}"
)
_NAMES = (
    (r"^backbone\.conv1\.", "model.backbone.encoder.convolution."),
    (r"^neck\.skip_conv\.", "head.encoder.conv_block.0."),
    (r"^neck\.conv_reduce\.", "head.encoder.conv_block.1."),
    (r"(conv_block\.\d)\.norm\.", r"\1.normalization."),
    (r"^neck\.local_conv\.0\.", "head.encoder.conv_block.2.convolution."),
    (r"^neck\.local_conv\.1\.", "head.encoder.conv_block.2.normalization."),
    (r"^neck\.svtr_block\.(\d+)\.norm", r"head.encoder.svtr_block.\1.layer_norm"),
    (r"^neck\.svtr_block\.(\d+)\.mixer\.proj\.", r"head.encoder.svtr_block.\1.self_attn.projection."),
    (r"^neck\.svtr_block\.(\d+)\.mixer\.", r"head.encoder.svtr_block.\1.self_attn."),
    (r"^neck\.", "head.encoder."),
    (r"^head\.fc\.", "head.head."),
    (r"^head\.guide_layer\.block\.0\.", "head.conv1."),
    (r"^head\.guide_layer\.block\.1\.", "head.norm1."),
    (r"^head\.guide_layer\.block\.3\.", "head.conv2."),
    (r"^head\.guide_layer\.block\.4\.", "head.norm2."),
    (r"token_mixer\.dw_conv\.", "token_conv."),
    (r"token_mixer\.se\.conv1\.", "token_squeeze_excitation.convolutions.0."),
    (r"token_mixer\.se\.conv2\.", "token_squeeze_excitation.convolutions.2."),
    (r"channel_mixer\.expand\.", "channel_conv1."),
    (r"channel_mixer\.compress\.", "channel_conv2."),
    (r"\.conv\.", ".convolution."),
    (r"\.bn\.", ".normalization."),
)
"""Names in kraken's files, as patterns, and those of transformers."""


def as_checkpoint(path: Path) -> Path:
    """Return the checkpoint folder of a kraken file, or of the only one in a folder; any other path as it is.

    Raises ModelError for files of kraken that hold no recogniser of PP-OCRv6, or are damaged or pickled.
    """
    if path.is_dir():
        if (path / "config.json").is_file():
            return path
        here = sorted(path.iterdir())
        files = [file for file in here if file.suffix == ".safetensors" and "kraken_meta" in _header(file)]
        old = [file for file in here if file.suffix.lower() in _OLD]
        if len(files) > 1:
            raise _other(path, f"a folder of {len(files)} models: give {files[0].name} or another of them as the base")
        path = (files or old or [path])[0]
    if not path.is_file() or path.suffix.lower() not in {".safetensors", *_OLD, *_PICKLED}:
        return path
    if path.suffix.lower() in _OLD:
        raise _other(path, "a model of an older kraken, whose network dsocr does not have")
    if path.suffix.lower() in _PICKLED:
        message, hint = "Weights are pickled, which can run code, and are not loaded", "give a safetensors file"
        raise ModelError(message, code="weights-pickled", where=path, hint=hint)
    header = _header(path)
    if "kraken_meta" not in header:
        message, hint = "does not say which network it is of", "give the folder in which its config.json lies, too"
        raise ModelError(message, code="base-incomplete", where=path, hint=hint)
    folder = cache_path("kraken") / hash_file(path)[:16] / f"kraken-{path.stem}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with writing_folder(folder) as draft:
            _convert(path, header["kraken_meta"], draft)
    return folder


def _other(path: Path, what: str) -> ModelError:
    return ModelError(f"is {what}", code="kraken-model", where=path, hint=KRAKENS_FILES)


def _header(file: Path) -> Mapping[str, str]:
    try:
        with safe_open(file, framework="numpy") as tensors:
            return tensors.metadata() or {}
    except SafetensorError as error:
        message = f"Not a complete safetensors file ({error})"
        raise ModelError(message, code="weights-damaged", where=file, hint="download it again") from error


class _Recogniser(BaseModel):
    """What the header says of a network: its codec has the class of each label."""

    codec: dict[str, tuple[PositiveInt]] = Field(min_length=1)
    num_classes: PositiveInt
    height: PositiveInt

    def labels(self) -> list[str]:
        """Return what each class but the blank writes, nothing without an entry. Raises ValueError for two entries."""
        labels = [""] * (self.num_classes - 1)
        for text, (number,) in self.codec.items():
            if not text or number >= self.num_classes or labels[number - 1]:
                raise ValueError(f"class {number} of {text!r} is another's, or not among {self.num_classes}")
            labels[number - 1] = text
        return labels


def _convert(file: Path, header: str, folder: Path) -> None:
    """Write the checkpoint of a file whose `kraken_meta` is this: its models by the prefix of their names, as JSON."""
    models: Any = parse_json(header, file)
    kinds = (
        {key: str(value.get("_model")) for key, value in models.items() if isinstance(value, dict)}
        if isinstance(models, dict)
        else {}
    )
    recognisers = [prefix for prefix, kind in kinds.items() if kind == "PPOCRv6Model"]
    if len(recognisers) != 1:
        raise _other(file, f"not one recogniser of PP-OCRv6 but {', '.join(kinds.values())}")
    start = f"{recognisers[0]}.nn."
    try:
        meta = _Recogniser.model_validate(models[recognisers[0]])
        labels = meta.labels()
    except ValueError as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        message, hint = f"Codec does not fit its network: {why}", "take the file as its authors published it"
        raise ModelError(message, code="kraken-codec", where=file, hint=hint) from error
    with safe_open(file, framework="numpy") as source:
        named = {name.removeprefix(start): source.get_tensor(name) for name in source.keys() if name.startswith(start)}  # noqa: SIM118
    try:
        config = _config(named) | {"line_height": meta.height, "head_out_channels": meta.num_classes}
        branches, ends = "token_mixer.rep_dw.", "num_batches_tracked"
        tensors = {_new_name(name): named[name] for name in named if branches not in name and not name.endswith(ends)}
        for mixer in {name.partition(branches)[0] for name in named if branches in name}:
            new, (weight, bias) = _new_name(mixer), _add_up(named, mixer + branches)
            tensors |= {f"{new}token_conv.weight": weight, f"{new}token_conv.bias": bias}
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise _other(file, f"no network of kraken 7.1 or 7.2 ({error!r})") from error
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "vocab.json").write_text(json.dumps(labels, ensure_ascii=False) + "\n", encoding="utf-8")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _config(named: Tensors) -> dict[str, Any]:
    """Return the configuration for transformers, read off the shapes of the tensors; see `PPLCNetV4Config`."""
    blocks = []
    for stage in range(2, 6):
        rows: list[list[Any]] = []
        while f"backbone.blocks{stage}.{len(rows)}.channel_mixer.expand.conv.weight" in named:
            mixer = f"backbone.blocks{stage}.{len(rows)}."
            width, out = (named[f"{mixer}channel_mixer.{name}.conv.weight"].shape for name in ("expand", "compress"))
            is_same = f"{mixer}token_mixer.rep_dw.conv1.weight" in named
            kernel = named[f"{mixer}token_mixer.{'rep_dw.conv' if is_same else 'dw_conv'}.conv.weight"].shape[-1]
            stride = 1 if is_same or stage < 4 else [2, 1]
            rows.append([kernel, width[1], out[0], stride, f"{mixer}token_mixer.se.conv1.weight" in named])
        blocks.append(rows)
    is_tiny = "head.fc1.weight" in named
    first, last = ("conv1", "conv2") if is_tiny else ("stem1", "stem4")
    stem = [named[f"backbone.conv1.{name}.conv.weight"].shape[0] for name in (first, last)]
    trunk = {"model_type": "pp_lcnet_v4", "block_configs": blocks, "stem_channels": [3, *stem]}
    trunk |= {"stem_type": "small" if is_tiny else "large", "out_features": ["stage4"]}
    line = {"backbone_config": trunk, "line_kraken": True, "line_stretch": 1.0}
    if is_tiny:
        return {"model_type": "pp_ocrv6_tiny_rec", "hidden_size": named["head.fc1.weight"].shape[0], **line}
    hidden, width = named["neck.svtr_block.0.mlp.fc1.weight"].shape
    depth = len({match[0] for name in named if (match := re.match(r"neck\.svtr_block\.\d+", name))})
    kernel = list(named["neck.local_conv.0.weight"].shape[2:])
    sizes = {"hidden_size": width, "mlp_ratio": hidden / width, "depth": depth, "conv_kernel_size": kernel}
    return {"model_type": "pp_ocrv6_small_rec", **sizes, "layer_norm_eps": 1e-5, "line_norm_eps": 1e-6, **line}


def _new_name(name: str) -> str:
    name = re.sub(
        r"^backbone\.blocks(\d)\.", lambda match: f"model.backbone.encoder.blocks.{int(match[1]) - 2}.blocks.", name
    )
    for pattern, new in _NAMES:
        name = re.sub(pattern, new, name)
    return name


def _add_up(named: Tensors, start: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return weight and bias of a depthwise convolution, one of a pixel and the image itself together, normalised."""

    def normalization(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        gain, bias, mean, variance = (
            named[f"{start}{name}bn.{part}"].astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        scale = gain / np.sqrt(variance + 1e-5)
        return scale, bias - mean * scale

    scale, bias = normalization("conv.")
    weight = named[start + "conv.conv.weight"] * scale[:, None, None, None]
    middle = weight.shape[-1] // 2
    weight[:, 0, middle, middle] += named[start + "conv1.weight"][:, 0, 0, 0] + 1
    outer, rest = normalization("")
    return (weight * outer[:, None, None, None]).astype(np.float32), (bias * outer + rest).astype(np.float32)
