"""The commands: for each its public function, its place in the help, and how its result is printed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dsocr.cli import printing
from dsocr.console import Printer

GROUPS = ("Data", "Train", "Judge", "Read", "Share", "Setup")
"""Groups of commands, in the order of `dsocr --help`."""
AGAIN = "run the same command, without --overwrite"


@dataclass(frozen=True, slots=True)
class Switch:
    """An option that calls another function, with the same arguments or, if it is `alone`, with none."""

    name: str
    help: str
    function: str
    show: Callable[[Printer, Any], None] | None = None
    fails: Callable[[Any], bool] = lambda result: False
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command: the place of its public `function`, and sentences on the state after Ctrl-C, also with a journal.

    `show` prints the result; None if the function prints while it runs. `fails` decides on exit code 1. `inputs` may be
    left out if `run_is_optional`: the first of them then stands in the place of the run.
    """

    group: str
    summary: str
    function: str
    show: Callable[[Printer, Any], None] | None
    examples: tuple[str, str]
    switches: tuple[Switch, ...] = ()
    to_json: Callable[[Any], object] = lambda result: result.to_dict()
    fails: Callable[[Any], bool] = lambda result: False
    kept: str = "nothing half-made is left; run the same command again to start over"
    journal: str = ""
    run_is_optional: bool = False


