"""Decoded the validation split during training: its loss, its CER, the best weights so far, and when to stop."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from dsocr.document import Sample
from dsocr.evaluation.calibration import JudgedLine, fit_calibration
from dsocr.evaluation.evaluate import GuardResult, GuardSet
from dsocr.evaluation.metrics import ErrorRate, character_errors, is_empty, is_runaway, mark_differences
from dsocr.images import open_image
from dsocr.inference.confidence import Calibration, ScoredText, TokenScore
from dsocr.inference.decoding import Decoded, cut_loop, decode
from dsocr.inference.generation import Generation, batches
from dsocr.models.batch import collate, drop_ignored_positions
from dsocr.models.deepseek_ocr import Processor
from dsocr.text import TextPolicy
from dsocr.training.checkpoint import save_best
from dsocr.training.distributed import Ranks
from dsocr.training.setup import EncodedSamples

Scored = tuple[str, Sequence[Sequence[float]]]
"""A text and the fields of its token scores, as they pass from one process to another."""


def scored_of(reading: Decoded) -> Scored:
    """What a reading says of how sure it is; one that loops ends where its loop begins, as it does when transcribed."""
    kept = cut_loop(reading) if reading.looping else reading
    return kept.text, kept.scores


def calibration_of(lines: Iterable[tuple[str, Scored]], policy: TextPolicy) -> Calibration:
    """The calibration that lines with their transcriptions give, each under the text policy that will be read with."""
    return fit_calibration([_judged(reference, *scored, policy) for reference, scored in lines])


def _judged(reference: str, text: str, scores: Sequence[Sequence[float]], policy: TextPolicy) -> JudgedLine:
    rebuilt = (TokenScore(int(start), int(end), score, bool(other)) for start, end, score, other in scores)
    return JudgedLine.compute(ScoredText(text, tuple(rebuilt)).rewrite(policy.apply(text)), reference)


LINES = 10
_LONGEST = 300
_HEADER = "| line | reference | prediction | [-left out-] {+added+} |\n|---|---|---|---|\n"


@dataclass(frozen=True, slots=True)
class ReadLine:
    """A validation sample as it was read; `seen` is what the model saw of it, (3, S, S) bytes."""

    id: str
    reference: str
    prediction: str
    seen: NDArray[np.uint8]


class Board:
    """Writes event files into a folder; steps from `purge_step` on are forgotten there, as a resumed run makes them."""

    def __init__(self, folder: Path, *, purge_step: int) -> None:
        self._writer = SummaryWriter(str(folder), purge_step=purge_step)

    def curve(self, group: str, values: Mapping[str, float | None], step: int) -> None:
        """One point of each curve; a value that is not known draws none."""
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(f"{group}/{name}", value, step)

    def lines(self, lines: Sequence[ReadLine], step: int) -> None:
        """The lines' images, and beside them a table of what was read in them."""
        if not lines:
            return
        self._writer.add_text("validation/lines", lines_table(lines), step)
        for place, line in enumerate(lines, 1):
            self._writer.add_image(f"validation_lines/{place:02d}", line.seen, step)

    def guard(self, reading: GuardResult, step: int) -> None:
        """The guard set's CER beside the base's, and a text where it fell beyond its margin."""
        self.curve("guard", {"cer": reading.adapter.rate, "base_cer": reading.base.rate}, step)
        if reading.exceeds_margin:
            self._writer.add_text("guard/warning", _plain(reading.message, longest=1000), step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


def lines_table(lines: Sequence[ReadLine]) -> str:
    """A markdown table of the lines, numbered as their images are."""
    rows = [
        [f"{place:02d} {line.id}", line.reference, line.prediction, mark_differences(line.reference, line.prediction)]
        for place, line in enumerate(lines, 1)
    ]
    return _HEADER + "".join(f"| {' | '.join(map(_plain, row))} |\n" for row in rows)


def _plain(text: str, longest: int = _LONGEST) -> str:
    """Text that markdown shows as it stands, in one cell, cut where a loop fills pages."""
    text = " ".join(text.split())
    text = text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"
    return "".join(f"&#{ord(c)};" if c in "|*_`<>&\\~#[]{}!" else c for c in text)


@dataclass(frozen=True, slots=True)
class ValidationReading:
    """One reading of the validation split; rates are fractions. `lines` are the first few samples, always the same.

    `guard` is what became of the guard set, None where there is none.
    """

    step: int
    loss: float
    cer: float
    empty: int
    runaway: int
    samples: int
    seconds: float
    best: bool
    lines: tuple[ReadLine, ...] = ()
    guard: GuardResult | None = None

    @property
    def runaway_rate(self) -> float:
        """The share of lines whose end was not found: loops and hallucinations."""
        return self.runaway / self.samples

    def as_dict(self) -> dict[str, Any]:
        """The reading as a row of metrics.jsonl, without its lines; of a guard set its CERs, and a warning or null."""
        whole = asdict(replace(self, lines=(), guard=None))
        row = {name: value for name, value in whole.items() if name not in {"lines", "guard"}}
        row["runaway_rate"] = self.runaway_rate
        if self.guard is not None:
            row["guard_cer"], row["guard_base_cer"] = self.guard.adapter.rate, self.guard.base.rate
            row["guard_warning"] = self.guard.message if self.guard.exceeds_margin else None
        return row


def chosen_samples(samples: Sequence[Sample], count: int | None, seed: int) -> list[Sample]:
    """The samples that are read each time: all, or `count` of them drawn once, in their order."""
    if count is None or count >= len(samples):
        return list(samples)
    chosen = sorted(random.Random(seed).sample(range(len(samples)), count))  # noqa: S311
    return [samples[index] for index in chosen]


@dataclass(frozen=True, slots=True)
class TextsRead:
    """What was read of all samples; `scored` has each transcription with what was read in its place, in their order."""

    cer: float
    empty: int
    runaway: int
    lines: tuple[ReadLine, ...]
    scored: list[tuple[str, Scored]]


class Validation(TrainerCallback, ExportableState):
    """Reads the samples every so many steps, keeps the best adapter in `folder`, stops after `patience` worse ones.

    The best has the lowest CER, which counts all that a runaway line writes; of equal ones, the fewest runaway lines.
    Its confidences are fitted on what it read, and kept with it. The guard set is read beside the samples, by the base
    alone before the first step, and decides nothing. Several processes read a share each and come to the same; the
    first keeps and reports it.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        encoder: Processor,
        generation: Generation,
        *,
        every_steps: int,
        patience: int,
        folder: Path,
        report: Callable[[ValidationReading], None],
        guard: GuardSet | None = None,
        ranks: Ranks | None = None,
        text_policy: TextPolicy | None = None,
    ) -> None:
        self._ranks = ranks or Ranks()
        self._samples = samples
        self.encoded = EncodedSamples(samples, encoder)
        self._encoder = encoder
        self._generation = generation
        self._every_steps = every_steps
        self._patience = patience
        self._folder = folder
        self._report = report
        self._guard = guard
        self._text_policy = text_policy or TextPolicy()
        self.guard_base: list[int] | None = None
        self.best_guard: list[int] | None = None
        self.best_cer = float("inf")
        self.best_runaway = 0
        self.best_step = 0
        self.readings_without_better = 0
        self.last_step = -1

    def state(self) -> dict[str, Any]:
        """What a checkpoint remembers, so that a resumed training stops where an undisturbed one does."""
        best = ("best_cer", "best_runaway", "best_step", "best_guard")
        names = (*best, "guard_base", "readings_without_better", "last_step")
        return {"args": {}, "attributes": {name: getattr(self, name) for name in names}}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's `state`."""
        for name, value in state["attributes"].items():
            setattr(self, name, value)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Read the guard set with the base alone, where a checkpoint does not tell of it."""
        self._read_guard_base(kwargs["model"])

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Read when it is time."""
        if state.global_step % self._every_steps == 0 or state.global_step == state.max_steps:
            self.read(kwargs["model"], state.global_step)
            if self.out_of_patience:
                control.should_training_stop = True

    @property
    def out_of_patience(self) -> bool:
        """True after so many readings without a better CER that training is to end."""
        return bool(self._patience) and self.readings_without_better >= self._patience

    def forget_best(self) -> None:
        """Take the next reading as the best so far, because the adapter of the best one is lost."""
        self.best_cer, self.best_runaway, self.best_step = float("inf"), 0, 0

    def read(self, model: Any, step: int) -> None:
        """One reading: report it, and keep the adapter if it is the best."""
        started = time.monotonic()
        texts = self._read_texts(model)
        guarded = self._read_guard(model)
        better = (texts.cer, texts.runaway) < (self.best_cer, self.best_runaway)
        if better:
            self.best_cer, self.best_runaway = texts.cer, texts.runaway
            self.best_step, self.readings_without_better = step, 0
            self.best_guard = None if guarded is None else [guarded.adapter.errors, guarded.adapter.length]
            if self._ranks.first:
                calibration = calibration_of(texts.scored, self._text_policy)
                save_best(self._folder, step, model, calibration.to_json())
        else:
            self.readings_without_better += 1
        self.last_step = step
        loss = self._loss(model)
        seconds = time.monotonic() - started
        told = ValidationReading(
            step,
            loss,
            texts.cer,
            texts.empty,
            texts.runaway,
            len(self._samples),
            seconds,
            better,
            texts.lines,
            guarded,
        )
        if self._ranks.first:
            self._report(told)

    @property
    def guard_of_best(self) -> GuardResult | None:
        """What the best adapter so far does to the guard set; None where there is no such set, or no reading."""
        if self._guard is None or self.guard_base is None or self.best_guard is None:
            return None
        return self._guard.compare(ErrorRate(*self.guard_base), ErrorRate(*self.best_guard))

    def _read_guard(self, model: Any) -> GuardResult | None:
        if self._guard is None:
            return None
        base = self._read_guard_base(model)
        return self._guard.compare(base, self._guard_errors(self._guard, model))

    def _guard_errors(self, guard: GuardSet, model: Any) -> ErrorRate:
        """The errors in the guard set, of which each process reads its share."""
        ours = replace(guard, samples=self._ranks.share(guard.samples)).score(model, self._encoder, self._generation)
        found: list[tuple[int, int]] = self._ranks.gathered((ours.errors, ours.length))
        return sum((ErrorRate(errors, length) for errors, length in found), ErrorRate())

    def _read_guard_base(self, model: Any) -> ErrorRate:
        """The errors of the base alone in the guard set, read once."""
        if self._guard is None:
            return ErrorRate()
        if self.guard_base is None:
            with model.disable_adapter():
                read = self._guard_errors(self._guard, model)
            self.guard_base = [read.errors, read.length]
        return ErrorRate(*self.guard_base)

    def _read_texts(self, model: Any) -> TextsRead:
        pooled, empty, runaway = ErrorRate(), 0, 0
        lines: dict[int, ReadLine] = {}
        scored: dict[int, tuple[str, Scored]] = {}
        ours = [
            (index, reading.text, reading.truncated, scored_of(reading)) for index, reading in self._readings(model)
        ]
        gathered = (line for some in self._ranks.gathered(ours) for line in some)
        for index, text, truncated, sureness in gathered:
            reference = self._samples[index].text
            scored[index] = reference, sureness
            pooled += character_errors(reference, text)
            empty += is_empty(text)
            runaway += is_runaway(reference, text, truncated)
            if index < LINES and self._ranks.first:
                sample = self._samples[index]
                # Not what is kept for training, which may be features in place of pixels.
                shown = self._encoder.encode(open_image(sample.image)).views.whole
                lines[index] = ReadLine(sample.id, reference, text, shown)
        in_order = tuple(lines[index] for index in sorted(lines))
        return TextsRead(pooled.rate, empty, runaway, in_order, [scored[index] for index in sorted(scored)])

    def _readings(self, model: Any) -> Iterator[tuple[int, Decoded]]:
        """Each sample's place and what was read of it, for those that fall to this process."""
        places = self._ranks.share(range(len(self._samples)))
        for indices in batches(places, self._generation.batch_size):
            images = [replace(self.encoded[index], answer_ids=()) for index in indices]
            readings = decode(model, self._encoder, images, self._generation)
            yield from zip(indices, readings, strict=True)

    @torch.no_grad()
    def _loss(self, model: Any) -> float:
        """Mean loss of a learnt token over the samples."""
        model.eval()
        total, tokens = 0.0, 0
        places = self._ranks.share(range(len(self.encoded)))
        for indices in batches(places, self._generation.batch_size):
            batch = collate(
                [self.encoded[index] for index in indices],
                self._encoder.pad_id,
                padding="right",
                device=model.device,
                dtype=model.dtype,
            )
            learnt = int((batch["labels"] >= 0).sum())
            total += float(model(**drop_ignored_positions(batch)).loss) * learnt
            tokens += learnt
        found: list[tuple[float, int]] = self._ranks.gathered((total, tokens))
        return sum(loss for loss, _ in found) / max(sum(count for _, count in found), 1)
