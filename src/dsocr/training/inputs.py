"""Whether the model is fed what it wants: begin token, image slots, and the same for training and for reading."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from peft import PeftModel

from dsocr.data.images import open_image
from dsocr.model.collating import IGNORED, collate
from dsocr.model.encoding import Encoded, Encoder
from dsocr.samples import Sample
from dsocr.training.verdicts import Check

_OURS = "this is no setting of yours: the base's files are not what its config.json says, or the code is wrong"


def check_prompt(batch: Mapping[str, Any], encoder: Encoder, vocabulary: int) -> Check:
    """Whether each row of a training batch begins with the begin token, once, and has only ids that the base knows."""
    begin = int(encoder.tokenizer.bos_token_id)
    ids = batch["input_ids"]
    if not bool((ids[:, 0] == begin).all()) or not bool(((ids == begin).sum(1) == 1).all()):
        return Check("begin token", "refused", "not every sample begins with the begin token, and has it once", _OURS)
    if int(ids.max()) >= vocabulary:
        message = f"the tokenizer writes id {int(ids.max())}, and the base has {vocabulary} tokens"
        return Check("begin token", "refused", message, "the tokenizer is another base's: download the base again")
    name = encoder.tokenizer.decode([begin], skip_special_tokens=False)
    return Check("begin token", "ok", f"each sample begins with {name}, once")


@torch.no_grad()
def check_slots(model: PeftModel, batch: Mapping[str, Any], encoder: Encoder) -> Check:
    """Whether there are as many image slots in the ids as the vision towers make features."""
    model.eval()
    images = {name: value for name, value in batch.items() if name not in ("input_ids", "attention_mask", "labels")}
    made = model.get_image_features(**images).pooler_output
    width = model.config.text_config.hidden_size
    features = sum(part.numel() for part in made) // width
    slots = int((batch["input_ids"] == encoder.image_token_id).sum())
    if features != slots:
        message = f"there are {slots} image slots for {features} features: what is seen would be cut or misplaced"
        return Check("image slots", "refused", message, _OURS)
    return Check("image slots", "ok", f"{slots} image slots for as many features, in {len(batch['input_ids'])} samples")


def check_reading_alike(samples: Sequence[Sample], trained_on: Sequence[Encoded], encoder: Encoder) -> Check:
    """Whether reading an image gives the pixels and prompt ids that training has, without augmentation."""
    for sample, learnt in zip(samples, trained_on, strict=True):
        read = encoder.encode(open_image(sample.image))
        ours = collate([learnt], encoder.pad_id, padding="right")
        theirs = collate([read], encoder.pad_id, padding="left")
        pixels = [name for name in theirs if name.startswith("pixel_values")]
        same = torch.equal(ours["input_ids"][ours["labels"] == IGNORED], theirs["input_ids"][0])
        if not same or not all(torch.equal(ours[name], theirs[name]) for name in pixels):
            message = f"{sample.id} is trained on with other pixels or another prompt than it is read with"
            return Check("read alike", "refused", message, _OURS)
    return Check(
        "read alike", "ok", f"{len(samples)} samples have the same pixels and prompt when trained on and when read"
    )
