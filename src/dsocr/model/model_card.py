"""The README.md of an export: how to read with it, how well it reads, how to serve it, where it comes from."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dsocr import __version__
from dsocr.model.adapters import scope_of, variant_of
from dsocr.model.exported import Exported
from dsocr.model.serving import request_settings, served_resolution
from dsocr.runs import ReadingSettings


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
