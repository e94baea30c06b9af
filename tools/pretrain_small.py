"""Pretrain the embedded base `small` on real and drawn handwriting.

    python tools/pretrain_small.py lines DATASET... --cache CACHE          # crops of `dsocr prepare`
    python tools/draw_hands.py lines ...                                   # drawn lines; see there
    python tools/pretrain_small.py train --base PPOCR --cache CACHE --work WORK --out OUT --test DATASET/test

PPOCR is what `tools/convert_recogniser.py` writes. The cache has two files for each source: all lines as
bytes, one after another, and a table of their texts. Training takes in every source that is in the cache when it
starts; after an interruption the same command resumes from the last checkpoint. OUT gets the averaged weights with the
lowest CER on validation lines, which are whole documents that training never sees. On a GPU,
`train --device cuda --workers 6 --pool 1024 --lines 64` lets processes prepare batches of few shapes, and `--minutes`
ends it at a time; lines that `draw_hands.py` writes meanwhile are taken in as they come.
`blend` gives weights between OUT and PPOCR, which read hands of other collections better than OUT; `--base` starts
from them. `check` reads the validation lines of a cache with any checkpoint. `language-model` counts the
letters of the real training lines, of lines as Russian archives have them, and of Russian literature (prose/ of
github.com/d0rj/RusLit, in the public domain: Chekhov, Dostoevsky, Gogol, Pushkin, Tolstoy, Turgenev), and chooses the
weight of that model on the validation lines.
"""

import argparse
import json
import math
import re
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save_file

from convert_recogniser import save_network
from dsocr.data.dataset import Dataset
from dsocr.evaluation.metrics import ErrorRate, character_errors, pool
from dsocr.models.canvas import LINE_HEIGHT, LineCanvas, steps_of
from dsocr.models.ctc_network import (
    compute_logits,
    compute_losses,
    load_network,
    replace_head,
)
from dsocr.models.family import IGNORED
from dsocr.models.language_model import LanguageModel, search
from dsocr.models.loading import choose_dtype
from dsocr.models.scripts import best_path, text_of
from dsocr.models.token_batches import pad_rows
from hands.archive_texts import archive_lines
from small_lines import Batch, Line, Source, open_cache, stream_pools, to_batch, write_source
from small_texts import CHARACTERS, count_words, literature_lines

CLASSES = {character: place for place, character in enumerate(CHARACTERS, start=1)}

_OLD_LETTERS = re.compile(r"[ѣіѳѵѢІѲѴ]|ъ(?!\w)")
"""What tells a line in the spelling of before 1918."""

STRETCH = 1.4
"""Width of the cached lines over their natural width: cursive letters need more columns."""

MAX_LOSS = 12.0
"""Loss per character above which a line is taken for a wrong pair and not learned."""
HELD_OUT_DOCUMENTS = (
    "le-sallon-de-1767-denis-diderot",
    "lettre-boudreau-tessier",
    "poemes-louise-trudelle",
    "bnf-français-3816",
    "bnf-naf-1103",
    "bnf-8-q-piece-1904",
    "Arsenal_Ms-10283",
    "mauritius_JK1",
    "Page9-Lettre69",
    "lectaurep-random-set-2",
)
"""Documents of the real sources that only validate, as parts of the paths of their transcriptions."""

LOOKALIKES = dict(
    zip(
        "абвгдезийкмнопрстуфхцчшщъьіјѕАВЕЗИКМНОПРСТУХЧІЈЅҐЦШЬЪ№",
        "aбbrgezuйkmnonpcmyqxurwwbьijsABE3UKMHOПPCTYXYIJSГUWbbN",
        strict=True,
    )
)
"""Cyrillic letters and the Latin ones that they look like in cursive, from whose rows of the head they start."""


def grey_line(image: Image.Image, height: int = LINE_HEIGHT) -> NDArray[np.uint8]:
    """A line image in grey at a height, stretched."""
    return LineCanvas(height, STRETCH, grey=True).draw(image)[:, :, 0]


def dataset_lines(folder: Path, height: int) -> Iterator[tuple[str, NDArray[np.uint8], bool]]:
    """The training samples of a dataset folder, those of held-out documents for validation."""
    for sample in Dataset.open(folder).samples("train"):
        assert isinstance(sample.image, Path), "prepare the dataset with --store files"
        validates = any(part in (sample.source or "") for part in HELD_OUT_DOCUMENTS)
        with Image.open(sample.image) as image:
            yield sample.text, grey_line(image, height), validates


