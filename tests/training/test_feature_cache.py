"""The cache of vision features: never stale, never too large, and safe if damaged."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dsocr.models.batch import collate, drop_ignored_positions, normalize_pixels
from dsocr.models.causal_decoding import decode
from dsocr.models.deepseek_ocr import find_resolution
from dsocr.models.generation import Generation
from dsocr.models.loading import BaseModel, load_base
from dsocr.models.token_inputs import CanvasEncoded, Features
from dsocr.training import feature_cache
from dsocr.training.feature_cache import FeatureCache, FeatureStore, fingerprint, vision_features
from tests.making_models import deepseek_processor, write_first, write_second


def picture(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8))


PROMPT = "<image>\nБВГ"
UNTILED = {"nano": "wrap", "first": "tiny", "second": "small"}
TILED = {"nano": "wrap", "first": "gundam", "second": "gundam"}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BaseModel]:
    folder = tmp_path_factory.mktemp("bases")
    (folder / "first").mkdir()
    (folder / "second").mkdir()
    first, second = write_first(folder / "first"), write_second(folder / "second")
    return {"nano": load_base("nano"), "first": load_base(str(first)), "second": load_base(str(second))}


def samples_of(base: BaseModel, resolution: str) -> tuple[list[CanvasEncoded], int]:
    """Two samples of other lengths; where the resolution has tiles, the second has two of them."""
    encoder = deepseek_processor(base, resolution, PROMPT)
    images = {"ДЕЖЗИЙКЛ": picture(300, 60), "Ж": picture(800, 400)}
    return [encoder.encode(image, text) for text, image in images.items()], encoder.pad_id


@pytest.mark.parametrize("kind", UNTILED)
def test_logits_where_something_is_learnt_give_the_same_loss_and_gradients(
    kind: str, bases: dict[str, BaseModel]
) -> None:
    network = bases[kind].network
    samples, pad_id = samples_of(bases[kind], UNTILED[kind])
    batch = collate(samples, pad_id, padding="right")
    weight = network.get_parameter("model.language_model.layers.1.self_attn.q_proj.weight")
    found = []
    for shown in (batch, drop_ignored_positions(batch)):
        weight.requires_grad_(True)
        answer = network(**shown, num_items_in_batch=torch.tensor(7))
        (gradient,) = torch.autograd.grad(answer.loss, weight)
        weight.requires_grad_(False)
        found.append((answer, gradient))
    (full, full_gradient), (kept, kept_gradient) = found
    assert kept.logits.shape[:2] == (2, max(len(sample.answer_ids) for sample in samples))
    assert kept.loss.item() == pytest.approx(full.loss.item(), rel=1e-6)
    assert float(full_gradient.abs().max()) > 0
    assert torch.allclose(kept_gradient, full_gradient, rtol=1e-5, atol=1e-6 * float(full_gradient.abs().max()))


@pytest.mark.parametrize("kind", TILED)
def test_features_in_place_of_pixels_give_the_same_loss_and_the_same_text(
    kind: str, bases: dict[str, BaseModel]
) -> None:
    base = bases[kind]
    samples, pad_id = samples_of(base, TILED[kind])
    processor = deepseek_processor(base, TILED[kind], PROMPT)
    features = [one.tokens for one in vision_features(base.network, processor, samples, None)]
    assert [len(tokens) for tokens in features] == [
        sample.prompt_ids.count(base.network.config.image_token_id) for sample in samples
    ]
    cached = [replace(sample, features=tokens) for sample, tokens in zip(samples, features, strict=True)]
    with torch.inference_mode():
        losses = [base.network(**collate(them, pad_id, padding="right")).loss.item() for them in (samples, cached)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    read = [[replace(sample, answer_ids=()) for sample in them] for them in (samples, cached)]
    for beams in (1, 2) if kind == "nano" else (1,):  # beams know no kinds, and the published towers are slow
        settings = Generation(max_new_tokens=2, num_beams=beams)
        texts = [[reading.text for reading in decode(base.network, processor, them, settings)] for them in read]
        assert texts[0] == texts[1]


def test_pixels_that_travel_as_bytes_are_the_same_numbers(bases: dict[str, BaseModel]) -> None:
    samples, pad_id = samples_of(bases["first"], "gundam")
    before = collate(samples, pad_id, padding="right")
    moved = collate(samples, pad_id, padding="right", dtype=None)
    for name in ("pixel_values", "pixel_values_local"):
        assert moved[name].dtype is torch.uint8
        assert torch.equal(normalize_pixels(moved)[name], before[name])


def features(size: int = 4) -> Features:
    return Features(torch.arange(8.0 * size).reshape(size, 8), (2, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_entry_round_trips(dtype: torch.dtype, tmp_path: Path) -> None:
    kept = Features(features().tokens.to(dtype), (2, 3))
    FeatureStore(tmp_path, 10**6).put("aa11", kept)
    found = FeatureStore(tmp_path, 10**6).get("aa11")
    assert found is not None
    assert torch.equal(found.tokens, kept.tokens)
    assert found.grid == (2, 3)
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".safetensors"]


def test_what_a_kill_left_half_written_is_removed(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, 10**6)
    store.put("aa11", features())
    left, new = (tmp_path / "aa" / f".aa1{name}.safetensors.0a1b2c3d.tmp" for name in ("2", "3"))
    for path in (left, new):
        path.touch()
    os.utime(left, (0, 0))
    store.make_room(0, [])
    assert not left.exists()
    assert new.exists(), "another process may be writing it"
    assert store.get("aa11") is not None


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:-5], id="cut off"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[:-1] + bytes([data[-1] ^ 1]), id="one bit is another"),
        pytest.param(lambda data: b"\xff" * len(data), id="not safetensors at all"),
    ],
)
def test_a_damaged_entry_is_none_and_can_be_made_again(damage: object, tmp_path: Path) -> None:
    FeatureStore(tmp_path, 10**6).put("aa11", features())
    path = tmp_path / "aa" / "aa11.safetensors"
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    store = FeatureStore(tmp_path, 10**6)
    assert store.get("aa11") is None
    assert not path.exists()
    store.put("aa11", features())
    assert store.get("aa11") is not None


def test_an_entry_that_was_not_finished_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "aa").mkdir()
    (tmp_path / "aa" / "0123.tmp").write_bytes(b"half")
    assert FeatureStore(tmp_path, 10**6).claim(["0123", "aa11"]) == set()


def test_the_least_recently_used_entry_is_evicted(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, 0)
    keys = ["aa01", "bb02", "cc03", "dd04"]
    for age, key in enumerate(reversed(keys)):
        store.put(key, features())
        os.utime(tmp_path / key[:2] / f"{key}.safetensors", (1000 + age, 1000 + age))
    size = (tmp_path / "aa" / "aa01.safetensors").stat().st_size
    bounded = FeatureStore(tmp_path, 3 * size)
    bounded.claim(["cc03"])  # wanted now, though it was the second to be written
    bounded.make_room(size, keep=["dd04"])
    assert sorted(path.stem for path in tmp_path.rglob("*.safetensors")) == ["cc03", "dd04"]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors")) + size <= 3 * size


def test_making_room_ignores_what_another_process_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FeatureStore(tmp_path, 1)
    for key in ("aa01", "bb02"):
        store.put(key, Features(torch.zeros(1, 2)))
    listed = sorted(tmp_path.glob("??/*.safetensors"))
    listed[0].unlink()
    monkeypatch.setattr(Path, "glob", lambda path, pattern: iter(listed))
    store.make_room(0, keep=[])
    assert not listed[1].exists()


def test_a_key_changes_with_everything_that_features_depend_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = load_base("nano")
    encoder = deepseek_processor(base, None, "free_ocr")
    store = FeatureStore(tmp_path, 10**6)

    def key(content: str = "image", about: str = "", **changed: object) -> str:
        autocast = torch.bfloat16 if changed.pop("autocast", False) else None
        other = replace(encoder, **changed)  # type: ignore[arg-type]
        return FeatureCache(store, base.network, other, autocast=autocast, salt=about).key(content)

    keys = [key(), key("another image"), key(about="other code that opens images"), key(autocast=True)]
    keys.append(key(resolution=find_resolution("deepseek_ocr", "tiny")))
    assert key(prompt="<image>\nother words") == keys[0], "the towers do not see the prompt"
    monkeypatch.setattr(feature_cache, "_CODE", ("models/canvas.py",))
    keys.append(key())
    base.network.model.vision_tower.sam_encoder.layers[0].attn.qkv.weight.data[0, 0] += 1e-3
    keys.append(key())
    assert len(set(keys)) == len(keys)


def test_the_decoder_has_no_part_in_the_fingerprint() -> None:
    base = load_base("nano")
    network, processor = base.network, deepseek_processor(base, None, "free_ocr")
    before = fingerprint(network, processor)
    network.model.language_model.layers[0].self_attn.q_proj.weight.data.zero_()
    assert fingerprint(network, processor) == before


def test_frozen_weights_are_hashed_once_and_not_before_a_key_is_asked_for(
    nano: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[object] = []

    def count(network: object, processor: object) -> str:
        hashed.append(network)
        return "the weights"

    monkeypatch.setattr("dsocr.training.feature_cache.fingerprint", count)
    encoder, store = deepseek_processor(nano, None, "free_ocr"), FeatureStore(tmp_path, 0)
    first = FeatureCache(store, nano.network, encoder, autocast=None)
    other = FeatureCache(store, nano.network, encoder, autocast=torch.bfloat16, weights_hash=first.weights_hash)
    assert first.entry_bytes(72) > 0
    assert not hashed
    assert len({first.key("a"), first.key("b"), other.key("a")}) == 3
    assert len(hashed) == 1
