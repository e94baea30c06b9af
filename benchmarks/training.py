"""What each lever of fast training is worth: nano on real lines, against the recipe that is usually published.

    python benchmarks/training.py
    python benchmarks/training.py --steps 4 --read 16

The reference shows one line on a canvas, runs the vision towers on every sample of every epoch, makes logits for every
position, loops over the experts, draws batches at random and multiplies as torch does by itself. Each other row changes
one thing, or all of them. All rows make the same steps on the same samples (DSOCR_REAL_DATA says where the copiste
pages lie), in turn, one step each, so that whatever else the machine does meets all of them: the ratios count, and are
those of a line. One thread, or as many as `--threads` says; times leave out the opening of images, which is the same
for all, and the filling of the cache, which is given apart.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import logging

from dsocr.config import RunConfig
from dsocr.data.prepare import prepare
from dsocr.document import Sample, Split
from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.models.batch import collate, drop_ignored_positions, normalize_pixels
from dsocr.models.causal_decoding import decode
from dsocr.models.causal_training import compile_layers
from dsocr.models.deepseek_inputs import DeepseekProcessor
from dsocr.models.generation import Generation
from dsocr.models.loading import load_base
from dsocr.training.features import cache_features
from dsocr.training.samples import EncodedSamples
from dsocr.training.train import Setup, fresh_adapter, make_sampler
from measuring import describe, machine, table_line, versions

PROJECT = Path(__file__).resolve().parents[1]
COPISTE = Path(os.environ.get("DSOCR_REAL_DATA") or PROJECT.parent / "shared" / "data" / "copiste")
STEP = 32
HEAD = ["recipe", "lines/s", "CPU ms/line", "clock ratio", "CPU ratio", "first loss", "last loss", "CER %"]
WIDTHS = [34, 8, 11, 11, 9, 10, 9, 7]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is done otherwise than usual."""

    name: str
    cache: bool = False
    learnt: bool = False
    experts: str = "eager"
    window: int = 0
    compiled: bool = False
    read: bool = False
    onednn: bool = False
    per_forward: int = 8
    maskless: bool = False
    last: bool = False


REFERENCE = Recipe("reference", read=True)
LEVERS = [
    Recipe("experts grouped", experts="grouped_mm"),
    Recipe("logits where learnt", learnt=True),
    Recipe("a step's lines sorted", window=1),
    Recipe("no mask of the padding", maskless=True),
    Recipe("last block where learnt", learnt=True, last=True),
    Recipe("products by oneDNN", onednn=True),
]
OURS = Recipe("all but oneDNN", learnt=True, experts="grouped_mm", window=1, maskless=True, last=True)
RECIPES = {
    "decoder": [
        REFERENCE,
        *LEVERS,
        Recipe("features kept", cache=True),
        replace(OURS, cache=True, read=True),
        replace(OURS, name="the same, 32 lines at once", cache=True, per_forward=32),
    ],
    "decoder+vision": [
        REFERENCE,
        *LEVERS,
        replace(OURS, read=True),
        replace(OURS, name="the same, 32 lines at once", per_forward=32),
    ],
}
COMPILED = replace(OURS, name="the same, compiled", cache=True, compiled=True)


@dataclass(slots=True)
class Training:
    """One recipe in the middle of its training."""

    recipe: Recipe
    model: Any
    samples: EncodedSamples
    order: Sequence[int]
    per_step: int
    per_forward: int
    optimizer: torch.optim.Optimizer
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def step(self, number: int) -> None:
        """One optimizer step, timed a line; the loss is a token's mean over the step."""
        with _by_onednn() if self.recipe.onednn else nullcontext():
            self._step(number)

    def _step(self, number: int) -> None:
        indices = self.order[number * self.per_step : (number + 1) * self.per_step]
        encoded: list[Any] = [] if self.recipe.cache else [self.samples[index] for index in indices]
        started, used = time.perf_counter(), time.process_time()
        encoded = encoded or [self.samples[index] for index in indices]
        count = sum(len(sample.answer_ids) for sample in encoded)
        self.model.train()
        processor: Any = self.samples.processor
        loss = torch.zeros(())
        for start in range(0, len(encoded), self.per_forward):
            batch = collate(
                encoded[start : start + self.per_forward],
                processor.pad_id,
                padding="right",
            )
            batch = drop_ignored_positions(batch) if self.recipe.learnt else batch
            inputs = {n: v for n, v in batch.items() if n != "attention_mask"} if self.recipe.maskless else batch
            part = self.model(**normalize_pixels(inputs), num_items_in_batch=torch.tensor(count)).loss
            part.backward()
            loss += part.detach()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.seconds.append((time.perf_counter() - started) / len(indices))
        self.processor.append((time.process_time() - used) / len(indices))
        self.losses.append(loss.item())


