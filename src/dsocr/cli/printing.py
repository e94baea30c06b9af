"""Print the results of the public functions."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import dsocr
from dsocr.console import Printer, current_reporter, format_duration
from dsocr.errors import first_few, group_messages, option, typed
from dsocr.text import percentage

if TYPE_CHECKING:
    from dsocr.data.convert import Conversion
    from dsocr.data.dataset import Card

_MOST_FINDINGS = 3
"""Findings of a check that the terminal shows; the page has all."""


def list_formats() -> None:
    """List the formats that prepare reads, each with a command."""
    printer = current_reporter()
    for format_ in dsocr.source_formats():
        printer.result(f"{format_.name:<14}{format_.title}\n{'':<14}dsocr prepare {format_.example}")
    printer.result(
        "A zip archive of any of these works too, and so does hf:owner/name, a dataset of the Hugging Face Hub.\n"
        "IIIF manifests, IIIF collections and METS are files or addresses: dsocr prepare https://... -o data/mine\n"
        "The format is detected; --format NAME decides where a folder holds several."
    )


def prepared(printer: Printer, dataset: "dsocr.Dataset") -> None:
    """Print a prepared dataset's splits, skipped items, and the next command."""
    card, report = dataset.card, dataset.report
    printer.message(f"{'split':<12}{'samples':>9}{'writers':>9}{'pages':>8}{'characters':>12}")
    for split, part in card.splits.items():
        writers, pages = (number or "unknown" for number in (part.writers, part.pages))
        printer.message(f"{split:<12}{part.samples:>9}{writers:>9}{pages:>8}{part.characters:>12}")
    folds = f" into {card.folds} folds, the table shows fold 1" if card.folds else ""
    printer.message(f"read as {card.source_format}, {card.unit} by {card.unit}; split by {card.split_by}{folds}")
    for rule, changes in card.text_changes.items():
        printer.message(f"text policy, texts changed by {rule}: {changes.count}, e.g. {changes.examples[0]}")
    for kind, names in report.names.items():
        shown = first_few([f"{name} ({count})" for name, count in names.most_common()], 5)
        printer.message(f"{len(names)} {kind}s, with their images: {shown}")
    _print_card(printer, card)
    printer.result(f"dataset: {dataset.folder}")
    printer.message(f"next:    dsocr check {typed(dataset.folder)}")


def _print_card(printer: Printer, card: "Card | Conversion") -> None:
    """Print skipped items of a source, names that a pattern did not match, and notes."""
    for reason, part in card.skipped.items():
        printer.message("\n  ".join([f"skipped, {reason}: {part.count}", *part.examples[:3]]))
    for kind, part in card.unmatched.items():
        printer.message(f"no {kind} found in the name of {part.count}, e.g. {part.examples[0]}")
    for note in card.notes:
        printer.message(f"note: {note}")


def checked(printer: Printer, report: "dsocr.CheckReport") -> None:
    """Print fixes, the verdict, and the first findings that need a look."""
    from dsocr.html import counted  # which loads Pillow

    if report.fixes is not None:
        fixes = report.fixes
        for (code, split), count in sorted(fixes.counts().items()):
            printer.message(f"fixed in {split}: {count} [{code}]")
        for split, number in fixes.lost.items():
            printer.message(f"missing in {split}: {number} [metadata-short]")
        if fixes.duplicates_left:
            printer.message(f"duplicates kept in validation and test: {fixes.duplicates_left} samples")
        if fixes.dataset is None:
            printer.message("nothing to fix; no dataset was written")
        else:
            printer.message(f"dataset: {fixes.dataset} (all changes are listed in {fixes.dataset / 'fixes.jsonl'})")
    printer.result(f"{report.dataset.folder}: {report.findings.summary()}")
    urgent = [finding for severity in ("error", "warning") for finding in report.findings.of(severity)]
    for finding in urgent[:_MOST_FINDINGS]:
        printer.result(str(finding))
        printer.message(f"    fix: {finding.remedy}")
    if len(urgent) > _MOST_FINDINGS:
        printer.message(f"and {counted(len(urgent) - _MOST_FINDINGS, 'other kind')} of problems")
    if notes := [f"{finding.code} ({finding.count:,})" for finding in report.findings.of("note")]:
        printer.message(f"notes on the dataset: {', '.join(notes)}")
    if not report.written:
        hint = f"dsocr check {typed(report.dataset.folder)} {option('html', 'check.html')}"
        printer.message(f"every place, with its image, and how far apart the splits are: {hint}")
    for label, path in report.written.items():
        printer.result(f"{label}: {path}")
    if not report.findings.of("error"):
        printer.message(f"next: dsocr train {typed(report.dataset.folder)}")


