"""Curves of runs: what is read, what is marked, what is refused."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from dsocr.errors import DataError, RunError
from dsocr.history import elapsed_until, read_history
from dsocr.pages.curves import plots, render_page, write_curves
from dsocr.runs import RunFolder


def make_run(folder: Path, best: float = 0.2, *, tail: str = "") -> Path:
    """A run folder of thirty steps, of which step 20 read best."""
    folder.mkdir(parents=True)
    rows: list[dict[str, object]] = []
    for step in (10, 20, 30):
        training = {"loss": 3 / step, "learning_rate": 1e-4, "gradient_norm": None, "elapsed_seconds": 6.0 * step}
        rows.append({"kind": "train", "step": step, **training})
        cer = best if step == 20 else best + 0.1
        rows.append({"kind": "validation", "step": step, "loss": 0.5, "cer": cer, "elapsed_seconds": 6.0 * step})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text + tail, encoding="utf-8")
    return folder


def test_a_page_has_the_curves_of_all_runs_and_marks_the_best(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "один"), make_run(tmp_path / "<b>two", 0.1)]
    found = write_curves(runs, tmp_path / "curves.html")
    assert [history.best and history.best["step"] for history in found] == [20, 20]
    page = (tmp_path / "curves.html").read_text(encoding="utf-8")
    assert "один" in page
    assert "<b>two" not in page
    assert page.count("best 10<") == page.count("best 20<") == 2, "over steps and over minutes"
    for svg in re.findall(r"<svg.*?</svg>", page):
        tree = ElementTree.fromstring(svg)
        assert len(tree.findall("polyline")) == 2
    assert "http:" not in page
    assert "<script" not in page


def test_points_stand_where_their_numbers_say(tmp_path: Path) -> None:
    history = read_history(make_run(tmp_path / "run"))
    loss = next(plot for plot in plots([history]) if plot.title == "training loss" and plot.axis == "steps")
    assert loss.lines[0].points == [(10, 0.3), (20, 0.15), (30, 0.1)]
    over_time = next(plot for plot in plots([history]) if plot.title == "training loss" and plot.axis == "minutes")
    assert [x for x, _ in over_time.lines[0].points] == pytest.approx([1, 2, 3])
    assert not any(plot.title == "gradient norm" for plot in plots([history])), "what was never measured is not drawn"


def test_a_picture_shows_each_run_in_its_colour(tmp_path: Path) -> None:
    write_curves([make_run(tmp_path / "a"), make_run(tmp_path / "b", 0.4)], tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as image:
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20) or []}
    assert {(0x1F, 0x5F, 0xA8), (0xC2, 0x50, 0x1C)} <= colours


def test_a_resumed_runs_later_rows_count_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    again = json.dumps({"kind": "train", "step": 30, "loss": 9.0, "learning_rate": 0, "elapsed_seconds": 500.0})
    history = read_history(make_run(tmp_path / "run", tail=f'{again}\n{{"kind": "tra'))
    assert [row["loss"] for row in history.training] == [0.3, 0.15, 9.0]
    assert elapsed_until(RunFolder(tmp_path / "run"), 20) == 120.0
    assert elapsed_until(RunFolder(tmp_path / "run"), 0) == 0.0
    assert elapsed_until(RunFolder(tmp_path / "none"), 5) == 0.0


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    found = write_curves([make_run(tmp_path / "a" / "run"), make_run(tmp_path / "b" / "run")], tmp_path / "c.html")
    assert len({history.name for history in found}) == 2


@pytest.mark.parametrize("given", [".", "../письма", "checkpoints/.."])
def test_a_run_has_its_name_however_it_is_given(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "письма")
    (run / "checkpoints").mkdir()
    monkeypatch.chdir(run)
    (history,) = write_curves([Path(given)], tmp_path / "curves.html")
    assert history.name == "письма"


def test_a_flat_curve_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    row = {"kind": "train", "step": 1, "loss": 0.0, "learning_rate": 0.0}
    (tmp_path / "run" / "metrics.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    history = read_history(tmp_path / "run")
    assert "<polyline" in render_page([history])


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(DataError, match=r"are \.html or \.png"):
        write_curves([run], tmp_path / "curves.svg")
    with pytest.raises(DataError, match="no such folder"):
        write_curves([run], tmp_path / "nowhere" / "curves.html")
    with pytest.raises(RunError, match=r"has no metrics\.jsonl"):
        read_history(tmp_path)
    (run / "metrics.jsonl").write_text('{"loss": 1}\n{"kind": "train", "step": 1}\n', encoding="utf-8")
    with pytest.raises(RunError, match=r"metrics\.jsonl:1: is not a row"):
        read_history(run)
    (run / "metrics.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(RunError, match="no step of a training"):
        read_history(run)


def test_a_guard_sets_curve_begins_with_the_base(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    row = {"kind": "validation", "step": 40, "loss": 0.5, "cer": 0.1, "guard_cer": 0.05, "guard_base_cer": 0.02}
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    drawn = [plot for plot in plots([read_history(run)]) if plot.title.startswith("guard")]
    assert drawn[0].lines[0].points == [(0, 2.0), (40, 5.0)]
