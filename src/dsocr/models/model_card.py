"""The model card of an export: its settings and scores, how to serve it, and where it comes from."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import yaml

from dsocr import __version__
from dsocr.models.adapters import is_whole_network, read_adapter_config, scaled_config, target_modules_of, variant_of
from dsocr.models.family import Family, Serving
from dsocr.models.loading import PUBLISHED_BASES
from dsocr.runs import ReadingSettings, RunFolder, UnlabelledReport, read_provenance
from dsocr.text import percentage

VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM accepts for --max-lora-rank."""


def serve_adapter(options: Sequence[str], base: str, revision: str | None, folder: Path, name: str, rank: int) -> str:
    """Return the command that serves a base with an adapter under a name, with vLLM."""
    at = ["--revision", revision] if revision else []
    max_rank = next(value for value in VLLM_RANKS if value >= rank)
    lora = ["--enable-lora", "--max-lora-rank", str(max_rank), "--lora-modules", f"{name}={folder.as_posix()}"]
    return shlex.join(["vllm", "serve", base, *at, *lora, *options])


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

    def to_dict(self) -> dict[str, Any]:
        """Return what identifies the export in JSON's types."""
        return {"name": self.name, "form": self.form, "base": self.settings.base, "scale": self.scale}

    @classmethod
    def of_run(cls, form: Form, run: RunFolder, scores: Mapping[str, Any] | None, scale: float = 1.0) -> Self:
        """Collect what the run's files say. Raises ConfigError for a scale that its adapter cannot have.

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

    def on(self, family: Family, revision: str | None) -> Self:
        """Return a copy with the base's family and commit."""
        return replace(self, family=family, revision=revision)

    @property
    def serving(self) -> Serving | None:
        """How vLLM serves the base; None if it does not, or if the base is not here and not a published one."""
        if self.family is not None:
            return self.family.serving
        return next((base.serving for base in PUBLISHED_BASES if base.name == self.settings.base), None)

    def serve_command(self, folder: Path) -> str | None:
        """Return the vLLM command that serves the export in a folder; None if vLLM cannot serve it."""
        serving = self.serving
        if self.form == "peft" or serving is None:
            return None
        options = serving.options_at(self.settings.resolution)
        if self.form == "merged":
            return shlex.join(["vllm", "serve", folder.as_posix(), *options])
        return serve_adapter(options, self.settings.base, self.revision, folder, self.name, self.adapter["r"])


def model_card(export: Export, folder: Path) -> str:
    """Return the card as Markdown with YAML front matter, for an export in a folder of this name."""
    content = "Weights with a merged LoRA adapter" if export.form == "merged" else "A LoRA adapter"
    content = content if export.adapter else "All weights of a network"
    blocks = [
        _head(export),
        f"# {export.name}",
        f"{content} for one collection of handwriting, trained on {_base(export)} with dsocr.",
        "## Settings",
        _settings(export.settings),
        "## Scores",
        _scores(export.scores, export.scale),
        "## Serving",
        *_serving(export, folder),
        "## Provenance",
        _origin(export),
    ]
    return "\n\n".join(blocks) + "\n"


def _head(export: Export) -> str:
    merged = export.form == "merged"
    values = {
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
    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}---"


def _base(export: Export) -> str:
    return f"`{export.settings.base}`" + (f" at revision `{export.revision}`" if export.revision else "")


def _settings(settings: ReadingSettings) -> str:
    generation = settings.generation
    size, window = generation.get("no_repeat_ngram_size"), generation.get("no_repeat_ngram_window")
    guard = f"no {size} tokens repeated within {window}" if size else "no protection against loops"
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
    note = "It reads worse with other settings than these. Programs find them in `reading.json`."
    return f"{note}\n\n{_table([('', ''), *rows])}"


def _scores(scores: Mapping[str, Any] | None, scale: float) -> str:
    if scores is None:
        return "Not scored yet; run `dsocr evaluate RUN`."
    base, adapter = scores["base"], scores["adapter"]
    rows = [("", "base", "trained")]
    rows += [(name.upper(), _rate(base, name), _rate(adapter, name)) for name in ("cer", "wer")]
    lines = (adapter or base or {}).get("lines")
    about = f"{lines} lines of the {scores['split']} split, read at {scores['created_at']}. {scores['definition']}"
    about += " In brackets: 95 % intervals."
    if scale != 1:
        about = f"These are the scores at full scale, not of this export at a scale of {scale:g}. {about}"
    return f"{_table(rows)}\n\n{about}"