@contextmanager
def _by_onednn() -> Iterator[None]:
    """Torch hands float32 over where bfloat16 would do; only processors with AMX round then.

    Its fused attention would make many small products, each to be set up anew.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    with sdpa_kernel(SDPBackend.MATH):
        yield
    torch.set_float32_matmul_precision(before)


def begin(scope: str, recipe: Recipe, lines: Sequence[Sample], dataset: Path) -> Training:
    """A fresh adapter and all that one recipe needs; fills the cache where it takes one."""
    training = {
        "batch_size": STEP,
        "micro_batch_size": recipe.per_forward,
        "group_by_length": bool(recipe.window),
        "feature_cache": recipe.cache,
        "feature_cache_views": 1,
    }
    settings = {
        "dataset": dataset,
        "output": dataset / "run",
        "adapter": {"target_modules": scope},
        "training": training,
    }
    config = RunConfig.model_validate(settings)
    torch.manual_seed(config.seed)
    base = load_base("nano")
    base.network.set_experts_implementation(recipe.experts)
    encoder = base.processor(None, "free_ocr")
    model = fresh_adapter(base.network, config, revision=None)
    if not recipe.last:  # without positions the last block computes all of them
        base.network._forward_pre_hooks.popitem()
    samples = EncodedSamples(lines, encoder, seed=config.seed)
    started, used = time.perf_counter(), time.process_time()
    setup = Setup(model, encoder, samples, torch.device("cpu"), torch.float32)
    if cache_features(config, setup, None, on_message=print):
        seconds, processor = time.perf_counter() - started, time.process_time() - used
        print(f"keeping the features of {len(lines)} lines took {seconds:.1f} s, {processor:.1f} s of a processor")
    if recipe.compiled:
        compile_layers(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-3)
    order = [index for batch in make_sampler(config, samples) for index in batch]
    per_step, per_forward = config.training.batch_size, config.training.micro_batch_size
    return Training(recipe, model, samples, order, per_step, per_forward, optimizer)


def read(training: Training, lines: Sequence[Sample], encoder: DeepseekProcessor) -> float:
    """The CER on lines that are not trained on, read as they were trained on."""
    encoded, pooled = EncodedSamples(lines, encoder), ErrorRate()
    for start in range(0, len(lines), 32):
        some = lines[start : start + 32]
        shown = [encoder.encode(encoded.image(start + place, 0)) for place in range(len(some))]
        readings = decode(training.model, encoder, shown, Generation(max_new_tokens=80))
        for sample, reading in zip(some, readings, strict=True):
            pooled += character_errors(sample.text, reading.text)
    return pooled.rate


def row(training: Training, reference: Training, cer: float | None) -> list[str]:
    """One line of the table; ratios are medians over pairs of steps on the same samples."""
    timed = slice(1, None)  # the first step warms up
    return [
        training.recipe.name,
        f"{1 / median(training.seconds[timed]):.1f}",
        f"{1000 * median(training.processor[timed]):.1f}",
        f"{_ratio(reference.seconds[timed], training.seconds[timed]):.2f}",
        f"{_ratio(reference.processor[timed], training.processor[timed]):.2f}",
        f"{training.losses[0]:.4f}",
        f"{training.losses[-1]:.4f}",
        "" if cer is None else f"{100 * cer:.1f}",
    ]


def _ratio(usual: Sequence[float], ours: Sequence[float]) -> float:
    return median(theirs / own for theirs, own in zip(usual, ours, strict=False))


def main() -> None:
    """Prints what it runs on, then a row for each recipe; nothing is left on the disk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="steps of each recipe, the first not timed")
    parser.add_argument("--read", type=int, default=64, help="validation lines that are read at the end")
    parser.add_argument("--compiled", action="store_true", help="also with torch.compile, which needs a compiler")
    parser.add_argument("--threads", type=int, default=1, help="threads that torch computes in")
    parser.add_argument("--reference", action="store_true", help="only the reference recipe")
    options = parser.parse_args()
    if not (COPISTE / "alto").is_dir():
        sys.exit(f"the copiste pages are not at {COPISTE}; set DSOCR_REAL_DATA")
    # PEFT asks transformers for a property under its old name.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
    torch.set_num_threads(options.threads)
    logging.disable_progress_bar()
    print(describe(versions()))
    print(describe(machine()))
    with tempfile.TemporaryDirectory() as place:
        os.environ["DSOCR_CACHE"] = str(Path(place) / "cache")
        dataset = prepare(COPISTE, Path(place) / "dataset")
        lines = list(dataset.samples(Split.TRAIN))[: options.steps * STEP]
        for scope, recipes in RECIPES.items():
            wanted = [*recipes, COMPILED] if options.compiled and scope == "decoder" else recipes
            wanted = wanted[:1] if options.reference else wanted
            measure(scope, wanted, lines, list(dataset.samples(Split.VALIDATION))[: options.read], dataset.folder)


def measure(
    scope: str, recipes: Sequence[Recipe], lines: Sequence[Sample], others: Sequence[Sample], folder: Path
) -> None:
    """Train with each recipe, and print the results."""
    trainings = [begin(scope, recipe, lines, folder) for recipe in recipes]
    for number in range(len(lines) // STEP):
        turn = number % len(trainings)
        for training in [*trainings[turn:], *trainings[:turn]]:
            training.step(number)
    print(f"\nscope {scope}, {len(lines)} lines seen by each\n" + table_line(HEAD, WIDTHS))
    for training in trainings:
        processor: Any = training.samples.processor
        cer = read(training, others, processor) if training.recipe.read else None
        print(table_line(row(training, trainings[0], cer), WIDTHS), flush=True)


if __name__ == "__main__":
    main()
