"""What a generation writes down of its choices, and how it is kept from loops."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from dsocr.models.deepseek_ocr import DeepseekProcessor
from dsocr.models.generation import Generation
from dsocr.models.loading import BaseModel
from dsocr.models.token_batches import NoRepeatNgram, StopLoops, collate, decode
from dsocr.models.token_family import CanvasEncoded
from tests.making_models import deepseek_processor
from tests.raising import raises_code

SHADES = [(90, 255), (600, 30), (300, 128)]


def lines_of(encoder: DeepseekProcessor) -> list[CanvasEncoded]:
    return [encoder.encode(Image.effect_noise((width, 40), shade)) for width, shade in SHADES]


def teacher_forced_scores(nano: BaseModel, encoder: DeepseekProcessor, sample: CanvasEncoded, text: str) -> list[float]:
    """Log probabilities of the tokens of a text and the end token, from one teacher-forced forward pass."""
    answered = CanvasEncoded(sample.prompt_ids, encoder.answer_ids(text), sample.images)
    batch = collate([answered], encoder.pad_id, padding="right")
    labels = batch.pop("labels")[0]
    with torch.no_grad():
        logits = nano.network(**batch).logits[0].float().log_softmax(-1)
    places = (labels >= 0).nonzero().squeeze(1)
    return [float(logits[place - 1, labels[place]]) for place in places]


@pytest.mark.parametrize("guard", [pytest.param(0, id="no guard"), pytest.param(2, id="a guard that often interferes")])
def test_scores_are_the_raw_scores_of_the_model_despite_the_guard(guard: int, nano: BaseModel) -> None:
    encoder = deepseek_processor(nano, None, "free_ocr")
    samples = lines_of(encoder)
    generation = Generation(max_new_tokens=30, no_repeat_ngram_size=guard)
    readings = decode(nano.network, encoder, samples, generation)
    for sample, reading in zip(samples, readings, strict=True):
        assert len(reading.scores) == reading.tokens
        own = teacher_forced_scores(nano, encoder, sample, reading.text)[: reading.tokens]
        assert [score.log_probability for score in reading.scores] == pytest.approx(own, abs=1e-3)
    assert any(reading.overruled for reading in readings) == bool(guard)


def test_beam_search_returns_raw_scores_too(nano: BaseModel) -> None:
    encoder = deepseek_processor(nano, None, "free_ocr")
    samples = lines_of(encoder)
    searched = decode(nano.network, encoder, samples, Generation(max_new_tokens=16, num_beams=3))
    for sample, best in zip(samples, searched, strict=True):
        own = teacher_forced_scores(nano, encoder, sample, best.text)[: best.tokens]
        assert [score.log_probability for score in best.scores] == pytest.approx(own, abs=1e-3)


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("tower", ["sam_encoder.neck", "language_model.layers.1.mlp"])
def test_numbers_that_overflow_float16_are_an_error(tower: str, beams: int, nano: BaseModel) -> None:
    network, encoder = copy.deepcopy(nano.network).half(), deepseek_processor(nano, None, "free_ocr")
    samples, generation = lines_of(encoder), Generation(max_new_tokens=4, num_beams=beams)
    assert len(decode(network, encoder, samples, generation)) == len(samples)
    (module,) = (module for name, module in network.named_modules() if name.endswith(tower))
    module.register_forward_hook(lambda _, __, output: output * 1e6)
    with raises_code("output-not-finite"):
        decode(network, encoder, samples, generation)


def bent(unit: str, base: BaseModel) -> Any:
    """A network that writes a unit over and over: each of its letters is likeliest after the one before it."""
    network, encoder = copy.deepcopy(base.network), deepseek_processor(base, None, "free_ocr")
    letters = encoder.text_ids(unit)
    following = dict(zip(letters, [*letters[1:], letters[0]], strict=True))

    def prefer(module: Any, arguments: Any, kwargs: Any, output: Any) -> Any:
        last = kwargs["input_ids"][:, -1].tolist()
        for row, token in enumerate(last):
            output.logits[row, -1, following.get(token, letters[0])] = 60.0
        return output

    network.register_forward_hook(prefer, with_kwargs=True)
    return network


@pytest.mark.parametrize(("unit", "guard"), [("а", 20), ("слон, ", 0), ("слон, ", 20)])
def test_no_forced_loop_goes_unmarked(unit: str, guard: int, shallow_base: BaseModel) -> None:
    encoder = deepseek_processor(shallow_base, None, "free_ocr")
    generation = Generation(max_new_tokens=100, no_repeat_ngram_size=guard)
    for reading in decode(bent(unit, shallow_base), encoder, lines_of(encoder)[:2], generation):
        assert reading.looping or reading.overruled, "the guard may leave a short text that ends well"
        assert guard or reading.tokens < 100, "it is stopped early"


def test_a_row_that_loops_ends_while_the_others_go_on() -> None:
    stop = StopLoops(lambda ids: ids[-3:] == [5, 5, 5], prompt=2, ends=[1])
    rows = torch.tensor([[9, 9, *[5] * 16], [9, 9, *[6] * 16], [9, 9, *[5] * 8, 1, *[5] * 7]])
    assert stop(rows[:, :17], None).tolist() == [False, False, False], "it looks every 16 tokens"
    assert stop(rows, None).tolist() == [True, False, False], "the third has ended already"
    assert stop.stopped == {0: 16}


def forbidden_by_vllm(written: Sequence[int], size: int, window: int, spared: set[int]) -> set[int]:
    """The tokens that the processor in DeepSeek-OCR's repository forbids, as its loop tells it."""
    if len(written) < size:
        return set()
    prefix = tuple(written[-(size - 1) :])
    grams = [tuple(written[i : i + size]) for i in range(max(0, len(written) - window), len(written) - size + 1)]
    return {gram[-1] for gram in grams if gram[:-1] == prefix} - spared


