"""Lines that run into a loop are read once more; what loops then too is cut off and never unmarked."""

from typing import Any

import pytest
from PIL import Image

from dsocr.inference.decoding import Generation
from dsocr.inference.transcriber import Prediction, Transcriber
from dsocr.loops import is_looping
from dsocr.model.loading import BaseModel
from dsocr.text import TextPolicy
from tests.inference.test_decoding import bent


def read(network: Any, nano: BaseModel, guard: int, lines_per_sheet: int = 1) -> list[Prediction]:
    generation = Generation(max_new_tokens=96, no_repeat_ngram_size=guard, samples_per_batch=4)
    encoder = nano.encoder(None, "free_ocr")
    images = [(f"{place}.png", Image.effect_noise((400 + 90 * place, 40), 60)) for place in range(4)]
    return list(Transcriber(network, encoder, generation, TextPolicy(), lines_per_sheet).read(images))


@pytest.mark.parametrize("lines_per_sheet", [1, 2])
@pytest.mark.parametrize("unit", ["а", "да ", "слон, "])
@pytest.mark.parametrize("guard", [pytest.param(0, id="no guard"), pytest.param(20, id="guard")])
def test_every_forced_loop_is_flagged_and_none_is_written_out(
    unit: str, guard: int, lines_per_sheet: int, nano: BaseModel
) -> None:
    for prediction in read(bent(unit, nano.encoder(None, "free_ocr")), nano, guard, lines_per_sheet):
        assert not is_looping(prediction.text)
        assert {"looping", "tried_again", "overruled", "truncated"} & set(prediction.flags)


def test_what_does_not_loop_is_read_once(nano: BaseModel) -> None:
    assert not any(prediction.tried_again for prediction in read(nano.network, nano, 20) if not prediction.truncated)


def test_a_loop_that_no_guard_breaks_is_cut_off_where_it_begins(
    nano: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second try is as loose as the first, so that both loop."""
    monkeypatch.setattr("dsocr.inference.second_try.stricter", lambda generation: generation)
    for prediction in read(bent("слон, ", nano.encoder(None, "free_ocr")), nano, 0):
        assert prediction.flags == ("empty", "looping", "truncated", "tried_again")
        assert prediction.text == ""
        assert prediction.confidence is None
