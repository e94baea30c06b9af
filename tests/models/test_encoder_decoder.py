"""Image encoders with a text decoder: what they see, what they learn, and how they are read."""

import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from tokenizers import pre_tokenizers
from transformers import VisionEncoderDecoderModel
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from dsocr.config import RunConfig
from dsocr.models.encoder_decoder import EncoderDecoderProcessor
from dsocr.models.generation import Generation
from dsocr.models.loading import BaseModel, load_base, load_processor
from dsocr.models.token_family import CanvasEncoded
from dsocr.training.preview import text_limit
from tests.models.encoder_decoder_models import write_donut, write_trocr
from tests.raising import raises_code


@pytest.fixture(scope="module")
def trocr(tmp_path_factory: pytest.TempPathFactory) -> BaseModel:
    return load_base(str(write_trocr(tmp_path_factory.mktemp("trocr"))))


@pytest.fixture(scope="module")
def donut(tmp_path_factory: pytest.TempPathFactory) -> BaseModel:
    return load_base(str(write_donut(tmp_path_factory.mktemp("donut"))))


def processor_of(base: BaseModel, resolution: str | None = None) -> EncoderDecoderProcessor:
    processor = base.processor(resolution, "")
    assert isinstance(processor, EncoderDecoderProcessor)
    return processor


