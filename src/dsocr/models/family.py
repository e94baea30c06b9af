"""The interface of a kind of network to the rest of the package.

A family answers for every checkpoint of its kind: which class of transformers holds it, how an image and a text become
inputs, which weights are trained, how the loss of a batch is computed, and how a batch is read. Everything else asks
the family and never compares names of networks. To add one, write a module with subclasses of `Family` (`TokenFamily`
if it writes a text token by token) and `Processor` that override the defaults, and pass the family to
`loading.register_family`, or list a function that recognises its checkpoints in `loading`.
"""

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self

from dsocr.errors import ConfigError
from dsocr.models.generation import Decoded, Generation

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from PIL import Image
    from torch import Tensor
    from transformers import PreTrainedModel

    from dsocr.document import PackedImage
    from dsocr.models.language_model import LanguageModel

Batch = dict[str, Any]
"""Named inputs of a network; `labels` (B, L) are -100 at positions without loss."""

IMAGE = "<image>"
"""The place of the image in prompts that say where it is."""

IGNORED = -100
"""The label of a position without loss, as in torch and transformers."""

VLLM_GUARD = "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"
"""vLLM's guard against loops, which forbids the same as ours, for any network."""

UNWRITABLE = math.log(1e-5)
"""The log probability of a character that a network cannot write."""


class InputLength(NamedTuple):
    """Positions that a sample takes: of its image, of its text with the end token, and in all."""

    vision: int
    text: int
    sequence: int


Verdict = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `fix` is empty if no action is needed, `details` names lines to inspect."""

    name: str
    verdict: Verdict
    message: str
    fix: str = ""
    details: tuple[str, ...] = ()


class Encoded(Protocol):
    """One sample as inputs of a network."""

    @property
    def nbytes(self) -> int:
        """The bytes of its pixels."""

    def without_text(self) -> Self:
        """Return it as for transcription."""

    def with_image_of(self, other: Any) -> Self:
        """Return it with the image of another sample."""

    def has_input_of(self, other: Any) -> bool:
        """Whether another sample has the same input, whatever their texts."""

    def pixels(self) -> "NDArray[Any]":
        """Return the network's input as one picture, (H, W, 3) bytes."""


_PIXELS = re.compile(r"pixels(?:(?P<least>\d+)-)?(?P<most>\d+)")


class Serving(NamedTuple):
    """How vLLM serves a family: arguments, how it shows images, and a note on serving a base.

    `resolution` is the one at which it shows images, which `images` describes; None if it shows them at the run's own,
    see `options_at`.
    """

    options: tuple[str, ...]
    resolution: str | None
    images: str
    base_note: str = ""

    def options_at(self, resolution: str | None) -> tuple[str, ...]:
        """Return the arguments with which it shows images as a run saw them, such as at `pixels1024-4096`."""
        match = _PIXELS.fullmatch(resolution or "")
        if self.resolution is not None or match is None:
            return self.options
        sizes = {"min_pixels": match["least"], "max_pixels": match["most"]}
        given = {name: int(number) for name, number in sizes.items() if number}
        return (*self.options, "--mm-processor-kwargs", json.dumps(given))


