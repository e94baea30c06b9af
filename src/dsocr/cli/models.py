"""The commands that train, score, read and export."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dsocr.cli.options import Json, Overwrite, Quiet, Settings, Strict, app
from dsocr.console import Printer
from dsocr.document import Split


@app.command()
def plan(
    config: Annotated[Path, typer.Argument(help="The YAML file; configs/ holds recipes.")],
    set_: Settings = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count tokens and steps of a training, measure its memory and time. Exits with 1 if it does not fit."""
    from dsocr.commands.training import plan_command

    sys.exit(plan_command(Printer(quiet=quiet or json), config, set_ or [], json=json))


@app.command()
def preflight(
    config: Annotated[Path, typer.Argument(help="The YAML file; configs/ holds recipes.")],
    set_: Settings = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prove that a training would learn, in seconds to minutes. Exits with 1, and the reason, where it would not."""
    from dsocr.commands.preflight import preflight_command

    sys.exit(preflight_command(Printer(quiet=quiet or json), config, set_ or [], json=json))


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="The YAML file; configs/ holds recipes.")],
    set_: Settings = None,
    overwrite: Overwrite = False,
    preflight: Annotated[bool, typer.Option(help="Try first whether it learns; cheap looks are always taken.")] = True,
    quiet: Quiet = False,
) -> None:
    """Train an adapter, or go on where training was interrupted."""
    from dsocr.commands.training import train_command

    train_command(Printer(quiet=quiet), config, set_ or [], overwrite=overwrite, preflight=preflight)


@app.command()
def curves(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, finished or not.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .html or .png.")] = Path("curves.html"),
    quiet: Quiet = False,
) -> None:
    """Draw the curves of runs over each other. Loss, CER and learning rate, over steps and over time."""
    from dsocr.commands.curves import curves_command

    curves_command(Printer(quiet=quiet), runs, out)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    dataset: Annotated[Path | None, typer.Option(help="Another dataset folder than the run's own.")] = None,
    split: Annotated[Split, typer.Option(help="The split to score.")] = Split.TEST,
    limit: Annotated[int | None, typer.Option(min=1, help="Score the first so many samples only.")] = None,
    base: Annotated[bool, typer.Option(help="Score the base beside the adapter.")] = True,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Fit the confidences again first, on the validation split.")
    ] = False,
    report: Annotated[bool, typer.Option(help="Write report.html, the page with the lines' pictures, too.")] = True,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score an adapter beside its base, on lines it never saw. Writes a scorecard into the run, and a report."""
    from dsocr.commands.reading import evaluate_command

    evaluate_command(
        Printer(quiet=quiet or json),
        run,
        dataset=dataset,
        split=split,
        limit=limit,
        with_base=base,
        calibrate=calibrate,
        report=report,
        json=json,
    )


@app.command()
def transcribe(
    run: Annotated[Path, typer.Argument(help="The run folder, or an exported adapter.")],
    inputs: Annotated[list[Path], typer.Argument(help="Images, PDF, ALTO or PAGE files, zip archives, or folders.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A file for all, whose ending says the format, or a folder.")
    ],
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="What to write into a folder: text, jsonl, page, ...; may come several times."),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="What the model is shown: line, region or page; as it was trained if not given.")
    ] = None,
    shows: Annotated[
        str | None, typer.Option("--images", help="What image files show: line or page; judged by shape if not given.")
    ] = None,
    segmenter: Annotated[
        str, typer.Option(help="Who finds the lines of page images: builtin, or kraken if it is installed.")
    ] = "builtin",
    engine: Annotated[
        str | None, typer.Option(help="Who reads: the address of a server, http://HOST:PORT/v1, or ray for a cluster.")
    ] = None,
    engine_model: Annotated[
        str | None, typer.Option(help="What the server calls the model; the run's name if not given.")
    ] = None,
    actors: Annotated[
        int | None, typer.Option(help="With --engine ray: how many read; one a graphics card or machine if not given.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Read lines again that have a text already.")] = False,
    shard: Annotated[str, typer.Option(help="Read one share of the pages, as 2/5: the second of five.")] = "1/1",
    review: Annotated[
        Path | None, typer.Option(help="Also write a list of all lines to this file, the most doubtful first.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that open pages, here; four where there are as many cores.")
    ] = None,
    strict: Strict = False,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read scans with a run's adapter. A transcription that was killed goes on where it was."""
    from dsocr.commands.transcribe import transcribe_command

    options: dict[str, Any] = {"unit": unit, "shows": shows, "segmenter": segmenter, "replace_texts": replace}
    options |= {"strict": strict, "overwrite": overwrite, "review": review, "workers": workers}
    transcribe_command(
        Printer(quiet=quiet or json),
        run,
        inputs,
        out,
        formats=formats or [],
        shard=shard,
        json=json,
        engine=engine,
        engine_model=engine_model,
        actors=actors,
        options=options,
    )


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    merged: Annotated[
        Path | None, typer.Option(help="The folder to write the base to, with the adapter merged in.")
    ] = None,
    adapter: Annotated[Path | None, typer.Option(help="The folder to write the adapter alone to.")] = None,
    for_: Annotated[
        str | None, typer.Option("--for", help="Who is to read the adapter: peft or vllm; peft if not given.")
    ] = None,
    scale: Annotated[float, typer.Option(min=0, max=1, help="Strength of the adapter in the export, up to 1.")] = 1.0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write what a run learnt for other programs. Merged weights for a server, or the adapter alone."""
    from dsocr.commands.export import export_command

    export_command(
        Printer(quiet=quiet), run, merged=merged, adapter=adapter, form=for_, scale=scale, overwrite=overwrite
    )


@app.command()
def doctor(json: Json = False, quiet: Quiet = False) -> None:
    """Say what this machine has for dsocr and what is missing. Exits with 1 if dsocr cannot work here."""
    from dsocr.commands.doctor import doctor_command

    sys.exit(doctor_command(Printer(quiet=quiet), json=json))


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="The run folder.")] = Path("runs/demo"),
    quiet: Quiet = False,
) -> None:
    """Train on the shipped handwriting and score it. The whole of dsocr in a few minutes, without a GPU."""
    from dsocr.commands.demo import demo_command

    demo_command(Printer(quiet=quiet), out)
