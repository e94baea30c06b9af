"""Bar charts as inline SVG: no library, no script; colours come from the page's style, so they suit light and dark."""

import math
from collections import Counter
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 440, 150
_FOOT = 30
_HEAD = 14
_MOST_BINS = 36
_OUTER = 0.995
"""The share of values that is drawn at scale; what lies farther out goes into the last bar."""


def histogram(values: Sequence[float], title: str, unit: str) -> str:
    """How many values are how large; nothing where there are none. The last bar holds all that is larger."""
    if not values:
        return ""
    ordered = sorted(values)
    low, high = ordered[0], ordered[min(len(ordered) - 1, int(_OUTER * len(ordered)))]
    step = _nice((high - low) / _MOST_BINS, whole=all(float(value).is_integer() for value in ordered))
    start = math.floor(low / step)
    bins = int(high / step) - start + 1
    counts = Counter(min(int(value / step) - start, bins - 1) for value in ordered)
    bars = []
    for place in range(bins):
        begin = (start + place) * step
        end = begin + step if place < bins - 1 else ordered[-1]
        bars.append((f"{begin:g} to {end:g} {unit}", counts[place]))
    middle = ordered[len(ordered) // 2]
    scale = [(0.0, f"{start * step:g}"), (1.0, f"{(start + bins) * step:g} {unit}")]
    note = f"median {middle:.4g}, most {ordered[-1]:.4g}"
    return _chart(title, note, [(label, count, count) for label, count in bars], scale)


def columns(counts: Sequence[tuple[str, int]], title: str, note: str) -> str:
    """A bar for each named count, in their order; nothing where there are none."""
    return _chart(title, note, [(name, count, count) for name, count in counts], []) if counts else ""


def letter_columns(counts: Sequence[tuple[str, int]], title: str, note: str) -> str:
    """The same with logarithmic heights and each name below its bar; names must be short."""
    if not counts:
        return ""
    scale = [((place + 0.5) / len(counts), name) for place, (name, _) in enumerate(counts)]
    bars = [(name, math.log1p(count), count) for name, count in counts]
    return _chart(title, note, bars, scale, centred=True)


def _chart(
    title: str,
    note: str,
    bars: Sequence[tuple[str, float, int]],
    scale: Sequence[tuple[float, str]],
    *,
    centred: bool = False,
) -> str:
    """Bars of (label, height in any unit, count); `scale` are words below them, each at a share of the width."""
    most = max(height for _, height, _ in bars) or 1
    wide = WIDTH / len(bars)
    gap = min(1.0, wide / 5)
    room = HEIGHT - _FOOT - _HEAD
    drawn = "".join(
        f'<rect x="{place * wide + gap / 2:.1f}" y="{HEIGHT - _FOOT - room * height / most:.1f}" '
        f'width="{wide - gap:.1f}" height="{room * height / most:.1f}"><title>{escape(label)}: {count}</title></rect>'
        for place, (label, height, count) in enumerate(bars)
        if height
    )
    words = "".join(_word(share, word, centred=centred) for share, word in scale)
    base = f'<path d="M0 {HEIGHT - _FOOT + 0.5}H{WIDTH}"/>'
    told = f'<text x="{WIDTH}" y="10" text-anchor="end">{max(count for _, _, count in bars)} at most</text>'
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{drawn}{base}{words}{told}</svg>'
    )
    return f"<figure><figcaption><b>{escape(title)}</b> {escape(note)}</figcaption>{svg}</figure>"


def _word(share: float, word: str, *, centred: bool) -> str:
    anchor = "middle" if centred else "start" if share < 0.5 else "end"
    return f'<text x="{share * WIDTH:.1f}" y="{HEIGHT - _FOOT + 16}" text-anchor="{anchor}">{escape(word)}</text>'


def _nice(step: float, *, whole: bool) -> float:
    """The next step of 1, 2 or 5 times a power of ten; at least 1 among whole numbers."""
    if step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    nice = next(times * power for times in (1, 2, 5, 10) if times * power >= step * 0.999)
    return max(1.0, nice) if whole else nice
