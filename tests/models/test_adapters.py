"""Adapters: the layers they cover, and saving and loading them."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from PIL import Image
from safetensors.torch import load_file, save_file

from dsocr.models.adapters import (
    Variant,
    adapter_tensors,
    attach_adapter,
    layers_without_gradient,
    load_adapter,
    omitted_layers,
    scaled_config,
    vision_parameters,
)
from dsocr.models.base_folder import CONFIG, WEIGHTS
from dsocr.models.export import merge
from dsocr.models.loading import load_base
from dsocr.models.token_batches import collate
from tests.making_models import deepseek_processor, save_adapter
from tests.models.encoder_decoder_models import write_donut, write_trocr
from tests.raising import raises_code

SCOPES = [
    "decoder+experts",
    "decoder+experts+vision",
    "decoder+vision",
    r"^model\.language_model\.layers\.1\.self_attn\.q_proj$",
]


def fresh(scope: str, **options: Any) -> PeftModel:
    network = load_base("nano", dtype=options.pop("dtype", None)).network
    return attach_adapter(network, base="nano", revision=None, target_modules=scope, r=4, alpha=8, **options)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an adapter of the decoder; tests must not change it."""
    folder = tmp_path_factory.mktemp("saved")
    save_adapter(fresh("decoder"), folder)
    return folder


def trained(scope: str, std: float = 1.0, **options: Any) -> PeftModel:
    """An adapter whose every tensor is random, as if it had been trained."""
    model = fresh(scope, **options)
    generator = torch.Generator().manual_seed(1)
    for tensor in adapter_tensors(model).values():
        tensor.data.copy_(std * torch.randn(tensor.shape, generator=generator))
    return model


@pytest.mark.parametrize("scope", SCOPES)
def test_an_adapter_survives_the_disk_through_our_path_and_through_peft(scope: str, tmp_path: Path) -> None:
    model = trained(scope)
    before = {name: tensor.clone() for name, tensor in adapter_tensors(model).items()}
    save_adapter(model, tmp_path)
    for loaded in (
        load_adapter(load_base("nano").network, tmp_path),
        PeftModel.from_pretrained(load_base("nano").network, str(tmp_path)),
    ):
        after = adapter_tensors(loaded)
        assert after.keys() == before.keys()
        assert all(torch.equal(after[name], before[name]) for name in before)


def test_an_adapter_has_original_names_on_disk_and_names_its_base_and_no_machine(saved: Path) -> None:
    names = load_file(saved / WEIGHTS).keys()
    assert all(re.match(r"base_model\.model\.model\.layers\.\d+\.", name) for name in names)
    config = json.loads((saved / CONFIG).read_text(encoding="utf-8"))
    assert config["base_model_name_or_path"] == "nano"


Damage = Callable[[Path], object]


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    def damage(folder: Path) -> None:
        changed = load_file(folder / WEIGHTS)
        change(changed)
        save_file(changed, folder / WEIGHTS)

    return damage


def config(**changes: object) -> Damage:
    def damage(folder: Path) -> None:
        known = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        (folder / CONFIG).write_text(json.dumps(known | changes), encoding="utf-8")

    return damage


