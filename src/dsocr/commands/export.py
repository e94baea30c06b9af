"""`dsocr export`."""

from pathlib import Path
from typing import Literal

from dsocr.commands.quiet import quiet_libraries
from dsocr.console import Printer
from dsocr.errors import ConfigError


def export_command(
    printer: Printer,
    path: Path,
    *,
    merged: Path | None,
    adapter: Path | None,
    form: str | None,
    scale: float,
    overwrite: bool,
) -> None:
    """`dsocr export`."""
    from dsocr.models.checkpoint import require_readable_adapter
    from dsocr.models.export_target import require_free_target, require_separate
    from dsocr.runs import RunFolder

    out = _export_target(merged, adapter, form)
    run = RunFolder.open(path)
    require_free_target(out, overwrite=overwrite)
    require_separate(out, [run.adapter])
    if merged is not None:
        require_readable_adapter(run.adapter)
    from dsocr.evaluation.scorecard import Scorecard
    from dsocr.models.export import export_adapter, export_merged

    quiet_libraries()
    scores = Scorecard.load(run.scorecard).to_dict() if run.scorecard.is_file() else None
    if adapter is None:
        with printer.progress("writing", "tensors") as tell:
            export = export_merged(run, out, scores=scores, scale=scale, overwrite=overwrite, progress=tell)
    else:
        made_for: Literal["peft", "vllm"] = "vllm" if form == "vllm" else "peft"
        export = export_adapter(run, out, made_for, scores=scores, scale=scale, overwrite=overwrite)
    printer.result(f"{'adapter' if adapter else 'merged model'}: {out}")
    printer.say(f"card:    {out / 'README.md'}, with the prompt and settings to read with")
    printer.say(f"next:    {export.serve_command(out) or 'the card says how to load it'}")


def _export_target(merged: Path | None, adapter: Path | None, form: str | None) -> Path:
    out = merged or adapter
    if out is None or (merged and adapter):
        raise ConfigError("give either --merged FOLDER or --adapter FOLDER")
    if form is not None and adapter is None:
        raise ConfigError("--for: says who is to read an adapter, so it goes with --adapter")
    if form not in (None, "peft", "vllm"):
        raise ConfigError(f"--for: must be peft or vllm, not {form!r}")
    return out
