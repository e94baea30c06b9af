"""Estimate how many lines of a dataset have a wrong text, and how many of them the first lines of a list hold.

The scores of all lines are a mixture: of right lines, whose upper scores fall off at least exponentially, and of
mistakes, whose scores are those of planted mistakes of the same kind. How many mistakes of each kind there are is
drawn from its posterior: counts of scores in bins are Poisson, the numbers of the kinds are alike a priori, within a
factor of four either way, and counts are taken to carry less than their number, because swapped and shifted lines come
together. Mistakes that no score shows, such as an accent or a comma, are only counted by that likeness: most of the
width of the interval is theirs, so those of a word or more are also counted alone. Kinds of mistakes that are planted
nowhere are not counted.

Draws are made by differential evolution Markov chains (ter Braak 2006).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsocr.evaluation.statistics import INTERVAL_QUANTILES, Floats

_GROUPS = {
    "swapped": 0,
    "shifted": 0,
    "other": 0,
    "missing": 1,
    "added": 1,
    "script": 2,
    "spelling": 3,
}
"""Kinds with much the same scores."""
_SHARES = np.array([3.0, 2.0, 1.0, 4.0])
"""Kinds in each group; the last are small: a letter's mark or number, a letter, a sign, an ending."""
_SPREAD = 0.7
"""Standard deviation of the logarithm of a kind's number around the usual one."""
_INFORMATION = 0.6
"""What a count carries of a Poisson count's information."""
_BINS = 16
_START = 0.7
"""The quantile of the scores from which on they are modelled."""
_SEED = 17
_CHAINS, _STEPS, _WARMUP = 48, 3000, 1000


@dataclass(frozen=True, slots=True)
class MistakeCount:
    """The number of mistakes, with its 95 % interval, and the probability that each line, by its place, is one.

    `large` are number and interval of those of a word or more, or of another script.
    """

    count: float
    low: float
    high: float
    large: tuple[float, float, float]
    probabilities: Floats

    def found_in_first(self, lines: int) -> float:
        """Return how many mistakes the most suspicious lines, this many, are expected to hold."""
        return float(np.sort(self.probabilities)[::-1][:lines].sum())


def count_mistakes(scores: Floats, planted: Floats, kinds: Sequence[str]) -> MistakeCount | None:
    """Estimate the number of mistakes from the scores of all lines, and of planted mistakes with their kinds.

    None with fewer than 100 lines, or if a group of kinds was hardly planted: there is too little to learn from.
    """
    groups = np.array([_GROUPS[kind] for kind in kinds])
    if len(scores) < 100 or any((groups == group).sum() < 20 for group in range(len(_SHARES))):
        return None
    start = float(np.quantile(scores, _START))
    inner = np.quantile(np.concatenate([scores[scores > start], planted[planted > start]]), np.linspace(0, 1, _BINS))
    edges = np.unique(np.concatenate([[start], inner[1:-1]]))
    counts = np.histogram(scores, [*edges, np.inf])[0].astype(float)
    shapes = []
    for group in range(len(_SHARES)):
        members = planted[groups == group]
        hist = np.histogram(members, [*edges, np.inf])[0] + 0.2
        shapes.append(hist / (len(members) + 0.2 * (len(hist) + 1)))
    draws = _draw(counts, edges - start, np.array(shapes), len(scores))
    right, wrong = _expected(draws, edges - start, np.array(shapes))
    totals = np.exp(draws[:, 4:]).sum(1)
    low, middle, high = np.quantile(np.minimum(totals, len(scores)), INTERVAL_QUANTILES).tolist()
    fewest, usual, most = np.quantile(np.exp(draws[:, 4:-1]).sum(1), INTERVAL_QUANTILES).tolist()
    share = np.maximum.accumulate((wrong / (wrong + right)).mean(0))
    # Below the modelled scores, what is left of the mistakes is spread over all lines.
    shown = share[np.searchsorted(edges, scores, side="right") - 1]
    below = scores <= start
    rest = max(0.0, float(totals.mean() - (wrong.sum(1)).mean()))
    probabilities = np.where(below, min(1.0, rest / max(1, int(below.sum()))), shown)
    return MistakeCount(middle, low, high, (usual, fewest, most), probabilities)


def _expected(draws: Floats, offsets: Floats, shapes: Floats) -> tuple[Floats, Floats]:
    """Return how many right and wrong lines each draw expects in each bin."""
    tails = np.exp(-np.exp(draws[:, 1:2]) * offsets - np.exp(draws[:, 2:3]) * offsets**2)
    inside = tails - np.concatenate([tails[:, 1:], np.zeros((len(tails), 1))], axis=1)
    return np.exp(draws[:, 0:1]) * inside, np.exp(draws[:, 4:]) @ shapes


def _log_posterior(draws: Floats, counts: Floats, offsets: Floats, shapes: Floats, lines: int) -> Floats:
    right, wrong = _expected(draws, offsets, shapes)
    rate = right + wrong + 1e-9
    likelihood = (counts * np.log(rate) - rate).sum(1) * _INFORMATION
    usual = draws[:, 3:4]
    prior = -(((draws[:, 4:] - np.log(_SHARES) - usual) / _SPREAD) ** 2).sum(1) / 2
    prior -= ((draws[:, 0] - np.log(counts.sum())) / 0.5) ** 2 / 2
    prior -= ((draws[:, 2] + 3) / 1.5) ** 2 / 2
    outside = (usual[:, 0] < np.log(0.05)) | (usual[:, 0] > np.log(lines / 7)) | (np.abs(draws[:, 1]) > 5)
    return np.where(outside, -np.inf, likelihood + prior)


def _draw(counts: Floats, offsets: Floats, shapes: Floats, lines: int) -> Floats:
    """Draw the logarithms of (right lines, linear and square rate of their fall, number of a kind, and of a group)."""
    random = np.random.default_rng(_SEED)
    size = 4 + len(_SHARES)
    now = random.normal(0, 0.3, (_CHAINS, size))
    now[:, 0] += np.log(counts.sum())
    now[:, 2] -= 3
    now[:, 3] += np.log(max(1.0, 0.02 * lines / 7))
    now[:, 4:] += np.log(_SHARES) + now[:, 3:4]
    value = _log_posterior(now, counts, offsets, shapes, lines)
    kept = []
    for step in range(_STEPS):
        first, second = (random.permutation(_CHAINS) for _ in range(2))
        factor = 1.0 if step % 10 == 0 else 2.38 / np.sqrt(2 * size)
        proposed = now + factor * (now[first] - now[second]) + random.normal(0, 0.01, now.shape)
        other = _log_posterior(proposed, counts, offsets, shapes, lines)
        taken = np.log(random.random(_CHAINS)) < other - value
        now, value = np.where(taken[:, None], proposed, now), np.where(taken, other, value)
        if step >= _WARMUP and step % 10 == 0:
            kept.append(now)
    return np.concatenate(kept)
