"""The detector of lines learns from pages: targets, loss, a whole training, resuming, scores, and what is refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dsocr
from dsocr.data.dataset import Dataset, SourceReport
from dsocr.data.prepare import prepare
from dsocr.document import Outline
from dsocr.evaluation.layout_scores import LineCounts, count_lines, match_lines
from dsocr.layout import choose_segmenter, identify_segmenter
from dsocr.layout.detector_network import load_detector
from dsocr.layout.lines import draw_lines, find_outlines
from dsocr.layout.text_detector import keep_detector
from dsocr.runs import SHIPPED_DETECTOR, RunFolder, read_history
from dsocr.training.detector import detection_loss
from dsocr.workbench.archive import detect_outlines, import_pages, open_archive
from dsocr.workbench.store import open_store
from pretrain_detector import write as write_detector
from tests.data.making import write
from tests.data.zigzag_pages import LINES, strips
from tests.inference.reading_pages import fake_run
from tests.raising import raises_code
from tests.training.test_trainer import Recorder

QUICK: dict[str, Any] = {
    "base": "detector",
    "max_steps": 2,
    "validation": {"every_steps": 1},
    "checkpoints": {"every_steps": 1},
    "report_to": [],
    "threads": 1,
}


def box(left: int, top: int, right: int, bottom: int) -> Outline:
    return Outline.of_polygon(((left, top), (right, top), (right, bottom), (left, bottom)))


def layouts_of(source: Path, output: Path) -> Dataset:
    return prepare(source, output, unit="layout", split="0.5/0.25/0.25", workers=1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with scans, the dataset made of them, and a finished run."""
    folder = tmp_path_factory.mktemp("layout")
    dataset = layouts_of(strips(folder / "scans"), folder / "data")
    dsocr.train(dataset=dataset, output=folder / "run", **QUICK)
    return folder


def files_of(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((run / "model").iterdir())}


# What is learnt


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([box(50, 100, 700, 150), box(50, 160, 700, 210)], id="two lines"),
        pytest.param([box(50, 100, 700, 150), box(50, 130, 700, 180)], id="outlines that overlap"),
        pytest.param([box(50, 100, 330, 150), box(520, 100, 800, 150)], id="two columns"),
        pytest.param([box(50, 100, 90, 150), box(50, 170, 90, 220)], id="single figures"),
        pytest.param([box(900, 100, 940, 600), box(50, 100, 700, 150)], id="a line along the side"),
        pytest.param(
            [Outline.of_polygon(((50, 100), (700, 160), (700, 210), (50, 150)), ((60, 135), (690, 195)))], id="skewed"
        ),
    ],
)
def test_what_is_drawn_is_found_again(lines: list[Outline]) -> None:
    drawn = draw_lines(lines, (1000, 800), (800, 1000)).astype(np.float32)
    assert count_lines(lines, find_outlines(drawn, (1000, 800))) == LineCounts(len(lines), len(lines), len(lines))


def test_lines_are_drawn_at_the_size_of_the_network() -> None:
    whole = draw_lines([box(100, 200, 700, 300)], (1000, 800), (800, 1000))
    half = draw_lines([box(100, 200, 700, 300)], (1000, 800), (400, 500))
    assert half.shape == (400, 500)
    assert half.sum() == pytest.approx(whole.sum() / 4, rel=0.1)  # borders are drawn too


def test_the_loss_is_what_is_computed_by_hand() -> None:
    probabilities = torch.tensor([0.9, 0.2, 0.8, 0.1, 0.1, 0.1]).reshape(1, 1, 1, 6)
    lines = torch.tensor([1.0, 0, 0, 0, 0, 0]).reshape(1, 1, 1, 6)
    # One pixel in a line, so the three hardest of the others count: 0.8, 0.2 and one of 0.1.
    entropy = -(np.log(0.9) + np.log(1 - 0.8) + np.log(1 - 0.2) + np.log(1 - 0.1)) / 4
    # At the threshold of 0.3, steepness 50: 0.9 and 0.8 are in, 0.2 and 0.1 are out but for 0.0067 and 0.00005.
    binary = [1 / (1 + np.exp(-50 * (p - 0.3))) for p in (0.9, 0.2, 0.8, 0.1, 0.1, 0.1)]
    dice = 1 - (2 * binary[0] + 1) / (sum(binary) + 1 + 1)
    assert float(detection_loss(probabilities, lines)) == pytest.approx(entropy + dice, abs=1e-5)
    assert float(detection_loss(lines.clamp(1e-6, 1 - 1e-6), lines)) == pytest.approx(0, abs=1e-3)
    assert np.isfinite(float(detection_loss(probabilities, torch.zeros_like(lines))))


