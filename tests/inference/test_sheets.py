"""Lines read together, and again where the answer has another number of them."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dsocr.inference import sheets as module
from dsocr.inference.decoding import Reading
from dsocr.inference.generation import Generation
from dsocr.inference.sheets import encode_sheet, parted
from dsocr.inference.transcriber import Prediction, Transcriber
from dsocr.model.encoding import Encoded, Encoder
from dsocr.model.loading import BaseModel
from dsocr.text import TextPolicy

line_texts = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), min_size=1)


@given(line_texts)
def test_texts_come_back_from_the_answer(texts: list[str]) -> None:
    assert parted("\n".join(texts), len(texts)) == texts


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        pytest.param("a", 2, id="two lines read as one"),
        pytest.param("a\nb\nc", 2, id="one line read as two"),
        pytest.param("", 3, id="nothing read"),
        pytest.param("a\nb\n", 2, id="a line more, though it is empty"),
    ],
)
def test_an_answer_with_another_number_of_lines_is_no_answer(answer: str, lines: int) -> None:
    assert parted(answer, lines) is None


class Oracle:
    """Stands for a network that reads line images by their shade, and a sheet as `spoil` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, spoil: Any = None) -> None:
        self.shown: list[int] = []
        self.budgets: list[int] = []
        self._texts: dict[int, list[str]] = {}
        self._spoil = spoil or (lambda reading: reading)
        monkeypatch.setattr(module, "encode_sheet", self.encode_sheet)
        monkeypatch.setattr(module, "decode", self.decode)
        monkeypatch.setattr(Encoder, "encode", lambda encoder, image: self.encode_sheet(encoder, [image]))

    def encode_sheet(self, encoder: Encoder, images: Sequence[Image.Image]) -> Any:
        key = object()
        self._texts[id(key)] = [text_of(image) for image in images]
        self.shown.append(len(images))
        self._kept = [*getattr(self, "_kept", []), key]
        return key

    def decode(
        self, network: Any, encoder: Encoder, samples: Sequence[Encoded], generation: Generation
    ) -> list[Reading]:
        self.budgets.append(generation.max_new_tokens)
        answers = []
        for sample in samples:
            texts = self._texts[id(sample)]
            reading = Reading("\n".join(texts), sum(map(len, texts)) + len(texts), truncated=False)
            answers.append(self._spoil(reading) if len(texts) > 1 else reading)
        return answers


def text_of(image: Image.Image) -> str:
    return f"line {image.getpixel((0, 0))}"


def lines(*names: str) -> list[tuple[str, Image.Image]]:
    return [(name, Image.new("L", (300, 60), shade)) for shade, name in enumerate(names, start=10)]


def read(nano: BaseModel, images: list[tuple[str, Image.Image]], lines_per_sheet: Any, **options: Any) -> Any:
    generation = Generation(max_new_tokens=20, samples_per_batch=2)
    encoder = nano.encoder(None, "free_ocr")
    return list(Transcriber(None, encoder, generation, TextPolicy(), lines_per_sheet).read(images, **options))


@pytest.mark.parametrize("lines_per_sheet", [1, 2, 3, "auto"])
def test_sheets_read_right_are_as_lines_read_alone(
    lines_per_sheet: Any, nano: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    Oracle(monkeypatch)
    images = lines(*(f"box/{number}.png" for number in range(11)))
    assert read(nano, images, lines_per_sheet) == [
        Prediction(name, text_of(image), len(text_of(image)) + 1, truncated=False) for name, image in images
    ]


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda reading: Reading(reading.text.replace("\n", " ", 1), 9, False), id="lines run together"),
        pytest.param(lambda reading: Reading(reading.text + "\nand", 9, False), id="one line too many"),
        pytest.param(lambda reading: Reading(reading.text, 40, True), id="right so far, but cut off"),
    ],
)
def test_a_sheet_that_is_read_wrong_is_read_again_line_by_line(
    spoil: Any, nano: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = Oracle(monkeypatch, spoil)
    images = lines("a.png", "b.png", "c.png", "d.png", "e.png")
    predictions = read(nano, images, 2)
    assert [prediction.text for prediction in predictions] == [text_of(image) for _, image in images]
    assert [prediction.read_again for prediction in predictions] == [True] * 4 + [False]
    assert sorted(oracle.shown) == [1] * 5 + [2, 2]
    assert set(oracle.budgets) == {40, 20}, "a line's budget for each line"


def test_lines_of_two_folders_or_hands_do_not_share_a_sheet(nano: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = Oracle(monkeypatch)
    read(nano, lines("a/1.png", "a/2.png", "b/1.png", "b/2.png"), "auto")
    assert oracle.shown == [2, 2]
    oracle.shown.clear()
    hands = {"a/1.png": "anna", "a/2.png": "anna", "b/1.png": "anna", "b/2.png": None}
    read(nano, lines(*hands), "auto", hand_of=hands.get)
    assert oracle.shown == [3, 1]


def test_the_base_reads_sheets_it_was_never_taught(nano: BaseModel) -> None:
    """Nothing is faked: whatever nano answers, each line gets a prediction, in order."""
    encoder = nano.encoder(None, "free_ocr")
    generation = Generation(max_new_tokens=8, samples_per_batch=4)
    images = lines("a.png", "b.png", "c.png")
    together = Transcriber(nano.network, encoder, generation, TextPolicy(), 3)
    predictions = list(together.read(images))
    assert [prediction.id for prediction in predictions] == ["a.png", "b.png", "c.png"]
    if predictions[0].read_again:
        alone = Transcriber(nano.network, encoder, generation, TextPolicy())
        assert [line.text for line in predictions] == [line.text for line in alone.read(images)]


def test_one_line_alone_is_shown_as_without_sheets(nano: BaseModel) -> None:
    encoder = nano.encoder(None, "free_ocr")
    image = Image.effect_noise((500, 60), 60)
    assert (encode_sheet(encoder, [image]).views.whole == encoder.encode(image).views.whole).all()
    assert (encode_sheet(encoder, [image] * 2).views.whole != encoder.encode(image).views.whole).any()
