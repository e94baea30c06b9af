"""Options that several commands have, and the application they are registered with."""

from typing import Annotated

import typer

app = typer.Typer(
    help="Teach DeepSeek-OCR to read a particular handwriting.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)

Encoding = Annotated[str | None, typer.Option(help="Of text files and tables that are not UTF-8, e.g. cp1251.")]
Format = Annotated[
    str | None,
    typer.Option("--format", help="The source's format; found out if not given; `dsocr sources` lists them."),
]
Writer = Annotated[str | None, typer.Option("--writer", help="Who wrote it: a column, or a pattern over file names.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting: section.key=value; may come several times.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first fault instead of counting and listing it.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier command made there.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes to work in; one a core if not given.")]
