"""Merged weights read as base and adapter do, in files that others can load."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dsocr.models.adapters import load_adapter
from dsocr.models.base_folder import INDEX, SINGLE, WEIGHTS, find_base, tensor_shapes, tensor_types, weight_files
from dsocr.models.export import export_merged, write_shards
from dsocr.models.loading import Base, load_base
from dsocr.runs import ReadingSettings, RunFolder
from tests.making_models import logits, make_run, write_first
from tests.raising import raises_code

NEAR = 1e-4


@pytest.fixture
def run(bases: dict[str, str], tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "run", bases["deepseek_ocr"])


def without_indices(tensors: dict[str, Any]) -> dict[str, Any]:
    """What an export keeps: vLLM 0.32 refuses the buffer of indices that the published DeepSeek-OCR has."""
    return {name: value for name, value in tensors.items() if not name.endswith("position_ids")}


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for file in weight_files(folder) for name, tensor in load_file(file).items()}


@pytest.mark.parametrize(
    ("kind", "scope", "variant"),
    [
        ("deepseek_ocr", "decoder+vision", "dora"),
        ("deepseek_ocr", "decoder+experts", "lora"),
        ("deepseek_ocr_2", "decoder+vision", "lora"),
        ("nano", "decoder+experts", "lora"),
    ],
)
def test_merged_weights_read_as_base_and_adapter_do(
    kind: str, scope: str, variant: str, bases: dict[str, str], tmp_path: Path
) -> None:
    run, out = make_run(tmp_path / "run", bases[kind], scope, variant=variant), tmp_path / "merged"
    folder, _ = find_base(bases[kind])
    base = load_base(bases[kind])
    alone = logits(base)
    together = logits(base, load_adapter(base.network, run.adapter))
    assert (together - alone).abs().max() > 100 * NEAR, "the adapter must do something"

    export_merged(run, out)

    merged = load_base(str(out))
    assert merged.family.name == kind
    assert (logits(merged) - together).abs().max() < NEAR
    assert tensor_shapes(out) == without_indices(tensor_shapes(folder))
    assert tensor_types(out) == without_indices(tensor_types(folder))
    assert (out / "config.json").read_bytes() == (folder / "config.json").read_bytes()


def test_only_weights_with_an_adapter_are_changed(run: RunFolder, bases: dict[str, str], tmp_path: Path) -> None:
    export_merged(run, tmp_path / "merged")
    before, after = tensors_of(Path(bases["deepseek_ocr"])), tensors_of(tmp_path / "merged")
    changed = {name for name, tensor in without_indices(before).items() if not torch.equal(tensor, after[name])}
    decoder = [f"self_attn.{letter}_proj" for letter in "qkvo"] + ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
    expected = {f"model.layers.0.{name}.weight" for name in decoder}
    for layer in (1, 2):
        expected |= {f"model.layers.{layer}.self_attn.{letter}_proj.weight" for letter in "qkvo"}
        expected |= {f"model.layers.{layer}.mlp.shared_experts.{part}_proj.weight" for part in ("gate", "up", "down")}
    assert changed == expected


def test_at_a_scale_of_0_the_weights_are_the_base_s(run: RunFolder, bases: dict[str, str], tmp_path: Path) -> None:
    export_merged(run, tmp_path / "base", scale=0)
    before, after = tensors_of(Path(bases["deepseek_ocr"])), tensors_of(tmp_path / "base")
    assert after.keys() == without_indices(before).keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())


def test_half_precision_is_kept_and_rounded_once(tmp_path: Path) -> None:
    folder = write_first(tmp_path / "base", dtype=torch.bfloat16)
    for file in weight_files(folder):
        tensors = load_file(file)
        wide = {name: tensor.float() if name.endswith("norm.weight") else tensor for name, tensor in tensors.items()}
        save_file(wide, file, metadata={"format": "pt"})
    run = make_run(tmp_path / "run", str(folder), "decoder+experts")
    export_merged(run, tmp_path / "merged")

    assert {*tensor_types(folder).values()} == {"BF16", "F32", "I64"}
    assert tensor_types(tmp_path / "merged") == without_indices(tensor_types(folder))
    before, after, adapter = tensors_of(folder), tensors_of(tmp_path / "merged"), load_file(run.adapter / WEIGHTS)
    name = "model.layers.1.self_attn.q_proj"
    up, down = (adapter[f"base_model.model.{name}.lora_{letter}.weight"] for letter in "BA")
    exact = before[f"{name}.weight"].float() + 2 * up @ down
    assert torch.equal(after[f"{name}.weight"], exact.bfloat16())
    expert = "model.layers.2.mlp.experts.3.down_proj.weight"
    assert not torch.equal(after[expert], before[expert])
    assert torch.equal(before["model.embed_tokens.weight"], after["model.embed_tokens.weight"])


def test_the_other_files_come_along_and_code_does_not(run: RunFolder, bases: dict[str, str], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bases["deepseek_ocr"], tmp_path / "base"))
    (folder / "special_tokens_map.json").write_text("{}", encoding="utf-8")
    (folder / "generation_config.json").write_text('{"eos_token_id": 1}', encoding="utf-8")
    (folder / "LICENSE").write_text("MIT", encoding="utf-8")
    (folder / "model.bin").write_bytes(b"pickle")
    run = make_run(tmp_path / "another", str(folder))
    export_merged(run, tmp_path / "merged")
    plain = {"config.json", "tokenizer.json", "tokenizer_config.json", "processor_config.json", "LICENSE"}
    plain |= {"special_tokens_map.json", "generation_config.json"}
    names = {path.name for path in (tmp_path / "merged").iterdir()}
    assert names == plain | {"model.safetensors", "README.md", "manifest.json", "reading.json", "provenance.json"}
    assert all((folder / name).read_bytes() == (tmp_path / "merged" / name).read_bytes() for name in plain)
    assert ReadingSettings.load(tmp_path / "merged") == ReadingSettings.load(run.adapter)


def test_a_merged_model_in_several_files_is_read_itself(run: RunFolder, tmp_path: Path) -> None:
    export_merged(run, tmp_path / "merged")
    weights = tmp_path / "merged" / SINGLE
    weight_map = dict.fromkeys(
        tensor_shapes(weights.parent), weights.rename(weights.with_name("part.safetensors")).name
    )
    weights.with_name(INDEX).write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    assert Base.of_adapter(weights.parent).folder == weights.parent


def test_a_merged_model_is_a_base_to_export_from(run: RunFolder, tmp_path: Path) -> None:
    once, twice = tmp_path / "empty", tmp_path / "a" / "b" / "c"
    once.mkdir()
    export_merged(run, once)
    export_merged(make_run(tmp_path / "again", str(once)), twice)
    assert ReadingSettings.load(twice).base == str(once)
    assert tensor_shapes(twice) == tensor_shapes(once)


def test_names_that_would_change_are_an_error(tmp_path: Path) -> None:
    nano, folder = load_base("nano"), tmp_path / "base"
    nano.network.save_pretrained(folder, save_original_format=False)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(nano.folder / name, folder / name)
    run = make_run(tmp_path / "run", "nano", stated_base=str(folder))
    with raises_code("export-mismatch"):
        export_merged(run, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_quantized_weights_are_rejected(bases: dict[str, str], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bases["deepseek_ocr"], tmp_path / "base"))
    file = weight_files(folder)[0]
    tensors = load_file(file)
    tensors["model.norm.weight"] = torch.ones(64, dtype=torch.int8)
    save_file(tensors, file, metadata={"format": "pt"})
    with raises_code("weights-quantized"):
        export_merged(make_run(tmp_path / "run", bases["deepseek_ocr"], stated_base=str(folder)), tmp_path / "merged")


def test_an_adapter_that_is_not_finite_is_rejected(run: RunFolder, tmp_path: Path) -> None:
    tensors = load_file(run.adapter / WEIGHTS)
    next(iter(tensors.values())).fill_(float("inf"))
    save_file(tensors, run.adapter / WEIGHTS)
    with raises_code("weights-not-finite"):
        export_merged(run, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("target", "code"),
    [
        pytest.param(lambda run, base: run.config, "output-occupied", id="a file"),
        pytest.param(lambda run, base: run.path, "output-overlaps-source", id="around the adapter"),
        pytest.param(lambda run, base: run.adapter, "output-overlaps-source", id="the run's own adapter"),
        pytest.param(lambda run, base: run.adapter / "new", "output-overlaps-source", id="inside the adapter"),
        pytest.param(lambda run, base: base, "output-occupied", id="the base"),
        pytest.param(lambda run, base: base / "new" / "newer", "output-overlaps-source", id="inside the base"),
    ],
)
def test_a_folder_with_other_files_is_not_touched(
    target: Callable[[RunFolder, Path], Path], code: str, run: RunFolder, bases: dict[str, str], tmp_path: Path
) -> None:
    base = Path(bases["deepseek_ocr"])
    before = snapshot(base.parent), snapshot(tmp_path)
    for overwrite in (False, True):
        with raises_code(code):
            export_merged(run, target(run, base), overwrite=overwrite)
    assert (snapshot(base.parent), snapshot(tmp_path)) == before


def test_weights_that_fit_are_one_file(tmp_path: Path) -> None:
    write_shards(tmp_path, [("a", torch.zeros(3)), ("b", torch.zeros(2, 2))])
    assert [path.name for path in tmp_path.iterdir()] == [SINGLE]
    assert tensor_shapes(tmp_path) == {"a": (3,), "b": (2, 2)}


def test_more_are_several_files_with_an_index(tmp_path: Path) -> None:
    wide = torch.arange(40.0).reshape(8, 5)  # 20 bytes a row
    tensors = {f"row {number}": wide[number] for number in range(8)} | {"columns": wide.T[:3]}
    write_shards(tmp_path, tensors.items(), shard_bytes=50)
    files = weight_files(tmp_path)
    assert [file.name for file in files] == [f"model-{number:05}-of-00005.safetensors" for number in range(1, 6)]
    assert {path.name for path in tmp_path.iterdir()} == {INDEX, *(file.name for file in files)}
    assert tensor_shapes(tmp_path) == {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    index = json.loads((tmp_path / INDEX).read_text(encoding="utf-8"))
    assert index["metadata"]["total_size"] == 8 * 20 + 96
    assert index["weight_map"].keys() == tensors.keys()
