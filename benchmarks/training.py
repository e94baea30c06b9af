"""Measure what each optimization of training gains: nano on real lines, against the recipe that is usually published.

    python benchmarks/training.py
    python benchmarks/training.py --steps 4 --read 16

The reference encodes each line alone, runs the vision towers on every sample in every epoch, computes logits for every
position, loops over the experts, draws batches at random and leaves matrix products to torch's defaults. Each other row
changes one thing, or all of them. All rows make the same steps on the same samples (of the copiste pages in
DSOCR_REAL_DATA), in turn, one step each, so that other load on the machine affects all alike: compare the ratios, which
are per line. One thread, or `--threads`; times leave out opening the images, which is the same for all, and filling the
cache, which is printed apart.
"""

import argparse
import os
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
from dsocr.models.family import IGNORED
from dsocr.models.generation import Generation
from dsocr.models.loading import load_base
from dsocr.training.feature_cache import cache_features
from dsocr.training.samples import EncodedSamples, Setup
from dsocr.training.train import fresh_adapter, make_sampler
from measuring import COPISTE, describe, machine, require_copiste, table_line, versions

STEP = 32
HEAD = ["recipe", "lines/s", "CPU ms/line", "clock ratio", "CPU ratio", "first loss", "last loss", "CER %"]
WIDTHS = [34, 8, 11, 11, 9, 10, 9, 7]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a recipe changes in the reference."""

    name: str
    cache: bool = False
    sparse_logits: bool = False
    experts: str = "eager"
    grouped: bool = False
    compiled: bool = False
    read: bool = False
    onednn: bool = False
    micro_batch_size: int = 8
    no_mask: bool = False
    sparse_last_block: bool = False
    multiple: int = 1
    """Lengths are padded to a multiple of this, so that fewer shapes come up."""


REFERENCE = Recipe("reference", read=True)
LEVERS = [
    Recipe("experts grouped", experts="grouped_mm"),
    Recipe("logits where learnt", sparse_logits=True),
    Recipe("a step's lines sorted", grouped=True),
    Recipe("no mask of the padding", no_mask=True),
    Recipe("last block where learnt", sparse_logits=True, sparse_last_block=True),
    Recipe("products by oneDNN", onednn=True),
]
OURS = Recipe(
    "all but oneDNN", sparse_logits=True, experts="grouped_mm", grouped=True, no_mask=True, sparse_last_block=True
)
RECIPES = {
    "decoder": [
        REFERENCE,
        *LEVERS,
        Recipe("features kept", cache=True),
        replace(OURS, cache=True, read=True),
        replace(OURS, name="the same, 32 lines at once", cache=True, micro_batch_size=32),
        replace(OURS, name="the same, by oneDNN", cache=True, onednn=True),
        replace(OURS, name="the same, lengths in 32s", cache=True, onednn=True, multiple=32),
    ],
    "decoder+vision": [
        REFERENCE,
        *LEVERS,
        replace(OURS, read=True),
        replace(OURS, name="the same, 32 lines at once", micro_batch_size=32),
    ],
}
COMPILED = replace(OURS, name="the same, compiled", cache=True, compiled=True)


@dataclass(slots=True)
class Training:
    """The training of one recipe, and its times and losses so far."""

    recipe: Recipe
    model: Any
    samples: EncodedSamples
    order: Sequence[int]
    batch_size: int
    micro_batch_size: int
    optimizer: torch.optim.Optimizer
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def step(self, number: int) -> None:
        """Make one optimizer step, timed per line; the loss is the mean over the tokens of the step."""
        with _by_onednn() if self.recipe.onednn else nullcontext():
            self._step(number)

    def _step(self, number: int) -> None:
        indices = self.order[number * self.batch_size : (number + 1) * self.batch_size]
        encoded: list[Any] = [] if self.recipe.cache else [self.samples[index] for index in indices]
        started, used = time.perf_counter(), time.process_time()
        encoded = encoded or [self.samples[index] for index in indices]
        count = sum(len(sample.answer_ids) for sample in encoded)
        self.model.train()
        processor: Any = self.samples.processor
        loss = torch.zeros(())
        for start in range(0, len(encoded), self.micro_batch_size):
            samples = encoded[start : start + self.micro_batch_size]
            batch = collate(samples, processor.pad_id, padding="right")
            extra = -batch["input_ids"].shape[1] % self.recipe.multiple
            for name, value in (("input_ids", processor.pad_id), ("attention_mask", 0), ("labels", IGNORED)):
                batch[name] = torch.nn.functional.pad(batch[name], (0, extra), value=value)
            batch = drop_ignored_positions(batch) if self.recipe.sparse_logits else batch
            inputs = {n: v for n, v in batch.items() if n != "attention_mask"} if self.recipe.no_mask else batch
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
    """Let oneDNN multiply float32 matrices as bfloat16, which only processors with AMX do.

    Fused attention would make many small products, each with its own setup.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    with sdpa_kernel(SDPBackend.MATH):
        yield
    torch.set_float32_matmul_precision(before)


