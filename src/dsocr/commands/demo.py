"""`dsocr demo`."""

from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.commands.quiet import quiet_libraries
from dsocr.commands.reading import print_guard
from dsocr.commands.report import draw_report
from dsocr.commands.training import print_interrupted, print_trained, training_progress
from dsocr.console import Printer
from dsocr.errors import Interrupted, RunError, typed

if TYPE_CHECKING:
    from dsocr.config import RunConfig
    from dsocr.runs import RunFolder

_ANOTHER = "name another folder with -o"


def demo_command(printer: Printer, out: Path) -> None:
    """`dsocr demo`."""
    from dsocr.config import load_config
    from dsocr.io.files import shipped_path
    from dsocr.runs import RunFolder
    from dsocr.training.requirements import refuse_run

    settings = {"output": out, "dataset": shipped_path("examples/handwriting")}
    config = load_config(shipped_path("configs/demo.yaml")).model_copy(update=settings)
    refuse_run(RunFolder(out), overwrite=True, another=_ANOTHER)
    _refuse_another_s(RunFolder(out), config)
    printer.say("The demo trains a small DeepSeek-OCR network (`nano`) on 330 shipped lines in three hands.")
    # Slow, and not needed to say that another run is there.
    from dsocr.evaluation.evaluate import evaluate
    from dsocr.training.train import train

    quiet_libraries()
    try:
        with training_progress(printer) as (report, stage):
            trained = train(config, overwrite=True, report=report, stage=stage)
    except Interrupted as interrupted:
        print_interrupted(printer, interrupted, interrupted.resume)
        raise SystemExit(interrupted.exit_code) from None
    print_trained(printer, trained)
    with printer.progress("reading", "lines") as tell:
        card = evaluate(trained.run, progress=tell)
    drawn, _ = draw_report(printer, out)
    printer.result(str(card))
    print_guard(printer, card.guard)
    printer.say(f"scorecard: {trained.run.scorecard}")
    printer.say(f"report:    {drawn}   (open it in a browser)")
    printer.say(f"next:      dsocr transcribe {typed(out)} examples/handwriting/test -o {typed(out / 'texts.txt')}")
    printer.say("           dsocr prepare YOUR_SCANS -o data/yours   (the README has the whole way)")


def _refuse_another_s(run: "RunFolder", config: "RunConfig") -> None:
    """The demo begins anew where it was run before, and replaces nothing else; it may have lain elsewhere then."""
    from dsocr.config import load_run_config

    if not run.config.is_file():
        return
    there = load_run_config(run.config)
    if (there.base, there.dataset.parts[-2:]) != (config.base, config.dataset.parts[-2:]):
        raise RunError("holds a run that is not the demo's", where=run.path, hint=_ANOTHER)
