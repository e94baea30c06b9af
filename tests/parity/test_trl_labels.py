"""TRL's collator as the oracle of the labels of chat models; needs the package `trl`, which is no dependency."""

from pathlib import Path

import pytest
import torch

from dsocr.models.chat_inputs import ChatProcessor
from dsocr.models.family import IGNORED
from dsocr.models.loading import load_base
from dsocr.models.token_batches import collate
from tests.models.chat_models import draw_text, write_chat_model

pytest.importorskip("trl")

TEXTS = ["Мир, 25", "a", "ёж 25 the end"]


# TRL gives GOT-OCR2's processor nested images, which it does not take, and SmolVLM's needs torchvision.
@pytest.mark.filterwarnings("ignore:__array__ implementation")  # GLM-OCR's processor, given tensors as TRL does
@pytest.mark.parametrize("model_type", ["qwen2_5_vl", "qwen3_vl", "lighton_ocr", "paddleocr_vl", "glm_ocr"])
def test_labels_are_those_of_trl(model_type: str, tmp_path: Path) -> None:
    from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

    base = load_base(str(write_chat_model(tmp_path / "base", model_type)))
    processor = base.processor(None, "Read this.")
    assert isinstance(processor, ChatProcessor)
    question = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Read this."}]}
    examples = [
        {
            "images": [draw_text(text).convert("RGB")],
            "prompt": [question],
            "completion": [{"role": "assistant", "content": [{"type": "text", "text": text}]}],
        }
        for text in TEXTS
    ]
    theirs = DataCollatorForVisionLanguageModeling(processor.transformers, completion_only_loss=True)(examples)
    ours = collate([processor.encode(draw_text(text), text) for text in TEXTS], processor.pad_id, padding="right")
    for name in ours.keys() - {"input_ids", "labels", "attention_mask", "mm_token_type_ids"}:
        assert torch.equal(theirs[name], ours[name]), name
    for row in range(len(TEXTS)):
        prompts, labels = [], []
        for batch in (theirs, ours):
            learnt = batch["labels"][row] != IGNORED
            masked = batch["attention_mask"][row].bool() & ~learnt
            prompts.append(batch["input_ids"][row][masked].tolist())
            labels.append(batch["labels"][row][learnt].tolist())
        assert prompts[0] == prompts[1]
        if model_type == "glm_ocr":  # its template writes no end, so that TRL trains none
            assert labels[1] == [*labels[0], processor.end_id]
            continue
        count = len(labels[1])
        assert labels[0][:count] == labels[1]
        # TRL also trains the line break that templates write after the end token, which nobody generates.
        assert processor.tokenizer.decode(labels[0][count:]).strip() == ""
        place = int((theirs["labels"][row] != IGNORED).nonzero()[0]) + count
        theirs["labels"][row, place:] = IGNORED
    if model_type != "glm_ocr":
        with torch.no_grad():
            expected = float(base.network(**theirs).loss)
            assert float(base.network(**ours).loss) == pytest.approx(expected, rel=1e-6)
