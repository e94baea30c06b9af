"""How a line is written: pen, paper and the unsteadiness of a hand, in numbers."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Style:
    """How a line is written. Lengths are in units of the font size; angles are slopes (1 = 45 degrees).

    `tremble` moves every point of the ink a little, so that no two letters are alike; `pressure` is how much the stroke
    grows and shrinks along the line, in units of `stroke`. `above_rule` is how far above a printed rule the writing
    stands; None lets rules fall anywhere. `run_space` is added after each run of a word, where fonts set a Latin full
    stop too close to a Cyrillic letter.
    """

    size: int = 32
    slant: float = 0.0
    rise: float = 0.0
    drift: float = 0.0
    drift_period: float = 12.0
    wobble: float = 0.0
    word_space: float = 1.0
    word_jitter: float = 0.0
    stroke: float = 0.0
    blur: float = 0.0
    ink: tuple[int, int, int] = (40, 40, 60)
    ink_fade: float = 0.0
    paper: tuple[int, int, int] = (245, 243, 236)
    paper_grain: float = 2.0
    paper_shade: float = 4.0
    rules: str = "none"
    margins: tuple[float, float, float, float] = (0.3, 0.1, 0.3, 0.1)
    tremble: float = 0.0
    pressure: float = 0.0
    above_rule: float | None = None
    run_space: float = 0.0


def random_style(rng: np.random.Generator, strength: float = 1.0) -> Style:
    """A plausible pen on plausible paper; `strength` 0 is clean type, 1 a lively hand."""
    grey = int(rng.integers(215, 256))
    tint = rng.integers(-14, 6, 3) if rng.random() < 0.5 else np.zeros(3, dtype=int)
    ink = rng.integers(0, 110) + (rng.integers(0, 50, 3) if rng.random() < 0.5 else np.zeros(3, dtype=int))
    if rng.random() < 0.3:
        ink = ink + np.array([0, 10, 70])
    return Style(
        size=int(rng.choice([26, 29, 32, 35])),
        slant=float(rng.normal(0, 0.13) * strength),
        rise=float(rng.normal(0, 0.008) * strength),
        drift=float(abs(rng.normal(0, 0.05)) * strength),
        drift_period=float(rng.uniform(6, 25)),
        wobble=float(abs(rng.normal(0, 0.035)) * strength),
        word_space=float(rng.uniform(0.75, 1.7)),
        word_jitter=float(abs(rng.normal(0, 0.04)) * strength),
        stroke=float(rng.uniform(-0.2, 0.8)),
        blur=float(abs(rng.normal(0, 0.5))),
        ink=tuple(int(value) for value in np.clip(ink, 0, 190)),  # type: ignore[arg-type]
        ink_fade=float(rng.uniform(0, 0.4) * strength),
        paper=tuple(int(value) for value in np.clip(grey + tint, 180, 255)),  # type: ignore[arg-type]
        paper_grain=float(rng.uniform(0, 6)),
        paper_shade=float(rng.uniform(0, 12)),
        rules=str(rng.choice(["none", "lines", "squares"], p=[0.7, 0.2, 0.1])),
        margins=tuple(float(value) for value in rng.uniform((0, -0.12, 0, -0.12), (0.8, 0.35, 0.8, 0.35))),  # type: ignore[arg-type]
    )
