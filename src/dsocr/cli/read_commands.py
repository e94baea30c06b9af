"""Commands that transcribe scans and help to correct transcriptions."""

import os
import re
import secrets
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dsocr.cli.app import (
    Encoding,
    Fetch,
    Format,
    Json,
    Output,
    Overwrite,
    Quiet,
    Second,
    Strict,
    Writer,
    command,
    parse_fetch,
    print_json,
    quiet_libraries,
)
from dsocr.cli.share_commands import TOKEN, listen
from dsocr.console import Printer
from dsocr.document import Unit
from dsocr.errors import ConfigError, DataError, RunError
from dsocr.io.files import safe_stem

if TYPE_CHECKING:
    from dsocr.inference.engines import Cluster, RemoteEngine
    from dsocr.inference.reader import LocalReader
    from dsocr.runs import RunFolder

_LISTED = 20
"""Number of unreadable inputs to print; the rest are counted."""


@command(
    "Read", "dsocr transcribe runs/mine scans -o texts.txt", "dsocr transcribe runs/mine scans -o out --format page"
)
def transcribe(
    run: Annotated[Path, typer.Argument(help="Run folder, exported adapter, or the base small.")],
    inputs: Annotated[list[Path], typer.Argument(help="Images, PDF, ALTO, PAGE, archives, folders, IIIF or METS.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="One file, whose suffix says the format, or a folder.")
    ],
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="Format in a folder: text, jsonl, page, ...; repeatable.")
    ] = None,
    unit: Annotated[Unit | None, typer.Option(help="What the model is shown; as trained if not given.")] = None,
    shows: Annotated[
        Literal["line", "page"] | None,
        typer.Option("--images", help="What images show; judged by shape if not given."),
    ] = None,
    segmenter: Annotated[
        str, typer.Option(help="What finds the lines of page images: ppocr, or kraken if installed.")
    ] = "ppocr",
    engine: Annotated[
        str | None, typer.Option(help="Where to run the model: http://HOST:PORT/v1 of a server, or ray for a cluster.")
    ] = None,
    engine_model: Annotated[
        str | None, typer.Option(help="Name of the model on the server; the run's name if not given.")
    ] = None,
    actors: Annotated[
        int | None, typer.Option(help="Number of Ray actors; one per GPU or machine if not given.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Also transcribe lines that have a text already.")] = False,
    shard: Annotated[str, typer.Option(help="Transcribe one share of the pages, as 2/5: the second of five.")] = "1/1",
    second: Second = None,
    review: Annotated[Path | None, typer.Option(help="Also write all lines to this file, least certain first.")] = None,
    fetch: Fetch = None,
    strict: Strict = False,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Transcribe scans. Resumes a transcription that was interrupted."""
    share = _parse_shard(shard)
    from dsocr.inference.transcribe import transcribe
    from dsocr.runs import RunFolder

    folder = RunFolder.to_read_with(run)
    quiet_libraries()
    printer = Printer(quiet=quiet or json)
    with printer.progress("transcribing", "pages") as progress:
        report = transcribe(
            folder,
            inputs,
            output,
            formats=formats or [],
            unit=unit,
            shows=shows,
            segmenter=segmenter,
            replace_texts=replace,
            shard=share,
            strict=strict,
            overwrite=overwrite,
            fetch=parse_fetch(fetch),
            review=review,
            progress=progress,
            engine=choose_engine(engine, engine_model or folder.path.resolve().name, actors),
            second=second or (),
        )
    if json:
        print_json(printer, {**asdict(report), "out": str(report.out)})
        return
    for verb, messages in (("read", report.failed), ("write", report.unwritten)):
        failures = _group_messages((message.partition(": ")[0], message.partition(": ")[2]) for message in messages)
        for failure in failures[:_LISTED]:
            printer.complain(f"cannot {verb} {failure}")
        if len(failures) > _LISTED:
            printer.complain(f"cannot {verb} more for {len(failures) - _LISTED} other reasons (--json lists all)")
    printer.message(
        f"{report.images} images transcribed, with {report.lines} lines; {len(report.failed)} could not be read; "
        f"{report.empty} empty, {report.truncated} truncated, {report.looping} looping"
    )
    if report.unwritten:
        printer.message(f"{len(report.unwritten)} files could not be written")
    if report.resumed:
        printer.message(f"{report.resumed} images had been transcribed before the interruption")
    if report.kept:
        printer.message(f"{report.kept} lines kept the text they had (--replace transcribes them again)")
    if report.disputed:
        printer.message(f"{report.disputed} lines were read differently by another reader")
    if report.unmatched:
        printer.message(f"{report.unmatched} regions came back with another number of lines than they have")
    if review is not None:
        printer.message(f"least certain lines first: {review}")
    if report.estimated_cer is not None:
        estimate = report.estimated_cer
        printer.message(
            f"estimated CER: {estimate.cer:.1%}; after checking the first {estimate.check:.0%} of that list, "
            f"{estimate.rest:.1%} on the rest (new writers are read worse than estimated)"
        )
    if report.unlike_calibration:
        printer.message("These pages look unlike the lines that confidences were calibrated on; no CER is estimated.")
    printer.result(f"texts: {report.out}")


def choose_engine(engine: str | None, model: str, actors: int | None) -> "RemoteEngine | Cluster | None":
    """Return a Ray cluster, or the server at an address that knows the model by this name, or None for this process."""
    from dsocr.inference.engines import Cluster, RemoteEngine

    if actors is not None and engine != "ray":
        raise ConfigError("--actors goes with --engine ray", code="option-invalid")
    if engine == "ray":
        return Cluster(actors)
    return RemoteEngine(engine, model) if engine else None


def _group_messages(items: Iterable[tuple[str, str]]) -> list[str]:
    """One line for each message, with the first of its places and the number of the others."""
    places: dict[str, list[str]] = {}
    for where, message in items:
        places.setdefault(message, []).append(where)
    return [
        f"{lines[0]} and {len(lines) - 1} more: {message}" if len(lines) > 1 else f"{lines[0]}: {message}"
        for message, lines in places.items()
    ]


def _parse_shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise DataError(f"--shard {text!r} is not a share", hint="the second of five is 2/5", code="option-invalid")
    return int(match[1]), int(match[2])


@command(
    "Read",
    "dsocr suggest runs/mine new_scans -o queue",
    "dsocr suggest runs/mine export.zip -o queue --count 200",
)
def suggest(
    run: Annotated[Path, typer.Argument(help="Run folder, or the base small.")],
    source: Annotated[
        Path, typer.Argument(help="Anything that prepare reads, with lines without text, or a folder of line images.")
    ],
    output: Output,
    count: Annotated[int, typer.Option(min=1, help="Number of lines to suggest.")] = 100,
    second: Second = None,
    format: Format = None,
    writer: Writer = None,
    encoding: Encoding = None,
    fetch: Fetch = None,
    strict: Strict = False,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Suggest which lines to transcribe by hand next. Uncertain lines, new writers and rare characters come first."""
    import json as json_

    from dsocr.inference.suggest import LIST, SHEET, TABLE, suggest
    from dsocr.runs import RunFolder

    quiet_libraries()
    folder, printer = RunFolder.to_read_with(run), Printer(quiet=quiet or json)
    with printer.progress("reading", "lines") as progress:
        queue = suggest(
            folder,
            source,
            output,
            count=count,
            format=format,
            writer=writer,
            encoding=encoding,
            strict=strict,
            overwrite=overwrite,
            fetch=parse_fetch(fetch),
            progress=progress,
            second=second or (),
        )
    for item in queue.skipped:
        printer.complain(f"skipped, {item.reason}: {item.where}: {item.message}")
    for remark in queue.remarks:
        printer.complain(remark)
    rows = json_.loads((output / LIST).read_text(encoding="utf-8"))["lines"]
    if json:
        print_json(printer, {"waiting": queue.untranscribed, "skipped": len(queue.skipped), "lines": rows})
        return
    for row in rows[:10]:
        printer.message(f"{row['rank']:>3}. {row['where']}: {row['reason']}")
    printer.message(f"{len(queue.choices)} of {queue.untranscribed} lines without a transcription were chosen")
    printer.result(f"queue: {output}")
    printer.message(f"look:  {output / SHEET}, {output / TABLE}")
    printer.message(f"next:  transcribe them (import {output.as_posix()} into eScriptorium), then dsocr prepare")


