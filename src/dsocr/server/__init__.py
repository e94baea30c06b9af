"""An HTTP server that reads images for other programs. Importing it loads neither FastAPI nor torch."""

import ipaddress
import logging
import os
import socket
from typing import Annotated

from dsocr.console import current_reporter
from dsocr.errors import ConfigError, RunError, not_installed, option
from dsocr.options import Count, Paths, Rare, ScriptName, as_paths, between
from dsocr.runs import RunFolder

TOKEN = "DSOCR_TOKEN"  # noqa: S105 - the name of a variable
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


def serve(
    runs: Paths,
    *,
    host: str = "127.0.0.1",
    port: Annotated[int, between(0, 65535)] = 8000,
    deadline: Rare[Annotated[float, between(1)]] = 60.0,
    waiting: Rare[Count] = 64,
    script: ScriptName | None = None,
    public: bool = False,
) -> None:
    """Serve a model over HTTP. OpenAI clients work too; DSOCR_TOKEN holds the token that clients must send.

    Args:
        runs: Run or adapter folders of one base, or small; the first is the default.
        host: Address to listen on.
        port: Port; 0 takes a free one.
        deadline: Seconds that a request may take.
        waiting: Images that may wait; beyond, requests get 429.
        script: Script that line recognisers keep to; as trained if not given, and any if nothing was trained.
        public: Answer without a token on any address.

    Raises:
        ConfigError: The address is open to others and there is no token, or two runs have the same name.
        ModelError: The base cannot be loaded.
        RunError: A run is missing or unfinished, the port is in use, or the extra `server` is not installed.
    """
    from dsocr.models.base_folder import require_readable_adapter

    token = os.environ.get(TOKEN, "").strip() or None  # `set TOKEN=word ` keeps the space
    if token is None and not _is_local(host) and not public:
        hint = f"set a token in the environment variable {TOKEN}, or give {option('public')} if that is meant"
        raise ConfigError(f"anybody who reaches {host} could use this server", hint=hint, code="token-missing")
    paths = as_paths(runs)
    adapters = {run.name: run.adapter for run in map(RunFolder.to_read_with, paths)}
    if len(adapters) < len(paths):
        hint = "clients ask for models by the names of their folders"
        raise ConfigError("two runs have the same name", hint=hint, code="run-name")
    for folder in adapters.values():
        require_readable_adapter(folder)
    listen(host, port).close()  # before the base is loaded, which may take minutes
    try:  # slow, and not needed to say what does not exist
        from dsocr.server.routes import create_app, make_server
    except ModuleNotFoundError as error:
        raise not_installed("serving", error.name, "server") from error
    from dsocr.server.access import ServerLimits
    from dsocr.server.engine import ServedModels

    printer, limits = current_reporter(), ServerLimits(deadline=deadline, max_queued=waiting)
    models = ServedModels(adapters, script=script)
    hosts = _LOCAL | {host} if _is_local(host) else None
    server = create_app(models, limits=limits, token=token, hosts=hosts)
    with listen(host, port) as listener:
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        printer.result(f"serving at {address} as {', '.join(models.names)}")
        printer.message(f"try: curl --data-binary @line.png {address}/v1/transcriptions")
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        make_server(server, limits).run(sockets=[listener])


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
        hint = f"another server may use the port: give {option('port', ...)}"
        message = f"cannot listen on {host}:{port}: {reason}"
        raise RunError(message, hint=hint, code="port-unavailable") from error
