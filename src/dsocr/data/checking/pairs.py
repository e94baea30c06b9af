"""Checks whether a transcription can belong to its image: as many characters as the image is wide for.

Swapped and shifted pairs look right one by one. What tells them is that a hand writes about the same number of
characters on a piece of line as wide as the line is high.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence

from dsocr.data.checking.findings import Checked, Findings
from dsocr.data.checking.robust import middle_and_spread
from dsocr.text import is_blank

ENOUGH = 20
"""Samples from which a hand's usual density is known; those of rarer hands are judged by the whole dataset's."""
LEAST_FACTOR = 3.0
"""Denser or sparser than usual by less than this is a matter of taste."""
SPREADS = 6.0
"""A pair is out where it lies so many standard deviations (from the median absolute deviation) off the median."""
LEAST_CHARACTERS = 5
"""A word that is a few letters longer or shorter than it should be proves nothing."""
ENOUGH_TOGETHER = 50
LEAST_CORRELATION = 0.2


def check_pairs(checked: Sequence[Checked], findings: Findings) -> None:
    """Transcriptions far too long or too short for their image, and splits where lengths and widths do not agree."""
    lines = [item for item in checked if item.size and not is_blank(item.sample.text) and "\n" not in item.sample.text]
    hands: dict[str | None, list[Checked]] = defaultdict(list)
    for item in lines:
        hands[item.sample.writer].append(item)
    known = {writer: own for writer, own in hands.items() if writer is not None and len(own) >= ENOUGH}
    for own in known.values():
        _check_densities(own, own, findings)
    if len(lines) >= ENOUGH:
        _check_densities([item for item in lines if item.sample.writer not in known], lines, findings)
    splits: dict[str, list[Checked]] = defaultdict(list)
    for item in lines:
        splits[item.sample.split].append(item)
    for own in splits.values():
        _check_agreement(own, findings)


def _check_densities(judged: Sequence[Checked], usual: Sequence[Checked], findings: Findings) -> None:
    """The samples of `judged` whose density is far from what is usual among `usual`."""
    densities = [_length(item) - _width(item) for item in usual]
    middle, spread = middle_and_spread(densities)
    limit = max(math.log(LEAST_FACTOR), SPREADS * spread)
    for item in judged:
        expected = math.exp(middle + _width(item))
        written = len(item.sample.text)
        off = math.log(written / expected)
        if abs(off) > limit and abs(written - expected) > LEAST_CHARACTERS:
            code, than = ("text-too-long", "long") if off > 0 else ("text-too-short", "short")
            message = f"the transcription is far too {than} for its image"
            findings.add(code, "warning", message, item, f"{written} characters where about {expected:.0f} would fit")


def _check_agreement(lines: Sequence[Checked], findings: Findings) -> None:
    """Whether longer texts have wider images in a split, where lengths and widths vary enough to tell."""
    lengths, widths = [_length(item) for item in lines], [_width(item) for item in lines]
    if len(lines) < ENOUGH_TOGETHER or min(statistics.stdev(lengths), statistics.stdev(widths)) < 0.15:
        return
    correlation = statistics.correlation(lengths, widths)
    shifted = max(statistics.correlation(lengths[1:], widths[:-1]), statistics.correlation(lengths[:-1], widths[1:]))
    # Three standard errors of the difference of two correlations near zero.
    margin = max(0.2, 3 * math.sqrt(2 / len(lines)))
    if correlation < LEAST_CORRELATION or shifted - correlation > margin:
        message = "longer texts do not have wider images: the pairs may be shifted or shuffled"
        detail = f"correlation {correlation:.2f}, and {shifted:.2f} with the text of the line before or after"
        findings.add("pairs-disagree", "warning", message, lines[0], detail)


def _length(item: Checked) -> float:
    return math.log(len(item.sample.text))


def _width(item: Checked) -> float:
    width, height = item.size or (1, 1)
    return math.log(width / height)
