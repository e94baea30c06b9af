"""The measurements of `gpu.py`: the network with its adapter on one device, training and reading there."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Self, cast

import torch
from peft import PeftModel
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForImageTextToText, PreTrainedModel, PreTrainedTokenizerFast, logging

from dsocr.config import TrainingSection
from dsocr.models.adapters import adapter_tensors, attach_adapter, load_tensors
from dsocr.models.deepseek_ocr import DeepseekOcr, DeepseekProcessor, find_prompt, find_resolution, original_config
from dsocr.models.generation import Generation
from dsocr.models.loading import load_base
from dsocr.models.token_batches import collate, decode, drop_ignored_positions, normalize_pixels
from dsocr.models.token_family import CanvasEncoded, TokenFamily
from dsocr.training.feature_cache import vision_features
from dsocr.training.trainer import Callback, Trainer, build_optimizer
from random_checkpoint import (
    BEGIN,
    END,
    PAD,
    SEED,
    Numbers,
    fill,
    make_tokenizer,
    original_config_json,
    original_tensors,
)
from runner import peak_resident

FAMILY = DeepseekOcr("deepseek_ocr", original=True)
RANK = 16
LEARNING_RATE = 1e-3
UNTIMED, TIMED = 3, 10
LINE_TOKENS = 19
LINE_SIZE = (1500, 120)
NEW_TOKENS = 64

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Options of a step: which logits are computed, how experts run, which activations are kept."""

    name: str
    learnt: bool = False
    experts: str = "eager"
    kept: bool = False
    compiled: bool = False


REFERENCE = Recipe("reference")
RECIPES = [
    REFERENCE,
    Recipe("experts grouped", experts="grouped_mm"),
    Recipe("logits where learnt", learnt=True),
    Recipe("features kept", kept=True),
    Recipe("grouped, learnt", learnt=True, experts="grouped_mm"),
    Recipe("grouped, learnt, kept", learnt=True, experts="grouped_mm", kept=True),
    Recipe("the same, compiled", learnt=True, experts="grouped_mm", kept=True, compiled=True),
]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Operations a second of a large bfloat16 matrix product, and bytes a second of a large copy, read and written."""

    operations: float
    bytes: float

    @classmethod
    def of(cls, device: torch.device, *, side: int = 8192, megabytes: int = 4096) -> "Ceiling":
        """Measured on random numbers; a CPU is asked for little, because it is there to try a benchmark out."""
        if device.type != "cuda":
            side, megabytes = 512, 16
        left, right = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
        product = _seconds(lambda: left @ right, device)
        source = torch.randn(megabytes * 250_000, device=device)
        target = torch.empty_like(source)
        copy = _seconds(lambda: target.copy_(source), device)
        return cls(2 * side**3 / product, 2 * source.nbytes / copy)


def operations(work: Callable[[], object]) -> int:
    """The floating-point operations of the matrix products and attention in a piece of work, which is done once."""
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def wait(device: torch.device) -> None:
    """Wait until the device has finished its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    for _ in range(UNTIMED):
        work()
    wait(device)
    start = time.perf_counter()
    for _ in range(TIMED):
        work()
    wait(device)
    return (time.perf_counter() - start) / TIMED


