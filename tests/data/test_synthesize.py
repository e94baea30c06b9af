"""Datasets drawn from fonts; the fonts are Pillow's own under several names."""

from pathlib import Path

import numpy as np
import pytest
from PIL import ImageFont

from dsocr.data.check import check
from dsocr.data.dataset import Dataset
from dsocr.data.render import find_fonts
from dsocr.data.synthesize import SynthesisReport, draw_line, synthesize
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.images import open_image, read_bytes
from tests.data.making import write

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
    lines = [f"{first} and {second}" for first in WORDS for second in WORDS[:6]]
    return write(tmp_path_factory.mktemp("text") / "lines.txt", "\n".join(lines))


def drawn(fonts: Path, text: Path, out: Path, **options: object) -> SynthesisReport:
    settings = {"count": 40, "augmentation": "none", "split": "0.6/0.2/0.2", **options}
    return synthesize(fonts, text, out, **settings)  # type: ignore[arg-type]


def samples(out: Path) -> list[Sample]:
    return [sample for split in Split for sample in Dataset.open(out).samples(split)]


def test_neither_a_font_nor_a_text_stands_in_two_splits(fonts: Path, text: Path, tmp_path: Path) -> None:
    card = drawn(fonts, text, tmp_path / "out").prepared.card
    assert {split: part.samples for split, part in card.splits.items()} == {"train": 24, "validation": 8, "test": 8}
    assert {split: part.writers for split, part in card.splits.items()} == {"train": 2, "validation": 1, "test": 1}
    assert card.crossing == {"writers": 0, "documents": 0, "pages": 0, "texts": 0}


def test_the_dataset_passes_its_own_checks(fonts: Path, text: Path, tmp_path: Path) -> None:
    drawn(fonts, text, tmp_path / "out")
    assert [finding for finding in check(Dataset.open(tmp_path / "out")) if finding.severity == "error"] == []


def test_the_same_seed_gives_the_same_dataset_and_another_another(fonts: Path, text: Path, tmp_path: Path) -> None:
    first, same, other = (
        drawn(fonts, text, tmp_path / str(place), seed=seed, augmentation="medium").prepared.card.splits
        for place, seed in enumerate((1, 1, 2))
    )
    assert first == same
    assert first != other


def test_texts_that_are_fewer_than_lines_come_again_in_other_styles(fonts: Path, tmp_path: Path) -> None:
    short = write(tmp_path / "three.txt", "one line\nanother line\na third line\n")
    card = drawn(fonts, short, tmp_path / "out", count=30, split="1/0/0").prepared.card
    lines = samples(tmp_path / "out")
    assert card.splits[Split.TRAIN].samples == len(lines) == 30
    assert len({line.text for line in lines}) == 3
    assert len({read_bytes(line.image) for line in lines}) == 30
    assert len({line.writer for line in lines if line.text == "one line"}) > 1


def test_a_line_is_about_as_high_as_was_asked(fonts: Path, text: Path, tmp_path: Path) -> None:
    drawn(fonts, text, tmp_path / "out", count=20, height=100)
    heights = [open_image(line.image).height for line in samples(tmp_path / "out")]
    assert 70 < np.median(heights) < 130


def test_a_line_is_not_drawn_in_a_font_that_lacks_a_letter_of_it(fonts: Path, text: Path, tmp_path: Path) -> None:
    mixed = write(tmp_path / "mixed.txt", text.read_text(encoding="utf-8") + "\nприятель\n")
    report = drawn(fonts, mixed, tmp_path / "out", count=61)
    assert "приятель" not in {line.text for line in samples(tmp_path / "out")}
    assert report.undrawn == ["приятель"]
    assert {(lacks.lines, lacks.letters) for lacks in report.lacking.values()} == {(1, "еилпртья")}
    assert report.useless == []


def test_a_font_that_can_draw_nothing_is_listed_with_what_it_lacks(fonts: Path, tmp_path: Path) -> None:
    russian = write(tmp_path / "ru.txt", "мир\n")
    with pytest.raises(DataError, match="no font can draw a line") as caught:
        drawn(fonts, russian, tmp_path / "out")
    assert "Aileron Regular lacks имр" in str(caught.value.hint)
    assert not (tmp_path / "out").exists()


def test_strict_stops_where_a_letter_is_missing(fonts: Path, text: Path, tmp_path: Path) -> None:
    mixed = write(tmp_path / "mixed.txt", text.read_text(encoding="utf-8") + "\nмир\n")
    with pytest.raises(DataError, match="lacks имр"):
        drawn(fonts, mixed, tmp_path / "out", count=61, strict=True)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"this is no font", id="text"),
        pytest.param(b"\x00\x01\x00\x00" + bytes(200), id="a head and nothing behind it"),
    ],
)
def test_a_broken_font_is_a_sentence_and_the_others_are_used(content: bytes, text: Path, tmp_path: Path) -> None:
    font(tmp_path / "fonts" / "good.otf")
    (tmp_path / "fonts" / "broken.ttf").write_bytes(content)
    report = drawn(tmp_path / "fonts", text, tmp_path / "out", split="1/0/0")
    assert "not a font that can be read" in report.broken["broken.ttf"]
    assert len(samples(tmp_path / "out")) == 40
    with pytest.raises(DataError, match=r"broken\.ttf is not a font"):
        drawn(tmp_path / "fonts", text, tmp_path / "other", split="1/0/0", strict=True)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7, 0.9, 0.99])