def audited(printer: Printer, audit: "dsocr.Audit") -> None:
    """Print the lines that are most likely wrong, and the files."""
    from dsocr.evaluation.audit import ALL, PAGE, TABLE

    for line in audit.lines[:10]:
        printer.message(f"{line.rank:>3}. {line.sample.place} ({line.sample.id}): {line.why}")
        printer.message(f"     given  {line.sample.text}")
        printer.message(f"     read   {line.read}")
    printer.result(str(audit))
    printer.result(f"page:  {audit.folder / PAGE}")
    printer.message(f"table: {audit.folder / TABLE}, all lines: {audit.folder / ALL}")


def recipe_written(printer: Printer, file: Path) -> None:
    """Print the written recipe and the next command."""
    printer.result(f"written: {file}")
    printer.message(f"next: edit it, and try `dsocr train {file} --dry-run --set dataset=FOLDER --set output=RUN`")


def previewed(printer: Printer, config: "dsocr.RunConfig") -> None:
    """Print advice on the augmentation."""
    if config.training.augmentation in (0, "none"):
        printer.message("next: nothing is augmented; --set training.augmentation=light shows what that would do")
    else:
        printer.message("next: look at it; whatever a pen or a scanner could not produce is too much")


def converted(printer: Printer, report: "dsocr.ConvertReport") -> None:
    """Print the written files, and content that the format cannot hold."""
    card = report.conversion
    printer.message(f"read as {card.source_format}, written as {card.target}: {card.images} images, {card.lines} lines")
    for split, lines in card.splits.items():
        printer.message(f"  {split or 'no split':<12}{lines:>9} lines")
    for sentence in card.left_behind:
        printer.message(f"not written: {sentence}")
    _print_card(printer, card)
    printer.result(f"written: {report.output}")
    printer.message(f"next:    {report.next}")


def trained(printer: Printer, run: "dsocr.Run") -> None:
    """Print the result of a training run, its folder and the next command."""
    result = run.result
    assert result is not None, "`train` sets it"
    if result.resumed_from:
        printer.message(f"resumed from step {result.resumed_from}")
    if result.excluded:
        printer.message(f"excluded as longer than max_text_tokens: {result.excluded} samples")
    rates = {"best validation CER": result.best_cer, "best line F1 on the validation pages": result.best_f1}
    best = [
        f", {name} {percentage(rate)} at step {result.best_step}" for name, rate in rates.items() if rate is not None
    ]
    printer.message(f"{result.steps} steps in {format_duration(result.seconds)}{''.join(best)}")
    if result.best_step == 0:
        printer.complain(
            "warning: no step beat the starting weights, so they were kept: transcribe more lines, or lower "
            "training.learning_rate"
        )
    if result.calibrated_on:
        printer.message(f"confidences were calibrated on {result.calibrated_on} lines of the validation split")
    printer.result(f"{result.run.adapter.name}: {result.run.adapter}")
    printer.message(f"curves:  tensorboard --logdir {typed(result.run.tensorboard)}")
    layout = "--layout " if result.run.is_detector else ""
    printer.message(f"next:    dsocr evaluate {layout}{typed(run.path)}")


def planned(printer: Printer, result: "dsocr.DryRun") -> None:
    """Print the checks and the plan of a run."""
    printer.result(result.render())
    if (plan := result.plan) is not None:
        rows = [[name, *map(str, spread.values())] for name, spread in plan.tokens.items()]
        printer.table(["tokens", "min", "median", "95 %", "max"], rows)
        counts = f"{plan.steps} steps, {plan.micro_batches} micro-batches over {plan.samples} samples"
        printer.result(f"{counts}, {plan.epochs:.1f} epochs, {plan.validations} validations")
        printer.result(f"{format_duration(plan.seconds)} on {plan.measurement.device} besides the validations")
    if result.errors:
        printer.result(f"would not train: {', '.join(check.name for check in result.errors)}")
    else:
        printer.message("next: the same command without --dry-run")


def forecasted(printer: Printer, result: "dsocr.Forecast") -> None:
    """Print the learning curve and the forecast."""
    rows = [[f"{point.samples}", f"{point.steps}", f"{100 * point.cer:.2f} %"] for point in result.points]
    printer.table(["lines", "steps", "validation CER"], rows)
    printer.result(f"\n{result}")
    printer.message("New lines are assumed to resemble those there are: the same writers, or others like them.")


