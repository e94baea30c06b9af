"""From image files to texts."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lxml import etree
from PIL import Image

from dsocr.document import parse_points
from dsocr.inference.confidence import Calibration, Prediction, Scale, Word
from dsocr.inference.reader import LocalReader
from dsocr.inference.transcribe import TranscribeReport
from dsocr.io.work import write_manifest
from dsocr.layout import DetectOutlines, choose_detector
from dsocr.models.adapters import attach_adapter
from dsocr.models.deepseek_ocr import DeepseekProcessor
from dsocr.models.generation import Generation
from dsocr.models.loading import BaseModel, load_base
from dsocr.models.token_batches import decode
from dsocr.runs import SHIPPED_BASES, ReadingSettings, RunFolder
from dsocr.text import TextPolicy
from tests.conftest import draw_line
from tests.data.making import page_line, page_xml, picture, write
from tests.inference.reading_pages import rows_of, transcribe
from tests.making_models import deepseek_processor, save_adapter
from tests.raising import raises_code


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run whose adapter is fresh, so it reads as the base does."""
    run = RunFolder(tmp_path_factory.mktemp("run"))
    run.config.write_text("dataset: nowhere\noutput: here\n", encoding="utf-8")
    run.adapter.mkdir()
    model = attach_adapter(
        load_base("nano").network, base="nano", revision=None, target_modules="decoder", r=2, alpha=4, dropout=0.0
    )
    save_adapter(model, run.adapter)
    generation = Generation(max_new_tokens=8, batch_size=2).as_dict()
    ReadingSettings("nano", None, "<image>\nFree OCR.", "wrap", TextPolicy(), generation).save(run.adapter)
    write_manifest(run.adapter)
    return run


@pytest.fixture(scope="module")
def reader(run: RunFolder) -> LocalReader:
    """The run's network, which takes longer to load than to read a few lines with."""
    return LocalReader.of_run(run)


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    folder = tmp_path / "scans"
    (folder / "box").mkdir(parents=True)
    for name in ("b.png", "a.png", "box/письмо.png"):
        draw_line(folder / name, "line one")
    (folder / "notes.txt").write_text("not an image", encoding="utf-8")
    return folder


