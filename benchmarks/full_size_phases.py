"""The phases of `full_size.py`: what is done and timed in each of its processes.

A row says what was measured: `seconds`, the process's `peak_bytes` up to then (files it maps included) and
`anonymous_bytes` at the end (memory of its own), what was `found`, and `problems` where that is wrong.
"""

import hashlib
import json
import math
import shutil
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from transformers import logging

from dsocr.models.adapters import adapter_files, adapter_tensors, attach_adapter, layers_without_gradient, load_adapter
from dsocr.models.base_folder import WEIGHTS, tensor_shapes, tensor_types
from dsocr.models.deepseek_ocr import DeepseekProcessor, find_prompt
from dsocr.models.generation import Generation
from dsocr.models.loading import BaseModel, load_base
from dsocr.models.token_batches import collate, drop_ignored_positions
from dsocr.models.token_family import CanvasEncoded
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.text import TextPolicy
from dsocr.training.feature_cache import vision_features
from random_checkpoint import (
    SEED,
    Numbers,
    base_folder,
    count_weights,
    is_integer,
    is_written,
    original_tensors,
    write_checkpoint,
)
from runner import anonymous, gigabytes, peak_resident

RESOLUTION, PROMPT = "tiny", "free_ocr"
RANK = 8
LEARNING_RATE = 1e-3
TEXT = "The quick brown fox is "
"""With the begin token, 73 image slots, ten characters of prompt and the end token it makes a sample of 108 tokens."""

UNIFORM_WITHIN = 0.02
"""Largest distance of the first loss from that of a uniform guess."""

