"""The line recognisers of PP-OCR: their networks, heads, CTC loss, and checkpoint folders.

The networks are those of transformers, `PPOCRV6SmallRecForTextRecognition` and the mobile and server ones of PP-OCRv5:
a convolutional trunk (PP-LCNetV4, PP-LCNetV3, HGNetV2), two transformer layers (in PP-OCRv6 tiny two convolutions), and
a linear head with one class for each character. Class 0 is the CTC blank; class `i + 1` is `characters[i]`. A line of
width W becomes about W / 8 steps; the rows that are left of its height are averaged.

A checkpoint folder holds `config.json` and `model.safetensors`, which transformers loads as they are, and `vocab.json`,
the list of the characters, which published ones have in their `preprocessor_config.json`. In memory the batch
normalisations are folded into their convolutions: updating their statistics in training, a few lines at a time, would
destroy its training. The branches of PP-LCNetV3's convolutions are added up to one, as in its authors' own
inference; a checkpoint has the sum as its first branch, and zeros for the others.
"""

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, cast

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AttentionInterface,
    PPOCRV5MobileRecForTextRecognition,
    PPOCRV5ServerRecForTextRecognition,
    PPOCRV6SmallRecForTextRecognition,
    PPOCRV6TinyRecForTextRecognition,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.hgnet_v2.modeling_hgnet_v2 import HGNetV2Embeddings
from transformers.models.pp_lcnet_v3.modeling_pp_lcnet_v3 import (
    PPLCNetV3LearnableRepLayer,
    PPLCNetV3SqueezeExcitationModule,
)
from transformers.models.pp_lcnet_v4.modeling_pp_lcnet_v4 import (
    PPLCNetV4DepthwiseSeparableConvLayer,
    PPLCNetV4LargeStem,
    PPLCNetV4SmallStem,
    PPLCNetV4SqueezeExcitationModule,
)
from transformers.models.pp_ocrv6_small_rec.configuration_pp_ocrv6_small_rec import PPOCRV6SmallRecConfig

from dsocr.errors import ModelError
from dsocr.models.base_folder import read_characters, read_config_json, require_same_tensors, weight_files
from dsocr.models.canvas import LINE_HEIGHT, PIXELS_PER_STEP, steps_of
from dsocr.models.family import IGNORED
from dsocr.models.graph_export import write_graph

Network: TypeAlias = Any
"""One of `NETWORKS`, whose parts have no useful static types."""


