"""Every command that reads keeps to the script that it is given, or that the lines of its job decide."""

import json
import shutil
from pathlib import Path

import pytest

import dsocr
from dsocr.data.dataset import SourceReport
from dsocr.evaluation.scores import load_lines
from dsocr.images import open_image
from dsocr.models.scripts import SCRIPTS, describe_script
from dsocr.options import ScriptName
from dsocr.runs import RunFolder
from dsocr.server.engine import ServedModels
from dsocr.text import letter_script
from dsocr.workbench.archive import import_pages, open_archive
from dsocr.workbench.background import load_reader
from dsocr.workbench.store import open_store
from tests.integration.calling import Call
from tests.models.test_scripts import write_both_scripts


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_both_scripts(tmp_path / "both")


def scripts(*texts: str) -> set[str]:
    """The scripts of all letters."""
    return {script.lower() for letter in "".join(texts) if (script := letter_script(letter))}


@pytest.mark.parametrize("script", ["latin", "cyrillic", None])
def test_commands_keep_to_a_script_and_state_one_that_is_decided(
    script: ScriptName | None,
    base: Path,
    call: Call,
    small_dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    images = tmp_path / "images"
    images.mkdir()
    for name in ("test-0.png", "test-1.png", "train-0.png"):
        shutil.copy(small_dataset.parent / "source" / name, images)
    given = [] if script is None else ["--script", script]

    out, _ = call("evaluate", base, "--dataset", small_dataset, "--no-report", "--json", *given)
    card = json.loads(out)
    kept = card["settings"]["generation"]["script"]
    assert kept == script or (script is None and kept != "auto")
    assert any(describe_script(kept) == note and note.isprintable() for note in card["notes"]) is (script is None)
    if kept in SCRIPTS:
        (lines,) = load_lines(RunFolder(Path("runs/both-dataset")).lines).values()
        assert scripts(*(line.prediction for line in lines)) == {kept}

    call("transcribe", base, images, "-o", "texts.jsonl", "--images", "line", *given)
    transcribed = [json.loads(row)["text"] for row in Path("texts.jsonl").read_text("utf-8").splitlines()]
    reader = dsocr.load(base)
    assert [line.text for line in reader.read(sorted(images.iterdir()), script=script)] == transcribed
    if script is None:
        return
    assert scripts(*transcribed) == {script}
    assert scripts(*(line.text for line in reader.read(sorted(images.iterdir()), script=script))) == {script}
    served = ServedModels({"both": base}, script=script)
    line = open_image(images / "test-0.png").convert("RGB")
    assert [read.text for read in served.read("both", [("1", line)])] == [reader.read(line, script=script).text]


def test_the_pages_of_a_workbench_decide_for_lines_that_leave_it_open(
    base: Path, small_dataset: Path, tmp_path: Path
) -> None:
    source = tmp_path / "images"
    source.mkdir()
    for number in range(8):
        shutil.copy(small_dataset.parent / "source" / "test-0.png", source / f"{number}.png")
    with open_store(tmp_path / "corrections.sqlite") as store, open_archive(store, source, tmp_path / "new") as archive:
        import_pages(store, archive, SourceReport(strict=False))
        reader = load_reader(RunFolder.to_read_with(base), store, archive)
        assert reader.otherwise is not None
        assert reader.otherwise.script in {"latin", "cyrillic"}
        assert load_reader(RunFolder.to_read_with(base), store, archive, "any").generation.script == "any"
