"""Drawing of handwriting for pretraining: deterministic, complete, joined, and nothing held out among it."""

import json
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from draw_hands import UNSEEN_SEED, read_well
from dsocr import models
from hands.archive_texts import ArchiveTexts, archive_lines, is_decent, modern
from hands.cursive import can_write, load_alphabet, random_writer, write
from hands.hand_fonts import BEST_HANDS, CURSIVE, HELD_OUT_FONTS, ITALIC, LATIN_HANDS, PRINT, draw_text, load_file
from hands.paper import Sheets, clean_sheet, finish_line
from hands.pens import Written, deform, draw_strokes, random_style
from hands.real_ink import BASELINE, HEIGHT, X_HEIGHT, RealInk, coverage, cut_line
from pretrain_small import CLASSES, STRETCH, grey_line, start_network
from small_texts import CHARACTERS, Words, count_words

LETTERS = "абвгдеёжзийклмнопрстуфхцчшщъыьэюяѣіѳѵ"
WORDS = Words(["дом", "шинель", "объявление", "хуй"], np.cumsum([0.4, 0.3, 0.2, 0.1]), [])


def draw(text: str, seed: int) -> Written:
    rng = np.random.default_rng(seed)
    style = random_style(rng)
    return draw_strokes(deform(write(text, random_writer(rng), style.space), style, rng), style, rng)


@pytest.fixture
def sheets(tmp_path: Path) -> Sheets:
    grey = np.random.default_rng(2).normal(190, 4, (96, 500)).clip(0, 255).astype(np.uint8)
    grey.tofile(tmp_path / "sheets.pixels")
    (tmp_path / "sheets.jsonl").write_text('{"width": 500, "ink": 0.3, "source": "one"}\n', encoding="utf-8")
    return Sheets(tmp_path / "sheets")


def test_every_letter_can_be_written() -> None:
    signs = "0123456789.,:;!?-–—«»()/№IVX"
    assert can_write(LETTERS + LETTERS.upper() + signs)
    assert set(load_alphabet()) <= set(CHARACTERS)


def test_a_line_depends_on_its_seed_alone(sheets: Sheets) -> None:
    def line(seed: int) -> bytes:
        rng = np.random.default_rng(seed)
        return finish_line(draw("Марья", seed), draw("въ", seed), sheets, rng).tobytes()

    assert line(5) == line(5)
    assert line(5) != line(6)


def test_letters_of_a_word_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    first = {character: glyphs[:1] for character, glyphs in load_alphabet().items()}
    monkeypatch.setattr("hands.cursive.load_alphabet", lambda: first)
    rng = np.random.default_rng(1)
    writer = random_writer(rng)
    writer.lift, writer.oval, writer.hook = 0.0, "retrace", 0.0
    writer.habits = dict.fromkeys(LETTERS, 0)
    for word in ("минули", "шинели", "нева", "волна", "лампа"):
        strokes = [stroke for stroke in write(word, writer, 0.8) if np.ptp(stroke[:, 0]) > 0.5]
        assert len(strokes) == 1, word


def write_page(folder: Path, text: str) -> Path:
    """A page of seven lines in which every letter is one bar, as far from the left as its place in the line."""
    rows = []
    with (folder / "letters.pixels").open("wb") as pixels:
        for _ in range(7):
            ink = np.zeros((HEIGHT, 20 * len(text) + 20), dtype=np.uint8)
            for place, letter in enumerate(text):
                if letter != " ":
                    ink[BASELINE - X_HEIGHT : BASELINE, 20 * place + 12 : 20 * place + 17] = 200
            pixels.write(ink.tobytes())
            cuts = [20.0 * place + 5 for place in range(len(text) + 1)]
            row = {"width": ink.shape[1], "text": text, "page": "one/1", "cuts": cuts, "slant": 0.3}
            rows.append(json.dumps({**row, "sure": [0.9] * (len(text) - 1) + [0.2]}) + "\n")
    (folder / "letters.jsonl").write_text("".join(rows), encoding="utf-8")
    return folder / "letters"


