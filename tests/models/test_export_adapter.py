"""An adapter alone: everything back from it through dsocr and PEFT, and the names and settings that vLLM takes."""

import json
import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from dsocr.models.adapters import adapter_tensors, load_adapter, target_modules_of, variant_of
from dsocr.models.base_folder import CONFIG, WEIGHTS
from dsocr.models.export import config_for_vllm, export_adapter, export_merged
from dsocr.models.loading import load_base
from dsocr.runs import CALIBRATION, ReadingSettings
from tests.making_models import make_run
from tests.models.chat_models import write_chat_model
from tests.raising import raises_code

QUERY_OF_LAYER_1 = r"^model\.language_model\.layers\.1\.self_attn\.q_proj$"


def config_in(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / CONFIG).read_text(encoding="utf-8")))


def assert_all_restored(base: str, folder: Path, expected: dict[str, torch.Tensor]) -> None:
    """Both ways to load an adapter give every tensor back, and none besides."""
    for model in (
        load_adapter(load_base(base).network, folder),
        PeftModel.from_pretrained(load_base(base).network, str(folder)),
    ):
        tensors = adapter_tensors(model)
        assert tensors.keys() == expected.keys()
        assert all(torch.equal(tensors[name], expected[name]) for name in expected)


# test_adapters.py does it with nano.
@pytest.mark.parametrize(("kind", "scope"), [("deepseek_ocr", "decoder+experts"), ("deepseek_ocr_2", "decoder+vision")])
def test_every_tensor_round_trips_through_dsocr_and_peft(
    kind: str, scope: str, bases: dict[str, str], tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", bases[kind], scope)
    export_adapter(run, tmp_path / "out", "peft")
    assert (tmp_path / "out" / WEIGHTS).read_bytes() == (run.adapter / WEIGHTS).read_bytes()
    assert config_in(tmp_path / "out") == config_in(run.adapter)
    assert ReadingSettings.load(tmp_path / "out") == ReadingSettings.load(run.adapter)
    assert_all_restored(bases[kind], tmp_path / "out", load_file(run.adapter / WEIGHTS))


@pytest.mark.parametrize(("strength", "is_exported"), [(1.0, True), (0.5, False)])
def test_confidences_come_along_at_the_strength_they_were_fitted_at(
    strength: float, is_exported: bool, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", "nano", "decoder")
    (run.adapter / CALIBRATION).write_text('{"lines": 3}', encoding="utf-8")
    export_adapter(run, tmp_path / "out", "peft", scale=strength)
    assert (tmp_path / "out" / CALIBRATION).is_file() is is_exported


@pytest.mark.parametrize(
    ("kind", "scope"), [("deepseek_ocr", "decoder"), ("deepseek_ocr_2", "decoder"), ("nano", QUERY_OF_LAYER_1)]
)
def test_vllm_finds_its_names_and_peft_still_the_same_layers(
    kind: str, scope: str, bases: dict[str, str], tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", bases[kind], scope)
    export_adapter(run, tmp_path / "out", "vllm")
    layers = config_in(tmp_path / "out")["target_modules"]
    everything = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
    assert layers == (everything if scope == "decoder" else ["q_proj"])
    tensors = load_file(tmp_path / "out" / WEIGHTS)
    modules = {in_vllm(name) for name in tensors}
    assert all(re.match(r"language_model\.model\.layers\.\d+\.(self_attn|mlp)\.", module) for module in modules)
    assert {module.rpartition(".")[2] for module in modules} == set(layers)
    assert_all_restored(bases[kind], tmp_path / "out", tensors)


def in_vllm(name: str) -> str:
    """The module of vLLM's DeepSeek-OCR that a tensor is for: what its `hf_to_vllm_mapper` makes of the name."""
    match = re.fullmatch(r"base_model\.model\.model\.(layers\..*)\.lora_[AB]\.weight", name)
    assert match is not None, name
    return f"language_model.model.{match[1]}"


@pytest.mark.parametrize(
    ("kind", "scope", "variant"),
    [
        pytest.param("deepseek_ocr", "decoder+vision", "lora", id="vision"),
        pytest.param("deepseek_ocr", "decoder+experts", "lora", id="routed experts"),
        pytest.param("deepseek_ocr", "decoder", "dora", id="dora"),
        pytest.param("glm_ocr", "decoder", "lora", id="a chat model that it was not tried with"),
    ],
)
def test_adapters_that_vllm_cannot_load_are_rejected(
    kind: str, scope: str, variant: str, bases: dict[str, str], tmp_path: Path
) -> None:
    base = bases.get(kind) or str(write_chat_model(tmp_path / "base", kind))
    run = make_run(tmp_path / "run", base, scope, variant=variant)
    with raises_code("vllm-unsupported") as caught:
        export_adapter(run, tmp_path / "out", "vllm")
    assert "--form merged" in caught.value.render()
    assert not (tmp_path / "out").exists()


def test_vllm_finds_the_names_of_chat_models(qwen: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", str(qwen), "decoder")
    settings = ReadingSettings.load(run.adapter)
    replace(settings, resolution="pixels1024-16384").save(run.adapter)
    export = export_adapter(run, tmp_path / "out", "vllm")
    tensors = load_file(tmp_path / "out" / WEIGHTS)
    # vLLM's own mapping (`hf_to_vllm_mapper` in vLLM 0.32): `model.language_model.` becomes
    # `language_model.model.`.
    layer = r"base_model\.model\.model\.language_model\.layers\.\d\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)"
    assert all(re.fullmatch(rf"{layer}\.lora_[AB]\.weight", name) for name in tensors)
    layers = load_base(str(qwen)).network.config.text_config.num_hidden_layers
    assert len(tensors) == 14 * layers
    assert config_in(tmp_path / "out")["target_modules"] == sorted({name.split(".")[-3] for name in tensors}), (
        "plain names, for vLLM compares nothing else"
    )
    assert_all_restored(str(qwen), tmp_path / "out", tensors)

    command = shlex.split(export.serve_command(tmp_path / "out") or "")
    assert command[:3] == ["vllm", "serve", str(qwen)]
    given = dict(pairwise(command))
    assert json.loads(given["--mm-processor-kwargs"]) == {"min_pixels": 1024, "max_pixels": 16384}
    assert given["--generation-config"] == "vllm", "else it would penalise repetition as the authors publish"
    assert given["--lora-modules"] == f"run={(tmp_path / 'out').as_posix()}"
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert (export.serve_command(Path("out")) or "no command") in card
    assert "tiles" not in card


def test_merged_chat_models_are_served_at_their_own_resolution(qwen: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", str(qwen), "decoder+vision")
    with raises_code("vllm-unsupported"):
        export_adapter(run, tmp_path / "out", "vllm")
    command = shlex.split(export_merged(run, tmp_path / "merged").serve_command(tmp_path / "merged") or "")
    assert command[:3] == ["vllm", "serve", (tmp_path / "merged").as_posix()]
    assert "--mm-processor-kwargs" not in command


@pytest.mark.parametrize(
    ("base", "is_served"),
    [
        ("deepseek-ai/DeepSeek-OCR", True),
        ("Qwen/Qwen3-VL-2B-Instruct", True),
        ("Qwen/Qwen2.5-VL-3B-Instruct", False),
        ("zai-org/GLM-OCR", False),
    ],
)
def test_how_published_bases_are_served_is_known_without_them(
    base: str, is_served: bool, qwen: Path, bases: dict[str, str], tmp_path: Path
) -> None:
    similar = bases["deepseek_ocr"] if base.startswith("deepseek") else str(qwen)
    run = make_run(tmp_path / "run", similar, stated_base=base)
    if is_served:
        command = export_adapter(run, tmp_path / "out", "vllm").serve_command(tmp_path / "out") or ""
        assert command.startswith(f"vllm serve {base} --enable-lora --max-lora-rank 8 ")
    else:
        with raises_code("vllm-unsupported"):
            export_adapter(run, tmp_path / "out", "vllm")


@pytest.mark.parametrize(("rank", "most"), [(1, 1), (4, 8), (8, 8), (300, 320), (512, 512)])
def test_vllm_is_started_for_the_rank(rank: int, most: int, bases: dict[str, str], tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", bases["deepseek_ocr"], QUERY_OF_LAYER_1, rank=rank)
    command = export_adapter(run, tmp_path / "out", "vllm").serve_command(tmp_path / "out")
    assert command is not None
    assert f"vllm serve {bases['deepseek_ocr']} --enable-lora --max-lora-rank {most} " in command
    assert f" --lora-modules run={tmp_path / 'out'} " in command


def test_a_rank_above_the_limit_of_vllm_is_rejected() -> None:
    with raises_code("vllm-unsupported"):
        config_for_vllm({"r": 513, "target_modules": "x"}, [])


def test_scope_and_variant_are_read_back(bases: dict[str, str], tmp_path: Path) -> None:
    for number, (scope, variant) in enumerate(
        [("decoder", "rslora"), ("decoder+experts", "lora"), ("decoder+vision", "dora"), (QUERY_OF_LAYER_1, "lora")]
    ):
        run = make_run(tmp_path / str(number), "nano", scope, variant=variant)
        config = config_in(run.adapter)
        assert (target_modules_of(config), variant_of(config)) == (scope, variant)


def test_an_adapter_that_is_not_whole_or_has_a_strange_tensor(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "nano")
    tensors = load_file(run.adapter / WEIGHTS)
    save_file(tensors | {"base_model.model.lm_head.lora_A.weight": torch.zeros(1)}, run.adapter / WEIGHTS)
    with raises_code("vllm-unsupported"):
        export_adapter(run, tmp_path / "out", "vllm")
    (run.adapter / WEIGHTS).write_bytes(b"12345678")
    with raises_code("weights-damaged"):
        export_adapter(run, tmp_path / "out", "peft")
    assert not (tmp_path / "out").exists()