def test_every_image_of_a_folder_is_read_in_order(run: RunFolder, scans: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = transcribe(run, [scans], tmp_path / "texts.jsonl", progress=lambda *now: seen.append(now))
    rows = rows_of(report.out)
    assert [row["id"] for row in rows] == ["a.png", "b.png", "box/письмо.png"]
    assert rows[0].keys() == {"id", "text", "confidence", "flags", "words", "tokens", "truncated"}
    assert (report.images, report.order) == (3, "a, b, box/письмо")
    assert seen[-1] == (3, 3)


def test_uncertain_lines_are_listed_and_characters_written_on_request(
    run: RunFolder, reader: LocalReader, scans: Path, tmp_path: Path
) -> None:
    review = tmp_path / "review.txt"
    out = transcribe(run, [scans], tmp_path / "texts", format=["characters"], review=review, reader=reader).out
    rows = [row for file in out.rglob("*.jsonl") for row in rows_of(file)]
    assert len(rows) == 3
    assert all(len(row["characters"]) == len(row["text"]) for row in rows)
    listed = [line.split("\t") for line in review.read_text(encoding="utf-8").splitlines()]
    assert sorted(cells[2] for cells in listed) == ["a.png", "b.png", "box/письмо.png"]
    unflagged = [float(cells[0]) for cells in listed if not cells[1]]
    assert unflagged == sorted(unflagged)
    with raises_code("output-exists"):
        transcribe(run, [scans], tmp_path / "others.txt", review=review)
    transcribe(run, [scans], tmp_path / "others.txt", review=tmp_path / "next.txt", first=2, reader=reader)
    assert len((tmp_path / "next.txt").read_text(encoding="utf-8").splitlines()) == 2
    with raises_code("option-invalid"):
        transcribe(run, [scans], tmp_path / "more.txt", first=2)


def test_checking_is_estimated_where_the_confidences_were_fitted(
    run: RunFolder, reader: LocalReader, scans: Path, tmp_path: Path
) -> None:
    plain = transcribe(run, [scans], tmp_path / "plain.txt", review=tmp_path / "plain_review.txt", reader=reader)
    assert plain.estimated_cer is None
    fitted = RunFolder(tmp_path / "run")
    shutil.copytree(run.path, fitted.path)
    Calibration(Scale(1.0, 0.0), Scale(1.0, 0.0), Scale(1.0, -0.5), lines=60).save(fitted.adapter)
    assert transcribe(fitted, [scans], tmp_path / "unlisted.jsonl", reader=reader).estimated_cer is None
    review = tmp_path / "review.txt"
    seen = transcribe(fitted, [scans], tmp_path / "texts.jsonl", review=review).estimated_cer
    rows = rows_of(tmp_path / "texts.jsonl")
    errors = sum((1 - row["confidence"]) * len(row["text"]) for row in rows)
    assert seen is not None
    assert seen.cer == pytest.approx(errors / sum(len(row["text"]) for row in rows), abs=1e-3)
    assert (seen.check, seen.rest) == (1, 0), "the three lines are alike, so none is more doubtful"


def test_no_cer_is_estimated_for_pages_unlike_those_of_the_calibration(
    run: RunFolder, reader: LocalReader, scans: Path, tmp_path: Path
) -> None:
    for number in range(2):
        shutil.copy(scans / "a.png", scans / f"{number}.png")
    fitted = RunFolder(tmp_path / "run")
    shutil.copytree(run.path, fitted.path)
    reports = []
    for name, quantiles in (("like", (0.0, 1.0)), ("unlike", (0.0, 0.01))):
        Calibration(lines=60, line_quantiles=quantiles).save(fitted.adapter)
        review = tmp_path / f"{name}_review.txt"
        reports.append(transcribe(fitted, [scans], tmp_path / f"{name}.txt", review=review, reader=reader))
    like, unlike = reports
    assert like.estimated_cer is not None
    assert unlike.estimated_cer is None
    assert (like.unlike_calibration, unlike.unlike_calibration) == (False, True)


class OneWord:
    """Reads a word from a quarter to three quarters of every image."""

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        for name, _ in images:
            yield Prediction(name, "word", 5, False, words=(Word("word", 0, 4, 0.9, left=0.25, right=0.75),))


def test_words_have_their_place_on_the_page(run: RunFolder, tmp_path: Path) -> None:
    """A crop has a margin of 1/550 of the page around its line, here 10 pixels on both sides."""
    size = (300, 5500)
    picture(tmp_path / "in" / "p.png", size)
    region = page_line("", points="100,50 200,50 200,90 100,90").replace("<TextLine", '<TextLine id="l"')
    write(tmp_path / "in" / "p.xml", page_xml(f'<TextRegion id="r">{region}</TextRegion>', size=size))
    out = transcribe(run, [tmp_path / "in"], tmp_path / "out", format=["page"], reader=OneWord()).out
    (word,) = etree.parse(out / "p.xml").iter("{*}Word")
    across = [x for x, _ in parse_points(str(word[0].attrib["points"]))]
    assert (min(across), max(across)) == pytest.approx((120, 180), abs=1)


def test_a_batch_reads_as_its_images_do_alone(nano: BaseModel) -> None:
    encoder: DeepseekProcessor = deepseek_processor(nano, None, "free_ocr")
    images = [Image.new("L", (width, 40), shade) for width, shade in ((90, 255), (600, 30), (300, 128))]
    samples = [encoder.encode(image) for image in images]
    generation = Generation(max_new_tokens=20)
    together = decode(nano.network, encoder, samples, generation)
    alone = [decode(nano.network, encoder, [sample], generation)[0] for sample in samples]
    assert [replace(reading, scores=()) for reading in together] == [replace(one, scores=()) for one in alone]
    for beside, single in zip(together, alone, strict=True):
        assert np.array(beside.scores) == pytest.approx(np.array(single.scores), abs=1e-4)


def test_truncation_is_flagged_and_the_end_token_is_counted(nano: BaseModel) -> None:
    encoder = deepseek_processor(nano, None, "free_ocr")
    sample = encoder.encode(Image.new("L", (500, 40), 90))
    (cut,) = decode(nano.network, encoder, [sample], Generation(max_new_tokens=1))
    assert cut.tokens == 1
    (whole,) = decode(nano.network, encoder, [sample], Generation(max_new_tokens=60))
    assert whole.truncated or whole.tokens == len(whole.text) + 1


@pytest.mark.parametrize(
    ("base", "lines", "mean", "expected"),
    [
        pytest.param("small", 300, 0.9, True, id="enough lines that the base can read"),
        pytest.param("small", 299, 0.9, False, id="too few"),
        pytest.param("small", 300, 0.5, False, id="a hand unlike all that it knows"),
        pytest.param("nano", 300, 0.9, False, id="confidences that nobody compared with texts"),
        pytest.param(None, 300, 0.9, False, id="a run that learnt from transcriptions"),
    ],
)
def test_lines_that_can_teach_a_base(
    run: RunFolder, tmp_path: Path, base: str | None, lines: int, mean: float, expected: bool
) -> None:
    reader = RunFolder(SHIPPED_BASES / base) if base else run
    calibration = Calibration.load(RunFolder(SHIPPED_BASES / (base or "small")).adapter)
    report = TranscribeReport(tmp_path, ["text"], rated=lines, mean_confidence=mean)
    report.judge(reader, calibration)
    assert report.may_learn is expected


@pytest.mark.parametrize("tables", [True, None])
def test_narrow_columns_are_looked_at_again_where_tables_are_asked_for(
    tables: bool | None, run: RunFolder, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def choose(segmenter: str) -> DetectOutlines:
        asked.append(segmenter)
        return choose_detector(segmenter)

    monkeypatch.setattr("dsocr.inference.transcribe.choose_detector", choose)
    transcribe(run, [scans], tmp_path / "texts.jsonl", tables=tables, reader=OneWord())
    assert asked == (["ppocr"] if tables else [])
