"""The script of a collection or a page and the trust in a language model: decided from texts or logits.

A network that saw real ink in Latin only answers in Latin letters where it is unsure. Where the script is known,
letters of the other one are omitted, but for whole words that are clearly in it. A language model is asked as far as
it foresees the letters that are clear on a page, so that it does not turn one language into another.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsocr.models.language_model import LanguageModel
from dsocr.text import letter_script

SCRIPTS = ("latin", "cyrillic")
UNSURE = "unsure"
"""Decision about lines that leave their script open, which are read as `any`."""
MIN_LINES = 6
"""With this many lines the likelier script is taken, however little likelier it is."""
SAMPLE_LINES = 48
"""Lines that decide the script of a job."""
_SHARE = 0.95
"""Share of the letters of training texts that decides their script."""
_CLEAR = 0.9
"""Lowest probability of each letter of a word that is clearly in the other script."""
_CLEAR_LETTERS = 2
"""Fewest letters of a word that counts; a letter alone has twins in the other script."""
_MIXED = (3, 8)
"""Letters of a clear word, and letters in such words, that each script has on a mixed page."""
_SURE = 100.0
"""Fewer lines decide if the log likelihoods differ by more: lines of a known script were never so much likelier in
the other one, alone or together."""
_WEIGHT = 0.5
"""Weight of the language model in the decision: on a page that is hardly read it foresees neither script's text."""
_FORESEES = (0.1, 0.5)
"""Mean logarithm of how much likelier the model makes clear letters than their frequency does: where it has no weight,
and all. Pages in its languages have 0.5 to 4.5, others -0.8 to 0.5 (lab/verdicts.md)."""
_CONTEXT = 2
"""Letters before a clear one that must be clear too: on a page that is hardly read most are wrong, and after a wrong
letter the model foresees nothing in any language."""
_USUAL, _USUAL_LETTERS = 0.5, 20
"""Prior belief about a page's script, with the weight of so many letters."""

Probabilities = NDArray[np.float32]
"""Of one line, (T, classes); class 0 is the blank, class `i + 1` is `characters[i]`."""


class Emission(NamedTuple):
    """A character on the likeliest path: its class, its first step, the step after its last, its best probability."""

    number: int
    start: int
    end: int
    probability: float


def script_of_texts(texts: Iterable[str]) -> str:
    """Return the script of nearly all letters of texts, `any` if there is none."""
    counts = dict.fromkeys(SCRIPTS, 0)
    for text in texts:
        for character in text:
            if (script := str(letter_script(character)).lower()) in counts:
                counts[script] += 1
    return next((script for script, count in counts.items() if count > _SHARE * sum(counts.values())), "any")


def describe_script(script: str) -> str:
    """Return a sentence about the decision, which is kept in files."""
    return f"Script of the lines: {script}, decided by some of them; the option script sets it."


@lru_cache(maxsize=8)
def _classes(characters: tuple[str, ...]) -> Mapping[str, NDArray[np.bool_]]:
    """Return which classes are letters of each script."""
    scripts = [None, *map(letter_script, characters)]
    return {name: np.array([script == name.capitalize() for script in scripts]) for name in SCRIPTS}


def best_path(probabilities: Probabilities) -> list[Emission]:
    """Return the characters of the likeliest path."""
    runs: list[Emission] = []
    previous = 0
    for step, (index, probability) in enumerate(
        zip(probabilities.argmax(1).tolist(), probabilities.max(1).tolist(), strict=True)
    ):
        if index and index == previous:
            runs[-1] = runs[-1]._replace(end=step + 1, probability=max(runs[-1].probability, probability))
        elif index:
            runs.append(Emission(index, step, step + 1, probability))
        previous = index
    return runs


def text_of(runs: Iterable[Emission], characters: Sequence[str]) -> str:
    """Return the text of a path."""
    return "".join(characters[run.number - 1] for run in runs)