def of_wider_scope(folder: Path) -> None:
    (folder / "other").mkdir()
    save_adapter(fresh("decoder+vision"), folder / "other")
    (folder / "other" / WEIGHTS).replace(folder / WEIGHTS)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        pytest.param(tensors(lambda held: held.pop(next(iter(held)))), "adapter-mismatch", id="a missing tensor"),
        pytest.param(tensors(lambda held: held.update(strange=torch.zeros(1))), "adapter-mismatch", id="unexpected"),
        pytest.param(
            tensors(lambda held: held.update({next(iter(held)): torch.zeros(1)})), "adapter-mismatch", id="misshapen"
        ),
        pytest.param(of_wider_scope, "adapter-mismatch", id="other target modules"),
        pytest.param(config(target_modules="nothing"), "adapter-mismatch", id="another network"),
        pytest.param(config(alora_invocation_tokens=[5]), "adapter-config", id="activated LoRA"),
        pytest.param(lambda folder: (folder / CONFIG).unlink(), "adapter-missing", id="no config"),
        pytest.param(lambda folder: (folder / CONFIG).write_text("{}"), "adapter-config", id="another config"),
        pytest.param(lambda folder: (folder / CONFIG).write_text("{"), "adapter-config", id="no JSON"),
        pytest.param(
            lambda folder: (folder / WEIGHTS).rename(folder / "adapter_model.bin"), "weights-pickled", id="pickle"
        ),
        pytest.param(
            lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100]),
            "weights-damaged",
            id="cut",
        ),
    ],
)
def test_an_adapter_that_does_not_match_is_an_error(damage: Damage, code: str, saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    damage(tmp_path)
    with raises_code(code):
        load_adapter(load_base("nano").network, tmp_path)


def test_a_make_trainable_changes_nothing_and_alone_has_gradients() -> None:
    model = fresh("decoder+vision")
    names = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert names
    assert all("lora_" in name for name in names)
    ids = torch.tensor([[0, 5, 6, 7]])
    with torch.no_grad():
        attached = model(input_ids=ids).logits
        with model.disable_adapter():
            assert torch.equal(model(input_ids=ids).logits, attached)


@pytest.mark.parametrize(
    ("target_modules", "code"),
    [
        pytest.param(r"^q_proj$", "target-modules-unmatched", id="a pattern without a match"),
        pytest.param(["q_proj", "gate_up_proj"], "target-modules-unmatched", id="one of several names"),
        pytest.param(r"^.*\.mlp\..*$", "target-modules-unsupported", id="routers, which LoRA cannot adapt"),
    ],
)
def test_target_modules_that_fit_no_layer_are_an_error_before_training(target_modules: Any, code: str) -> None:
    with raises_code(code):
        fresh(target_modules)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_trainable_parameters_are_float32_for_any_base_dtype(dtype: torch.dtype) -> None:
    """Trained in half precision, a gradient scaler would stop with "Attempting to unscale FP16 gradients"."""
    model = fresh("decoder+vision", dtype=dtype)
    trainable = {parameter.dtype for parameter in model.parameters() if parameter.requires_grad}
    frozen = {parameter.dtype for parameter in model.parameters() if not parameter.requires_grad}
    assert (trainable, frozen) == ({torch.float32}, {dtype})


def stepped(
    scope: str, variant: Variant = "lora", folder: str = "nano", resolution: str | None = None
) -> tuple[PeftModel, dict[str, bool]]:
    """An adapter after two steps on one batch, and for each of its parameters whether it ever had a gradient."""
    base = load_base(folder)
    encoder = deepseek_processor(base, resolution, "free_ocr")
    page, texts = Image.effect_noise((400, 50), 90), ["Съешь", "булок"]
    batch = collate([encoder.encode(page, text) for text in texts], encoder.pad_id, padding="right")
    model = attach_adapter(
        base.network, base=folder, revision=None, target_modules=scope, r=4, alpha=8, variant=variant
    ).train()
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-2)
    reached = dict.fromkeys(parameters, False)
    for _ in range(2):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        for name, parameter in parameters.items():
            reached[name] |= parameter.grad is not None and bool(parameter.grad.abs().max() > 0)
        optimizer.step()
    return model, reached


@pytest.mark.parametrize(
    ("scope", "variant"),
    [("decoder+experts", "lora"), ("decoder+experts+vision", "lora"), ("decoder+vision", "dora")],
)
def test_gradients_reach_every_matrix_of_the_adapter(scope: str, variant: Variant) -> None:
    model, reached = stepped(scope, variant)
    routed = {name for name in reached if ".experts." in name and "shared" not in name}
    assert [name for name in sorted(reached.keys() - routed) if not reached[name]] == []
    assert not routed or any(reached[name] for name in routed)
    assert layers_without_gradient(model) == []


@pytest.mark.parametrize(("kind", "resolution"), [("deepseek_ocr", "tiny"), ("deepseek_ocr_2", "small")])
def test_gradients_reach_both_published_kinds_of_vision_towers(
    kind: str, resolution: str, bases: dict[str, str]
) -> None:
    model, reached = stepped("decoder+vision", folder=bases[kind], resolution=resolution)
    assert [name for name in sorted(reached) if not reached[name]] == []
    vision, _ = vision_parameters(model)
    assert len(vision) > 10


@pytest.mark.parametrize(("dropout", "variant"), [(0.1, "lora"), (0.0, "dora")])
def test_settings_that_routed_experts_do_not_support_are_rejected(dropout: float, variant: Variant) -> None:
    with raises_code("experts-unsupported"):
        fresh("decoder+experts", dropout=dropout, variant=variant)