def test_russian_is_set_from_latin_pieces(tmp_path: Path) -> None:
    ink = RealInk(write_page(tmp_path, "nou mar"))
    rng = np.random.default_rng(3)
    page = ink.page(rng)
    assert page.slant == 0.3
    assert coverage("пои та", page) == 1
    assert coverage("пои тар", page) == pytest.approx(5 / 6)
    assert coverage("тг", page) == 0.5  # how sure the reader was of r is too little
    written = ink.write("пои", page, random_style(rng), rng).ink
    bars = ndimage.label(written.max(0) > 0.5)[1]
    assert bars == 3
    assert not written[: BASELINE - X_HEIGHT - 2].any()
    drawn = ink.write("поил", page, random_style(rng), rng).ink
    assert ndimage.label(drawn.max(0) > 0.3)[1] >= 1
    assert drawn.shape[1] > written.shape[1]
    style = random_style(rng)  # what stands beside real letters is as thick as they are, and not flooded
    heavy, light = replace(style, pressure=1.8, flood=9), replace(style, pressure=0.5, flood=0)
    first, second = (ink.write("л", page, manner, np.random.default_rng(5)).ink for manner in (heavy, light))
    np.testing.assert_array_equal(first, second)


def test_a_line_is_cut_where_its_letters_are() -> None:
    face = load_file("dejavu", Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
    written, cells = draw_text("un moment vous", face)
    image = Image.fromarray((235 - 200 * written.ink[60:200]).astype(np.uint8))
    small = Path(models.__file__).parent / "bases" / "small"
    line = cut_line(image, "un moment vous", start_network(small).eval(), CLASSES, STRETCH)
    assert line is not None
    assert abs(line.slant) < 0.1
    strong = np.flatnonzero(line.ink.max(1) > 128)
    assert strong[-1] == pytest.approx(BASELINE, abs=4)
    starts = [cell.start for cell in cells[1:]]
    scale, offset = np.polyfit(starts, line.cuts[1:-1], 1)
    assert scale == pytest.approx(X_HEIGHT / written.x_height, rel=0.2)
    assert np.abs(np.polyval((scale, offset), starts) - line.cuts[1:-1]).max() < 0.35 * X_HEIGHT


def test_strokes_are_taken_from_a_sheet() -> None:
    grey = np.full((96, 600), 200, dtype=np.uint8)
    for place in range(50, 54):
        grey[40:60, place:550:12] = 60
    sheet = clean_sheet(Image.fromarray(grey), np.random.default_rng(1))
    assert sheet is not None
    assert sheet.ink == pytest.approx(0.3, abs=0.1)
    assert sheet.paper.min() > 150
    assert clean_sheet(Image.fromarray(grey[:, :100]), np.random.default_rng(1)) is None


def test_lines_that_cannot_be_read_are_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    face = load_file("dejavu", Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
    line = grey_line(Image.fromarray((235 - 200 * draw_text("moment", face)[0].ink[60:200]).astype(np.uint8)))
    lines = [("moment", line, False), ("сапоги", line, False)]
    small = Path(models.__file__).parent / "bases" / "small"
    assert [text for text, _, _ in read_well(iter(lines), small)] == ["moment"]
    assert "1 lines left out" in capsys.readouterr().out


def test_lines_hold_no_obscenities_and_both_spellings() -> None:
    texts = [ArchiveTexts(WORDS).line(np.random.default_rng(seed)) for seed in range(150)]
    assert all(texts)
    assert max(map(len, texts)) <= 64
    assert not [text for text in texts if "хуй" in text.lower()]
    assert any("ъ " in text or "ѣ" in text for text in texts)
    assert set("".join(texts)) <= set(CHARACTERS)
    assert sum(map(can_write, texts)) > 145


def test_words_have_the_spelling_of_today_and_are_decent() -> None:
    today = {"Ѳедоръ": "Федор", "объявленіе": "объявление", "домъ, на": "дом, на", "Вѣра": "Вера"}
    assert {old: modern(old) for old in today} == today
    assert [word for word in ("художник", "застрахуй", "дом") if is_decent(word)] == ["художник", "дом"]


def test_nothing_held_out_is_drawn_for_training() -> None:
    assert not set(HELD_OUT_FONTS) & {*BEST_HANDS, *CURSIVE, *ITALIC, *PRINT, *LATIN_HANDS}
    assert UNSEEN_SEED > 1_000_000  # seeds of training are small numbers


def test_words_of_literature_become_lines_of_archives() -> None:
    words = count_words(["Домъ, домъ и дом-музей", "и домъ"])
    assert dict(zip(words.frequent, words.cumulated, strict=True)) == {"домъ": 3, "и": 5, "дом-музей": 6}
    lines = list(archive_lines(words, 2000))
    assert 2000 <= sum(map(len, lines)) < 2100
