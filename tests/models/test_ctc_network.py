"""The line recognisers of PP-OCR: conversion, checkpoint, line images, head, loss and decoding."""

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
from transformers import AutoModelForTextRecognition
from transformers.models.pp_lcnet_v3.modeling_pp_lcnet_v3 import PPLCNetV3LearnableAffineBlock
from transformers.models.pp_ocrv5_mobile_rec.configuration_pp_ocrv5_mobile_rec import PPOCRV5MobileRecConfig
from transformers.models.pp_ocrv5_server_rec.configuration_pp_ocrv5_server_rec import PPOCRV5ServerRecConfig
from transformers.models.pp_ocrv6_small_rec.configuration_pp_ocrv6_small_rec import PPOCRV6SmallRecConfig

from convert_recogniser import convert_recogniser, create_network, save_network
from dsocr.models import ctc_network
from dsocr.models.canvas import LineCanvas, steps_of
from dsocr.models.ctc import collate_lines, count_steps
from dsocr.models.ctc_network import compute_logits, load_network
from tests.raising import raises_code

CHARACTERS = ["a", "b", "e", " "]
CANVAS = LineCanvas()


def small_config() -> PPOCRV6SmallRecConfig:
    blocks = [[[3, 8, 8, 1, True]], [[3, 8, 8, 1, False]], [[3, 8, 12, [2, 1], False]], [[3, 12, 16, [2, 1], False]]]
    backbone = {"model_type": "pp_lcnet_v4", "block_configs": blocks, "stem_channels": [3, 4, 8]}
    return PPOCRV6SmallRecConfig(backbone_config=backbone, hidden_size=16, num_attention_heads=2)


def small_mobile_config() -> PPOCRV5MobileRecConfig:
    """With the strides of PP-OCRv5 mobile: all rows become one, and eight columns a step."""
    stages = [
        [[3, 16, 16, 1, False]],
        [[3, 16, 32, 1, False], [3, 32, 32, 1, False]],
        [[3, 32, 32, [2, 1], False]],
        [[3, 32, 32, [1, 2], False], [5, 32, 32, 1, False]],
        [[5, 32, 64, [2, 1], True], [5, 64, 256, [2, 1], False]],
    ]
    backbone = {"model_type": "pp_lcnet_v3", "block_configs": stages, "scale": 0.5, "divisor": 8}
    backbone |= {"out_features": ["stage2", "stage3", "stage4", "stage5"], "conv_symmetric_num": 3}
    return PPOCRV5MobileRecConfig(backbone_config=backbone, hidden_size=32, num_attention_heads=2)


def small_server_config() -> PPOCRV5ServerRecConfig:
    """With the strides of PP-OCRv5 server."""
    backbone = {
        "model_type": "hgnet_v2",
        "stem_channels": [3, 8, 8],
        "stem_strides": [2, 1, 1, 1, 1],
        "stage_in_channels": [8, 16, 16, 24],
        "stage_mid_channels": [8, 8, 8, 8],
        "stage_out_channels": [16, 16, 24, 128],
        "stage_num_blocks": [1, 1, 2, 1],
        "stage_numb_of_layers": [2, 2, 2, 2],
        "stage_downsample": [True] * 4,
        "stage_downsample_strides": [[2, 1], [1, 2], [2, 1], [2, 1]],
        "out_features": ["stage1", "stage2", "stage3", "stage4"],
    }
    return PPOCRV5ServerRecConfig(backbone_config=backbone, hidden_size=32, num_attention_heads=2)


CONFIGS = {"v6 small": small_config, "v5 mobile": small_mobile_config, "v5 server": small_server_config}
V5 = ["v5 mobile", "v5 server"]


def small_network(characters: list[str] = CHARACTERS, kind: str = "v6 small") -> Any:
    torch.manual_seed(5)
    network = create_network(characters, CONFIGS[kind]())
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    return network.eval()


def write_ctc(folder: Path, characters: Sequence[str] = CHARACTERS, kind: str = "v6 small") -> Path:
    """Write a small line recogniser with random weights."""
    save_network(small_network([*characters], kind), [*characters], folder)
    return folder


