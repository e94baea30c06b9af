"""The command line: each command parses, calls one public function, and prints what it returned."""

from dsocr.cli.app import app, main

__all__ = ["app", "main"]
