"""The recipe for a base that has seen real Russian hands, on a few lines in the formats of the published sets."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import dsocr
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from tests.conftest import draw_line
from tests.integration.calling import Call

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "configs" / "russian_real.yaml"
WORDS = ["съѣздъ", "Ивановка", "крестьянинъ", "вдова", "1709 г."]


def words_of(name: str, page: int) -> list[str]:
    """Return other words for each page: equal pictures in two splits would be an error."""
    return [f"{word} {name[0]}{page}" for word in WORDS]


def write_set(folder: Path, pages: int) -> Path:
    """Write pages of words as both sets are on the Hub: COCO with a polygon and a `translation` each."""
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    (folder / "images").mkdir(parents=True)
    for page in range(pages):
        name = f"{folder.name}_{page}.jpg"
        sheet = Image.new("L", (500, 70 * len(WORDS)), 240)
        for row, word in enumerate(words_of(folder.name, page)):
            draw_line(folder / "word.png", word)
            with Image.open(folder / "word.png") as line:
                sheet.paste(line, (0, 70 * row))
                right, bottom = line.width, 70 * row + line.height
            polygon = [0, 70 * row, right, 70 * row, right, bottom, 0, bottom]
            entry = {"id": len(annotations), "image_id": page, "category_id": 0, "segmentation": [polygon]}
            annotations.append(entry | {"attributes": {"translation": word}})
        # A margin note that nobody transcribed, as the notebooks have many.
        annotations.append({"id": len(annotations), "image_id": page, "category_id": 1, "attributes": None})
        sheet.save(folder / "images" / name)
        images.append({"id": page, "file_name": name, "width": sheet.width, "height": sheet.height})
    (folder / "word.png").unlink()
    content = json.dumps({"categories": [], "images": images, "annotations": annotations}, ensure_ascii=False)
    (folder / "annotations_train.json").write_text(content, encoding="utf-8")
    return folder


@pytest.fixture
def dataset(tmp_path: Path, call: Call) -> Path:
    """A dataset of both sets, prepared by one command."""
    write_set(tmp_path / "sets" / "school_notebooks_RU", 4)
    write_set(tmp_path / "sets" / "Peter", 4)
    code, out, err = call("prepare", tmp_path / "sets", "-o", tmp_path / "data", "--split-by", "page")
    assert code == 0, out + err
    return tmp_path / "data"


def test_both_sets_become_one_dataset_that_keeps_pages_together(dataset: Path) -> None:
    samples = [(split, sample) for split in Split for sample in Dataset.open(dataset).samples(split)]
    expected = [word for name in ("school_notebooks_RU", "Peter") for page in range(4) for word in words_of(name, page)]
    assert sorted(sample.text for _, sample in samples) == sorted(expected)
    pages = {(sample.page, split) for split, sample in samples}
    assert len(pages) == 8
    assert {page.partition("/")[0] for page, _ in pages if page} == {"Peter", "school_notebooks_RU"}


@pytest.mark.slow
def test_the_recipe_makes_a_base_that_others_can_start_from(dataset: Path, tmp_path: Path, call: Call) -> None:
    short = {
        "dataset": dataset,
        "output": tmp_path / "run",
        "training.epochs": "null",
        "training.max_steps": 1,
        "training.batch_size": 4,
        "training.micro_batch_size": 4,
    }
    settings = [word for key, value in short.items() for word in ("--set", f"{key}={value}")]
    code, out, err = call("train", RECIPE, "--no-preflight", *settings)
    assert code == 0, out + err
    code, out, err = call("export", tmp_path / "run", "-o", tmp_path / "base")
    assert code == 0, out + err
    draw_line(tmp_path / "line.png", "вдова")
    readings = [dsocr.load(source).read(tmp_path / "line.png").text for source in (tmp_path / "run", tmp_path / "base")]
    assert readings[0] == readings[1]
    settings += ["--set", f"base={tmp_path / 'base'}", "--set", f"output={tmp_path / 'next'}"]
    code, out, err = call("train", dataset, "--no-preflight", *settings)
    assert code == 0, out + err