class _Padding:
    """Which columns of a batch belong to its lines, at each width that images have inside the network."""

    def __init__(self, columns: Tensor, width: int, device: torch.device) -> None:
        # Asked once, before the columns are on a device that each layer would wait for.
        self._shortest = int(columns.min()) // PIXELS_PER_STEP
        self._columns = columns.to(device)
        self._width = width
        self._masks: dict[tuple[int, torch.dtype], Tensor] = {}

    def mask(self, width: int, dtype: torch.dtype) -> Tensor:
        """Return `(B, 1, 1, width)`, 1 in the columns of the lines."""
        key = (width, dtype)
        if key not in self._masks:
            reduction = self._width // width
            is_pooled = reduction == PIXELS_PER_STEP
            ends = steps_of(self._columns) if is_pooled else (self._columns + reduction - 1) // reduction
            mask = torch.arange(width, device=ends.device) < ends[:, None]
            self._masks[key] = mask[:, None, None].to(dtype)
        return self._masks[key]

    def clear(self, images: Tensor) -> Tensor:
        """Return images `(B, C, H, W)` with zeros in the padding, as a convolution sees them beyond a lone line."""
        mask = self.mask(images.shape[-1], images.dtype)
        if torch.is_grad_enabled():
            return images * mask
        first = self._shortest * (images.shape[-1] * PIXELS_PER_STEP // self._width)
        images[..., first:].mul_(mask[..., first:])
        return images


_padding: ContextVar[_Padding | None] = ContextVar("padding", default=None)
"""The padding of the batch that this thread computes, for the layers to which the native class passes no mask.

None where all columns belong to the lines, as in a graph.
"""


def _clear(images: Tensor) -> Tensor:
    padding = _padding.get()
    return images if padding is None else padding.clear(images)


def _clear_input(module: nn.Module, inputs: tuple[Tensor]) -> Tensor:
    return _clear(inputs[0])


def _clear_output(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    return _clear(output)


class _LinePool(nn.Module):
    """The mean of an image `(B, C, H, W)` over its line, without the padding."""

    def forward(self, images: Tensor) -> Tensor:
        """Return the means `(B, C, 1, 1)`."""
        padding = _padding.get()
        if padding is None:
            return images.mean((2, 3), keepdim=True)
        mask = padding.mask(images.shape[-1], torch.float32)
        means = (images.mean(2, keepdim=True).float() * mask).sum(3, keepdim=True) / mask.sum(3, keepdim=True)
        return means.to(images.dtype)


def _goes_alone(batch: Tensor) -> bool:
    """Whether the lines of a batch must go one by one to be read as each is read alone.

    On a CPU, linear layers and convolutions of single pixels choose their order of additions by the whole batch, and
    bf16 shows it.
    """
    return batch.dtype == torch.bfloat16 and batch.device.type == "cpu" and not torch.is_grad_enabled()


class _LineConv2d(nn.Conv2d):
    """A convolution of the means of lines `(B, C, 1, 1)`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the convolution `(B, C, 1, 1)`."""
        if not _goes_alone(input):
            return super().forward(input)
        return torch.cat([self._conv_forward(line, self.weight, self.bias) for line in input[:, None].unbind()])


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **options: Any
) -> tuple[Tensor, None]:
    """Attend to the steps of the line; the native class passes no mask."""
    padding = _padding.get()
    mask = None if padding is None else padding.mask(key.shape[2], torch.bool)
    attended: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, mask, **options)
    return attended


AttentionInterface.register("dsocr_line", _attend)


class _ReadsLines:
    """A network called with images `(B, 3, H, W)` that answers with logits instead of probabilities.

    A line in a batch gives the same result as alone: padding has no part in averages, in attention, or in
    convolutions at the end of a line.
    """

    native: ClassVar[Any]
    """The class of transformers."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        network: Network = self
        network.config._attn_implementation = "dsocr_line"
        _keep_padding_out(network)

    def forward(self, pixels: Tensor, columns: Tensor) -> Tensor:
        """Return logits `(B, T, classes)`; see `compute_logits`."""
        return compute_logits(self, pixels.contiguous(memory_format=torch.channels_last), columns)

    def classify(self, features: Tensor) -> Tensor:
        """Return logits `(B, T, classes)` of features `(B, C, 1, T)`."""
        network: Network = self
        logits: Tensor = network.head.head(network.head.encoder(features).last_hidden_state)
        return logits

    classifier = "head"
    """The name of the head's linear layer with a row for each class."""


class LineNetwork(_ReadsLines, PPOCRV6SmallRecForTextRecognition):  # type: ignore[misc, unused-ignore]
    """PP-OCRv6 small, and kraken's medium."""

    native = PPOCRV6SmallRecForTextRecognition

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.head.encoder.norm.eps = getattr(config, "line_norm_eps", config.layer_norm_eps)


class TinyLineNetwork(_ReadsLines, PPOCRV6TinyRecForTextRecognition):  # type: ignore[misc, unused-ignore]
    """PP-OCRv6 tiny."""

    native = PPOCRV6TinyRecForTextRecognition
    classifier = "fc2"

    def classify(self, features: Tensor) -> Tensor:
        """Return logits `(B, T, classes)` of features `(B, C, 1, T)`."""
        head = self.head
        features = head.act_fn(head.norm1(head.conv1(_clear(features).squeeze(2))))
        features = head.act_fn(head.norm2(head.conv2(features)))
        logits: Tensor = head.fc2(head.fc1(features.transpose(1, 2)))
        return logits


class MobileLineNetwork(_ReadsLines, PPOCRV5MobileRecForTextRecognition):  # type: ignore[misc, unused-ignore]
    """PP-OCRv5 mobile."""

    native = PPOCRV5MobileRecForTextRecognition


