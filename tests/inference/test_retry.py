"""Lines that loop are read again; lines that always loop are truncated and flagged."""

from typing import Any

import pytest
from PIL import Image

from dsocr.inference.confidence import Prediction
from dsocr.inference.reader import LocalReader
from dsocr.models.generation import Generation
from dsocr.models.loading import BaseModel
from dsocr.models.token_family import stricter
from dsocr.text import TextPolicy, is_looping
from tests.inference.test_decoding import bent
from tests.making_models import deepseek_processor


def read(network: Any, shallow_base: BaseModel, guard: int) -> list[Prediction]:
    generation = Generation(max_new_tokens=96, no_repeat_ngram_size=guard, batch_size=4)
    encoder = deepseek_processor(shallow_base, None, "free_ocr")
    images = [(f"{place}.png", Image.effect_noise((400 + 90 * place, 40), 60)) for place in range(2)]
    return list(LocalReader(network, encoder, generation, TextPolicy()).read(images))


@pytest.mark.parametrize(
    ("unit", "guard"),
    [
        pytest.param("да ", 20, id="a word, guard"),
        pytest.param("слон, ", 0, id="a phrase, no guard"),
    ],
)
def test_every_forced_loop_is_flagged_and_none_is_written_out(unit: str, guard: int, shallow_base: BaseModel) -> None:
    for prediction in read(bent(unit, shallow_base), shallow_base, guard):
        assert not is_looping(prediction.text)
        assert {"looping", "retried", "overruled", "truncated"} & set(prediction.flags)


def test_the_second_attempt_is_greedy_and_its_guard_sees_the_whole_text() -> None:
    usual = Generation(max_new_tokens=700, no_repeat_ngram_size=30, no_repeat_ngram_window=90, num_beams=4)
    again = stricter(usual)
    assert (again.no_repeat_ngram_window, again.num_beams) == (700, 1)
    assert 0 < again.no_repeat_ngram_size < 30


def test_a_loop_that_no_guard_breaks_is_cut_off_where_it_begins(
    shallow_base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second try is as loose as the first, so that both loop."""
    monkeypatch.setattr("dsocr.models.token_family.stricter", lambda generation: generation)
    for prediction in read(bent("слон, ", shallow_base), shallow_base, 0):
        assert prediction.flags == ("empty", "looping", "truncated", "retried")
        assert prediction.text == ""
        assert prediction.confidence is None


def test_a_successful_retry_is_not_retried_again(shallow_base: BaseModel) -> None:
    """A network that loops in its first batch, and else writes two letters and the end."""
    encoder = deepseek_processor(shallow_base, None, "free_ocr")
    network, (well, done) = bent("слон, ", shallow_base), encoder.text_ids("ну")
    following = {well: done, done: encoder.end_id}
    batches: list[int] = []

    def end(module: Any, arguments: Any, kwargs: Any, output: Any) -> Any:
        ids = kwargs["input_ids"]
        if ids.shape[1] > 1:
            batches.append(len(ids))
        if len(batches) > 1:
            for row, token in enumerate(ids[:, -1].tolist()):
                output.logits[row, -1, following.get(token, well)] = 90.0
        return output

    network.register_forward_hook(end, with_kwargs=True)
    predictions = read(network, shallow_base, 0)
    assert {(prediction.text, prediction.flags) for prediction in predictions} == {("ну", ("retried",))}
    assert batches == [2, 2]
