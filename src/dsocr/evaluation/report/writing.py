"""Writing the report of a run: the page in its folder, or elsewhere, or as Markdown."""

from collections.abc import Callable
from pathlib import Path

from dsocr.errors import DataError, typed
from dsocr.evaluation.report.markdown import render_markdown
from dsocr.evaluation.report.material import Material, gather
from dsocr.evaluation.report.page import render_page
from dsocr.runs import RunFolder, write_atomically


def write_report(
    run: RunFolder,
    *,
    dataset: Path | None = None,
    out: Path | None = None,
    markdown: bool = False,
    tell: Callable[[int, int], None] | None = None,
) -> tuple[Path, Material]:
    """Write the report of an evaluated run and say where it is: `out`, else report.html or report.md in its folder.

    `dataset` is the folder that was scored, where it is not the run's own. `tell` hears how many lines are drawn.
    """
    path = out or (run.report.with_suffix(".md") if markdown else run.report)
    suffixes = (".md", ".markdown") if markdown else (".html", ".htm")
    if path.suffix.lower() not in suffixes or path.is_dir():
        what = "Markdown is a .md file" if markdown else "a report is a .html file, or with --markdown a .md file"
        raise DataError(what, where=path, hint=f"for example {path.with_suffix(suffixes[0])}")
    if not path.absolute().parent.is_dir():
        raise DataError("there is no such folder to write the report to", where=path.absolute().parent)
    material = gather(run, dataset)
    text = render_markdown(material) if markdown else render_page(material, tell)
    try:
        write_atomically(path, text)
    except OSError as error:
        raise DataError(f"the report cannot be written: {error.strerror}", where=path) from error
    return path, material


def drop_reports(run: RunFolder, *, drawn: bool) -> list[str]:
    """Let no report of an earlier evaluation contradict the scorecard that was just written; what was done, to tell.

    The page is removed, unless it is `drawn` anew; a report in Markdown, which may stand in somebody's repository, is
    named.
    """
    told = []
    if not drawn and run.report.is_file():
        try:
            run.report.unlink()
            told.append(f"removed {run.report}, the page of an earlier evaluation")
        except OSError as error:
            told.append(f"{run.report} is the page of an earlier evaluation and cannot be removed: {error.strerror}")
    if (markdown := run.report.with_suffix(".md")).is_file():
        told.append(
            f"{markdown} is of an earlier evaluation; `dsocr report {typed(run.path)} --markdown` writes it anew"
        )
    return told
