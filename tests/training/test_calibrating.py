"""Confidences are fitted on readings of the validation split as they would be transcribed."""

import json
import math

from dsocr.evaluation.calibration import JudgedLine, fit_calibration
from dsocr.inference.confidence import UNCALIBRATED, TokenScore
from dsocr.inference.decoding import Decoded
from dsocr.text import TextPolicy
from dsocr.training.validation import calibration_of, scored_of


def reading(text: str, *, looping: bool = False) -> Decoded:
    scores = tuple(TokenScore(place, place + 1, math.log(0.9)) for place in range(len(text)))
    end = TokenScore(len(text), len(text), math.log(0.8))
    return Decoded(text, len(text) + 1, looping, looping, scores if looping else (*scores, end))


def test_the_fit_is_that_of_the_lines_judged_whichever_process_read_them() -> None:
    readings, references = [reading("мир труд"), reading("май")], ["мир труп", "май"]
    passed = json.loads(json.dumps([scored_of(one) for one in readings]))
    judged = [JudgedLine.compute(one.scored, reference) for one, reference in zip(readings, references, strict=True)]
    fitted = calibration_of(zip(references, passed, strict=True), TextPolicy())
    assert fitted == fit_calibration(judged) != UNCALIBRATED


def test_what_is_judged_is_what_the_text_policy_makes_of_it() -> None:
    scored = scored_of(reading("да  нет"))
    plain = calibration_of([("да нет", scored)], TextPolicy(spaces="keep"))
    tidied = calibration_of([("да нет", scored)], TextPolicy(spaces="collapse"))
    assert tidied.character.offset > plain.character.offset, "the second space is no error"


def test_a_loop_is_judged_as_far_as_it_is_kept() -> None:
    text, scores = scored_of(reading("мир " + "ой " * 60, looping=True))
    assert len(text) < 40
    assert len(scores) <= len(text)


def test_no_lines_change_nothing() -> None:
    assert calibration_of([], TextPolicy()) == UNCALIBRATED
    assert calibration_of([("мир", ("", ()))], TextPolicy()).word == UNCALIBRATED.word
