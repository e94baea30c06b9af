"""The commands that make and look at datasets."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from dsocr.cli.options import Encoding, Format, Json, Overwrite, Quiet, Strict, Workers, Writer, app
from dsocr.console import Printer


@app.command()
def prepare(
    source: Annotated[
        Path, typer.Argument(help="A folder of scans with transcriptions, a zip of it, a table, or hf:owner/name.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The dataset folder to make.")],
    format: Format = None,
    writer: Writer = None,
    page: Annotated[str | None, typer.Option(help="The page: a column, or a pattern over file names.")] = None,
    document: Annotated[
        str | None, typer.Option(help="What the page belongs to: a column, or a pattern over file names.")
    ] = None,
    split: Annotated[str, typer.Option(help="Fractions of train/validation/test.")] = "0.8/0.1/0.1",
    split_by: Annotated[
        str | None,
        typer.Option(
            help="What no two splits share: writer, document, page, text, writer+text, ...; the fairest if not given."
        ),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="What a sample is: line, region or page; what is transcribed if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 17,
    stratify: Annotated[bool, typer.Option(help="Draw splits that are alike in lengths and scripts.")] = True,
    folds: Annotated[int | None, typer.Option(help="Make so many folds; a configuration says which one tests.")] = None,
    fixed: Annotated[
        Path | None,
        typer.Option(help="A list, a writer, page or image a line, and after a tab its split; test if there is none."),
    ] = None,
    like: Annotated[
        Path | None, typer.Option(help="An earlier dataset: what it knows stays in its split, only the new is placed.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="A table's column, as image=NAME, text=NAME, writer=NAME, ...")
    ] = None,
    store: Annotated[str, typer.Option(help="How images are kept: files, or parquet for very many of them.")] = "files",
    workers: Workers = None,
    text_policy: Annotated[
        Path | None, typer.Option(help="A YAML file that says what is done to the transcriptions.")
    ] = None,
    struck: Annotated[str | None, typer.Option(help="Struck-out text: keep, strip or drop-line.")] = None,
    unclear: Annotated[str | None, typer.Option(help="Marks of unclear places: keep, strip or drop-line.")] = None,
    mojibake: Annotated[str | None, typer.Option(help="Texts read in a wrong encoding: keep or repair.")] = None,
    line_end_hyphens: Annotated[str | None, typer.Option(help="Words that a line's end breaks: keep or join.")] = None,
    encoding: Encoding = None,
    strict: Strict = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Make a dataset folder from scans and transcriptions."""
    from dsocr.commands.prepare import prepare_command

    prepare_command(
        Printer(quiet=quiet),
        source,
        out,
        format=format,
        writer=writer,
        page=page,
        document=document,
        split=split,
        split_by=split_by,
        unit=unit,
        seed=seed,
        stratify=stratify,
        folds=folds,
        fixed=fixed,
        like=like,
        columns=column or [],
        text_policy=text_policy,
        policy_settings={
            "struck": struck,
            "unclear": unclear,
            "mojibake": mojibake,
            "line_end_hyphens": line_end_hyphens,
        },
        encoding=encoding,
        store=store,
        workers=workers,
        strict=strict,
        overwrite=overwrite,
    )


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="What prepare reads, or a dataset folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make.")],
    to: Annotated[
        str, typer.Option(help="The format: page, page-2013, alto, tsv, parquet, ms-swift, llama-factory or unsloth.")
    ],
    format: Format = None,
    writer: Writer = None,
    page: Annotated[str | None, typer.Option(help="The page: a column, or a pattern over file names.")] = None,
    document: Annotated[
        str | None, typer.Option(help="What the page belongs to: a column, or a pattern over file names.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="A table's column, as image=NAME, text=NAME, writer=NAME, ...")
    ] = None,
    encoding: Encoding = None,
    strict: Strict = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write transcriptions in another format, for other programs."""
    from dsocr.commands.convert import convert_command

    convert_command(
        Printer(quiet=quiet),
        source,
        out,
        to=to,
        format=format,
        writer=writer,
        page=page,
        document=document,
        columns=column or [],
        encoding=encoding,
        strict=strict,
        overwrite=overwrite,
    )


@app.command()
def sources(quiet: Quiet = False) -> None:
    """List the formats that prepare reads, each with a command."""
    from dsocr.commands.prepare import sources_command

    sources_command(Printer(quiet=quiet))


@app.command()
def splits(
    dataset: Annotated[Path, typer.Argument(help="A dataset folder.")],
    fold: Annotated[int | None, typer.Option(min=1, help="Report the splits of this fold.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a page of Markdown.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say how a dataset is split, in words to quote. What crosses, and what of the test was seen in train."""
    from dsocr.commands.splits import splits_command

    splits_command(Printer(quiet=quiet), dataset, fold=fold, json=json, markdown=markdown)


@app.command()
def check(
    dataset: Annotated[Path, typer.Argument(help="A dataset folder, or a configuration that names one.")],
    base: Annotated[str, typer.Option(help="The base whose tokenizer must know the characters.")] = "nano",
    max_text_tokens: Annotated[int, typer.Option(min=1, help="The longest transcription, in tokens.")] = 512,
    html: Annotated[Path | None, typer.Option(help="Write the findings with their images to this page.")] = None,
    workers: Workers = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Put right what is certain, in a new dataset; then check it.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The dataset folder that --fix makes.")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look for what would spoil a training. Exits with 1 if there are errors."""
    from dsocr.commands.check import check_command

    code = check_command(
        Printer(quiet=quiet),
        dataset,
        base=base,
        max_text_tokens=max_text_tokens,
        html=html,
        json=json,
        workers=workers,
        fix=fix,
        out=out,
        overwrite=overwrite,
    )
    sys.exit(code)


@app.command()
def preview(
    data: Annotated[Path, typer.Argument(help="A dataset folder, or a configuration that names one.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The sheet to write: .html with texts, or .png with pictures alone.")
    ] = Path("preview.html"),
    samples: Annotated[int, typer.Option(min=1, max=200, help="Training samples to show, spread evenly.")] = 8,
    epochs: Annotated[int, typer.Option(min=1, max=50, help="Epochs to show each of them in.")] = 4,
    augmentation: Annotated[
        str | None,
        typer.Option(help="none, light, medium, strong or a number; if not given the configuration's, or medium."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The seed; the configuration's if not given.")] = None,
    as_model: Annotated[
        bool, typer.Option("--as-model", help="Show what the model sees, and in how many tokens.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Show samples as training will vary them."""
    from dsocr.commands.preview import preview_command

    preview_command(
        Printer(quiet=quiet),
        data,
        out,
        samples=samples,
        epochs=epochs,
        augmentation=augmentation,
        seed=seed,
        as_model=as_model,
    )


@app.command()
def synthesize(
    fonts: Annotated[Path, typer.Option(help="A folder of fonts: ttf, otf, woff, woff2.")],
    text: Annotated[Path, typer.Option(help="A text file in UTF-8: a line each, or running text.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The dataset folder to make.")],
    count: Annotated[int, typer.Option(min=1, help="How many lines to draw.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything that is drawn.")] = 17,
    augmentation: Annotated[
        str, typer.Option(help="none, light, medium, strong or a number: how they are varied.")
    ] = "light",
    split: Annotated[
        str, typer.Option(help="Fractions of train/validation/test; a font is in one only.")
    ] = "0.8/0.1/0.1",
    height: Annotated[int, typer.Option(min=16, max=512, help="About how many pixels high a line is.")] = 64,
    strict: Strict = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Draw lines of a text in your fonts, as a dataset folder."""
    from dsocr.commands.synthesize import synthesize_command

    synthesize_command(
        Printer(quiet=quiet),
        fonts,
        text,
        out,
        count=count,
        seed=seed,
        augmentation=augmentation,
        split=split,
        height=height,
        strict=strict,
        overwrite=overwrite,
    )
