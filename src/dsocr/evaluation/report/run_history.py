"""All runs of a folder, over time and over their training lines: does the archive's reader get better?"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsocr.config import load_run_config
from dsocr.errors import DataError, DsocrError
from dsocr.evaluation.report.contents import format_ends
from dsocr.evaluation.report.report import require_output_folder
from dsocr.evaluation.scorecard import Scorecard
from dsocr.evaluation.scores import Score
from dsocr.html import percent, plot_svg, plots_png, render, run_colour
from dsocr.io.work import write_file
from dsocr.runs import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_DEPTH = 4
"""Folders below the given one that are looked into."""
_SHOWN_HASH = 8
_LINES_LOGGED = re.compile(r"(\d+) training samples")


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run: when it began, on what it was trained, and its score, None if it was not evaluated.

    `lines` is the number of training lines, `data` the hash of the training split; None where that was not recorded.
    `scored_on` names what it was scored on: dataset, split, number of lines and hash.
    """

    name: str
    path: Path
    begun_at: datetime
    base: str
    dataset: str
    data: str | None
    lines: int | None
    scored_on: str | None = None
    score: Score | None = None

    @classmethod
    def load(cls, path: Path, name: str) -> "PastRun":
        """Read the configuration, provenance and scorecard of a run folder. Raises RunError if they are damaged."""
        run = RunFolder.begun(path)
        config = load_run_config(run.config)
        try:
            made = json.loads(run.provenance.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            made = {}
        made = made if isinstance(made, dict) else {}
        if not (lines := made.get("training_samples")) and run.log.is_file():
            logged = _LINES_LOGGED.findall(run.log.read_text(encoding="utf-8", errors="replace"))
            lines = int(logged[0]) if logged else None
        card = Scorecard.load(run.scorecard) if run.scorecard.is_file() else None
        return cls(
            name,
            path,
            _date(made.get("begun_at"), run.config),
            config.base,
            config.dataset.name,
            (made.get("dataset") or {}).get("train"),
            lines or config.training.max_samples,
            _describe_scored(card, config.dataset.name) if card else None,
            card.scores.final if card else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the run for JSON; rates are fractions."""
        values = {**asdict(self), "path": self.path.as_posix(), "begun_at": self.begun_at.isoformat()}
        return values | {"score": self.score and self.score.to_dict()}


def _describe_scored(card: Scorecard, run: str) -> str:
    """Name what a run was scored on; the same name means the same lines."""
    dataset, fold = card.settings.get("dataset"), card.settings.get("fold")
    parts = [Path(str(dataset)).name if dataset else run, card.split, f"of fold {fold}," if fold else ""]
    digest = (card.dataset.get(card.split) or "")[:_SHOWN_HASH]
    return " ".join(filter(None, [*parts, f"{card.scores.final.lines} lines", digest and f"({digest})"]))


def _date(text: object, file: Path) -> datetime:
    """Return when a run began: as recorded, else when its configuration was written."""
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    except ValueError:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC)


def is_folder_of_runs(folder: Path) -> bool:
    """Whether a folder is no run itself, and has runs in it."""
    is_run = RunFolder(folder).config.is_file()
    return folder.is_dir() and not is_run and next(_run_folders(folder), None) is not None


def _run_folders(folder: Path, depth: int = _MAX_DEPTH) -> Iterator[Path]:
    """Yield the run folders below a folder; those inside a run, such as its forecast's, are parts of it."""
    for path in sorted(folder.iterdir()):
        if not path.is_dir() or path.name.startswith(".") or path.is_symlink():
            continue
        if RunFolder(path).config.is_file():
            yield path
        elif depth:
            yield from _run_folders(path, depth - 1)


def list_runs(folder: Path) -> tuple[list[PastRun], list[str]]:
    """Return all runs of a folder, the oldest first, and a sentence for each thing in it that is left out.

    Raises DataError if there is none.
    """
    runs, skipped = [], []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not RunFolder(path).config.is_file() and next(_run_folders(path), None) is None:
            skipped.append(f"{path.name} is left out: it is not a run, and has none in it.")
    for path in _run_folders(folder):
        name = path.relative_to(folder).as_posix()
        try:
            runs.append(PastRun.load(path, name))
        except DsocrError as error:
            skipped.append(f"{name} is left out: {error.message}")
    if not runs:
        raise DataError("has no runs", code="no-runs", where=folder, hint="give the folder that holds run folders")
    return sorted(runs, key=lambda run: (run.begun_at, run.name)), skipped


def write_history(folder: Path, out: Path) -> tuple[list[PastRun], list[str]]:
    """Write what all runs of a folder scored to a .html or .png file; return the runs and what was left out."""
    if out.suffix.lower() not in (".html", ".png"):
        hint = f"for example {out.with_suffix('.html').name}"
        raise DataError("A history is written as .html or .png", code="curves-suffix", where=out, hint=hint)
    require_output_folder(out)
    runs, skipped = list_runs(folder)
    if out.suffix.lower() == ".png":
        plots_png([history_plot(runs, over_lines=over_lines) for over_lines in (False, True)], out)
    else:
        write_file(out, render_history(runs, skipped, folder.resolve().name))
    return runs, skipped


def render_history(runs: Sequence[PastRun], skipped: Sequence[str], name: str) -> str:
    """Render all runs as a page: two plots, what they show in a sentence for each test set, and a table."""
    plots = [
        plot_svg(history_plot(runs, over_lines=False), "CER over the date of the run", size=(6.0, 3.0)),
        plot_svg(history_plot(runs, over_lines=True), "CER over the number of training lines", size=(6.0, 3.0)),
    ]
    groups = _scored_groups(runs)
    places = {group: place for place, group in enumerate(groups)}
    return render(
        __package__,
        "history.html.jinja",
        name=name,
        runs=runs,
        numbers={run.name: number for number, run in enumerate(runs, 1)},
        places=places,
        sentences=[describe_progress(group) for group in groups.values()],
        plots=plots if groups else [],
        skipped=skipped,
        shown=_SHOWN_HASH,
        bounds=format_ends,
    )


def _scored_groups(runs: Sequence[PastRun]) -> dict[str, list[PastRun]]:
    """Return the evaluated runs by what they were scored on: other CERs cannot be compared."""
    groups: dict[str, list[PastRun]] = {}
    for run in runs:
        if run.scored_on is not None:
            groups.setdefault(run.scored_on, []).append(run)
    return groups


def describe_progress(runs: Sequence[PastRun]) -> str:
    """Compare the first, the latest and the best CER on the same lines, in words."""
    scores = [(run, run.score.cer.rate) for run in runs if run.score]
    (first, before), (last, now) = scores[0], scores[-1]
    title = first.scored_on
    if len(scores) == 1:
        return f"{title}: {percent(before)} CER with {first.name}."
    best, least = min(scores, key=lambda pair: pair[1])
    sentence = f"{title}: {percent(before)} CER with {first.name}, {percent(now)} with {last.name}, the latest"
    sentence += "." if least >= now else f"; the best is {best.name} with {percent(least)}."
    change = f"dsocr compare {first.path.as_posix()} {last.path.as_posix()}"
    return f"{sentence} Whether that is more than chance: {change}"


def history_plot(runs: Sequence[PastRun], *, over_lines: bool) -> Callable[["Axes"], None]:
    """Plot CERs with intervals over the date, or over the number of training lines; one colour for each test set."""
    numbers = {run.name: number for number, run in enumerate(runs, 1)}

    def paint(axes: "Axes") -> None:
        from matplotlib import dates

        library: Any = dates  # its functions have no types
        for place, (title, group) in enumerate(_scored_groups(runs).items()):
            points: list[tuple[float, float, float, float, int]] = []
            for run in group:
                at = run.lines if over_lines else float(library.date2num(run.begun_at))
                if run.score is not None and at is not None:
                    rate = run.score.cer.rate
                    low, high = (run.score.interval.bounds if run.score.interval else None) or (rate, rate)
                    points.append((at, 100 * rate, 100 * (rate - low), 100 * (high - rate), numbers[run.name]))
            if not points:
                continue
            x, rates, below, above, shown = zip(*sorted(points), strict=True)
            style: dict[str, Any] = {"color": run_colour(place), "capsize": 3, "label": title}
            axes.errorbar(x, rates, [below, above], fmt="o" if over_lines else "o-", linewidth=1, markersize=4, **style)
            for place_x, rate, number in zip(x, rates, shown, strict=True):
                label = {"textcoords": "offset points", "color": style["color"]}
                axes.annotate(str(number), (place_x, rate), (5, 4), **label)
        axes.set_ylabel("CER, %")
        axes.set_ylim(bottom=0)
        if over_lines:
            axes.set_xlabel("training lines")
            axes.set_xlim(left=0)
        else:
            axes.set_xlabel("begun (UTC)")
            locator = library.AutoDateLocator()
            axes.xaxis.set_major_locator(locator)
            axes.xaxis.set_major_formatter(library.ConciseDateFormatter(locator))
        if axes.get_legend_handles_labels()[0]:
            axes.legend()

    return paint