def init_evenly(network: Any) -> None:
    """Set random weights that neither damp nor swell what passes them."""
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()
        elif isinstance(module, PPLCNetV3LearnableAffineBlock):
            nn.init.ones_(module.scale)
            nn.init.zeros_(module.bias)


def write_published(folder: Path, kind: str, characters: list[str] = CHARACTERS) -> Any:
    """Write a checkpoint of transformers' own class, laid out as PaddlePaddle publishes it, and return its network."""
    torch.manual_seed(6)
    config = CONFIGS[kind]()
    config.head_out_channels = len(characters) + 1
    network = AutoModelForTextRecognition.from_config(config).eval()
    init_evenly(network)
    modules: list[Any] = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for module in modules:
        nn.init.uniform_(module.weight, 0.7, 1)
        nn.init.normal_(module.running_mean, std=0.5)
        nn.init.uniform_(module.running_var, 0.7, 2)
    network.head.head.weight.data *= 0.3  # probabilities near 0 would be rounded to it
    network.save_pretrained(folder)
    settings = {"character_list": ["blank", *characters], "size": {"height": 48, "width": 320}}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return network


def pixels(width: int = 80) -> tuple[torch.Tensor, torch.Tensor]:
    noise = np.random.default_rng(2).integers(0, 255, (30, width, 3), dtype=np.uint8)
    return collate_lines([CANVAS.draw(Image.fromarray(noise))], CANVAS)


def test_half_precision_checkpoint(tmp_path: Path) -> None:
    network = small_network()
    save_network(network, CHARACTERS, tmp_path, torch.float16)
    loaded, _ = load_network(tmp_path)
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    with torch.inference_mode():
        difference = compute_logits(loaded, *pixels()).softmax(-1) - compute_logits(network, *pixels()).softmax(-1)
    assert difference.abs().max() < 0.01


