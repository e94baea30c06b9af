"""Base models: only whole ones, only known ones."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dsocr.io import hub
from dsocr.io.hub import NotFetchedError
from dsocr.models.base_folder import explain_damage, find_base, find_base_metadata
from dsocr.models.deepseek_ocr import DeepseekOcr
from dsocr.models.loading import BaseModel, choose_dtype, load_base, recognize
from tests.raising import raises_code


@pytest.fixture
def copied_base(nano: BaseModel, tmp_path: Path) -> Path:
    return Path(shutil.copytree(nano.folder, tmp_path / "base"))


def test_nano_is_the_native_class_frozen_and_complete(nano: BaseModel) -> None:
    assert type(nano.network).__name__ == "UnlimitedOcrForConditionalGeneration"
    assert not any(parameter.requires_grad for parameter in nano.network.parameters())
    assert set(nano.network.config.text_config.layer_types) == {"full_attention"}
    assert nano.family.name == "nano"


WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
Damage = Callable[[Path], object]


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    def damage(base: Path) -> None:
        changed = load_file(base / WEIGHTS)
        change(changed)
        save_file(changed, base / WEIGHTS, metadata={"format": "pt"})

    return damage


def index(name: object) -> Damage:
    """An index that says that a tensor is in this file."""
    return lambda base: (base / INDEX).write_text(json.dumps({"weight_map": {"a": name}}), encoding="utf-8")


def of_another_kind(base: Path) -> None:
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    (base / "config.json").write_text(json.dumps({**config, "model_type": "bert"}), encoding="utf-8")


def cut(base: Path) -> None:
    whole = (base / WEIGHTS).read_bytes()
    (base / WEIGHTS).write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        pytest.param(tensors(lambda held: held.pop("lm_head.weight")), "checkpoint-mismatch", id="a missing tensor"),
        pytest.param(
            tensors(lambda held: held.update({"model.norm.weight": torch.zeros(3)})),
            "checkpoint-mismatch",
            id="misshapen",
        ),
        pytest.param(
            tensors(lambda held: held.update({"model.stray": torch.zeros(3)})), "checkpoint-mismatch", id="unexpected"
        ),
        pytest.param(of_another_kind, "model-unknown", id="an unsupported kind of model"),
        pytest.param(cut, "weights-damaged", id="cut off"),
        pytest.param(index("model-00002-of-00002.safetensors"), "base-incomplete", id="a shard that is missing"),
        pytest.param(index("../outside.safetensors"), "base-incomplete", id="an index that leads out of the folder"),
        pytest.param(index("weights.bin"), "base-incomplete", id="an index that leads to a pickle"),
        pytest.param(index(7), "base-incomplete", id="an index of numbers"),
        pytest.param(lambda base: (base / WEIGHTS).rename(base / "pytorch_model.bin"), "weights-pickled", id="pickled"),
        pytest.param(lambda base: (base / WEIGHTS).unlink(), "base-incomplete", id="no weights"),
    ],
)
def test_a_base_that_is_not_whole_is_an_error(copied_base: Path, damage: Damage, code: str) -> None:
    damage(copied_base)
    with raises_code(code):
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


# Finding a base locally; the Hub is asked only for a base that its cache lacks


def keep(patch: pytest.MonkeyPatch, folder: Path) -> list[bool]:
    """Has the Hub's library find this folder for everything; whether it was to stay offline, of each question."""
    asked = []

    def fetched(*_: object, offline: bool = False) -> tuple[Path, str]:
        asked.append(offline)
        if offline and not folder.is_dir():
            raise NotFetchedError("not in the cache")
        return folder, "0123abc"

    patch.setattr(hub, "fetch_hub_files", fetched)
    return asked


def test_a_base_that_the_cache_holds_is_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").touch()
    asked = keep(monkeypatch, tmp_path)
    assert find_base_metadata("owner/name") == tmp_path
    assert asked == [True]


@pytest.mark.parametrize("held", ["nothing", "files without a config.json"])
def test_one_that_it_does_not_hold_is(held: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path if held != "nothing" else tmp_path / "to come"
    asked = keep(monkeypatch, folder)
    assert find_base_metadata("owner/name") == folder
    assert asked == [True, False]


def test_a_folder_and_the_embedded_base_need_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    asked = keep(monkeypatch, tmp_path)
    assert find_base_metadata("owner/name") == Path("owner/name")
    assert find_base_metadata("nano") == find_base("nano")[0]
    assert asked == []


@pytest.mark.parametrize("path", ["./gone", "../gone", "models/deep/gone", "gone"])
def test_a_missing_path_is_an_error_without_asking_the_hub(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = keep(monkeypatch, tmp_path)
    with raises_code("base-not-found"):
        find_base_metadata(path)
    assert asked == []
