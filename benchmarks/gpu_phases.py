"""What `gpu.py` measures: the network with its adapter on one device, and what training and reading take there."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Self

import torch
from peft import PeftModel
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from transformers import AutoModelForImageTextToText, PreTrainedModel, PreTrainedTokenizerFast, logging

from dsocr.inference.decoding import Generation, decode
from dsocr.model.adapters import adapter_tensors, attach_adapter, load_tensors
from dsocr.model.architectures import Architecture, original_config
from dsocr.model.encoding import Encoded, Encoder, collate, only_learnt
from dsocr.model.loading import load_base
from dsocr.model.prompts import find_prompt
from dsocr.model.resolution import find_resolution
from dsocr.model.vision_cache import vision_features
from dsocr.training.setup import checkpoint_activations
from measuring import peak_resident
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

RANK = 16
LEARNING_RATE = 1e-3
UNTIMED = 2
CHARACTERS = 100
NEW_TOKENS = 64

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """A model with an adapter, as fresh as `adapter` remembers it, and the samples it is measured on."""

    model: PeftModel
    encoder: Encoder
    samples: Sequence[Encoded]
    adapter: dict[str, Tensor]
    device: torch.device

    @classmethod
    def prepare(
        cls, folder: Path | None, numbers: Numbers, resolution: str, *, device: torch.device, samples: int
    ) -> Self:
        """The base of a folder or, for None, random weights of these numbers, and as many samples."""
        logging.disable_progress_bar()
        logging.set_verbosity_error()
        torch.manual_seed(SEED)
        if folder is None:
            network, encoder = _random_network(numbers, device), _encoder(numbers, resolution)
        else:
            base = load_base(str(folder), dtype=torch.bfloat16, device=device)
            network, encoder = base.network, base.encoder(resolution, "free_ocr")
        network.name_or_path = "full size"
        model = attach_adapter(network, base="full size", revision=None, scope="decoder", rank=RANK, alpha=2 * RANK)
        fresh = {name: tensor.detach().clone() for name, tensor in adapter_tensors(model).items()}
        return cls(model, encoder, _samples(encoder, samples), fresh, device)

    def allocated(self) -> int | None:
        """The bytes of tensors on the device now; None for a CPU, which does not tell."""
        return torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else None

    def read(self, lines: int) -> Row:
        """Generate for a batch of lines, all to the last token that is allowed: a random network does not end."""
        settings = Generation(max_new_tokens=NEW_TOKENS)
        prompts = [Encoded(sample.prompt_ids, (), sample.views) for sample in self.samples[:lines]]
        decode(self.model, self.encoder, prompts, Generation(max_new_tokens=2))
        self._reset_peak()
        start = self._now()
        readings = decode(self.model, self.encoder, prompts, settings)
        seconds = self._now() - start
        tokens = sum(reading.tokens for reading in readings)
        return {"what": "read", "lines": lines, "tokens": tokens, "seconds": seconds, "peak_bytes": self._peak()}

    def train(self, batch: int, steps: int, *, checkpointing: bool, recipe: str) -> Row:
        """Train the adapter afresh on one batch again and again; `seconds` is None where the memory is too small.

        Of the recipes, `all logits` makes them for every position, `learnt` for those that are learnt, and `cached`
        moreover takes features that the vision towers gave beforehand.
        """
        load_tensors(self.model, self.adapter, where="the fresh adapter")
        self._set_checkpointing(checkpointing)
        self._reset_peak()
        row: Row = {"what": "train", "recipe": recipe, "batch": batch, "checkpointing": checkpointing, "steps": steps}
        try:
            losses, seconds = self._steps(self._batch(batch, recipe), steps)
        except torch.OutOfMemoryError:
            losses, seconds = [], None
        self.model.zero_grad(set_to_none=True)
        falls = all(map(math.isfinite, losses)) and losses[-1] < losses[0] if losses else None
        return {**row, "seconds": seconds, "peak_bytes": self._peak(), "losses": losses, "falls": falls}

    def _batch(self, count: int, recipe: str) -> dict[str, Any]:
        network, pad_id = self.model.get_base_model(), self.encoder.pad_id
        samples = list(self.samples[:count])
        if recipe == "cached":
            seen = [vision_features(network, [sample], pad_id, torch.bfloat16)[0] for sample in samples]
            samples = [replace(sample, features=tokens) for sample, tokens in zip(samples, seen, strict=True)]
        batch = collate(samples, pad_id, padding="right", device=self.device, dtype=network.dtype)
        return batch if recipe == "all logits" else only_learnt(batch)

    def _steps(self, batch: Mapping[str, Any], steps: int) -> tuple[list[float], float]:
        """The losses of all steps, and the seconds of those that are timed."""
        trainable = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trainable, lr=LEARNING_RATE)
        self.model.train()
        losses: list[Tensor] = []
        start = self._now()
        for step in range(UNTIMED + steps):
            if step == UNTIMED:
                start = self._now()
            with torch.autocast(self.device.type, torch.bfloat16):
                loss = self.model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        seconds = self._now() - start
        return [float(loss) for loss in losses], seconds

    def _set_checkpointing(self, on: bool) -> None:
        network = self.model.get_base_model()
        if on:
            checkpoint_activations(network)
        else:
            network.activation_checkpointing_disable()

    def _now(self) -> float:
        """Seconds on a clock, once the device has done what it was told."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def _reset_peak(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)

    def _peak(self) -> int | None:
        """The most bytes of tensors on the device since the last reset; for a CPU, the process's peak so far."""
        return torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else peak_resident()


def _random_network(numbers: Numbers, device: torch.device) -> PreTrainedModel:
    architecture = Architecture("deepseek_ocr", original=True)
    shapes = original_tensors(numbers)
    config = original_config(architecture, original_config_json(numbers), shapes, numbers.image_token_id)
    with torch.device(device):
        network = AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    for name, parameter in network.requires_grad_(False).named_parameters():
        fill(name, parameter)
    return network.eval()


def _encoder(numbers: Numbers, resolution: str) -> Encoder:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=make_tokenizer(numbers), bos_token=BEGIN, eos_token=END, pad_token=PAD
    )
    chosen = find_resolution("deepseek_ocr", resolution)
    return Encoder(tokenizer, numbers.image_token_id, chosen, find_prompt("free_ocr"))


def _samples(encoder: Encoder, count: int) -> list[Encoded]:
    """Lines of letters, each another and all equally long."""
    random = Random(SEED)
    samples = []
    for _ in range(count):
        text = "".join(random.choices("abcdefghijklmnopqrstuvwxyz ", k=CHARACTERS))
        line = Image.new("RGB", (1800, 60), "white")
        ImageDraw.Draw(line).text((10, 8), text, fill="black", font=ImageFont.load_default(36))
        samples.append(encoder.encode(line, text))
    return samples