@pytest.mark.parametrize("kind", CONFIGS)
def test_published_checkpoint_computes_what_its_class_does(kind: str, tmp_path: Path) -> None:
    native = write_published(tmp_path / "published", kind)
    loaded, characters = load_network(tmp_path / "published")
    assert characters == CHARACTERS
    save_network(loaded, characters, tmp_path / "saved")
    again = AutoModelForTextRecognition.from_pretrained(tmp_path / "saved").eval()
    assert type(again) is type(native)
    labels, lengths = torch.tensor([[1, 2, 2, 3]]), torch.tensor([4])
    with torch.inference_mode():
        images, columns = pixels(96)
        steps = steps_of(columns)
        expected = native(images).last_hidden_state
        assert (expected[0, 0].log() - expected[0, -1].log()).abs().max() > 0.02, "the image must matter"
        for training in (False, True):
            assert all(parameter.requires_grad for parameter in loaded.parameters())
            logits = compute_logits(loaded.train(training), images, columns)
            torch.testing.assert_close(logits.softmax(-1), expected, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(again(images).last_hidden_state, expected, atol=1e-5, rtol=1e-4)
        theirs = functional.ctc_loss(expected.log().transpose(0, 1), labels, steps, lengths, reduction="none")
        losses = ctc_network.compute_losses(logits, steps, labels)
        torch.testing.assert_close(losses, theirs, atol=1e-4, rtol=1e-3)


def test_saved_branches_are_one_and_load_to_the_same_bits(tmp_path: Path) -> None:
    network = small_network(kind="v5 mobile")
    save_network(network, CHARACTERS, tmp_path)
    loaded, _ = load_network(tmp_path)
    saved, state = loaded.state_dict(), network.state_dict()
    assert saved.keys() == state.keys()
    assert all(torch.equal(saved[name], tensor) for name, tensor in state.items())
    written = load_file(tmp_path / "model.safetensors")
    assert any("conv_symmetric.0" in name for name in written)
    assert not any("conv_symmetric.1" in name for name in written)


def test_incomplete_checkpoints_and_weights_of_another_network(tmp_path: Path) -> None:
    save_network(small_network(["a"]), ["a"], tmp_path / "other")
    save_network(small_network(), CHARACTERS, tmp_path / "one")
    (tmp_path / "other" / "model.safetensors").replace(tmp_path / "one" / "model.safetensors")
    with raises_code("checkpoint-mismatch"):
        load_network(tmp_path / "one")
    for name in ("vocab.json", "model.safetensors", "config.json"):
        (tmp_path / "one" / name).unlink()
        with raises_code("base-incomplete"):
            load_network(tmp_path / "one")


def tensor_proto(name: str, tensor: torch.Tensor) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(tensor.detach().numpy(), name)


def onnx_model(tensors: Sequence[onnx.TensorProto], **metadata: str) -> onnx.ModelProto:
    """A model of these initializers without the graph's nodes."""
    model = onnx.helper.make_model(onnx.helper.make_graph([], "graph", [], [], tensors))
    onnx.helper.set_model_props(model, metadata)
    return model


def recogniser_model(network: Any, characters: list[str]) -> onnx.ModelProto:
    """The network in the layout of PP-OCRv6_rec_small.onnx."""

    def layers(kind: type[nn.Module]) -> list[Any]:
        return [layer for layer in network.modules() if isinstance(layer, kind)]

    tensors = []
    convolutions = layers(nn.Conv2d)
    for index, layer in enumerate(convolutions):
        if index < len(convolutions) - 3:
            tensors.append(tensor_proto(f"conv2d_{index}.w_0", layer.weight))
            tensors.append(tensor_proto(f"p2o.pd_op.reshape.{index}.0", layer.bias[None, :, None, None]))
            continue
        weight, mean, variance = (torch.rand_like(layer.bias) + 0.5 for _ in range(3))
        scale = weight / (variance + 1e-5).sqrt()
        tensors.append(tensor_proto(f"conv2d_{index}.w_0", layer.weight / scale[:, None, None, None]))
        values = {"w_0": weight, "b_0": layer.bias + mean * scale, "w_1": mean, "w_2": variance}
        tensors += [tensor_proto(f"batch_norm2d_{index}.{key}", value) for key, value in values.items()]
    for index, layer in enumerate(layers(nn.LayerNorm)):
        tensors.append(tensor_proto(f"helper.reshape.{2 * index}", layer.weight))
        tensors.append(tensor_proto(f"helper.reshape.{2 * index + 1}", layer.bias))
    for index, layer in enumerate(layers(nn.Linear)):
        tensors.append(tensor_proto(f"linear_{index}.w_0", layer.weight.T.contiguous()))
        tensors.append(tensor_proto(f"linear_{index}.b_0", layer.bias))
    return onnx_model(tensors, character="\n".join(characters[:-1]))


def test_conversion_from_onnx(tmp_path: Path) -> None:
    torch.manual_seed(6)
    network = create_network(CHARACTERS, PPOCRV6SmallRecConfig(layer_norm_eps=1e-5)).eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.1)
    onnx.save(recogniser_model(network, CHARACTERS), tmp_path / "rec.onnx")
    convert_recogniser(tmp_path / "rec.onnx", tmp_path / "converted")
    converted, characters = load_network(tmp_path / "converted")
    assert characters == CHARACTERS
    with torch.inference_mode():
        actual, expected = compute_logits(converted, *pixels()), compute_logits(network, *pixels())
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


def test_other_files_are_not_converted(tmp_path: Path) -> None:
    foreign = onnx_model([tensor_proto("w_0", torch.zeros(2, 3, 3, 3))]).SerializeToString()
    for content in (b"\x00\xff not protobuf", foreign):
        (tmp_path / "other.onnx").write_bytes(content)
        with raises_code("onnx-unreadable"):
            convert_recogniser(tmp_path / "other.onnx", tmp_path / "converted")


