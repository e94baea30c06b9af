"""The family of line recognisers with a CTC head: PP-OCRv6 small, PP-OCRv5 mobile and server, and their descendants.

A line is cut to the rows of its writing, so that a flourish does not make the letters smaller, and drawn 48 pixels high
and `stretch` times as wide as it is, because joined letters need more steps than the eight pixels of printed ones. The
network gives each step a probability for every character and for the blank. All weights are trained; a head of
thousands of characters is first cut to those of the dataset.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, count, islice, pairwise, repeat
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsocr.document import PackedImage
from dsocr.errors import ConfigError, ModelError, option
from dsocr.images import open_image, upright_size
from dsocr.models.base_folder import read_characters, read_config_json
from dsocr.models.canvas import LINE_HEIGHT, PIXELS_PER_STEP, LineCanvas, steps_of
from dsocr.models.family import IGNORED, UNWRITABLE, Check, Family, InputLength, Processor, unknown_resolution
from dsocr.models.generation import Decoded, Generation, TokenScore
from dsocr.models.graph import Graph, count_threads
from dsocr.models.language_model import LanguageModel, score_letters, search
from dsocr.models.scripts import MIN_LINES, UNSURE, best_path, decide_script, model_share, restrict, text_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Result = TypeVar("Result")

WIDTH_MULTIPLE = 32
"""Images are padded to a multiple of this width: more lines are then equally wide and can be read together."""

GPU_WIDTH_MULTIPLE = 256
"""The same for a GPU, whose libraries prepare themselves for every new shape: 2 s for a training step, then 0.05 s."""

_LINES_ON_A_GPU = 16
"""Lines that a GPU reads at once, blank ones included, so that there is one shape for each width."""

_DEFAULT_STRETCH = 1.3
"""On 132 lines of cursive French the published weights have a CER of 23.1 % at 1.0, 12.6 at 1.3 and 12.4 at 1.4."""
_LARGE_HEAD = 2000
"""Larger heads are cut to the characters of a dataset: time and memory grow with them."""
_COMMON = "0123456789 .,;:!?()[]«»\"'-—–…/№&*+=%"
BASES = dict.fromkeys(("PP-OCRv6 small and tiny", "kraken's PP-OCRv6", "PP-OCRv5 mobile", "PP-OCRv5 server"))
"""Published networks."""
_PRIVATE = 0x100000
"""The first of the private characters that stand for labels of several code points."""
_NUM_BEAMS = 16
"""Texts that a search with a language model follows; 24 read no better (lab/verdicts.md)."""
_TIMES = 4
"""How often a text of the archive counts in the base's language model; 1 reads worse, 16 no better."""
_WEIGHTS = (0.15, 0.3, 0.45, 0.6)
"""Weights of the language model that are tried on the validation split."""
_LINES_ON_A_CPU = 8
"""Lines that a CPU reads at once: no slower than 16 (34 and 36 ms a line), in 0.9 GB of memory instead of 1.1."""
_MAX_READERS = 4
"""Groups of lines that a CPU reads at once, each with its share of the threads."""
_OTHER_RECOGNISER = re.compile(r"pp_ocrv\d+_\w+_rec")
_RESOLUTION = re.compile(r"x(\d(?:\.\d+)?)")


def count_steps(text: Sequence[str] | Sequence[int]) -> int:
    """Return the fewest steps for a text, or its classes: CTC needs a blank between repeated characters."""
    return len(text) + sum(first == second for first, second in pairwise(text))