@dataclass(frozen=True, slots=True)
class Bench:
    """A model with an adapter, as fresh as `adapter` remembers it, on one device."""

    model: PeftModel
    encoder: DeepseekProcessor
    adapter: dict[str, Tensor]
    device: torch.device
    lines: int = 1
    """Lines in one image."""

    @classmethod
    def prepare(
        cls,
        folder: Path | None,
        numbers: Numbers,
        resolution: str,
        *,
        device: torch.device,
        scope: str = "decoder",
        lines: int = 1,
    ) -> Self:
        """The base of a folder or, for None, random weights of these numbers."""
        logging.disable_progress_bar()
        logging.set_verbosity_error()
        torch.manual_seed(SEED)
        if folder is None:
            network, encoder = _random_network(numbers, device), _encoder(numbers, resolution)
        else:
            base = load_base(str(folder), dtype=torch.bfloat16, device=device)
            network, encoder = base.network, cast(DeepseekProcessor, base.processor(resolution, "free_ocr"))
        network.name_or_path = "full size"
        model = attach_adapter(network, base="full size", revision=None, target_modules=scope, r=RANK, alpha=2 * RANK)
        fresh = {name: tensor.detach().clone() for name, tensor in adapter_tensors(model).items()}
        return cls(model, encoder, fresh, device, lines)

    def allocated(self) -> int | None:
        """The bytes of tensors on the device now; None for a CPU, which does not tell."""
        return torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else None

    def read(self, images: int, *, merged: bool) -> Row:
        """Generate for a batch of images, all to the last token that is allowed: a random network does not end."""
        settings = Generation(max_new_tokens=LINE_TOKENS + 1, no_repeat_ngram_size=0)
        prompts = [replace(sample, answer_ids=()) for sample in self._samples(images)]
        row: Row = {"what": "read", "images": images, "merged": merged}
        if merged:
            self.model.merge_adapter()
        self._reset_peak()
        try:
            decode(self.model, self.encoder, prompts, replace(settings, max_new_tokens=2))
            one = self._timed(lambda: decode(self.model, self.encoder, prompts, replace(settings, max_new_tokens=1)))
            seconds = self._timed(lambda: decode(self.model, self.encoder, prompts, settings))
            tokens, first = images * settings.max_new_tokens, one
        except torch.OutOfMemoryError:
            tokens, seconds, first = 0, None, None
        finally:
            if merged:
                self.model.unmerge_adapter()
        return {**row, "tokens": tokens, "seconds": seconds, "first_seconds": first, "peak_bytes": self._peak()}

    def train(self, recipe: Recipe, images: int, steps: int, *, checkpointing: bool = False) -> Row:
        """Train the adapter afresh on one batch again and again; `seconds` is None if memory runs out."""
        self._renew_adapter()
        self.model.get_base_model().set_experts_implementation(recipe.experts)
        self._set_checkpointing(checkpointing)
        row: Row = {"what": "train", "recipe": recipe.name, "images": images, "steps": steps}
        self._reset_peak()
        if recipe.compiled:
            FAMILY.prepare_training(
                self.model, self.model.get_base_model(), compile_layers=True, checkpoint_activations=False
            )
        try:
            batch = self._batch(images, recipe)
            losses, seconds = self._steps(batch, steps)
        except torch.OutOfMemoryError:
            losses, seconds = [], None
        finally:
            self._forget_compiled()
        self.model.zero_grad(set_to_none=True)
        falls = all(map(math.isfinite, losses)) and losses[-1] < losses[0] if losses else None
        measured = {"checkpointing": checkpointing, "seconds": seconds, "peak_bytes": self._peak()}
        return {**row, **measured, "losses": losses, "falls": falls}

    def operations(self, recipe: Recipe) -> int:
        """The operations of forward and backward for one image, with the logits that the recipe makes."""
        # Grouped products are not counted by torch; the loop over the experts makes the same ones, one by one.
        self.model.get_base_model().set_experts_implementation("eager")
        self._set_checkpointing(False)
        self._renew_adapter()
        self.model.train()
        batch = self._batch(1, recipe)
        counted = operations(lambda: self._loss(batch).backward())
        self.model.zero_grad(set_to_none=True)
        return counted

    def bytes_read(self, row: Row) -> float:
        """The fewest bytes from memory for one token of each row of a reading: weights that are used, keys, values."""
        network = self.model.get_base_model()
        config, images = network.config.text_config, row["images"]
        missed = (1 - config.num_experts_per_tok / config.num_experts) ** images
        weights = 0.0
        for name, parameter in network.named_parameters():
            if "lora_" in name or not (".language_model.layers." in name or name.startswith("lm_head")):
                continue
            weights += parameter.nbytes * (1 - missed if ".experts." in name and "shared" not in name else 1)
        prompt, written = len(self.encoder.prompt_ids()), row["tokens"] / images
        position = 2 * 2 * int(config.num_hidden_layers) * int(config.hidden_size)
        return float(weights + images * (prompt + written / 2) * position)

    def _renew_adapter(self) -> None:
        load_tensors(self.model, self.adapter, where="the fresh adapter")

    def _loss(self, batch: dict[str, Any]) -> Any:
        with torch.autocast(self.device.type, torch.bfloat16):
            return self.model(**normalize_pixels(batch)).loss

    def _steps(self, batch: dict[str, Any], steps: int) -> tuple[list[float], float]:
        """Train with the product's loop; the losses that it logs, and the seconds of the steps that are timed."""
        trainable = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        clock = _Clock(self._now)
        Trainer(
            self.model,
            build_optimizer(TrainingSection(learning_rate=LEARNING_RATE, weight_decay=0.0), trainable),
            None,
            [batch] * (UNTIMED + steps),
            max_steps=UNTIMED + steps,
            precision="bf16",
            log_every=max(1, (UNTIMED + steps) // 4),
            callbacks=[clock],
            loss_function=FAMILY.loss,
            prepare_batch=FAMILY.prepare_batch,
        ).fit()
        return clock.losses, clock.seconds

    def _batch(self, images: int, recipe: Recipe) -> dict[str, Any]:
        pad_id, samples = self.encoder.pad_id, self._samples(images)
        if recipe.kept:
            samples = [replace(sample, images={}, features=self._seen(sample)) for sample in samples]
        batch = collate(samples, pad_id, padding="right", dtype=None)
        batch = drop_ignored_positions(batch) if recipe.learnt else batch
        return {name: part.to(self.device) if isinstance(part, Tensor) else part for name, part in batch.items()} | {
            name: {"image": part["image"].to(self.device)}
            for name, part in batch.items()
            if name == "mm_encoder_outputs"
        }

    def _seen(self, sample: CanvasEncoded) -> Tensor:
        """What is kept of a sample's image."""
        return vision_features(self.model.get_base_model(), self.encoder, [sample], torch.bfloat16)[0].tokens

    def _samples(self, images: int) -> list[CanvasEncoded]:
        """Images of lines, each of other letters and all equally long."""
        random = Random(SEED)
        samples = []
        for _ in range(images):
            rows = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz ", k=LINE_TOKENS)) for _ in range(self.lines)]
            samples.append(self.encoder.encode(_drawn(rows), "".join(rows)))
        return samples

    def _set_checkpointing(self, on: bool) -> None:
        network = self.model.get_base_model()
        if on:
            TokenFamily.prepare_training(FAMILY, network, network, compile_layers=False, checkpoint_activations=True)
        else:
            network.activation_checkpointing_disable()

    def _forget_compiled(self) -> None:
        for module in self.model.modules():
            module._compiled_call_impl = None

    def _timed(self, work: Callable[[], object]) -> float:
        start = self._now()
        work()
        return self._now() - start

    def _now(self) -> float:
        """Return the time once the device has finished its queued work."""
        wait(self.device)
        return time.perf_counter()

    def _reset_peak(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)

    def _peak(self) -> int | None:
        """The most bytes of tensors on the device since the last reset; for a CPU, the process's peak so far."""
        return torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else peak_resident()


class _Clock(Callback):
    """Times the steps after the first few, and keeps the logged losses."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.losses: list[float] = []
        self.seconds = 0.0
        self._now = now
        self._started = 0.0

    def on_step_end(self, trainer: Trainer) -> None:
        """Start after the untimed steps, and stop after the last."""
        if trainer.state.step == UNTIMED:
            self._started = self._now()
        elif trainer.is_finished:
            self.seconds = self._now() - self._started

    def on_log(self, trainer: Trainer, values: Mapping[str, float | None]) -> None:
        """Keep the mean loss since the last log."""
        self.losses.append(math.nan if values["loss"] is None else values["loss"])


def _random_network(numbers: Numbers, device: torch.device) -> PreTrainedModel:
    architecture = DeepseekOcr("deepseek_ocr", original=True)
    shapes = original_tensors(numbers)
    config = original_config(architecture, original_config_json(numbers), shapes, numbers.image_token_id)
    with torch.device(device):
        network = AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    for name, parameter in network.requires_grad_(False).named_parameters():
        fill(name, parameter)
    return network.eval()


def _encoder(numbers: Numbers, resolution: str) -> DeepseekProcessor:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=make_tokenizer(numbers), bos_token=BEGIN, eos_token=END, pad_token=PAD
    )
    chosen = find_resolution("deepseek_ocr", resolution)
    ends, pad_id = (tokenizer.eos_token_id,), tokenizer.pad_token_id
    prompt = find_prompt("free_ocr")
    return DeepseekProcessor(
        FAMILY, tokenizer, chosen, numbers.image_token_id, end_ids=ends, pad_id=pad_id, prompt=prompt
    )


def _drawn(rows: Sequence[str]) -> Image.Image:
    width, height = LINE_SIZE
    image = Image.new("RGB", (width, height * len(rows)), "white")
    for place, text in enumerate(rows):
        ImageDraw.Draw(image).text((10, place * height + 20), text, fill="black", font=ImageFont.load_default(72))
    return image
