"""Measure the optimizations of training one by one: `nano` on real lines, against the usual recipe.

    python benchmarks/training.py
    python benchmarks/training.py --steps 4 --read 16

The reference computes the vision towers in every epoch and logits for every position, loops over the experts and draws
batches at random. Every other row changes one thing, or all of them. All rows make the same steps on the same lines
(copiste), in turns: compare the ratios per line. Opening images and filling the cache are not timed.
"""

import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import logging

from dsocr.config import RunConfig
from dsocr.data.prepare import prepare
from dsocr.document import Sample, Split
from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.models.deepseek_ocr import DeepseekProcessor
from dsocr.models.generation import Generation
from dsocr.models.loading import load_base
from dsocr.models.token_batches import collate, decode, drop_ignored_positions, normalize_pixels
from dsocr.training.feature_cache import cache_features
from dsocr.training.readers import make_trainable
from dsocr.training.samples import EncodedSamples, LengthGroupedSampler, Setup, measure_lengths
from runner import COPISTE, Table, Times, in_turns, make_parser, parse, record, require_copiste

STEP = 32


@dataclass(frozen=True, slots=True)
class Recipe:
    """The changes to the reference."""

    name: str
    cache: bool = False
    sparse_logits: bool = False
    experts: str = "eager"
    grouped: bool = False
    compiled: bool = False
    read: bool = False
    micro_batch_size: int = 8
    no_mask: bool = False


REFERENCE = Recipe("reference", read=True)
LEVERS = [
    Recipe("experts grouped", experts="grouped_mm"),
    Recipe("logits where learnt", sparse_logits=True),
    Recipe("a step's lines sorted", grouped=True),
    Recipe("no mask of the padding", no_mask=True),
]
OURS = Recipe("all", sparse_logits=True, experts="grouped_mm", grouped=True, no_mask=True)
RECIPES = {
    "decoder": [REFERENCE, *LEVERS, Recipe("features kept", cache=True), replace(OURS, cache=True, read=True)],
    "decoder+vision": [REFERENCE, *LEVERS, replace(OURS, read=True)],
}
COMPILED = replace(OURS, name="all, compiled", cache=True, compiled=True)


@dataclass(slots=True)
class Training:
    """The training of one recipe, with its times and losses so far."""

    recipe: Recipe
    model: Any
    samples: EncodedSamples
    order: Sequence[int]
    optimizer: torch.optim.Optimizer
    times: Times = field(default_factory=Times)
    losses: list[float] = field(default_factory=list)

    def step(self, number: int) -> None:
        """Make one optimizer step; the loss is the mean over the tokens of the step."""
        indices = self.order[number * STEP : (number + 1) * STEP]
        encoded: list[Any] = [] if self.recipe.cache else [self.samples[index] for index in indices]
        with (self.times if number else Times()).measure(len(indices)):  # the first step warms up
            encoded = encoded or [self.samples[index] for index in indices]
            self.losses.append(self._update(encoded))

    def _update(self, encoded: Sequence[Any]) -> float:
        count = sum(len(sample.answer_ids) for sample in encoded)
        self.model.train()
        processor: Any = self.samples.processor
        loss = torch.zeros(())
        for start in range(0, len(encoded), self.recipe.micro_batch_size):
            samples = encoded[start : start + self.recipe.micro_batch_size]
            batch = collate(samples, processor.pad_id, padding="right")
            batch = drop_ignored_positions(batch) if self.recipe.sparse_logits else batch
            if self.recipe.no_mask:
                batch.pop("attention_mask")
            part = self.model(**normalize_pixels(batch), num_items_in_batch=torch.tensor(count)).loss
            part.backward()
            loss += part.detach()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