@dataclass(frozen=True, slots=True, eq=False)
class LineInput:
    """One line as input: `image` (H, W, 3) as its canvas draws it, and the class of each character of its text.

    An image with too few steps for its text is drawn wider; transcription then sees `as_read`.
    """

    canvas: LineCanvas
    image: NDArray[np.uint8]
    classes: tuple[int, ...] = ()
    as_read: NDArray[np.uint8] | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of its pixels."""
        return self.image.nbytes + (0 if self.as_read is None else self.as_read.nbytes)

    def without_text(self) -> Self:
        """Return it as for transcription."""
        return replace(self, image=self.image if self.as_read is None else self.as_read, classes=(), as_read=None)

    def with_image_of(self, other: Self) -> Self:
        """Return it with the image of another line, drawn wider if the text would not fit."""
        needed = count_steps(self.classes) * PIXELS_PER_STEP
        image = other.image
        if needed > image.shape[1]:
            image = np.asarray(Image.fromarray(image).resize((needed, image.shape[0]), Image.Resampling.BILINEAR))
        return replace(self, image=image, as_read=None)

    def has_input_of(self, other: Self) -> bool:
        """Whether another line has the same pixels."""
        return np.array_equal(self.image, other.image)

    def pixels(self) -> NDArray[np.uint8]:
        """Return the line as the network sees it, (H, W, 3) in RGB order."""
        return self.canvas.shown(self.image)


def collate_lines(
    lines: Sequence[NDArray[Any]], canvas: LineCanvas, multiple: int = WIDTH_MULTIPLE
) -> "tuple[Tensor, Tensor]":
    """Stack drawn lines, padded right with zeros to a multiple of pixels.

    Returns float32 `(B, 3, H, W)` and how many columns belong to each line, int64 `(B,)`.
    """
    import torch

    width = -(-max(line.shape[1] for line in lines) // multiple) * multiple
    batch = np.zeros((len(lines), 3, canvas.height, width), dtype=np.float32)
    for row, line in zip(batch, lines, strict=True):
        row[:, :, : line.shape[1]] = canvas.values(line.transpose(2, 0, 1))
    return torch.from_numpy(batch), torch.tensor([canvas.columns(line) for line in lines])


@dataclass(frozen=True)  # without slots, for `cached_property`
class LineProcessor(Processor):
    """Turn lines and texts into inputs; class `i + 1` is `characters[i]`, class 0 the blank."""

    characters: tuple[str, ...]
    canvas: LineCanvas
    spelled: Mapping[str, str] = field(default_factory=dict)
    """What the private ones among the characters stand for: labels of several code points, or of none."""
    language_model_source: LanguageModel | Path | None = field(default=None, repr=False, compare=False)
    """The language model, or the folder that may hold one: the small base's takes half a second to load."""

    @cached_property
    def classes(self) -> Mapping[str, int]:
        """The class of each character."""
        return {character: place for place, character in enumerate(self.characters, 1)}

    @cached_property
    def language_model(self) -> LanguageModel | None:
        """The language model it reads with, if any. Raises ModelError if its file is damaged."""
        source = self.language_model_source
        return LanguageModel.load(source) if isinstance(source, Path) else source

    @property
    def resolution_name(self) -> str:
        """`x` and how many times as wide as they are lines are drawn."""
        return f"x{self.canvas.stretch:g}"

    def fold(self, text: str) -> str:
        """Return a text in the head's characters: private ones, and marks of their own where only these are known."""
        for character, label in sorted(self.spelled.items(), key=lambda item: -len(item[1])):
            text = text.replace(label, character) if label else text
        parts = {c: unicodedata.normalize("NFD", c) for c in set(text) - self.classes.keys()}
        return "".join(parts[c] if c in parts and self.classes.keys() >= set(parts[c]) else c for c in text)

    def unfold(self, text: str) -> str:
        """Return what a text in the head's characters says, in NFC."""
        return unicodedata.normalize("NFC", text.translate({ord(c): label for c, label in self.spelled.items()}))

    def encode(self, image: Image.Image, text: str | None = None) -> LineInput:
        """Encode one line, drawn wider if its text would not fit."""
        line = self.canvas.draw(image)
        needed = 0 if text is None else count_steps(self.fold(text)) * PIXELS_PER_STEP
        classes = () if text is None else tuple(self.text_ids(text))
        if needed <= line.shape[1]:
            return LineInput(self.canvas, line, classes)
        wider = self.canvas.draw(image, (needed + PIXELS_PER_STEP) / line.shape[1])
        return LineInput(self.canvas, wider, classes, as_read=line)

    def collate(self, samples: Sequence[LineInput], padding: str = "right") -> dict[str, Any]:
        """Return `pixel_values` (B, 3, H, W), padded right with 0, their `columns` (B,) and `labels` (B, L)."""
        from dsocr.models.token_batches import pad_rows

        pixels, columns = collate_lines([sample.image for sample in samples], self.canvas)
        labels = pad_rows([sample.classes for sample in samples], IGNORED)
        return {"pixel_values": pixels, "columns": columns, "labels": labels}

    def text_ids(self, text: str) -> list[int]:
        """Return the classes of the known characters of a text."""
        return [self.classes[character] for character in self.fold(text) if character in self.classes]

    def measure(self, text: str, image_size: Callable[[], tuple[int, int]]) -> InputLength:
        """Measure a line in steps and characters; its width counts, so that lines are batched by it."""
        steps = self.canvas.count_steps(*image_size())
        return InputLength(steps, len(text), max(steps, 1))

    def fits(self, text: str, image: Path | PackedImage) -> bool:
        """Whether a line has enough steps for its text, so that it is not drawn wider."""
        # Cut to its writing it has no fewer steps.
        is_short = count_steps(self.fold(text)) < self.measure(text, lambda: upright_size(image)).vision
        return is_short or self.encode(open_image(image), text).as_read is None

    def shrink(self, image: Image.Image) -> Image.Image:
        """Cut a line to its writing and reduce it to twice the height at which it will be seen."""
        return self.canvas.shrink(image)


