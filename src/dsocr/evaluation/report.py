"""The report of an evaluated run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsocr.console import current_reporter, progress_bar
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.errors import DataError, DsocrError, RunError, typed
from dsocr.evaluation.calibration import CalibrationReport
from dsocr.evaluation.compare import Difference, ReadLine, System, compare, describe_dominant_line, read_lines
from dsocr.evaluation.metrics import of_hundred
from dsocr.evaluation.result_pages import (
    ChangeRow,
    Chapter,
    Images,
    Progress,
    annotate,
    chapters_of,
    error_rows,
    flat,
    line_context,
    lines_by_writers,
    rate_change,
    reliability_plot,
    score_changes,
    sentence,
)
from dsocr.evaluation.scorecard import (
    PROFILE_LABELS,
    TEXT_LABELS,
    CharacterErrors,
    LineGroup,
    LineGroups,
    Scorecard,
    name_writers,
    open_scored_dataset,
)
from dsocr.evaluation.scores import MODEL_LABELS, LineScore, load_lines
from dsocr.html import Plot, counted, percent, printable, render, run_colour
from dsocr.inference.review import CheckedShare, describe_gain
from dsocr.io.processes import ProgressCallback
from dsocr.io.work import explain_disk_errors, require_output_folder, write_file
from dsocr.options import Output, StrPath
from dsocr.runs import History, RunFolder, UnlabelledReport, read_history, read_provenance
from dsocr.text import letter_script

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SPOKEN = {"base": "the base", "adapter": "the trained model"}
_USABLE = 0.1
"""Above this CER, correcting is hardly faster than typing."""
_USES = (
    (0.02, "good enough to quote"),
    (0.05, "good for reading; check what you quote"),
    (0.15, "good for searching, not for quoting"),
    (math.inf, "a draft to correct, and a search misses much"),
)
"""What texts are good for up to a CER; the ranges are those of transkribus.org/character-error-rate-cer-explained."""
_LEAST_CURVE = 10
"""With at least so many lines, the benefit of checking a tenth is described."""
_KINDS = {
    "writer": ("Writers", 40),
    "length": ("Length in characters", 10),
    "script": ("Scripts", 10),
    "page": ("Pages", 0),
    "source": ("Sources", 0),
}
"""The kinds of groups, each with how many of its groups are not folded away."""
_ROWS = 12
"""Rows of a table of characters."""


@dataclass(frozen=True, slots=True)
class ReportContents:
    """Everything a report shows of an evaluated run.

    `readings` are the scored lines by model, `images` those of the shown lines by id. `history` is None without
    recorded metrics, `provenance` empty without a record, `difference` (from the base) if only one model read.
    `warnings` are sentences such as why images are missing.
    """

    run: RunFolder
    card: Scorecard
    readings: Mapping[str, Sequence[LineScore]]
    lines: Sequence[ReadLine]
    chapters: Sequence[Chapter]
    images: Images
    warnings: Sequence[str]
    history: History | None
    provenance: Mapping[str, Any]
    confidence: CalibrationReport | None
    difference: Difference | None


def gather_contents(run: RunFolder, dataset: Path | Dataset | None = None) -> ReportContents:
    """Read the contents of a report; images come from the scored dataset, or from the one that is given.

    Raises RunError for a run without an evaluation. A missing or changed dataset costs images only.
    """
    card, readings = Scorecard.load(run.scorecard), load_lines(run.lines)
    scored = [model for model, score in (("base", card.base), ("adapter", card.adapter)) if score is not None]
    if list(readings) != scored or len({len(lines) for lines in readings.values()}) > 1:
        counts = " and ".join(f"{len(lines)} of {model}" for model, lines in readings.items())
        message = f"The lines are {counts}, but the scorecard is of {' and '.join(scored)}"
        raise RunError(message, code="evaluation-mixed", where=run.lines, hint="run `dsocr evaluate` again")
    lines = read_lines(readings.values())
    chapters = chapters_of(lines, [_SPOKEN[model] for model in readings])
    shown = {line.last.id: line.last.reference for chapter in chapters for line in chapter.lines}
    images, warnings = _find_images(run, dataset, card, shown)
    confidence = CalibrationReport.load(run.confidence)
    if confidence is None and run.confidence.is_file():
        warnings.append(f"{run.confidence.name} cannot be read: run `dsocr evaluate RUN` again.")
    systems = [System(_SPOKEN[model], read) for model, read in readings.items()]
    return ReportContents(
        run,
        card,
        readings,
        lines,
        chapters,
        images,
        warnings,
        read_history(run.path) if run.metrics.is_file() else None,
        read_provenance(run),
        confidence,
        compare(systems).differences[-1] if len(systems) > 1 else None,
    )


def _find_images(
    run: RunFolder, folder: Path | Dataset | None, card: Scorecard, references: Mapping[str, str]
) -> tuple[Images, list[str]]:
    """Find the images of the lines with these references, by id, and return warnings too."""
    try:
        dataset = folder if isinstance(folder, Dataset) else open_scored_dataset(run, card, folder)
        # Of folds, the lines of all splits were scored.
        samples = [sample for split in Split for sample in dataset.samples(split, references.keys())]
    except (DsocrError, ValueError) as error:
        return {}, [f"There are no images because the dataset cannot be read: {error}."]
    images = {sample.id: sample.image for sample in samples if sample.text == references[sample.id]}
    part = dataset.card.splits.get(Split(card.split))
    changed = part is not None and card.dataset.get(card.split) not in (None, part.sha256)
    warnings = ["The dataset has changed since these lines were scored."] if changed else []
    if missing := len(references) - len(images):
        warnings.append(f"{missing:,} of {len(references):,} lines are no longer in the dataset as they were scored.")
    return images, warnings


def facts(contents: ReportContents) -> Iterator[tuple[str, str]]:
    """Name the scored run and dataset, dates, and the hashes that identify them."""
    card, made = contents.card, contents.provenance
    source = card.settings if "base" in card.settings else made
    revision = source.get("base_revision")
    yield "run", contents.run.path.resolve().name
    yield "base", f"{source.get('base', 'unknown')}{f' at {revision}' if revision else ''}"
    if family := card.settings.get("family"):
        yield "family", str(family)
    for run in made.get("started_from", []):
        lines = run.get("dataset_source") or "unknown lines"
        yield "started from", f"{run['run']}, trained on {lines} from {run['base']}"
    if (unlabelled := UnlabelledReport.of(made)) is not None:
        yield "unlabelled scans", unlabelled.describe()
    if digest := card.settings.get("adapter_sha256"):
        yield "weights", f"sha256 {digest}"
    yield "scored", f"{card.created_at} with dsocr {card.dsocr_version}"
    if "begun_at" in made:
        device = f" on {made['device']}" if made.get("device") else ""
        yield "trained", f"{made['begun_at']} with dsocr {made.get('dsocr_version', 'of unknown version')}{device}"
    for split, digest in card.dataset.items():
        yield f"{split} split", f"sha256 {digest}"


def commands(contents: ReportContents) -> list[str]:
    """Write the commands that train, score and report again, quoted where a path has spaces."""
    run, card = contents.run, contents.card
    if "folds" in card.settings:
        base = "" if card.base else " --no-base"
        return [f"dsocr evaluate {typed(run.config.as_posix())} --folds{base}"]
    limit, dataset = card.settings.get("limit"), card.settings.get("dataset")
    options = f" --dataset {typed(dataset)}" if dataset else ""
    options += f" --split {card.split}" + (f" --limit {limit}" if limit else "") + ("" if card.base else " --no-base")
    if not card.adapter:
        base = typed(str(card.settings.get("base")))
        return [f"dsocr evaluate {base}{options} -o {typed(run.path.as_posix())}"]
    return [
        f"dsocr train {typed(run.config.as_posix())} --set output=runs/again",
        f"dsocr evaluate runs/again{options}",
    ]


def describe_in_words(
    card: Scorecard, difference: Difference | None, budget: Sequence[CheckedShare] = ()
) -> Iterator[str]:
    """Describe the accuracy of the trained model (else the base), its comparison with the base and the next step.

    `budget` is the measured benefit of checking the first lines of a review list.
    """
    yield from _describe_scores(card, difference)
    if difference is not None:
        yield sentence(difference.summary)
        yield from map(sentence, difference.harmed)
    yield from _describe_writers(card)
    if seen := card.by_text.get("seen"):
        unseen = of_hundred(card.by_text["new"].final.cer.rate, "letter")
        known = f"{seen.final.lines:,} of {card.scores.final.lines:,} lines"
        yield f"{known} have a text that training has seen; on the others {unseen} are wrong."
    if len(budget) > _LEAST_CURVE and budget[0].rest:
        yield sentence(describe_gain(budget))
    if difference is not None and (difference.change.difference or 0) > 0:
        yield "Next: read with the base, or train again with a lower learning rate or on more lines."
    elif difference is not None and (dominant := describe_dominant_line(difference.second.lines, "the trained model")):
        yield f"Next: {dominant}."
    elif card.cer > _USABLE:
        yield "Next: transcribe more lines; dsocr forecast estimates their benefit."
    else:
        yield "Next: dsocr transcribe reads your pages; check the least certain lines first."


def _describe_scores(card: Scorecard, difference: Difference | None) -> Iterator[str]:
    score = card.scores.final
    if not score.cer.length:
        return
    if not score.cer.errors:
        yield f"All {counted(score.lines, 'line')} are read without an error."
        return
    rates = [(read.cer.rate, read.wer.rate) for read in (score, card.base) if read]
    texts = [f"{of_hundred(cer, 'letter')} and {of_hundred(wer, 'word')}" for cer, wer in rates]
    harm = "Training did harm: " if difference is not None and difference.verdict == "worse" else ""
    use = next(use for most, use in _USES if score.cer.rate <= most)
    before = f" Before training {texts[1]} were." if card.base and card.adapter else ""
    yield f"{harm}{texts[0]} are wrong: {use}.{before}"
    counts = [(score.failures["empty"], "not read at all"), (score.runaway, "run away")]
    also = "".join(f", {count:,} {'is' if count == 1 else 'are'} {label}" for count, label in counts if count)
    yield f"{score.exact:,} of {score.lines:,} {'line is' if score.exact == 1 else 'lines are'} perfect{also}."


def _describe_writers(card: Scorecard) -> Iterator[str]:
    """Describe the errors to expect with a writer whom training never saw."""
    new = card.by_writer_status.get("new")
    if new is None:
        yield "No line is by a writer who is surely new, so this does not say how a new writer would be read."
        return
    score = new.final
    tested = counted(new.writers or 0, "new writer") + f", {counted(score.lines, 'line')}"
    text = f"On new writers {of_hundred(score.cer.rate, 'letter')} are wrong ({tested})"
    bounds = score.interval.bounds if score.interval else None
    if bounds is None or bounds[1] > 1:
        yield f"{text}: too few to say how the next one will be read."
        return
    best, worst = (of_hundred(end, "letter") for end in bounds)
    yield f"{text}: on others like them, between {best} and {worst}."


def render_report(contents: ReportContents, progress: Progress = None) -> str:
    """Render the report of a run; `progress` gets the number of illustrated lines done and of all."""
    card, confidence, difference = contents.card, contents.confidence, contents.difference
    known = [
        LineGroup(name_writers(status, scores.writers), scores) for status, scores in card.by_writer_status.items()
    ]
    texts = [LineGroup(TEXT_LABELS[kind], scores) for kind, scores in card.by_text.items()]
    groups = [("Known and new writers", "writer", known, 10), ("Known and new texts", "text", texts, 10)]
    for kind, (title, most) in _KINDS.items():
        groups.append((title, kind, _groups(card.groups.get(kind), kind), most))
    listed = {"base", "base_revision", "family", "adapter_sha256"}
    settings = {name: value for name, value in card.settings.items() if name not in listed}
    made = {name: contents.provenance.get(name) for name in ("packages", "machine", "python")}
    scored = f"{lines_by_writers([line.last for line in contents.lines])}, {card.split} split"
    return render(
        __package__,
        "report.html.jinja",
        style="style.css",
        script="report.js",
        title=f"How well {contents.run.path.resolve().name} reads",
        subtitle=f"Character error rate (CER) on {scored}",
        contents=contents,
        answers=describe_in_words(card, difference, confidence.budget if confidence else ()),
        sentences=[*card.uncertainty, *map(sentence, difference.details if difference else ())],
        scores=card.scores.by_model,
        changes=score_changes(card.scores.by_model),
        other_counts=_other_counts(card, [*contents.readings]),
        groups=[group for group in groups if len(group[2]) > 1],
        characters=character_tables({MODEL_LABELS[name]: card.characters[name] for name in contents.readings}),
        reliability=error_rows(confidence) if confidence else [],
        diagrams=[reliability_plot(f"{kind}s", kept) for kind, kept in confidence.kinds.items()] if confidence else [],
        curves=curve_plots(contents.history) if contents.history else [],
        facts=list(facts(contents)),
        settings=[*flat(settings), *flat(made)],
        commands=commands(contents),
        **line_context(
            contents.chapters,
            contents.lines,
            [MODEL_LABELS[model] for model in contents.readings],
            contents.images,
            progress,
        ),
    )


def _other_counts(card: Scorecard, names: Sequence[str]) -> list[ChangeRow]:
    """List means and quantiles over lines, writers and pages, and the CER under each profile that has text."""
    averages = [card.averages[name] for name in names]
    means = {
        "mean over lines": [average.macro_over_lines.cer for average in averages],
        "mean over writers": [average.macro_over_writers.cer for average in averages],
        "mean over pages": [average.macro_over_pages.cer for average in averages],
        "median line": [average.median_line_cer for average in averages],
        "90th percentile of lines": [average.p90_line_cer for average in averages],
    }
    rows = [rate_change(name, values) for name, values in means.items() if any(values)]
    for profile, title in PROFILE_LABELS.items():
        rates = [card.profiles[profile][name].cer for name in names] if profile in card.profiles else []
        if any(rate.length for rate in rates):
            rows.append(rate_change(title, [rate.rate for rate in rates]))
    return rows


def _groups(groups: LineGroups | None, kind: str) -> list[LineGroup]:
    """List the groups of a kind, then all others together; none where every line is a group by itself."""
    if groups is None or all(group.scores.final.lines == 1 for group in groups.top):
        return []
    named = [LineGroup(group.name or f"no {kind} known", group.scores) for group in groups.top]
    if groups.others_scores is not None:
        named.append(LineGroup(f"{counted(groups.others, f'more {kind}')} together", groups.others_scores))
    return named


def character_tables(characters: Mapping[str, CharacterErrors]) -> dict[str, Any] | None:
    """Tabulate the commonest confused pairs, and the characters that are misread, left out and added."""
    *_, (name, last) = characters.items()
    if not (last.substitutions or last.deletions or last.insertions):
        return None
    pairs = [row.substituted for row in characters.values()]
    counts = [{(edit.reference, edit.prediction): edit.count for edit in row.top} for row in pairs]
    # A card names the commonest pairs only; of another one, it is known that it is not more frequent.
    rare = [f"\u2264 {row.top[-1].count:,}" if row.others else "0" for row in pairs]
    most = {pair: max(row.get(pair, 0) for row in counts) for row in counts for pair in row}

    def row(pair: tuple[str, str]) -> tuple[str, ...]:
        cells = (f"{row[pair]:,}" if pair in row else other for row, other in zip(counts, rare, strict=True))
        scripts = [letter_script(sign) for sign in pair]  # named where they differ: such letters may look the same
        differ = None not in scripts and scripts[0] != scripts[1]
        names = (f"{letter(sign)} ({script})" for sign, script in zip(pair, scripts, strict=True))
        return " read as ".join(names if differ else map(letter, pair)), *cells

    return {
        "name": name,
        "last": last,
        "pairs": [row(pair) for pair in sorted(most, key=lambda pair: (-most[pair], pair))[:_ROWS]],
        "missed": [
            (letter(row.character), f"{row.errors:,} of {row.count:,}", percent(row.errors / row.count, 0))
            for row in last.by_character[:_ROWS]
        ],
        "tallies": {
            name: [(letter(edit.reference or edit.prediction), f"{edit.count:,}") for edit in tally.top[:_ROWS]]
            for name, tally in (("left out", last.deleted), ("added", last.inserted))
            if tally.top
        },
    }


def letter(sign: str) -> str:
    """Show one character; a space has a sign of its own."""
    return "\u2423" if sign == " " else str(printable(sign)).replace("\n", "\ufffd")


def curve_plots(history: History) -> list[Plot]:
    """Plot losses and validation CER of a run over its steps; the kept step has a ring."""
    best = history.best
    kept = (best["step"], 100 * best["cer"]) if best else None
    kinds = [
        ("training loss", history.training, "loss", 1, None),
        ("validation loss", history.validation, "loss", 1, None),
        ("validation CER, %", history.validation, "cer", 100, kept),
    ]
    plots = []
    for title, rows, name, scale, ring in kinds:
        if points := [(row["step"], row[name] * scale) for row in rows if row.get(name) is not None]:
            plots.append(_curve_plot(title, points, ring))
    return plots


def _curve_plot(title: str, points: Sequence[tuple[float, float]], best: tuple[float, float] | None) -> Plot:
    def paint(axes: "Axes") -> None:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=run_colour(0), marker="." if len(x) == 1 else None)
        if best is not None:
            axes.plot(*best, marker="o", markersize=7, color=run_colour(0), fillstyle="none")
            annotate(axes, f"best {best[1]:.4g}", best, (0, 7), ha="center")
        axes.set(xlabel="steps", ylabel=title)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=min(0.0, *axes.get_ylim()))

    return Plot(f"{title} over steps", paint)


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """The page that `report` wrote, and what is doubtful about the scores."""

    path: Path
    warnings: Sequence[str]


def report(
    run: StrPath,
    *,
    dataset: StrPath | Dataset | None = None,
    output: Output | None = None,
    progress: ProgressCallback | None = None,
) -> WrittenReport:
    """Write the report of an evaluated run.

    Args:
        run: An evaluated run.
        dataset: Dataset folder that was scored, if it has moved.
        output: File to write; report.html in the run if not given.
        progress: Called with the lines drawn and in total, instead of a progress bar.

    Raises:
        DataError: The report cannot be written there.
        RunError: The run is missing, or was not evaluated.
    """
    folder = RunFolder.begun(Path(run))
    path = Path(output or folder.report)
    if path.suffix.lower() not in (".html", ".htm") or path.is_dir():
        hint = f"for example {path.with_suffix('.html')}"
        raise DataError("a report is an .html file", code="report-suffix", where=path, hint=hint)
    require_output_folder(path)
    contents = gather_contents(folder, Path(dataset) if isinstance(dataset, str | PathLike) else dataset)
    with progress_bar(progress, "drawing", "lines") as show:
        page = render_report(contents, show)
    with explain_disk_errors(path.parent, where=path):
        write_file(path, page)
    for warning in contents.warnings:
        current_reporter().complain(f"warning: {warning}")
    return WrittenReport(path, contents.warnings)


def drop_report(run: RunFolder) -> str | None:
    """Remove the page of an earlier evaluation, and return a message for the user if there was one."""
    try:
        run.report.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{run.report} is from an earlier evaluation and cannot be removed: {error.strerror}"
    return f"removed {run.report}, the page of an earlier evaluation"
