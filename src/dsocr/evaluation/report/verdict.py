"""What a report says first, whatever it is written in: its title, what was read, and how far one can trust it."""

from collections.abc import Sequence

from dsocr.evaluation.compare import NamedLines, difference_between
from dsocr.evaluation.report.material import Material
from dsocr.evaluation.report.sections import many


def title_of(material: Material) -> str:
    """What the report is about."""
    return f"How well {material.run.path.resolve().name} reads"


def what_of(material: Material) -> str:
    """What was measured, in how many lines of whom."""
    lines = next(iter(material.readings.values()))
    writers = len({line.writer for line in lines if line.writer})
    by = f" by {many(writers, 'writer')}" if writers else ""
    return f"Characters read wrong (CER) in {many(len(lines), 'line')}{by}, the {material.card.split} split"


def sentences_of(material: Material) -> Sequence[str]:
    """The result in a sentence where there are two readings, what is unusual, and how far to trust the rate."""
    compared = []
    if len(material.readings) > 1:
        first, *_, last = (NamedLines(name, lines) for name, lines in material.readings.items())
        told = difference_between(first, last).sentence
        compared.append(f"{told[:1].upper()}{told[1:]}.")
    return [*compared, *material.card.remarks, *material.card.certainty]