def line(width: int = 500, height: int = 50) -> Image.Image:
    image = Image.new("RGB", (width, height), (250, 240, 230))
    ImageDraw.Draw(image).text((10, 5), "Привет, мир", fill=(20, 30, 40), font_size=height // 2)
    return image


def samples_of(base: BaseModel, texts: list[str]) -> tuple[EncoderDecoderProcessor, list[CanvasEncoded]]:
    processor = processor_of(base)
    return processor, [processor.encode(line(200 + 40 * len(text)), text) for text in texts]


def test_the_projection_of_what_is_seen_belongs_to_the_vision(trocr: BaseModel) -> None:
    for name in ("encoder.layer.0.attention.query.weight", "base_model.model.enc_to_dec_proj.bias"):
        assert trocr.family.is_vision(name)
    assert not trocr.family.is_vision("decoder.model.decoder.layers.0.encoder_attn.q_proj.weight")


def test_squash_is_what_the_checkpoints_own_processor_makes(trocr: BaseModel) -> None:
    processor = processor_of(trocr, "squash")
    batch = trocr.family.prepare_batch(processor.collate([processor.encode(line())]))
    own = ViTImageProcessorPil.from_pretrained(trocr.folder)(line(), return_tensors="pt")["pixel_values"]
    assert torch.allclose(batch["pixel_values"], own, atol=1e-5)


def test_no_line_is_squashed_in_silence(trocr: BaseModel, donut: BaseModel) -> None:
    assert processor_of(trocr).resolution_name == "wrap"
    assert processor_of(donut).resolution_name == "pad"
    for base, names, squashed in ((trocr, ("wrap", "pad"), 10.0), (donut, ("pad",), 5.0)):
        for name in names:
            assert processor_of(base, name).distortion(960, 96) == 1
        assert processor_of(base, "squash").distortion(960, 96) == pytest.approx(squashed)
    with raises_code("resolution-unknown"):
        processor_of(donut, "wrap")
    with raises_code("prompt-unsupported"):
        trocr.processor(None, "<image>\nRead it.")


def test_pad_keeps_the_shape_and_centres_it(trocr: BaseModel) -> None:
    black = Image.new("RGB", (400, 100), (0, 0, 0))
    canvas = processor_of(trocr, "pad").encode(black).pixels()
    ink = np.argwhere(canvas[..., 0] < 60)
    (top, left), (bottom, right) = ink.min(0), ink.max(0) + 1
    assert (right - left, bottom - top) == (96, 24)
    assert (left, top) == (0, 36)


@pytest.mark.parametrize("resolution", ["wrap", "pad", "squash"])
def test_shrinking_first_changes_little(resolution: str, trocr: BaseModel) -> None:
    processor, image = processor_of(trocr, resolution), line(3000, 300)
    small = processor.shrink(image)
    assert small.height < image.height
    whole, shrunk = (processor.encode(one).pixels().astype(int) for one in (image, small))
    assert np.abs(whole - shrunk).mean() < 4
    assert processor.shrink(small) is small


@pytest.mark.parametrize("name", ["trocr", "donut"])
def test_loss_is_the_classes_own(name: str, request: pytest.FixtureRequest) -> None:
    base: BaseModel = request.getfixturevalue(name)
    processor, samples = samples_of(base, ["Привет, мир", "ab", "1905 г."])
    batch = base.family.prepare_batch(processor.collate(samples))
    count = (batch["labels"] >= 0).sum()
    network: Any = base.network
    own = VisionEncoderDecoderModel.from_pretrained(base.folder)
    own.config.decoder_start_token_id, own.config.pad_token_id = processor.start_id, processor.pad_id
    with torch.no_grad():
        expected = own.eval()(pixel_values=batch["pixel_values"], labels=batch["labels"]).loss
        assert torch.allclose(base.family.loss(network, batch, count), expected, atol=1e-6)
    losses = base.family.sample_losses(network, batch)
    counts = (batch["labels"] >= 0).sum(1)
    assert sum(loss * int(n) for loss, n in zip(losses, counts, strict=True)) == pytest.approx(
        float(expected * count), rel=1e-5
    )


def test_labels_are_the_texts_with_their_end(trocr: BaseModel) -> None:
    texts = ["Привет, мир", "x", "№ 7"]
    processor, samples = samples_of(trocr, texts)
    (check,) = trocr.family.check_inputs(trocr.network, processor, samples, texts)
    assert check.verdict == "ok"
    (check,) = trocr.family.check_inputs(trocr.network, processor, samples, ["another", *texts[1:]])
    assert check.verdict == "error"
    other = replace(processor, end_ids=(processor.pad_id,))
    (check,) = trocr.family.check_inputs(trocr.network, other, samples, texts)
    assert check.verdict == "error"
    assert processor.unknown_characters("ab漢字漢") == "漢字"


@pytest.mark.parametrize("name", ["trocr", "donut"])
def test_reading_gives_the_probability_of_each_token(name: str, request: pytest.FixtureRequest) -> None:
    base: BaseModel = request.getfixturevalue(name)
    processor, samples = samples_of(base, ["abc", "d"])
    network: Any = base.network
    generation = Generation(max_new_tokens=7, no_repeat_ngram_size=0)
    greedy = base.family.decode(network, processor, [sample.without_text() for sample in samples], generation)
    own = network.generate(
        processor.on_device(processor.collate(samples), network)["pixel_values"], max_new_tokens=7, do_sample=False
    )[:, 1:]
    for decoded, sample, ids in zip(greedy, samples, own.tolist(), strict=True):
        wanted = ids[: ids.index(processor.end_id)] if processor.end_id in ids else ids
        assert decoded.text == processor.text_of(wanted).removeprefix("<s>")
        assert decoded.tokens == len(decoded.scores)
        batch = processor.collate([replace(sample, answer_ids=tuple(ids[: decoded.tokens]))])
        logits = processor.family.logits(network, base.family.prepare_batch(batch))[0]
        expected = logits.log_softmax(-1).gather(1, torch.tensor(ids[: decoded.tokens])[:, None])[:, 0]
        assert [score.log_probability for score in decoded.scores] == pytest.approx(expected.tolist(), abs=1e-4)
    beams = base.family.decode(network, processor, samples, replace(generation, num_beams=3))
    for one, best in zip(greedy, beams, strict=True):
        assert best.scores
        means = [sum(s.log_probability for s in d.scores) / len(d.scores) for d in (one, best)]
        assert means[1] >= means[0] - 1e-4


def test_texts_longer_than_the_decoder(trocr: BaseModel) -> None:
    processor, (sample,) = samples_of(trocr, ["a" * 64])
    with raises_code("text-too-long"):
        processor.collate([sample])
    generation = Generation(max_new_tokens=500, no_repeat_ngram_size=0)
    network: Any = trocr.network
    (decoded,) = trocr.family.decode(network, processor, [sample.without_text()], generation)
    assert decoded.tokens <= 63


def test_the_decoder_limits_texts_as_the_settings_do(trocr: BaseModel, tmp_path: Path) -> None:
    for given, expected in ((500, 63), (20, 20)):
        settings = {"dataset": tmp_path, "output": tmp_path / "run", "training": {"max_text_tokens": given}}
        assert text_limit(processor_of(trocr), RunConfig.model_validate(settings)) == expected


def test_start_end_and_pad_are_found_where_they_are(tmp_path: Path) -> None:
    folder = write_trocr(tmp_path / "base")
    assert [load(folder).start_id, load(folder).end_id, load(folder).pad_id] == [2, 2, 1]
    change(folder / "config.json", lambda config: config.pop("decoder_start_token_id"))
    change(folder / "config.json", lambda config: config["decoder"].pop("decoder_start_token_id"))
    (folder / "generation_config.json").write_text('{"decoder_start_token_id": 5}', encoding="utf-8")
    assert load(folder).start_id == 5
    (folder / "generation_config.json").unlink()
    assert load(folder).start_id == 0, "the tokenizer's begin token"
    network: Any = load_base(str(folder)).network
    ids = network.generation_config
    assert (ids.decoder_start_token_id, ids.eos_token_id, ids.pad_token_id) == (0, 2, 1)
    change(folder / "tokenizer_config.json", lambda tokens: tokens.pop("bos_token"))
    with raises_code("base-incomplete"):
        load(folder)


def change(path: Path, how: Callable[[Any], object]) -> None:
    """Change a JSON file."""
    how(content := json.loads(path.read_text(encoding="utf-8")))
    path.write_text(json.dumps(content), encoding="utf-8")


def load(folder: Path) -> EncoderDecoderProcessor:
    processor = load_processor(str(folder), None, "")
    assert isinstance(processor, EncoderDecoderProcessor)
    return processor


@pytest.mark.parametrize(
    ("name", "value"),
    [("image_mean", [0.5]), ("image_mean", "x"), ("image_mean", {"a": 3}), ("image_std", [0.5, 0, 0.5])],
)
def test_image_settings_that_were_damaged_by_hand(tmp_path: Path, name: str, value: object) -> None:
    folder = write_trocr(tmp_path / "base")
    change(folder / "preprocessor_config.json", lambda settings: settings.update({name: value}))
    with raises_code("base-damaged", "base"):
        load(folder)


def test_the_files_of_a_byte_level_tokenizer_as_trocr_is_published(tmp_path: Path) -> None:
    folder = write_trocr(tmp_path / "base")
    (folder / "tokenizer.json").unlink()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *letters, "<mask>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "sep_token": "</s>"}
    tokens = {**names, "cls_token": "<s>", "mask_token": "<mask>", "tokenizer_class": "RobertaTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens), encoding="utf-8")
    change(folder / "config.json", lambda config: config["decoder"].update(vocab_size=len(vocabulary)))
    processor = pickle.loads(pickle.dumps(load(folder)))  # as it is sent to worker processes
    text = "Привет  <s> № 漢"
    assert processor.text_of(processor.text_ids(text)) == text
    assert processor.unknown_characters(text) == ""
    assert processor.encode(line(), text).answer_ids == (*processor.text_ids(text), 2)


def test_checkpoints_with_missing_files(tmp_path: Path) -> None:
    folder = write_trocr(tmp_path / "base")

    damages: dict[str, Callable[[Path], object]] = {
        "preprocessor_config.json": Path.unlink,
        "tokenizer.json": Path.unlink,
        "config.json": partial(change, how=lambda config: config["encoder"].pop("image_size")),
        "./config.json": partial(change, how=lambda config: config["decoder"].update(vocab_size=50)),
    }
    for name, damage in damages.items():
        copy = Path(shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True))
        damage(copy / name)
        with raises_code("base-incomplete"):
            load(copy)
