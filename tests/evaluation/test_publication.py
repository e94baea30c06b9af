"""Tables for a publication have every number, and no name becomes a formula or a command in them."""

import csv
import io

import pytest

from dsocr.evaluation.compare import Comparison, System, compare
from dsocr.evaluation.publication import comparison_csv, comparison_latex
from tests.evaluation.making_runs import scored

TEXT = "съешь ещё этих мягких булок"


@pytest.fixture
def found() -> Comparison:
    names = [f"w{n % 10}" for n in range(40)]
    systems = {"=base & co": 9, "50_%": 4, "c": 3}
    return compare(
        [
            System(
                name, scored(*((TEXT, "x" * (wrong + n % 3) + TEXT[wrong + n % 3 :]) for n in range(40)), writers=names)
            )
            for name, wrong in systems.items()
        ]
    )


def test_the_csv_has_every_rate_of_every_system_and_every_pair(found: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(comparison_csv(found))))
    assert len(rows) == len(found.rates) * (3 + 3)
    (cer,) = [row for row in rows if (row["rate"], row["system"], row["compared_with"]) == ("CER", "50_%", "")]
    assert float(cer["value"]) == found.systems[1].score.cer.rate
    (pair,) = [row for row in rows if (row["rate"], row["system"], row["compared_with"]) == ("CER", "c", "50_%")]
    difference = found.rates[0].of_pair("50_%", "c")
    assert (float(pair["value"]), float(pair["p_holm"])) == (difference.difference, difference.corrected_p)
    assert (pair["verdict"], pair["interval_over"], pair["clusters"]) == (difference.verdict, "writer", "10")
    assert {row["system"][:1] for row in rows if "base" in row["system"]} == {"'"}, "no formula"


def test_the_latex_is_balanced_and_escapes_names(found: Comparison) -> None:
    text = comparison_latex(found)
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert r"=base \& co & 3" in text
    assert r"50\_\% against =base \& co" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.replace(r"\&", "").count("&") for line in rows} == {3, 4}
    assert all(line.count("{") == line.count("}") for line in text.splitlines())
