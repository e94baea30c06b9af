"""Commands that hand a model to other programs, and `dsocr doctor`."""

import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dsocr.cli.app import Json, Overwrite, Quiet, command, print_json, quiet_libraries
from dsocr.console import Printer
from dsocr.errors import ConfigError, RunError

if TYPE_CHECKING:
    from dsocr.doctor import Fact

TOKEN = "DSOCR_TOKEN"  # noqa: S105 - the name of a variable
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


@command(
    "Share",
    "dsocr export runs/mine -o models/mine --form merged",
    "dsocr export runs/mine --push owner/name --license cc-by-4.0 --dry-run",
)
def export(
    run: Annotated[Path, typer.Argument(help="Run folder; with --push also a dataset folder.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder to write.")] = None,
    form: Annotated[
        Literal["peft", "vllm", "merged"] | None,
        typer.Option(help="The adapter for peft or vllm, or merged weights; peft, or merged if all were trained."),
    ] = None,
    scale: Annotated[float, typer.Option(min=0, max=1, help="Strength of the adapter in the export, up to 1.")] = 1.0,
    repo: Annotated[
        str | None, typer.Option("--push", help="Publish it as OWNER/NAME on the Hugging Face Hub instead.")
    ] = None,
    license: Annotated[str | None, typer.Option(help="Licence of what is published, as cc-by-4.0.")] = None,
    about: Annotated[
        list[str] | None,
        typer.Option(help="What a published dataset is, as title=..., language=rus, time=1850/1900; repeatable."),
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Publish in a private repository.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the files to publish, and send nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Publish without asking.")] = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Export a run for other programs, or publish a run or a dataset on the Hub."""
    from dsocr.api import export

    if repo is not None:
        if output or scale != 1:
            hint = "--form chooses what is published"
            raise ConfigError("--push writes no folder", code="option-invalid", hint=hint)
        quiet_libraries()
        _push(Printer(quiet=quiet), run, repo, license, form, about, private=private, dry_run=dry_run, yes=yes)
        return
    if license or about or private or dry_run or yes:
        message = "--license, --about, --private, --dry-run and --yes go with --push"
        raise ConfigError(message, code="option-invalid")
    if output is None:
        raise ConfigError("give -o FOLDER, or --push OWNER/NAME", code="option-missing")
    quiet_libraries()
    printer = Printer(quiet=quiet)
    with printer.progress("writing", "tensors") as progress:
        exported = export(run, output, form=form, scale=scale, overwrite=overwrite, progress=progress)
    printer.result(f"{'merged model' if exported.form == 'merged' else 'adapter'}: {output}")
    printer.message(f"card:    {output / 'README.md'}, with the prompt and settings to read with")
    printer.message(f"next:    {exported.serve_command(output) or 'the card says how to load it'}")


def _push(
    printer: Printer,
    source: Path,
    repo: str,
    license: str | None,
    form: Literal["peft", "vllm", "merged"] | None,
    about: Sequence[str] | None,
    *,
    private: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    from dsocr.publish import Publication, push

    def confirm(publication: Publication) -> bool:
        show(publication)
        return yes or (sys.stdin.isatty() and typer.confirm(f"Publish these files at {publication.url}?"))

    def show(publication: Publication) -> None:
        for name, size in publication.files.items():
            printer.message(f"{size:>14,}  {name}")
        printer.message(f"{sum(publication.files.values()):>14,}  bytes in {len(publication.files)} files")
        for note in publication.notes:
            printer.complain(f"note: {note}")

    if bad := [pair for pair in about or () if not pair.partition("=")[2]]:
        raise ConfigError(f"--about {bad[0]!r} has no =", code="option-invalid", hint="write title=...")
    described = dict(pair.split("=", 1) for pair in about or ())
    done = push(
        source, repo, license=license, form=form, about=described, private=private, dry_run=dry_run, confirm=confirm
    )
    if dry_run:
        show(done)
    printer.result(f"{'published' if done.is_sent else 'nothing was sent; it would go to'}: {done.url}")


@command("Share", "dsocr serve runs/mine", "dsocr serve runs/mine runs/other --port 8001 --deadline 30")
def serve(
    runs: Annotated[
        list[Path], typer.Argument(help="Run or adapter folders of one base, or small; the first is the default.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    deadline: Annotated[float, typer.Option(min=1, help="Seconds that a request may take.")] = 60.0,
    waiting: Annotated[int, typer.Option(min=1, help="Images that may wait; beyond, requests get 429.")] = 64,
    public: Annotated[bool, typer.Option("--public", help="Answer without a token on any address.")] = False,
    quiet: Quiet = False,
) -> None:
    """Serve a model over HTTP. OpenAI clients work too; DSOCR_TOKEN holds the token that clients must send."""
    from dsocr.models.base_folder import require_readable_adapter
    from dsocr.server import adapter_folder, adapter_name

    token = os.environ.get(TOKEN, "").strip() or None  # `set TOKEN=word ` keeps the space
    _validate_access(host, token, public=public)
    adapters = {adapter_name(path): adapter_folder(path) for path in runs}
    if len(adapters) < len(runs):
        raise ConfigError(
            "two runs have the same name", hint="clients ask for models by the names of their folders", code="run-name"
        )
    for folder in adapters.values():
        require_readable_adapter(folder)
    listen(host, port).close()  # before the base is loaded, which may take minutes
    try:  # slow, and not needed to say what does not exist
        from dsocr.server.routes import create_app, run_server
    except ModuleNotFoundError as error:
        hint = 'pip install "dsocr-hw[server]"'
        raise RunError(
            f"serving needs {error.name}, which is not installed", hint=hint, code="package-missing"
        ) from error
    from dsocr.server.engine import ServedModels
    from dsocr.server.limits import ServerLimits

    quiet_libraries()
    printer = Printer(quiet=quiet)
    limits = ServerLimits(deadline=deadline, max_queued=waiting)
    models = ServedModels(adapters)
    hosts = _LOCAL | {host} if _is_local(host) else None
    server = create_app(models, limits=limits, token=token, hosts=hosts)
    with listen(host, port) as listener:
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        printer.result(f"serving at {address} as {', '.join(models.names)}")
        printer.message(f"how to ask: {address}/docs")
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        run_server(server, listener, limits)


def _validate_access(host: str, token: str | None, *, public: bool) -> None:
    if token is None and not _is_local(host) and not public:
        raise ConfigError(
            f"anybody who reaches {host} could use this server",
            hint=f"set a token in the environment variable {TOKEN}, or give --public if that is meant",
            code="token-missing",
        )


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one. Raises RunError if the port is in use."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128
        )
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number > 0 else error  # its own sentence may repeat the address
        raise RunError(
            f"cannot listen on {host}:{port}: {reason}",
            hint="another server may use the port: give --port",
            code="port-unavailable",
        ) from error


@command("Setup", "dsocr doctor", "dsocr doctor --json")
def doctor(json: Json = False, quiet: Quiet = False) -> None:
    """Show what this machine has and lacks. Exits with 1 if dsocr cannot run."""
    from dsocr.doctor import examine

    with suppress(ImportError, OSError):  # the table says what is wrong with transformers
        quiet_libraries()
    facts = examine(Path.cwd())
    fatal = [fact.name for fact in facts if fact.fatal]
    printer = Printer(quiet=quiet)
    if json:
        print_json(printer, {"ready": not fatal, "facts": [asdict(fact) for fact in facts]})
    else:
        printer.table(["name", "state", "found"], [_fact_row(fact) for fact in facts])
        printer.result(f"not ready: {', '.join(fatal)}" if fatal else "ready")
        if not fatal:
            printer.message("next: dsocr demo, or dsocr prepare YOUR_SCANS -o data/yours")
    sys.exit(1 if fatal else 0)


def _fact_row(fact: "Fact") -> tuple[Sequence[str], str]:
    message = f"{fact.message}\nhint: {fact.hint}" if fact.hint else fact.message
    return (fact.name, fact.state, message), "red" if fact.fatal else "" if fact.state == "ok" else "yellow"
