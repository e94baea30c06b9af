"""What all commands do alike: a word that cannot be used is refused in our words, and Ctrl-C is answered in a line."""

from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from dsocr.console import Printer

_BEGINS_AGAIN = "nothing half-made is left; the same command begins again"
_GOES_ON = "the same command, without --overwrite, goes on"

_KEPT = {
    "train": f"checkpoints are kept; {_GOES_ON} from the last one",
    "forecast": f"trainings that came to their end are kept; {_GOES_ON}",
    "evaluate": "scores are written when all lines are read; the same command begins again",
    "serve": "the server has stopped; the same command serves again",
    "workbench": "the workbench has stopped; corrections are kept, and the same command shows them again",
}
"""What is left of a command that Ctrl-C ends, and how to go on, where it is more than nothing."""

_BESIDE = {"prepare": "what was cut", "transcribe": "what was read"}
"""What some keep in a folder beside their output, once it is worth it."""


class Command(TyperCommand):
    """A command of `dsocr`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Typer does it; the words of pydantic, by which it reads numbers and choices, become ours."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = _in_our_words(error)
            raise
        except Exception as error:
            told: Any = error  # a usage error; typer gives no name to it
            if "unexpected extra argument" in getattr(told, "message", ""):
                how = "a setting stands behind --set" if "=" in told.message else "a path with spaces stands in quotes"
                told.message += f": {how}"
            raise

    def invoke(self, ctx: Any) -> Any:
        """As Typer does it; ended by Ctrl-C it says what is kept, and exits with 130."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            Printer().complain(f"interrupted: {_kept(self.name or '', ctx.params)}")
            raise typer.Exit(130) from None


def _in_our_words(error: typer.BadParameter) -> str:
    """Of what is missing, what it is; of a bad value, our sentence."""
    if not error.message:
        return getattr(error.param, "help", None) or ""
    from pydantic import ValidationError

    from dsocr.config import problems_in

    cause = error.__cause__
    return problems_in(cause)[0] if isinstance(cause, ValidationError) else error.message


def _kept(name: str, options: dict[str, Any]) -> str:
    from dsocr.io.atomic import work_path

    if name in _BESIDE and work_path(Path(options["out"])).exists():
        return f"{_BESIDE[name]} is kept, and the same command goes on with it"
    return _KEPT.get(name, _BEGINS_AGAIN)
