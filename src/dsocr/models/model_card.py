"""The README.md of an export: how to read with it, how well it reads, how to serve it, where it comes from."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import yaml

from dsocr import __version__
from dsocr.errors import RunError
from dsocr.models.adapters import config_at_strength, read_adapter_config, scope_of, variant_of
from dsocr.models.deepseek_ocr import Architecture
from dsocr.runs import ReadingSettings, RunFolder

VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes as --max-lora-rank."""

_GUARD = "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"
_OPTIONS = ["--logits-processors", _GUARD, "--no-enable-prefix-caching", "--mm-processor-cache-gb", "0"]


def is_served(architecture: Architecture | None) -> bool:
    """True where a base is in the authors' layout, which the servers know; None is one that is not at hand."""
    return architecture is None or architecture.original


def serve_merged(folder: Path) -> str:
    """The command that serves merged weights with vLLM."""
    return shlex.join(["vllm", "serve", folder.as_posix(), *_OPTIONS])


def serve_adapter(base: str, revision: str | None, folder: Path, name: str, rank: int) -> str:
    """The command that serves a base with an adapter, under a name for requests, with vLLM."""
    at = ["--revision", revision] if revision else []
    most = next(most for most in VLLM_RANKS if most >= rank)
    lora = ["--enable-lora", "--max-lora-rank", str(most), "--lora-modules", f"{name}={folder.as_posix()}"]
    return shlex.join(["vllm", "serve", base, *at, *lora, *_OPTIONS])


def served_resolution(architecture: Architecture | None) -> str:
    """The resolution at which vLLM shows images, by its name here: the whole view, and tiles, six at most."""
    return "gundam" if architecture and architecture.family == "deepseek_ocr_2" else "gundam_vllm"


def request_settings(generation: Mapping[str, Any]) -> dict[str, Any]:
    """What a request to vLLM holds besides model, prompt and image, so that it decodes as dsocr does."""
    settings: dict[str, Any] = {"temperature": 0, "skip_special_tokens": False}
    if "max_new_tokens" in generation:
        settings["max_tokens"] = generation["max_new_tokens"]
    if size := generation.get("no_repeat_ngram_size"):
        settings["vllm_xargs"] = {"ngram_size": size, "window_size": generation.get("no_repeat_ngram_window", size)}
    return settings


Form = Literal["merged", "peft", "vllm"]
"""Weights with the adapter in them, the adapter as PEFT reads it, or the adapter as vLLM reads it."""


@dataclass(frozen=True, slots=True)
class Exported:
    """One export and what is known of the run it is made from.

    `architecture` is None where the base is not at hand, `revision` where its commit is not known. `adapter` is what
    stands in the adapter's config, at the export's `strength`; `provenance` is that of provenance.json, `scores` of
    scorecard.json, None if not scored.
    """

    form: Form
    name: str
    settings: ReadingSettings
    adapter: Mapping[str, Any]
    provenance: Mapping[str, Any]
    scores: Mapping[str, Any] | None
    architecture: Architecture | None = None
    revision: str | None = None
    strength: float = 1.0

    @classmethod
    def of_run(cls, form: Form, run: RunFolder, scores: Mapping[str, Any] | None, strength: float = 1.0) -> Self:
        """What the run's own files tell. Raises ConfigError for a strength that its adapter cannot have."""
        settings = ReadingSettings.load(run.adapter)
        return cls(
            form=form,
            name=run.path.resolve().name,
            settings=settings,
            adapter=config_at_strength(read_adapter_config(run.adapter), strength),
            provenance=_provenance(run),
            scores=scores,
            revision=settings.base_revision,
            strength=strength,
        )

    def on(self, architecture: Architecture, revision: str | None) -> Self:
        """The same with what its base turned out to be."""
        return replace(self, architecture=architecture, revision=revision)

    def serve_command(self, folder: Path) -> str | None:
        """How vLLM serves the export in a folder; None where it is not for vLLM, or vLLM has no class for its base."""
        if self.form == "peft" or not is_served(self.architecture):
            return None
        if self.form == "merged":
            return serve_merged(folder)
        return serve_adapter(self.settings.base, self.revision, folder, self.name, self.adapter["r"])


def _provenance(run: RunFolder) -> Mapping[str, Any]:
    try:
        provenance = json.loads(run.provenance.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RunError(f"cannot be read: {error}", where=run.provenance) from error
    return provenance if isinstance(provenance, dict) else {}


def model_card(export: Exported, folder: Path) -> str:
    """The card as Markdown with its YAML head, for an export in a folder of this name."""
    what = "DeepSeek-OCR weights with a LoRA adapter merged in" if export.form == "merged" else "A LoRA adapter"
    blocks = [
        _head(export),
        f"# {export.name}",
        f"{what}, for particular handwriting. It was trained on {_base(export)} with dsocr.",
        "## Read with these settings",
        _settings(export.settings),
        "## How well it reads",
        _scores(export.scores, export.strength),
        "## Serve it",
        *_serving(export, folder),
        "## Where it comes from",
        _origin(export),
    ]
    return "\n\n".join(blocks) + "\n"


def _head(export: Exported) -> str:
    merged = export.form == "merged"
    values = {
        "base_model": export.settings.base,
        "base_model_relation": "finetune" if merged else "adapter",
        "library_name": "transformers" if merged else "peft",
        "pipeline_tag": "image-text-to-text",
        "tags": ["ocr", "handwriting", "deepseek-ocr", "dsocr", *([] if merged else ["lora"])],
    }
    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}---"


