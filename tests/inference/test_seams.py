"""Where inputs, journal and outputs meet: nothing is taken for something else, and nothing falls between."""

import codecs
import json
import zipfile
from pathlib import Path

import pytest
import torch
from lxml import etree

from dsocr.errors import RunError
from dsocr.io import work
from dsocr.io.work import Journal
from dsocr.runs import RunFolder
from tests.data.making import page_line, page_xml
from tests.formats.making_pdf import encrypted_pdf, image_object, scan, write_pdf
from tests.inference.reading_pages import Fails, Hashes, draw_page, fake_run, rows_of, transcribe
from tests.integration.calling import call
from tests.raising import raises_code

NO_MEMORY = torch.OutOfMemoryError("CUDA out of memory")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return fake_run(tmp_path / "run", "page")


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    for number in range(5):
        draw_page(tmp_path / "in" / f"p{number}.png", shade=30 + 20 * number)
    return tmp_path / "in"


def test_files_of_one_name_in_two_folders_are_each_read(run: RunFolder, tmp_path: Path) -> None:
    for number, name in enumerate("abc"):
        draw_page(tmp_path / name / "scan.png", shade=30 + 40 * number)
    given = [tmp_path / "a" / "scan.png", tmp_path / "b" / "scan.png", tmp_path / "c", tmp_path / "c" / "scan.png"]
    report = transcribe(run, given, tmp_path / "texts.jsonl", reader=Hashes())
    rows = rows_of(tmp_path / "texts.jsonl")
    assert report.images == 3, "the last is named twice"
    assert len({row["text"] for row in rows}) == 3
    assert [row["page"] for row in rows] == [
        "scan.png",
        (tmp_path / "b" / "scan.png").as_posix(),
        (tmp_path / "c" / "scan.png").as_posix(),
    ]


def test_an_image_given_with_its_markup_is_one_page(run: RunFolder, scans: Path, tmp_path: Path) -> None:
    markup = scans / "p0.xml"
    markup.write_text(page_xml(page_line(""), image="p0.png", size=(600, 800)), encoding="utf-8")
    report = transcribe(run, [scans / "p0.png", markup], tmp_path / "texts.jsonl", reader=Hashes())
    assert report.images == 1


def test_images_in_the_output_folder_are_not_read(run: RunFolder, scans: Path) -> None:
    for _ in range(2):
        out, formats = scans / "out", ["alto", "pdf"]
        report = transcribe(run, [scans], out, format=formats, overwrite=True, reader=Hashes())
        assert (report.images, report.kept) == (5, 0)


def test_bad_archives_and_pdf_files_are_sentences_and_the_rest_is_read(
    run: RunFolder, scans: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("p.png", bytes(70 * 2**20))
    with zipfile.ZipFile(tmp_path / "climbing.zip", "w") as climbing:
        climbing.write(scans / "p0.png", "../../p.png")
    (tmp_path / "locked.pdf").write_bytes(encrypted_pdf())
    write_pdf(tmp_path / "void.pdf", [])
    names = ("bomb.zip", "climbing.zip", "locked.pdf", "void.pdf")
    given = [scans, *(tmp_path / name for name in names)]
    report = transcribe(run, given, tmp_path / "o.txt", reader=Hashes())
    seen = dict(zip(names, report.failed, strict=True))
    assert all(sentence.startswith(name) for name, sentence in seen.items()), seen
    assert "encrypted" in seen["locked.pdf"]
    assert "no pages" in seen["void.pdf"]
    assert report.images == 5
    assert not list(tmp_path.rglob("p.png"))


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        pytest.param(codecs.BOM_UTF8, "utf-8", id="UTF-8 with its mark"),
        pytest.param(codecs.BOM_UTF16_LE, "utf-16-le", id="UTF-16 as Windows has it"),
        pytest.param(codecs.BOM_UTF16_BE, "utf-16-be", id="UTF-16 the other way round"),
    ],
)
def test_page_files_keep_their_encoding(
    mark: bytes, encoding: str, run: RunFolder, scans: Path, tmp_path: Path
) -> None:
    seen = page_xml(page_line("", points="40,60 560,60 560,110"), image="p0.png", size=(600, 800))
    seen = seen.replace("UTF-8", "UTF-16") if "16" in encoding else seen
    (scans / "p0.xml").write_bytes(mark + seen.encode(encoding))
    transcribe(run, [scans / "p0.xml"], tmp_path / "out.xml", unit="line", reader=Hashes())
    filled = (tmp_path / "out.xml").read_bytes()
    assert filled.startswith(mark)
    assert "слово" in filled.decode(encoding)
    assert etree.fromstring(filled).tag.endswith("PcGts")


