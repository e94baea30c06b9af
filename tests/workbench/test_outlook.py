"""How many errors are left, and how long it takes to correct them."""

import pytest

from dsocr.evaluation.metrics import ErrorRate
from dsocr.workbench.session import Outlook, estimate_outlook


def test_errors_are_expected_where_the_model_doubts() -> None:
    waiting = [(True, 0.5, 100), (False, 0.9, 50), (False, 0.8, 50), (False, None, 100)]
    outlook = estimate_outlook([], waiting)
    assert outlook.expected == pytest.approx((10, 5))
    assert outlook.cer == pytest.approx(15 / 200)


def test_confidences_are_corrected_by_what_was_found() -> None:
    waiting = [(False, 0.9, 100)]
    judged = [(0.9, ErrorRate(2, 10))] * 20  # one error in ten was expected, two were found
    assert estimate_outlook(judged[:19], waiting).cer == pytest.approx(0.1)
    assert estimate_outlook(judged, waiting).cer == pytest.approx(0.2)
    assert estimate_outlook([(0.9, ErrorRate(90, 10))] * 20, waiting).cer == 1.0


def test_the_most_doubtful_lines_come_first() -> None:
    outlook = Outlook((5.0, 3.0, 1.0, 1.0), 100)
    assert [outlook.lines_until(cer) for cer in (0.2, 0.1, 0.05, 0.02, 0.0)] == [0, 0, 1, 2, 4]
