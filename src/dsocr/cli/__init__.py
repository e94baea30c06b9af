"""The command line: each command parses, calls one public function, and prints what it returned."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, also while it loads libraries."""
    try:
        from dsocr.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
