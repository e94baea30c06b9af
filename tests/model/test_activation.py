"""Adapters that begin behind the image: the same numbers as PEFT's own, kept or computed, and only behind the image."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from PIL import Image
from torch import Tensor

from dsocr.inference.decoding import decode
from dsocr.inference.generation import Generation
from dsocr.inference.spans import Pieces
from dsocr.model.activation import image_states
from dsocr.model.adapters import adapter_tensors, attach_adapter, load_adapter, load_tensors, save_adapter
from dsocr.model.collating import ImageStates, collate, only_learnt
from dsocr.model.encoding import Encoded, Encoder
from dsocr.model.loading import BaseModel, load_base
from dsocr.model.vision_cache import vision_features
from tests.making_models import write_first, write_second

PROMPT = "<image>\nБВГ"
TEXTS = ["ДЕЖ", "АБВГД", "Е"]
Writing = Callable[[Path], Path]


def made(base: BaseModel, encoder: Encoder, seed: int = 1) -> PeftModel:
    """An adapter that begins behind the image, whose every tensor is random, as if it had been trained."""
    words = encoder.words_behind_image
    model = attach_adapter(
        base.network,
        base=base.network.name_or_path,
        revision=None,
        scope="decoder",
        rank=4,
        alpha=8,
        variant="alora",
        invoked_by=words,
    )
    generator = torch.Generator().manual_seed(seed)
    for tensor in adapter_tensors(model).values():
        tensor.data.copy_(0.2 * torch.randn(tensor.shape, generator=generator))
    return model


def made_by_peft(base: BaseModel, encoder: Encoder, ours: PeftModel) -> PeftModel:
    """The same adapter with PEFT's own activated layers."""
    config = ours.peft_config["default"]
    model = get_peft_model(
        base.network,
        LoraConfig(
            r=config.r,
            lora_alpha=config.lora_alpha,
            target_modules=config.target_modules,
            task_type="CAUSAL_LM",
            alora_invocation_tokens=list(encoder.words_behind_image),
        ),
    )
    tensors = {name: tensor.clone() for name, tensor in adapter_tensors(ours).items()}
    load_tensors(model, tensors, where="PEFT")
    return model.eval()


def shown(encoder: Encoder, *, wide: bool = False, texts: list[str] | None = None) -> list[Encoded]:
    """Samples with a transcription, or without where `texts` is empty."""
    rng = np.random.default_rng(0)
    sizes = [(60, 300), (60, 240), (300, 60)] if not wide else [(60, 300), (900, 1800), (1500, 1500)]
    images = [Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)) for size in sizes]
    if texts is None:
        return [encoder.encode(image) for image in images]
    return [encoder.encode(image, text) for image, text in zip(images, texts, strict=True)]


def batch_of(encoder: Encoder, **settings: Any) -> dict[str, Any]:
    return collate(shown(encoder, texts=TEXTS, **settings), encoder.pad_id, padding="right")


@torch.no_grad()
def loss_of(network: Any, batch: dict[str, Any]) -> float:
    return float(network(**batch).loss)


def gradients(model: PeftModel) -> dict[str, Tensor]:
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            found[name.removeprefix("base_model.model.")] = parameter.grad.clone()
    return found


def opened(write: Writing | None, folder: Path) -> tuple[BaseModel, str | None]:
    """A base and the resolution that is tried with it; None is nano."""
    if write is None:
        return load_base("nano"), None
    return load_base(str(write(folder))), "tiny" if write is write_first else "small"


@pytest.mark.parametrize("learnt", [False, True], ids=["all logits", "logits where something is learnt"])
@pytest.mark.parametrize("write", [None, write_first, write_second], ids=["nano", "DeepSeek-OCR", "DeepSeek-OCR-2"])
def test_losses_and_gradients_are_those_of_pefts_own(write: Writing | None, learnt: bool, tmp_path: Path) -> None:
    base, resolution = opened(write, tmp_path)
    encoder = base.encoder(resolution, PROMPT)
    ours = made(base, encoder)
    batch = batch_of(encoder)
    batch = only_learnt(batch) if learnt else batch
    answer = ours(**batch)
    answer.loss.backward()
    theirs = made_by_peft(opened(write, tmp_path)[0], encoder, ours)
    expected = theirs(**batch)
    expected.loss.backward()
    torch.testing.assert_close(answer.loss, expected.loss, rtol=1e-6, atol=1e-6)
    if not learnt:  # else there are logits that nobody asked for, to fill short rows
        length = answer.logits.shape[1]
        torch.testing.assert_close(answer.logits, expected.logits[:, -length:], rtol=1e-5, atol=1e-5)
    found, wanted = gradients(ours), gradients(theirs)
    assert found.keys() == wanted.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-3, atol=1e-5)


def test_it_is_neither_the_base_nor_an_adapter_that_acts_everywhere() -> None:
    base = load_base("nano")
    encoder = base.encoder(None, PROMPT)
    batch = batch_of(encoder)
    alone = loss_of(base.network, batch)
    ours = made(base, encoder)
    behind = loss_of(ours, batch)
    with ours.disable_adapter():
        off = loss_of(ours, batch)
    everywhere = attach_adapter(load_base("nano").network, base="nano", revision=None, scope="decoder", rank=4, alpha=8)
    load_tensors(everywhere, adapter_tensors(ours), where="a test")
    acting = loss_of(everywhere, batch)
    assert off == pytest.approx(alone, abs=1e-6)
    assert abs(behind - alone) > 1e-3
    assert abs(behind - acting) > 1e-3