def test_markup_of_a_pdf_page_is_not_accepted_alone(run: RunFolder, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "in.pdf", [image_object(scan())])
    with raises_code("output-one-page"):
        transcribe(run, [path], tmp_path / "out.xml", format=["page"], reader=Hashes())
    transcribe(run, [path], tmp_path / "out", format=["page"], reader=Hashes())
    (page,) = etree.parse(tmp_path / "out" / "in_0001.xml").iter("{*}Page")
    assert (tmp_path / "out" / str(page.get("imageFilename"))).exists()


def test_write_failures_are_in_the_card_or_fatal(run: RunFolder, scans: Path, tmp_path: Path) -> None:
    with raises_code("xml-missing"):  # before anything is read
        transcribe(run, [scans], tmp_path / "out", format=["text", "filled"], reader=None)
    (scans / "p0.xml").write_text(page_xml(page_line(""), image="p0.png", size=(600, 800)), encoding="utf-8")
    report = transcribe(run, [scans], tmp_path / "out", format=["filled", "text"], reader=Hashes())
    card = json.loads((tmp_path / "out" / "transcription.json").read_text(encoding="utf-8"))
    assert [message.partition(":")[0] for message in report.unwritten] == [f"p{number}.xml" for number in range(1, 5)]
    assert (report.failed, card["failed"]) == ([], 4)
    with raises_code("output-incomplete"):
        transcribe(run, [scans], tmp_path / "strict", format=["filled"], strict=True, reader=Hashes())


def test_a_review_is_written_next_to_the_output(run: RunFolder, scans: Path, tmp_path: Path) -> None:
    with raises_code("output-overlaps-source"):
        transcribe(run, [scans], tmp_path / "o", format=["text"], review=tmp_path / "o" / "r.txt", reader=Hashes())
    review = tmp_path / "lists" / "review.txt"
    transcribe(run, [scans], tmp_path / "o", format=["text"], review=review, reader=Hashes())
    assert len(review.read_text(encoding="utf-8").splitlines()) == 5


def test_a_journal_of_another_version_is_not_resumed(run: RunFolder, scans: Path, tmp_path: Path) -> None:
    place = tmp_path / ".out.txt.work"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(work, "MIN_SECONDS_KEPT", 0.0)
        patched.setattr("dsocr.inference.transcribe.__version__", "0.0.1")
        with pytest.raises(RunError):
            transcribe(run, [scans], tmp_path / "out.txt", reader=Fails(4, NO_MEMORY))
    journal = Journal(place / "journal.sqlite")
    assert not journal.is_empty
    journal.close()
    assert transcribe(run, [scans], tmp_path / "out.txt", reader=Hashes()).resumed == 0


@pytest.mark.parametrize(
    ("engine", "batches"),
    [
        pytest.param(None, True, id="here, in batches of a size that can be lowered"),
        pytest.param("http://127.0.0.1:1/v1", False, id="by a server, which has its own"),
    ],
)
def test_running_out_of_memory_is_an_error_and_the_journal_is_kept(
    engine: str | None,
    batches: bool,
    run: RunFolder,
    scans: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work, "MIN_SECONDS_KEPT", 0.0)
    with raises_code("out-of-memory") as caught:
        transcribe(run, [scans], tmp_path / "out.txt", reader=Fails(4, NO_MEMORY), engine=engine)
    assert "the same command" in (caught.value.hint or "")
    assert ("batch_size" in (caught.value.hint or "")) is batches
    assert transcribe(run, [scans], tmp_path / "out.txt", reader=Hashes(), engine=engine).resumed == 1


@pytest.mark.parametrize(
    ("min_seconds", "kept"),
    [
        pytest.param(0.0, True, id="kept"),
        pytest.param(60.0, False, id="hardly begun"),
    ],
)
def test_an_interrupted_command_reports_what_it_keeps(
    min_seconds: float,
    kept: bool,
    run: RunFolder,
    scans: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(work, "MIN_SECONDS_KEPT", min_seconds)
    monkeypatch.setattr("dsocr.inference.reader.LocalReader.of_run", lambda *_, **__: Fails(4, KeyboardInterrupt()))
    monkeypatch.setattr("dsocr.runs.RunFolder.to_read_with", lambda _: run)
    arguments = ("transcribe", run.path, scans, "-o", tmp_path / "o.txt", "--quiet")
    _, err = call(monkeypatch, capsys, *arguments, code=130)
    assert ("kept" in err) == kept, err