def evaluated(printer: Printer, card: "dsocr.Scorecard") -> None:
    """Print the scores and their files."""
    from dsocr.runs import RunFolder

    printer.result(str(card))
    assert card.folder is not None, "`evaluate` sets it"
    folder = RunFolder(card.folder)
    files = {"scorecard": folder.scorecard, "lines": folder.lines, "confidence": folder.confidence}
    for label, path in {**files, "report": folder.report}.items():
        if path.is_file():
            printer.message(f"{label + ':':<12}{path}")


def evaluated_layout(printer: Printer, scores: "dsocr.LayoutScores") -> None:
    """Print how many lines a detector finds, by document, beside the shipped one."""
    header = ["document", "lines", "found", "recall", "precision", "F1"]
    rows = []
    for name, (counts, base) in [*scores.documents.items(), ("all", (scores.counts, scores.base))]:
        rates = [counts.recall, counts.precision, counts.f1, *([base.f1] if base else [])]
        rows.append([name, f"{counts.drawn}", f"{counts.detected}", *(percentage(rate, 1) for rate in rates)])
    printer.table([*header, *(["F1 of the shipped detector"] if scores.base else [])], rows)
    if scores.path is not None:
        printer.message(f"scores:  {scores.path}")
        printer.message(f"next:    dsocr transcribe RUN SCANS -o texts.jsonl --segmenter {typed(scores.detector)}")


def compared(printer: Printer, comparison: "dsocr.Comparison") -> None:
    """Print the comparison and where it is."""
    from dsocr.evaluation.compare import render_comparison

    printer.result(render_comparison(comparison))
    if comparison.written is not None:
        printer.message(f"written: {comparison.written}")


def read(printer: Printer, report: "dsocr.TranscribeReport") -> None:
    """Print the lines, a blank line between pages, then how sure the reader is and how to correct them."""
    for number, (_, rows) in enumerate(groupby(report.texts, lambda row: row.get("page"))):
        if number:
            printer.result("")
        for row in rows:
            if row["text"]:
                printer.result(row["text"])
    for failure in report.failed:
        printer.complain(f"cannot read {failure}")
    wrong = "it is unknown how many letters are wrong: too few lines, or lines unlike the calibration"
    if report.unfamiliar:
        wrong = "many letters are wrong: this hand or script is unlike anything that this reader knows"
    elif report.estimated_cer is not None:
        count = max(1, round(100 * report.estimated_cer.cer))
        wrong = f"about {count} of 100 letters {'are' if count > 1 else 'is'} wrong"
    if report.upside_down:
        wrong = f"turn {first_few(report.upside_down)} by 180 degrees and read again; {wrong}"
    printer.message(f"{wrong}; correct them with `{report.next}`")


