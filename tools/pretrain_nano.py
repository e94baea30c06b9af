"""Pretrain the embedded base `nano` on rendered text and save it where the package finds it.

    python tools/pretrain_nano.py --fonts FONTS --words ru=ru_RU.dic --words fr=french --words en=american-english

FONTS holds npm packages `@fontsource/<name>` unpacked into folders of the same name. On text loss alone a network this
small sits on the language-model plateau and reads nothing; a second head predicts from each vision token which
characters are under it, slot by slot, and is discarded afterwards. For the first samples only that head is trained,
because a decoder learns nothing from uninformative tokens and learns fast from informative ones. After an interruption
the same command resumes from its last checkpoint. On several cores, `torchrun --nproc-per-node 2
tools/pretrain_nano.py ...` shares each batch between processes.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import PreTrainedTokenizerFast, UnlimitedOcrForConditionalGeneration

from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.inference.reader import LocalReader
from dsocr.models.batch import normalize
from dsocr.models.canvas import Wrapping, plan_wrapping, wrap
from dsocr.models.deepseek_inputs import DeepseekProcessor, find_resolution
from dsocr.models.deepseek_ocr import DeepseekOcr
from dsocr.models.family import IGNORED, IMAGE
from dsocr.models.generation import Generation
from dsocr.models.loading import load_base
from dsocr.text import TextPolicy
from fontsource import load_face
from nano_network import CANVAS, ROW_PIXELS, SPECIAL, TOKEN_PIXELS, make_network, make_tokenizer, save_base
from render import Face, random_style, render_line
from texts import ALPHABET, TextMaker, load_words

PRINT = ["arimo", "cormorant-infant", "gabriela", "ibm-plex-mono", "lora", "noto-serif", "open-sans"]
PRINT += ["playfair-display", "pt-sans", "pt-serif", "roboto", "tinos", "ubuntu"]
HANDS = ["amatic-sc", "comforter", "great-vibes", "klee-one", "lobster", "pacifico", "pangolin", "playpen-sans"]
HANDS += ["shantell-sans", "balsamiq-sans", "cedarville-cursive", "dancing-script", "homemade-apple", "indie-flower"]
HANDS += ["kalam", "la-belle-aurore", "patrick-hand", "reenie-beanie", "sacramento", "satisfy"]
HELD_OUT = ["bad-script", "caveat", "marck-script", "neucha"]
"""The fonts of the shipped sample, which pretraining never sees."""

PROMPT = "\nFree OCR."
VISION_TOKENS = (CANVAS // TOKEN_PIXELS) ** 2
SLOTS_TO_IMAGE = VISION_TOKENS + CANVAS // TOKEN_PIXELS + 1
SLOTS = 2
"""Characters predicted from one vision token, left to right: one for each 16 pixels."""


@dataclass
class Recipe:
    """All settings that determine the weights."""

    fonts: Path
    words: dict[str, Path]
    samples: int = 170_000
    reading_from: int = 60_000
    """Samples after which the decoder joins in."""
    batch: int = 16
    learning_rate: float = 3e-3
    seed: int = 1

    def texts(self, *, unseen: bool = False) -> TextMaker:
        """The text source; Russian weighs most, because it comes first in this project."""
        words = {language: load_words(path) for language, path in self.words.items()}
        return TextMaker(words, {"ru": 0.5, "fr": 0.3, "en": 0.2}, unseen)

    def faces(self, names: list[str]) -> list[Face]:
        """The faces of the named fonts at weight 400."""
        return [load_face(self.fonts / name, capitals_only=name == "amatic-sc") for name in names]


DrawnLine = tuple[str, NDArray[np.uint8], NDArray[np.float64]]
"""A text, its picture (height, width, 3), and the x of each character's centre."""


def drawn_line(
    texts: TextMaker, faces: list[Face], length: int, strength: float, rng: np.random.Generator
) -> DrawnLine:
    """A random text in a random face, which has all its characters."""
    face = faces[int(rng.integers(len(faces)))]
    language = None if "я" in face.alphabet else str(rng.choice(["fr", "en"]))
    text = texts.line(rng, length, language)
    text = text.upper() if face.capitals_only else text
    text = "".join(character for character in text if face.can_draw(character) and character in ALPHABET)
    text = " ".join(text.split()) or "1"
    line = render_line(text, face, random_style(rng, strength), rng)
    return text, line.pixels, line.centres


