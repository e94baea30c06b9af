"""Tests of aligning scans with texts: what is written, what is sure, and what becomes of it afterwards."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import dsocr
from dsocr.config import RunConfig
from dsocr.document import Split
from dsocr.formats.alto import parse_alto
from dsocr.formats.tables import unescape_formula
from dsocr.formats.xml import parse_xml
from dsocr.inference.alignment import AlignedLine
from dsocr.inference.reader import LocalReader
from dsocr.io import work
from dsocr.job import Job
from dsocr.models.base_folder import WEIGHTS
from dsocr.runs import RunFolder
from dsocr.training import align as module
from dsocr.training import many_runs
from dsocr.training.align import LINES, AlignReport
from tests.raising import raises_code
from tests.training.aligning import PAGES, SAMPLE, copy_pages, reading_once, true_lines

NOTE = "Publié d'après le manuscrit original, tome II, page 318; voir aussi la lettre suivante."


@pytest.fixture(scope="module", autouse=True)
def _reading_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalReader, "read_steps", reading_once())
        yield


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_pages(tmp_path_factory.mktemp("scans"), lines=6)


@pytest.fixture(scope="module")
def aligned(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """One text for both pages, in the other order, with a note between them."""
    folder = tmp_path_factory.mktemp("aligned")
    texts = [" ".join(true_lines(scans, name)) for name in reversed(PAGES)]
    (folder / "edition.txt").write_text(f"{NOTE}\n{texts[0]}\n{NOTE}\n{texts[1]}\n", encoding="utf-8")
    return folder, dsocr.align(scans, folder / "edition.txt", folder / "out", rounds=1)


def test_sure_lines_have_exactly_their_text(aligned: tuple[Path, Any], scans: Path) -> None:
    folder, report = aligned
    dataset = dsocr.Dataset.open(folder / "out" / "dataset")
    truth = {text for name in PAGES for text in true_lines(scans, name)}
    samples = [sample for split in Split for sample in dataset.samples(split)]
    assert {sample.split for sample in samples} == {Split.TRAIN}
    assert len(samples) == report.sure >= 0.7 * report.lines
    assert sum(sample.text not in truth for sample in samples) <= 1
    assert report.pages == len(PAGES)
    assert report.missing == []


def test_every_line_is_listed_with_its_score_those_in_doubt_first(aligned: tuple[Path, Any]) -> None:
    folder, report = aligned
    with (folder / "out" / LINES).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) == report.lines
    scores = [float(row["score"]) for row in rows if row["text"]]
    assert scores == sorted(scores)
    assert sum(row["sure"] == "yes" for row in rows) == report.sure
    likely = [row for row in rows if float(row["score"]) >= 0.5]
    texts, readings = ([unescape_formula(row[name]) for row in likely] for name in ("text", "reading"))
    assert report.reading_cer == pytest.approx(dsocr.cer(texts, readings))


@pytest.mark.parametrize(
    ("start", "kept"),
    [
        pytest.param(0, ["first", ""], id="the same part: the likelier line keeps it"),
        pytest.param(4, ["first", ""], id="half of it"),
        pytest.param(8, ["first", "second"], id="a fifth of it"),
        pytest.param(20, ["first", "second"], id="another part"),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_no_part_of_the_text_is_given_to_two_pages(start: int, kept: list[str], order: int) -> None:
    first, second = AlignedLine("first", 0, 10, score=0.99), AlignedLine("second", start, start + 10, score=0.9)
    sure = {place: AlignedLine(f"{place}", 100 * place, 100 * place + 9, score=0.99) for place in range(1, 9)}
    pages = [
        module._AlignedPage(Mock(), Mock(), {0: line, **{n: line_.moved(offset) for n, line_ in sure.items()}})
        for offset, line in ((0, first), (1000, second))
    ][::order]
    result = module._Result(pages)
    result.resolve_conflicts(3000)
    assert [page.lines[0].text for page in result.pages][::order] == kept


@pytest.mark.parametrize(
    ("cer", "is_hardly_read"),
    [
        pytest.param(None, False, id="no line is likely right"),
        pytest.param(0.16, False, id="peraire, whose scores hold"),
        pytest.param(0.30, True, id="a notary's register, whose scores are too low"),
    ],
)
def test_scores_of_a_hand_that_is_hardly_read_are_too_low(cer: float | None, is_hardly_read: bool) -> None:
    assert AlignReport(Path("out"), reading_cer=cer).is_hardly_read is is_hardly_read


@pytest.fixture(scope="module")
def few_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two pages with the first four lines of each."""
    return copy_pages(tmp_path_factory.mktemp("few"), lines=4)


