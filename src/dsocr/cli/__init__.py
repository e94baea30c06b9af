"""The command line: each command parses, calls one function of the API, and prints what it returned.

Slow imports are inside the commands, so that `dsocr --help` answers at once.
"""

from dsocr.cli import data_commands, train_commands, demo, judge_commands, read_commands, share_commands  # noqa: I001
from dsocr.cli.app import app, main

__all__ = [
    "app",
    "data_commands",
    "demo",
    "judge_commands",
    "main",
    "read_commands",
    "share_commands",
    "train_commands",
]