@dataclass(frozen=True, slots=True)
class LineRecognizer(Family):
    """A network that gives each step of a line a probability for every character.

    A language model of characters and a script can guide it.
    """

    name: str = "ctc"
    trains = "all"
    learning_rate = 4e-4
    vision_pattern = r"^model\."
    """The trunk: all but the transformer layers and the head."""

    def training_defaults(self, learning_rate: float) -> Mapping[str, Any]:
        """Return a small batch, light augmentation, and half the rate for the trunk, which has less to learn."""
        return {"batch_size": 16, "augmentation": "light", "vision_learning_rate": learning_rate / 2}

    def load_network(self, folder: Path, **options: Any) -> Any:
        """Load the network, its normalisations folded into its convolutions; see `loading.load_base`."""
        import torch

        from dsocr.models.ctc_network import load_network

        network, characters = load_network(folder)
        network.characters = characters
        # On a CPU a step takes 0.7 of the time that it takes with the channels apart.
        return network.to(options["device"], options["dtype"], memory_format=torch.channels_last)

    def network_files(self, network: Any) -> list[tuple[str, bytes]]:
        """Return the names and contents of the files of a checkpoint."""
        from dsocr.models.ctc_network import network_files

        return network_files(network, network.characters)

    def graph_files(self, files: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        """Return the graph of a checkpoint of these files; see `Family.graph_files`."""
        from dsocr.models.ctc_network import write_line_graph
        from dsocr.models.graph_export import graph_of

        return [graph_of(files, write_line_graph)]

    def adapt_to(self, network: Any, processor: LineProcessor, texts: Iterable[str]) -> tuple[Any, LineProcessor]:
        """Cut a large head to common characters and those of the texts, and add missing ones."""
        from dsocr.models.ctc_network import replace_head

        letters = set().union(*map(processor.fold, texts))
        kept: Iterable[str] = processor.characters
        if len(processor.characters) > _LARGE_HEAD:
            useful = {variant for c in letters for variant in (c, c.upper(), c.lower())} | set(_COMMON)
            kept = [c for c in processor.characters if c in useful or c in processor.spelled]
        characters = [*kept, *sorted(letters.difference(kept))]
        if characters != list(processor.characters):
            replace_head(network, processor.characters, characters)
            network.characters = [processor.spelled.get(c, c) for c in characters]
        network.config.line_stretch = processor.canvas.stretch  # saved for whoever takes the weights as a base
        return network, replace(processor, characters=tuple(characters))

    def validate_input(self, resolution: str | None, prompt: str) -> None:
        """Raise ConfigError for an unknown resolution; the prompt is not used."""
        _parse_stretch(resolution)

    def processor(self, folder: Path, resolution: str | None, prompt: str) -> LineProcessor:
        """Return the processor for a stretch such as `x1.3`; None: the one that the base was trained with."""
        config, labels = read_config_json(folder), read_characters(folder)
        private = (chr(_PRIVATE + number) for number in count())
        characters = tuple(label if len(label) == 1 else next(private) for label in labels)
        spelled = {c: label for c, label in zip(characters, labels, strict=True) if c != label}
        stretch = _parse_stretch(resolution) or float(config.get("line_stretch", _DEFAULT_STRETCH))
        grey, is_krakens = (bool(config.get(key, False)) for key in ("line_grey", "line_kraken"))
        canvas = LineCanvas(int(config.get("line_height", LINE_HEIGHT)), stretch, grey, is_krakens)
        return LineProcessor(self, characters, canvas, spelled, folder)

    def prepare_batch(self, batch: Mapping[str, Any], dtype: "torch.dtype | None" = None) -> dict[str, Any]:
        """Convert the pixels to a number format; on a GPU widen the batch to one of few widths."""
        from dsocr.models.ctc_network import pad_batch

        pixels = batch["pixel_values"]
        if not _is_cpu(pixels.device):
            pixels, _ = pad_batch(pixels, batch["columns"], len(pixels), GPU_WIDTH_MULTIPLE)
        return {**batch, "pixel_values": pixels if dtype is None else pixels.to(dtype)}

    def loss(self, model: Any, batch: Mapping[str, Any], num_items: "Tensor") -> "Tensor":
        """Return the sum of the CTC losses of a batch's lines over the number of characters in the step."""
        from dsocr.models.ctc_network import compute_losses

        logits = model(batch["pixel_values"], batch["columns"])
        return compute_losses(logits, steps_of(batch["columns"]), batch["labels"]).sum() / num_items

    def sample_losses(self, model: Any, batch: Mapping[str, Any]) -> list[float]:
        """Return the CTC loss of a character for each line."""
        import torch

        with torch.no_grad():
            return _losses_per_character(model(batch["pixel_values"], batch["columns"]), batch)

    def loss_of_logits(self, logits: NDArray[np.float32], sample: LineInput) -> float:
        """Return the CTC loss of a line from its logits `(T, classes)`; 0 without a text."""
        return -_log_likelihoods(logits, [sample.classes])[0] if sample.classes else 0.0

    def uniform_loss(self, network: Any, processor: Any, samples: Sequence[Any]) -> float:
        """Return the loss of a character if all classes were equally likely at every step."""
        import torch

        batch = processor.collate(samples)
        logits = torch.zeros(len(samples), int(steps_of(batch["columns"]).max()), len(processor.characters) + 1)
        return fmean(_losses_per_character(logits, batch))

    def check_inputs(self, model: Any, processor: Any, samples: Sequence[Any], texts: Sequence[str]) -> list[Check]:
        """Check that the labels are the texts."""
        written = [
            processor.unfold("".join(processor.characters[number - 1] for number in sample.classes))
            for sample in samples
        ]
        for got, expected in zip(written, texts, strict=True):
            if got != expected:
                message = f"labels are not the transcriptions: got {got[:60]!r}, expected {expected[:60]!r}"
                return [Check("labels", "error", message, "the base's vocab.json does not match its head")]
        count = sum(map(len, written))
        details = tuple(f"trained {len(text):>5}  {text}" for text in written)
        return [Check("labels", "ok", f"{count} characters of {len(texts)} samples are trained on", details=details)]

    def decode(self, network: Any, processor: Any, samples: Sequence[Any], generation: Generation) -> list[Decoded]:
        """Read lines by the likeliest class of each step, or by beam search with several beams or a language model."""
        return self.map_logits(self.logits_decoder(processor, generation), network, processor, samples)

    def logits_decoder(self, processor: Any, generation: Generation) -> Callable[[NDArray[np.float32]], Decoded]:
        """Return the function that reads a line from its logits, as `decode` does."""
        decode_line = self._line_decoder(processor, generation)
        return lambda logits: decode_line(_probabilities_of(logits))

    def decode_pages(
        self,
        network: Any,
        processor: Any,
        pages: Sequence[Sequence[Any]],
        generation: Generation,
        otherwise: Generation | None,
    ) -> list[list[Decoded]]:
        """Read the lines of each page in the script in which they are likelier, else as `otherwise` says.

        None lets all lines together decide it. A script that is set is kept; readings of a page that is surely in the
        other one say so.
        """
        every = self._probabilities(network, processor, [sample for page in pages for sample in page])
        if otherwise is None and generation.script == "auto":
            otherwise = self._decide(processor, every, generation, replace(generation, script=UNSURE))
        decoded, lines = [], iter(every)
        for page in pages:
            read = list(islice(lines, len(page)))
            decided, script = generation, None
            if generation.script == "auto":
                decided = self._decide(processor, read, generation, otherwise or generation)
                script = decided.script
            elif self._is_in_other(processor, read, generation):
                script = f"not {generation.script}"
            decode_line = self._line_decoder(processor, decided)
            decoded.append([replace(decode_line(line), script=script) for line in read])
        return decoded

    def decide_reading(
        self, network: Any, processor: Any, samples: Sequence[Any], generation: Generation
    ) -> Generation:
        """Return the settings with the likelier script of lines, else `unsure`, and the language model's share."""
        lines = self._probabilities(network, processor, samples)
        return self._decide(processor, lines, generation, replace(generation, script=UNSURE))

    def _is_in_other(self, processor: Any, lines: Sequence[NDArray[np.float32]], generation: Generation) -> bool:
        model = self._language_model(processor, generation)
        decided = decide_script(lines, processor.characters, model, enough=math.inf)
        return decided not in (None, "any", generation.script)

    def _decide(
        self,
        processor: Any,
        lines: Sequence[NDArray[np.float32]],
        generation: Generation,
        otherwise: Generation,
    ) -> Generation:
        model, characters = self._language_model(processor, generation), processor.characters
        script, share = decide_script(lines, characters, model) or otherwise.script, otherwise.language_model_share
        if model is not None and len(lines) >= MIN_LINES:
            share = model_share((restrict(line, characters, script) for line in lines), characters, model)
        return replace(generation, script=script, language_model_share=share)

    def _probabilities(self, network: Any, processor: Any, samples: Sequence[Any]) -> list[NDArray[np.float32]]:
        return self.map_logits(_probabilities_of, network, processor, samples)

    def read_steps(
        self, network: Any, processor: Any, samples: Sequence[Any], generation: Generation
    ) -> list[tuple[str, NDArray[np.float32] | None]]:
        """Return the likeliest text of each line, without the language model, with its probabilities."""
        characters, lines = processor.characters, self._probabilities(network, processor, samples)
        return [(text_of(best_path(restrict(line, characters, generation.script)), characters), line) for line in lines]

    def _language_model(self, processor: Any, generation: Generation) -> LanguageModel | None:
        return None if generation.language_model == "none" else processor.language_model

    def _line_decoder(self, processor: Any, generation: Generation) -> Callable[[NDArray[np.float32]], Decoded]:
        """Return the decoder of a line; scores are of the chosen text, language model included."""
        model, characters = self._language_model(processor, generation), processor.characters
        weight = generation.language_model_share * model.weight if model else 0.0
        num_beams = max(generation.num_beams, _NUM_BEAMS if model else 1)

        def decode_line(probabilities: NDArray[np.float32]) -> Decoded:
            allowed = restrict(probabilities, characters, generation.script)
            greedy = text_of(best_path(allowed), characters)
            text = search(allowed, characters, num_beams, model, weight) if num_beams > 1 else greedy
            classes = [processor.classes[character] for character in text]
            logs, positions = score_letters(allowed, classes, characters, model, weight)
            ends = [len(processor.unfold(text[:place])) for place in range(len(text) + 1)]
            spans = [*pairwise(ends), (ends[-1], ends[-1])]
            # A mark of its own belongs to the letter before it.
            spans = [(min(start, end - 1), end) if end else (0, 0) for start, end in spans[:-1]] + spans[-1:]
            scores = (TokenScore(*span, log) for span, log in zip(spans, logs, strict=True))
            middles = chain.from_iterable(
                repeat(position, end - start) for (start, end), position in zip(pairwise(ends), positions, strict=True)
            )
            shown, plain = processor.unfold(text), processor.unfold(greedy) if model else None
            return Decoded(shown, len(text), False, scores=tuple(scores), positions=tuple(middles), plain=plain)

        return decode_line

    def map_logits(
        self,
        function: Callable[[NDArray[np.float32]], Result],
        network: Any,
        processor: Any,
        samples: Sequence[Any],
    ) -> list[Result]:
        """Return `function` of the logits of each line, `(T, classes)`, without padding; do not change them.

        A CPU reads several groups of lines at once, so that the function is computed beside the network. A single line
        gets no more threads than a group: how many compute a layer changes the last digits of the result.
        """
        if isinstance(network, Graph):
            with ThreadPoolExecutor(min(_MAX_READERS, count_threads()), "dsocr-read") as threads:
                return list(threads.map(lambda sample: function(network(_alone(sample))), samples))

        import torch

        from dsocr.models.ctc_network import pad_batch

        network.eval()
        results: dict[int, Result] = {}
        is_cpu, num_threads = _is_cpu(network.device), torch.get_num_threads()

        def read(places: list[int]) -> None:
            batch = processor.collate([samples[place] for place in places])
            pixels, columns = batch["pixel_values"], batch["columns"]
            if not is_cpu:
                pixels, columns = pad_batch(pixels, columns, _LINES_ON_A_GPU, GPU_WIDTH_MULTIPLE)
            with torch.inference_mode():
                logits = network(pixels.to(network.device, network.dtype), columns)[: len(places)].float().cpu().numpy()
            for place, rows, steps in zip(places, logits, steps_of(batch["columns"]).tolist(), strict=True):
                results[place] = function(rows[:steps])

        shape = (_LINES_ON_A_CPU, WIDTH_MULTIPLE) if is_cpu else (_LINES_ON_A_GPU, GPU_WIDTH_MULTIPLE)
        groups = _group_by_width(samples, *shape)
        if is_cpu:
            readers = min(_MAX_READERS, num_threads)
            share = partial(torch.set_num_threads, num_threads // readers)
            try:
                with ThreadPoolExecutor(readers, "dsocr-read", share) as threads:
                    list(threads.map(read, groups))
            finally:
                torch.set_num_threads(num_threads)  # also of threads to come
        else:
            for places in groups:
                read(places)
        return [results[place] for place in range(len(samples))]

    def log_likelihoods(
        self, network: Any, processor: Any, images: Sequence[Image.Image], texts: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """Return the log probability of each text of each image, over all paths; the language model has no part in it.

        Of a text that the image has too few steps for, the characters too many count as ones that cannot be written.
        """
        lines = self.map_logits(lambda logits: logits, network, processor, [*map(processor.encode, images)])
        folded = ([processor.fold(text) for text in candidates] for candidates in texts)
        return [
            score_texts(line, processor.classes, candidates) for line, candidates in zip(lines, folded, strict=True)
        ]

    def fit_language_model(
        self,
        processor: Any,
        texts: Iterable[str],
        lines: Iterable[NDArray[np.float32]],
        references: Sequence[str],
        generation: Generation,
        others: Sequence[str] = (),
        readings: Sequence[str] = (),
        *,
        is_better: Callable[[Sequence[int], Sequence[int]], bool],
    ) -> LineProcessor:
        """Return the processor with a language model of the texts, at the weight that reads the lines best.

        Tried too are the base's own model with the texts added to it, and both with `others`, texts without images, and
        with own `readings` as well. In doubt it stays as it was: a base with a model of its own gets one unless
        `is_better` says, of the errors of each line, that reading without is better; another one only if it helps.
        """
        from rapidfuzz.distance import Levenshtein

        former, characters, models = processor.language_model, processor.characters, list[LanguageModel]()
        learnt, references = ([*map(processor.fold, given)] for given in (texts, references))
        for more in dict.fromkeys([(), (*others,), (*others, *readings)]):
            fitted = LanguageModel.fit([*learnt, *map(processor.fold, more)])
            for model in [fitted] if former is None else [fitted, former.merge(fitted, _TIMES)]:
                model.others = len(others) if more else 0
                models.append(model)
        num_beams = max(generation.num_beams, _NUM_BEAMS)
        allowed = [restrict(_probabilities_of(logits), characters, generation.script) for logits in lines]

        def count_errors(lines_read: Iterable[str]) -> list[int]:
            return [Levenshtein.distance(read, text) for read, text in zip(lines_read, references, strict=True)]

        greedy = count_errors(text_of(best_path(line), characters) for line in allowed)
        errors: dict[tuple[int, float], list[int]] = {}
        for number, model in enumerate(models):
            tried = LanguageModel(model.followers)  # its caches of some 60 MB go with it
            for weight in _WEIGHTS:
                read = (search(line, characters, num_beams, tried, weight) for line in allowed)
                errors[number, weight] = count_errors(read)
        best = min(errors, key=lambda key: sum(errors[key]))
        chosen: LanguageModel | None = None
        if is_better(greedy, errors[best]) if former is None else not is_better(errors[best], greedy):
            length, chosen = max(1, sum(map(len, references))), models[best[0]]
            chosen.weight, chosen.gain = best[1], (sum(greedy) / length, sum(errors[best]) / length)
        result: LineProcessor = replace(processor, language_model_source=chosen)
        return result


def require_script(family: Family, script: str) -> None:
    """Raise ConfigError if a family cannot keep to a script."""
    if script not in ("auto", "any") and not isinstance(family, LineRecognizer):
        message = f"{option('script', script)}: models of the family {family.name} choose letters by themselves"
        raise ConfigError(message, code="script-unsupported", hint="omit it; only line recognisers take a script")


_TYPES = ("pp_ocrv6_small_rec", "pp_ocrv6_tiny_rec", "pp_ocrv5_mobile_rec", "pp_ocrv5_server_rec")


def recognize(config: Mapping[str, Any]) -> LineRecognizer | None:
    """Return the family if a `config.json` describes a line recogniser, else None.

    Raises ModelError for a recogniser of PP-OCR that is published in PaddlePaddle's own format, or is another one.
    """
    model_type = str(config.get("model_type"))
    if model_type in _TYPES:
        return LineRecognizer()
    own_name = config.get("Global", {}).get("model_name") if isinstance(config.get("Global"), Mapping) else None
    if own_name is not None:
        message = f"{own_name} is in PaddlePaddle's own format"
        hint = f"take it as transformers loads it, from PaddlePaddle/{own_name}_safetensors"
        raise ModelError(message, code="paddle-checkpoint", hint=hint)
    if _OTHER_RECOGNISER.fullmatch(model_type):
        message = f"Line recognisers of type {model_type!r} are not supported"
        raise ModelError(message, code="recogniser-unknown", hint=f"take {', '.join(_TYPES)} or small")
    return None


def _losses_per_character(logits: "Tensor", batch: Mapping[str, Any]) -> list[float]:
    from dsocr.models.ctc_network import compute_losses

    losses = compute_losses(logits, steps_of(batch["columns"]), batch["labels"])
    values: list[float] = (losses / (batch["labels"] >= 0).sum(1).clamp(min=1)).tolist()
    return values


def score_texts(logits: NDArray[np.float32], classes: Mapping[str, int], texts: Sequence[str]) -> list[float]:
    """Return the log probability of each text, over all its paths through logits `(T, classes)`."""
    steps = len(logits)
    labels = [[classes[character] for character in text if character in classes][:steps] for text in texts]
    for label in labels:
        while count_steps(label) > steps:
            label.pop()
    known = zip(texts, labels, _log_likelihoods(logits, labels), strict=True)
    return [(len(text) - len(label)) * UNWRITABLE + likelihood for text, label, likelihood in known]


def _log_likelihoods(logits: NDArray[np.float32], labels: Sequence[Sequence[int]]) -> list[float]:
    """Return the log probability of each of several label sequences by the forward algorithm (Graves et al. 2006)."""
    logs = np.log(np.maximum(_probabilities_of(logits.astype(np.float64)), 1e-30))
    states = np.zeros((len(labels), 2 * max(1, *map(len, labels)) + 1), dtype=np.int64)  # a blank around each label
    for row, label in zip(states, labels, strict=True):
        row[1 : 2 * len(label) : 2] = label
    skips = np.zeros(states.shape, dtype=bool)  # over a blank between two different labels
    skips[:, 2:] = (states[:, 2:] != 0) & (states[:, 2:] != states[:, :-2])
    forward = np.full((len(labels), states.shape[1] + 2), -np.inf)
    forward[:, 2:4] = logs[0, states[:, :2]]
    for step in logs[1:]:
        reached = np.logaddexp(forward[:, 2:], forward[:, 1:-1])
        forward[:, 2:] = np.logaddexp(reached, np.where(skips, forward[:, :-2], -np.inf)) + step[states]
    ends = [2 * len(label) + 2 for label in labels]
    return [float(np.logaddexp(row[end], row[end - 1])) for row, end in zip(forward, ends, strict=True)]


def _alone(sample: LineInput) -> NDArray[np.float32]:
    """Return a line as a graph takes it, `(3, H, W)`, all of whose columns belong to it."""
    line, canvas = sample.image, sample.canvas
    values = canvas.values(line.transpose(2, 0, 1))
    return np.pad(values, ((0, 0), (0, 0), (0, canvas.columns(line) - line.shape[1])))


def _is_cpu(device: "torch.device") -> bool:
    return device.type == "cpu"


def _group_by_width(samples: Sequence[LineInput], most: int, multiple: int) -> list[list[int]]:
    """Return the places of lines that are read together, `most` at most and of the same width, padded to a multiple.

    Each line is then read bit for bit as it is read alone: the kernels of a CPU compute every image of a batch for
    itself, but choose their order of additions by its width. What does otherwise in bf16 goes line by line, see
    `compute_logits`.
    """
    groups: list[list[int]] = []
    by_width: dict[int, list[int]] = {}
    for place in sorted(range(len(samples)), key=lambda place: -samples[place].image.shape[1]):
        width = -(-samples[place].image.shape[1] // multiple)
        if width not in by_width or len(by_width[width]) == most:
            by_width[width] = []
            groups.append(by_width[width])
        by_width[width].append(place)
    return groups


def _probabilities_of(logits: NDArray[Any]) -> NDArray[Any]:
    likely = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities: NDArray[Any] = likely / likely.sum(-1, keepdims=True)
    return probabilities


def _parse_stretch(resolution: str | None) -> float | None:
    """Return the number of a resolution such as `x1.3`. Raises ConfigError for another name."""
    if resolution is None:
        return None
    match = _RESOLUTION.fullmatch(resolution)
    if match is None or not 0.5 <= float(match[1]) <= 4:
        hint = "it has x0.5 to x4: how many times as wide as it is a line is drawn, such as x1.3"
        raise unknown_resolution(resolution, hint)
    return float(match[1])
