"""Pages beside their texts in a browser, to be corrected. Importing it loads no NiceGUI."""

import os
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from dsocr.console import current_reporter, progress_bar
from dsocr.errors import DataError, RunError, group_messages, require_package
from dsocr.io.files import safe_stem
from dsocr.io.web import Fetch, FetchOptions
from dsocr.language import Language
from dsocr.options import ON, Rare, ScriptName, StrPath, between
from dsocr.runs import RunFolder
from dsocr.server import TOKEN, listen


def open_workbench(
    source: StrPath | None = None,
    *,
    run: StrPath = "small",
    config: Rare[StrPath | None] = None,
    only: StrPath | None = None,
    work: Rare[StrPath | None] = None,
    script: ScriptName | None = None,
    segmenter: str = "ppocr",
    tables: bool = False,
    format: str | None = None,
    writer: str | None = None,
    encoding: str | None = None,
    layer: Rare[str | None] = None,
    fetch: Fetch | None = None,
    port: Annotated[int, between(1, 65535)] = 8080,
    share: bool = False,
    host_name: Rare[Sequence[str]] = (),
    show: Annotated[bool, ON] = True,
    language: Language | None = None,
) -> None:
    """Correct transcriptions in a browser. Trains on the corrections, and shows the least certain lines first.

    Args:
        source: Pages with lines: PAGE, ALTO or any other source, images, PDF, or an archive; if not given, a start page
            in the browser asks for it.
        run: Run, or a base, that transcribes lines without text; none for no reader.
        config: Configuration for training on corrections; the run's if not given.
        only: Table of the lines to review first, such as the audit.csv of dsocr audit.
        work: Folder for corrections; NAME.workbench beside the source if not given.
        script: Script that line recognisers keep to; auto decides it by lines of all pages; as trained if not given.
        segmenter: Line segmentation of page images: ppocr, or a run that trained a detector.
        tables: Find the rows and columns of registers on pages that are new.
        format: Format of the source; detected if not given; `dsocr prepare --formats` lists them.
        writer: Writer: a column, or a pattern over file names.
        encoding: Encoding of texts and tables that are not UTF-8, e.g. cp1251.
        layer: Part of the path of the file to take where several describe a scan, such as chocomufin; the file named as
            its image if not given.
        fetch: How IIIF and METS are fetched: size=2000 (or max), pages=50, ...; repeatable.
        port: Port.
        share: Let other machines in, with the token in the printed address.
        host_name: Name that a proxy serves it under; give the option again for more.
        show: Open the browser.
        language: Language of the interface; the browser's if not given.

    Raises:
        DataError: The source is missing, cannot be read, or has no page.
        RunError: The run is missing, the port is in use, or the extra `workbench` is not installed.
    """
    from dsocr.data.fetch import is_manifest, web_address
    from dsocr.evaluation.audit import ALL
    from dsocr.inference.confidence import Calibration
    from dsocr.layout import choose_detector, choose_segmenter
    from dsocr.models.base_folder import require_readable_adapter
    from dsocr.registers import find_lines_of_tables
    from dsocr.workbench.background import (
        BackgroundReader,
        BackgroundTraining,
        Learner,
        PageFinder,
        find_training_config,
        learnt_run,
        load_reader,
    )
    from dsocr.workbench.session import Session

    shared = share or bool(host_name)
    if source is None and (shared or only or work):
        message, hint = "without scans to open there is only the start page", "name the scans before the options"
        raise DataError(message, code="input-missing", hint=hint)
    if source is not None and not (Path(source).exists() or is_manifest(Path(source))):
        raise DataError("no such file or folder", where=source, code="input-missing")
    reads_with = None if str(run) == "none" else Path(run)
    reads = None if reads_with is None else RunFolder.to_read_with(reads_with)
    if reads is not None:
        require_readable_adapter(reads.adapter)
    detect = choose_segmenter(segmenter)  # said at once if there is none
    if tables:
        detect = partial(find_lines_of_tables, detect, choose_detector(segmenter))
    training_config = find_training_config(reads_with, None if config is None else Path(config))
    require_package("the workbench", "nicegui", "workbench")
    from dsocr.data.dataset import SourceReport
    from dsocr.formats.xml import preferred_layer
    from dsocr.workbench.archive import find_lines, import_pages, open_archive, read_sources
    from dsocr.workbench.serving import ANY, HOST, Desk
    from dsocr.workbench.serving import serve as serve_desk
    from dsocr.workbench.start_page import Projects
    from dsocr.workbench.store import open_store

    printer = current_reporter()

    @contextmanager
    def opened(pages: Path) -> Iterator[Session]:
        beside = Path(safe_stem(pages.as_posix().partition(":/")[2])) if web_address(pages) else pages
        folder = Path(work) if work else beside.resolve().with_name(f"{beside.resolve().stem}.workbench")
        report = SourceReport(strict=False)
        with ExitStack() as stack:
            store = stack.enter_context(open_store(folder / "corrections.sqlite"))
            with progress_bar(None, "fetching", "pages") as done:
                fetched = FetchOptions.parse(fetch)
                archive = stack.enter_context(open_archive(store, pages, folder / "unpacked", fetched, done, detect))
            audit = None if only is None else Path(only).with_name(ALL)
            audited = len(audit.read_bytes().splitlines()) if audit is not None and audit.is_file() else 0
            session = Session(pages.resolve().name, store, archive, folder, audited=audited, is_shared=shared)
            load = partial(load_reader, store=store, archive=archive, script=script)
            if reads is not None:
                session.calibration = Calibration.load(reads.adapter)
                learnt = learnt_run(store)
                session.reader = BackgroundReader(store, archive, partial(load, RunFolder(learnt) if learnt else reads))
                session.reader.start()
            stack.callback(session.close)

            def find(progress: Callable[[int, int], None]) -> None:
                options = {"format": format, "writer": writer, "encoding": encoding}
                with preferred_layer(layer):
                    new = import_pages(store, archive, report, **options, tables=tables, progress=progress)
                for message in group_messages((item.where, item.message) for item in report.skipped):
                    printer.complain(f"skipped: {message}")
                kept = folder / "corrections.sqlite"
                printer.message(f"{len(store.pages())} pages, {new} of them new; corrections: {kept}")

            session.finder = PageFinder(find, session.add_pages)
            session.finder.start()
            session.finder.wait(lambda: only is None and bool(session.pages))
            if not session.pages:
                raise DataError("holds no page that can be shown", where=pages, code="source-empty")
            if only is not None:
                with preferred_layer(layer):
                    session.only = find_lines(store, archive, read_sources(Path(only)), format=format)
            if training_config is not None:
                session.training = BackgroundTraining(store, archive, folder, training_config)
                session.learner = Learner(
                    store,
                    session.training,
                    session.read_again,
                    load=lambda path: load(RunFolder(path)),
                    first=None if reads is None else partial(load, reads),
                )
                session.learner.start()
            yield session

    with closing(Desk(opened)) as desk:
        served: dict[str, Any] = {"language": language, "show": show}
        if source is None:
            projects = Projects(Path.home() / "dsocr")
            port = _free_port(port)
            printer.result(f"http://{HOST}:{port}/")
            serve_desk(desk, port=port, secret=projects.secret, projects=projects, **served)
            return
        host = ANY if share else HOST
        listen(host, port).close()  # before lines are detected, and because NiceGUI reports a used port badly
        store = desk.open(Path(source)).store
        secret, token = store.setting("secret") or secrets.token_hex(32), None
        store.set_setting("secret", secret)
        if shared:
            token = os.environ.get(TOKEN, "").strip() or store.setting("token") or secrets.token_urlsafe(16)
            store.set_setting("token", token)
        address = f"http://{socket.gethostname() if share else HOST}:{port}/" + (f"?token={token}" if token else "")
        printer.result(address)
        names = [name.lower() for name in host_name]
        serve_desk(desk, port=port, secret=secret, host=host, token=token, names=names, **served)


def _free_port(port: int) -> int:
    """That port, or any other: where a workbench was started twice by double clicks, both are served."""
    with suppress(RunError):
        listen("127.0.0.1", port).close()
        return port
    with listen("127.0.0.1", 0) as listening:
        free: int = listening.getsockname()[1]
        return free
