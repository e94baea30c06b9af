"""Synthesized datasets; the fonts are Pillow's own under several names."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFont

from dsocr.data.check import check_dataset
from dsocr.data.dataset import Dataset
from dsocr.data.render import find_fonts
from dsocr.data.synthesize import (
    MAX_LENGTH,
    MIN_LENGTH,
    SynthesisReport,
    add_neighbour,
    choose_lines,
    draw_line,
    synthesize,
)
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.images import read_bytes
from tests.data.making import write
from tests.raising import raises_code

WORDS = ["amber", "birch", "cedar", "dune", "elm", "fern", "grove", "heath", "ivy", "juniper"]


def font(path: Path, family: str = "Aileron") -> Path:
    """Pillow's own font, which has Latin letters, under another name of seven letters."""
    data = ImageFont.load_default(20).path.getvalue()  # type: ignore[union-attr]
    for encoding in ("ascii", "utf-16-be"):
        data = data.replace("Aileron".encode(encoding), family.encode(encoding))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def fonts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four families, one of them in two files."""
    folder = tmp_path_factory.mktemp("fonts")
    for number, family in enumerate(("Aileron", "Bileron", "Cileron", "Dileron", "Dileron")):
        font(folder / f"{number}.otf", family)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [f"{first} and {second}" for first in WORDS for second in WORDS[7:]]
    return write(tmp_path_factory.mktemp("text") / "lines.txt", "\n".join(lines))


def drawn(fonts: Path, text: Path, out: Path, **options: object) -> SynthesisReport:
    settings = {"count": 20, "augmentation": "none", "split": "0.6/0.2/0.2", **options}
    return synthesize(fonts, text, out, **settings)  # type: ignore[arg-type]


def samples(out: Path) -> list[Sample]:
    return [sample for split in Split for sample in Dataset.open(out).samples(split)]


def test_fonts_and_texts_are_in_one_split_only(fonts: Path, text: Path, tmp_path: Path) -> None:
    card = drawn(fonts, text, tmp_path / "out").prepared.card
    assert {split: part.samples for split, part in card.splits.items()} == {"train": 12, "validation": 4, "test": 4}
    assert {split: part.writers for split, part in card.splits.items()} == {"train": 2, "validation": 1, "test": 1}
    assert card.crossing == {"writers": 0, "documents": 0, "pages": 0, "texts": 0}
    assert check_dataset(Dataset.open(tmp_path / "out")).of("error") == []


def test_seed_decides(fonts: Path, text: Path, tmp_path: Path) -> None:
    first, same, other = (
        drawn(fonts, text, tmp_path / str(place), seed=seed, augmentation="medium", count=10).prepared.card.splits
        for place, seed in enumerate((1, 1, 2))
    )
    assert first == same
    assert first != other


def test_few_texts_are_repeated_in_other_styles(fonts: Path, tmp_path: Path) -> None:
    short = write(tmp_path / "three.txt", "one line\nanother line\na third line\n")
    card = drawn(fonts, short, tmp_path / "out", count=15, split="1/0/0").prepared.card
    lines = samples(tmp_path / "out")
    assert card.splits[Split.TRAIN].samples == len(lines) == 15
    assert len({line.text for line in lines}) == 3
    assert len({read_bytes(line.image) for line in lines}) == 15
    assert len({line.writer for line in lines if line.text == "one line"}) > 1


def test_no_line_is_drawn_in_a_font_that_lacks_a_letter(fonts: Path, text: Path, tmp_path: Path) -> None:
    mixed = write(tmp_path / "mixed.txt", text.read_text(encoding="utf-8") + "\nприятель\n")
    report = drawn(fonts, mixed, tmp_path / "out", count=31)
    assert "приятель" not in {line.text for line in samples(tmp_path / "out")}
    assert (report.undrawn, report.unused) == (["приятель"], [])
    assert set(report.missing.values()) == {(1, "еилпртья")}
    with raises_code("fonts-incomplete"):
        drawn(fonts, mixed, tmp_path / "strict", count=31, strict=True)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"this is no font", id="text"),
        pytest.param(b"\x00\x01\x00\x00" + bytes(200), id="a head and nothing behind it"),
    ],
)
def test_broken_font_is_reported_and_others_are_used(content: bytes, text: Path, tmp_path: Path) -> None:
    font(tmp_path / "fonts" / "good.otf")
    (tmp_path / "fonts" / "broken.ttf").write_bytes(content)
    report = drawn(tmp_path / "fonts", text, tmp_path / "out", split="1/0/0")
    assert list(report.broken) == ["broken.ttf"]
    assert len(samples(tmp_path / "out")) == 20
    with raises_code("fonts-incomplete"):
        drawn(tmp_path / "fonts", text, tmp_path / "other", split="1/0/0", strict=True)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7, 0.9, 0.99])
def test_truncated_font_draws_its_glyphs_or_nothing(share: float, tmp_path: Path) -> None:
    whole = font(tmp_path / "whole.otf").read_bytes()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "cut.otf").write_bytes(whole[: int(share * len(whole))])
    found = find_fonts(tmp_path / "cut")
    letters = "abcdefghijklmnopqrstuvwxyz"
    assert bool(found.broken) != bool(found.files)
    for face in found.faces(letters):
        known = "".join(sorted(face.alphabet))
        assert not known or draw_line(known, face, 40, "none", np.random.default_rng(1)).width > 10


@pytest.mark.parametrize(
    ("families", "lines", "code"),
    [
        pytest.param(0, "one\ntwo\nthree", "fonts-missing", id="no fonts"),
        pytest.param(1, "\n".join(WORDS), "fonts-too-few", id="fewer families than splits"),
        pytest.param(3, "one\none", "text-too-short", id="the same line twice"),
        pytest.param(3, "one\ntwo", "text-too-short", id="fewer lines than splits"),
        pytest.param(3, "мир\nдом\nлес", "fonts-unusable", id="letters that no font has"),
    ],
)
def test_too_little_to_draw(families: int, lines: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "fonts").mkdir()
    for family in "ABC"[:families]:
        font(tmp_path / "fonts" / f"{family}.otf", f"{family}ileron")
    with raises_code(code) as caught:
        drawn(tmp_path / "fonts", write(tmp_path / "few.txt", lines), tmp_path / "out")
    assert caught.value.hint
    assert not (tmp_path / "out").exists()


def test_font_name_that_is_no_file_name(text: Path, tmp_path: Path) -> None:
    font(tmp_path / "fonts" / "one.otf", 'A:/?*<"')
    drawn(tmp_path / "fonts", text, tmp_path / "out", split="1/0/0", count=3)
    assert {line.writer for line in samples(tmp_path / "out")} == {'A:/?*<"'}
    assert all(set(line.id.rpartition("/")[2]).isdisjoint('\\/:*?"<>|') for line in samples(tmp_path / "out"))


def test_nothing_is_drawn_over_a_dataset_or_over_the_fonts(fonts: Path, text: Path, tmp_path: Path) -> None:
    drawn(fonts, text, tmp_path / "out", count=10)
    done: list[tuple[int, int]] = []
    with pytest.raises(DataError):
        drawn(fonts, text, tmp_path / "out", progress=lambda *counts: done.append(counts))
    assert done == []
    drawn(fonts, text, tmp_path / "out", count=10, overwrite=True)
    font(tmp_path / "other" / "fonts" / "one.otf")
    with pytest.raises(DataError):
        drawn(tmp_path / "other" / "fonts", text, tmp_path / "other", overwrite=True)


def test_faces_know_their_letters(fonts: Path) -> None:
    faces = find_fonts(fonts).faces("azAZ09.,é«» яЁ№漢\u200b")
    assert [face.family for face in faces] == ["Aileron", "Bileron", "Cileron", "Dileron"]
    assert faces[0].alphabet == set("azAZ09.,«»")
    assert len(faces[3].files) == 2


def test_no_letter_is_cut_off(fonts: Path) -> None:
    """The ink of a line reaches nearly from edge to edge and touches neither."""
    face = find_fonts(fonts).faces("HIl")[0]
    for seed in range(20):
        image = draw_line("HIllllIH", face, 64, "none", np.random.default_rng(seed)).convert("L")
        grey = np.asarray(image, dtype=float)
        columns = grey.min(axis=0) < np.median(grey) - 25
        assert columns.any()
        first, last = np.flatnonzero(columns)[[0, -1]]
        assert (last - first) > 0.5 * image.width


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param("\ufeffПервая  строка\r\n\r\n третья", ["Первая строка", "третья"], id="with single spaces"),
        pytest.param("второ\u0438\u0306", ["второй"], id="composed"),
        pytest.param("да\nнет\nда\nда \n", ["да", "нет"], id="a repeated line counts once"),
        pytest.param("раз\rдва", ["два", "раз"], id="line ends of old Macs"),
    ],
)
def test_short_lines_are_used_as_they_are(text: str, lines: list[str], tmp_path: Path) -> None:
    assert sorted(choose_lines(write(tmp_path / "t.txt", text), 10, 1)[0]) == lines


def test_running_text_is_broken_between_words(tmp_path: Path) -> None:
    words = [f"слово{number}" for number in range(400)]
    lines = choose_lines(write(tmp_path / "t.txt", " ".join(words)), 1000, 1)[0]
    assert sorted(" ".join(lines).split()) == sorted(words)
    assert max(map(len, lines)) <= MAX_LENGTH
    assert sum(len(line) < MIN_LENGTH - 9 for line in lines) <= 1


def test_lines_are_a_fair_sample_that_the_seed_decides(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "\n".join(map(str, range(100))))
    samples = [choose_lines(path, 10, seed)[0] for seed in range(60)]
    assert choose_lines(path, 10, 0)[0] == samples[0] != samples[1]
    assert all(len(set(lines)) == 10 for lines in samples)
    assert 210 < sum(int(line) < 50 for lines in samples for line in lines) < 390


def test_skipped_text_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", f"a\u200bb\n{'x' * 61} and {'y' * 70}\ngood\n")
    lines, skipped = choose_lines(path, 10, 1)
    assert sorted(lines) == ["and", "good"]
    assert sorted(skipped.values()) == [1, 2], "a line with an invisible character, and two long words"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param(b"", "text-empty", id="an empty file"),
        pytest.param(b" \n\t\n", "text-empty", id="white space"),
        pytest.param("привет".encode("cp1251"), "not-utf8", id="another encoding"),
        pytest.param(b"abc \xd0", "not-utf8", id="cut within a letter"),
        pytest.param(None, "file-unreadable", id="no file"),
    ],
)
def test_text_that_cannot_be_used(content: bytes | None, code: str, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    if content is not None:
        path.write_bytes(content)
    with raises_code(code):
        choose_lines(path, 10, 1)


@pytest.mark.parametrize("end", [" ", ""], ids=["words", "one endless word"])
def test_very_long_line_is_read_in_chunks(end: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", f"ёлка{end}" * 100_000 + "\nlast")
    lines, _ = choose_lines(path, 5, 1)
    assert len(lines) <= 5
    assert set("".join(lines)) <= set("ёлка last")


@given(st.text(max_size=300), st.integers(1, 20))
def test_any_text_gives_clean_lines_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, text: str, count: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "t.txt"
    path.write_bytes(text.encode("utf-8", "ignore"))
    try:
        lines = choose_lines(path, count, 1)[0]
    except DataError:
        return
    assert 0 < len(lines) <= count
    assert all(line == " ".join(line.split()) and line and len(line) <= MAX_LENGTH for line in lines)


def test_strokes_of_a_neighbouring_line_stay_at_the_edges() -> None:
    page = Image.new("RGB", (400, 60), (240, 235, 220))
    other = Image.new("RGB", (150, 60), "white")
    other.paste((0, 0, 0), (20, 5, 130, 56))
    edges = set()
    for seed in range(12):
        changed = np.asarray(add_neighbour(page, other, np.random.default_rng(seed))) != np.asarray(page)
        rows = np.flatnonzero(changed.any(axis=(1, 2)))
        assert 0 < len(rows) <= 16
        assert rows.max() < 17 or rows.min() > 42
        edges.add(bool(rows.max() < 17))
    assert edges == {True, False}
