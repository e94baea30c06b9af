"""What a network holds for the backward pass, estimated layer by layer from sizes; no tensor is made.

Compared, on a CPU, with torch's own count of what a pass allocates: nano with each scope in float32 and bfloat16, with
and without checkpointing, with eager attention, with DoRA, and small networks of the shape of DeepSeek-OCR, with tiles
too, and of DeepSeek-OCR-2. What is held came out between 10 % too low and 2 % too high, the peak between 4 % too low
and 11 % too high, and without checkpointing mostly within 2 %. With checkpointing that was before frozen vision towers
were left out of the backward pass, and was not compared again. On a graphics card nothing has been measured: what its
fused kernels keep is taken from their signatures.

Letters: `n` tokens of the batch, `D` width, `F` width inside a feed-forward block, `w` bytes of a number of the base.
A layer whose input has a gradient keeps, as its own code and PEFT's have it, in bytes:

    norms               8 n D: two inputs in float32 (on a CPU, the vision towers' in `w`)
    attention           4 w n D: queries, keys, values and output, and 2 w D for each token before the adapter begins
      eager             and, for each pair of tokens and head, 4 for float32 and `w` for a copy in half precision
      SAM               and, for each pair in a window or in the whole image, the bias or the weights
    feed-forward        3 w n F with a gate, 2 w n F with quick GELU, w n F with GELU
      routed experts    w n (3 F + D) for each expert that a token is sent to
    adapter             w n (inputs + rank) for each linear layer that has one; inputs that need no conversion once
      dora              and w (2 n outputs + inputs^2)
      on experts        and w times their weights, once more

With gradient checkpointing a layer keeps its input, w n D, and all this only while its gradients are computed.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from peft import PeftModel

_SAM, _ENCODER, _DECODER = "vision_tower.sam_encoder", "vision_tower.vision_encoder", "language_model"
_ADAPTER = re.compile(
    rf"model\.(?P<tower>{_SAM}|{_ENCODER}|{_DECODER})\.(?:encoder\.)?layers\.(?P<layer>\d+)\.(?P<name>.+?)"
    r"\.lora_(?P<side>[AB])\."
)
_SHARED = ("k_proj", "v_proj", "up_proj", "o_proj", "out_proj")
"""Linear layers whose input another layer keeps anyway, if it need not be converted for each."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What is in memory at once: samples of so many tokens each, with the padding, and the sides of one's views.

    `learnt` are the tokens of a sample that logits are made for; all where it is not said. `before` are those that the
    base alone looks at, where an adapter begins behind the image.
    """

    samples: int
    tokens: int
    views: tuple[int, ...]
    learnt: int | None = None
    before: int = 0

    @property
    def behind(self) -> int:
        """The tokens of a sample that the adapter acts on."""
        return self.tokens - self.before


@dataclass(frozen=True, slots=True)
class Computing:
    """How a network is computed: number format of the base, kind of attention, checkpointing, kind of device."""

    dtype: torch.dtype = torch.float32
    attention: str = "sdpa"
    checkpointing: bool = False
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes that are held when the forward pass ends, and the most at any moment, `at_the_end` then added."""

    held: int
    peak: int


@dataclass(frozen=True, slots=True)
class _Layer:
    """Bytes of a layer: its input, what it keeps, and what passes beyond that in the forward and the backward pass."""

    input: int
    kept: int
    forward: int = 0
    backward: int = 0
    adapted: bool = False
    checkpointed: bool = True


@dataclass(frozen=True, slots=True)
class _Linear:
    """A linear layer with an adapter."""

    name: str
    inputs: int
    outputs: int
    rank: int


