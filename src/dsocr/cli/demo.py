"""The demo: from scanned pages to scores and transcriptions, with what ships with the package."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dsocr.cli.app import Quiet, command, quiet_libraries
from dsocr.cli.judge_commands import print_guard, write_run_report
from dsocr.cli.train_commands import print_trained
from dsocr.console import Printer, training_progress
from dsocr.document import Split
from dsocr.errors import typed
from dsocr.io.work import require_free_output

if TYPE_CHECKING:
    from dsocr.data.dataset import Dataset

_PAGES = "examples/copiste"
_RENDERED = "examples/handwriting"
_WRITER = r"((?:imp_)?wikitexte_\d+)"
_PARTS = {"data", "copiste", "russian", "pages", "nano"}
"""What the demo writes into its folder."""


@command("Train", "dsocr demo", "dsocr demo --base nano -o runs/first")
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the runs.")] = Path("runs/demo"),
    base: Annotated[
        Literal["small", "nano"], typer.Option(help="small reads real hands; nano is a tiny vision language model.")
    ] = "small",
    quiet: Quiet = False,
) -> None:
    """Go from shipped pages to scores and transcriptions. Takes a few minutes without a GPU."""
    require_free_output(output, "demo", _demo_files, overwrite=True)
    printer = Printer(quiet=quiet)
    quiet_libraries()
    from dsocr.io.files import shipped_path

    if base == "nano":
        printer.message("The demo trains a tiny vision language model (nano) on 330 rendered lines by three writers.")
        _train(printer, "configs/demo_nano.yaml", output / "nano", shipped_path(_RENDERED))
        _evaluate(printer, output / "nano")
    else:
        _read_real_hands(printer, output, shipped_path(_PAGES), shipped_path(_RENDERED))
    printer.message("next:      dsocr prepare YOUR_SCANS -o data/yours   (the README has the whole way)")


def _read_real_hands(printer: Printer, output: Path, pages: Path, rendered: Path) -> None:
    data, run = output / "data", output / "copiste"
    printer.message("1. A dataset from 72 pages of real handwriting with ALTO files, split by writer")
    dataset = _prepare(printer, pages, data)
    printer.message(f"\n2. Training on the lines of {dataset.card.splits[Split.TRAIN].writers} writers")
    _train(printer, "configs/demo.yaml", run, data)
    printer.message("\n3. Reading the lines of writers that training never saw, before and after")
    _evaluate(printer, run)
    printer.message("\n4. Transcribing whole pages by these writers, without their ALTO files")
    _transcribe(printer, run, dataset, pages, output / "pages")
    printer.message("\n5. The same in Russian, on rendered lines")
    _train(printer, "configs/demo.yaml", output / "russian", rendered)
    _evaluate(printer, output / "russian")


def _demo_files(folder: Path) -> list[str] | None:
    """Return what is in the folder of a demo, which a repeated one resumes; None if there is anything else."""
    names = [path.name for path in folder.iterdir()]
    is_demo = all(name in _PARTS or name.startswith(".") for name in names)
    return [*names, *(f"{name}/" for name in names)] if is_demo else None


def _shown(path: Path) -> str:
    """A shipped file as one would type it here."""
    return typed(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _prepare(printer: Printer, pages: Path, data: Path) -> "Dataset":
    from dsocr.cli.data_commands import print_prepared
    from dsocr.data.prepare import prepare

    printer.message(f"   dsocr prepare {_shown(pages)} -o {typed(data)} --writer '{_WRITER}'")
    with printer.progress("preparing", "pages") as progress:
        dataset = prepare(pages, data, writer=_WRITER, overwrite=True, progress=progress)
    print_prepared(printer, dataset)
    return dataset


def _train(printer: Printer, config: str, run: Path, dataset: Path) -> None:
    from dsocr.config import load_config
    from dsocr.io.files import shipped_path
    from dsocr.training.train import train

    file = shipped_path(config)
    printer.message(f"   dsocr train {_shown(file)} --set dataset={_shown(dataset)} --set output={typed(run)}")
    settings = load_config(file, changes={"output": run, "dataset": dataset})
    with training_progress(printer) as (on_progress, on_stage):
        trained = train(settings, overwrite=True, on_progress=on_progress, on_stage=on_stage)
    print_trained(printer, trained)


def _evaluate(printer: Printer, run: Path) -> None:
    from dsocr.evaluation.evaluate import evaluate
    from dsocr.runs import RunFolder

    printer.message(f"   dsocr evaluate {typed(run)}")
    folder = RunFolder.open(run)
    with printer.progress("reading", "lines") as progress:
        card = evaluate(folder, progress=progress)
    page, _ = write_run_report(printer, run)
    printer.result(str(card))
    print_guard(printer, card.guard)
    printer.message(f"scorecard: {folder.scorecard}")
    printer.message(f"report:    {page}   (open it in a browser)")


def _transcribe(printer: Printer, run: Path, dataset: "Dataset", pages: Path, output: Path) -> None:
    from dsocr.inference.transcribe import transcribe
    from dsocr.runs import RunFolder

    names = sorted({str(sample.page) for sample in dataset.samples(Split.TEST)})
    images = [pages / "jpg" / f"{name}.jpg" for name in names]
    listed = " ".join(_shown(image) for image in images[:2])
    formats = ("alto", "pdf")
    wanted = " ".join(f"--format {name}" for name in formats)
    printer.message(f"   dsocr transcribe {typed(run)} {listed} ... -o {typed(output)} {wanted}")
    with printer.progress("transcribing", "pages") as progress:
        folder = RunFolder.open(run)
        report = transcribe(folder, images, output, formats=formats, overwrite=True, progress=progress)
    printer.message(f"{report.images} pages, {report.lines} lines: {output}")
