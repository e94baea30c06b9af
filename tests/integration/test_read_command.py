"""`dsocr read`: lines of photos and one sentence; and `transcribe` to standard output."""

import io
import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

import dsocr
from dsocr.inference.confidence import Calibration
from dsocr.io.budget import Budget
from tests.inference.reading_pages import Hashes, draw_page, find_bars, rows_of
from tests.integration.calling import Call, Fail

PHOTO = Path(__file__).parents[2] / "examples" / "copiste" / "jpg" / "imp_wikitexte_0052.jpg"
Pipe = Callable[[bytes], None]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Pipe:
    return lambda content: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


@pytest.fixture
def quick_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.layout.detect_lines", find_bars)
    monkeypatch.setattr("dsocr.inference.transcribe._open_reader", lambda *settings: Hashes())


@pytest.mark.usefixtures("_pages_detected_once")
def test_a_photo_is_read_as_transcribe_reads_it(call: Call, pipe: Pipe, tmp_path: Path) -> None:
    (tmp_path / "my photos").mkdir()
    photo = Path(shutil.copy(PHOTO, tmp_path / "my photos" / "letter.jpg"))
    out, err = call("read", photo)
    call("transcribe", "small", photo, "-o", tmp_path / "texts.jsonl")
    rows = rows_of(tmp_path / "texts.jsonl")
    assert out.splitlines() == [row["text"] for row in rows if row["text"]]
    advice = re.fullmatch(r"about (\d+) of 100 letters are wrong; correct them with `dsocr workbench \"(.+)\"`\n", err)
    assert advice is not None, err
    assert advice[2] == photo.parent.as_posix()
    assert [path.name for path in photo.parent.iterdir()] == [photo.name], "nothing is written"

    content = json.loads(call("read", photo, "--json")[0])
    assert content["texts"] == rows
    assert content["estimated_cer"]["cer"] == pytest.approx(int(advice[1]) / 100, abs=0.005)

    pipe(photo.read_bytes())
    assert call("read", "-") == (out, err.replace(f'"{photo.parent.as_posix()}"', "FOLDER"))


@pytest.mark.parametrize(
    ("calibration", "lines", "said"),
    [
        pytest.param(Calibration(), 8, "unknown", id="no calibration"),
        pytest.param(Calibration(lines=99), 2, "too few lines", id="two lines"),
        pytest.param(Calibration(lines=99, line_quantiles=(0.0, 0.01)), 8, "unknown", id="other lines"),
        pytest.param(Calibration(lines=99, line_quantiles=(1.0, 1.0)), 8, "unlike anything", id="an unknown hand"),
        pytest.param(Calibration(lines=99), 8, "^about 30 of 100 letters are wrong; ", id="lines like these"),
    ],
)
@pytest.mark.usefixtures("quick_reader")
def test_a_number_is_said_only_if_the_calibration_supports_it(
    calibration: Calibration, lines: int, said: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Doubts(Hashes):
        def read(self, images):  # type: ignore[no-untyped-def]
            return (replace(prediction, text="знак :key:", confidence=0.7) for prediction in super().read(images))

    monkeypatch.setattr("dsocr.inference.transcribe._open_reader", lambda *settings: Doubts())
    monkeypatch.setattr(Calibration, "load", lambda adapter: calibration)
    draw_page(tmp_path / "a.png", lines=lines)
    out, err = call("read", tmp_path / "a.png")
    assert out == "знак :key:\n" * lines, "letters stay letters"
    assert re.search(said, err)
    assert re.findall(r"\d+ of 100", err) == (["30 of 100"] if said.startswith("^") else [])
    assert err.count("\n") == 1
    assert call("read", tmp_path / "a.png", "--quiet")[1] == ""


@pytest.mark.usefixtures("quick_reader")
def test_several_photos_are_read_in_order_and_a_damaged_one_is_named(call: Call, tmp_path: Path) -> None:
    for number, name in enumerate(("b.png", "a.png")):
        draw_page(tmp_path / name, lines=2, shade=30 + 50 * number)
    (tmp_path / "c.png").write_bytes(b"broken")
    first, second = ([row["text"] for row in dsocr.read(tmp_path / f"{name}.png").texts] for name in "ba")
    out, err = call("read", tmp_path / "b.png", tmp_path / "c.png", tmp_path / "a.png", code=1)
    assert out.split("\n\n") == ["\n".join(first), "\n".join(second) + "\n"]
    assert err.startswith("cannot read c.png: ")

    with Image.open(tmp_path / "b.png") as b, Image.open(tmp_path / "a.png") as a:
        b.save(tmp_path / "two.pdf", save_all=True, append_images=[a])
    out, err = call("read", tmp_path / "two.pdf")
    assert [len(page.splitlines()) for page in out.split("\n\n")] == [2, 2]
    assert f"`dsocr workbench {tmp_path / 'two.pdf'}`" in err

    assert len(dsocr.read(tmp_path / "b.png", images="line").texts) == 1


@pytest.mark.parametrize(
    ("words", "content", "code"),
    [
        pytest.param("read nowhere.jpg", b"", "input-missing", id="no such file"),
        pytest.param("read scans/nowhere.jpg", b"", "input-missing", id="no such file in a folder"),
        pytest.param("read notes.txt", b"", "image-format", id="no image"),
        pytest.param("read -", b"", "image-empty", id="nothing piped in"),
        pytest.param("read -", None, "image-empty", id="a terminal"),
        pytest.param("read -", bytes(101), "too-large", id="more piped in than a file may have"),
        pytest.param("transcribe folder empty.png -o out", b"", "not-a-run", id="a folder that is no run"),
        pytest.param("read empty.png", b"", "no-lines-found", id="no lines"),
        pytest.param("transcribe small -o -", b"", "inputs-empty", id="a reader and no scans"),
        pytest.param(
            "transcribe small empty.png -o - --json", b"", "option-invalid", id="texts and JSON in one stream"
        ),
    ],
)
def test_a_mistake_has_a_code_and_a_remedy(
    words: str,
    content: bytes | None,
    code: str,
    fail: Fail,
    pipe: Pipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("письмо", encoding="utf-8")
    Image.new("L", (600, 800), 245).save("empty.png")
    Path("folder").mkdir()
    pipe(content or b"")
    monkeypatch.setattr("dsocr.inference.inputs.Budget", partial(Budget, size=100))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: content is None)
    error = fail(*words.split())
    assert error.code == code
    assert error.hint
    assert "on the Hub" not in error.hint


@pytest.mark.usefixtures("quick_reader")
def test_transcribe_writes_to_standard_output(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "b.png"):
        draw_page(tmp_path / "scans" / name)
    call("transcribe", "small", "scans", "-o", "texts.txt")
    out, _ = call("transcribe", "scans", "-o", "again.txt")
    assert "small" in out.splitlines()[0]
    texts = (tmp_path / "texts.txt").read_text(encoding="utf-8")
    out, err = call("transcribe", "scans/a.png", "scans/b.png", "-o", "-")
    assert out == texts
    assert "2 images transcribed" in err
    out, _ = call("transcribe", "small", "scans", "-o", "-", "--format", "jsonl")
    assert len([json.loads(line) for line in out.splitlines()]) == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.txt", "scans", "texts.txt"]
