"""Base models: only whole ones, only known ones."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dsocr.errors import ConfigError, ModelError
from dsocr.model.loading import BaseModel, choose_dtype, load_base


@pytest.fixture
def copied_base(nano: BaseModel, tmp_path: Path) -> Path:
    from importlib import resources

    source = Path(str(resources.files("dsocr"))) / "model" / "bases" / "nano"
    return Path(shutil.copytree(source, tmp_path / "base"))


def test_nano_is_the_native_class_frozen_and_complete(nano: BaseModel) -> None:
    assert type(nano.network).__name__ == "UnlimitedOcrForConditionalGeneration"
    assert not any(parameter.requires_grad for parameter in nano.network.parameters())
    assert set(nano.network.config.text_config.layer_types) == {"full_attention"}
    assert nano.family == "nano"


def test_a_folder_is_a_base_too(copied_base: Path) -> None:
    assert load_base(str(copied_base)).name == str(copied_base)


def test_a_missing_tensor_is_an_error_that_names_it(copied_base: Path) -> None:
    tensors = load_file(copied_base / "model.safetensors")
    tensors.pop("lm_head.weight")
    save_file(tensors, copied_base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lm_head\.weight"):
        load_base(str(copied_base))


def test_another_kind_of_model_is_refused(copied_base: Path) -> None:
    config = json.loads((copied_base / "config.json").read_text(encoding="utf-8"))
    (copied_base / "config.json").write_text(json.dumps({**config, "model_type": "bert"}), encoding="utf-8")
    with pytest.raises(ModelError, match="'bert' are not read"):
        load_base(str(copied_base))


def test_a_base_that_is_nowhere_says_what_to_do() -> None:
    with pytest.raises(ModelError, match="no base model 'somewhere/else'") as error:
        load_base("somewhere/else")
    assert "download" in str(error.value.hint)


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("auto", torch.float32), ("fp32", torch.float32), ("bf16", torch.bfloat16)],
)
def test_precision_on_a_cpu(precision: str, dtype: torch.dtype) -> None:
    assert choose_dtype(precision, torch.device("cpu")) is dtype


def test_half_precision_is_for_accelerators() -> None:
    assert choose_dtype("fp16", torch.device("cuda")) is torch.float16
    with pytest.raises(ConfigError, match="fp16 needs an accelerator"):
        choose_dtype("fp16", torch.device("cpu"))
