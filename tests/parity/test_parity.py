"""The authors' code and this one give the same pixels, logits and losses, from the picture on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dsocr.models.deepseek_ocr import DeepseekProcessor
from dsocr.models.loading import BaseModel, load_base
from dsocr.models.token_batches import collate
from tests.making_models import deepseek_processor
from tests.parity.rules import SHIPPED, Fixture, picture

PIXELS, LOGITS, LOSS = 0.0, 2e-5, 1e-5


class Compared:
    """A fixture and the base that its checkpoint was loaded as."""

    def __init__(self, stem: Path, folder: Path) -> None:
        self.fixture = Fixture.read(stem)
        self.fixture.write_checkpoint(folder)
        self.base: BaseModel = load_base(str(folder))

    def encoder(self, case: dict[str, Any]) -> DeepseekProcessor:
        resolution = "gundam" if case["crop"] else {512: "tiny", 768: "small", 1024: "base"}[case["size"]]
        return deepseek_processor(self.base, resolution, "<image>" + self.fixture.text(case["prompt"]))

    def batch(self, case: dict[str, Any]) -> dict[str, Any]:
        encoder = self.encoder(case)
        encoded = encoder.encode(picture(case), self.fixture.text(case["answer"]))
        return collate([encoded], encoder.pad_id, padding="right")


@pytest.fixture(scope="module", params=SHIPPED, ids=lambda stem: stem.name)
def compared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    return Compared(request.param, tmp_path_factory.mktemp("parity"))


def pooled(pixels: torch.Tensor, side: int) -> np.ndarray[Any, Any]:
    return np.asarray(torch.nn.functional.avg_pool2d(pixels, side))


def test_the_checkpoint_is_recognised_and_its_code_is_not_run(compared: Compared) -> None:
    assert compared.base.family.name == ("deepseek_ocr_2" if compared.fixture.is_second else "deepseek_ocr")
    assert type(compared.base.network).__module__.startswith("transformers.models.")


def test_pixels_and_ids_are_the_authors(compared: Compared) -> None:
    for number, case in enumerate(compared.fixture.numbers["cases"]):
        batch = compared.batch(case)
        ids = [0, *[compared.fixture.numbers["image_token_id"]] * case["image_tokens"], *case["prompt"]]
        assert batch["input_ids"][0].tolist() == [*ids, *case["answer"], 1]
        assert batch["labels"][0].tolist() == [*[-100] * len(ids), *case["answer"], 1]
        view = pooled(batch["pixel_values"], 16)[0]
        assert np.abs(view - compared.fixture.answers[f"{number}_view"].reshape(view.shape)).max() <= PIXELS
        if not case["num_tiles"]:
            assert "pixel_values_local" not in batch
            continue
        assert batch["num_local_patches"] == [case["num_tiles"]]
        assert batch.get("patches_grid", [case["grid"]]) == [case["grid"]]
        tiles = pooled(batch["pixel_values_local"], 32)
        assert np.abs(tiles - compared.fixture.answers[f"{number}_tiles"].reshape(tiles.shape)).max() <= PIXELS


@pytest.mark.slow
def test_logits_and_losses_are_the_authors(compared: Compared) -> None:
    for number, case in enumerate(compared.fixture.numbers["cases"]):
        with torch.inference_mode():
            output = compared.base.network(**compared.batch(case))
        expected = compared.fixture.answers[f"{number}_logits"]
        expected = expected.reshape(-1, expected.shape[-1])
        logits = output.logits[0, -len(expected) :].float().numpy()
        assert np.abs(logits - expected).max() <= LOGITS
        assert float(output.loss) == pytest.approx(case["loss"], abs=LOSS)