def begin(scope: str, recipe: Recipe, lines: Sequence[Sample], dataset: Path) -> Training:
    """Make a fresh adapter and all that a recipe needs; fill the cache if it uses one."""
    training = {
        "batch_size": STEP,
        "micro_batch_size": recipe.micro_batch_size,
        "group_by_length": recipe.grouped,
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
    if not recipe.sparse_last_block:  # without positions the last block computes all of them
        base.network._forward_pre_hooks.popitem()
    samples = EncodedSamples(lines, encoder, seed=config.seed)
    started, used = time.perf_counter(), time.process_time()
    setup = Setup(model, encoder, samples, torch.device("cpu"), torch.float32)
    if cache_features(config, setup, None, on_message=print):
        seconds, processor = time.perf_counter() - started, time.process_time() - used
        print(f"caching the features of {len(lines)} lines took {seconds:.1f} s, {processor:.1f} s of CPU time")
    if recipe.compiled:
        compile_layers(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-3)
    order = [index for batch in make_sampler(config, samples) for index in batch]
    batch_size, micro_batch_size = config.training.batch_size, config.training.micro_batch_size
    return Training(recipe, model, samples, order, batch_size, micro_batch_size, optimizer)


def read(training: Training, lines: Sequence[Sample], encoder: DeepseekProcessor) -> float:
    """Return the CER on lines that are not trained on."""
    encoded, pooled = EncodedSamples(lines, encoder), ErrorRate()
    for start in range(0, len(lines), 32):
        some = lines[start : start + 32]
        shown = [encoder.encode(encoded.image(start + place, 0)) for place in range(len(some))]
        readings = decode(training.model, encoder, shown, Generation(max_new_tokens=80))
        for sample, reading in zip(some, readings, strict=True):
            pooled += character_errors(sample.text, reading.text)
    return pooled.rate


def row(training: Training, reference: Training, cer: float | None) -> list[str]:
    """Return a row of the table; ratios are medians over pairs of steps on the same samples."""
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
    """Print the machine, then a row for each recipe; leave nothing on the disk."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="steps of each recipe, the first not timed")
    parser.add_argument("--read", type=int, default=64, help="validation lines to read at the end")
    parser.add_argument("--compiled", action="store_true", help="also with torch.compile, which needs a compiler")
    parser.add_argument("--threads", type=int, default=1, help="threads that torch computes in")
    parser.add_argument("--reference", action="store_true", help="only the reference recipe")
    options = parser.parse_args()
    require_copiste()
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
    print(f"\nscope {scope}, {len(lines)} lines each\n" + table_line(HEAD, WIDTHS))
    for training in trainings:
        processor: Any = training.samples.processor
        cer = read(training, others, processor) if training.recipe.read else None
        print(table_line(row(training, trainings[0], cer), WIDTHS), flush=True)


if __name__ == "__main__":
    main()