class ServerLineNetwork(_ReadsLines, PPOCRV5ServerRecForTextRecognition):  # type: ignore[misc, unused-ignore]
    """PP-OCRv5 server."""

    native = PPOCRV5ServerRecForTextRecognition


NETWORKS: dict[str, Any] = {
    network.config_class.model_type: network
    for network in (LineNetwork, TinyLineNetwork, MobileLineNetwork, ServerLineNetwork)
}
"""The networks by the `model_type` of their checkpoints."""


def _keep_padding_out(network: Network) -> None:
    """Clear the padding before a convolution or an average would see it beyond the end of a line."""
    stems = [module for module in network.modules() if isinstance(module, (PPLCNetV4LargeStem, HGNetV2Embeddings))]
    # A stem widens images by a column for its first layers.
    for stem in stems:
        stem.stem1.register_forward_hook(_clear_output)
        stem.stem2a.register_forward_hook(_clear_output)
        stem.stem3.register_forward_pre_hook(_clear_input)
    widened = {layer for stem in stems for layer in (stem.stem2a, stem.stem2b)}
    is_v6 = isinstance(network, LineNetwork | TinyLineNetwork)
    for module in network.modules():
        if isinstance(module, PPLCNetV4SmallStem):
            module.conv2.register_forward_pre_hook(_clear_input)
        elif isinstance(module, PPLCNetV4DepthwiseSeparableConvLayer):
            module.token_conv.register_forward_pre_hook(_clear_input)
        elif isinstance(module, (PPLCNetV4SqueezeExcitationModule, PPLCNetV3SqueezeExcitationModule)):
            module.avg_pool = _LinePool()
            for layer in module.convolutions:
                if isinstance(layer, nn.Conv2d):
                    layer.__class__ = _LineConv2d
        elif not is_v6 and module not in widened and _sees_beyond(getattr(module, "convolution", None)):
            module.register_forward_pre_hook(_clear_input)
    if isinstance(network, LineNetwork):
        network.head.encoder.conv_block[2].register_forward_pre_hook(_clear_input)


def _sees_beyond(convolution: object) -> bool:
    """Whether the last column of a line depends on columns behind the line; lines end at multiples of the stride."""
    return isinstance(convolution, nn.Conv2d) and convolution.kernel_size[1] // 2 >= convolution.stride[1]


def pad_batch(pixels: Tensor, columns: Tensor, lines: int, multiple: int) -> tuple[Tensor, Tensor]:
    """Return images `(lines, 3, H, W)` and their columns `(lines,)`, with blank lines of one step for missing ones.

    The width becomes a multiple of `multiple` pixels. Lines are read as they are without the padding.
    """
    missing = lines - len(pixels)
    padded = functional.pad(pixels, (0, -pixels.shape[-1] % multiple, 0, 0, 0, 0, 0, missing))
    return padded, functional.pad(columns, (0, missing), value=PIXELS_PER_STEP)


def compute_logits(network: Network, pixels: Tensor, columns: Tensor) -> Tensor:
    """Return logits `(B, T, classes)` for images `(B, 3, H, W)` of lines in `columns` `(B,)`, the rest padding.

    Logits after the steps of a line mean nothing.
    """
    with _padded(columns, pixels):
        features = _features(network, pixels)
    parts = [(features, columns)]
    if _goes_alone(pixels):
        parts = list(zip(features[:, None].unbind(), columns[:, None].unbind(), strict=True))
    logits = []
    for part, widths in parts:
        with _padded(widths, pixels):
            logits.append(network.classify(part))
    return torch.cat(logits)


def _features(network: Network, pixels: Tensor) -> Tensor:
    rows = network.model.backbone(pixels).feature_maps[-1]
    return functional.avg_pool2d(rows, (rows.shape[2], 2))  # the native classes expect a height of 48


@contextmanager
def _padded(columns: Tensor, pixels: Tensor) -> Iterator[None]:
    """Give layers the columns of lines `(B,)` in images of this width; the rest is padding."""
    token = _padding.set(_Padding(columns, pixels.shape[-1], pixels.device))
    try:
        yield
    finally:
        _padding.reset(token)