def start_network(folder: Path) -> Any:
    """The network of a checkpoint with a head for `CHARACTERS`."""
    network, known = load_network(folder)
    if known != CHARACTERS:
        replace_head(network, known, CHARACTERS)
        head = network.head.head
        with torch.no_grad():
            for letter, twin in LOOKALIKES.items():
                if letter not in known and twin in known:
                    head.weight[CLASSES[letter]] = head.weight[CLASSES[twin]]
                    head.bias[CLASSES[letter]] = head.bias[CLASSES[twin]] - 1
    return network.to(memory_format=torch.channels_last)


def in_bf16(device: torch.device) -> torch.autocast:
    """Compute in bf16 where the device itself multiplies it."""
    return torch.autocast(
        device.type, torch.bfloat16, enabled=choose_dtype("auto", device, whole=True) == torch.bfloat16
    )


@torch.inference_mode()
def error_rate(network: Any, lines: Sequence[Line]) -> float:
    """Pooled CER of greedy decoding."""
    order = sorted(range(len(lines)), key=lambda place: lines[place][1].shape[1])
    errors = []
    device = next(network.parameters()).device
    for first in range(0, len(order), 8):
        chosen = [lines[place] for place in order[first : first + 8]]
        pixels, columns = to_batch(chosen).to(device)
        with in_bf16(device):
            logits = compute_logits(network, pixels, columns)
        for (text, _), rows, count in zip(
            chosen, logits.float().softmax(-1).cpu().numpy(), steps_of(columns).tolist(), strict=True
        ):
            errors.append(character_errors(text, text_of(best_path(rows[:count]), CHARACTERS)))
    return pool(errors).rate


