"""The demo: from scanned pages to scores and transcriptions, with what ships with the package."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import dsocr
from dsocr.cli import printing
from dsocr.console import Reporter, current_reporter
from dsocr.errors import typed
from dsocr.options import Output

if TYPE_CHECKING:
    from dsocr.data.dataset import Dataset

_PAGES = "examples/copiste"
_RUSSIAN = "examples/russian"
_RENDERED = "examples/handwriting"
_WRITER = r"((?:imp_)?wikitexte_\d+)"
_PARTS = {"data", "copiste", "russian", "pages", "nano"}
"""What the demo writes into its folder."""


def demo(*, output: Output = "runs/demo", base: Literal["small", "nano"] = "small") -> None:
    """Go from shipped pages to scores and transcriptions. Takes a few minutes without a GPU.

    Args:
        output: Folder for the runs.
        base: small reads real hands; nano is a tiny vision language model.
    """
    from dsocr.io.files import shipped_path
    from dsocr.io.work import require_free_output

    folder = Path(output)
    require_free_output(folder, "demo", _demo_files, overwrite=True)
    printer = current_reporter()

    if base == "nano":
        rendered = shipped_path(_RENDERED)
        printer.message("The demo trains a tiny vision language model (nano) on 330 rendered lines by three writers.")
        _train(printer, "configs/demo_nano.yaml", folder / "nano", rendered)
        _evaluate(printer, folder / "nano")
    else:
        _read_real_hands(printer, folder, shipped_path(_PAGES), shipped_path(_RUSSIAN))
    printer.message("next:      dsocr prepare YOUR_SCANS -o data/yours   (the README has the whole way)")


def _read_real_hands(printer: Reporter, output: Path, pages: Path, russian: Path) -> None:
    data, run = output / "data", output / "copiste"
    printer.message("1. A dataset from 72 pages of real handwriting with ALTO files, split by writer")
    dataset = _prepare(printer, pages, data)
    writers = dataset.card.splits[dsocr.Split.TRAIN].writers
    printer.message(f"\n2. Training on the lines of {writers} writers")
    _train(printer, "configs/demo.yaml", run, data)
    printer.message("\n3. Reading the lines of writers that training never saw, before and after")
    _evaluate(printer, run)
    printer.message("\n4. Transcribing whole pages by these writers, without their ALTO files")
    _transcribe(printer, run, dataset, pages, output / "pages")
    printer.message("\n5. The same in Russian, on synthetic Russian handwriting")
    _train(printer, "configs/demo.yaml", output / "russian", russian)
    _evaluate(printer, output / "russian")


def _demo_files(folder: Path) -> list[str] | None:
    """Return what is in the folder of a demo, which a repeated one resumes; None if there is anything else."""
    names = [path.name for path in folder.iterdir()]
    is_demo = all(name in _PARTS or name.startswith(".") for name in names)
    return [*names, *(f"{name}/" for name in names)] if is_demo else None


def _shown(path: Path) -> str:
    """A shipped file as one would type it here."""
    return typed(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _prepare(printer: Reporter, pages: Path, data: Path) -> "Dataset":
    printer.message(f"   dsocr prepare {_shown(pages)} -o {typed(data)} --writer '{_WRITER}'")
    dataset = dsocr.prepare(pages, data, writer=_WRITER, overwrite=True)
    printing.prepared(printer, dataset)
    return dataset


def _train(printer: Reporter, config: str, run: Path, dataset: Path) -> None:
    from dsocr.io.files import shipped_path

    file = shipped_path(config)
    printer.message(f"   dsocr train {_shown(file)} --set dataset={_shown(dataset)} --set output={typed(run)}")
    printing.trained(printer, dsocr.train(file, dataset=dataset, output=run, overwrite=True, preflight=False))


def _evaluate(printer: Reporter, run: Path) -> None:
    printer.message(f"   dsocr evaluate {typed(run)}")
    printing.evaluated(printer, dsocr.evaluate(run))


def _transcribe(printer: Reporter, run: Path, dataset: "Dataset", pages: Path, output: Path) -> None:
    names = sorted({str(sample.page) for sample in dataset.samples("test")})
    images = [pages / "jpg" / f"{name}.jpg" for name in names]
    listed = " ".join(_shown(image) for image in images[:2])
    formats = ("alto", "pdf")
    options = " ".join(f"--format {name}" for name in formats)
    printer.message(f"   dsocr transcribe {typed(run)} {listed} ... -o {typed(output)} {options}")
    report = dsocr.transcribe(run, images, output, format=formats, overwrite=True)
    printer.message(f"{report.images} pages, {report.lines} lines: {output}")
