"""What each command does: call one function of the library, print what it made and what to run next."""

import json as json_
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.console import Printer, spoken_time
from dsocr.errors import ConfigError
from dsocr.samples import Split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsocr.data.checks import Finding
    from dsocr.data.prepare import PrepareReport
    from dsocr.doctor import Fact
    from dsocr.training.callbacks import Report, TrainingProgress
    from dsocr.training.plan import Plan
    from dsocr.training.train import TrainResult


def prepare_command(
    printer: Printer,
    source: Path,
    out: Path,
    *,
    format: str | None,
    writer: str | None,
    page: str | None,
    split: str,
    split_by: str | None,
    seed: int,
    columns: Sequence[str],
    strict: bool,
    overwrite: bool,
) -> None:
    """`dsocr prepare`."""
    from dsocr.data.prepare import prepare

    with printer.progress("preparing", "images") as tell:
        report = prepare(
            source,
            out,
            format=format,
            writer=writer,
            page=page,
            split=split,
            split_by=_split_by(split_by),  # type: ignore[arg-type]
            seed=seed,
            columns=_columns(columns),
            strict=strict,
            overwrite=overwrite,
            progress=tell,
        )
    _print_prepared(printer, report)


def _split_by(name: str | None) -> str | None:
    if name not in (None, "writer", "page", "text"):
        raise ConfigError(f"--split-by: must be writer, page or text, not {name!r}")
    return name


def _columns(pairs: Sequence[str]) -> Mapping[str, str]:
    if bad := [pair for pair in pairs if not pair.partition("=")[2]]:
        raise ConfigError(f"--column: {bad[0]!r} does not read kind=NAME", hint="for example --column text=label")
    return dict(pair.split("=", 1) for pair in pairs)


def _print_prepared(printer: Printer, report: "PrepareReport") -> None:
    card = report.card
    printer.say(f"{'split':<12}{'samples':>9}{'writers':>9}{'pages':>8}{'characters':>12}")
    for split, part in card.splits.items():
        row = f"{split:<12}{part.samples:>9}{part.writers:>9}{part.pages:>8}{part.characters:>12}"
        printer.say(row)
    printer.say(f"read as {card.source_format}; split by {card.split_by}")
    for reason, left_out in card.left_out.items():
        printer.say(f"left out, {reason}: {left_out.count}")
        for example in left_out.examples[:3]:
            printer.say(f"  {example}")
    for kind, unmatched in card.unmatched.items():
        printer.say(f"no {kind} found in the name of {unmatched.count}, e.g. {unmatched.examples[0]}")
    printer.result(f"dataset: {report.dataset}")
    printer.say(f"next:    dsocr check {report.dataset}")


def sources_command(printer: Printer) -> None:
    """`dsocr sources`."""
    from dsocr.data.sources import FORMATS

    for format_ in FORMATS.values():
        printer.result(f"{format_.name:<10}{format_.title}")
        printer.result(f"{'':<10}dsocr prepare {format_.example}")
    printer.say("prepare finds out which it is and says it; --format NAME decides where a folder holds several")


def check_command(
    printer: Printer, path: Path, *, base: str, max_text_tokens: int, html: Path | None, json: bool
) -> int:
    """`dsocr check`: 1 where there are errors, else 0."""
    from dsocr.config import load_config
    from dsocr.data.dataset import Dataset

    resolution, prompt, revision, folder = None, "free_ocr", None, path
    if path.suffix in (".yaml", ".yml"):
        config = load_config(path)
        base, max_text_tokens, folder = config.base, config.training.max_text_tokens, config.dataset
        resolution, prompt, revision = config.input.resolution, config.input.prompt, config.base_revision
    dataset = Dataset.open(folder)
    if html is not None and not html.absolute().parent.is_dir():
        raise ConfigError(f"--html: there is no folder {html.parent}", hint="make it, or write the page elsewhere")
    # Slow, and not needed to say that there is no dataset.
    from dsocr.data.checking.page import write_page
    from dsocr.model.loading import load_encoder
    from dsocr.training.preflight import check_for_base

    encoder = load_encoder(base, resolution, prompt, revision)
    with Printer(quiet=printer.quiet or json).progress("checking", "samples") as tell:
        findings = check_for_base(dataset, encoder, max_text_tokens=max_text_tokens, progress=tell)
    errors = sum(finding.count for finding in findings if finding.severity == "error")
    if html is not None:
        write_page(html, dataset, findings)
    if json:
        printer.result(json_.dumps([asdict(finding) for finding in findings], ensure_ascii=False, indent=2))
        return 1 if errors else 0
    for finding in findings:
        _print_finding(printer, finding)
    counts = ", ".join(f"{sum(f.count for f in findings if f.severity == kind)} {kind}s" for kind in _SEVERITIES)
    printer.result(f"{folder}: {counts}" if findings else f"{folder}: nothing to complain about")
    if html is not None:
        printer.result(f"page: {html}")
    if not errors:
        printer.say("next: dsocr train CONFIG (configs/ holds recipes to copy)")
    return 1 if errors else 0


