"""Drawing of handwriting for pretraining: deterministic, complete, joined, and nothing held out among it."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from draw_hands import UNSEEN_SEED
from hands.archive_texts import ArchiveTexts, archive_lines, is_decent, modern
from hands.cursive import can_write, load_alphabet, random_writer, write
from hands.hand_fonts import BEST_HANDS, CURSIVE, HELD_OUT_FONTS, ITALIC, LATIN_HANDS, PRINT
from hands.paper import Sheets, clean_sheet, finish_line
from hands.pens import Written, deform, draw_strokes, middle_line, random_style, thin, warp
from small_alphabet import CHARACTERS
from small_texts import Words, count_words

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


@pytest.mark.parametrize("character", sorted(load_alphabet()))
def test_every_variant_leaves_ink(character: str) -> None:
    for seed in range(4):
        assert draw(character, seed).ink.max() > 0.3, seed


def test_a_line_depends_on_its_seed_alone(sheets: Sheets) -> None:
    def line(seed: int) -> bytes:
        rng = np.random.default_rng(seed)
        return finish_line(draw("Марья Петровна", seed), draw("въ домъ", seed), sheets, rng).tobytes()

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


def test_writers_differ_in_their_shapes_and_keep_them() -> None:
    def letters(seed: int) -> list[float]:
        writer = random_writer(np.random.default_rng(seed))
        writer.unsteady, writer.lift = 0.001, 1.0
        widths = [float(np.ptp(stroke[:, 0])) for stroke in write("и и", writer, 1.0)]
        return widths[:2] if not writer.entry else widths[-1:]

    assert len({round(letters(seed)[0], 2) for seed in range(12)}) > 6


def test_middle_lines_are_thin_and_connected() -> None:
    shape = np.zeros((60, 120), dtype=bool)
    shape[20:34, 10:110] = True
    shape[5:55, 50:62] = True
    middle = thin(shape)
    assert ndimage.label(middle, np.ones((3, 3)))[1] == 1
    assert not ndimage.binary_erosion(middle, np.ones((2, 2))).any()
    assert not (middle & ~shape).any()
    assert middle[:, 10:110].any(0).mean() > 0.8
    drawn = middle_line(shape.astype(np.float32), np.random.default_rng(1))
    assert drawn.shape == shape.shape
    assert drawn[middle].min() > 0.5


def test_warping_keeps_the_text_inside() -> None:
    ink = np.zeros((240, 400), dtype=np.float32)
    ink[104:144, 20:380:20] = 1
    ink[104:144, 25:380:20] = 1
    for seed in range(8):
        rng = np.random.default_rng(seed)
        warped = warp(Written(ink, 144, 40.0), random_style(rng), rng)
        assert warped.ink.max() > 0.9
        assert warped.ink[:, [0, -1]].max() < 0.1


def test_strokes_are_taken_from_a_sheet() -> None:
    grey = np.full((96, 600), 200, dtype=np.uint8)
    grey[40:60, 50:550:12] = 60
    grey[40:60, 51:550:12] = 60
    grey[40:60, 52:550:12] = 60
    grey[40:60, 53:550:12] = 60
    sheet = clean_sheet(Image.fromarray(grey), np.random.default_rng(1))
    assert sheet is not None
    assert sheet.ink == pytest.approx(0.3, abs=0.1)
    assert sheet.paper.min() > 150
    assert clean_sheet(Image.fromarray(grey[:, :100]), np.random.default_rng(1)) is None


def test_lines_hold_no_obscenities_and_both_spellings() -> None:
    texts = [ArchiveTexts(WORDS).line(np.random.default_rng(seed)) for seed in range(400)]
    assert all(texts)
    assert max(map(len, texts)) <= 64
    assert not [text for text in texts if "хуй" in text.lower()]
    assert any("ъ " in text or "ѣ" in text for text in texts)
    assert set("".join(texts)) <= set(CHARACTERS)
    assert sum(map(can_write, texts)) > 390


@pytest.mark.parametrize(
    ("old", "new"), [("Ѳедоръ", "Федор"), ("объявленіе", "объявление"), ("домъ, на", "дом, на"), ("Вѣра", "Вера")]
)
def test_spelling_of_today(old: str, new: str) -> None:
    assert modern(old) == new


@pytest.mark.parametrize(("word", "decent"), [("художник", True), ("застрахуй", False), ("дом", True)])
def test_what_is_left_out(word: str, decent: bool) -> None:
    assert is_decent(word) is decent


def test_nothing_held_out_is_drawn_for_training() -> None:
    assert not set(HELD_OUT_FONTS) & {*BEST_HANDS, *CURSIVE, *ITALIC, *PRINT, *LATIN_HANDS}
    assert UNSEEN_SEED > 1_000_000  # seeds of training are small numbers


def test_words_of_literature_become_lines_of_archives() -> None:
    words = count_words(["Домъ, домъ и дом-музей", "и домъ"])
    assert dict(zip(words.frequent, words.cumulated, strict=True)) == {"домъ": 3, "и": 5, "дом-музей": 6}
    lines = list(archive_lines(words, 2000))
    assert 2000 <= sum(map(len, lines)) < 2100