@dataclass(frozen=True, slots=True)
class Processor(ABC):
    """Turns images and texts into the inputs of one base, at one resolution and with one prompt.

    It is sent to worker processes, so it must be picklable and needs no weights.
    """

    family: "Family"
    prompt: str = field(default="", kw_only=True)
    """The prompt, empty for networks that take none."""
    asked: str = field(default="", kw_only=True)
    """How the network is asked, and who says so; empty without a prompt."""
    max_text_tokens: int | None = field(default=None, kw_only=True)
    """The most tokens of a text, its end token not counted; None without a limit."""

    @property
    @abstractmethod
    def resolution_name(self) -> str:
        """The name of the resolution, as in `input.resolution`."""

    @property
    def language_model(self) -> "LanguageModel | None":
        """The language model of characters it reads with, if any."""
        return None

    @abstractmethod
    def encode(self, image: "Image.Image", text: str | None = None) -> Encoded:
        """Encode one image, with its transcription for training or without for transcription."""

    @abstractmethod
    def collate(self, samples: Sequence[Any], padding: Literal["left", "right"] = "right") -> Batch:
        """Batch encoded samples on the CPU, pixels as bytes, with labels of samples that have a text.

        `on_device` does the rest. Training pads right, generation left.
        """

    def on_device(self, batch: Batch, network: Any, dtype: "torch.dtype | None" = None) -> Batch:
        """Return a batch as the network takes it, on its device, pixels as float32 if no other format is given."""
        from accelerate.utils import send_to_device

        moved = send_to_device(batch, next(network.parameters()).device)
        return self.family.prepare_batch(moved, dtype)

    @abstractmethod
    def text_ids(self, text: str) -> Sequence[int]:
        """Return the network's ids of a text, without an end token."""

    @abstractmethod
    def measure(self, text: str, image_size: Callable[[], tuple[int, int]]) -> InputLength:
        """Measure a sample without encoding it; `image_size` (width, height) is called only if it matters."""

    def fits(self, text: str, image: "Path | PackedImage") -> bool:
        """Whether the network can write so long a text for an image, which is opened only if it matters."""
        return True

    def unknown_characters(self, text: str) -> str:
        """Return the characters of a text that the network cannot write, each once, in their order."""
        return ""

    def distortion(self, width: int, height: int) -> float:
        """Return the vertical stretch of letters in an image of this size; 1 is undistorted."""
        return 1.0

    @abstractmethod
    def shrink(self, image: "Image.Image") -> "Image.Image":
        """Reduce an image that is far larger than the network will see it, to make work on it cheaper."""