def compute_losses(logits: Tensor, steps: Tensor, labels: Tensor) -> Tensor:
    """Return the CTC loss of each line `(B,)`: 0 for lines without labels and where a text cannot fit its steps.

    Steps and labels may stay on the CPU, where torch needs the lengths, so that nothing waits for a GPU.
    """
    lengths = (labels != IGNORED).sum(1)
    losses: Tensor = functional.ctc_loss(
        functional.log_softmax(logits.float(), dim=-1).transpose(0, 1),
        labels[labels != IGNORED].to(logits.device),
        steps,
        lengths,
        reduction="none",
        zero_infinity=True,
    )
    return losses * (lengths > 0).to(logits.device)


def replace_head(network: Network, characters: Sequence[str], new_characters: Sequence[str]) -> None:
    """Replace the head, which knows `characters`, by one for the `wanted` characters, in place.

    Known characters keep their rows; a new one starts from its letter without marks (`e` for `ѐ` or `ê`) if that is
    known, otherwise from the mean of all rows, and a little less likely than its model.
    """
    old: nn.Linear = getattr(network.head, network.classifier)
    rows = {character: index for index, character in enumerate(characters, start=1)}
    new = nn.Linear(old.in_features, len(new_characters) + 1).to(old.weight)
    with torch.no_grad():
        new.weight[0], new.bias[0] = old.weight[0], old.bias[0]
        for index, character in enumerate(new_characters, start=1):
            row = rows.get(character)
            if row is not None:
                new.weight[index], new.bias[index] = old.weight[row], old.bias[row]
                continue
            row = rows.get(unicodedata.normalize("NFD", character)[0])
            start = (old.weight[1:].mean(0), old.bias[1:].mean()) if row is None else (old.weight[row], old.bias[row])
            new.weight[index], new.bias[index] = start[0], start[1] - 1
    setattr(network.head, network.classifier, new)
    network.config.head_out_channels = len(new_characters) + 1


def fold_normalization(network: Network) -> None:
    """Fold every batch normalisation into its convolution, and add up branches of convolutions, in place."""
    for module in network.modules():
        normalization = getattr(module, "normalization", None)
        if isinstance(normalization, nn.BatchNorm2d):
            convolution = cast(nn.Conv2d, module.convolution)
            # The fused bias takes after that of the convolution, which has none, and would not be trained.
            fused = torch.nn.utils.fuse_conv_bn_eval(convolution.eval(), normalization.eval()).requires_grad_(True)
            module.convolution = fused
            module.normalization = nn.Identity()
    if isinstance(network, TinyLineNetwork):
        for number in (1, 2):
            convolution, normalization = (getattr(network.head, f"{kind}{number}") for kind in ("conv", "norm"))
            fused = torch.nn.utils.fuse_conv_bn_eval(convolution.eval(), normalization.eval()).requires_grad_(True)
            setattr(network.head, f"conv{number}", fused)
            setattr(network.head, f"norm{number}", nn.Identity())
    layers = [module for module in network.modules() if isinstance(module, PPLCNetV3LearnableRepLayer)]
    for layer in layers:
        _add_up_branches(layer)
    if layers:
        network.config.backbone_config.conv_symmetric_num = 1


@torch.no_grad()
def _add_up_branches(layer: Any) -> None:
    """Keep one branch of a layer, which computes the sum of all; their normalisations are folded already."""
    first, *others = layer.conv_symmetric
    kept: nn.Conv2d = first.convolution
    weight, bias, middle = kept.weight, cast(Tensor, kept.bias), kept.kernel_size[0] // 2
    for branch in others:
        weight += branch.convolution.weight
        bias += branch.convolution.bias
    if layer.conv_small_symmetric is not None:
        weight[:, :, middle, middle] += layer.conv_small_symmetric.convolution.weight[:, :, 0, 0]
        bias += layer.conv_small_symmetric.convolution.bias
    if (identity := layer.identity) is not None:
        scale = identity.weight / (identity.running_var + identity.eps).sqrt()
        channels = torch.arange(len(scale))
        weight[channels, channels % weight.shape[1], middle, middle] += scale
        bias += identity.bias - identity.running_mean * scale
    layer.conv_symmetric = nn.ModuleList([first])
    layer.conv_small_symmetric = layer.identity = None


