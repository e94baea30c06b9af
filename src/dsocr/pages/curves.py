"""The curves of one or several runs, as one page or one picture.

The page is a file with everything in it: SVG and no script.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from dsocr.errors import DataError
from dsocr.history import History, read_history
from dsocr.pages.frame import render_frame
from dsocr.pages.plotting import Line, Plot, render_picture, render_svg, style_of
from dsocr.runs import write_atomically

_STYLE = "body { max-width: 84rem } .charts { grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)) }"


def write_curves(folders: Sequence[Path], out: Path) -> list[History]:
    """Write the curves of these runs to a .html or .png file, and hand back what was read.

    Raises DataError for another kind of file, before anything is read.
    """
    kind = out.suffix.lower()
    if kind not in (".html", ".png"):
        raise DataError("curves are .html or .png", where=out, hint=f"for example {out.with_suffix('.html').name}")
    if not out.absolute().parent.is_dir():
        raise DataError("there is no such folder", where=out.absolute().parent, hint="make it first")
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [folder.as_posix() for folder in folders]
    histories = [read_history(folder, name) for folder, name in zip(folders, names, strict=True)]
    if kind == ".html":
        write_atomically(out, render_page(histories))
    else:
        render_picture(plots(histories), names).save(out)
    return histories


def render_page(histories: Sequence[History]) -> str:
    """The whole page as HTML."""
    rows = "".join(_table_row(place, history) for place, history in enumerate(histories))
    head = "<tr><th>run</th><th>steps</th><th>last loss</th><th>best CER</th><th>at step</th></tr>"
    table = f'<div class="wide"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'
    return render_frame(
        "Curves", f"<h1>Curves</h1>{table}<h2>Over steps and time</h2>{figures(histories)}", style=_STYLE
    )


def figures(histories: Sequence[History], *, over: str | None = None, only: Sequence[str] = ()) -> str:
    """The plots of some runs as HTML: all, or those over "steps" or "minutes", or those with some titles."""
    names = [history.name for history in histories]
    drawn = "".join(
        f"<figure><figcaption><b>{escape(plot.title)}</b> over {plot.axis}</figcaption>"
        f"{render_svg(plot, names)}</figure>"
        for plot in plots(histories)
        if over in (None, plot.axis) and (not only or plot.title in only)
    )
    return f'<div class="charts">{drawn}</div>'


def _table_row(place: int, history: History) -> str:
    last, best = history.training[-1], history.best
    loss = "" if last["loss"] is None else f"{last['loss']:.4f}"
    cells = [f"{last['step']}", loss, f"{best['cer']:.2%}" if best else "", f"{best['step']}" if best else ""]
    name = f'<td style="color:{style_of(place)}">&#9632; {escape(history.name)}</td>'
    return f"<tr>{name}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def plots(histories: Sequence[History]) -> list[Plot]:
    """Loss, CER, runaway lines and learning rate over steps, then loss and CER over time where it was written down."""
    made = [
        _plot("training loss", "loss", histories, "training"),
        _plot("validation loss", "loss", histories, "validation"),
        _plot("validation CER, %", "cer", histories, "validation", scale=100),
        _guard_plot(histories),
        _plot("lines that run away, %", "runaway_rate", histories, "validation", scale=100),
        _plot("learning rate", "learning_rate", histories, "training"),
        _plot("gradient norm", "gradient_norm", histories, "training"),
        _plot("training loss", "loss", histories, "training", over="elapsed_seconds"),
        _plot("validation CER, %", "cer", histories, "validation", scale=100, over="elapsed_seconds"),
    ]
    return [plot for plot in made if plot.lines]


def _guard_plot(histories: Sequence[History]) -> Plot:
    """The guard set's CER; at step 0 it is the base's."""
    lines = []
    for history in histories:
        rows = [row for row in history.validation if row.get("guard_cer") is not None]
        if rows:
            points = [(0.0, 100 * rows[0]["guard_base_cer"])]
            lines.append(Line(history.name, points + [(row["step"], 100 * row["guard_cer"]) for row in rows]))
    return Plot("guard set's CER, %", "steps", lines)


def _plot(
    title: str, name: str, histories: Sequence[History], kind: str, *, scale: float = 1, over: str = "step"
) -> Plot:
    lines = []
    for history in histories:
        rows = history.training if kind == "training" else history.validation
        unit = 1 / 60 if over == "elapsed_seconds" else 1
        points = [
            (row[over] * unit, row[name] * scale)
            for row in rows
            if row.get(over) is not None and row.get(name) is not None
        ]
        best = history.best if name == "cer" else None
        marked = (best[over] * unit, best["cer"] * scale) if best and best.get(over) is not None else None
        if points:
            lines.append(Line(history.name, points, marked))
    return Plot(title, "steps" if over == "step" else "minutes", lines)