MERGING_LOSES = 0.25
"""Largest share of the fall of the loss that merging may undo."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """Output folder, numbers of the checkpoint, and steps of training."""

    folder: Path
    numbers: Numbers
    steps: int

    @property
    def base(self) -> Path:
        """The checkpoint."""
        return base_folder(self.folder)

    @property
    def merged(self) -> Path:
        """The checkpoint with an adapter in it."""
        return self.folder / "merged"

    def run(self, scope: str) -> RunFolder:
        """What training with this scope leaves."""
        return RunFolder(self.folder / f"run-{scope}")

    def saved(self, scope: str) -> Path:
        """The loss and a digest of each tensor of the adapter, as they were in memory when it was saved."""
        return self.run(scope).path / "saved.json"


def run_phase(name: str, folder: Path, numbers: Numbers, steps: int) -> list[Row]:
    """The rows of a phase, by its name: a word, and for some a scope, or what is kept."""
    logging.disable_progress_bar()
    # PEFT asks transformers for a property under its old name.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
    word, _, scope = name.partition(" ")
    task = Task(folder, numbers, steps)
    phases: Mapping[str, Callable[[], list[Row]]] = {
        "write": lambda: write(task),
        "load": lambda: load(task),
        "train": lambda: train(task, scope),
        "keep": lambda: keep(task),
        "reload": lambda: reload(task, scope),
        "export": lambda: export(task, scope),
        "merged": lambda: load_merged(task, scope),
    }
    return phases[word]()


def write(task: Task) -> list[Row]:
    """Write the checkpoint where a former call has not."""
    if is_written(task.base, task.numbers):
        return [_row("write", None, "found, so not written")]
    start = time.perf_counter()
    files = write_checkpoint(task.base, task.numbers)
    seconds = time.perf_counter() - start
    tensors = original_tensors(task.numbers)
    size = sum(file.stat().st_size for file in files)
    found = f"{len(tensors):,} tensors, {count_weights(tensors):,} weights, {gigabytes(size)} GB in {len(files)} files"
    return [_row("write", seconds, found, file_bytes=size)]


def load(task: Task) -> list[Row]:
    """Load the base, and take the loss of one sample."""
    base, seconds = _loaded(task.base)
    count = sum(parameter.numel() for parameter in base.network.parameters())
    rows = [_row("load_base", seconds, f"{count:,} parameters", parameters=count)]
    batch = _batch(base)
    start = time.perf_counter()
    loss = _loss(base.network, batch)
    seconds = time.perf_counter() - start
    tokens, uniform = batch["input_ids"].shape[1], math.log(task.numbers.vocabulary)
    far = abs(loss - uniform) > UNIFORM_WITHIN
    problems = [f"the loss is not within {UNIFORM_WITHIN} of a uniform guess"] if far else []
    found = f"{tokens} tokens, loss {loss:.3f}; a uniform guess has {uniform:.3f}"
    return [*rows, _row("forward", seconds, found, *problems, loss=loss, uniform=uniform, tokens=tokens)]


def train(task: Task, scope: str) -> list[Row]:
    """Overfit an adapter to one sample, and save it with the values that identify it."""
    base, _ = _loaded(task.base)
    batch = _batch(base)
    torch.manual_seed(SEED)
    model = attach_adapter(base.network, base=base.name, revision=None, target_modules=scope, r=RANK, alpha=2 * RANK)
    row = _steps(model, batch, task.steps, scope)
    _save_run(model, task, scope, _loss(model.eval(), batch))
    return [row]


def keep(task: Task) -> list[Row]:
    """Train the decoder on one sample whose features are kept."""
    base, _ = _loaded(task.base)
    sample, encoder = _sample(base)
    torch.manual_seed(SEED)
    model = attach_adapter(
        base.network, base=base.name, revision=None, target_modules="decoder", r=RANK, alpha=2 * RANK
    )
    (seen,) = vision_features(base.network, encoder, [sample], torch.bfloat16)
    batch = collate([replace(sample, images={}, features=seen.tokens)], encoder.pad_id, padding="right")
    return [
        _steps(
            model,
            drop_ignored_positions(batch),
            task.steps,
            f"decoder, features kept ({seen.tokens.nbytes / 1e6:.1f} MB)",
        )
    ]


def _steps(model: PeftModel, batch: Mapping[str, Any], steps: int, what: str) -> Row:
    """Train on one batch again and again."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=LEARNING_RATE)
    model.train()
    losses, seconds = [], []
    for _ in range(steps):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16):  # as the Trainer does
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        losses.append(float(loss.detach()))
        unreached = layers_without_gradient(model)
        optimizer.zero_grad()
    problems = [f"no gradient reaches {name}" for name in unreached[:5]]
    if not (all(map(math.isfinite, losses)) and losses[-1] < losses[0]):
        problems.append("the loss does not fall")
    count = sum(parameter.numel() for parameter in trainable)
    found = f"median of {steps}, {count:,} trainable, loss {losses[0]:.3f} to {losses[-1]:.3f}"
    everything = {"trainable": count, "step_seconds": seconds, "losses": losses}
    return _row(f"a step, {what}", statistics.median(seconds), found, *problems, **everything)


def reload(task: Task, scope: str) -> list[Row]:
    """Load the saved adapter on the base, and look whether it is what was saved."""
    base, _ = _loaded(task.base)
    start = time.perf_counter()
    model = load_adapter(base.network, task.run(scope).adapter)
    seconds = time.perf_counter() - start
    saved = json.loads(task.saved(scope).read_text(encoding="utf-8"))
    digests = _digests(adapter_tensors(model))
    equal = sum(digests[name] == digest for name, digest in saved["digests"].items() if name in digests)
    loss = _loss(model, _batch(base))
    problems = [] if equal == len(saved["digests"]) == len(digests) else ["tensors differ from the saved ones"]
    problems += [] if math.isclose(loss, saved["loss"], abs_tol=1e-3) else ["the loss differs from that when saved"]
    size = (task.run(scope).adapter / WEIGHTS).stat().st_size
    found = (
        f"{equal} of {len(digests)} tensors equal, {size / 1e6:.1f} MB, loss {saved['loss']:.3f} then, {loss:.3f} now"
    )
    return [_row(f"load_adapter, {scope}", seconds, found, *problems, equal=equal, tensors=len(digests), loss=loss)]