def _rate(score: Mapping[str, Any] | None, name: str) -> str:
    if score is None or score[name] is None:
        return "-"
    interval = score.get("intervals", {}).get(name) or {}
    low, high = interval.get("low"), interval.get("high")
    ends = "" if low is None or high is None else f" ({100 * low:.1f} to {percentage(high, 1)})"
    return percentage(score[name]) + ends


def _serving(export: Export, folder: Path) -> list[str]:
    command = export.serve_command(folder)
    if command is None or export.serving is None:
        return _loading(export)
    trained, served = export.settings.resolution, export.serving.resolution
    request = json.dumps(request_settings(export.settings.generation))
    if served is None:
        where = (
            "within the pixels that the command names, if any. It resizes them with torchvision and dsocr with Pillow, "
        )
        where += "so letters may differ in their last shades of grey: score a few lines there."
    elif served == trained:
        where = f"the resolution that dsocr calls `{served}`. The adapter was trained at this resolution."
    else:
        where = f"the resolution that dsocr calls `{served}`. The adapter was trained at `{trained}`, "
        where += "so vLLM shows it different images: score it there first."
    blocks = [
        f"```sh\n{command}\n```",
        f"Every request needs the prompt above, the image, and\n\n```json\n{request}\n```",
        f"{export.serving.images}, {where}",
        "No server was run with this export when this card was written.",
    ]
    if export.form == "vllm" and export.serving.base_note:
        blocks.insert(1, export.serving.base_note)
    if export.form == "merged":
        blocks.append(
            "Tensor names, number formats and `config.json` are the base's, as SGLang, llama.cpp's converter and the "
            "authors' code expect them. No code is included: if a program asks for the `*.py` files that `config.json` "
            "names, take them from the base's own page, and read them first."
        )
    return blocks


def _loading(export: Export) -> list[str]:
    if export.form == "merged":
        return [
            "To continue training, set `base:` to this folder; `dsocr.load` reads with it. "
            "Whether servers support this kind of base has not been tested."
        ]
    loading = (
        "```python\nfrom peft import PeftModel\nfrom dsocr.models.loading import load_base\n\n"
        f"base = load_base({export.settings.base!r}, {export.revision!r})\n"
        'model = PeftModel.from_pretrained(base.network, "FOLDER")\n```'
    )
    reader = "`dsocr.load(FOLDER)` returns a reader with the settings above."
    if export.form == "vllm":
        return ["vLLM has no class for this base. PEFT reads the adapter:", loading, reader]
    return [loading, reader]


def _origin(export: Export) -> str:
    adapter, known = export.adapter, export.provenance
    unlabelled = UnlabelledReport.of(known)
    trained = "all weights"
    if adapter:
        trained = f"target modules `{target_modules_of(adapter)}`, r {adapter['r']}, "
        trained += f"alpha {adapter['lora_alpha']}, {variant_of(adapter)}"
    rows = [
        ("dsocr", f"trained with {known.get('dsocr_version', '?')}, exported with {__version__}"),
        ("base", _base(export)),
        *([("family", f"`{export.family.name}`")] if export.family else []),
        *(("started from", _ancestor(run)) for run in known.get("started_from", [])),
        ("adapter" if adapter else "trained", trained),
        *([] if export.scale == 1 else [("scale", f"{export.scale:g}")]),
        ("trained", f"from {known.get('begun_at', '?')}, on {known.get('device', '?')}"),
        ("dataset", str(known.get("dataset_source", "?"))),
        *([("unlabelled scans", unlabelled.describe())] if unlabelled else []),
        *((f"{split} split", f"sha256 `{digest}`") for split, digest in known.get("dataset", {}).items()),
    ]
    return _table([("", ""), *rows])


def _ancestor(run: Mapping[str, Any]) -> str:
    """Name a run that the training started from, its weights and its data."""
    hashes = ", ".join(f"`{digest}`" for digest in run["sha256"].values())
    return f"`{run['run']}`, sha256 {hashes}, trained on {run.get('dataset_source') or '?'} from `{run['base']}`"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is its header."""
    header, *rest = rows
    lines = [header, ["---"] * len(header), *rest]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
