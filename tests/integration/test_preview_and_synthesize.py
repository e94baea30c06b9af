"""`dsocr preview` and `dsocr synthesize` as a person meets them."""

from pathlib import Path

import pytest
from PIL import Image, ImageFont

from tests.integration.calling import fail
from tests.integration.test_commands import Call, call

__all__ = ["call"]


@pytest.fixture
def fonts(tmp_path: Path) -> Path:
    data = ImageFont.load_default(20).path.getvalue()  # type: ignore[union-attr]
    (tmp_path / "fonts").mkdir()
    for family in ("Aileron", "Bileron", "Cileron"):
        renamed = data
        for encoding in ("ascii", "utf-16-be"):
            renamed = renamed.replace("Aileron".encode(encoding), family.encode(encoding))
        (tmp_path / "fonts" / f"{family}.ttf").write_bytes(renamed)
    return tmp_path / "fonts"


def test_from_fonts_to_a_dataset_that_check_reads(call: Call, fonts: Path, tmp_path: Path) -> None:
    (fonts / "broken.ttf").write_bytes(b"no font")
    text = tmp_path / "words.txt"
    text.write_text("\n".join(f"line number {number}" for number in range(30)) + "\nмир\n", encoding="utf-8")
    arguments = ["synthesize", "--fonts", fonts, "--text", text, "-o", tmp_path / "drawn", "--count", 31]
    code, out, err = call(*arguments)
    assert code == 0, err
    assert "not read: 1\n  broken.ttf: " in out
    assert "Aileron Regular lacks имр: 1 lines not drawn in it" in out
    assert "lines that no font of their split can draw: 1\n  мир" in out
    assert f"dataset: {tmp_path / 'drawn'}" in out
    assert f"next:    dsocr check {tmp_path / 'drawn'}" in out
    assert call("check", tmp_path / "drawn")[0] == 0
    assert call(*arguments)[0] == 2
    assert call(*arguments, "--overwrite", "--quiet")[0] == 0
    code, _, err = call(*arguments, "--overwrite", "--strict")
    assert code == 2
    assert "broken.ttf" in err


@pytest.mark.parametrize("name", ["sheet.html", "sheet.png"])
def test_a_dataset_and_a_configuration_show_the_same(
    name: str, call: Call, small_dataset: Path, tmp_path: Path
) -> None:
    config = tmp_path / "c.yaml"
    text = f"dataset: {small_dataset.as_posix()}\noutput: {tmp_path.as_posix()}\ntraining: {{augmentation: medium}}\n"
    config.write_text(text, encoding="utf-8")
    written = []
    for source in (small_dataset, config):
        code, out, err = call("preview", source, "-o", tmp_path / name, "--samples", 2, "--epochs", 2)
        assert code == 0, err
        assert "2 samples in 2 epochs, augmentation medium, seed 17" in out
        assert f"page: {tmp_path / name}" in out
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]


def test_a_preview_of_a_training_that_varies_nothing_says_so(call: Call, small_dataset: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(f"dataset: {small_dataset.as_posix()}\noutput: {tmp_path.as_posix()}\n", encoding="utf-8")
    shown = ["preview", config, "-o", tmp_path / "sheet.html", "--samples", 1, "--epochs", 1]
    assert "--augmentation medium" in call(*shown)[1]
    assert "too much" in call(*shown, "--augmentation", "light")[1]


def test_preview_shows_what_the_model_sees(call: Call, small_dataset: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "s.png"
    code, out, _ = call("preview", small_dataset, "-o", sheet, "--samples", 1, "--epochs", 1, "--as-model")
    assert code == 0
    assert "as nano sees it at " in out
    with Image.open(sheet) as image:
        assert image.size == (2 * (256 + 8) + 8, 256 + 16)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(["preview", "nowhere"], "not-a-dataset", id="no dataset"),
        pytest.param(["preview", "nowhere.yaml"], "config-missing", id="no configuration"),
        pytest.param(["preview", ".", "-o", "x.gif"], "sheet-format", id="another kind of sheet"),
        pytest.param(
            ["synthesize", "--fonts", ".", "--text", "t.txt", "-o", "out", "--augmentation", "wild"],
            "option-invalid",
            id="no such preset",
        ),
        pytest.param(["synthesize", "--fonts", "f", "--text", "t.txt", "-o", "out"], "fonts-missing", id="no fonts"),
    ],
)
def test_a_mistake_is_an_error(
    arguments: list[str], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fail(monkeypatch, *arguments).code == code
