"""What a batch teaches, token by token: the transcription and its end, and nothing else.

Looks at batches as the collator makes them. Shapes: `B` samples, `T` tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from dsocr.model.collating import IGNORED, aligned_labels
from dsocr.model.encoding import Encoder
from dsocr.training.verdicts import Check

_SHOWN_TOKENS = 48
_SHOWN_CHARACTERS = 40


def check_labels(batch: Mapping[str, Any], texts: Sequence[str], encoder: Encoder) -> Check:
    """Whether the labels (B, T) of a batch are its texts and their end tokens; the details show each sample."""
    batch = {**batch, "labels": aligned_labels(dict(batch))}
    rows = [_Row(batch, place, encoder) for place in range(len(texts))]
    problems = [problem for row, text in zip(rows, texts, strict=True) for problem in row.problems(text)]
    details = tuple(line for row in rows for line in row.shown())
    if problems:
        told = "; ".join(dict.fromkeys(problems))
        fix = "this is no setting of yours: the code that makes the batch is wrong, or its tokenizer.json is"
        return Check("labels", "refused", f"the labels are not the transcriptions: {told}", fix, details)
    learnt = sum(len(row.learnt) for row in rows)
    told = f"{learnt} tokens of {len(rows)} samples are learnt: each transcription and its end, nothing else"
    return Check("labels", "ok", told, details=details)


def check_characters(texts: Sequence[str], encoder: Encoder) -> Check:
    """Whether the base's tokenizer can write the texts; where it cannot write most of them it is the wrong base."""
    unknown = set(encoder.unknown_characters("".join(sorted(set().union(*texts)))))
    if not unknown:
        return Check("characters", "ok", f"the tokenizer can write all {len(texts)} texts")
    count = sum(not unknown.isdisjoint(text) for text in texts)
    shown = "".join(sorted(unknown)[:_SHOWN_CHARACTERS])
    message = f"the tokenizer cannot write {shown!r}, {len(unknown)} characters in {count} of {len(texts)} texts"
    fix = "choose a base that knows the script, or replace the characters in the source"
    return Check("characters", "refused" if count > len(texts) / 2 else "warning", message, fix)


class _Row:
    """One sample of a batch: ids, labels, and what is padding."""

    def __init__(self, batch: Mapping[str, Any], place: int, encoder: Encoder) -> None:
        self._encoder = encoder
        self._ids: list[int] = batch["input_ids"][place].tolist()
        self._labels: list[int] = batch["labels"][place].tolist()
        self._present: list[int] = batch["attention_mask"][place].tolist()
        self.learnt = [label for label in self._labels if label != IGNORED]

    def problems(self, text: str) -> Iterator[str]:
        """Everything that is wrong with what is learnt."""
        end, places = int(self._encoder.tokenizer.eos_token_id), range(len(self._ids))
        if not self.learnt:
            yield "all is masked, so nothing would be learnt"
            return
        learnt = [place for place in places if self._labels[place] != IGNORED]
        if any(self._labels[place] != self._ids[place] for place in learnt):
            yield "labels and input ids do not stand at the same places"
        if any(not self._present[place] for place in learnt):
            yield "padding is learnt"
        if self._encoder.image_token_id in self.learnt:
            yield "image slots are learnt"
        if learnt[0] <= max((p for p in places if self._ids[p] == self._encoder.image_token_id), default=-1):
            yield "what stands before the image's end is learnt"
        if self.learnt[-1] != end:
            yield "the end token is not learnt, so the model would not learn to stop"
        answer = self.learnt[:-1] if self.learnt[-1] == end else self.learnt
        if self._encoder.unknown_characters(text):
            return  # `check_characters` tells of them
        decoded = self._encoder.tokenizer.decode(answer, skip_special_tokens=False)
        if decoded != text:
            yield f"what is learnt reads {decoded[:60]!r}, not {text[:60]!r}"

    def shown(self) -> Iterator[str]:
        """A line for each stretch of the sequence: masked, learnt or padding, how many tokens, and which."""
        places = range(len(self._ids))
        for kind, stretch in groupby(places, key=self._kind):
            ids = [self._ids[place] for place in stretch]
            yield f"{kind:<8}{len(ids):>5}  {self._tokens(ids) if kind != 'padding' else ''}".rstrip()

    def _kind(self, place: int) -> str:
        if self._labels[place] != IGNORED:
            return "learnt"
        return "masked" if self._present[place] else "padding"

    def _tokens(self, ids: Sequence[int]) -> str:
        told: list[str] = []
        for number, same in groupby(ids):
            count = len(list(same))
            name = self._encoder.tokenizer.decode([number], skip_special_tokens=False).replace("\n", "\\n")
            told += [f"{count} x {name}"] if number == self._encoder.image_token_id else [name] * count
        if len(told) > _SHOWN_TOKENS:
            told = [*told[: _SHOWN_TOKENS - 8], "...", *told[-7:]]
        return "|".join(told)