@pytest.mark.parametrize("kind", ["deepseek_ocr", "deepseek_ocr_2", "nano", write_trocr, write_donut])
def test_every_linear_layer_is_in_a_set_or_said_to_be_omitted(
    kind: str | Callable[[Path], Path], bases: dict[str, str], tmp_path: Path
) -> None:
    """Chat models: test_image_text_to_text.py. Experts are parameters, routers and the head are in no set."""
    base = load_base(bases[kind] if isinstance(kind, str) else str(kind(tmp_path / "base")))
    head = base.network.get_output_embeddings()
    linear = {name for name, module in base.network.named_modules() if isinstance(module, torch.nn.Linear)}
    linear -= {name for name, module in base.network.named_modules() if module is head}
    for target, pattern in base.family.target_modules.items():
        parts = {part for part in ("vision", "decoder") if part in target}
        asked = {name for name in linear if base.family.is_vision(f"{name}.weight") == ("vision" in parts)}
        asked = linear if len(parts) == 2 else asked
        found = {name for name in linear if re.fullmatch(pattern, name)}
        assert found, target
        assert asked - found == {*omitted_layers(base.network, target)}
        assert found <= asked, "a set has nothing of a part that it does not name"


# A scaled adapter: the base at 0, the full adapter at 1, and PEFT's result for a scaled config in between


@torch.no_grad()
def logits(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    found: torch.Tensor = model(**batch).logits
    return found


@pytest.mark.parametrize(
    ("variant", "scope"),
    [
        pytest.param("rslora", "decoder+vision", id="alpha over the root of the rank"),
        pytest.param("lora", "decoder+experts", id="routed experts, which PEFT adapts as parameters"),
    ],
)
def test_a_fractional_scale_equals_scaling_lora_alpha_in_peft_and_merging(
    variant: Variant, scope: str, tmp_path: Path
) -> None:
    encoder = deepseek_processor(load_base("nano"), None, "free_ocr")
    batch = collate([encoder.encode(Image.effect_noise((200, 40), 90))], encoder.pad_id, padding="left")
    model = trained(scope, std=0.05, variant=variant).eval()
    with model.disable_adapter():
        base = logits(model, batch)
    whole = logits(model, batch)
    assert not torch.allclose(base, whole, atol=1e-3)
    save_adapter(model, tmp_path)
    assert torch.equal(logits(load_adapter(load_base("nano").network, tmp_path), batch), whole)
    scaled = load_adapter(load_base("nano").network, tmp_path, 0.4)
    part = logits(scaled, batch)
    assert not torch.allclose(part, base, atol=1e-3)
    assert not torch.allclose(part, whole, atol=1e-3)
    torch.testing.assert_close(logits(merge(scaled, where="here"), batch), part, rtol=1e-4, atol=1e-4)

    config(**scaled_config(json.loads((tmp_path / CONFIG).read_text(encoding="utf-8")), 0.4))(tmp_path)
    read = PeftModel.from_pretrained(load_base("nano").network, str(tmp_path))
    torch.testing.assert_close(logits(read.eval(), batch), part, rtol=1e-5, atol=1e-5)


def test_layers_with_an_alpha_of_their_own_are_scaled_too() -> None:
    config = {"lora_alpha": 8, "alpha_pattern": {"layers.0.q_proj": 4}, "r": 2}
    assert scaled_config(config, 0.5) == {"lora_alpha": 4, "alpha_pattern": {"layers.0.q_proj": 2}, "r": 2}


@pytest.mark.parametrize(("dora", "strength"), [(False, 0), (True, 0.5)])
def test_a_strength_is_a_part_of_the_whole_and_of_dora_the_whole(dora: bool, strength: float) -> None:
    config = {"lora_alpha": 8, "use_dora": dora}
    assert scaled_config(config, 1) == config
    with raises_code("scale-invalid"):
        scaled_config(config, strength)


def test_layers_are_compiled_in_their_place_and_no_tensor_gets_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)  # whose import takes two seconds
    base = load_base("nano")
    model = attach_adapter(base.network, base="nano", revision=None, target_modules="decoder", r=2, alpha=4)
    before = [list(model.state_dict()), list(adapter_tensors(model))]
    base.family.prepare_training(model, base.network, compile_layers=True, checkpoint_activations=False)
    compiled = [name for name, module in model.named_modules() if module._compiled_call_impl is not None]
    assert [name.rpartition(".")[2] for name in compiled] == ["vision_tower", "language_model"]
    assert [list(model.state_dict()), list(adapter_tensors(model))] == before
