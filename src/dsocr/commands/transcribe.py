"""`dsocr transcribe`."""

import json as json_
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsocr.commands.prepare import one_of
from dsocr.commands.quiet import quiet_libraries
from dsocr.console import Printer
from dsocr.errors import ConfigError, DataError

if TYPE_CHECKING:
    from dsocr.inference.cluster import Cluster
    from dsocr.inference.remote import Engine

_CHOICES = {"unit": ("--unit", "line", "region", "page"), "shows": ("--images", "line", "page")}
_SHOWN = 20
"""Sentences about what could not be read; the rest is counted."""


def transcribe_command(
    printer: Printer,
    path: Path,
    inputs: Sequence[Path],
    out: Path,
    *,
    formats: Sequence[str],
    shard: str,
    json: bool,
    engine: str | None,
    engine_model: str | None,
    actors: int | None,
    options: dict[str, Any],
) -> None:
    """`dsocr transcribe`; `options` are those of the library's function."""
    for name, (option, *choices) in _CHOICES.items():
        one_of(option, options[name], *choices)
    share = _share(shard)
    if engine == "ray" and options["workers"] is not None:
        raise ConfigError("--workers is how many open pages on this machine", hint="with --engine ray, give --actors")

    from dsocr.inference.transcribe import transcribe
    from dsocr.runs import RunFolder

    run = RunFolder.to_read_with(path)

    quiet_libraries()
    with printer.progress("reading", "pages") as tell:
        chosen = choose_engine(engine, engine_model or run.path.resolve().name, actors)
        report = transcribe(run, inputs, out, formats=formats, shard=share, progress=tell, engine=chosen, **options)
    if json:
        printer.result(json_.dumps({**asdict(report), "out": str(report.out)}, ensure_ascii=False, indent=2))
        return
    for refusal in report.refused[:_SHOWN]:
        printer.complain(f"refused: {refusal}")
    if len(report.refused) > _SHOWN:
        printer.complain(f"refused: {len(report.refused) - _SHOWN} more (--json lists all)")
    lines = f"{report.images} images read, with {report.lines} lines; {len(report.refused)} refused"
    printer.say(f"{lines}; {report.empty} empty, {report.truncated} cut off before their end, {report.looping} looping")
    if report.known:
        printer.say(f"{report.known} images had been read by an earlier run, which was interrupted")
    if report.kept:
        printer.say(f"{report.kept} lines had a text already, which was kept (--replace reads them again)")
    if report.unmatched:
        printer.say(f"{report.unmatched} regions were answered with another number of lines than are drawn there")
    if options["review"] is not None:
        printer.say(f"the most doubtful lines first: {options['review']}")
    if report.foretold is not None:
        told = report.foretold
        halved = f"check the first {told.check:.0%} of that list, and the rest is at {told.rest:.1%}"
        printer.say(f"the confidences foretell {told.cer:.1%} CER: {halved} (new hands are read worse than foretold)")
    printer.result(f"texts: {report.out}")


def choose_engine(told: str | None, model: str, actors: int | None) -> "Engine | Cluster | None":
    """What reads in place of this process: a Ray cluster, or a server at an address that calls the model so."""
    from dsocr.inference.cluster import Cluster
    from dsocr.inference.remote import Engine

    if actors is not None and told != "ray":
        raise ConfigError("--actors is for --engine ray")
    if told == "ray":
        return Cluster(actors)
    return Engine(told, model) if told else None


def _share(told: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", told)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise DataError(f"{told!r} is no share of the pages", hint="the second of five is 2/5")
    return int(found[1]), int(found[2])
