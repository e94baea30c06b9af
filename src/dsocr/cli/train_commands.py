"""Commands that train."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from dsocr.cli.app import Json, Overwrite, Quiet, Settings, command, print_json, quiet_libraries
from dsocr.cli.data_commands import print_finding
from dsocr.console import Printer, format_duration, training_progress
from dsocr.document import Split
from dsocr.errors import DsocrError, typed

if TYPE_CHECKING:
    from dsocr.evaluation.learning_curve import CurvePoint
    from dsocr.evaluation.tuning import Trial
    from dsocr.training.dry_run import Plan
    from dsocr.training.train import TrainResult

_SECONDS_TO_SPEAK = 3


@command(
    "Train",
    "dsocr train mine.yaml --set training.learning_rate=1e-3 --set output=runs/faster",
    "dsocr train data/mine --dry-run",
)
def train(
    config: Annotated[Path, typer.Argument(help="YAML file (configs/ holds recipes), or a dataset folder.")],
    set_: Settings = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check that it would learn and fit, and how long it would take.")
    ] = False,
    overwrite: Overwrite = False,
    preflight: Annotated[bool, typer.Option(help="Try on a few samples first that it learns.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the result of --dry-run as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train a reader, or resume an interrupted training."""
    from dsocr.config import load_config
    from dsocr.io.processes import rank_and_count
    from dsocr.runs import RunFolder
    from dsocr.training.lifecycle import require_sources, require_trainable

    overrides = set_ or []
    if dry_run:
        sys.exit(_dry_run(Printer(quiet=quiet or json), config, overrides, preflight=preflight, json=json))
    rank, _ = rank_and_count()
    printer = Printer(quiet=quiet or rank > 0)
    try:
        settings = load_config(config, overrides)
        run = RunFolder(settings.output)
        if rank == 0:  # other processes may look when the first is at work there
            require_trainable(run, overwrite=overwrite)
        require_sources(settings)
    except DsocrError:
        if rank == 0:
            raise
        _leave_quietly()
    printer.message(f"training {settings.output} on {settings.dataset} from {settings.base}")
    if preflight and (overwrite or not any(run.checkpoints.glob("step-*"))):
        printer.message("checking first that it learns, a few minutes at most; --no-preflight skips this")
    from dsocr.training.distributed import PeerFailedError
    from dsocr.training.train import train

    quiet_libraries()
    try:
        with training_progress(printer) as (on_progress, on_stage):
            result = train(
                settings,
                overwrite=overwrite,
                preflight=preflight,
                on_progress=on_progress,
                on_stage=on_stage,
                on_warning=lambda finding: print_finding(printer, finding),
                on_message=printer.complain,
            )
    except PeerFailedError:
        if rank == 0:
            raise
        _leave_quietly()
    if rank == 0:
        print_trained(printer, result)
        printer.message(f"next:    dsocr evaluate {typed(result.run.path)}")


def _leave_quietly() -> NoReturn:
    """Exit after the first process: when one process exits, the launcher ends the others, whatever they print."""
    time.sleep(_SECONDS_TO_SPEAK)
    raise SystemExit(2)


def print_trained(printer: Printer, result: "TrainResult") -> None:
    """Print what a training reached and where it is."""
    if result.resumed_from:
        printer.message(f"resumed from step {result.resumed_from}")
    if result.excluded:
        printer.message(f"excluded as longer than max_text_tokens: {result.excluded} samples")
    best = "" if result.best_cer is None else f", best validation CER {result.best_cer:.2%} at step {result.best_step}"
    printer.message(f"{result.steps} steps in {format_duration(result.seconds)}{best}")
    if result.best_step == 0:
        printer.complain(
            "warning: no step read the validation lines better than the weights that the training started from, which "
            "are kept: transcribe more lines, or lower training.learning_rate"
        )
    if result.guard is not None and result.guard.exceeds_margin:
        printer.complain(f"warning: {result.guard.message}")
    elif result.guard is not None:
        printer.message(result.guard.message)
    if result.calibrated_on:
        printer.message(f"confidences were calibrated on {result.calibrated_on} lines of the validation split")
    printer.result(f"{result.run.adapter.name}: {result.run.adapter}")
    printer.message(f"curves:  tensorboard --logdir {typed(result.run.tensorboard)}")