ENGLISH = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it "
    "was the epoch of belief, it was the epoch of incredulity, it was the season of Light, it was the season of "
    "Darkness, it was the spring of hope, it was the winter of despair, we had everything before us."
)
RUSSIAN = (
    "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему. Все смешалось в доме "
    "Облонских. Жена узнала, что муж был в связи с бывшею в их доме француженкою-гувернанткой, и объявила мужу, что "
    "не может жить с ним в одном доме."
)


def picture_pdf() -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (200, 300), 240).save(buffer, "PDF")
    return buffer.getvalue()


def other_page() -> bytes:
    lines = parse_alto(parse_xml(SAMPLE / "alto" / "imp_wikitexte_0101.xml")).lines[:8]
    return " ".join(line.text for line in lines).encode()


@pytest.mark.parametrize(
    ("files", "code"),
    [
        pytest.param({"text.txt": b" \n\f\n"}, "texts-missing", id="empty"),
        pytest.param({"text.pdf": picture_pdf()}, "texts-missing", id="PDF of images"),
        pytest.param({"text.txt": RUSSIAN.encode("cp1251")}, "not-utf8", id="cp1251"),
        pytest.param({"text.txt": RUSSIAN.encode()}, "alignment-empty", id="another script"),
        pytest.param({"text.txt": other_page()}, "alignment-empty", id="another page"),
        pytest.param({f"{name}.txt": ENGLISH.encode() for name in PAGES}, "alignment-empty", id="another text a page"),
        pytest.param({f"other_{name}.txt": b"texte" for name in PAGES}, "alignment-empty", id="names of other pages"),
    ],
)
def test_a_text_that_is_not_that_of_the_scans_is_an_error_and_nothing_is_written(
    files: dict[str, bytes], code: str, few_lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "MIN_SECONDS_KEPT", 0)
    (tmp_path / "texts").mkdir()
    for name, content in files.items():
        (tmp_path / "texts" / name).write_bytes(content)
    with raises_code(code) as caught:
        dsocr.align(few_lines, tmp_path / "texts", tmp_path / "out")
    assert caught.value.hint
    assert not (tmp_path / "out").exists()
    written = [path for pattern in ("*.xml", "metadata.jsonl", LINES) for path in tmp_path.rglob(pattern)]
    assert written == [], "neither in the work folder, where it may be taken for a result"


def test_a_killed_job_reads_no_page_again(scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text(" ".join(t for n in PAGES for t in true_lines(scans, n)), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(module._Result, "resolve_conflicts", Mock(side_effect=KeyboardInterrupt))
        patch.setattr(work, "MIN_SECONDS_KEPT", 0)
        with pytest.raises(KeyboardInterrupt):
            dsocr.align(scans, tmp_path / "text.txt", tmp_path / "out", rounds=1)
    monkeypatch.setattr(LocalReader, "read_steps", Mock(side_effect=AssertionError))
    assert dsocr.align(scans, tmp_path / "text.txt", tmp_path / "out", rounds=1).sure > 0


@pytest.mark.slow
def test_a_round_trains_an_adapter_further(
    small_run: RunFolder, few_lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A base that reads in tokens, and an adapter of another shape than the default; what it reads is simulated."""
    truth = iter([true_lines(few_lines, name) for name in PAGES] * 2)
    monkeypatch.setattr(LocalReader, "read_steps", lambda reader, images: [(text, None) for text in next(truth)])
    monkeypatch.setattr(module, "_MIN_TO_LEARN", 4)
    (tmp_path / "text.txt").write_text(
        " ".join(text for name in PAGES for text in true_lines(few_lines, name)), encoding="utf-8"
    )
    planned: list[RunConfig] = []

    def plan_briefly(job: Job, *arguments: Any, **options: Any) -> many_runs.PlannedRun:
        plan = plan_run(job, *arguments, epochs=None, max_steps=1, learning_rate=1e-12, **options)
        planned.append(plan.job.config)
        return plan

    plan_run = many_runs.plan_run
    monkeypatch.setattr(many_runs, "plan_run", plan_briefly)
    trained: dict[str, torch.Tensor] = {}

    def keep(*arguments: Any) -> Any:
        run = learn(*arguments)
        assert run is not None
        trained.update(load_file(run.adapter / WEIGHTS))
        return run

    learn = module._learn
    monkeypatch.setattr(module, "_learn", keep)
    report = dsocr.align(few_lines, tmp_path / "text.txt", tmp_path / "out", run=small_run.path, rounds=2)
    assert report.rounds == 1
    before = load_file(small_run.adapter / WEIGHTS)
    assert trained.keys() == before.keys()
    assert all(torch.allclose(trained[name], tensor, atol=1e-6) for name, tensor in before.items())
