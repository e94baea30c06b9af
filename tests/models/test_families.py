"""Any family goes through the whole product; the one in `toy_family.py` is a single file."""

from pathlib import Path

import pytest

import dsocr
from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.images import open_image
from dsocr.models.family import recognize
from dsocr.runs import RunFolder
from dsocr.server.engine import ServedModels
from dsocr.training.train import train
from tests.models import toy_family
from tests.raising import raises_code


@pytest.fixture(scope="module")
def run(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("toy")
    config = RunConfig.model_validate(
        {
            "base": str(toy_family.write_base(folder / "base")),
            "dataset": small_dataset,
            "output": folder / "run",
            "guard": {"lines": 0},
            "training": {"max_steps": 4, "batch_size": 4, "micro_batch_size": 2},
            "validation": {"every_steps": 4},
        }
    )
    return train(config, preflight=False).run


def test_a_family_in_one_file_is_trained_scored_read_served_and_exported(
    run: RunFolder, small_dataset: Path, tmp_path: Path
) -> None:
    assert recognize(run.adapter).name == "toy"
    sample = Dataset.open(small_dataset).samples(Split.TEST)[0]
    image = open_image(sample.image)
    text = dsocr.load(run.path).read(image).text

    card = dsocr.Run(run.path).evaluate()
    assert card.adapter is not None
    assert card.adapter.lines == 4

    image.save(tmp_path / "line.png")
    dsocr.transcribe(run.path, tmp_path / "line.png", tmp_path / "texts", shows="line", format="text")
    (written,) = (tmp_path / "texts").rglob("*.txt")
    assert written.read_text(encoding="utf-8").rstrip("\n") == f"line.png\t{text}"

    (served,) = ServedModels({"toy": run.adapter}).read("toy", [("line", image)])
    assert served.text == text

    dsocr.export(run.path, tmp_path / "out", form="merged")
    assert dsocr.load(tmp_path / "out").read(image).text == text


def test_a_checkpoint_of_no_family(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "auto_map": {"AutoModel": "x.Y"}}', encoding="utf-8")
    with raises_code("model-unknown"):
        recognize(tmp_path)
