"""Checks whether the splits hold enough, and whether training shows what the other splits ask for."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from dsocr.data.card import METADATA_FILE
from dsocr.data.checking.findings import Checked, Findings
from dsocr.data.checking.letters import invisible
from dsocr.data.checking.texts import shown
from dsocr.data.dataset import Dataset
from dsocr.samples import Split

LEAST_SAMPLES = 50
LEAST_WRITERS = 3
HARDLY = 5
"""Times that a character stands in training, from which a model has seen some of its shapes."""
MATTERS = 5
RAREST = 5


def check_balance(dataset: Dataset, checked: Sequence[Checked], findings: Findings) -> None:
    """Every check of this module."""
    splits: dict[Split, list[Checked]] = defaultdict(list)
    for item in checked:
        splits[item.sample.split].append(item)
    _check_characters(splits, findings)
    _check_sizes(splits, findings)
    if dataset.card.split_by == "writer" and splits[Split.TEST]:
        _check_writers(splits[Split.TEST], findings)


def _check_characters(splits: Mapping[Split, Sequence[Checked]], findings: Findings) -> None:
    """Characters that validation or test ask for and training never shows, or hardly ever."""
    learnt = _counted(splits.get(Split.TRAIN, ()))
    asked = [item for split in (Split.VALIDATION, Split.TEST) for item in splits.get(split, ())]
    if not learnt or not asked:
        return
    counts = _counted(asked)
    first = {character: item for item in reversed(asked) for character in item.sample.text}
    for character, count in counts.items():
        # One that stands once in the whole dataset is told as such.
        if not learnt[character] and count > 1 and not character.isspace() and not invisible(character):
            message = "validation or test asks for a character that training never shows"
            detail = f"{shown(character)} stands there {count} times"
            findings.add("unseen-in-train", "warning", message, first[character], detail)
    rare = [character for character, count in counts.items() if 0 < learnt[character] < HARDLY and count >= MATTERS]
    for character in sorted(rare, key=lambda character: learnt[character] / counts[character])[:RAREST]:
        message = "training hardly ever shows a character that validation or test asks for"
        detail = f"{shown(character)} stands there {counts[character]} times, in training {learnt[character]}"
        findings.add("rare-characters", "note", message, first[character], detail)


def _counted(items: Sequence[Checked]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for item in items:
        counts.update(item.sample.text)
    return counts


def _check_sizes(splits: Mapping[Split, Sequence[Checked]], findings: Findings) -> None:
    """A test split too small to tell two models apart."""
    test = splits.get(Split.TEST, ())
    if 0 < len(test) < LEAST_SAMPLES:
        characters = max(1, sum(len(item.sample.text) for item in test))
        # Errors of one line go together, so the real uncertainty is larger than this binomial one.
        points = 100 * 1.96 * math.sqrt(0.1 * 0.9 / characters)
        message = (
            f"the test split has {len(test)} samples with {characters} characters: chance alone moves a CER of 10 % "
            f"by at least {points:.1f} points"
        )
        findings.add_place("few-samples", "note", message, f"{Split.TEST}/{METADATA_FILE}")


def _check_writers(test: Sequence[Checked], findings: Findings) -> None:
    """A test by so few hands that their mean says little about the next one."""
    writers = {item.sample.writer for item in test} - {None}
    if 0 < len(writers) < LEAST_WRITERS:
        hands = "one writer" if len(writers) == 1 else f"{len(writers)} writers"
        message = f"the test split is by {hands}: its score tells of them and little of others"
        findings.add_place("few-writers", "note", message, f"{Split.TEST}/{METADATA_FILE}")