@command("Read", "dsocr workbench scans --run runs/mine", "dsocr workbench scans --run runs/mine --language ru")
def workbench(
    source: Annotated[
        Path, typer.Argument(help="Pages with lines: PAGE, ALTO or any other source, images, PDF, or an archive.")
    ],
    run: Annotated[
        Path | None, typer.Option(help="Run, or the base small, that transcribes lines without text.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Configuration for training on corrections; the run's if not given.")
    ] = None,
    only: Annotated[
        Path | None,
        typer.Option(help="Table of the lines to review first, such as the audit.csv of dsocr audit."),
    ] = None,
    work: Annotated[
        Path | None, typer.Option(help="Folder for corrections; NAME.workbench beside the source if not given.")
    ] = None,
    format: Format = None,
    writer: Writer = None,
    encoding: Encoding = None,
    fetch: Fetch = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port.")] = 8080,
    share: Annotated[
        bool, typer.Option("--share", help="Let other machines in, with the token in the printed address.")
    ] = False,
    host_name: Annotated[
        list[str] | None, typer.Option(help="Name that a proxy serves it under; give the option again for more.")
    ] = None,
    show: Annotated[bool, typer.Option(help="Open the browser.")] = True,
    language: Annotated[Literal["en", "ru"], typer.Option(help="Language of the interface.")] = "en",
    quiet: Quiet = False,
) -> None:
    """Correct transcriptions in a browser. Trains on the corrections, and shows the least certain lines first."""
    from dsocr.data.fetch import is_manifest, web_address
    from dsocr.models.base_folder import require_readable_adapter
    from dsocr.runs import RunFolder
    from dsocr.workbench.background import BackgroundReader, BackgroundTraining, Learner, find_training_config
    from dsocr.workbench.session import Session

    if not (source.exists() or is_manifest(source)):
        raise DataError("no such file or folder", where=source, code="file-missing")
    reads = None if run is None else RunFolder.to_read_with(run)
    if reads is not None:
        require_readable_adapter(reads.adapter)
    training_config = find_training_config(run, config)
    try:  # slow, and not needed to say what does not exist
        import nicegui  # noqa: F401
    except ModuleNotFoundError as error:
        raise RunError(
            f"the workbench needs {error.name}, which is not installed",
            hint='pip install "dsocr-hw[workbench]"',
            code="package-missing",
        ) from error
    from dsocr.data.source_report import SourceReport
    from dsocr.workbench.archive import find_lines, import_pages, open_archive, read_sources
    from dsocr.workbench.serving import ANY, HOST, serve
    from dsocr.workbench.store import open_store

    quiet_libraries()
    host = ANY if share else HOST
    listen(host, port).close()  # before lines are detected, and because NiceGUI reports a used port badly
    printer = Printer(quiet=quiet)
    beside = Path(safe_stem(source.as_posix().partition(":/")[2])) if web_address(source) else source
    folder = work or beside.resolve().with_name(f"{beside.resolve().stem}.workbench")
    report = SourceReport(strict=False)
    with ExitStack() as stack:
        store = stack.enter_context(open_store(folder / "corrections.sqlite"))
        with printer.progress("fetching", "pages") as progress:
            unpacked = folder / "unpacked"
            archive = stack.enter_context(open_archive(store, source, unpacked, parse_fetch(fetch), progress))
        with printer.progress("finding lines", "pages") as progress:
            options = {"format": format, "writer": writer, "encoding": encoding}
            new = import_pages(store, archive, report, **options, progress=progress)
        for message in _group_messages((item.where, item.message) for item in report.skipped):
            printer.complain(f"skipped: {message}")
        listed = [] if only is None else find_lines(store, archive, read_sources(only), format=format)
        shared = share or bool(host_name)
        session = Session(source.resolve().name, store, archive, folder, only=listed, is_shared=shared)
        if not session.pages:
            raise DataError("holds no page that can be shown", where=source, code="source-empty")
        if reads is not None:
            session.reader = BackgroundReader(store, archive, partial(_load_reader, reads))
            session.reader.start()
        stack.callback(session.stop_reading)
        if training_config is not None:
            session.training = BackgroundTraining(store, archive, folder, training_config)
            stack.callback(session.training.stop)
            session.learner = Learner(
                store,
                session.training,
                session.read_again,
                load=lambda path: _load_reader(RunFolder(path)),
                first=None if reads is None else partial(_load_reader, reads),
            )
            session.learner.start()
            stack.callback(session.learner.stop)
        printer.message(f"{len(session.pages)} pages, {new} of them new; corrections: {folder / 'corrections.sqlite'}")
        token = None
        if shared:
            token = os.environ.get(TOKEN, "").strip() or store.setting("token") or secrets.token_urlsafe(16)
            store.set_setting("token", token)
        shown = f"http://{socket.gethostname() if share else HOST}:{port}/" + (f"?token={token}" if token else "")
        printer.result(shown)
        names = [name.lower() for name in host_name or ()]
        serve(session, language=language, port=port, show=show, host=host, token=token, names=names)


def _load_reader(run: "RunFolder") -> "LocalReader":
    from dsocr.inference.reader import LocalReader

    return LocalReader.of_run(run)
