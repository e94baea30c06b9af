"""The command that serves."""

from pathlib import Path
from typing import Annotated

import typer

from dsocr.cli.options import Quiet, app
from dsocr.console import Printer


@app.command()
def serve(
    runs: Annotated[list[Path], typer.Argument(help="Run or adapter folders of one base; the first is the default.")],
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8000,
    deadline: Annotated[float, typer.Option(min=1, help="Seconds that a request may take.")] = 60.0,
    waiting: Annotated[int, typer.Option(min=1, help="Images that may wait; more are answered 429.")] = 64,
    public: Annotated[bool, typer.Option("--public", help="Answer anybody, without a token.")] = False,
    shelf: Annotated[
        Path | None, typer.Option(help="A folder of runs that may be taken in while it runs, by those with the token.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Read images for other programs over HTTP. Also for clients of OpenAI; DSOCR_TOKEN holds the token to demand."""
    from dsocr.commands.serve import serve_command

    serve_command(
        Printer(quiet=quiet),
        runs,
        host=host,
        port=port,
        deadline=deadline,
        waiting=waiting,
        public=public,
        shelf=shelf,
    )