def slot_labels(
    plan: Wrapping, width: int, centres: NDArray[np.float64], ids: list[int], space: int
) -> NDArray[np.int64]:
    """The character in each slot of each vision token, (VISION_TOKENS * SLOTS,); pad (2) for an empty slot.

    Both tokens of a row's height have the same characters. Rows lower than ROW_PIXELS are ignored.
    """
    if plan.row_height != ROW_PIXELS:
        return np.full(VISION_TOKENS * SLOTS, IGNORED)
    labels = np.full((CANVAS // ROW_PIXELS, CANVAS // TOKEN_PIXELS * SLOTS), 2)
    edges = np.array(plan.edges)
    scaled = np.clip(centres * plan.scaled_width / width, 0, plan.scaled_width - 1)
    for centre, token in zip(scaled, ids, strict=True):
        row = int(np.searchsorted(edges, centre, side="right")) - 1
        column = min(int((centre - edges[row]) * SLOTS / TOKEN_PIXELS), labels.shape[1] - 1)
        if token == space:
            continue
        if labels[row, column] != 2 and column + 1 < labels.shape[1]:
            column += 1
        labels[row, column] = token
    return labels.repeat(ROW_PIXELS // TOKEN_PIXELS, axis=0).reshape(-1)


class RenderedLines(IterableDataset[dict[str, Tensor]]):
    """Endless samples, each drawn from (seed, index), so that a resumed run sees the same data."""

    def __init__(self, recipe: Recipe, first: int, rank: int = 0, world: int = 1) -> None:
        self.recipe, self.first, self.rank, self.world = recipe, first, rank, world

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        torch.set_num_threads(1)
        recipe, tokenizer = self.recipe, make_tokenizer()
        texts, print_faces, hand_faces = recipe.texts(), recipe.faces(PRINT), recipe.faces(HANDS)
        for index in range(self.first + self.rank, recipe.samples, self.world):
            rng = np.random.default_rng((recipe.seed, index))
            # Clean print first: a network that has learned to look at images learns handwriting soon after.
            ease = min(1.0, index / (0.12 * recipe.samples))
            longest = 20 + 38 * ease
            length = int(rng.uniform(2, longest)) if rng.random() < 0.85 else int(rng.uniform(longest, 1.5 * longest))
            is_hand = rng.random() < 0.55 * ease
            strength = ease * (rng.uniform(0.2, 1) if is_hand else rng.uniform(0, 0.7))
            yield encode(*drawn_line(texts, hand_faces if is_hand else print_faces, length, strength, rng), tokenizer)


def encode(
    text: str, pixels: NDArray[np.uint8], centres: NDArray[np.float64], tokenizer: PreTrainedTokenizerFast
) -> dict[str, Tensor]:
    """A drawn line as model inputs, with the slot labels of the second head."""
    image = Image.fromarray(pixels)
    plan = plan_wrapping(np.asarray(image.convert("L")), CANVAS, ROW_PIXELS)
    answer = tokenizer(text, add_special_tokens=False)["input_ids"]
    prompt = [0] + [3] * SLOTS_TO_IMAGE + tokenizer(PROMPT, add_special_tokens=False)["input_ids"]
    canvas = torch.from_numpy(np.asarray(wrap(image, CANVAS, ROW_PIXELS)).copy()).permute(2, 0, 1)
    space = tokenizer.convert_tokens_to_ids(" ")
    return {
        "pixel_values": canvas,
        "input_ids": torch.tensor([*prompt, *answer, 1]),
        "labels": torch.tensor([*[IGNORED] * len(prompt), *answer, 1]),
        "slot_labels": torch.from_numpy(slot_labels(plan, image.width, centres, answer, space)),
    }


def collate(samples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Right-padded batch; pixels stay bytes until the training process normalizes them."""
    pad = nn.utils.rnn.pad_sequence
    return {
        "pixel_values": torch.stack([sample["pixel_values"] for sample in samples]),
        "input_ids": pad([sample["input_ids"] for sample in samples], batch_first=True, padding_value=2),
        "labels": pad([sample["labels"] for sample in samples], batch_first=True, padding_value=IGNORED),
        "slot_labels": torch.stack([sample["slot_labels"] for sample in samples]),
    }


class Pretraining(nn.Module):
    """The network with the second head, which is discarded after pretraining."""

    def __init__(self, network: UnlimitedOcrForConditionalGeneration) -> None:
        super().__init__()
        self.network = network
        width = network.config.text_config.hidden_size
        self.slots = nn.Linear(width, SLOTS * network.config.text_config.vocab_size)
        # Most slots are empty; with full weight the head predicts nothing but empty slots for thousands of steps.
        self.weights = nn.Buffer(torch.ones(network.config.text_config.vocab_size), persistent=False)
        self.weights[2] = 0.15

    def forward(self, batch: dict[str, Tensor], *, reads: bool) -> tuple[Tensor, Tensor]:
        """Text loss (zero unless it `reads`) and slot loss of a collated batch."""
        features = self.network.get_image_features(normalize(batch["pixel_values"]))
        side = CANVAS // TOKEN_PIXELS
        slots = torch.stack(list(features.pooler_output))[:, :-1]
        tokens = slots.view(len(slots), side, side + 1, -1)[:, :, :side]
        guesses = self.slots(tokens).view(-1, self.network.config.text_config.vocab_size)
        slot_loss = nn.functional.cross_entropy(
            guesses.float(), batch["slot_labels"].view(-1), self.weights, ignore_index=IGNORED
        ).nan_to_num()  # a batch of very long lines has no labelled slot
        if not reads:
            return torch.zeros(()), slot_loss
        output = self.network(
            input_ids=batch["input_ids"],
            attention_mask=(batch["input_ids"] != 2).long(),
            labels=batch["labels"],
            mm_encoder_outputs={"image": features},
        )
        return output.loss, slot_loss


def character_error_rate(network: UnlimitedOcrForConditionalGeneration, lines: list[DrawnLine]) -> float:
    """Pooled CER of greedy reading, through the same path that transcribes for users."""
    family = DeepseekOcr("nano", original=False)
    tokenizer = make_tokenizer()
    encoder = DeepseekProcessor(
        family,
        tokenizer,
        find_resolution("nano", None),
        SPECIAL.index(IMAGE),
        end_ids=(tokenizer.eos_token_id,),
        pad_id=tokenizer.pad_token_id,
        prompt=f"{IMAGE}{PROMPT}",
    )
    transcriber = LocalReader(network, encoder, Generation(max_new_tokens=96, batch_size=64), TextPolicy())
    images = ((text, Image.fromarray(pixels)) for text, pixels, _ in lines)
    pooled = sum((character_errors(read.id, read.text) for read in transcriber.read(images)), ErrorRate())
    network.train()
    return pooled.rate


def evaluation_lines(recipe: Recipe, names: list[str], count: int, strength: float, seed: int) -> list[DrawnLine]:
    """`count` lines of words pretraining never shows, in the named fonts."""
    texts, faces = recipe.texts(unseen=True), recipe.faces(names)
    rng = np.random.default_rng(seed)
    return [drawn_line(texts, faces, int(rng.uniform(8, 46)), rng.uniform(0, strength), rng) for _ in range(count)]


def make_optimizers(model: nn.Module, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for embeddings, heads, convolutions, expert stacks and vectors."""
    others_by_name = ("embed", "lm_head", "slots", "gate.weight", "rel_pos", "position")
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim == 2 and not any(part in name for part in others_by_name)
        (matrices if is_matrix else others).append(parameter)
    return [
        torch.optim.Muon(matrices, lr=recipe.learning_rate, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.02),
    ]


def learning_rate(recipe: Recipe, seen: int) -> float:
    """A cosine to 2 % of the peak; linear warmup over 3 % of the samples, and over 1 % when the decoder joins in."""
    warm = 0.03 * recipe.samples
    rising = min(1.0, seen / warm)
    if seen >= recipe.reading_from:
        rising = min(1.0, (seen - recipe.reading_from) / (0.01 * recipe.samples))
    falling = 0.5 * (1 + math.cos(math.pi * max(0.0, seen - warm) / (recipe.samples - warm)))
    return recipe.learning_rate * rising * (0.02 + 0.98 * falling)


def train(recipe: Recipe, work: Path) -> UnlimitedOcrForConditionalGeneration:
    """The training loop; `work` holds the checkpoint and the log, which only the first process writes."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    torch.manual_seed(recipe.seed)
    model = Pretraining(make_network(make_tokenizer())).train()
    optimizers = make_optimizers(model, recipe)
    checkpoint, seen = work / "checkpoint.pt", 0
    if checkpoint.is_file():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        seen = state["seen"]
    known = evaluation_lines(recipe, PRINT, 128, 0.3, seed=11)
    hands = evaluation_lines(recipe, HELD_OUT, 128, 1.0, seed=12)
    loader = DataLoader(
        RenderedLines(recipe, seen, rank, world),
        recipe.batch // world,
        collate_fn=collate,
        num_workers=1,
        prefetch_factor=8,
        multiprocessing_context="spawn",
    )
    started, first, running = time.time(), seen, np.zeros(2)
    for step, batch in enumerate(loader, 1):
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            group["lr"] = learning_rate(recipe, seen)
        with torch.autocast("cpu", torch.bfloat16):
            text_loss, slot_loss = model(batch, reads=seen >= recipe.reading_from)
        share = 1.0 if seen < 0.6 * recipe.samples else 0.3
        (text_loss + share * slot_loss).backward()
        average_gradients(model)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        seen += len(batch["input_ids"]) * world
        running += (float(text_loss.detach()), float(slot_loss.detach()))
        if rank == 0 and step % 100 == 0:
            rate = (seen - first) / (time.time() - started)
            log(work, samples=seen, text_loss=running[0] / 100, slot_loss=running[1] / 100, rate=rate)
            running[:] = 0
        if rank == 0 and step % 800 == 0:
            if seen > recipe.reading_from:
                log(
                    work,
                    samples=seen,
                    print_cer=character_error_rate(model.network, known),
                    hand_cer=character_error_rate(model.network, hands),
                )
            optimizer_states = [optimizer.state_dict() for optimizer in optimizers]
            state = {"model": model.state_dict(), "optimizers": optimizer_states, "seen": seen}
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)
    return model.network


def average_gradients(model: nn.Module) -> None:
    """The mean gradient of all processes, in one exchange."""
    if dist.is_initialized():
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients]).div_(dist.get_world_size())
        dist.all_reduce(flat)
        for gradient, mean in zip(
            gradients, torch.split(flat, [gradient.numel() for gradient in gradients]), strict=True
        ):
            gradient.copy_(mean.view_as(gradient))


def log(work: Path, **values: float) -> None:
    """Print one line of JSON, and append it to the log."""
    line = json.dumps({key: round(value, 4) for key, value in values.items()})
    print(line, flush=True)
    with (work / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def main() -> None:
    """Train, save the base, and print how well it reads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fonts", type=Path, required=True)
    parser.add_argument("--words", action="append", required=True, metavar="LANGUAGE=FILE")
    parser.add_argument("--samples", type=int, default=Recipe.samples)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(".work/nano"))
    parser.add_argument("--out", type=Path, default=Path("src/dsocr/models/bases/nano"))
    parser.add_argument("--measure", action="store_true", help="only measure how well the base in OUT reads")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    words = {language: Path(file) for language, file in (pair.split("=", 1) for pair in options.words)}
    recipe = Recipe(options.fonts, words, options.samples)
    options.work.mkdir(parents=True, exist_ok=True)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    if not options.measure:
        network = train(recipe, options.work)
        if dist.is_initialized() and dist.get_rank():
            return
        save_base(network, make_tokenizer(), options.out)
    network = load_base(str(options.out)).network
    for name, fonts, strength in (("print", PRINT, 0.3), ("known hands", HANDS, 1.0), ("held out", HELD_OUT, 1.0)):
        rate = character_error_rate(network, evaluation_lines(recipe, fonts, 1000, strength, seed=99))
        print(f"{name}: CER {rate:.4f} on 1000 lines of unseen words")


if __name__ == "__main__":
    main()