@dataclass(frozen=True, slots=True)
class Family(ABC):
    """One kind of network, as a checkpoint folder holds it."""

    name: str
    """The kind's name, for example `ctc`."""

    @property
    def serving(self) -> "Serving | None":
        """How vLLM serves such a checkpoint; None if it does not, or if nobody tried."""
        return None

    trains: ClassVar[Literal["adapter", "all", "either"]] = "adapter"
    """Whether an adapter is trained on frozen weights, or all weights of the network; see `trains_all_weights`."""
    learning_rate: ClassVar[float] = 2e-4
    """The peak learning rate if the configuration gives none."""
    quantizations: ClassVar[Sequence[str]] = ()
    """Number formats of few bits in which its frozen weights can be kept, as in `adapter.quantization`."""
    target_modules: ClassVar[Mapping[str, str]] = {}
    """Named sets of layers that an adapter may train, each as an anchored pattern over module names."""
    saved_names: ClassVar[tuple[str, str]] = ("", "")
    """A part of the native tensor names, and its replacement in saved adapters."""
    expert_parameters: ClassVar[Sequence[str]] = ()
    """Parameters of routed experts that sets with `experts` adapt."""
    vision_pattern: ClassVar[str] = "(?!)"
    """Matches part of the names of the native network's parameters in vision towers and their projector."""

    @property
    def caches_features(self) -> bool:
        """Whether the features of its frozen vision towers may be computed once per image; see `feature_cache`."""
        return False

    @property
    def unused_tensors(self) -> Sequence[str]:
        """Patterns, searched in names, of the tensors of a checkpoint that its network does not use."""
        return ()

    def training_defaults(self, learning_rate: float) -> Mapping[str, Any]:
        """Return defaults of the section `training` for a peak learning rate."""
        return {}

    def is_vision(self, parameter: str) -> bool:
        """Whether a parameter of the native network belongs to the vision towers or their projector."""
        return re.search(self.vision_pattern, parameter) is not None

    @abstractmethod
    def load_network(self, folder: Path, **options: Any) -> Any:
        """Load the network of a checkpoint folder, with the options of `base_folder.load_pretrained`.

        Raises ModelError if the checkpoint is incomplete.
        """

    def network_files(self, network: Any) -> Sequence[tuple[str, bytes]]:
        """Return the files of a checkpoint as transformers writes them, with the other files of the base."""
        with TemporaryDirectory() as folder:
            network.save_pretrained(folder, max_shard_size="1000GB")
            written = {file.name: file.read_bytes() for file in Path(folder).iterdir()}
        return [*({**dict(network.plain_files), **written}).items()]

    def graph_files(self, files: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        """Return the graph of a checkpoint of these files, if it has one, to read with and without torch.

        Raises RunError if the graph does not compute what torch computes.
        """
        return []

    @abstractmethod
    def validate_input(self, resolution: str | None, prompt: str) -> None:
        """Raise ConfigError for an unknown resolution or prompt."""

    @abstractmethod
    def processor(self, folder: Path, resolution: str | None, prompt: str) -> Processor:
        """Return the processor for a resolution (None: the default) and a prompt, by name or as text.

        Raises ConfigError for an unknown resolution or prompt, ModelError if its files are missing.
        """

    def adapt_to(
        self, network: "PreTrainedModel", processor: Any, texts: Iterable[str]
    ) -> tuple["PreTrainedModel", Processor]:
        """Return network and processor fit to be trained on these texts, for example with a smaller head."""
        return network, processor

    def prepare_training(
        self, model: Any, network: "PreTrainedModel", *, compile_layers: bool, checkpoint_activations: bool
    ) -> None:
        """Prepare a model that trains the network: `model` is the network itself, or has an adapter on it."""
        return

    @abstractmethod
    def prepare_batch(self, batch: Mapping[str, Any], dtype: "torch.dtype | None" = None) -> Batch:
        """Finish a batch on the device: bytes become numbers, by default float32."""

    @abstractmethod
    def loss(self, model: Any, batch: Mapping[str, Any], num_items: "Tensor") -> "Tensor":
        """Return the sum of the losses of a batch's labels over `num_items`, the labels of the whole step."""

    @abstractmethod
    def sample_losses(self, model: Any, batch: Mapping[str, Any]) -> list[float]:
        """Return the mean loss of a label for each sample of a batch."""

    @abstractmethod
    def uniform_loss(self, network: Any, processor: Any, samples: Sequence[Any]) -> float:
        """Return the mean loss of a label of these samples under a uniform guess."""

    @abstractmethod
    def check_inputs(self, model: Any, processor: Any, samples: Sequence[Any], texts: Sequence[str]) -> list[Check]:
        """Check that encoded samples suit the network, and that their labels are the texts."""

    @abstractmethod
    def decode(self, network: Any, processor: Any, samples: Sequence[Any], generation: Generation) -> list[Decoded]:
        """Read a batch of samples. Leaves the network in evaluation mode."""

    @abstractmethod
    def log_likelihoods(
        self, network: Any, processor: Any, images: "Sequence[Image.Image]", texts: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """Return the natural log probability of each text of each image; leaves the network in evaluation mode.

        A character that the network cannot write counts as `UNWRITABLE`.
        """

    def retry_loops(
        self,
        network: Any,
        processor: Any,
        generation: Generation,
        images: "Sequence[Image.Image]",
        decoded: Sequence[Decoded],
    ) -> list[Decoded]:
        """Read the images whose text loops again, and return all texts."""
        return list(decoded)


ALL_WEIGHTS = "all"
"""The value of `adapter.target_modules` that trains the network itself, for families that can do either."""
_WHOLE_LEARNING_RATE = 5e-5
"""The usual peak rate for all weights of a pretrained transformer."""


def unknown_resolution(name: str, hint: str) -> ConfigError:
    """Return the error for a resolution that a base does not have; the hint names its own."""
    message = f"This base has no resolution {name!r} (input.resolution)"
    return ConfigError(message, code="resolution-unknown", hint=hint)


def trains_all_weights(family: Family, target_modules: str) -> bool:
    """Whether all weights are trained with this setting. Raises ConfigError if the family trains adapters only."""
    if target_modules == ALL_WEIGHTS and family.trains == "adapter":
        message = f"adapter.target_modules: models of the family {family.name} are trained with an adapter"
        hint = f"choose one of {', '.join(family.target_modules)}"
        raise ConfigError(message, code="weights-not-trained", hint=hint)
    return family.trains == "all" or target_modules == ALL_WEIGHTS


def default_learning_rate(family: Family, target_modules: str) -> float:
    """Return the peak learning rate if the configuration gives none."""
    either = family.trains == "either" and trains_all_weights(family, target_modules)
    return _WHOLE_LEARNING_RATE if either else family.learning_rate