_SEVERITIES = ("error", "warning", "note")


def _print_finding(printer: Printer, finding: "Finding") -> None:
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    printer.result(f"{finding.severity}: {finding.where}: {finding.message}{times} [{finding.code}]")
    for example in finding.examples[:4]:
        if example != finding.where:
            printer.say(f"    {example}")
    printer.say(f"    fix: {finding.fix}")


def plan_command(printer: Printer, path: Path, overrides: Sequence[str], *, probe: bool, json: bool) -> int:
    """`dsocr plan`: 1 where the training will not fit into memory, else 0."""
    from dsocr.config import load_config

    config = load_config(path, overrides)
    from dsocr.training.plan import make_plan  # slow, and not needed to say what is wrong with a configuration

    quiet_libraries()
    with printer.progress("measuring", "samples") as tell:
        plan = make_plan(config, probe=probe, progress=tell)
    if json:
        printer.result(json_.dumps(plan.as_dict(), ensure_ascii=False, indent=2))
        return 0 if plan.fits else 1
    _print_plan(printer, plan)
    if plan.fits:
        printer.say(f"next: dsocr train {path.as_posix()}{''.join(f' --set {text}' for text in overrides)}")
    return 0 if plan.fits else 1


def _print_plan(printer: Printer, plan: "Plan") -> None:
    from dsocr.training.memory import spoken_bytes

    spreads = {name: getattr(plan.tokens, name) for name in ("vision", "text", "sequence")}
    rows = [([name, *map(str, asdict(spread).values())], "") for name, spread in spreads.items()]
    printer.table(["tokens", "min", "median", "95 %", "max"], rows)
    printer.result(f"over max_text_tokens ({plan.tokens.limit}): {plan.tokens.too_long}\n")

    parts = {**asdict(plan.memory), "sum": plan.memory.total, "free now": plan.room.free}
    if plan.probe is not None and plan.probe.peak_bytes is not None:
        parts["measured"] = plan.probe.peak_bytes
    printer.table(["memory", plan.room.device], [([name, spoken_bytes(size)], "") for name, size in parts.items()])
    printer.result("activations, logits and passing are an estimate\n")

    done = plan.schedule
    printer.result(
        f"{done.steps} steps, {done.forwards} forward passes over {done.samples} samples, {done.epochs:.1f} epochs"
    )
    if plan.probe is not None and plan.seconds is not None:
        rate, time = plan.probe.samples_per_second, spoken_time(plan.seconds)
        printer.result(f"{time} at {rate:.3g} samples/s, and {done.readings} readings of the validation split")
    for warning in plan.warnings:
        printer.result(f"warning: {warning}")


def train_command(printer: Printer, path: Path, overrides: Sequence[str], *, overwrite: bool) -> None:
    """`dsocr train`."""
    from dsocr.config import load_config
    from dsocr.training.train import train

    quiet_libraries()
    config = load_config(path, overrides)
    printer.say(f"training {config.run} on {config.dataset} from {config.base}")
    try:
        with _training_progress(printer) as report:
            result = train(
                config, overwrite=overwrite, report=report, warn=lambda finding: _print_finding(printer, finding)
            )
    except KeyboardInterrupt:
        printer.complain("the same command, without --overwrite, goes on from the last checkpoint")
        raise
    _print_trained(printer, result)
    printer.say(f"next:    dsocr evaluate {result.run.path}")


def _print_trained(printer: Printer, result: "TrainResult") -> None:
    if result.resumed_from:
        printer.say(f"resumed from step {result.resumed_from}")
    if result.excluded:
        printer.say(f"excluded as longer than max_text_tokens: {result.excluded} samples")
    best = "" if result.best_cer is None else f", best validation CER {result.best_cer:.2%} at step {result.best_step}"
    printer.say(f"{result.steps} steps in {spoken_time(result.seconds)}{best}")
    printer.result(f"adapter: {result.run.adapter}")
    printer.say(f"curves:  tensorboard --logdir {result.run.tensorboard}")


@contextmanager
def _training_progress(printer: Printer) -> "Iterator[Report]":
    with printer.progress("training", "steps") as tell:

        def report(progress: "TrainingProgress") -> None:
            facts = [
                None if progress.loss is None else f"loss {progress.loss:.3f}",
                None if progress.learning_rate is None else f"lr {progress.learning_rate:.1e}",
                None if progress.cer is None else f"CER {progress.cer:.1%}",
                f"{progress.samples_per_second:.0f} lines/s",
            ]
            tell(progress.step, progress.steps, "  ".join(fact for fact in facts if fact))

        yield report


