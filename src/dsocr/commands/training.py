"""`dsocr plan` and `dsocr train`."""

import json as json_
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dsocr.commands.check import print_finding
from dsocr.commands.quiet import quiet_libraries
from dsocr.console import Printer, Tell, spoken_time, tell_nobody
from dsocr.errors import DsocrError, Interrupted, typed

if TYPE_CHECKING:
    from dsocr.training.callbacks import Report, TrainingProgress
    from dsocr.training.plan import Plan
    from dsocr.training.setup import Stage
    from dsocr.training.train import TrainResult
    from dsocr.training.validation import ValidationReading

_A_WORD_SECONDS = 3


def plan_command(printer: Printer, path: Path, overrides: Sequence[str], *, json: bool) -> int:
    """`dsocr plan`: 1 where the training will not fit into memory, else 0."""
    from dsocr.config import load_config
    from dsocr.training.requirements import demand_named

    config = load_config(path, overrides)
    demand_named(config)
    from dsocr.training.plan import make_plan

    quiet_libraries()
    with printer.progress("measuring", "samples") as tell:
        plan = make_plan(config, progress=tell)
    if json:
        printer.result(json_.dumps(plan.as_dict(), ensure_ascii=False, indent=2))
        return 0 if plan.fits else 1
    _print_plan(printer, plan)
    if plan.fits:
        printer.say(f"next: {train_line(path, overrides)}")
    return 0 if plan.fits else 1


def train_line(path: Path, overrides: Sequence[str]) -> str:
    """The command that trains as a configuration and its overrides say."""
    return f"dsocr train {typed(path.as_posix())}{''.join(f' --set {typed(text)}' for text in overrides)}"


def _print_plan(printer: Printer, plan: "Plan") -> None:
    from dsocr.training.plan import spoken_bytes

    spreads = {name: getattr(plan.tokens, name) for name in ("vision", "text", "sequence")}
    rows = [([name, *map(str, asdict(spread).values())], "") for name, spread in spreads.items()]
    printer.table(["tokens", "min", "median", "95 %", "max"], rows)
    printer.result(f"over max_text_tokens ({plan.tokens.limit}): {plan.tokens.too_long}\n")

    probe, done = plan.probe, plan.schedule
    if probe is not None and probe.peak_bytes is not None:
        peak, free = spoken_bytes(probe.peak_bytes), spoken_bytes(probe.free_bytes)
        printer.result(f"memory of the longest batch on {probe.device}, measured: {peak} at most, {free} were free")
    printer.result(
        f"{done.steps} steps, {done.forwards} forward passes over {done.samples} samples, {done.epochs:.1f} epochs"
    )
    if probe is not None and plan.seconds is not None:
        rate, time = probe.samples_per_second, spoken_time(plan.seconds)
        printer.result(f"{time} at {rate:.3g} samples/s, and {done.readings} readings of the validation split")
        if probe.images:
            before = spoken_time(plan.seconds_before)
            printer.result(f"at most {before} of it at the start, to keep what is seen of {probe.images} images")
    for warning in plan.warnings:
        printer.result(f"warning: {warning}")