def export(task: Task, scope: str) -> list[Row]:
    """Merge the adapter into the base, and compare what the two are made of."""
    from dsocr.models.export import export_merged

    shutil.rmtree(task.merged, ignore_errors=True)
    start = time.perf_counter()
    export_merged(task.run(scope), task.merged)
    seconds = time.perf_counter() - start
    before, after = (_described(folder) for folder in (task.base, task.merged))
    same = sum(after.get(name) == description for name, description in before.items())
    problems = [] if before == after else ["names, shapes or types are not those of the base"]
    found = f"{same:,} of {len(before):,} tensors with the base's name, shape and type, {len(after) - same} others"
    return [_row(f"export_merged, {scope}", seconds, found, *problems, same=same, tensors=len(after))]


def load_merged(task: Task, scope: str) -> list[Row]:
    """Load the merged checkpoint as a base, and see whether it has learnt what the adapter has."""
    base, seconds = _loaded(task.merged)
    loss, saved = _loss(base.network, _batch(base)), json.loads(task.saved(scope).read_text(encoding="utf-8"))["loss"]
    # Rounding the merged weights to bfloat16 loses a little of it.
    lost = (loss - saved) / (math.log(task.numbers.vocabulary) - saved)
    problems = [] if abs(lost) < MERGING_LOSES else ["merging loses what the adapter has learnt"]
    found = f"loss {saved:.3f} with the adapter, {loss:.3f} merged"
    return [_row("load_base, merged", seconds, found, *problems, loss=loss)]


def _described(folder: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the shape and type of every weight; exports leave out the integer buffer, which vLLM refuses."""
    types = tensor_types(folder)
    return {name: (shape, types[name]) for name, shape in tensor_shapes(folder).items() if not is_integer(name)}


def _loaded(folder: Path) -> tuple[BaseModel, float]:
    """The base in bfloat16, and the seconds it took."""
    start = time.perf_counter()
    base = load_base(str(folder), dtype=torch.bfloat16)
    return base, time.perf_counter() - start


def _sample(base: BaseModel) -> tuple[CanvasEncoded, DeepseekProcessor]:
    """One line of text, as a tiny view."""
    encoder: Any = base.processor(RESOLUTION, PROMPT)
    line = Image.new("RGB", (700, 60), "white")
    ImageDraw.Draw(line).text((10, 8), TEXT, fill="black", font=ImageFont.load_default(36))
    return encoder.encode(line, TEXT), encoder


def _batch(base: BaseModel) -> dict[str, Any]:
    sample, encoder = _sample(base)
    return collate([sample], encoder.pad_id, padding="right", dtype=base.network.dtype)


def _loss(network: Any, batch: Mapping[str, Any]) -> float:
    with torch.inference_mode():
        return float(network(**batch).loss)


def _save_run(model: PeftModel, task: Task, scope: str, loss: float) -> None:
    """Save the run for an export, with digests that show whether the adapter comes back."""
    run = task.run(scope)
    shutil.rmtree(run.path, ignore_errors=True)
    run.adapter.mkdir(parents=True)
    for name, content in adapter_files(model):
        (run.adapter / name).write_bytes(content)
    generation = Generation().as_dict()
    ReadingSettings(str(task.base), None, find_prompt(PROMPT), RESOLUTION, TextPolicy(), generation).save(run.adapter)
    saved = {"loss": loss, "digests": _digests(adapter_tensors(model))}
    task.saved(scope).write_text(json.dumps(saved), encoding="utf-8")


def _digests(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    return {
        name: hashlib.sha256(tensor.detach().flatten().view(torch.uint8).numpy().data).hexdigest()
        for name, tensor in tensors.items()
    }


def _row(what: str, seconds: float | None, found: str, *problems: str, **numbers: Any) -> Row:
    memory = {"peak_bytes": peak_resident(), "anonymous_bytes": anonymous()}
    return {"what": what, "seconds": seconds, **memory, "found": found, "problems": list(problems), **numbers}