def evaluate_command(
    printer: Printer,
    path: Path,
    *,
    dataset: Path | None,
    split: Split,
    limit: int | None,
    with_base: bool,
    json: bool,
) -> None:
    """`dsocr evaluate`."""
    from dsocr.evaluation.evaluate import evaluate
    from dsocr.evaluation.table import render_table
    from dsocr.runs import RunFolder

    quiet_libraries()
    run = RunFolder.open(path)
    with printer.progress("reading", "lines") as tell:
        card = evaluate(run, dataset=dataset, split=split, limit=limit, with_base=with_base, progress=tell)
    if json:
        printer.result(json_.dumps(card.as_dict(), ensure_ascii=False, indent=2))
        return
    printer.result(render_table(card))
    printer.say(f"scorecard: {run.scorecard}")
    printer.say(f"lines:     {run.lines}")
    printer.say(f"next:      dsocr transcribe {path} SCANS -o texts.jsonl")


def transcribe_command(
    printer: Printer, path: Path, images: Sequence[Path], out: Path, *, strict: bool, overwrite: bool
) -> None:
    """`dsocr transcribe`."""
    from dsocr.inference.transcribe import transcribe
    from dsocr.runs import RunFolder

    quiet_libraries()
    with printer.progress("reading", "images") as tell:
        report = transcribe(RunFolder.open(path), images, out, strict=strict, overwrite=overwrite, progress=tell)
    for refusal in report.refused:
        printer.complain(f"refused: {refusal}")
    counts = f"{report.images} images read, {len(report.refused)} refused"
    printer.say(f"{counts}; {report.empty} empty, {report.truncated} cut off before their end")
    printer.result(f"texts: {report.out}")


def export_command(
    printer: Printer, path: Path, *, merged: Path | None, adapter: Path | None, form: str | None, overwrite: bool
) -> None:
    """`dsocr export`."""
    from dsocr.runs import RunFolder

    out = _export_target(merged, adapter, form)
    run = RunFolder.open(path)
    from dsocr.evaluation.scorecard import Scorecard
    from dsocr.model.export import export_merged  # slow, and not needed to say that there is no run
    from dsocr.model.export_adapter import export_adapter

    quiet_libraries()
    scores = Scorecard.load(run.scorecard).as_dict() if run.scorecard.is_file() else None
    if adapter is None:
        with printer.progress("writing", "tensors") as tell:
            export = export_merged(run, out, scores=scores, overwrite=overwrite, progress=tell)
    else:
        export = export_adapter(run, out, "vllm" if form == "vllm" else "peft", scores=scores, overwrite=overwrite)
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


def doctor_command(printer: Printer, *, json: bool) -> int:
    """`dsocr doctor`: 1 where something required is missing or broken, else 0."""
    from dsocr.doctor import examine

    with suppress(ImportError, OSError):  # what is wrong with transformers is told below
        quiet_libraries()
    facts = examine(Path.cwd())
    fatal = [fact.name for fact in facts if fact.fatal]
    if json:
        told = {"ready": not fatal, "facts": [asdict(fact) for fact in facts]}
        printer.result(json_.dumps(told, ensure_ascii=False, indent=2))
        return 1 if fatal else 0
    printer.table(["name", "state", "found"], [_fact_row(fact) for fact in facts])
    if fatal:
        printer.result(f"not ready: {', '.join(fatal)}")
        return 1
    printer.result("ready")
    printer.say("next: dsocr demo, or dsocr prepare YOUR_SCANS -o data/yours")
    return 0


def _fact_row(fact: "Fact") -> tuple[Sequence[str], str]:
    found = f"{fact.found}\nhint: {fact.hint}" if fact.hint else fact.found
    return (fact.name, fact.state, found), "red" if fact.fatal else "" if fact.state == "ok" else "yellow"


def demo_command(printer: Printer, out: Path) -> None:
    """`dsocr demo`."""
    from dsocr.config import load_config
    from dsocr.evaluation.evaluate import evaluate
    from dsocr.evaluation.table import render_table
    from dsocr.shipped import shipped
    from dsocr.training.train import train

    quiet_libraries()
    settings = {"run": out, "dataset": shipped("examples/handwriting")}
    config = load_config(shipped("configs/demo.yaml")).model_copy(update=settings)
    printer.say("The demo trains a small DeepSeek-OCR network (`nano`) on 330 shipped lines in three hands.")
    with _training_progress(printer) as report:
        trained = train(config, overwrite=True, report=report)
    _print_trained(printer, trained)
    with printer.progress("reading", "lines") as tell:
        card = evaluate(trained.run, progress=tell)
    printer.result(render_table(card))
    printer.say(f"scorecard: {trained.run.scorecard}")
    printer.say(f"next:      dsocr transcribe {out} examples/handwriting/test -o {out / 'texts.txt'}")
    printer.say("           dsocr prepare YOUR_SCANS -o data/yours   (the README has the whole way)")


def quiet_libraries() -> None:
    """Keep the libraries' own bars and advice off the screen; their errors still come."""
    import warnings

    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # PEFT asks transformers for a property under its old name; nothing a user could do about it.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
