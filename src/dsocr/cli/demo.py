"""The demo: from scanned pages to scores and transcriptions, with what ships with the package."""

import sys
from pathlib import Path
from typing import Literal

import dsocr
from dsocr.console import Printer, current_reporter
from dsocr.errors import typed
from dsocr.options import Output

_PARTS = {"data", "copiste", "russian", "pages", "nano"}
"""What the demo writes into its folder, and resumes in."""


def demo(*, output: Output = "runs/demo", base: Literal["small", "nano"] = "small") -> None:
    """Go from shipped pages to scores and transcriptions. Takes a few minutes without a GPU.

    Args:
        output: Folder for the runs.
        base: small reads real hands; nano is a tiny vision language model.
    """
    from dsocr.io.files import shipped_path
    from dsocr.io.work import all_files, require_free_output

    def demo_files(folder: Path) -> list[str] | None:
        is_demo = all(path.name in _PARTS or path.name.startswith(".") for path in folder.iterdir())
        return all_files(folder) if is_demo else None

    folder, say = Path(output), current_reporter().message
    require_free_output(folder, "demo", demo_files, overwrite=True)
    if base == "nano":
        say("The demo trains a tiny vision language model (nano) on 330 rendered lines by three writers.")
        _train("configs/demo_nano.yaml", folder / "nano", shipped_path("examples/handwriting"))
        _run("evaluate", folder / "nano")
    else:
        pages, data, run = shipped_path("examples/copiste"), folder / "data", folder / "copiste"
        say("1. A dataset from 72 pages of real handwriting with ALTO files, split by writer")
        _run("prepare", pages, "-o", data, "--writer", r"((?:imp_)?wikitexte_\d+)", "--overwrite")
        say("\n2. Training on the lines of the writers in its train split")
        _train("configs/demo.yaml", run, data)
        say("\n3. Reading the lines of writers that training never saw, before and after")
        _run("evaluate", run)
        say("\n4. Transcribing whole pages by these writers, without their ALTO files")
        names = sorted({str(sample.page) for sample in dsocr.Dataset.open(data).samples("test")})
        images = [pages / "jpg" / f"{name}.jpg" for name in names]
        _run("transcribe", run, *images, "-o", folder / "pages", "--format", "alto", "--format", "pdf", "--overwrite")
        say("\n5. The same in Russian, on synthetic Russian handwriting")
        _train("configs/demo.yaml", folder / "russian", shipped_path("examples/russian"))
        _run("evaluate", folder / "russian")
    say("next:      dsocr prepare YOUR_SCANS -o data/yours   (the README has the whole way)")


def _train(config: str, run: Path, dataset: Path) -> None:
    from dsocr.io.files import shipped_path

    settings = "--set", f"dataset={dataset}", "--set", f"output={run}"
    _run("train", shipped_path(config), *settings, "--overwrite", "--no-preflight")


def _run(*words: str | Path) -> None:
    """Print a command and run it; a failure or an interruption ends the demo."""
    from dsocr.cli.app import invoke

    printer, here = current_reporter(), Path.cwd()
    shown = [
        typed(word.relative_to(here) if isinstance(word, Path) and word.is_relative_to(here) else word)
        for word in words
    ]
    printer.message(f"   dsocr {' '.join(shown)}")
    quiet = ["--quiet"] if isinstance(printer, Printer) and printer.quiet else []
    if code := invoke([*map(str, words), *quiet]):
        sys.exit(code)