@dataclass
class Training:
    """All that a checkpoint holds."""

    network: Any
    average: Any
    optimizer: torch.optim.AdamW
    step: int = 0
    pool: int = 0
    best: float = math.inf

    def save(self, file: Path) -> None:
        """Write the checkpoint, complete or not at all."""
        tensors: dict[str, torch.Tensor] = {}
        for prefix, module in (("network.", self.network), ("average.", self.average)):
            tensors |= {prefix + name: tensor.contiguous() for name, tensor in module.state_dict().items()}
        names = [name for name, _ in self.network.named_parameters()]
        for place, state in self.optimizer.state_dict()["state"].items():
            for key, tensor in state.items():
                tensors[f"optimizer.{key}.{names[place]}"] = tensor.contiguous()
        progress = {"step": str(self.step), "pool": str(self.pool), "best": str(self.best)}
        save_file(tensors, file.with_suffix(".part"), metadata=progress)
        file.with_suffix(".part").replace(file)

    def load(self, file: Path) -> None:
        """Continue from a checkpoint."""
        from safetensors import safe_open

        tensors = load_file(file)
        for prefix, module in (("network.", self.network), ("average.", self.average)):
            module.load_state_dict(
                {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
            )
        names = [name for name, _ in self.network.named_parameters()]
        keys = ("step", "exp_avg", "exp_avg_sq")
        saved = {place: {key: tensors[f"optimizer.{key}.{name}"] for key in keys} for place, name in enumerate(names)}
        self.optimizer.load_state_dict({"state": saved, "param_groups": self.optimizer.state_dict()["param_groups"]})
        with safe_open(file, "pt") as opened:
            progress = opened.metadata()
        self.step, self.pool, self.best = int(progress["step"]), int(progress["pool"]), float(progress["best"])


def blend(options: argparse.Namespace) -> None:
    """Write weights between those of two checkpoints, which often read new hands better than either."""
    first, second = start_network(options.base), start_network(options.trained)
    with torch.no_grad():
        for own, other in zip(first.parameters(), second.parameters(), strict=True):
            own.lerp_(other, options.share)
    save_network(first, CHARACTERS, options.out, torch.float16)


def errors_by_weight(
    network: Any, lines: Sequence[Line], model: LanguageModel | None, weights: Sequence[float]
) -> dict[float, list[tuple[str, ErrorRate]]]:
    """Return each text and the errors in reading it, by the weight of the language model; 0 is without it."""
    found: dict[float, list[tuple[str, ErrorRate]]] = {weight: [] for weight in weights}
    ordered = sorted(lines, key=lambda line: line[1].shape[1])
    for first in range(0, len(ordered), 8):
        chosen = ordered[first : first + 8]
        pixels, steps = to_batch(chosen).to(torch.device("cpu"))
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            logits = compute_logits(network, pixels, steps).float()
        for (text, _), rows, length in zip(chosen, logits, steps.tolist(), strict=True):
            probabilities = rows[:length].softmax(-1).numpy()
            for weight in weights:
                read = search(probabilities, CHARACTERS, 8, model if weight else None, weight)
                found[weight].append((text, character_errors(text, read)))
    return found


def check(options: argparse.Namespace) -> None:
    """Print the CER of a checkpoint on the validation lines of every source, without and with its language model."""
    torch.set_num_threads(options.threads)
    network, model = start_network(options.base).eval(), LanguageModel.load(options.base)
    weights = (0.0, model.weight) if model else (0.0,)
    for source in open_cache(options.cache):
        if not (lines := validation_lines(source, options.most)):
            continue
        found = errors_by_weight(network, lines, model, weights)
        for name, kept in (("", lambda text: True), (" in the old spelling", _OLD_LETTERS.search)):
            rates = [pool(rate for text, rate in errors if kept(text)) for errors in found.values()]
            if rates[0].length:
                cers = " -> ".join(f"{rate.rate:.2%}" for rate in rates)
                print(f"{source.name}{name}: {rates[0].length} characters, CER {cers}", flush=True)


def write_language_model(options: argparse.Namespace) -> None:
    """Write the language model of transcriptions and literature, at the weight that reads validation lines best."""
    torch.set_num_threads(options.threads)
    network = start_network(options.base).eval()
    sources = open_cache(options.cache)
    real = [source for source in sources if not source.name.startswith(("drawn", "unseen"))]
    transcribed = [
        text for source in real for text, held in zip(source.texts, source.validates, strict=True) if not held
    ]
    literature = list(literature_lines(options.literature, options.characters))
    archives = list(archive_lines(count_words(literature), options.archives))
    model = LanguageModel.fit([*transcribed, *literature, *archives])
    model.prune(options.least)
    lengths = [sum(map(len, texts)) for texts in (transcribed, literature, archives)]
    print("characters of transcriptions, literature and archives:", *lengths, flush=True)
    by_source = []
    for source in sources:
        if lines := validation_lines(source, options.most):
            found = errors_by_weight(network, lines, model, (0.0, *options.weights))
            rates = {weight: pool(rate for _, rate in errors) for weight, errors in found.items()}
            cers = ", ".join(f"{weight:g} {rate.rate:.2%}" for weight, rate in rates.items())
            print(f"{source.name}: {len(lines)} lines, {cers}", flush=True)
            by_source.append(rates)
    # Each source counts the same in the choice.
    model.weight = min(options.weights, key=lambda weight: sum(rates[weight].rate for rates in by_source))
    without, with_model = (pool(rates[weight] for rates in by_source).rate for weight in (0.0, model.weight))
    model.gain = (without, with_model)
    options.out.write_text(model.to_json(), encoding="utf-8", newline="\n")
    print(f"{options.out}: weight {model.weight:g}, CER {without:.2%} -> {with_model:.2%} on all validation lines")


def learning_rate(options: argparse.Namespace, step: int, done: float) -> float:
    """Linear warm-up over 100 steps, constant, then linear to 5 % over the last share of the training.

    `done` is the share of the training that is behind.
    """
    falling = (1 - done) / options.falling
    return float(options.learning_rate * min(1.0, (step + 1) / 100, max(0.05, falling)))


def start_training(options: argparse.Namespace) -> Training:
    """The network, its average and its optimizer on the device, as the last checkpoint left them if there is one."""
    device = torch.device(options.device)
    network, average = (start_network(options.base).to(device) for _ in range(2))
    # The trunk knows more than this training shows it, and would forget it at the rate that new letters need.
    groups = [{"params": network.model.parameters(), "share": 0.5}, {"params": network.head.parameters(), "share": 1.0}]
    fused = device.type == "cuda" or None
    optimizer = torch.optim.AdamW(groups, options.learning_rate, betas=(0.9, 0.99), weight_decay=0.01, fused=fused)
    training = Training(network.train(), average.eval(), optimizer)
    if (checkpoint := options.work / "checkpoint.safetensors").is_file():
        training.load(checkpoint)
    return training


def take_step(training: Training, batch: Batch, options: argparse.Namespace, done: float) -> torch.Tensor:
    """Compute the gradients of a batch; return its loss. `finish_step` uses them."""
    device = torch.device(options.device)
    for group in training.optimizer.param_groups:
        group["lr"] = group["share"] * learning_rate(options, training.step, done)
    pixels, columns = batch.to(device)
    with in_bf16(device):
        logits = compute_logits(training.network, pixels, columns)
    labels = pad_rows([[CLASSES[character] for character in text] for text in batch.texts], IGNORED)
    lengths = torch.tensor([len(text) for text in batch.texts]).to(device, non_blocking=True)
    # A wrong transcription must not take a step for itself.
    loss = (compute_losses(logits, steps_of(columns), labels) / lengths).clamp(max=MAX_LOSS).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def finish_step(training: Training, options: argparse.Namespace) -> None:
    """Let the optimizer use the gradients, and the averaged weights follow."""
    torch.nn.utils.clip_grad_norm_(training.network.parameters(), 1.0)
    training.optimizer.step()
    training.optimizer.zero_grad()
    training.step += 1
    decay = min(options.average, (1 + training.step) / (10 + training.step))
    with torch.no_grad():
        means, values = list(training.average.parameters()), list(training.network.parameters())
        torch._foreach_lerp_(means, values, 1 - decay)


def validate(training: Training, checks: dict[str, list[Line]], options: argparse.Namespace) -> None:
    """Log the CER of the averaged weights on lines of each source; write them if they are the best so far."""
    rates = {name: error_rate(training.average, lines) for name, lines in checks.items()}
    kept = [rate for name, rate in rates.items() if name != "test"]
    mean = sum(kept) / max(1, len(kept))
    log(options.work, step=training.step, mean_cer=mean, **rates)
    if mean < training.best:
        training.best = mean
        save_network(training.average, CHARACTERS, options.out, torch.float16)


def train(options: argparse.Namespace) -> None:
    """Train until the number of steps, the minutes or a signal; log losses and CER, keep the best averaged weights."""
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    training = start_training(options)
    sources = open_cache(options.cache)
    training.average.config.line_height = sources[0].height  # saved with the weights
    checks = {source.name: validation_lines(source) for source in sources if source.validates.any()}
    if options.test:
        checks["test"] = test_lines(options.test, sources[0].height)
    stop = False

    def end(*_: object) -> None:
        nonlocal stop
        stop = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    log(options.work, step=training.step, sources={each.name: len(each.texts) for each in sources})
    losses: list[torch.Tensor] = []
    begun = saved = started = checked = math.nan
    seen, done = 0, 0.0
    for drawn in stream_pools(options, training.pool):
        if math.isnan(begun):  # the first lines are there
            begun = saved = started = time.monotonic()
            checked = begun if training.step else -math.inf
        for batch in drawn:
            done = max(training.step / options.steps, (time.monotonic() - begun) / (60 * options.minutes))
            losses.append(take_step(training, batch, options, done))
            finish_step(training, options)
            seen += len(batch.texts)
            if training.step % 20 == 0:
                rate = seen / (time.monotonic() - started)
                log(options.work, step=training.step, loss=float(torch.stack(losses).mean()), lines_per_second=rate)
                losses.clear()
                seen, started = 0, time.monotonic()
            stop = stop or training.step >= options.steps or done >= 1
            if stop:
                break
        training.pool += 1
        now = time.monotonic()
        if stop or now - saved > 60:
            training.save(options.work / "checkpoint.safetensors")
            saved = now
        if stop or now - checked > options.check_minutes * 60:
            validate(training, checks, options)
            seen, started = 0, time.monotonic()
            checked = started
        if stop:
            break


def validation_lines(source: Source, most: int = 60) -> list[tuple[str, NDArray[np.uint8]]]:
    """At most `most` validation lines of a source, evenly spread."""
    places = np.flatnonzero(source.validates)
    places = places[np.linspace(0, len(places) - 1, min(most, len(places))).astype(int)]
    return [(source.texts[place], source.line(int(place))) for place in places]


def test_lines(folder: Path, height: int) -> list[tuple[str, NDArray[np.uint8]]]:
    """All lines of a split of a dataset, for example `data/copiste/test`."""
    lines = []
    for sample in Dataset.open(folder.parent).samples(folder.name):
        assert isinstance(sample.image, Path), "prepare the dataset with --store files"
        with Image.open(sample.image) as image:
            lines.append((sample.text, grey_line(image, height)))
    return lines


def log(work: Path, **values: Any) -> None:
    """One line for people and machines."""
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in values.items()}
    line = json.dumps({"time": time.strftime("%H:%M:%S"), **rounded}, ensure_ascii=False)
    print(line, flush=True)
    with (work / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    lines = commands.add_parser("lines", help="cache the lines of datasets")
    lines.add_argument("datasets", type=Path, nargs="+")
    lines.add_argument("--cache", type=Path, required=True)
    lines.add_argument("--height", type=int, default=LINE_HEIGHT, help="of the lines, in pixels")
    training = commands.add_parser("train", help="train or resume")
    training.add_argument("--base", type=Path, required=True, help="checkpoint folder to start from")
    training.add_argument("--cache", type=Path, required=True)
    training.add_argument("--work", type=Path, required=True, help="folder of the checkpoint and the log")
    training.add_argument("--out", type=Path, required=True, help="folder of the best averaged weights")
    training.add_argument("--test", type=Path, help="split of a dataset to measure, for example data/copiste/test")
    training.add_argument("--steps", type=int, default=6000)
    training.add_argument("--minutes", type=float, default=math.inf, help="end after this time, if not before")
    training.add_argument("--falling", type=float, default=0.3, help="share of the training in which the rate falls")
    training.add_argument("--device", default="cpu", help="cpu or cuda")
    training.add_argument("--workers", type=int, default=0, help="processes that prepare the lines")
    training.add_argument("--pool", type=int, default=256, help="lines that are drawn together and sorted by width")
    training.add_argument("--learning-rate", type=float, default=3e-4)
    training.add_argument("--average", type=float, default=0.998, help="decay of the averaged weights")
    training.add_argument("--pixels", type=int, default=11_000, help="total width of the lines of a batch")
    training.add_argument("--lines", type=int, default=0, help="lines of every batch instead, for a GPU")
    training.add_argument("--check-minutes", type=float, default=15)
    training.add_argument("--threads", type=int, default=2)
    training.add_argument("--seed", type=int, default=1)
    checking = commands.add_parser("check", help="read the validation lines of a cache")
    checking.add_argument("--base", type=Path, required=True, help="checkpoint folder")
    checking.add_argument("--cache", type=Path, required=True)
    checking.add_argument("--most", type=int, default=1000, help="lines of a source to read")
    checking.add_argument("--threads", type=int, default=2)
    counting = commands.add_parser("language-model", help="count the letters of the training lines")
    counting.add_argument("--base", type=Path, required=True, help="checkpoint folder")
    counting.add_argument("--cache", type=Path, required=True)
    counting.add_argument("--literature", type=Path, required=True, help="folder of Russian text files")
    counting.add_argument("--characters", type=int, default=1_500_000, help="of the literature")
    counting.add_argument("--archives", type=int, default=700_000, help="characters of lines as archives have them")
    counting.add_argument("--least", type=int, default=2, help="how often a longer n-gram must be found to be kept")
    counting.add_argument("--most", type=int, default=60, help="validation lines of a source to read")
    counting.add_argument("--weights", type=float, nargs="+", default=[0.15, 0.3, 0.45, 0.6])
    counting.add_argument("--threads", type=int, default=2)
    counting.add_argument("--out", type=Path, required=True, help="file to write")
    blending = commands.add_parser("blend", help="write weights between two checkpoints")
    blending.add_argument("--base", type=Path, required=True)
    blending.add_argument("--trained", type=Path, required=True)
    blending.add_argument("--share", type=float, default=0.5, help="share of the trained weights")
    blending.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.command == "lines":
        for folder in options.datasets:
            write_source(options.cache, folder.name, dataset_lines(folder, options.height))
    elif options.command == "blend":
        blend(options)
    elif options.command == "check":
        check(options)
    elif options.command == "language-model":
        write_language_model(options)
    else:
        train(options)


if __name__ == "__main__":
    main()