@pytest.mark.parametrize("learnt", [False, True], ids=["all logits", "logits where something is learnt"])
def test_kept_states_give_what_pixels_give(learnt: bool) -> None:
    base = load_base("nano")
    encoder = base.encoder(None, PROMPT)
    ours = made(base, encoder)
    samples = shown(encoder, texts=TEXTS)
    states = image_states(ours, samples, encoder.pad_id, None)
    assert states[0].shape == (3, 2, 5, len(samples[0].prompt_ids) - len(encoder.words_behind_image), 32)
    seen = collate(samples, encoder.pad_id, padding="right")
    kept = {name: value for name, value in seen.items() if not name.startswith("pixel")}
    kept["mm_encoder_outputs"] = {"image": ImageStates(states)}
    seen, kept = (only_learnt(batch) if learnt else batch for batch in (seen, kept))
    ours(**seen).loss.backward()
    wanted = gradients(ours)
    ours.zero_grad(set_to_none=True)
    ours(**kept).loss.backward()
    for name, gradient in gradients(ours).items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("write", [write_first, write_second], ids=["DeepSeek-OCR", "DeepSeek-OCR-2"])
@pytest.mark.parametrize("kept", [False, True], ids=["pixels", "kept states"])
def test_images_may_take_more_slots_in_some_rows(write: Writing, kept: bool, tmp_path: Path) -> None:
    base = load_base(str(write(tmp_path)))
    encoder = base.encoder("gundam", PROMPT)
    ours = made(base, encoder)
    samples = shown(encoder, wide=True, texts=TEXTS)
    assert len({len(sample.prompt_ids) for sample in samples}) > 1
    singly = [loss_of(ours, collate([sample], encoder.pad_id, padding="right")) for sample in samples]
    batch = collate(samples, encoder.pad_id, padding="right")
    if kept:
        states = ImageStates(image_states(ours, samples, encoder.pad_id, None))
        names = ("input_ids", "attention_mask", "labels")
        batch = {name: batch[name] for name in names} | {"mm_encoder_outputs": {"image": states}}
    counts = [len(sample.answer_ids) for sample in samples]
    mean = sum(loss * count for loss, count in zip(singly, counts, strict=True)) / sum(counts)
    assert loss_of(ours, batch) == pytest.approx(mean, abs=1e-5)
    assert loss_of(ours, only_learnt(batch)) == pytest.approx(mean, abs=1e-5)


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("write", [None, write_first, write_second], ids=["nano", "DeepSeek-OCR", "DeepSeek-OCR-2"])
def test_what_is_read_is_what_scoring_finds_likeliest(write: Writing | None, beams: int, tmp_path: Path) -> None:
    base, resolution = opened(write, tmp_path)
    encoder = base.encoder(resolution, PROMPT)
    ours = made(base, encoder)
    samples = shown(encoder)
    generation = Generation(max_new_tokens=6, no_repeat_ngram_size=0, beams=beams)
    readings = decode(ours, encoder, samples, generation)
    theirs = made_by_peft(opened(write, tmp_path)[0], encoder, ours)
    for sample, reading in zip(samples, readings, strict=True):
        again = decode(ours, encoder, [sample], generation)[0]
        assert again.text == reading.text
        if beams > 1:
            continue
        ids = list(sample.prompt_ids)
        for _ in range(reading.tokens):
            row = Encoded((*ids,), (), sample.views, sample.stitches_tiles)
            with torch.inference_mode():
                logits = theirs(**collate([row], encoder.pad_id, padding="right")).logits[0, -1]
            ids.append(int(logits.argmax()))
        written = ids[len(sample.prompt_ids) :]
        assert Pieces(encoder.tokenizer).text([token for token in written if token != encoder.end_id]) == reading.text


def test_it_comes_back_from_the_disk_as_peft_has_it(tmp_path: Path) -> None:
    base = load_base("nano")
    encoder = base.encoder(None, PROMPT)
    ours = made(base, encoder)
    save_adapter(ours, tmp_path)
    batch = batch_of(encoder)
    with torch.no_grad():
        expected = ours.eval()(**batch).logits
        again = load_adapter(load_base("nano").network, tmp_path)
        torch.testing.assert_close(again(**batch).logits, expected, rtol=0, atol=0)
        peft = PeftModel.from_pretrained(load_base("nano").network, str(tmp_path)).eval()
        length = expected.shape[1]
        torch.testing.assert_close(peft(**batch).logits[:, -length:], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("kept", ["features", "states"])
def test_what_is_kept_is_read_as_pixels_are(kept: str, beams: int) -> None:
    base = load_base("nano")
    encoder = base.encoder(None, PROMPT)
    ours = made(base, encoder)
    samples = shown(encoder)
    generation = Generation(max_new_tokens=6, no_repeat_ngram_size=0, beams=beams)
    if kept == "states":
        seen = image_states(ours, samples, encoder.pad_id, None)
    else:
        seen = vision_features(base.network, samples, encoder.pad_id, None)
    taken = [replace(sample, features=one) for sample, one in zip(samples, seen, strict=True)]
    expected = [reading.text for reading in decode(ours, encoder, samples, generation)]
    assert [reading.text for reading in decode(ours, encoder, taken, generation)] == expected
