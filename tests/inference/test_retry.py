"""Lines that loop are read again; lines that always loop are truncated and flagged."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from dsocr.inference.confidence import Prediction
from dsocr.inference.reader import LocalReader
from dsocr.models.canvas import Resolution
from dsocr.models.causal_decoding import stricter
from dsocr.models.generation import Generation
from dsocr.models.loading import BaseModel
from dsocr.text import TextPolicy, is_looping
from tests.inference.test_decoding import bent
from tests.making_models import deepseek_processor

SMALLER = Resolution("smaller", 192, "wrap", 32, max_row_height=48)
"""One that nano's network takes, though it has not learnt to read at it."""


def read(network: Any, shallow_base: BaseModel, guard: int, others: tuple[Resolution, ...] = ()) -> list[Prediction]:
    generation = Generation(max_new_tokens=96, no_repeat_ngram_size=guard, batch_size=4)
    encoder = replace(deepseek_processor(shallow_base, None, "free_ocr"), others=others)
    images = [(f"{place}.png", Image.effect_noise((400 + 90 * place, 40), 60)) for place in range(4)]
    return list(LocalReader(network, encoder, generation, TextPolicy()).read(images))


@pytest.mark.parametrize(
    ("unit", "guard"),
    [
        pytest.param("а", 0, id="a letter, no guard"),
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
    monkeypatch.setattr("dsocr.models.causal_decoding.stricter", lambda generation: generation)
    for prediction in read(bent("слон, ", shallow_base), shallow_base, 0):
        assert prediction.flags == ("empty", "looping", "truncated", "retried")
        assert prediction.text == ""
        assert prediction.confidence is None


Batches = list[tuple[int, int]]
"""How many image slots each image of a batch had, and how many images it held; a pair for every batch so far."""


def bent_while(loops: Callable[[Batches], bool], shallow_base: BaseModel) -> tuple[Any, Batches]:
    """A network that loops in the batches chosen by `loops`, and else writes two letters and the end."""
    encoder = deepseek_processor(shallow_base, None, "free_ocr")
    network, (well, done) = bent("слон, ", shallow_base), encoder.text_ids("ну")
    following = {well: done, done: encoder.end_id}
    batches: Batches = []

    def end(module: Any, arguments: Any, kwargs: Any, output: Any) -> Any:
        ids = kwargs["input_ids"]
        if ids.shape[1] > 1:
            batches.append((int((ids[0] == encoder.image_token_id).sum()), len(ids)))
        if not loops(batches):
            for row, token in enumerate(ids[:, -1].tolist()):
                output.logits[row, -1, following.get(token, well)] = 90.0
        return output

    network.register_forward_hook(end, with_kwargs=True)
    return network, batches


def at_its_own_resolution(batches: Batches) -> bool:
    return batches[-1][0] == 73


def test_a_successful_retry_is_not_retried_again(shallow_base: BaseModel) -> None:
    network, batches = bent_while(lambda batches: len(batches) == 1, shallow_base)
    read_ = read(network, shallow_base, 0, others=(SMALLER,))
    assert {(prediction.text, prediction.flags) for prediction in read_} == {("ну", ("retried",))}
    assert batches == [(73, 4), (73, 4)]


def test_a_line_that_loops_twice_is_read_at_another_resolution_and_flagged(
    shallow_base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr.models.causal_decoding.stricter", lambda generation: generation)
    network, _ = bent_while(at_its_own_resolution, shallow_base)
    for prediction in read(network, shallow_base, 0, (SMALLER,)):
        assert prediction.text == "ну"
        assert prediction.flags == ("retried", "other_resolution")


def test_a_line_that_loops_at_every_resolution_keeps_the_start_of_its_first_text(
    shallow_base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr.models.causal_decoding.stricter", lambda generation: generation)
    network, batches = bent_while(lambda _: True, shallow_base)
    for prediction in read(network, shallow_base, 0, others=(SMALLER,)):
        assert prediction.flags == ("empty", "looping", "truncated", "retried")
    assert batches == [(73, 4), (73, 4), (43, 4)]


def test_no_more_image_slots_are_read_at_once_at_a_larger_resolution(
    shallow_base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr.models.causal_decoding.stricter", lambda generation: generation)
    network, batches = bent_while(at_its_own_resolution, shallow_base)
    read(network, shallow_base, 0, others=(replace(SMALLER, size=384, max_row_height=64),))
    assert batches == [(73, 4), (73, 4), *[(157, 1)] * 4]
