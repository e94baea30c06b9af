"""PP-OCRv6's text detector: conversion from ONNX, checkpoint, and what transformers makes of it."""

import shutil
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from PIL import Image, ImageDraw
from torch import nn
from transformers import PPOCRV6SmallDetForObjectDetection

from convert_detector import convert_detector, create_detector
from dsocr.layout.detector_network import detect_with, load_detector
from dsocr.layout.text_detector import detect_text
from tests.models.test_ctc_network import onnx_model, tensor_proto
from tests.raising import raises_code


def detector_model(network: Any) -> onnx.ModelProto:
    """The network in the layout of PP-OCRv6_det_small.onnx: one bias after each folded convolution."""
    names = {module: name for name, module in network.named_modules()}
    norms = {
        parent.convolution: getattr(parent, "normalization", getattr(parent, "norm", None))
        for parent in network.modules()
        if hasattr(parent, "convolution") and isinstance(parent.convolution, nn.Conv2d | nn.ConvTranspose2d)
    }
    order: list[Any] = []
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            module.register_forward_hook(lambda layer, inputs, output: order.append(layer))
    with torch.inference_mode():
        network(torch.zeros(1, 3, 32, 32))

    def coarse_first(layer: nn.Module) -> tuple[int, int]:
        """The file has the pyramid's coarse features before the fine ones."""
        parts = names[layer].split(".")
        if parts[1] == "neck":
            return ["insert_conv", "input_conv"].index(parts[2]) + 1, -int(parts[3])
        return (3 if parts[0] == "head" else 0), 0

    tensors = []
    for number, layer in enumerate(sorted(order, key=coarse_first)):
        norm, bias, weight = norms.get(layer), layer.bias, layer.weight
        if norm is not None:
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            across = (1, -1, 1, 1) if isinstance(layer, nn.ConvTranspose2d) else (-1, 1, 1, 1)
            weight = weight * scale.reshape(across)
            bias = norm.bias + ((0 if bias is None else bias) - norm.running_mean) * scale
        tensors.append(tensor_proto(f"conv2d_{number}.w_0", weight))
        if bias is not None:
            tensors.append(tensor_proto(f"p2o.pd_op.reshape.{number}.0", bias[None, :, None, None]))
    return onnx_model(tensors)


@pytest.fixture(scope="module")
def network() -> Any:
    torch.manual_seed(4)
    network = create_detector()
    modules: list[Any] = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for module in modules:
        nn.init.uniform_(module.running_mean, -0.1, 0.1)
        nn.init.uniform_(module.running_var, 0.8, 1.2)
        nn.init.uniform_(module.weight, 0.8, 1.2)
    return network


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory, network: Any) -> Path:
    """The folder of a checkpoint made from the network's ONNX file."""
    folder = tmp_path_factory.mktemp("converted")
    onnx.save(detector_model(network), folder / "det.onnx")
    convert_detector(folder / "det.onnx", folder / "checkpoint", torch.float32)
    return folder / "checkpoint"


def test_converted_detector_is_what_transformers_loads(converted: Path, network: Any) -> None:
    page = Image.new("RGB", (100, 140), "white")
    ImageDraw.Draw(page).text((10, 60), "one line of text", fill=(90, 0, 0))
    expected = detect_text(page, detect_with(network), 320)
    assert expected.shape == (320, 224)
    native = PPOCRV6SmallDetForObjectDetection.from_pretrained(converted).eval()
    for loaded in (load_detector(converted), native):
        torch.testing.assert_close(*map(torch.tensor, (detect_text(page, detect_with(loaded), 320), expected)))


def test_another_onnx_file(tmp_path: Path) -> None:
    onnx.save(onnx_model([tensor_proto("w_0", torch.zeros(2, 3, 3, 3))]), tmp_path / "other.onnx")
    with raises_code("onnx-unreadable"):
        convert_detector(tmp_path / "other.onnx", tmp_path / "converted")


def test_a_detector_of_other_sizes_is_an_error(tmp_path: Path, converted: Path) -> None:
    shutil.copytree(converted, tmp_path, dirs_exist_ok=True)
    config = tmp_path / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace('"reduction": 4', '"reduction": 2'), encoding="utf-8")
    with raises_code("checkpoint-mismatch"):
        load_detector(tmp_path)


@pytest.mark.parametrize("size", [(960, 960), (4000, 40)])
def test_a_page_of_one_grey_has_no_text(size: tuple[int, int]) -> None:
    assert detect_text(Image.new("L", size, 200), side=480).max() < 0.5
