"""Who finds the lines on pages that come without: the built-in segmenter, or kraken in an environment of its own."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dsocr.data.images import decode_image
from dsocr.data.segmentation.segment import segment
from dsocr.data.sources.alto import describe_page
from dsocr.data.sources.layout import SourceLine
from dsocr.data.sources.markup import parse_xml
from dsocr.errors import DataError
from dsocr.inference.inputs.showing import FindLines

BUILT_IN = "builtin"
_PATIENCE = 900
"""Seconds for one page; kraken takes about ten on a processor."""


def choose_segmenter(name: str) -> FindLines:
    """The built-in segmenter, or kraken: by the name of its command, or the path to it."""
    if name == BUILT_IN:
        return _built_in
    if Path(name).name.removesuffix(".exe") != "kraken":
        message = f"unknown segmenter {name!r}; there are {BUILT_IN} and kraken, or a path to a kraken command"
        raise DataError(message)
    command = shutil.which(name)
    if command is None:
        hint = "install it in an environment of its own (pipx install kraken), or give the path to its command"
        raise DataError("the command kraken is not installed", where=name, hint=hint)
    return partial(_kraken, command)  # which can be sent to another process


def _built_in(content: bytes, where: str) -> Sequence[SourceLine]:
    page = decode_image(content, name=where).image
    return [
        SourceLine("", f"{where}#{number + 1}", line.outline, line.region, number)
        for number, line in enumerate(segment(page))
    ]


def _kraken(command: str, content: bytes, where: str) -> Sequence[SourceLine]:
    """The lines in the ALTO file that kraken writes of a page; it is given the upright picture, as we see it."""
    with tempfile.TemporaryDirectory(prefix="dsocr-kraken-") as folder:
        image, found = Path(folder, "page.png"), Path(folder, "page.xml")
        decode_image(content, name=where).image.save(image)
        arguments = [command, "-a", "-i", str(image), str(found), "segment", "-bl"]
        try:
            done = subprocess.run(arguments, capture_output=True, timeout=_PATIENCE, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DataError(f"kraken could not find its lines: {error}") from error
        if done.returncode or not found.is_file():
            last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it says nothing"]
            raise DataError(f"kraken could not find its lines: {last[0]}")
        described = describe_page(parse_xml(found))
    lines = [line for line in described.lines if line.outline]
    if not lines:
        raise DataError("kraken finds no lines on the page")
    return [
        SourceLine("", f"{where}#{number + 1}", line.outline, line.region, number) for number, line in enumerate(lines)
    ]
