"""A port to listen at, so that one in use is a sentence."""

import os
import socket

from dsocr.errors import RunError


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; 0 takes a free port. Raises RunError where it cannot be had."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128
        )
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None) or 0
        said = os.strerror(number) if number > 0 else error  # its own sentence may repeat the address
        hint = "another server may run there: give --port"
        raise RunError(f"cannot listen at {host}:{port}: {said}", hint=hint) from error