def test_a_font_that_is_cut_short_draws_what_it_has_or_nothing(share: float, tmp_path: Path) -> None:
    whole = font(tmp_path / "whole.otf").read_bytes()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "cut.otf").write_bytes(whole[: int(share * len(whole))])
    found = find_fonts(tmp_path / "cut")
    letters = "abcdefghijklmnopqrstuvwxyz"
    assert bool(found.broken) != bool(found.files)
    for face in found.faces(letters):
        known = "".join(sorted(face.alphabet))
        assert not known or draw_line(known, face, 40, "none", np.random.default_rng(1)).width > 10


def test_a_folder_without_fonts_says_what_is_read(text: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no fonts") as caught:
        drawn(tmp_path, text, tmp_path / "out")
    assert ".woff2" in str(caught.value.hint)
    with pytest.raises(DataError, match="no such folder of fonts"):
        drawn(tmp_path / "nowhere", text, tmp_path / "out")


def test_too_few_fonts_for_the_splits_say_how_to_go_on(text: Path, tmp_path: Path) -> None:
    font(tmp_path / "fonts" / "one.otf")
    with pytest.raises(DataError, match=r"1 font family \(Aileron\) cannot fill 3 splits") as caught:
        drawn(tmp_path / "fonts", text, tmp_path / "out")
    assert caught.value.hint == "add fonts of another family, or leave splits out, e.g. --split 1/0/0"
    with pytest.raises(DataError, match="is a file, not a folder of fonts"):
        drawn(tmp_path / "fonts" / "one.otf", text, tmp_path / "out")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        pytest.param("one\none", "1 line of text leaves none for validation and test", id="the same line twice"),
        pytest.param("one\ntwo", "2 different lines of text leave none for test", id="two lines"),
    ],
)
def test_too_little_text_for_the_splits_says_how_to_go_on(
    lines: str, sentence: str, fonts: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        drawn(fonts, write(tmp_path / "few.txt", lines), tmp_path / "out")
    assert caught.value.hint == "add text, or leave splits out, e.g. --split 1/0/0"


def test_a_font_with_a_wild_name_gives_file_names_that_every_system_takes(text: Path, tmp_path: Path) -> None:
    font(tmp_path / "fonts" / "one.otf", 'A:/?*<"')
    drawn(tmp_path / "fonts", text, tmp_path / "out", split="1/0/0", count=3)
    assert {line.writer for line in samples(tmp_path / "out")} == {'A:/?*<"'}
    assert all(set(line.id.rpartition("/")[2]).isdisjoint('\\/:*?"<>|') for line in samples(tmp_path / "out"))


def test_a_dataset_in_the_way_is_told_before_anything_is_drawn(fonts: Path, text: Path, tmp_path: Path) -> None:
    drawn(fonts, text, tmp_path / "out", count=10)
    told: list[tuple[int, int]] = []
    with pytest.raises(DataError, match="there is a dataset already"):
        drawn(fonts, text, tmp_path / "out", progress=lambda *done: told.append(done))
    assert told == []
    drawn(fonts, text, tmp_path / "out", count=10, overwrite=True)


def test_fonts_inside_the_folder_to_write_are_not_lost(text: Path, tmp_path: Path) -> None:
    font(tmp_path / "out" / "fonts" / "one.otf")
    with pytest.raises(DataError, match="lies inside"):
        drawn(tmp_path / "out" / "fonts", text, tmp_path / "out", overwrite=True)


def test_faces_know_their_letters(fonts: Path) -> None:
    faces = find_fonts(fonts).faces("azAZ09.,é«» яЁ№漢\u200b")
    assert [face.family for face in faces] == ["Aileron", "Bileron", "Cileron", "Dileron"]
    assert faces[0].alphabet == set("azAZ09.,«»")
    assert len(faces[3].files) == 2


def test_every_letter_of_a_line_is_on_its_image(fonts: Path) -> None:
    """The ink of a line with marks at both ends reaches nearly from rim to rim and touches neither."""
    face = find_fonts(fonts).faces("HIl")[0]
    for seed in range(20):
        image = draw_line("HIllllIH", face, 64, "none", np.random.default_rng(seed)).convert("L")
        grey = np.asarray(image, dtype=float)
        columns = grey.min(axis=0) < np.median(grey) - 25
        assert columns.any()
        first, last = np.flatnonzero(columns)[[0, -1]]
        assert (last - first) > 0.5 * image.width
