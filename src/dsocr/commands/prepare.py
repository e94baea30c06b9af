"""`dsocr prepare` and `dsocr sources`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.console import Printer
from dsocr.errors import ConfigError, typed

if TYPE_CHECKING:
    from dsocr.data.dataset import Card, Dataset
    from dsocr.data.source_report import CountCard


def prepare_command(
    printer: Printer,
    source: Path,
    out: Path,
    *,
    format: str | None,
    writer: str | None,
    page: str | None,
    document: str | None,
    split: str,
    split_by: str | None,
    unit: str | None,
    seed: int,
    stratify: bool,
    folds: int | None,
    fixed: Path | None,
    like: Path | None,
    columns: Sequence[str],
    store: str,
    workers: int | None,
    text_policy: Path | None,
    policy_settings: Mapping[str, str | None],
    encoding: str | None,
    strict: bool,
    overwrite: bool,
) -> None:
    """`dsocr prepare`."""
    from dsocr.config import read_policy
    from dsocr.data.prepare import prepare

    policy = read_policy(text_policy, policy_settings)
    with printer.progress("preparing", "images") as tell:
        dataset = prepare(
            source,
            out,
            format=format,
            writer=writer,
            page=page,
            document=document,
            split=split,
            split_by=split_by,
            unit=one_of("--unit", unit, "line", "region", "page"),  # type: ignore[arg-type]
            seed=seed,
            stratify=stratify,
            folds=folds,
            fixed=fixed,
            like=like,
            columns=named_columns(columns),
            store=one_of("--store", store, "files", "parquet"),  # type: ignore[arg-type]
            workers=workers,
            text_policy=policy,
            encoding=encoding,
            strict=strict,
            overwrite=overwrite,
            progress=tell,
        )
    print_prepared(printer, dataset)


def one_of(option: str, name: str | None, *names: str) -> str | None:
    """The name, which must be one of `names`, or None."""
    if name is not None and name not in names:
        raise ConfigError(f"{option}: must be {', '.join(names[:-1])} or {names[-1]}, not {name!r}")
    return name


def named_columns(pairs: Sequence[str]) -> Mapping[str, str]:
    """Role -> column, from `--column` as it was typed."""
    if bad := [pair for pair in pairs if not pair.partition("=")[2]]:
        raise ConfigError(f"--column: {bad[0]!r} does not read kind=NAME", hint="for example --column text=label")
    return dict(pair.split("=", 1) for pair in pairs)


def print_prepared(printer: Printer, dataset: "Dataset") -> None:
    """What a dataset folder holds, what is not in it, and what to do next."""
    card = dataset.card
    printer.say(f"{'split':<12}{'samples':>9}{'writers':>9}{'pages':>8}{'characters':>12}")
    for split, part in card.splits.items():
        row = f"{split:<12}{part.samples:>9}{part.writers:>9}{part.pages:>8}{part.characters:>12}"
        printer.say(row)
    printer.say(f"read as {card.source_format}, {card.unit} by {card.unit}; split by {card.split_by}{_folds(card)}")
    if dataset.report.reused:
        printer.say(f"of {dataset.report.pages} images, {dataset.report.reused} had been cut before")
    for rule, changes in card.text_changes.items():
        printer.say(f"text policy, texts changed by {rule}: {changes.count}, e.g. {changes.examples[0]}")
    print_left_out(printer, card.skipped, card.unmatched)
    for remark in card.notes:
        printer.say(f"note: {remark}")
    printer.result(f"dataset: {dataset.folder}")
    printer.say(f"next:    dsocr check {typed(dataset.folder)}")


def print_left_out(printer: Printer, left_out: Mapping[str, "CountCard"], unmatched: Mapping[str, "CountCard"]) -> None:
    """What a source has that did not come along, and the names that no pattern matched."""
    for reason, part in left_out.items():
        printer.say(f"left out, {reason}: {part.count}")
        for example in part.examples[:3]:
            printer.say(f"  {example}")
    for kind, part in unmatched.items():
        printer.say(f"no {kind} found in the name of {part.count}, e.g. {part.examples[0]}")


def _folds(card: "Card") -> str:
    return f" into {card.folds} folds, of which the first tests above" if card.folds else ""


def sources_command(printer: Printer) -> None:
    """`dsocr sources`."""
    from dsocr.formats import FORMATS

    for format_ in FORMATS.values():
        printer.result(f"{format_.name:<14}{format_.title}")
        printer.result(f"{'':<14}dsocr prepare {format_.example}")
    printer.say("a zip of any of these is read too, and hf:owner/name is a dataset of the Hugging Face Hub")
    printer.say("prepare finds out which it is and says it; --format NAME decides where a folder holds several")
