"""The files of a checkpoint: its folder, `config.json`, tokenizer or characters, headers of safetensors, and network.

Needs no torch, so that a base that is not found can be reported at once.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from safetensors import SafetensorError, safe_open

from dsocr.errors import DsocrError, ModelError
from dsocr.io.encodings import reading_json
from dsocr.io.hub import fetch_model, find_cached_model, is_hub_id
from dsocr.io.kraken import as_checkpoint
from dsocr.io.work import MANIFEST, require_free_output
from dsocr.runs import READING, SHIPPED_BASES, ReadingSettings, RunFolder

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Attention = Literal["sdpa", "eager"]
"""How attention is computed: with torch's fused kernels, or step by step."""

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
CARD = "README.md"
PROVENANCE = "provenance.json"
OWN_FILES = {CARD, MANIFEST, READING, PROVENANCE}
"""Files that dsocr writes about a checkpoint and does not copy to others."""

Shapes = Mapping[str, tuple[int, ...]]
"""The shape of each tensor, by name."""

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
_PLAIN = {".json", ".txt", ".jinja", ".model"}  # the last of sentencepiece, a protocol buffer
_AGAIN = "download the checkpoint again"


def is_whole_network(folder: Path) -> bool:
    """Whether a folder of weights holds a whole network, which needs no base."""
    return ((folder / SINGLE).is_file() or (folder / INDEX).is_file()) and not (folder / CONFIG).is_file()


def weights_file(folder: Path) -> Path:
    """Return the file with the tensors in a folder of weights, or that which names the files."""
    whole = SINGLE if (folder / SINGLE).is_file() else INDEX
    return folder / (whole if is_whole_network(folder) else WEIGHTS)


@cache
def embedded_bases() -> dict[str, Path]:
    """Return the folders of the bases that ship with the package, by name."""
    return {path.name: path for path in sorted(SHIPPED_BASES.iterdir()) if (path / "config.json").is_file()}


def find_base(name: str, revision: str | None = None) -> tuple[Path, str | None]:
    """Return the folder of a base, and its commit if it comes from the Hub; of a run, the network that it trained.

    Raises ModelError if it is not found, or is a run that trained an adapter; RunError if the run is not finished.
    """
    if name in embedded_bases():
        return embedded_bases()[name], None
    if Path(name).exists():
        return as_checkpoint(_network_in(Path(name))), None
    if is_hub_id(name):
        return fetch_model(name, revision)
    raise ModelError(
        f"Base model {name!r} not found: it does not ship with dsocr, and is neither a file or folder nor a Hub id",
        code="base-not-found",
        hint="a Hub id reads owner/name, for example microsoft/trocr-base-handwritten",
    )


def _network_in(folder: Path) -> Path:
    """Return the network of a run all of whose weights were trained; another folder as it is."""
    if folder.is_file() or (folder / "config.json").is_file():
        return folder
    run = RunFolder.open(folder) if RunFolder(folder).config.is_file() else RunFolder(folder)
    if (run.adapter / "adapter_config.json").is_file():
        base = ReadingSettings.load(run.adapter).base
        raise ModelError(
            "Not a base: it holds an adapter",
            code="base-is-adapter",
            where=folder,
            hint=f"to continue it, set `base: {base}` and `adapter.init_from: {folder.as_posix()}`",
        )
    return run.adapter if (run.adapter / SINGLE).is_file() else folder


def find_base_metadata(name: str, revision: str | None = None) -> Path:
    """Return the folder of a base, possibly without weights; downloads only if the Hub's cache does not hold it.

    Enough to recognise the base. Raises ModelError if it is not found.
    """
    on_hub = name not in embedded_bases() and not Path(name).exists() and is_hub_id(name)
    cached = find_cached_model(name, revision) if on_hub else None
    return cached or find_base(name, revision)[0]