def _dry_run(printer: Printer, path: Path, overrides: Sequence[str], *, preflight: bool, json: bool) -> int:
    """Check and measure a training without running it; 1 if a check fails or memory is too small, else 0."""
    from dsocr.config import load_config
    from dsocr.training.lifecycle import require_sources

    config = load_config(path, overrides)
    require_sources(config)
    from dsocr.training.dry_run import dry_run

    quiet_libraries()
    with printer.progress("overfitting five samples", "steps") as progress:
        result = dry_run(config, preflight=preflight, progress=progress)
    if json:
        print_json(printer, result.to_dict())
        return 1 if result.errors else 0
    printer.result(result.render())
    if result.plan is not None:
        _print_plan(printer, result.plan)
    if result.errors:
        printer.result(f"would not train: {', '.join(check.name for check in result.errors)}")
        return 1
    settings = "".join(f" --set {typed(text)}" for text in overrides)
    printer.message(f"next: dsocr train {typed(path.as_posix())}{settings}")
    return 0


def _print_plan(printer: Printer, plan: "Plan") -> None:
    from dsocr.training.dry_run import format_bytes

    spreads = {name: getattr(plan.tokens, name) for name in ("vision", "text", "sequence")}
    rows = [([name, *map(str, asdict(spread).values())], "") for name, spread in spreads.items()]
    printer.table(["tokens", "min", "median", "95 %", "max"], rows)
    printer.result(f"over max_text_tokens ({plan.tokens.limit}): {plan.tokens.too_long}\n")

    measured, schedule = plan.measurement, plan.schedule
    if measured is not None and measured.peak_bytes is not None:
        peak, free = format_bytes(measured.peak_bytes), format_bytes(measured.free_bytes)
        printer.result(f"memory of the longest batch on {measured.device}, measured: {peak} at most, {free} were free")
    printer.result(
        f"{schedule.steps} steps, {schedule.micro_batches} micro-batches over {schedule.samples} samples, "
        f"{schedule.epochs:.1f} epochs"
    )
    if measured is not None and plan.seconds is not None:
        rate, duration = measured.samples_per_second, format_duration(plan.seconds)
        printer.result(f"{duration} at {rate:.3g} samples/s, and {schedule.validations} validations")
        if measured.images:
            before = format_duration(plan.seconds_before)
            printer.result(
                f"at most {before} of it at the start, to fill the feature cache with {measured.images} images"
            )
    for warning in plan.warnings:
        printer.result(f"warning: {warning}")