COMMANDS = {
    "prepare": Command(
        "Data",
        "Make a dataset from scans and transcriptions.",
        "dsocr:prepare",
        printing.prepared,
        ("dsocr prepare scans -o data/mine", r"dsocr prepare export.zip -o data/mine --writer '(\w+?)_\d+'"),
        switches=(Switch("formats", "List the formats and exit.", "dsocr.cli.printing:list_formats", is_alone=True),),
        journal="prepared images are kept",
    ),
    "check": Command(
        "Data",
        "Find problems of a dataset before training, and report the splits. Exits with 1 if there are errors.",
        "dsocr:check",
        printing.checked,
        ("dsocr check data/mine --html check.html", "dsocr check data/mine --fix -o data/fixed"),
        fails=lambda report: bool(report.findings.of("error")),
    ),
    "align": Command(
        "Data",
        "Make a dataset from scans and a text without lines: an edition, a typed diary.",
        "dsocr:align",
        printing.aligned,
        ("dsocr align scans edition.docx -o data/mine", "dsocr align scans texts -o data/mine --rounds 3"),
        journal="pages that were read and readers that were trained are kept",
    ),
    "audit": Command(
        "Data",
        "Find lines whose transcription is wrong. Every line is read by a model that never saw it.",
        "dsocr:audit",
        printing.audited,
        (
            "dsocr audit data/mine",
            "dsocr audit data/mine -o runs/audit --set base=runs/other --set training.max_steps=200",
        ),
        kept=f"trained and read folds are kept; {AGAIN}, to resume",
    ),
    "preview": Command(
        "Data",
        "Show training samples with their augmentation.",
        "dsocr:preview",
        printing.previewed,
        to_json=lambda config: config.model_dump(mode="json"),
        examples=(
            "dsocr preview data/mine -o preview.html",
            "dsocr preview mine.yaml --as-model --set training.augmentation=light",
        ),
    ),
    "convert": Command(
        "Data",
        "Write transcriptions in another format.",
        "dsocr:convert",
        printing.converted,
        ("dsocr convert data/mine -o pages --to page", "dsocr convert scans -o table --to tsv"),
    ),
    "train": Command(
        "Train",
        "Train a reader, or resume an interrupted run.",
        "dsocr:train",
        printing.trained,
        (
            "dsocr train deepseek_ocr --set dataset=data/mine --set output=runs/mine",
            "dsocr train data/mine --dry-run",
        ),
        switches=(
            Switch(
                "dry_run",
                "Only check that it would learn and fit, and how long it would take.",
                "dsocr:dry_run",
                printing.planned,
                fails=lambda result: bool(result.errors),
            ),
        ),
        kept=f"checkpoints are kept; {AGAIN}, to resume from the last one",
    ),
    "init": Command(
        "Train",
        "Write a recipe to edit. An unknown name lists the recipes.",
        "dsocr:init",
        printing.recipe_written,
        ("dsocr init deepseek_ocr", "dsocr init lighton_ocr_3 -o mine.yaml"),
        to_json=str,
    ),
    "forecast": Command(
        "Train",
        "Forecast the gain of more lines. Trains on a quarter, a half and all, and extends the learning curve.",
        "dsocr:forecast",
        printing.forecasted,
        ("dsocr forecast mine.yaml", "dsocr forecast mine.yaml --more 500"),
        kept=f"finished runs are kept; {AGAIN}, to resume",
    ),
    "demo": Command(
        "Train",
        "Go from shipped pages to scores and transcriptions. Takes a few minutes without a GPU.",
        "dsocr.cli.demo:demo",
        None,
        ("dsocr demo", "dsocr demo -o runs/first"),
    ),
    "evaluate": Command(
        "Judge",
        "Score a run on lines it never saw, beside its base.",
        "dsocr:evaluate",
        printing.evaluated,
        ("dsocr evaluate runs/mine", "dsocr evaluate data/mine --folds"),
        switches=(
            Switch(
                "folds",
                "Score all lines: train as the run on all folds but one, for each, and read that one.",
                "dsocr:cross_validate",
                printing.evaluated,
            ),
            Switch(
                "layout",
                "Score a detector: how many of the lines of a page it finds.",
                "dsocr:evaluate_layout",
                printing.evaluated_layout,
            ),
        ),
        kept="no scores are written; run the same command again",
    ),
    "compare": Command(
        "Judge",
        "Compare models, and test whether the difference is significant. Scores predictions for the same lines.",
        "dsocr:compare",
        printing.compared,
        ("dsocr compare runs/first runs/second", "dsocr compare runs/mine other=predictions.tsv -o page.html"),
    ),
    "read": Command(
        "Read",
        "Print the lines of photos, and how many letters are likely wrong. Exits with 1 if one cannot be read.",
        "dsocr:read",
        printing.read,
        ("dsocr read photo.jpg", "dsocr read book.pdf --run runs/mine"),
        fails=lambda report: bool(report.failed),
    ),
    "transcribe": Command(
        "Read",
        "Transcribe scans. Resumes a transcription that was interrupted.",
        "dsocr:transcribe",
        printing.transcribed,
        ("dsocr transcribe runs/mine scans -o texts.txt", "dsocr transcribe runs/mine scans -o out --format page"),
        run_is_optional=True,
        journal="transcribed pages are kept",
    ),
    "workbench": Command(
        "Read",
        "Correct transcriptions in a browser. Trains on the corrections, and shows the least certain lines first.",
        "dsocr:open_workbench",
        None,
        ("dsocr workbench scans --run runs/mine", "dsocr workbench scans --run runs/mine --language ru"),
        kept="the workbench has stopped; corrections are kept, run the same command to continue",
    ),
    "export": Command(
        "Share",
        "Export a run for other programs.",
        "dsocr:export",
        printing.exported,
        ("dsocr export runs/mine -o models/mine", "dsocr export runs/mine -o models/mine --form merged"),
    ),
    "push": Command(
        "Share",
        "Publish a run or a dataset on the Hugging Face Hub.",
        "dsocr:push",
        printing.published,
        (
            "dsocr push runs/mine owner/name --license cc-by-4.0 --dry-run",
            "dsocr push data/mine owner/name --license cc-by-4.0",
        ),
    ),
    "serve": Command(
        "Share",
        "Serve a model over HTTP. OpenAI clients work too; DSOCR_TOKEN holds the token that clients must send.",
        "dsocr:serve",
        None,
        ("dsocr serve runs/mine", "dsocr serve runs/mine runs/other --port 8001 --deadline 30"),
        kept="the server has stopped; run the same command to start it again",
    ),
    "doctor": Command(
        "Setup",
        "Show what this machine has and lacks. Exits with 1 if dsocr cannot run.",
        "dsocr:examine",
        printing.examined,
        ("dsocr doctor", "dsocr doctor --json"),
        to_json=printing.examined_as_json,
        fails=lambda facts: any(fact.fatal for fact in facts),
    ),
}
