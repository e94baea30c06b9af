"""Validation during training: loss and CER of the validation split, the best adapter so far, and early stopping."""

import math
import random
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from dsocr.config import RunConfig
from dsocr.document import Sample
from dsocr.evaluation.calibration import JudgedLine, fit_calibration
from dsocr.evaluation.decide import is_better
from dsocr.evaluation.metrics import ErrorRate, character_errors, is_over_long, word_errors
from dsocr.images import open_image
from dsocr.inference.confidence import UNCALIBRATED, Calibration
from dsocr.io.processes import return_free_memory
from dsocr.models.ctc import LineRecognizer
from dsocr.models.family import Processor
from dsocr.models.generation import Decoded, Generation, ScoredText, TokenScore, batches, cut_loop
from dsocr.models.language_model import FILE as LANGUAGE_MODEL
from dsocr.models.scripts import script_of_texts
from dsocr.runs import CALIBRATION
from dsocr.text import TextPolicy, is_blank, percentage
from dsocr.training.checkpoint import save_best
from dsocr.training.distributed import ALONE, Distributed
from dsocr.training.samples import EncodedSamples
from dsocr.training.trainer import Callback, Trainer

SHOWN_LINES = 10
"""Lines that trackers show with their images."""

Result = TypeVar("Result")

TokenScores = Sequence[Sequence[float]]
"""The fields of a prediction's token scores, as they pass between processes in JSON."""


def decided_generation(config: RunConfig, processor: Processor, samples: Sequence[Sample]) -> dict[str, Any]:
    """Return the settings of generation, with the script of the training texts if it is to be decided."""
    settings = config.generation.model_dump()
    if settings["script"] == "auto" and isinstance(processor.family, LineRecognizer):
        settings["script"] = script_of_texts(sample.text for sample in samples)
    return settings


@dataclass(frozen=True, slots=True)
class ValidationLine:
    """A validation sample with its prediction; `image` is what the model saw, (H, W, 3) bytes."""

    id: str
    reference: str
    prediction: str
    image: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """One validation; the lower its `rank`, the better. `lines` are the first few samples.

    `score` is the value for people, `details` and `failures` say what is behind it. `rates` are fractions that trackers
    draw; metrics.jsonl has them and the `counts`.
    """

    step: int
    loss: float
    rank: tuple[float, float]
    score: str
    details: str
    rates: Mapping[str, float]
    counts: Mapping[str, int]
    failures: str = ""
    seconds: float = 0.0
    is_best: bool = False
    lines: tuple[ValidationLine, ...] = ()


@dataclass(slots=True)
class ValidationState:
    """The part of a validation that a checkpoint keeps; `best` is the lowest rank so far."""

    best: tuple[float, float] | None = None
    best_step: int | None = None
    without_improvement: int = 0


class PeriodicValidation(Callback):
    """Validates every `every_steps` steps and after the last, and stops after `patience` results without a better one.

    With a `start_limit` the weights before the first step compete too, if their error is below it. `on_result` is
    called with each result.
    """

    def __init__(self, every_steps: int, patience: int) -> None:
        self.state = ValidationState()
        self.on_result: Callable[[ValidationResult], None] = lambda result: None
        self.start_limit: float | None = None
        self._every_steps = every_steps
        self._patience = patience

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs to stop where an uninterrupted one does."""
        return asdict(self.state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume with a checkpoint's state."""
        self.state = ValidationState(**{**state, "best": state["best"] and tuple(state["best"])})

    def on_train_begin(self, trainer: Trainer) -> None:
        """Validate the weights before the first step if they compete."""
        if self.start_limit is not None and self.state.best_step is None and not trainer.state.step:
            self.validate(trainer.module, 0, self.start_limit)

    def on_step_end(self, trainer: Trainer) -> None:
        """Validate if it is time."""
        if trainer.state.step % self._every_steps == 0 or trainer.is_finished:
            trainer.require_finite_weights()
            self.validate(trainer.module, trainer.state.step)
            if self.is_out_of_patience:
                trainer.stop(save=False)

    @property
    def is_out_of_patience(self) -> bool:
        """True when training should stop early."""
        return bool(self._patience) and self.state.without_improvement >= self._patience

    def validate(self, model: Any, step: int, limit: float = math.inf) -> None:
        """Validate once: report the result, and keep the weights if they are the best and their error below `limit`."""
        started, state = time.monotonic(), self.state
        return_free_memory()  # of the steps, then of the reading: neither needs what the other leaves
        result = self._measure(model, step)
        return_free_memory()
        competes = math.isfinite(result.loss) and result.rank[0] < limit
        is_best = competes and (state.best is None or state.best_step is None or result.rank < state.best)
        if is_best:
            state.best, state.best_step, state.without_improvement = result.rank, step, 0
            self._keep(model, step)
        elif step:
            state.without_improvement += 1
        self.on_result(replace(result, seconds=time.monotonic() - started, is_best=is_best))

    def _measure(self, model: Any, step: int) -> ValidationResult:
        raise NotImplementedError

    def _keep(self, model: Any, step: int) -> None:
        raise NotImplementedError


