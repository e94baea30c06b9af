"""Whether images and transcriptions belong together, as the base sees it before anything is learnt.

Each transcription is scored on its own image and on another sample's. A base that reads even a little finds its own
image likelier. Where it does not, the base reads the images, and its readings are looked for among all transcriptions:
so a dataset whose images were swapped is told from a hand that the base cannot read.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from peft import PeftModel
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from dsocr.inference.decoding import decode
from dsocr.inference.generation import Generation
from dsocr.model.collating import IGNORED, collate, only_learnt
from dsocr.model.encoding import Encoded, Encoder
from dsocr.text import comparable
from dsocr.training.verdicts import Check

SURE = 3.0
"""Standard errors above zero at which a mean difference counts: by chance, once in about 700."""
_MOST_WINS = 0.9
_NO_DIFFERENCE = 1e-6
_WORSE_THAN_A_GUESS, _LIKE_A_GUESS = 1.05, 0.9
"""Shares of a uniform guess's loss. Bases with random weights were measured at 1.002 and 1.004, nano at 0.07 on clean
lines and 0.40 on a hand that it hardly reads."""
_SHORTEST = 6
_NEAR, _FARTHER = 0.4, 0.3
"""Edits over length up to which a reading is a text's, and by how much more its own text must be away."""


@dataclass(frozen=True, slots=True)
class PairLosses:
    """The mean loss of a token of each transcription, on its own image and on another sample's."""

    own: Sequence[float]
    other: Sequence[float]

    @property
    def differences(self) -> list[float]:
        """By how much the other image raises the loss of each."""
        return [other - own for own, other in zip(self.own, self.other, strict=True)]

    @property
    def rise(self) -> float:
        """The mean of the differences."""
        return statistics.fmean(self.differences)

    @property
    def sureness(self) -> float:
        """How many standard errors the rise is above zero."""
        error = statistics.stdev(self.differences) / math.sqrt(len(self.own)) if len(self.own) > 1 else math.inf
        return self.rise / error if error else math.copysign(math.inf, self.rise)

    @property
    def wins(self) -> int:
        """How many find their own image likelier."""
        return sum(difference > 0 for difference in self.differences)


def pair_losses(model: PeftModel, encoder: Encoder, samples: Sequence[Encoded], *, at_once: int) -> PairLosses:
    """Score each sample with its image and with the next one's, whose text should be another."""
    others = [
        replace(sample, views=following.views, prompt_ids=following.prompt_ids)
        for sample, following in zip(samples, [*samples[1:], samples[0]], strict=True)
    ]
    scored = [sample_losses(model, encoder, rows, at_once=at_once) for rows in (samples, others)]
    return PairLosses(scored[0], scored[1])


@torch.no_grad()
def sample_losses(model: PeftModel, encoder: Encoder, samples: Sequence[Encoded], *, at_once: int) -> list[float]:
    """The mean loss of a learnt token of each sample."""
    model.eval()
    losses: list[float] = []
    for start in range(0, len(samples), at_once):
        rows = samples[start : start + at_once]
        batch = only_learnt(collate(rows, encoder.pad_id, padding="right", device=model.device, dtype=model.dtype))
        labels, _ = batch.pop("labels"), batch.pop("shift_labels")
        logits = model(**batch).logits
        for row, learnt in zip(logits, labels, strict=True):
            there = learnt != IGNORED  # one sample at a time: a vocabulary's worth of float32 a token is much
            losses.append(float(torch.nn.functional.cross_entropy(row[there].float(), learnt[there])))
    return losses


def check_first_loss(losses: Sequence[float], vocabulary: int) -> Check:
    """The loss before the first step beside that of a uniform guess over the vocabulary."""
    mean, guess = statistics.fmean(losses), math.log(vocabulary)
    told = f"the loss before the first step is {mean:.2f}; a guess among {vocabulary} tokens scores {guess:.2f}"
    if not math.isfinite(mean):
        fix = "set training.precision to bf16 or fp32; if it stays so, the base's weights are broken"
        return Check("first loss", "refused", f"the loss before the first step is {mean}", fix)
    if mean > _WORSE_THAN_A_GUESS * guess:
        fix = "the base is sure of something else: are these images of these texts, and is it the right base?"
        return Check("first loss", "refused", f"{told}, which is better", fix)
    if mean > _LIKE_A_GUESS * guess:
        fix = "look whether the images belong to the texts, and whether this base was ever trained"
        return Check("first loss", "warning", f"{told}: the base knows nothing of these texts", fix)
    return Check("first loss", "ok", f"{told}, {guess - mean:.2f} more")