@pytest.mark.parametrize(
    ("found", "overlaps"),
    [
        pytest.param([box(0, 0, 300, 60)], [1.0], id="the same"),
        pytest.param([box(150, 0, 450, 60)], [1 / 3], id="half as much beside it"),
        pytest.param([box(0, 0, 300, 60), box(0, 0, 300, 60)], [1.0], id="found twice"),
        pytest.param([box(0, 90, 300, 150)], [], id="elsewhere"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_overlaps_of_lines(found: list[Outline], overlaps: list[float]) -> None:
    assert match_lines([box(0, 0, 300, 60)], found) == pytest.approx(overlaps, abs=0.03)


def test_rates_of_counts() -> None:
    counts = LineCounts(8, 5, 4) + LineCounts(2, 0, 0)
    assert (counts.recall, counts.precision) == (0.4, 0.8)
    assert counts.f1 == pytest.approx(8 / 15)
    assert LineCounts().f1 == 1


# A run


def test_a_training_changes_the_weights_and_writes_a_run(trained: Path) -> None:
    run = trained / "run"
    rows = read_history(run).validation
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert 0 <= rows[-1]["f1"] <= 1
    shipped, learnt = (load_detector(folder).state_dict() for folder in (SHIPPED_DETECTOR, run / "model"))
    changed = {name for name in shipped if not torch.equal(shipped[name], learnt[name])}
    assert any(name.startswith("head") for name in changed)
    assert not {name for name in changed if "running" in name}, "statistics stay those of the base"


def test_a_run_resumes_to_the_same_bytes(trained: Path, tmp_path: Path) -> None:
    def end(*_: object) -> None:
        raise KeyboardInterrupt

    hook = Recorder(2, end)
    with pytest.raises(KeyboardInterrupt):
        dsocr.train(dataset=trained / "data", output=tmp_path / "run", callbacks=[hook], **QUICK)
    assert not (tmp_path / "run" / "model").exists()
    run = dsocr.train(dataset=trained / "data", output=tmp_path / "run", **QUICK)
    assert run.result is not None
    assert run.result.resumed_from == 1
    assert files_of(tmp_path / "run") == files_of(trained / "run")


def test_scores_of_a_run_beside_the_shipped_detector(trained: Path) -> None:
    scores = dsocr.evaluate_layout(trained / "run")
    assert scores.counts.drawn == 3
    assert scores.base is not None
    assert scores.base.drawn == 3
    assert list(scores.documents) == [scores.pages[0].document]
    assert (trained / "run" / "layout.json").is_file()
    alone = dsocr.evaluate_layout("detector", dataset=trained / "data")
    assert (alone.counts, alone.base) == (scores.base, None)


def test_a_run_goes_on_from_another_and_the_pages_that_both_learnt_are_counted(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, again = trained / "run", {**QUICK, "base": str(trained / "run"), "max_steps": 1}
    second = dsocr.train(dataset=layouts_of(trained / "scans", tmp_path / "data"), output=tmp_path / "run", **again)
    assert second.history.validation[0]["f1"] == max(row["f1"] for row in read_history(source).validation)
    for run in (source, second.path):
        capsys.readouterr()
        dsocr.evaluate_layout(run, dataset=trained / "data", split="train", base=False)
        assert "trained on 2 of these pages" in capsys.readouterr().err
        dsocr.evaluate_layout(run, dataset=trained / "data", base=False)
        assert "trained on" not in capsys.readouterr().err


def test_other_pages_are_scored_where_those_that_a_run_learnt_are_gone(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunFolder(shutil.copytree(trained / "run", tmp_path / "run"))
    config = run.config.read_text(encoding="utf-8")
    run.config.write_text(config.replace((trained / "data").as_posix(), "moved/data"), encoding="utf-8")
    scores = dsocr.evaluate_layout(run.path, dataset=trained / "data", base=False)
    assert scores.counts == dsocr.evaluate_layout(trained / "run", base=False).counts
    assert run.layout.is_file()
    warning = capsys.readouterr().err
    assert "not known whether" in warning
    assert "moved/data" in warning


def test_a_run_finds_the_lines_of_scans(trained: Path) -> None:
    content = (trained / "scans" / "p0.png").read_bytes()
    assert choose_segmenter(str(trained / "run"))(content, "p")
    before = identify_segmenter(str(trained / "run"))
    assert identify_segmenter("ppocr") == "ppocr"
    assert before.startswith(str(trained / "run"))
    assert before != str(trained / "run")


def test_the_workbench_finds_lines_with_a_run(trained: Path, tmp_path: Path) -> None:
    scans = tmp_path / "scans"
    scans.mkdir()
    content = (trained / "scans" / "p0.png").read_bytes()
    (scans / "p0.png").write_bytes(content)
    detect = choose_segmenter(str(trained / "run"))
    with (
        open_store(tmp_path / "corrections.sqlite") as store,
        open_archive(store, scans, tmp_path / "unpacked", detect=detect) as archive,
    ):
        detected = [line.outline for line in archive.detect(content, "p0.png")]
        assert detected == [line.outline for line in detect(content, "p0.png")]
        import_pages(store, archive, SourceReport(strict=True))
        (page,) = store.pages()
        assert detect_outlines(archive, page) == detected


def test_a_detector_that_was_trained_again_into_its_folder_is_loaded_again(trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained / "run", tmp_path / "run")
    before = keep_detector(run / "model")
    assert keep_detector(run / "model") is before
    shutil.rmtree(run / "model")
    shutil.copytree(SHIPPED_DETECTOR, run / "model")
    after = keep_detector(run / "model")
    page = np.random.default_rng(0).uniform(-1, 1, (3, 64, 64)).astype(np.float32)
    assert (before(page) != after(page)).any()


def test_the_shipped_weights_are_a_blend_in_half_precision(trained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(SHIPPED_DETECTOR, tmp_path / "detector")
    write_detector(trained / "run", folder, 0.75)
    start, learnt, blend = (
        load_detector(path).state_dict() for path in (SHIPPED_DETECTOR, trained / "run/model", folder)
    )
    weight = "head.conv_up.convolution.weight"
    assert not torch.equal(start[weight], learnt[weight])
    expected = (start[weight] + 3 * learnt[weight]) / 4
    torch.testing.assert_close(blend[weight], expected, rtol=1e-3, atol=1e-5)
    assert (folder / "model.safetensors").stat().st_size < 6_000_000


# What is refused


def test_damaged_weights_are_named(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "run", tmp_path / "run")
    weights = tmp_path / "run" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\1\2\3")
    with raises_code("adapter-damaged"):
        choose_segmenter(str(tmp_path / "run"))


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        pytest.param({"adapter": {"r": 4}}, "detector-setting", id="a setting of adapters"),
        pytest.param({"augmentation": "light"}, "detector-setting", id="a setting of images of lines"),
        pytest.param({"training.batch_size": 2, "micro_batch_size": 2}, "detector-setting", id="pages of other sizes"),
        pytest.param({"base": "nano"}, "dataset-is-layout", id="a reader"),
    ],
)
def test_settings_that_a_detector_has_no_use_for(
    settings: dict[str, Any], code: str, trained: Path, tmp_path: Path
) -> None:
    with raises_code(code):
        dsocr.train(dataset=trained / "data", output=tmp_path / "run", **{**QUICK, **settings})
    assert not (tmp_path / "run").exists()


def test_a_detector_does_not_learn_from_images_of_lines(small_dataset: Path, tmp_path: Path) -> None:
    with raises_code("dataset-not-layout"):
        dsocr.train(dataset=small_dataset, output=tmp_path / "run", **QUICK)
    with raises_code("dataset-not-layout"):
        dsocr.evaluate_layout("detector", dataset=small_dataset)


def test_lines_that_no_detector_could_tell_apart(tmp_path: Path) -> None:
    dots = tuple((x, 20, x + 3, 23) for x in range(40, 900, 12))
    dataset = layouts_of(strips(tmp_path / "scans", dots), tmp_path / "data")
    with raises_code("layout-unlearnable"):
        dsocr.train(dataset=dataset, output=tmp_path / "run", **QUICK)


def test_lines_that_are_lost_are_counted_in_the_log(tmp_path: Path) -> None:
    dots = tuple((x, 36, x + 3, 39) for x in range(40, 900, 12))
    dataset = layouts_of(strips(tmp_path / "scans", (*LINES[:2], *dots)), tmp_path / "data")
    run = dsocr.train(dataset=dataset, output=tmp_path / "run", **{**QUICK, "max_steps": 1})
    assert "too close to others" in RunFolder(run.path).log.read_text(encoding="utf-8")


@pytest.mark.parametrize("function", [dsocr.forecast, dsocr.dry_run])
def test_what_only_readers_can(function: Any, trained: Path, tmp_path: Path) -> None:
    with raises_code("base-is-detector"):
        function(dataset=trained / "data", base="detector", output=tmp_path / "run")


def test_a_detector_is_no_reader(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    calls: list[Any] = [dsocr.evaluate, dsocr.load]
    calls += [lambda run: dsocr.transcribe(run, trained / "scans", out), lambda run: dsocr.export(run, out)]
    for call in calls:
        with raises_code("run-is-detector"):
            call(trained / "run")


def test_a_reader_finds_no_lines(trained: Path, tmp_path: Path) -> None:
    reader, scans, out = fake_run(tmp_path / "reader").path, trained / "scans", tmp_path / "out"
    text = write(tmp_path / "p0.txt", "A line that somebody wrote\n")
    calls: list[Any] = [
        lambda: dsocr.transcribe("small", scans, out, segmenter=str(reader)),
        lambda: dsocr.align(scans, text, out, segmenter=str(reader)),
        lambda: dsocr.open_workbench(scans, segmenter=str(reader), work=out, show=False),
        lambda: dsocr.evaluate_layout(reader, dataset=trained / "data"),
    ]
    for call in calls:
        with raises_code("run-is-reader"):
            call()
    assert not out.exists()