class Validator(PeriodicValidation):
    """Reads the validation samples. The best has the lowest CER; of equal ones, the fewest runaway lines.

    The CER counts all that a runaway line writes. Confidences are calibrated on what the best read. Each rank reads a
    share, and all come to the same result.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        processor: Processor,
        generation: Generation,
        *,
        max_text_tokens: int,
        every_steps: int,
        patience: int,
        folder: Path,
        dist: Distributed = ALONE,
        text_policy: TextPolicy,
        base: Calibration = UNCALIBRATED,
    ) -> None:
        super().__init__(every_steps, patience)
        self._base = base
        self.encoded = EncodedSamples(samples, processor)
        self._samples = samples
        self._processor = processor
        self._generation = generation
        self._max_text_tokens = max_text_tokens
        self._folder = folder
        self._dist = dist
        self._text_policy = text_policy
        self._scored: list[tuple[str, str, TokenScores]] = []

    def _keep(self, model: Any, step: int) -> None:
        if self._dist.is_main:
            calibration = self._calibrate(self._scored, self._processor)
            save_best(self._folder, step, model, {CALIBRATION: calibration.to_json()})

    def _calibrate(self, scored: Iterable[tuple[str, str, TokenScores]], processor: Processor) -> Calibration:
        """Fit the confidences; those of the base, which has a language model, are no guide to a reader without one."""
        base = self._base if processor.language_model else UNCALIBRATED
        return calibrate_predictions(scored, self._text_policy, base, self._samples)

    def fit_language_model(
        self, model: Any, texts: Iterable[str], others: Sequence[str] = (), readings: Sequence[str] = ()
    ) -> tuple[list[tuple[str, bytes]], int]:
        """Fit a language model of the texts to the best weights, which `model` has, if its family has one and it helps.

        Return its file and that of a calibration with it (without it, where it does not help), and how many of the
        `others`, which have no images, it was better with: all or none. Own `readings` of untranscribed lines are
        learnt if they help too.
        """
        family = self._processor.family
        if not isinstance(family, LineRecognizer) or self._generation.language_model == "none":
            return [], 0
        references = [sample.text for sample in self._samples]
        lines = [logits for _, logits in self._map_logits(lambda logits: logits, model, range(len(references)))]
        processor = family.fit_language_model(
            self._processor,
            texts,
            lines,
            references,
            self._generation,
            others,
            readings,
            is_better=partial(is_better, self._samples),
        )
        fitted = processor.language_model
        if fitted is None and self._processor.language_model is None:
            return [], 0
        read = map(family.logits_decoder(processor, self._generation), lines)
        scored = [(reference, *final_scores(reading)) for reference, reading in zip(references, read, strict=True)]
        files = {CALIBRATION: self._calibrate(scored, processor).to_json()}
        files |= {LANGUAGE_MODEL: fitted.to_json()} if fitted else {}
        return [(name, content.encode()) for name, content in files.items()], fitted.others if fitted else 0

    def _map_logits(
        self, function: Callable[[NDArray[np.float32]], Result], model: Any, indices: Sequence[int]
    ) -> Iterator[tuple[int, Result]]:
        """Yield the index of each sample with `function` of its logits.

        As many lines are opened together as in transcription: lines of the same width are computed at once.
        """
        for window in batches(indices, self._generation.prefetch_batches * self._generation.batch_size):
            inputs = [self.encoded[index].without_text() for index in window]
            family: Any = self._processor.family  # a `LineRecognizer`
            yield from zip(window, family.map_logits(function, model, self._processor, inputs), strict=True)

    def _measure(self, model: Any, step: int) -> ValidationResult:
        """Read all samples, and compute the mean loss of a token of those whose text fits."""
        model.eval()
        processor, share = self._processor, self._dist.shard(range(len(self._samples)))
        counts = [len(processor.text_ids(sample.text)) for sample in self._samples]
        fitting = {index for index in share if counts[index] <= self._max_text_tokens}
        ours: list[tuple[int, str, bool, str, TokenScores]] = []
        total, tokens, without_loss = 0.0, 0, sorted(fitting)
        for index, reading, loss in self._read(model, share, fitting):
            ours.append((index, reading.text, reading.truncated, *final_scores(reading)))
            if loss is not None:
                total, tokens = total + loss, tokens + counts[index]
                without_loss.remove(index)
        with torch.no_grad():
            for indices in batches(without_loss, self._generation.batch_size):
                batch = processor.collate([self.encoded[index] for index in indices])
                batch = processor.on_device(batch, model, model.dtype)
                count = (batch["labels"] >= 0).sum()
                total += float(processor.family.loss(model, batch, count)) * int(count)
                tokens += int(count)
        sums: list[tuple[float, int]] = self._dist.all_gather((total, tokens))
        loss = sum(part for part, _ in sums) / max(sum(count for _, count in sums), 1)
        return self._pool(step, loss, sorted(row for rows in self._dist.all_gather(ours) for row in rows))

    def _read(
        self, model: Any, share: Sequence[int], fitting: Container[int]
    ) -> Iterator[tuple[int, Decoded, float | None]]:
        """Yield the index and the reading of each sample, and its loss if it fits and the same logits give it."""
        family = self._processor.family
        if not isinstance(family, LineRecognizer):
            for indices in batches(share, self._generation.batch_size):
                images = [self.encoded[index].without_text() for index in indices]
                decoded = family.decode(model, self._processor, images, self._generation)
                yield from ((index, reading, None) for index, reading in zip(indices, decoded, strict=True))
            return
        decode = family.logits_decoder(self._processor, self._generation)
        for index, (reading, logits) in self._map_logits(lambda logits: (decode(logits), logits), model, share):
            sample: Any = self.encoded[index]
            # A line that is too narrow for its text is drawn wider in training than it was read.
            is_same = index in fitting and sample.has_input_of(sample.without_text())
            yield index, reading, family.loss_of_logits(logits, sample) if is_same else None

    def _pool(
        self, step: int, loss: float, rows: Sequence[tuple[int, str, bool, str, TokenScores]]
    ) -> ValidationResult:
        """Return the result of all readings, and keep what calibrates confidences."""
        pooled, words, empty, runaway = ErrorRate(), ErrorRate(), 0, 0
        shown: list[ValidationLine] = []
        self._scored = []
        for (_, text, truncated, kept, scores), sample in zip(rows, self._samples, strict=True):
            pooled += character_errors(sample.text, text)
            words += word_errors(sample.text, text)
            empty += is_blank(text)
            runaway += truncated or is_over_long(sample.text, text)
            self._scored.append((sample.text, kept, scores))
            if len(shown) < SHOWN_LINES and self._dist.is_main:
                # Encoded again: what is cached may be features instead of pixels.
                image = self._processor.encode(open_image(sample.image)).pixels()
                shown.append(ValidationLine(sample.id, sample.text, text, image))
        return ValidationResult(
            step,
            loss,
            rank=(pooled.rate, runaway),
            score=f"CER {percentage(pooled.rate)}, WER {percentage(words.rate, 1)}",
            details=f"{empty} empty, {runaway} runaway of {len(rows)}",
            rates={"cer": pooled.rate, "wer": words.rate, "runaway_rate": runaway / len(rows)},
            counts={"empty": empty, "runaway": runaway, "samples": len(rows)},
            failures=f"{runaway} of {len(rows)} lines run away" if runaway else "",
            lines=tuple(shown),
        )


def draw_samples(samples: Sequence[Sample], count: int | None, seed: int) -> list[Sample]:
    """Draw the samples of every validation, in their order; all if `count` is None."""
    if count is None or count >= len(samples):
        return list(samples)
    drawn = sorted(random.Random(seed).sample(range(len(samples)), count))  # noqa: S311
    return [samples[index] for index in drawn]


def final_scores(reading: Decoded) -> tuple[str, TokenScores]:
    """Return text and token scores as transcription would give them: a looping text ends where its loop begins."""
    kept = cut_loop(reading) if reading.looping else reading
    return kept.text, kept.scores


def calibrate_predictions(
    lines: Iterable[tuple[str, str, TokenScores]],
    policy: TextPolicy,
    base: Calibration = UNCALIBRATED,
    samples: Sequence[Sample] = (),
) -> Calibration:
    """Fit a calibration on (reference, text, token scores) of lines, under the text policy of transcription."""
    judged = []
    for reference, text, scores in lines:
        tokens = (TokenScore(int(start), int(end), score, bool(other)) for start, end, score, other in scores)
        judged.append(JudgedLine.compute(ScoredText(text, tuple(tokens)).rewrite(policy.apply(text)), reference))
    return fit_calibration(judged, base, samples)


def lines_text(lines: Sequence[ValidationLine]) -> str:
    """Return the lines for Markdown, where indented text is shown as it is, numbered as their images are."""
    rows = [
        (f"{place:02d} {line.id}", *(" ".join(text.split()) for text in (line.reference, line.prediction)))
        for place, line in enumerate(lines, 1)
    ]
    return "\n\n".join("\n".join(f"    {text}" for text in row) for row in rows)