def check_image_matters(losses: PairLosses) -> Check:
    """Whether another image changes the loss at all, and whether it raises it."""
    if len(losses.own) < 2:
        return Check("image matters", "warning", "there is one sample only, so no other image to try")
    if max(map(abs, losses.differences)) < _NO_DIFFERENCE:
        fix = "the image does not reach the text: look at the base's image token and its vision weights"
        return Check("image matters", "refused", "another image does not change the loss of any sample", fix)
    told = f"another sample's image changes the loss by {losses.rise:+.4g} on average of {len(losses.own)} samples"
    if losses.sureness >= SURE:
        return Check("image matters", "ok", told)
    fix = "with such a base nobody can tell before training whether images and texts belong together"
    return Check("image matters", "warning", f"{told}, no sure rise: the base reads nothing in these images", fix)


@dataclass(frozen=True, slots=True)
class Misplaced:
    """An image whose reading is another sample's transcription."""

    id: str
    reading: str
    text: str
    nearest: str


def find_misplaced(
    model: PeftModel,
    encoder: Encoder,
    samples: Sequence[Encoded],
    named: Sequence[tuple[str, str]],
    texts: Sequence[str],
    generation: Generation,
) -> list[Misplaced]:
    """The samples, `named` by id and text, that read as another of the split's `texts` and not as their own."""
    known = [comparable(text) for text in texts]
    found = []
    for start in range(0, len(samples), generation.samples_per_batch):
        part = samples[start : start + generation.samples_per_batch]
        readings = decode(model, encoder, [replace(sample, answer_ids=()) for sample in part], generation)
        for (name, text), reading in zip(named[start:], readings, strict=False):
            nearest = _nearest(comparable(reading.text), comparable(text), known)
            if nearest is not None:
                found.append(Misplaced(name, reading.text, text, nearest))
    return found


def _nearest(reading: str, own: str, known: Sequence[str]) -> str | None:
    """The text that a reading is, where it is clearly not its own; short ones are too easily like another."""
    if len(reading) < _SHORTEST:
        return None
    best = process.extractOne(reading, known, scorer=Levenshtein.normalized_distance, score_cutoff=_NEAR)
    if best is None or Levenshtein.normalized_distance(reading, own) < best[1] + _FARTHER:
        return None
    return best[0]


def unclear(losses: PairLosses) -> bool:
    """True where the losses alone do not say that images and texts belong together."""
    return losses.sureness < SURE or losses.wins < _MOST_WINS * len(losses.own)


def check_pairs(losses: PairLosses, misplaced: Sequence[Misplaced]) -> Check:
    """Whether the images are those of the texts; `misplaced` are looked for only where the losses are `unclear`."""
    count = len(losses.own)
    told = (
        f"{losses.wins} of {count} transcriptions are likelier with their own image than with another's, by"
        f" {losses.rise:.2f} on average ({losses.sureness:.1f} standard errors)"
    )
    details = tuple(
        f"{found.id}: its image reads {found.reading[:50]!r}, as {found.nearest[:50]!r}, not {found.text[:50]!r}"
        for found in misplaced[:5]
    )
    if len(misplaced) >= max(3, count / 8):
        message = f"{len(misplaced)} of {count} images show the transcription of another sample; {told}"
        fix = "the table that pairs images with texts is shifted or shuffled: put it right, and prepare again"
        return Check("pairs", "refused", message, fix, details)
    if losses.sureness < SURE:
        fix = "look at some lines with `dsocr preview`; this base cannot read them well enough to tell"
        return Check("pairs", "warning", f"whether images and texts belong together is unsure: {told}", fix, details)
    if misplaced or unclear(losses):
        return Check("pairs", "warning", told, "some pairs may be wrong: see `dsocr check --html`", details)
    return Check("pairs", "ok", told)
