"""Real handwriting, an eScriptorium export: 72 pages by 52 volunteers of "Copiste d'un jour" (BAnQ, CC-BY 4.0)."""

import re
import shutil
from pathlib import Path

import pytest

from dsocr.data.check import check_dataset
from dsocr.data.convert import convert
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.document import Outline, Page, Split
from dsocr.evaluation.scores import writer_statuses
from dsocr.formats import detect_format
from tests.inference.reading_pages import Hashes, fake_run, transcribe

COPISTE = Path(__file__).resolve().parents[2] / "examples" / "copiste"
WRITER = r"((?:imp_)?wikitexte_\d+)"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return prepare(COPISTE, tmp_path_factory.mktemp("copiste") / "dataset", writer=WRITER, strict=True)


def total(report: Dataset, count: str) -> int:
    return sum(getattr(part, count) for part in report.card.splits.values())


@pytest.mark.slow
def test_every_line_with_text_is_there(report: Dataset) -> None:
    assert report.card.source_format == "alto"
    assert [item.reason for item in report.report.skipped] == ["no text"] * 3
    assert [total(report, count) for count in ("samples", "pages", "writers")] == [1317 - 3, 72, 52]


@pytest.mark.slow
def test_writers_are_never_shared(report: Dataset) -> None:
    assert report.report.unmatched == {}
    assert report.card.split_by == "writer"
    assert (report.card.crossing["writers"], report.card.crossing["pages"]) == (0, 0)
    dataset = Dataset.open(report.folder)
    writers = {split: {sample.writer for sample in dataset.samples(split)} for split in Split}
    assert set(writer_statuses(writers[Split.TRAIN], writers[Split.TEST]).values()) == {"new", "unknown"}
    assert None not in writers[Split.TEST]


@pytest.mark.slow
def test_shares_are_as_asked(report: Dataset) -> None:
    shares = {split: part.samples / 1314 for split, part in report.card.splits.items()}
    assert shares == pytest.approx({Split.TRAIN: 0.8, Split.VALIDATION: 0.1, Split.TEST: 0.1}, abs=0.001)


@pytest.mark.slow
def test_what_is_found_is_true(report: Dataset) -> None:
    """Two lines are transcribed as `><` and `>`: one is struck out whole, of the other the words are missing."""
    findings = {finding.code: finding for finding in check_dataset(Dataset.open(report.folder))}
    assert {code: (found.severity, found.count) for code, found in findings.items()} == {
        "text-too-short": ("warning", 2),
        "markup-in-text": ("note", 47),
        "mixed-punctuation": ("note", 13),
        "seen-once": ("note", 14),
        "text-crosses": ("note", 19),
    }


def test_pages_round_trip_through_other_formats(tmp_path: Path) -> None:
    def lines(folder: Path) -> dict[str, list[tuple[str, Outline | None]]]:
        images = [image for image in detect_format(folder, None, {}).read(folder, {}) if isinstance(image, Page)]
        return {image.image.name: [(line.text.strip(), line.outline) for line in image.lines] for image in images}

    place = tmp_path / "copiste"
    for folder in ("alto", "jpg"):
        (place / folder).mkdir(parents=True)
        for file in sorted((COPISTE / folder).iterdir())[::12]:
            shutil.copy(file, place / folder)
    wanted = lines(place)
    assert sum(map(len, wanted.values())) > 6 * 15
    for target in ("page", "tsv", "alto"):
        report = convert(place, tmp_path / target, to=target, strict=True)
        counts = (report.conversion.images, report.conversion.lines, report.skipped)
        assert counts == (6, sum(map(len, wanted.values())), [])
        place = report.output
        assert lines(place) == wanted


def test_alto_without_texts_comes_back_with_them_and_otherwise_to_the_byte(tmp_path: Path) -> None:
    texts, steps = re.compile(rb"\s*<String[^>]*>(?:</String>)?"), re.compile(rb"\s*<Processing .*?</Processing>")
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for file in sorted((COPISTE / "alto").iterdir())[:3]:
        (source / file.name).write_bytes(texts.sub(b"", file.read_bytes()))
        image = COPISTE / "jpg" / f"{file.stem}.jpg"
        (source / image.name).write_bytes(image.read_bytes())
    report = transcribe(fake_run(tmp_path / "run"), [source], out, reader=Hashes())
    assert (report.images, report.failed, report.empty) == (3, [], 0)
    for file in sorted(source.glob("*.xml")):
        filled = (out / file.name).read_bytes()
        assert filled.count("слово".encode()) == filled.count(b"<TextLine ")
        assert texts.sub(b"", steps.sub(b"", filled)) == file.read_bytes()