def _base(export: Exported) -> str:
    return f"`{export.settings.base}`" + (f" at revision `{export.revision}`" if export.revision else "")


def _settings(settings: ReadingSettings) -> str:
    generation = settings.generation
    size, window = generation.get("no_repeat_ngram_size"), generation.get("no_repeat_ngram_window")
    guard = f"no {size} tokens in a row again within {window}" if size else "no guard against loops"
    rows = [
        ("prompt, as JSON", f"`{json.dumps(settings.prompt, ensure_ascii=False)}`"),
        ("resolution", f"`{settings.resolution}`"),
        ("decoding", f"greedy, at most {generation.get('max_new_tokens')} tokens, {guard}"),
        (
            "text policy",
            ", ".join(
                f"{key}: {value}" for key, value in settings.text_policy.as_dict().items() if isinstance(value, str)
            ),
        ),
    ]
    told = "It was trained with them, and reads worse with others. `reading.json` holds them for programs."
    return f"{told}\n\n{_table([('', ''), *rows])}"


def _scores(scores: Mapping[str, Any] | None, strength: float) -> str:
    if scores is None:
        return "It had not been scored when this was written; `dsocr evaluate RUN` does that."
    base, adapter = scores["base"], scores["adapter"]
    rows = [("", "base", "adapter")]
    rows += [(name.upper(), _rate(base, name), _rate(adapter, name)) for name in ("cer", "wer")]
    lines = (adapter or base or {}).get("lines")
    about = f"{lines} lines of the {scores['split']} split, read at {scores['made_at']}. {scores['meaning']}"
    if strength != 1:
        about = (
            f"These are the scores of the whole adapter, not of this export at {strength:g} of its strength. {about}"
        )
    return f"{_table(rows)}\n\n{about}"


def _rate(score: Mapping[str, Any] | None, name: str) -> str:
    return "-" if score is None or score[name] is None else f"{score[name]:.2%}"


def _serving(export: Exported, folder: Path) -> list[str]:
    command = export.serve_command(folder)
    if command is None:
        return _loading(export)
    trained, served = export.settings.resolution, served_resolution(export.architecture)
    request = json.dumps(request_settings(export.settings.generation))
    other = f"It was trained at `{trained}`, so there it sees other pictures than in training: score it there first."
    blocks = [
        f"```sh\n{command}\n```",
        f"Every request has the prompt above, the image, and\n\n```json\n{request}\n```",
        "vLLM shows an image in its own way: whole at 1024 x 1024, and as up to six tiles, which is the resolution "
        f"`{served}` of dsocr. {'So it was trained.' if trained == served else other}",
        "No server was run with this export when this was written.",
    ]
    if export.form == "merged":
        blocks.append(
            "Tensor names, number formats and `config.json` are the base's, for SGLang, llama.cpp's converter and the "
            "authors' code as well. No code lies here: where a program asks for the `*.py` files that `config.json` "
            "names, take them from the base's own page, and read them first."
        )
    return blocks


def _loading(export: Exported) -> list[str]:
    if export.form == "merged":
        return [
            "dsocr trains on from it with `base:` set to this folder, and `dsocr.model.loading.load_base` loads it. "
            "Whether a server knows this kind of base was not tried."
        ]
    loading = (
        "```python\nfrom peft import PeftModel\nfrom dsocr.model.loading import load_base\n\n"
        f"base = load_base({export.settings.base!r}, {export.revision!r})\n"
        'model = PeftModel.from_pretrained(base.network, "FOLDER")\n```'
    )
    reader = "`dsocr.inference.transcriber.Transcriber.of_adapter` reads images with it, in the settings above."
    if export.form == "vllm":
        return ["vLLM has no class for this base. PEFT reads the adapter:", loading, reader]
    return [loading, reader]


def _origin(export: Exported) -> str:
    adapter, known = export.adapter, export.provenance
    variant = variant_of(adapter)
    rows = [
        ("dsocr", f"trained with {known.get('dsocr_version', '?')}, exported with {__version__}"),
        ("base", _base(export)),
        ("adapter", f"scope `{scope_of(adapter)}`, rank {adapter['r']}, alpha {adapter['lora_alpha']}, {variant}"),
        *([] if export.strength == 1 else [("strength", f"{export.strength:g} of what was trained")]),
        ("trained", f"from {known.get('begun_at', '?')}, on {known.get('device', '?')}"),
        ("dataset", str(known.get("dataset_source", "?"))),
        *((f"{split} split", f"sha256 `{digest}`") for split, digest in known.get("dataset", {}).items()),
    ]
    return _table([("", ""), *rows])


def _table(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first row is its head."""
    header, *rest = rows
    lines = [header, ["---"] * len(header), *rest]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