@command("Train", "dsocr forecast mine.yaml --more 500 --more 1000", "dsocr forecast mine.yaml --target 0.05")
def forecast(
    config: Annotated[Path, typer.Argument(help="YAML file (configs/ holds recipes), or a dataset folder.")],
    set_: Settings = None,
    more: Annotated[
        list[int] | None, typer.Option(min=1, help="Number of additional lines to forecast for; repeatable.")
    ] = None,
    target: Annotated[
        list[float] | None,
        typer.Option(min=0, max=1, help="CER to reach, as 0.05: how many lines does it take? Repeatable."),
    ] = None,
    sizes: Annotated[
        list[float] | None,
        typer.Option(min=0, max=1, help="Share of the training split; repeatable; 0.125 0.25 0.5 1 if not given."),
    ] = None,
    split: Annotated[Split, typer.Option(help="Split to score on.")] = Split.VALIDATION,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Forecast what more lines would bring. Trains on growing parts of the data and follows the learning curve."""
    from dsocr.config import load_config
    from dsocr.evaluation.evaluate import require_samples
    from dsocr.training.lifecycle import require_sources

    settings = load_config(config, set_ or [])
    require_samples(require_sources(settings), split)
    # Slow, and not needed to say what is wrong with a configuration.
    from dsocr.evaluation.report.result_pages import FORECAST_PAGE
    from dsocr.runs import RunFolder
    from dsocr.training.forecast import SIZES, forecast

    quiet_libraries()
    printer = Printer(quiet=quiet or json)

    def on_point(point: "CurvePoint") -> None:
        trained = f"{point.samples} lines, {point.steps} steps" if point.samples else "the base, untrained"
        printer.message(f"{trained}: CER {point.cer:.2%}")

    with printer.progress("training", "steps") as progress:
        result = forecast(
            settings,
            sizes=sizes or SIZES,
            split=split,
            more=more or [],
            targets=target or [],
            overwrite=overwrite,
            progress=progress,
            on_point=on_point,
            on_message=printer.complain,
        )
    if json:
        print_json(printer, result.to_dict())
        return
    rows = [([f"{point.samples}", f"{point.steps}", f"{point.cer:.2%}"], "") for point in result.points]
    printer.table(["lines", "steps", f"{split} CER"], rows)
    printer.result("")
    for sentence in result.sentences:
        printer.result(sentence)
    printer.message(f"\n{result.explanation}")
    printer.result(f"forecast: {RunFolder(settings.output).forecast / FORECAST_PAGE}")


@command("Train", "dsocr tune mine.yaml", "dsocr tune mine.yaml --search learning_rate=1e-4..2e-3 --search r=8,16,32")
def tune(
    config: Annotated[Path, typer.Argument(help="YAML file (configs/ holds recipes), or a dataset folder.")],
    set_: Settings = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            help="Setting to search, as KEY=LOW..HIGH or KEY=A,B,C; repeatable. Otherwise learning rate, augmentation "
            "and, of an adapter, rank."
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Trainings with different settings; the first has yours.")] = 20,
    seeds: Annotated[
        int, typer.Option(min=0, help="Other seeds to train the best settings and yours with, to tell chance.")
    ] = 3,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Begin no trial after so many minutes of training.")
    ] = None,
    sampler: Annotated[
        Literal["tpe", "random"], typer.Option(help="Learn from the trials before, or draw at random.")
    ] = "tpe",
    prune: Annotated[bool, typer.Option(help="Stop trials early that are not among the best.")] = True,
    workers: Annotated[int, typer.Option(min=1, help="Trials to train at once, each in a process.")] = 1,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search for settings that read better. Trains with several and compares them on the validation split."""
    from dsocr.config import load_config
    from dsocr.training.lifecycle import require_sources

    settings = load_config(config, set_ or [])
    require_sources(settings)
    # Slow, and not needed to say what is wrong with a configuration.
    from dsocr.evaluation.report.result_pages import TUNING_PAGE
    from dsocr.runs import RunFolder
    from dsocr.training.tune import BEST, tune

    quiet_libraries()
    printer = Printer(quiet=quiet or json)

    def on_trial(trial: "Trial") -> None:
        cer = "" if trial.cer is None else f"CER {trial.cer:.2%}"
        note = {"complete": "", "stopped": ", stopped early", "failed": f"failed: {trial.error}"}[trial.state]
        name = f"trial {trial.number}" if trial.repeats is None else f"trial {trial.repeats} with seed {trial.seed}"
        printer.message(f"{name}: {trial.described}: {cer}{note}")

    with printer.progress("training", "steps") as progress:
        result = tune(
            settings,
            search=search or (),
            trials=trials,
            seeds=seeds,
            minutes=minutes,
            sampler=sampler,
            prune=prune,
            workers=workers,
            overwrite=overwrite,
            progress=progress,
            on_trial=on_trial,
        )
    if json:
        print_json(printer, result.to_dict())
        return
    for sentence in result.sentences:
        printer.result(sentence)
    folder = RunFolder(settings.output).tune
    printer.result(f"report: {folder / TUNING_PAGE}")
    if result.is_better:
        printer.message(f"next:   dsocr train {typed((folder / BEST).as_posix())}")
