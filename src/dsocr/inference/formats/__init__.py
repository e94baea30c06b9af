"""Output formats of a transcription, one file each, and the table of them."""

from collections.abc import Callable, Iterable
from pathlib import Path

from dsocr.inference.formats.jsonl import write_jsonl
from dsocr.inference.formats.text import write_text
from dsocr.inference.transcriber import Prediction

Writer = Callable[[Iterable[Prediction], Path], int]
"""Writes predictions as they come to a file and gives their number; the file appears when it is whole."""

WRITER_BY_SUFFIX: dict[str, Writer] = {".jsonl": write_jsonl, ".txt": write_text}