def estimate_activations(model: PeftModel, batch: Batch, computing: Computing, at_the_end: int = 0) -> Activations:
    """What training `model` holds beside its weights; `at_the_end` are bytes that come after the last layer."""
    layers = list(_Sizes(model, batch, computing).layers())
    adapted = [number for number, layer in enumerate(layers) if layer.adapted]
    # What comes before the first adapter keeps nothing.
    first = min(adapted, default=len(layers))
    held = peak = sum(batch.samples * 3 * side * side * 4 for side in batch.views)
    stays = [0] * len(layers)
    for number, layer in enumerate(layers):
        peak = max(peak, held + layer.forward)
        if number >= first:
            stays[number] = layer.input if computing.checkpointing and layer.checkpointed else layer.kept
            held += stays[number]
    most = held
    peak = max(peak, held + at_the_end)
    for number in reversed(range(first, len(layers))):
        held -= stays[number]
        peak = max(peak, held + layers[number].kept + layers[number].backward)
    return Activations(most, peak)


class _Sizes:
    """The arithmetic of one network, batch and way of computing."""

    def __init__(self, model: PeftModel, batch: Batch, computing: Computing) -> None:
        self._config: Any = model.config
        self._batch = batch
        self._eager = computing.attention == "eager"
        self._number = computing.dtype.itemsize
        on_cpu = computing.device == "cpu"
        # Under autocast an accelerator computes the norms of the vision towers in float32, a CPU does not.
        self._norm = self._number if on_cpu else 4
        # A CPU has no fused kernel for attention with a bias that is learnt through, and computes it in float32.
        self._biased = 4 if on_cpu else self._number
        # Step by step, weights are float32, and copied where values are not.
        self._stepwise = 4 + (self._number if self._number < 4 else 0)
        names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        self._dora = any(".lora_magnitude_vector." in name for name in names)
        self._projector = any("multi_modal_projector.lora_" in name for name in names)
        self._linears = _linears(model)

    def layers(self) -> Iterator[_Layer]:
        """In the order of the forward pass: whole images, tiles, text."""
        sam, encoder = self._config.vision_config.sam_config, self._config.vision_config.encoder_config
        for side in sorted(set(self._batch.views), reverse=True):
            views = self._batch.samples * self._batch.views.count(side)
            patches = side // sam.patch_size
            for number in range(sam.num_hidden_layers):
                yield self._sam_layer(number, views, patches)
            yield self._neck(views, patches)
            for number in range(encoder.num_hidden_layers):
                yield self._encoder_layer(number, views, (patches // 4) ** 2)
        for number in range(self._config.text_config.num_hidden_layers):
            yield self._decoder_layer(number)
        yield _Layer(0, self._batch.samples * self._batch.behind * self._config.text_config.hidden_size * 4)

    def _sam_layer(self, number: int, views: int, patches: int) -> _Layer:
        config = self._config.vision_config.sam_config
        everywhere = number in config.global_attn_indexes
        window = patches if everywhere else config.window_size
        padded = views * (-(-patches // window) * window) ** 2
        pairs = padded * window**2 * config.num_attention_heads
        tokens, width = views * patches**2, config.hidden_size
        adapters = self._adapters(_SAM, number, tokens, padded)
        kept = 2 * tokens * width * self._norm + tokens * config.mlp_dim * self._number + adapters
        if self._eager:
            kept += 3 * padded * width * self._number + pairs * self._stepwise
            forward, backward = pairs * (2 * self._number + 8), pairs * 8
        else:
            # Values are a third of what the layer before them made; where nothing is converted, all of it stays.
            copies = 5 if self._biased == self._number == 4 else 3
            kept += copies * padded * width * self._biased + pairs * self._biased
            forward, backward = pairs * 2 * self._number, pairs * 2 * self._biased
        passing = 8 * tokens * width * self._number
        return _Layer(tokens * width * self._number, kept, forward + passing, backward + passing, adapters > 0)

    def _neck(self, views: int, patches: int) -> _Layer:
        """The convolutions after SAM; they keep their inputs though they are frozen, and are not checkpointed."""
        config = self._config.vision_config.sam_config
        numbers = patches**2 * (config.hidden_size + 4 * config.output_channels)
        numbers += patches**2 // 4 * config.downsample_channels[0]
        kept = views * numbers * self._number
        return _Layer(kept, kept, checkpointed=False)

    def _encoder_layer(self, number: int, views: int, tokens: int) -> _Layer:
        config = self._config.vision_config.encoder_config
        if hasattr(config, "num_key_value_heads"):  # DeepSeek-OCR-2's: a query beside each token
            return self._transformer_layer(config, _ENCODER, number, views, 2 * tokens, 3 * config.intermediate_size)
        return self._transformer_layer(config, _ENCODER, number, views, tokens + 1, 2 * config.intermediate_size)

    def _decoder_layer(self, number: int) -> _Layer:
        config = self._config.text_config
        inside = 3 * config.intermediate_size
        if config.mlp_layer_types[number] == "sparse":
            expert = config.moe_intermediate_size
            routed = config.num_experts_per_tok * (3 * expert + config.hidden_size)
            inside = 3 * config.n_shared_experts * expert + routed
        batch, last = self._batch, number == config.num_hidden_layers - 1
        block = batch.learnt if last else None
        layer = self._transformer_layer(
            config, _DECODER, number, batch.samples, batch.behind, inside, batch.before, block
        )
        return replace(layer, adapted=True) if number == 0 and self._projector else layer

    def _transformer_layer(
        self,
        config: Any,
        tower: str,
        number: int,
        samples: int,
        length: int,
        inside: int,
        before: int = 0,
        block: int | None = None,
    ) -> _Layer:
        """A layer whose feed-forward block keeps `inside` numbers a token; attention sees so many `before`, too.

        `block` are the tokens of a sample that the feed-forward block sees, where they are fewer than the layer's.
        """
        tokens, width = samples * length, config.hidden_size
        in_block = tokens if block is None else samples * block
        pairs = samples * length * (before + length) * config.num_attention_heads if self._eager else 0
        adapters = self._adapters(tower, number, tokens, block=in_block)
        norm = 4 if hasattr(config, "rms_norm_eps") else self._norm
        kept = 2 * tokens * width * norm + (4 * tokens * width + in_block * inside) * self._number + adapters
        kept += pairs * self._stepwise
        kept += 2 * samples * before * width * self._number  # keys and values
        passing = in_block * inside * self._number // 2 + pairs * self._stepwise
        return _Layer(tokens * width * self._number, kept, passing, passing, adapters > 0)

    def _adapters(
        self, tower: str, number: int, tokens: int, padded: int | None = None, block: int | None = None
    ) -> int:
        """What the adapters of a layer keep.

        Its attention may see more tokens, `padded` to whole windows, and its feed-forward `block` others.
        """
        seen = {"attn": padded or tokens, "mlp": tokens if block is None else block}
        linears = self._linears.get((tower, number), ())
        return sum(self._adapter(linear, seen.get(linear.name.partition(".")[0], tokens)) for linear in linears)

    def _adapter(self, linear: _Linear, tokens: int) -> int:
        text = self._config.text_config
        if "experts" in linear.name.split("."):  # the adapter is a change of all their weights, not of an output
            numbers: int = linear.inputs * (tokens * text.num_experts_per_tok + text.n_routed_experts * linear.outputs)
            return numbers * self._number
        shared = self._number == 4 and linear.name.rpartition(".")[2] in _SHARED
        numbers = tokens * (linear.rank + (0 if shared else linear.inputs))
        if self._dora:
            numbers += 2 * tokens * linear.outputs + linear.inputs**2
        return numbers * self._number


def _linears(model: PeftModel) -> Mapping[tuple[str, int], Sequence[_Linear]]:
    """The adapter's layers by tower and number, from its parameters: A is (rank, inputs), B is (outputs, rank)."""
    shapes: dict[tuple[str, int, str], dict[str, tuple[int, ...]]] = defaultdict(dict)
    for name, parameter in model.named_parameters():
        if found := _ADAPTER.search(name):
            shapes[found["tower"], int(found["layer"]), found["name"]][found["side"]] = tuple(parameter.shape)
    linears: dict[tuple[str, int], list[_Linear]] = defaultdict(list)
    for (tower, layer, name), sides in shapes.items():
        rank, inputs = sides["A"]
        linears[tower, layer].append(_Linear(name, inputs, sides["B"][0], rank))
    return linears