def transcribed(printer: Printer, report: "dsocr.TranscribeReport") -> None:
    """Print counts, failures, and the next step."""
    from dsocr.html import counted

    for verb, messages in (("read", report.failed), ("write", report.unwritten)):
        for failure in group_messages(message.partition(": ")[::2] for message in messages):
            printer.complain(f"cannot {verb} {failure}")
    printer.message(
        f"{counted(report.images, 'image')} transcribed, with {counted(report.lines, 'line')}; "
        f"{len(report.failed)} could not be read; "
        f"{report.empty} empty, {report.truncated} truncated, {report.looping} looping"
    )
    scripts = ", ".join(f"{script} {count}" for script, count in sorted(report.scripts.items()))
    facts = {
        f"another file describes the scan of {first_few(report.omitted)}, so they were omitted": report.omitted,
        f"the pages are in the order of their names: {report.order}": report.order,
        f"{counted(len(report.unwritten), 'file')} could not be written": report.unwritten,
        f"{counted(report.resumed, 'image')} had been transcribed before the interruption": report.resumed,
        f"{report.kept} lines kept the text they had ({option('replace')} transcribes them again)": report.kept,
        f"lines by the script decided for their page ({option('script')} sets it): {scripts}": scripts,
        "lines whose script is unsure or not the reader's have the flag script": "unsure" in scripts
        or "not" in scripts,
        f"{report.outside} lines are in regions of other types and keep their text": report.outside,
        f"{report.unmatched} regions came back with another number of lines than they have": report.unmatched,
        f"lines most worth your time, in order: {report.review}": report.review,
    }
    for sentence, applies in facts.items():
        if applies:
            printer.message(sentence)
    if report.estimated_cer is not None:
        estimate = report.estimated_cer
        cer, check, rest = (percentage(value, 1) for value in (estimate.cer, estimate.check, estimate.rest))
        new = "; confidences were fitted on few hands: other hands may have more errors" if report.few_hands else ""
        printer.message(f"estimated CER: {cer}, {rest} after checking the first {check} of that list{new}")
        printer.message(f"expected: {estimate.gain}")
    if report.upside_down:
        printer.complain(f"pages upside down: {first_few(report.upside_down)}; turn and read again")
    if report.unfamiliar and report.mean_confidence is not None:
        printer.complain(
            "This script or hand is unlike anything that this reader knows (mean confidence "
            f"{percentage(report.mean_confidence, 0)}): expect many errors; confidences are not calibrated for these "
            "pages. Transcribe 60 lines (`--review FILE --first 60` lists the most doubtful) and train on them."
        )
    elif report.unlike_calibration:
        printer.message("These pages look unlike the lines that confidences were calibrated on; no CER is estimated.")
    if str(report.out) != "-":
        printer.result(f"texts: {report.out}")
    if report.may_learn:
        scans = " ".join(f"--unlabelled {typed(source)}" for source in report.inputs)
        printer.message(f"next:  dsocr train {scans} --set base={typed(report.base)} --set output=runs/mine")
        printer.message("       (self-training on its most confident readings often makes it read better)")


def aligned(printer: Printer, report: "dsocr.AlignReport") -> None:
    """Print the numbers of aligned lines, omitted pages, and the next step."""
    from dsocr.training.align import DATASET, LINES, PAGES

    for omitted in [*report.unread, *report.missing]:
        printer.complain(f"omitted: {omitted}")
    pages = f"{report.pages} of {report.pages + len(report.missing) + len(report.unread)} pages"
    printer.message(f"lines:   {report.lines} on {pages}")
    printer.message(f"sure:    {report.sure}; in doubt {report.doubt}, without a text {report.without}")
    if report.reading_cer is not None:
        printer.message(f"read:    CER {percentage(report.reading_cer, 1)}, in lines whose text is likely right")
    if report.is_hardly_read:
        learn = "" if report.rounds else "; --rounds 3 learns from the sure ones first"
        printer.message(f"note:    scores are pessimistic for handwriting that the model barely knows{learn}")
    if report.differences:
        printer.message(f"differ:  {report.differences} lines contradict their text; {LINES} lists them")
    printer.result(f"dataset: {report.out / DATASET}")
    printer.message(f"look:    {report.out / LINES}, the lines in doubt first")
    printer.message(f"next:    dsocr workbench {(report.out / PAGES).as_posix()}, and accept what is right")


def exported(printer: Printer, export: "dsocr.Export") -> None:
    """Print the folder and how to serve it."""
    assert export.folder is not None, "`export` sets it"
    printer.result(f"{'merged model' if export.form == 'merged' else 'adapter'}: {export.folder}")
    printer.message(f"card:    {export.folder / 'README.md'}, with the prompt and settings to read with")
    printer.message(f"next:    {export.serve_command(export.folder) or 'the card says how to load it'}")


def published(printer: Printer, publication: "dsocr.Publication") -> None:
    """Print the files, sent or to send."""
    if not publication.is_sent:
        printer.message(str(publication))
    sent = "published" if publication.is_sent else "nothing was sent; it would go to"
    printer.result(f"{sent}: {publication.url}")


def examined(printer: Printer, facts: "Sequence[dsocr.Fact]") -> None:
    """Print the state of this machine."""
    rows = [(fact.name, fact.state, "\nhint: ".join(filter(None, (fact.message, fact.hint)))) for fact in facts]
    printer.table(["name", "state", "found"], rows)
    fatal = [fact.name for fact in facts if fact.fatal]
    printer.result(f"not ready: {', '.join(fatal)}" if fatal else "ready")
    if not fatal:
        printer.message("next: dsocr demo, or dsocr prepare YOUR_SCANS -o data/yours")


def examined_as_json(facts: "Sequence[dsocr.Fact]") -> object:
    """Return the facts, and whether dsocr can run."""
    return {"ready": not any(fact.fatal for fact in facts), "facts": [asdict(fact) for fact in facts]}
