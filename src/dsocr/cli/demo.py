"""The demo: from scanned pages to scores and transcriptions, with what ships with the package."""

import os
from pathlib import Path
from typing import Any

from dsocr.console import current_reporter
from dsocr.errors import typed
from dsocr.io.files import shipped_path
from dsocr.io.work import all_files, require_free_output
from dsocr.language import system_language
from dsocr.options import Output

_PARTS = {"data", "copiste", "russian", "pages", "corrections"}
"""What the demo and the workbench that it names write into its folder."""


def demo(*, output: Output = "runs/demo") -> None:
    """Go from shipped pages to scores and transcriptions. Takes a few minutes without a GPU.

    Args:
        output: Folder for the runs.
    """
    folder, say = Path(output), current_reporter().message
    parts = {path.name for path in folder.iterdir() if path.name[0] != "."} if folder.is_dir() else set()
    require_free_output(folder, "demo", all_files if parts <= _PARTS else lambda _: None, overwrite=True)
    is_russian = system_language() == "ru"
    if is_russian:
        _learn(shipped_path("examples/russian"), folder / "russian")
    pages, data = shipped_path("examples/copiste"), folder / "data"
    dataset = _run("prepare", pages, "-o", data, "--writer", r"((?:imp_)?wikitexte_\d+)", "--overwrite")
    say(f"{dataset}\n")
    if not is_russian:
        _learn(data, folder / "copiste")
    run = "small" if is_russian else folder / "copiste"  # the pages are in French
    names = sorted({str(sample.page) for sample in dataset.samples("test")})[:2]
    images, formats = [pages / "jpg" / f"{name}.jpg" for name in names], ("--format", "alto", "--format", "pdf")
    _run("transcribe", run, *images, "-o", folder / "pages", *formats, "--overwrite")
    say(f"open:      {folder / 'pages' / names[0]}.pdf")
    say(f"correct:   {_command('workbench', images[0], '--run', run, '--work', folder / 'corrections')}")
    say("next:      dsocr prepare YOUR_SCANS -o data/yours   (the README has the whole way)")


def _learn(dataset: Path, run: Path) -> None:
    """Train, and compare with the base on lines that training never saw."""
    say, settings = current_reporter().message, ("--set", f"dataset={dataset}", "--set", f"output={run}")
    _run("train", shipped_path("configs/demo.yaml"), *settings, "--overwrite", "--no-preflight")
    _run("evaluate", run)
    (difference,) = _run("compare", run).differences
    say("\n".join((difference.summary, *difference.harmed)))
    for line in difference.improved[:1]:
        before, after = (score.prediction for score in line.scores)
        say(f"the line that gained most:\n   before  {before}\n   after   {after}\n   is      {line.last.reference}")
    say(f"open:      {run / 'report.html'}\n")


def _run(*words: str | Path) -> Any:
    """Print a command, and return its result."""
    from dsocr.cli.app import parse

    current_reporter().message(f"$ {_command(*words)}")
    called, bound = parse(tuple(map(str, words)))
    return called(*bound.args, **bound.kwargs)


def _command(*words: str | Path) -> str:
    """Write a command as it is typed, with paths as seen from here."""
    here = f"{Path.cwd()}{os.sep}"
    return f"dsocr {' '.join(typed(str(word).replace(here, '')) for word in words)}"
