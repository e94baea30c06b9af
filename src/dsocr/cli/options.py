"""Options that several commands have, and the application they are registered with."""

from typing import Annotated

import typer

app = typer.Typer(
    help="Teach DeepSeek-OCR to read a particular handwriting.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Encoding = Annotated[str | None, typer.Option(help="Of text files and tables that are not UTF-8, e.g. cp1251.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first fault instead of counting and listing it.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier command made there.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes to work in; one a core if not given.")]
