"""Base models: only whole ones, only known ones."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dsocr.models.base_folder import explain_damage
from dsocr.models.deepseek_ocr import DeepseekOcr
from dsocr.models.family import recognize
from dsocr.models.loading import BaseModel, choose_dtype, load_base
from tests.raising import raises_code


@pytest.fixture
def copied_base(nano: BaseModel, tmp_path: Path) -> Path:
    from importlib import resources

    source = Path(str(resources.files("dsocr"))) / "models" / "bases" / "nano"
    return Path(shutil.copytree(source, tmp_path / "base"))


def test_nano_is_the_native_class_frozen_and_complete(nano: BaseModel) -> None:
    assert type(nano.network).__name__ == "UnlimitedOcrForConditionalGeneration"
    assert not any(parameter.requires_grad for parameter in nano.network.parameters())
    assert set(nano.network.config.text_config.layer_types) == {"full_attention"}
    assert nano.family.name == "nano"


def test_a_missing_tensor_is_an_error_that_names_it(copied_base: Path) -> None:
    tensors = load_file(copied_base / "model.safetensors")
    tensors.pop("lm_head.weight")
    save_file(tensors, copied_base / "model.safetensors", metadata={"format": "pt"})
    with raises_code("checkpoint-mismatch"):
        load_base(str(copied_base))


def test_an_unsupported_kind_of_model_is_rejected(copied_base: Path) -> None:
    config = json.loads((copied_base / "config.json").read_text(encoding="utf-8"))
    (copied_base / "config.json").write_text(json.dumps({**config, "model_type": "bert"}), encoding="utf-8")
    with raises_code("model-unknown"):
        load_base(str(copied_base))


def test_a_misshapen_tensor_is_an_error_that_names_it(copied_base: Path) -> None:
    tensors = load_file(copied_base / "model.safetensors")
    tensors["model.norm.weight"] = torch.zeros(3)
    save_file(tensors, copied_base / "model.safetensors", metadata={"format": "pt"})
    with raises_code("checkpoint-mismatch"):
        load_base(str(copied_base))


def test_an_unexpected_tensor_is_an_error_that_names_it(copied_base: Path) -> None:
    tensors = load_file(copied_base / "model.safetensors")
    save_file({**tensors, "model.stray": torch.zeros(3)}, copied_base / "model.safetensors", metadata={"format": "pt"})
    with raises_code("checkpoint-mismatch"):
        load_base(str(copied_base))


def test_a_shard_that_is_cut_off_is_named(copied_base: Path) -> None:
    whole = (copied_base / "model.safetensors").read_bytes()
    (copied_base / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with raises_code("weights-damaged"):
        load_base(str(copied_base))


def test_a_shard_that_is_missing_is_named(copied_base: Path) -> None:
    (copied_base / "model.safetensors").rename(copied_base / "model-00001-of-00002.safetensors")
    files = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (copied_base / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}), encoding="utf-8")
    with raises_code("weights-missing"):
        load_base(str(copied_base))


@pytest.mark.parametrize("name", ["../outside.safetensors", "weights.bin", 7])
def test_an_index_cannot_lead_out_of_the_folder_or_to_a_pickle(copied_base: Path, name: object) -> None:
    index = copied_base / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}), encoding="utf-8")
    with raises_code("weights-index"):
        load_base(str(copied_base))


def test_pickled_weights_are_rejected(copied_base: Path) -> None:
    (copied_base / "model.safetensors").rename(copied_base / "pytorch_model.bin")
    with raises_code("weights-pickled"):
        load_base(str(copied_base))


def test_a_folder_without_weights_is_rejected(copied_base: Path) -> None:
    (copied_base / "model.safetensors").unlink()
    with raises_code("weights-missing"):
        load_base(str(copied_base))


def test_a_config_that_asks_for_code_is_loaded_without_it(copied_base: Path) -> None:
    config = json.loads((copied_base / "config.json").read_text(encoding="utf-8"))
    config["auto_map"] = {"AutoModel": "evil.Model", "AutoConfig": "evil.Config"}
    (copied_base / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (copied_base / "evil.py").write_text("raise SystemExit('this code was run')", encoding="utf-8")
    assert type(load_base(str(copied_base)).network).__module__.startswith("transformers.models.")


def test_what_is_no_damage_stays_as_it_is(tmp_path: Path) -> None:
    texts = ("DefaultCPUAllocator: not enough memory", "CUDA error: no kernel image is available")
    for error in (MemoryError(), *map(RuntimeError, texts)):
        with pytest.raises(type(error)), explain_damage(tmp_path):
            raise error


def test_a_base_that_is_not_downloaded_gets_a_hint() -> None:
    with raises_code("base-not-found") as error:
        load_base("somewhere/else", "v1")
    assert "hf download somewhere/else --revision v1 --local-dir models/else" in str(error.value.hint)


def test_an_invalid_base_name_is_rejected() -> None:
    with raises_code("base-not-found"):
        load_base("not here")


def test_a_tokenizer_without_the_image_token_is_rejected(copied_base: Path) -> None:
    text = (copied_base / "tokenizer.json").read_text(encoding="utf-8").replace("<image>", "<picture>")
    (copied_base / "tokenizer.json").write_text(text, encoding="utf-8")
    settings = (copied_base / "tokenizer_config.json").read_text(encoding="utf-8").replace("<image>", "<picture>")
    (copied_base / "tokenizer_config.json").write_text(settings, encoding="utf-8")
    with raises_code("tokenizer-no-image"):
        load_base(str(copied_base)).processor(None, "free_ocr")


PUBLISHED = {"model_type": "deepseek_vl_v2", "vision_config": {"model_name": "deeplip_b_l"}}


@pytest.mark.parametrize(
    ("config", "family", "original"),
    [
        (PUBLISHED, "deepseek_ocr", True),
        ({**PUBLISHED, "model_type": "DeepseekOCR"}, "deepseek_ocr", True),
        ({**PUBLISHED, "vision_config": {"model_name": "deepencoderv2"}}, "deepseek_ocr_2", True),
        ({"model_type": "deepseek_ocr2"}, "deepseek_ocr_2", False),
        ({"model_type": "unlimited_ocr", "text_config": {"vocab_size": 129280}}, "unlimited_ocr", False),
        ({"model_type": "unlimited_ocr", "language_config": {"vocab_size": 129280}}, "unlimited_ocr", False),
        (
            {"model_type": "unlimited_ocr", "text_config": {"layer_types": ["full_attention"], "vocab_size": 129280}},
            "deepseek_ocr",
            False,
        ),
        ({"model_type": "unlimited_ocr", "text_config": {"vocab_size": 300}}, "nano", False),
    ],
)
def test_checkpoints_are_recognised_by_their_config(config: dict[str, object], family: str, original: bool) -> None:
    assert recognize(Path("base"), config) == DeepseekOcr(family, original)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("auto", torch.float32), ("fp32", torch.float32), ("bf16", torch.bfloat16)],
)
def test_precision_on_a_cpu(precision: str, dtype: torch.dtype) -> None:
    assert choose_dtype(precision, torch.device("cpu")) is dtype


def test_half_precision_is_for_accelerators() -> None:
    assert choose_dtype("fp16", torch.device("cuda")) is torch.float16
    with raises_code("fp16-on-cpu"):
        choose_dtype("fp16", torch.device("cpu"))