def read_config_json(folder: Path) -> dict[str, Any]:
    """Read the `config.json` of a checkpoint. Raises ModelError if it is missing or not a JSON object."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError("Not a model folder: config.json is missing", code="base-incomplete", where=folder)
    config: dict[str, Any]
    with reading_json(path, ModelError, "base-incomplete", message="Not the configuration of a model") as config:
        if not isinstance(config, dict):
            raise TypeError("not an object")
        return config


@contextmanager
def explain_damage(folder: Path) -> Iterator[None]:
    """Turn the errors of libraries about the files of a checkpoint into ModelError.

    Errors of dsocr and of an accelerator, and that memory ran out, stay as they are.
    """
    try:
        yield
    except (DsocrError, MemoryError):
        raise
    except Exception as error:
        if re.search("memory|CUDA", str(error)):
            raise
        reason = next(iter(str(error).strip().splitlines()), "")[:300]
        message = f"cannot be loaded: {type(error).__name__}: {reason}"
        hint = "one of its files is damaged, or made for another version of transformers: download the checkpoint again"
        raise ModelError(message, code="base-damaged", where=folder, hint=hint) from error


def load_tokenizer(folder: Path) -> "PreTrainedTokenizerBase":
    """Load the tokenizer of a base. Raises ModelError if its file or one of its special tokens is missing."""
    from transformers import PreTrainedTokenizerFast

    if not (folder / "tokenizer.json").is_file():
        raise ModelError("tokenizer.json is missing", code="base-incomplete", where=folder, hint=_AGAIN)
    # Not AutoTokenizer: the published configs name a class with another pre-tokenizer than their tokenizer.json has.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    for name in ("bos", "eos", "pad"):
        if getattr(tokenizer, f"{name}_token_id") is None:
            raise ModelError(f"Tokenizer has no {name} token", code="base-incomplete", where=folder)
    return tokenizer


def read_characters(folder: Path) -> tuple[str, ...]:
    """Return the characters of the head: of `vocab.json`, or as published, behind the blank.

    Raises ModelError if they are in neither file.
    """
    path, published = folder / "vocab.json", folder / "preprocessor_config.json"
    path = published if published.is_file() and not path.is_file() else path
    message, hint = "Cannot read the characters of the head", _AGAIN
    if not path.is_file():
        raise ModelError(f"{message}: no such file", code="base-incomplete", where=path, hint=hint)
    with reading_json(path, ModelError, "base-incomplete", message=message, hint=hint) as content:
        return tuple(content["character_list"][1:] if path == published else content)


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint: those its index names, or the single one.

    Raises ModelError if there are none, or if one named by the index is missing or outside the folder.
    """
    index = folder / INDEX
    if index.is_file():
        message = "Not an index of weights"
        with reading_json(index, ModelError, "base-incomplete", message=message, hint=_AGAIN) as content:
            names = sorted(set(content["weight_map"].values()))
        for name in names:
            if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
                message = f"Index names {name!r}, which is not a safetensors file in this folder"
                raise ModelError(message, code="base-incomplete", where=index)
            if not (folder / name).is_file():
                message = f"Index names {name}, which is missing"
                raise ModelError(message, code="base-incomplete", where=index, hint=_AGAIN)
        return [folder / name for name in names]
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if any(next(folder.glob(pattern), None) for pattern in _PICKLES):
        raise ModelError(
            "Weights are pickled, which can run code, and are not loaded",
            code="weights-pickled",
            where=folder,
            hint="use the checkpoint's safetensors files",
        )
    raise ModelError(f"No weights: neither {SINGLE} nor {INDEX}", code="base-incomplete", where=folder, hint=_AGAIN)


def tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of a checkpoint. Raises ModelError for a truncated or invalid file."""
    return {name: shape for file in weight_files(folder) for name, shape, _ in tensor_headers(file)}


def tensor_types(folder: Path) -> dict[str, str]:
    """Return the number format of every tensor, as safetensors names it: `BF16`, `F32`, `I64`, ..."""
    return {name: kind for file in weight_files(folder) for name, _, kind in tensor_headers(file)}


def tensor_headers(file: Path) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Yield name, shape and number format of each tensor in a file. Raises ModelError if it is truncated."""
    try:
        with safe_open(file, framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118  (not a mapping)
                header = tensors.get_slice(name)
                yield name, tuple(header.get_shape()), header.get_dtype()
    except SafetensorError as error:
        raise ModelError(
            f"Not a complete safetensors file ({error})", code="weights-damaged", where=file, hint=_AGAIN
        ) from error


def require_same_tensors(
    present: Mapping[str, "torch.Tensor"], expected: Mapping[str, "torch.Tensor"], **error: Any
) -> None:
    """Raise ModelError with a code, a place and perhaps a hint unless both have the same names and shapes."""
    problems = [f"missing: {name}" for name in expected.keys() - present.keys()]
    problems += [f"unexpected: {name}" for name in present.keys() - expected.keys()]
    problems += [
        f"{name}: shape {tuple(present[name].shape)}, expected {tuple(expected[name].shape)}"
        for name in present.keys() & expected.keys()
        if present[name].shape != expected[name].shape
    ]
    require_no_mismatch(sorted(problems), **error)


def require_no_mismatch(problems: Sequence[str], **error: Any) -> None:
    """Raise ModelError that lists the first problems, if there are any."""
    if problems:
        listing = "".join(f"\n  {problem}" for problem in problems[:20])
        raise ModelError(f"{len(problems)} tensors do not match the network{listing}", **error)


def require_readable_adapter(adapter: Path) -> ReadingSettings:
    """Return the settings to read with. Raises RunError if they are damaged, ModelError if their base is not found."""
    settings = ReadingSettings.load(adapter)
    if (adapter / SINGLE).is_file():  # all weights of a network, which needs no base
        return settings
    with explain_missing_base(adapter):
        find_base_metadata(settings.base, settings.base_revision)
    return settings


@contextmanager
def explain_missing_base(adapter: Path) -> Iterator[None]:
    """Name the adapter's file in the error of a missing base."""
    try:
        yield
    except ModelError as error:
        hint = f"{error.hint}; if the base is in another folder, set `base` in {adapter / READING}"
        raise ModelError(error.message, code=error.code, where=error.where, hint=hint) from error


def require_free_export(out: Path, *sources: Path, overwrite: bool) -> None:
    """Raise DataError if writing an export would destroy its own sources or anything else."""
    require_free_output(out, "export", _export_files, overwrite=overwrite, sources=sources)


def _export_files(folder: Path) -> list[str] | None:
    names = [path.name for path in folder.iterdir() if is_plain(path) or path.suffix == ".safetensors"]
    return names if {CARD, READING} <= set(names) else None


def is_plain(path: Path) -> bool:
    """Whether a file is neither weights nor code: config, tokenizer, settings, card, licence."""
    return path.is_file() and (path.suffix in _PLAIN or path.name == CARD or path.name.startswith("LICENSE"))


def load_pretrained(
    network_class: Any,
    config: Any,
    folder: Path,
    *,
    unused: Sequence[str],
    dtype: "torch.dtype",
    device: "torch.device | str",
    attention: Attention = "sdpa",
    quantization_config: Any = None,
) -> "PreTrainedModel":
    """Load a network with its class in transformers.

    Raises ModelError unless every tensor fits it, except tensors that match a pattern in `unused`.
    """
    options = {"device_map": {"": device}} if str(device) != "cpu" else {}
    options |= {"quantization_config": quantization_config} if quantization_config is not None else {}
    # Where a class has fused attention, parts of it may lack it; with None each part takes it if it can.
    kind = "eager" if not network_class._supports_sdpa else None if attention == "sdpa" else attention
    with _quiet_transformers():
        network, report = network_class.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=kind,
            output_loading_info=True,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # reported below, with all other problems
            **options,
        )
    problems = [
        f"{kind.replace('_', ' ')}: {name}"
        for kind, names in report.items()
        for name in sorted(name if isinstance(name, str) else name[0] for name in names)  # or with two shapes
        if not (kind == "unexpected_keys" and any(re.search(pattern, name) for pattern in unused))
    ]
    require_no_mismatch(problems, code="checkpoint-mismatch", where=folder)
    loaded: PreTrainedModel = network
    return loaded


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Without transformers' progress bar and report of tensors, which other programs did not ask for."""
    from huggingface_hub.utils import are_progress_bars_disabled  # type: ignore[attr-defined]
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    had_bars = logging.is_progress_bar_enabled() and not are_progress_bars_disabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()