def begin(scope: str, recipe: Recipe, lines: Sequence[Sample], dataset: Path) -> Training:
    """Attach a fresh adapter, and fill the cache if the recipe uses one."""
    training = {
        "batch_size": STEP,
        "micro_batch_size": recipe.micro_batch_size,
        "group_by_length": recipe.grouped,
        "feature_cache": recipe.cache,
        "feature_cache_views": 1,
    }
    adapter = {"target_modules": scope}
    settings = {"base": "nano", "dataset": dataset, "output": dataset / "run", "adapter": adapter, "training": training}
    config = RunConfig.model_validate(settings)
    torch.manual_seed(config.seed)
    base = load_base("nano")
    base.network.set_experts_implementation(recipe.experts)
    encoder = base.processor(None, "free_ocr")
    model = make_trainable(base.network, config, revision=None)
    samples = EncodedSamples(lines, encoder, seed=config.seed)
    started = time.process_time()
    setup = Setup(model, encoder, samples, torch.device("cpu"), torch.float32)
    if cache_features(config, setup, None, Path(tempfile.mkdtemp(dir=dataset.parent)) / "features"):
        print(f"caching the features of {len(lines)} lines took {time.process_time() - started:.1f} s of processor")
    if recipe.compiled:
        encoder.family.prepare_training(model, base.network, compile_layers=True, checkpoint_activations=False)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=2e-3)
    lengths = [length.sequence for length in measure_lengths(samples.samples, encoder)]
    sampler = LengthGroupedSampler(lengths, recipe.micro_batch_size, STEP, seed=config.seed, group=recipe.grouped)
    order = [index for batch in sampler for index in batch]
    return Training(recipe, model, samples, order, optimizer)


def read(training: Training, lines: Sequence[Sample], encoder: DeepseekProcessor) -> float:
    """Return the CER on lines that are not trained on."""
    encoded, pooled = EncodedSamples(lines, encoder), ErrorRate()
    for start in range(0, len(lines), 32):
        batch = lines[start : start + 32]
        shown = [encoder.encode(encoded.image(start + place, 0)) for place in range(len(batch))]
        readings = decode(training.model, encoder, shown, Generation(max_new_tokens=80))
        for sample, reading in zip(batch, readings, strict=True):
            pooled += character_errors(sample.text, reading.text)
    return pooled.rate


def measure(
    scope: str, recipes: Sequence[Recipe], lines: Sequence[Sample], others: Sequence[Sample], folder: Path
) -> Table:
    """Train with each recipe, and print the results."""
    runs = [begin(scope, recipe, lines, folder) for recipe in recipes]
    for number, run in in_turns(runs, len(lines) // STEP):
        run.step(number)
    heads = ("recipe", "lines/s", "CPU ms/line", "clock ratio", "CPU ratio", "first loss", "last loss", "CER %")
    print(f"\nscope {scope}, {len(lines)} lines")
    table = Table(*heads)
    for run in runs:
        processor: Any = run.samples.processor
        cer = f"{100 * read(run, others, processor):.1f}" if run.recipe.read else ""
        speed = (f"{1 / median(run.times.clock):.1f}", f"{1000 * median(run.times.processor):.1f}")
        losses = (f"{run.losses[place]:.4f}" for place in (0, -1))
        table.row(run.recipe.name, *speed, *run.times.ratios(runs[0].times), *losses, cer)
    return table


def main() -> None:
    """Measure both scopes; nothing stays on the disk."""
    parser = make_parser(__doc__)
    parser.add_argument("--steps", type=int, default=20, help="steps of each recipe, the first not timed")
    parser.add_argument("--read", type=int, default=64, help="validation lines to read at the end")
    parser.add_argument("--compiled", action="store_true", help="also with torch.compile, which needs a compiler")
    parser.add_argument("--threads", type=int, default=1, help="threads that torch computes in")
    options = parse(parser)
    require_copiste()
    # PEFT asks transformers for a property under its old name.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
    torch.set_num_threads(options.threads)
    logging.disable_progress_bar()
    rows: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory() as place:
        dataset = prepare(COPISTE, Path(place) / "dataset")
        lines = list(dataset.samples(Split.TRAIN))[: options.steps * STEP]
        others = list(dataset.samples(Split.VALIDATION))[: options.read]
        for scope, recipes in RECIPES.items():
            chosen = [*recipes, COMPILED] if options.compiled and scope == "decoder" else recipes
            rows += measure(scope, chosen, lines, others, dataset.folder).rows
    record(options, rows)


if __name__ == "__main__":
    main()