def restrict(probabilities: Probabilities, characters: tuple[str, ...], script: str) -> Probabilities:
    """Return probabilities without letters of another script, but in words that are clearly in it."""
    if script not in SCRIPTS:
        return probabilities
    others = _classes(characters)[_other(script)]
    kept = _without(probabilities, others)
    for word in _clear_words(probabilities, characters, others, _CLEAR_LETTERS):
        kept[word[0].start : word[-1].end] = probabilities[word[0].start : word[-1].end]
    return kept


def _other(script: str) -> str:
    return next(name for name in SCRIPTS if name != script)


def _clear_words(
    probabilities: Probabilities, characters: Sequence[str], classes: NDArray[np.bool_], least: int
) -> Iterator[list[Emission]]:
    """Yield words with `least` letters or more, all of them clearly of the given classes."""
    for word in _words(best_path(probabilities), characters):
        letters = [run for run in word if characters[run.number - 1].isalpha()]
        if len(letters) >= least and all(classes[run.number] and run.probability >= _CLEAR for run in letters):
            yield word


def _without(probabilities: Probabilities, classes: NDArray[np.bool_]) -> Probabilities:
    kept: Any = np.where(classes, np.float32(0), probabilities)
    total = kept.sum(1, keepdims=True)
    kept[total[:, 0] <= 0, 0] = 1
    divided: Probabilities = kept / np.where(total > 0, total, np.float32(1))
    return divided


def _words(runs: Iterable[Emission], characters: Sequence[str]) -> Iterator[list[Emission]]:
    word: list[Emission] = []
    for run in runs:
        if characters[run.number - 1].isspace():
            if word:
                yield word
            word = []
        else:
            word.append(run)
    if word:
        yield word


def decide_script(
    lines: Sequence[Probabilities], characters: tuple[str, ...], model: LanguageModel | None, enough: float = MIN_LINES
) -> str | None:
    """Return the script in which the lines of a page are likelier, the language model included.

    `any` if they have clear words in both, or the network knows one script; None if fewer than `enough` leave it open.
    """
    classes = _classes(characters)
    if not all(places.any() for places in classes.values()):
        return "any"
    least, letters = _MIXED
    words = [
        [word for line in lines for word in _clear_words(line, characters, classes[name], least)] for name in SCRIPTS
    ]
    if all(sum(map(len, clear)) >= letters for clear in words):
        return "any"
    scores = {
        script: sum(_log_likelihood(line, classes[_other(script)], characters, model) for line in lines)
        for script in SCRIPTS
    }
    script = max(scores, key=lambda script: scores[script])
    is_sure = scores[script] - scores[_other(script)] > _SURE
    return script if is_sure or len(lines) >= enough else None


def model_share(lines: Iterable[Probabilities], characters: Sequence[str], model: LanguageModel) -> float:
    """Return the share of its weight, 0 to 1, that a language model has on a page with these lines.

    It depends on how well the model foresees each letter that is clear, as are those before it, compared with how
    frequent that letter is.
    """
    total, count = _USUAL * _USUAL_LETTERS, _USUAL_LETTERS
    for line in lines:
        runs = best_path(line)
        text = text_of(runs, characters)
        clear = [run.probability > _CLEAR for run in runs]
        known = (at for at in range(len(runs)) if all(clear[max(0, at - _CONTEXT) : at + 1]))
        gains = [model.log_probability(text[at], text[:at]) for at in known]
        total, count = total + sum(gains), count + len(gains)
    none, full = _FORESEES
    return min(1.0, max(0.0, (total / count - none) / (full - none)))


def _log_likelihood(
    probabilities: Probabilities, others: NDArray[np.bool_], characters: Sequence[str], model: LanguageModel | None
) -> float:
    """Return how likely the likeliest path without some classes is, and its text."""
    kept: Any = np.where(others, np.float32(0), probabilities)
    network = float(np.log(np.maximum(kept.max(1), 1e-6)).sum())
    return network + (_WEIGHT * model.score(text_of(best_path(kept), characters)) if model else 0.0)
