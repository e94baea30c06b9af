"""A sample as model inputs and labels."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from PIL import Image

from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.images import open_image
from dsocr.models.adapters import attach_adapter
from dsocr.models.canvas import show
from dsocr.models.deepseek_ocr import DeepseekProcessor, Variant, find_prompt, find_resolution
from dsocr.models.family import IGNORED
from dsocr.models.loading import BaseModel, load_base
from dsocr.models.token_batches import collate
from dsocr.models.token_family import CanvasEncoded, check_image_slots, check_labels, check_vocabulary
from tests.making_models import deepseek_processor
from tests.raising import raises_code

TEXTS = ["йод", "чернила"]


@pytest.fixture
def encoder(nano: BaseModel) -> DeepseekProcessor:
    return deepseek_processor(nano, None, "free_ocr")


def line(shade: int = 200) -> Image.Image:
    return Image.new("L", (400, 50), shade)


def test_only_the_transcription_and_the_end_token_are_learnt(encoder: DeepseekProcessor) -> None:
    texts = ["Съешь ещё", "a", "№ 7 — да!"]
    batch = collate([encoder.encode(line(), text) for text in texts], encoder.pad_id, padding="right")
    for row, text in zip(batch["labels"], texts, strict=True):
        learnt = row[row != IGNORED]
        assert encoder.tokenizer.decode(learnt[:-1]) == text
        assert learnt[-1] == encoder.tokenizer.eos_token_id
    assert (batch["labels"][batch["attention_mask"] == 0] == IGNORED).all()
    assert (batch["labels"][batch["input_ids"] == encoder.image_token_id] == IGNORED).all()
    learnt_where = batch["labels"] != IGNORED
    assert torch.equal(batch["labels"][learnt_where], batch["input_ids"][learnt_where])


def loss_of(nano: BaseModel, encoder: DeepseekProcessor, image: Image.Image, text: str, labels: str) -> float:
    batch = collate([encoder.encode(image, text)], encoder.pad_id, padding="right")
    answer = torch.tensor(encoder.answer_ids(labels))
    batch["labels"][0, -len(answer) :] = answer
    with torch.no_grad():
        return float(nano.network(**batch).loss)


def test_the_loss_depends_on_earlier_target_tokens_and_on_the_image(
    nano: BaseModel, encoder: DeepseekProcessor
) -> None:
    image = line()
    loss = loss_of(nano, encoder, image, "мама мыла", "мама мыла")
    # The same targets, but another letter has been seen before them.
    assert loss_of(nano, encoder, image, "рама мыла", "мама мыла") != pytest.approx(loss, abs=1e-4)
    assert loss_of(nano, encoder, line(20), "мама мыла", "мама мыла") != pytest.approx(loss, abs=1e-4)


def test_training_and_transcription_see_the_same_pixels_and_prompt(encoder: DeepseekProcessor, small_dataset) -> None:  # type: ignore[no-untyped-def]
    for sample in Dataset.open(small_dataset).samples(Split.TRAIN):
        learning = collate([encoder.encode(open_image(sample.image), sample.text)], encoder.pad_id, padding="right")
        reading = collate([encoder.encode(open_image(sample.image))], encoder.pad_id, padding="left")
        assert torch.equal(learning["pixel_values"], reading["pixel_values"])
        prompt = reading["input_ids"][0]
        assert torch.equal(learning["input_ids"][0, : len(prompt)], prompt)


def test_the_prompt_begins_once_and_ends_without_a_space(encoder: DeepseekProcessor) -> None:
    ids = encoder.prompt_ids()
    assert ids[0] == encoder.tokenizer.bos_token_id
    assert ids.count(encoder.image_token_id) == encoder.resolution.slots()
    assert encoder.tokenizer.decode(ids[-10:]) == "\nFree OCR."


def test_generation_pads_left_and_training_right(encoder: DeepseekProcessor) -> None:
    both = [encoder.encode(line(), "да"), encoder.encode(line(), "долгий ответ")]
    right = collate(both, encoder.pad_id, padding="right")["attention_mask"]
    left = collate(both, encoder.pad_id, padding="left")["attention_mask"]
    assert right[0, -1] == 0
    assert right[0, 0] == 1
    assert left[0, 0] == 0
    assert left[0, -1] == 1


def test_unknown_characters_are_named_once(encoder: DeepseekProcessor) -> None:
    assert encoder.unknown_characters("日本 日 да") == "日本"
    assert encoder.unknown_characters("Съешь ещё, №7 — 5 %") == ""


def test_a_batch_of_mixed_kinds_is_rejected(encoder: DeepseekProcessor) -> None:
    with raises_code("batch-mixed"):
        collate([encoder.encode(line()), encoder.encode(line(), "да")], encoder.pad_id, padding="left")


@pytest.mark.parametrize(("name", "slots"), [("tiny", 73), ("small", 111), ("base", 273), ("large", 421)])
def test_slots_of_the_published_resolutions(name: str, slots: int) -> None:
    assert find_resolution("deepseek_ocr", name).slots() == slots


def test_base_resolution_keeps_the_aspect_ratio_and_pads_grey() -> None:
    pixels = show(Image.new("L", (1000, 100), 255), find_resolution("deepseek_ocr", "base"))["pixel_values"][0]
    assert pixels.shape == (3, 1024, 1024)
    assert np.unique(pixels[:, 0, :]).tolist() == [127]
    assert pixels[0, 512, 512] == 255


def test_unknown_names_are_refused_with_the_names_there_are() -> None:
    with raises_code("resolution-unknown") as error:
        find_resolution("nano", "huge")
    assert error.value.hint is not None
    assert "wrap" in error.value.hint
    with raises_code("prompt-unknown"):
        find_prompt("read it")
    with raises_code("prompt-image"):
        find_prompt("<image><image>\nRead.")


@pytest.mark.parametrize(
    ("family", "size", "grid", "slots"),
    [
        ("deepseek_ocr", (600, 200), (1, 1), 273),
        ("deepseek_ocr", (1200, 60), (9, 1), 1183),
        ("deepseek_ocr", (1500, 1000), (3, 2), 893),
        ("deepseek_ocr", (1000, 1500), (2, 3), 903),
        ("deepseek_ocr", (900, 900), (2, 2), 693),
        ("deepseek_ocr_2", (700, 300), (1, 1), 257),
        ("deepseek_ocr_2", (1500, 120), (6, 1), 257 + 6 * 144),
        ("unlimited_ocr", (6400, 200), (32, 1), 273 + 10 * (320 + 1)),
    ],
)
def test_tiles_and_slots_of_the_published_configurations(
    family: Variant, size: tuple[int, int], grid: tuple[int, int], slots: int
) -> None:
    resolution = find_resolution(family, "gundam")
    assert resolution.grid(*size) == grid
    assert resolution.slots(grid) == slots


@hypothesis.given(st.integers(1, 4000), st.integers(1, 4000), st.sampled_from(["gundam", "gundam_vllm"]))
def test_a_grid_has_as_many_tiles_as_allowed_and_slots_for_each(width: int, height: int, name: str) -> None:
    resolution = find_resolution("deepseek_ocr", name)
    tiling = resolution.tiling
    assert tiling is not None
    columns, rows = grid = resolution.grid(width, height)
    if max(width, height) <= tiling.size:
        assert grid == (1, 1)
        assert resolution.slots(grid) == 273
    else:
        assert tiling.fewest <= columns * rows <= tiling.most
        assert resolution.slots(grid) == 273 + 10 * rows * (10 * columns + 1)


def test_tiles_are_cut_row_by_row() -> None:
    image = Image.new("RGB", (1280, 640 * 2))
    for index, place in enumerate([(0, 0), (640, 0), (0, 640), (640, 640)]):
        image.paste((50 * (index + 1),) * 3, (*place, place[0] + 640, place[1] + 640))
    tiles = show(image, find_resolution("deepseek_ocr", "gundam"))["pixel_values_local"]
    assert tiles.shape == (4, 3, 640, 640)
    assert [int(tile[0, 320, 320]) for tile in tiles] == [50, 100, 150, 200]


def test_a_batch_mixes_tiled_and_untiled_images(nano: BaseModel) -> None:
    nano_encoder = deepseek_processor(nano, None, "free_ocr")
    encoder = replace(nano_encoder, image_token_id=3, resolution=find_resolution("deepseek_ocr", "gundam"))
    samples = [encoder.encode(line()), encoder.encode(Image.new("L", (1300, 600), 200))]
    batch = collate(samples, encoder.pad_id, padding="left")
    assert batch["num_local_patches"] == [0, 2]
    assert batch["patches_grid"] == [[1, 1], [2, 1]]
    assert batch["pixel_values_local"].shape == (2, 3, 640, 640)
    assert (batch["input_ids"] == 3).sum(dim=1).tolist() == [273, 273 + 10 * 21]
    second = replace(encoder, resolution=find_resolution("deepseek_ocr_2", "gundam"))
    assert "patches_grid" not in collate([second.encode(Image.new("L", (1300, 600)))], 2, padding="left")


@pytest.mark.parametrize("kind", ["deepseek_ocr", "deepseek_ocr_2"])
def test_images_are_encoded_one_by_one_unless_their_towers_are_trained(kind: str, bases: dict[str, str]) -> None:
    base = load_base(bases[kind])
    family: Any = base.family
    encoder, network = deepseek_processor(base, "gundam", "free_ocr"), base.network
    images = [line(), Image.effect_noise((1300, 600), 90), Image.effect_noise((600, 1300), 60)]
    batch = collate([encoder.encode(image, "ab") for image in images], encoder.pad_id, padding="right")
    seen: list[int] = []
    hook = network.model.vision_tower.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    with torch.no_grad():
        encoded = family.encode_images(network, batch)
        whole = network(**batch).logits
    hook.remove()
    assert seen == [1, 1, 2, 1, 2, 3, 4]
    assert "pixel_values" not in encoded
    assert torch.allclose(network(**encoded).logits, whole, atol=1e-4)
    # In training pixels are float32, and accelerate casts inside of `forward` alone.
    features = family.encode_images(network.to(torch.bfloat16), batch)["mm_encoder_outputs"]["image"]
    assert {image.dtype for image in features.pooler_output} == {torch.bfloat16}
    network.float()
    model = attach_adapter(network, base=bases[kind], revision=None, target_modules="decoder+vision", r=2, alpha=2)
    assert family.encode_images(model, batch) is batch


@pytest.mark.parametrize(
    ("name", "size", "factor"),
    [("base", (1200, 60), 1.0), ("tiny", (1200, 60), 20.0), ("gundam", (1200, 60), 20 / 9), ("gundam", (600, 60), 1.0)],
)
def test_distortion_of_a_line_strip(name: str, size: tuple[int, int], factor: float) -> None:
    assert find_resolution("deepseek_ocr", name).distortion(*size) == pytest.approx(factor)


# Checks of samples before training: labels, ids and image slots that do not belong to the base


@pytest.fixture
def samples(encoder: DeepseekProcessor) -> list[CanvasEncoded]:
    return [encoder.encode(Image.new("L", (200, 60), 240), text) for text in TEXTS]


def test_details_name_special_tokens_and_count_slots(encoder: DeepseekProcessor, samples: list[CanvasEncoded]) -> None:
    check = check_labels(encoder.collate(samples), samples, TEXTS, encoder)
    assert check.verdict == "ok"
    masked, trained = (line.split(maxsplit=2) for line in check.details[:2])
    assert masked == ["masked", "84", "<begin>|73 x <image>|\\n|F|r|e|e| |O|C|R|."]
    assert trained == ["trained", "4", "й|о|д|<end>"]


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        pytest.param(lambda ids, answer: [IGNORED] * len(ids), "nothing is learnt", id="all masked"),
        pytest.param(lambda ids, answer: ids, "the published mistake: labels are the input ids", id="all learnt"),
        pytest.param(lambda ids, answer: answer[:-1], "the end is not learnt", id="no end"),
        pytest.param(lambda ids, answer: [*answer, answer[-1]], "it is learnt twice", id="two ends"),
        pytest.param(lambda ids, answer: [answer[1], answer[0], *answer[2:]], "it is another text", id="another text"),
    ],
)
def test_labels_must_be_the_text_and_its_end(
    labels: Callable[[list[int], list[int]], list[int]],
    reason: str,
    encoder: DeepseekProcessor,
    samples: list[CanvasEncoded],
) -> None:
    ids, answer = [*samples[0].prompt_ids, *samples[0].answer_ids], [*samples[0].answer_ids]
    batch = {"labels": torch.tensor([labels(ids, answer)])}
    assert check_labels(batch, samples[:1], TEXTS[:1], encoder).verdict == "error", reason


def test_foreign_ids_and_too_few_image_slots_are_refused(
    nano: BaseModel, encoder: DeepseekProcessor, samples: list[CanvasEncoded]
) -> None:
    assert check_vocabulary(samples, 240).verdict == "ok"
    assert check_vocabulary(samples, 10).verdict == "error"
    assert check_image_slots(nano.network, samples, encoder).verdict == "ok"
    samples[0] = replace(samples[0], prompt_ids=samples[0].prompt_ids[6:])
    check = check_image_slots(nano.network, samples, encoder)
    assert check.verdict == "error"
    assert "141" in check.message
