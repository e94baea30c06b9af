"""`dsocr plan` and `dsocr train`."""

import json as json_
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.commands.check import print_finding
from dsocr.commands.quiet import quiet_libraries
from dsocr.console import Printer, spoken_time
from dsocr.errors import Interrupted

if TYPE_CHECKING:
    from dsocr.training.callbacks import Report, TrainingProgress
    from dsocr.training.plan import Plan
    from dsocr.training.train import TrainResult
    from dsocr.training.validation import ValidationReading


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


def train_command(printer: Printer, path: Path, overrides: Sequence[str], *, overwrite: bool, preflight: bool) -> None:
    """`dsocr train`."""
    from dsocr.config import load_config
    from dsocr.training.train import train

    quiet_libraries()
    config = load_config(path, overrides)
    printer.say(f"training {config.run} on {config.dataset} from {config.base}")
    if preflight:
        printer.say("trying first whether it learns, a few minutes at most; --no-preflight leaves the trials out")
    try:
        with training_progress(printer) as report:
            result = train(
                config,
                overwrite=overwrite,
                preflight=preflight,
                report=report,
                warn=lambda finding: print_finding(printer, finding),
                say=printer.complain,
            )
    except Interrupted as interrupted:
        printer.complain(f"interrupted; a checkpoint of step {interrupted.step} is written")
        printer.complain(f"resume:  {interrupted.resume}")
        raise SystemExit(interrupted.exit_code) from None
    except KeyboardInterrupt:
        printer.complain("the same command, without --overwrite, goes on from the last checkpoint")
        raise
    print_trained(printer, result)
    printer.say(f"next:    dsocr evaluate {result.run.path}")


def print_trained(printer: Printer, result: "TrainResult") -> None:
    """What a training made."""
    if result.resumed_from:
        printer.say(f"resumed from step {result.resumed_from}")
    if result.excluded:
        printer.say(f"excluded as longer than max_text_tokens: {result.excluded} samples")
    best = "" if result.best_cer is None else f", best validation CER {result.best_cer:.2%} at step {result.best_step}"
    printer.say(f"{result.steps} steps in {spoken_time(result.seconds)}{best}")
    if result.guard is not None and result.guard.is_beyond:
        printer.complain(f"warning: {result.guard.sentence}")
    elif result.guard is not None:
        printer.say(result.guard.sentence)
    printer.result(f"adapter: {result.run.adapter}")
    printer.say(f"curves:  tensorboard --logdir {result.run.tensorboard}")


def spoken_reading(reading: "ValidationReading") -> str:
    """One reading of the validation split on one line."""
    loops = f", {reading.runaway} of {reading.samples} lines run away" if reading.runaway else ""
    best = ", the best so far" if reading.best else ""
    guard = reading.guard
    told = "" if guard is None else f", guard CER {guard.adapter.rate:.2%} (base {guard.base.rate:.2%})"
    return f"step {reading.step}: validation CER {reading.cer:.2%}, loss {reading.loss:.3f}{told}{loops}{best}"


@contextmanager
def training_progress(printer: Printer) -> "Iterator[Report]":
    """A bar with the loss, the learning rate, the last CER and the speed beside it; a line for each validation."""
    told, warned = -1, False
    with printer.progress("training", "steps") as tell:

        def report(progress: "TrainingProgress") -> None:
            nonlocal told, warned
            if progress.reading is not None and progress.reading.step != told:
                told = progress.reading.step
                printer.say(spoken_reading(progress.reading))
                if progress.reading.guard is not None and progress.reading.guard.is_beyond and not warned:
                    warned = True
                    printer.complain(f"warning: {progress.reading.guard.sentence}")
            facts = [
                None if progress.loss is None else f"loss {progress.loss:.3f}",
                None if progress.learning_rate is None else f"lr {progress.learning_rate:.1e}",
                None if progress.cer is None else f"CER {progress.cer:.1%}",
                f"{progress.samples_per_second:.0f} lines/s",
            ]
            tell(progress.step, progress.steps, "  ".join(fact for fact in facts if fact))

        yield report