def test_line_images() -> None:
    red = Image.new("RGB", (100, 24), (255, 0, 0))
    line = LineCanvas(stretch=1.5).draw(red)
    assert line.shape == (48, 300, 3)
    assert line[0, 0].tolist() == [0, 0, 255]
    batch, columns = collate_lines([line, CANVAS.draw(red.convert("L"))], CANVAS, multiple=64)
    assert batch.shape == (2, 3, 48, 320)
    assert steps_of(columns).tolist() == [38, 25]
    assert batch[0, :, 0, 0].tolist() == [-1, -1, 1]
    assert not batch[1, :, :, 200:].any()


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("training", [False, True])
def test_padding_reaches_no_line(training: bool, kind: str) -> None:
    """Compared in double precision, where rounding does not hide a leak."""
    network = small_network(kind=kind).double().train(training)
    drawn = np.random.default_rng(4)
    widths = (8, 20, 137, 300)
    lines = [CANVAS.draw(Image.fromarray(drawn.integers(0, 255, (48, w, 3), dtype=np.uint8))) for w in widths]
    with torch.set_grad_enabled(training):
        batch, columns = collate_lines(lines, CANVAS)
        together = compute_logits(network, batch.double(), columns)
        for row, count, line in zip(together, steps_of(columns).tolist(), lines, strict=True):
            pixels, _ = collate_lines([line], CANVAS, multiple=8)
            assert pixels.shape[-1] == count * 8
            alone = compute_logits(network, pixels.double(), torch.tensor([count * 8]))[0]
            torch.testing.assert_close(row[:count], alone, atol=1e-7, rtol=0)


@pytest.mark.parametrize("kind", CONFIGS)
def test_padding_has_no_part_in_gradients(kind: str) -> None:
    network, drawn = small_network(kind=kind).double().train(), np.random.default_rng(5)
    images = [Image.fromarray(drawn.integers(0, 255, (48, width, 3), dtype=np.uint8)) for width in (400, 20, 137)]
    lines = [CANVAS.draw(image) for image in images]

    def gradients(*batches: tuple[torch.Tensor, torch.Tensor]) -> list[torch.Tensor]:
        network.zero_grad()
        for batch, columns in batches:
            logits = compute_logits(network, batch.double(), columns)
            for row, count in zip(logits, steps_of(columns).tolist(), strict=True):
                row[:count, ::2].log_softmax(-1).sum().backward(retain_graph=True)
        return [weights.grad.clone() for weights in network.parameters() if weights.grad is not None]

    alone = gradients(*(collate_lines([line], CANVAS, multiple=8) for line in lines))
    together = gradients(collate_lines(lines, CANVAS))
    assert len(together) > 20
    for gradient, expected in zip(together, alone, strict=True):
        torch.testing.assert_close(gradient, expected, atol=1e-6, rtol=1e-5)


def test_loss_is_the_probability_of_all_paths() -> None:
    torch.manual_seed(1)
    logits = torch.randn(1, 4, 3)
    probabilities = logits[0].softmax(-1).tolist()
    total = 0.0
    for path in itertools.product(range(3), repeat=4):
        if [index for index, _ in itertools.groupby(path) if index] == [1, 2, 2]:
            total += math.prod(step[index] for step, index in zip(probabilities, path, strict=True))
    loss = ctc_network.compute_losses(logits, torch.tensor([4]), torch.tensor([[1, 2, 2]]))
    assert loss.item() == pytest.approx(-math.log(total), rel=1e-5)
    assert count_steps("abb") == 4
    assert ctc_network.compute_losses(logits, torch.tensor([3]), torch.tensor([[1, 2, 2]])).item() == 0


def test_replaced_head_keeps_the_rows_of_known_letters() -> None:
    network = small_network()
    with torch.inference_mode():
        before = compute_logits(network, *pixels())
        ctc_network.replace_head(network, CHARACTERS, ["e", "ê", "a", "ѣ"])
        after = compute_logits(network, *pixels())
    assert network.config.head_out_channels == 5
    torch.testing.assert_close(after[..., [0, 1, 3]], before[..., [0, 3, 1]])
    torch.testing.assert_close(after[..., 2], before[..., 3] - 1)
    torch.testing.assert_close(after[..., 4], before[..., 1:].mean(-1) - 1)
