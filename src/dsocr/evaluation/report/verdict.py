"""What a report says first, whatever it is written in: its title, what was read, and the rates with their intervals."""

from collections.abc import Sequence

from dsocr.evaluation.intervals import clusters_of, interval_of
from dsocr.evaluation.report.charts import Rate
from dsocr.evaluation.report.choosing import ReadLine
from dsocr.evaluation.report.material import Material
from dsocr.evaluation.report.sections import many
from dsocr.evaluation.scores import pooled


def title_of(material: Material) -> str:
    """What the report is about."""
    return f"How well {material.run.path.resolve().name} reads"


def what_of(material: Material, lines: Sequence[ReadLine]) -> str:
    """What was measured, in how many lines of whom."""
    writers = len({line.last.writer for line in lines if line.last.writer})
    by = f" by {many(writers, 'writer')}" if writers else ""
    return f"Characters read wrong (CER) in {many(len(lines), 'line')}{by}, the {material.card.split} split"


def rates_of(material: Material) -> list[Rate]:
    """The CER of each reading with its interval."""
    found = []
    for lines in material.readings.values():
        rates = [line.cer for line in lines]
        found.append(Rate.of(pooled(rates), interval_of(rates, clusters_of(lines))))
    return found