@example([[0] * 24], 3, 3, 24, set())
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=24, max_size=24), min_size=1, max_size=3),
    st.integers(0, 24),
    st.integers(2, 5),
    st.integers(1, 24),
    st.sets(st.integers(0, 3), max_size=1),
)
def test_the_guard_forbids_the_same_tokens_as_vllm(
    rows: list[list[int]], written: int, size: int, window: int, spared: set[int]
) -> None:
    prompt = [3, 3, 3, 3]
    ids = torch.tensor([[*prompt, *row[:written]] for row in rows])
    scores = torch.zeros(len(rows), 4)
    seen = NoRepeatNgram(size, window, prompt=len(prompt), spared=sorted(spared))(ids, scores)
    found = [{token for token in range(4) if row[token] == -torch.inf} for row in seen]
    assert found == [forbidden_by_vllm(row[:written], size, window, spared) for row in rows]
    assert not scores.any(), "the scores that were given stay as they were"


def test_only_spared_tokens_that_a_base_has_are_looked_for(shallow_base: BaseModel) -> None:
    encoder = deepseek_processor(shallow_base, None, "free_ocr")
    generation = Generation(max_new_tokens=60, no_repeat_ngram_size=6, no_repeat_ngram_whitelist=("а", "<td>"))
    (reading,) = decode(bent("а", shallow_base), encoder, lines_of(encoder)[:1], generation)
    assert reading.looping, "the guard lets it repeat what it spares"


def test_the_probability_of_what_was_read_is_the_product_of_its_tokens(nano: BaseModel) -> None:
    processor = nano.processor(None, "free_ocr")
    images = [Image.new("RGB", (width, 40), 200) for width in (120, 300)]
    encoded = [processor.encode(image) for image in images]
    read = processor.family.decode(nano.network, processor, encoded, Generation(max_new_tokens=40))
    texts = [[one.text, "another"] for one in read]
    found = processor.family.log_likelihoods(nano.network, processor, images, texts)
    for one, (own, other) in zip(read, found, strict=True):
        if one.is_complete:
            assert own == pytest.approx(sum(score.log_probability for score in one.scores), abs=1e-3)
        assert other < own
    assert any(one.is_complete for one in read)
