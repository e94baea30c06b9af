"""`dsocr serve`."""

import ipaddress
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from dsocr.commands.listening import listening
from dsocr.commands.quiet import quiet_libraries
from dsocr.console import Printer
from dsocr.errors import ConfigError, RunError

TOKEN = "DSOCR_TOKEN"  # noqa: S105 - the name of a variable
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


def serve_command(
    printer: Printer,
    runs: Sequence[Path],
    *,
    host: str,
    port: int,
    deadline: float,
    waiting: int,
    public: bool,
    shelf: Path | None,
) -> None:
    """`dsocr serve`: until a signal ends it."""
    from dsocr.models.checkpoint import require_readable_adapter
    from dsocr.server import adapter_folder, adapter_name

    token = os.environ.get(TOKEN, "").strip() or None  # `set TOKEN=word ` keeps the space
    if token is None and not _is_local(host) and not public:
        raise ConfigError(
            f"anybody who reaches {host} could read with this server",
            hint=f"set a token in the environment variable {TOKEN}, or give --public if that is meant",
        )
    if shelf is not None and (token is None or not shelf.is_dir()):
        raise ConfigError(
            f"--shelf {shelf}: needs a folder that is there, and a token, for it lets the models be changed",
            hint=f"set a token in the environment variable {TOKEN}",
        )
    adapters = {adapter_name(path): adapter_folder(path) for path in runs}
    if len(adapters) < len(runs):
        raise ConfigError("two runs have the same name", hint="their folders' names are what clients ask for")
    for folder in adapters.values():
        require_readable_adapter(folder)
    listening(host, port).close()  # before the base is loaded, which may take minutes
    try:  # slow, and not needed to say what is not there
        from dsocr.server.app import create_app, run_server
    except ModuleNotFoundError as error:
        hint = 'pip install "dsocr-hw[server]"'
        raise RunError(f"serving needs {error.name}, which is not installed", hint=hint) from error
    from dsocr.server.engine import ServedModels
    from dsocr.server.limits import Limits

    quiet_libraries()
    limits = Limits(deadline=deadline, max_queued=waiting)
    models = ServedModels(adapters)
    hosts = _LOCAL | {host} if _is_local(host) else None
    app = create_app(models, limits=limits, token=token, hosts=hosts, shelf=shelf)
    with listening(host, port) as listener:
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        printer.result(f"reading at {address} as {', '.join(models.names)}")
        printer.say(f"how to ask: {address}/docs")
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        run_server(app, listener, limits)


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
