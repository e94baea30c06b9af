"""Validation: which adapter is the best, and calibrated confidences."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.evaluation.calibration import JudgedLine, fit_calibration
from dsocr.inference.confidence import UNCALIBRATED, Calibration
from dsocr.models.ctc import LineRecognizer
from dsocr.models.generation import Decoded, Generation, TokenScore
from dsocr.models.loading import Base, BaseModel, load_base
from dsocr.runs import CALIBRATION
from dsocr.text import TextPolicy
from dsocr.training.validation import (
    PeriodicValidation,
    ValidationResult,
    Validator,
    calibrate_predictions,
    final_scores,
)


class Measured(PeriodicValidation):
    """Validations with the rank and the loss that are given."""

    def __init__(self, results: Sequence[tuple[tuple[float, float], float]]) -> None:
        super().__init__(every_steps=1, patience=2)
        self.results, self.kept = iter(results), list[int]()

    def _measure(self, model: Any, step: int) -> ValidationResult:
        rank, loss = next(self.results)
        return ValidationResult(step, loss, rank, "", "", {}, {})

    def _keep(self, model: Any, step: int) -> None:
        self.kept.append(step)


def test_the_best_has_the_lowest_rank_and_a_finite_loss() -> None:
    ranks = [(0.5, 3.0), (0.5, 1.0), (0.5, 2.0), (0.4, 2.0), (0.1, 0.0), (0.4, 2.0)]
    validator, is_best = Measured([(rank, math.nan if rank[0] == 0.1 else 1.0) for rank in ranks]), list[bool]()
    validator.on_result = lambda result: is_best.append(result.is_best)
    for step in range(1, 7):
        assert not validator.is_out_of_patience
        validator.validate(None, step)
    assert is_best == [True, True, False, True, False, False]
    assert validator.kept == [1, 2, 4]
    assert validator.state.best_step == 4
    assert validator.is_out_of_patience
    before = validator.state
    validator.load_state_dict(json.loads(json.dumps(validator.state_dict())))
    assert validator.state == before
    assert validator.state is not before


def test_over_long_lines_count_in_the_cer_and_not_in_the_loss(
    small_dataset: Path, nano: BaseModel, tmp_path: Path
) -> None:
    processor = nano.processor(None, "free_ocr")
    samples = Dataset.open(small_dataset).samples(Split.VALIDATION)
    lengths = {sample.id: len(processor.text_ids(sample.text)) for sample in samples}
    limit = sorted(lengths.values())[1]
    short = [sample for sample in samples if lengths[sample.id] <= limit]
    assert 0 < len(short) < len(samples)

    def validate(samples: Sequence[Sample], max_text_tokens: int) -> ValidationResult:
        settings: dict[str, Any] = {"every_steps": 1, "patience": 0, "folder": tmp_path, "text_policy": TextPolicy()}
        generation = Generation(max_new_tokens=8)
        validator = Validator(samples, processor, generation, max_text_tokens=max_text_tokens, **settings)
        return validator._measure(nano.network, 1)

    limited, without_long, unlimited = validate(samples, limit), validate(short, 512), validate(samples, 512)
    assert limited.loss == pytest.approx(without_long.loss, rel=1e-4)
    assert limited.loss != pytest.approx(unlimited.loss, rel=1e-2)
    assert limited.rates == unlimited.rates != without_long.rates


def reading(text: str, *, looping: bool = False) -> Decoded:
    scores = tuple(TokenScore(place, place + 1, math.log(0.9)) for place in range(len(text)))
    end = TokenScore(len(text), len(text), math.log(0.8))
    return Decoded(text, len(text) + 1, looping, looping, scores if looping else (*scores, end))


def test_calibration_is_the_same_whichever_process_read_the_lines() -> None:
    readings, references = [reading("мир труд"), reading("май")], ["мир труп", "май"]
    passed: list[Any] = json.loads(json.dumps([final_scores(one) for one in readings]))
    judged = [JudgedLine.compute(one.scored, reference) for one, reference in zip(readings, references, strict=True)]
    fitted = calibrate_predictions(
        [(reference, *scored) for reference, scored in zip(references, passed, strict=True)], TextPolicy()
    )
    assert fitted == fit_calibration(judged) != UNCALIBRATED
    assert calibrate_predictions([], TextPolicy()) == UNCALIBRATED
    assert calibrate_predictions([("мир", "", ())], TextPolicy()).word == UNCALIBRATED.word


def test_confidences_are_fitted_again_where_the_language_model_does_not_help(
    small_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Base.find("small")
    scales = Calibration.load(base.folder)
    settings: dict[str, Any] = {"max_text_tokens": 512, "every_steps": 1, "patience": 0, "text_policy": TextPolicy()}
    samples = Dataset.open(small_dataset).samples(Split.VALIDATION)
    processor: Any = base.processor(None, "")
    validator = Validator(samples, processor, Generation(), folder=tmp_path, base=scales, **settings)
    without = replace(processor, language_model_source=None)
    monkeypatch.setattr(LineRecognizer, "fit_language_model", lambda *arguments, **options: without)
    ((name, content),), _ = validator.fit_language_model(load_base(base).network, [])
    fitted = json.loads(content)
    assert (name, fitted["lines"], fitted["few_hands"]) == (CALIBRATION, len(samples), True)
    assert fitted["word"]["slope"] != scales.word.slope, "the base's, which has one, are no guide"


def test_calibration_judges_what_the_text_policy_leaves() -> None:
    line = ("да нет", *final_scores(reading("да  нет")))
    plain = calibrate_predictions([line], TextPolicy(spaces="keep"))
    tidied = calibrate_predictions([line], TextPolicy(spaces="collapse"))
    assert tidied.character.offset > plain.character.offset, "the second space is no error"


def test_a_loop_is_judged_as_far_as_it_is_kept() -> None:
    text, scores = final_scores(reading("мир " + "ой " * 60, looping=True))
    assert len(text) < 40
    assert len(scores) <= len(text)