_FOLDED = {".convolution.bias": ".normalization.", "head.conv1.bias": "head.norm1.", "head.conv2.bias": "head.norm2."}
"""How names of biases end that come from normalisations, and what these are called in a checkpoint."""


def network_files(
    network: Network, characters: Sequence[str], dtype: torch.dtype | None = None
) -> list[tuple[str, bytes]]:
    """Return the names and contents of the files of a checkpoint folder."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in network.state_dict().items():
        value = tensor.detach().cpu().to(dtype or tensor.dtype).contiguous()
        end = next(filter(name.endswith, _FOLDED), None)
        if end is not None:
            prefix = name.removesuffix(end) + _FOLDED[end]
            ones = torch.ones_like(value)
            # A variance of exactly 1 would be divided by the square root of 1 + epsilon.
            variance = torch.full_like(value, 1 - nn.BatchNorm2d(1).eps, dtype=torch.float32)
            tensors |= {prefix + "weight": ones, prefix + "bias": value}
            tensors |= {prefix + "running_mean": torch.zeros_like(value), prefix + "running_var": variance}
        else:
            tensors[name] = value
    tensors |= _empty_branches(network, tensors, dtype)
    config = network.config.to_dict() | {"architectures": [network.native.__name__]}
    vocabulary = json.dumps(list(characters), ensure_ascii=False)
    return [
        ("config.json", (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()),
        ("vocab.json", (vocabulary + "\n").encode()),
        ("model.safetensors", save(tensors, metadata={"format": "pt"})),
    ]


def _empty_branches(network: Network, tensors: Mapping[str, Tensor], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """Return tensors for the branches of the native class that were added up: they add nothing to the first."""
    if not any(isinstance(module, PPLCNetV3LearnableRepLayer) for module in network.modules()):
        return {}
    with torch.device("meta"):
        drafts = network.native(network.config).state_dict()
    return {
        name: (torch.ones if name.endswith("running_var") else torch.zeros)(draft.shape, dtype=dtype)
        for name, draft in drafts.items()
        if name not in tensors and not name.endswith("num_batches_tracked")
    }


class _LineGraph(nn.Module):
    """A network as a graph sees it: one line `(1, 3, H, W)`, without padding, becomes its logits `(1, T, classes)`."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        return self.network.classify(_features(self.network, pixels))  # type: ignore[no-any-return]


def write_line_graph(folder: Path) -> None:
    """Write the graph of a checkpoint into its folder; see `write_graph`."""
    network, _ = load_network(folder)
    height = getattr(network.config, "line_height", LINE_HEIGHT)
    write_graph(_LineGraph(network), torch.rand(1, 3, height, 64 * PIXELS_PER_STEP) * 2 - 1, {3: 1}, folder)


def load_network(folder: Path) -> tuple[Network, list[str]]:
    """Load a checkpoint folder as float32, normalisations folded; return the network and its characters.

    Raises ModelError if a file is absent or does not belong to this network.
    """
    raw, files = read_config_json(folder), weight_files(folder)
    kind = NETWORKS[raw.get("model_type", PPOCRV6SmallRecConfig.model_type)]
    config = kind.config_class.from_dict(raw)
    characters = list(read_characters(folder))
    if config.head_out_channels != len(characters) + 1:
        message = f"Head has {config.head_out_channels} classes for a blank and {len(characters)} characters"
        raise ModelError(message, code="checkpoint-mismatch", where=folder)
    network = kind(config)
    tensors = {name: tensor.float() for file in files for name, tensor in load_file(file).items()}
    counts = {name: count for name, count in network.state_dict().items() if name.endswith("num_batches_tracked")}
    require_same_tensors(counts | tensors, network.state_dict(), code="checkpoint-mismatch", where=folder)
    network.load_state_dict(counts | tensors)
    fold_normalization(network)
    return network.eval(), characters
