"""Macro means and quantiles, and what they leave out in the open."""

import pytest

from dsocr.document import Sample, Split
from dsocr.evaluation.breakdown import Averages, MacroMean
from dsocr.evaluation.scores import LineScore, score_lines
from tests.evaluation.test_scores import Read


def scored(*lines: tuple[str, str, str | None]) -> list[LineScore]:
    references = [
        Sample(str(place), None, text, Split.TEST, writer=writer, page=None)  # type: ignore[arg-type]
        for place, (text, _, writer) in enumerate(lines)
    ]
    return score_lines(references, {str(place): Read(read) for place, (_, read, _) in enumerate(lines)})


LINES = scored(("да", "не", "Анна"), ("молоко да", "молоко да", "Анна"), ("йод", "йод йод", "Борис"), ("я", "", None))


def test_a_short_line_counts_as_much_as_a_long_one_only_in_the_macro_mean() -> None:
    averages = Averages.of(LINES)
    assert averages.macro_over_lines == MacroMean((1 + 0 + 4 / 3 + 1) / 4, 3 / 4, 4)
    assert sum(line.cer.errors for line in LINES) / sum(line.cer.length for line in LINES) == pytest.approx(7 / 15)


def test_writers_are_pooled_before_they_are_averaged() -> None:
    averages = Averages.of(LINES)
    assert averages.macro_over_writers.cer == pytest.approx((2 / 11 + 4 / 3) / 2)
    assert averages.macro_over_writers.wer == pytest.approx((1 / 3 + 1) / 2)
    assert averages.macro_over_writers.of == 2
    assert averages.macro_over_pages == MacroMean(None, None, 0)


def test_quantiles_are_of_lines_and_go_over_one() -> None:
    averages = Averages.of(LINES)
    assert averages.median_line_cer == 1.0
    assert averages.p90_line_cer == pytest.approx(1 + 0.7 * (1 / 3))


def test_a_line_without_text_has_no_rate_and_is_counted() -> None:
    averages = Averages.of([*LINES, *scored(("", "да", None))])
    assert averages.macro_over_lines.left_out == 1
    assert averages.macro_over_lines.cer == Averages.of(LINES).macro_over_lines.cer
    assert Averages.of(scored(("", "да", None))).median_line_cer is None
    assert Averages.from_dict(averages.as_dict()) == averages