def train_command(printer: Printer, path: Path, overrides: Sequence[str], *, overwrite: bool, preflight: bool) -> None:
    """`dsocr train`."""
    from dsocr.config import load_config
    from dsocr.io.processes import rank_and_count
    from dsocr.runs import RunFolder
    from dsocr.training.requirements import demand_named, refuse_run

    rank, processes = rank_and_count()
    first = rank == 0
    printer = printer if first else Printer(quiet=True)
    try:
        config = load_config(path, overrides)
        run = RunFolder(config.output)
        if first:  # another may come when the first is at work there
            refuse_run(run, overwrite=overwrite)
        demand_named(config)
    except DsocrError:
        if first:
            raise
        _leave_the_word_to_the_first()
    printer.say(f"training {config.output} on {config.dataset} from {config.base}")
    if preflight and (overwrite or not any(run.checkpoints.glob("step-*"))):  # what goes on has been tried
        printer.say("trying first whether it learns, a few minutes at most; --no-preflight leaves the trials out")
    from dsocr.training.distributed import OthersEndedError
    from dsocr.training.train import train

    quiet_libraries()
    try:
        with training_progress(printer) as (report, stage):
            result = train(
                config,
                overwrite=overwrite,
                preflight=preflight,
                report=report,
                stage=stage,
                warn=lambda finding: print_finding(printer, finding),
                say=printer.complain,
            )
    except Interrupted as interrupted:
        if first:
            launcher = "" if processes == 1 else f"torchrun --nproc-per-node {processes} -m "
            print_interrupted(printer, interrupted, f"{launcher}{interrupted.resume}")
        raise SystemExit(interrupted.exit_code) from None
    except OthersEndedError:
        if first:
            raise
        _leave_the_word_to_the_first()
    if first:
        print_trained(printer, result)
        printer.say(f"next:    dsocr evaluate {typed(result.run.path)}")


def _leave_the_word_to_the_first() -> NoReturn:
    """End as it does, but later: when one process is gone, the launcher ends all others, whatever they were saying."""
    time.sleep(_A_WORD_SECONDS)
    raise SystemExit(2)


def print_interrupted(printer: Printer, interrupted: Interrupted, resume: str) -> None:
    """What is kept of a training that a signal ended, and how to go on."""
    printer.complain(f"interrupted; a checkpoint of step {interrupted.step} is written")
    printer.complain(f"resume:  {resume}")


def print_trained(printer: Printer, result: "TrainResult") -> None:
    """What a training made."""
    if result.resumed_from:
        printer.say(f"resumed from step {result.resumed_from}")
    if result.excluded:
        printer.say(f"excluded as longer than max_text_tokens: {result.excluded} samples")
    best = "" if result.best_cer is None else f", best validation CER {result.best_cer:.2%} at step {result.best_step}"
    printer.say(f"{result.steps} steps in {spoken_time(result.seconds)}{best}")
    if result.guard is not None and result.guard.exceeds_margin:
        printer.complain(f"warning: {result.guard.message}")
    elif result.guard is not None:
        printer.say(result.guard.message)
    if result.calibrated_on:
        printer.say(f"confidences were fitted on {result.calibrated_on} lines of the validation split")
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
def training_progress(printer: Printer) -> "Iterator[tuple[Report, Stage]]":
    """A bar with the loss, the learning rate, the last CER and the speed beside it; a line for each validation.

    Before it a bar for each stage of long work that training begins with.
    """
    told, warned, shown = -1, False, ""
    with ExitStack() as bar:
        tell: Tell = tell_nobody

        def turn_to(what: str, unit: str) -> None:
            nonlocal tell, shown
            if what != shown:
                bar.close()  # there is room for one
                tell, shown = bar.enter_context(printer.progress(what, unit)), what

        def stage(what: str, unit: str, done: int, total: int) -> None:
            turn_to(what, unit)
            tell(done, total)

        def report(progress: "TrainingProgress") -> None:
            nonlocal told, warned
            turn_to("training", "steps")
            if progress.reading is not None and progress.reading.step != told:
                told = progress.reading.step
                printer.say(spoken_reading(progress.reading))
                if progress.reading.guard is not None and progress.reading.guard.exceeds_margin and not warned:
                    warned = True
                    printer.complain(f"warning: {progress.reading.guard.message}")
            facts = [
                None if progress.loss is None else f"loss {progress.loss:.3f}",
                None if progress.learning_rate is None else f"lr {progress.learning_rate:.1e}",
                None if progress.cer is None else f"CER {progress.cer:.1%}",
                f"{progress.samples_per_second:.0f} lines/s",
            ]
            tell(progress.step, progress.steps, "  ".join(fact for fact in facts if fact))

        yield report, stage
