"""The commands: for each its group, the public functions that it calls, and how their results are printed."""

import sys
from typing import Any

import typer

from dsocr.cli import printing
from dsocr.cli.app import AGAIN, CommandSpec, Given, Mode
from dsocr.cli.demo import demo
from dsocr.console import Printer


def _ask(printer: Printer, given: Given) -> dict[str, Any]:
    """Let `push` show what it would send and ask, on a terminal."""

    def confirm(publication: Any) -> bool:
        printing.print_publication(printer, publication)
        return sys.stdin.isatty() and typer.confirm(f"Publish these files at {publication.url}?")

    return {"confirm": confirm}


def _to_dict(result: Any, given: Given) -> object:
    return result.to_dict()


COMMANDS = (
    CommandSpec(
        "prepare",
        "Data",
        "Make a dataset from scans and transcriptions.",
        (
            Mode("source_formats", printing.formats, switch="formats", switch_help="List the formats and exit."),
            Mode("prepare", printing.prepared),
        ),
        ("dsocr prepare scans -o data/mine", r"dsocr prepare export.zip -o data/mine --writer '(\w+?)_\d+'"),
        journal="prepared images are kept",
    ),
    CommandSpec(
        "check",
        "Data",
        "Find what would spoil a training, and report the splits. Exits with 1 if there are errors.",
        (
            Mode(
                "check",
                printing.checked,
                to_json=printing.checked_as_json,
                fails=lambda report: bool(report.findings.of("error")),
            ),
        ),
        ("dsocr check data/mine --html check.html", "dsocr check data/mine --fix -o data/fixed"),
    ),
    CommandSpec(
        "align",
        "Data",
        "Make a dataset from scans and a text without lines: an edition, a typed diary.",
        (Mode("align", printing.aligned, to_json=_to_dict),),
        ("dsocr align scans edition.docx -o data/mine", "dsocr align scans texts -o data/mine --rounds 3"),
        journal="pages that were read and readers that were trained are kept",
    ),
    CommandSpec(
        "audit",
        "Data",
        "Find lines whose transcription is wrong. Every line is read by a model that never saw it.",
        (Mode("audit", printing.audited, to_json=lambda audit, given: audit.to_dict(given["lines"])),),
        (
            "dsocr audit data/mine",
            "dsocr audit data/mine -o runs/audit --set base=runs/other --set training.max_steps=200",
        ),
        kept=f"trained and read folds are kept; {AGAIN}, to resume",
    ),
    CommandSpec(
        "preview",
        "Data",
        "Show training samples with their augmentation.",
        (Mode("preview", printing.previewed),),
        ("dsocr preview data/mine -o preview.html", "dsocr preview mine.yaml --as-model --augmentation strong"),
    ),
    CommandSpec(
        "convert",
        "Data",
        "Write transcriptions in another format.",
        (Mode("convert", printing.converted),),
        ("dsocr convert data/mine -o pages --to page", "dsocr convert scans -o table --to tsv"),
    ),
    CommandSpec(
        "train",
        "Train",
        "Train a reader, or resume an interrupted run.",
        (
            Mode(
                "dry_run",
                printing.planned,
                switch="dry_run",
                switch_help="Only check that it would learn and fit, and how long it would take.",
                to_json=_to_dict,
                fails=lambda result: bool(result.errors),
            ),
            Mode("train", printing.trained),
        ),
        (
            "dsocr train mine.yaml --set training.learning_rate=1e-3 --set output=runs/faster",
            "dsocr train data/mine --dry-run",
        ),
        kept=f"checkpoints are kept; {AGAIN}, to resume from the last one",
    ),
    CommandSpec(
        "forecast",
        "Train",
        "Forecast what more lines would bring. Trains on growing parts of the data and follows the learning curve.",
        (Mode("forecast", printing.forecasted, to_json=_to_dict),),
        ("dsocr forecast mine.yaml --more 500 --more 1000", "dsocr forecast mine.yaml --target 0.05"),
        kept=f"finished trainings are kept; {AGAIN}, to resume",
    ),
    CommandSpec(
        "demo",
        "Train",
        "Go from shipped pages to scores and transcriptions. Takes a few minutes without a GPU.",
        (Mode(demo, printing.nothing),),
        ("dsocr demo", "dsocr demo --base nano -o runs/first"),
    ),
    CommandSpec(
        "evaluate",
        "Judge",
        "Score a run on lines it never saw, beside its base.",
        (
            Mode(
                "evaluate_layout",
                printing.evaluated_layout,
                switch="layout",
                switch_help="Score a detector: how many of the lines of a page it finds.",
                to_json=_to_dict,
            ),
            Mode("evaluate", printing.evaluated, to_json=_to_dict),
        ),
        ("dsocr evaluate runs/mine", "dsocr evaluate data/mine --folds"),
        kept="no scores are written; run the same command again",
    ),
    CommandSpec(
        "report",
        "Judge",
        "Write the report of an evaluated run.",
        (Mode("report", printing.reported, to_json=printing.reported_as_json),),
        ("dsocr report runs/mine", "dsocr report runs/mine --markdown"),
    ),
    CommandSpec(
        "compare",
        "Judge",
        "Compare models, and test whether the difference is significant. Scores predictions for the same lines.",
        (Mode("compare", printing.compared, to_json=_to_dict),),
        ("dsocr compare runs/first runs/second", "dsocr compare runs/mine other=predictions.tsv -o page.html"),
    ),
    CommandSpec(
        "transcribe",
        "Read",
        "Transcribe scans. Resumes a transcription that was interrupted.",
        (Mode("transcribe", printing.transcribed, to_json=printing.transcribed_as_json),),
        ("dsocr transcribe runs/mine scans -o texts.txt", "dsocr transcribe runs/mine scans -o out --format page"),
        journal="transcribed pages are kept",
    ),
    CommandSpec(
        "suggest",
        "Read",
        "Suggest which lines to transcribe by hand next. Uncertain lines, new writers and rare characters come first.",
        (Mode("suggest", printing.suggested, to_json=printing.suggested_as_json),),
        ("dsocr suggest runs/mine new_scans -o queue", "dsocr suggest runs/mine export.zip -o queue --count 200"),
    ),
    CommandSpec(
        "workbench",
        "Read",
        "Correct transcriptions in a browser. Trains on the corrections, and shows the least certain lines first.",
        (Mode("open_workbench", printing.nothing),),
        ("dsocr workbench scans --run runs/mine", "dsocr workbench scans --run runs/mine --language ru"),
        kept="the workbench has stopped; corrections are kept, run the same command to continue",
    ),
    CommandSpec(
        "export",
        "Share",
        "Export a run for other programs, or publish a run or a dataset on the Hub.",
        (
            Mode("push", printing.published, switch="repo", more=_ask, as_options=("repo",)),
            Mode("export", printing.exported),
        ),
        (
            "dsocr export runs/mine -o models/mine --form merged",
            "dsocr export runs/mine --push owner/name --license cc-by-4.0 --dry-run",
        ),
    ),
    CommandSpec(
        "serve",
        "Share",
        "Serve a model over HTTP. OpenAI clients work too; DSOCR_TOKEN holds the token that clients must send.",
        (Mode("serve", printing.nothing),),
        ("dsocr serve runs/mine", "dsocr serve runs/mine runs/other --port 8001 --deadline 30"),
        kept="the server has stopped; run the same command to start it again",
    ),
    CommandSpec(
        "doctor",
        "Setup",
        "Show what this machine has and lacks. Exits with 1 if dsocr cannot run.",
        (
            Mode(
                "examine",
                printing.examined,
                to_json=printing.examined_as_json,
                fails=lambda facts: any(fact.fatal for fact in facts),
            ),
        ),
        ("dsocr doctor", "dsocr doctor --json"),
    ),
)
