"""The recipe for a base that has seen real Russian hands, on stand-ins of the four sets in their published layouts."""

import itertools
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dsocr
from tests.conftest import draw_line
from tests.integration.calling import Call
from tests.models.test_kraken import write_kraken

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import russian_table

RECIPE = Path(__file__).parents[2] / "configs" / "russian_real.yaml"
WORDS = 8
LETTERS = "абвгдежзийклмнопрстуфхцчшщ"
DRAWN = str.maketrans(LETTERS, "abcdefghijklmnopqrstuvwxyz")
"""Pillow's own font has no Cyrillic letters."""


def words(number: int) -> list[str]:
    """Return words that no other number has."""
    return ["".join(row) for row in np.random.default_rng(number).choice(list(LETTERS), (WORDS, 6))]


def write_pages(folder: Path, splits: dict[str, int], numbers: Iterator[int]) -> None:
    """Write pages of words in COCO, as school_notebooks_RU and Peter have them."""
    (folder / "images").mkdir(parents=True)
    for split, count in splits.items():
        images: list[dict[str, object]] = []
        annotations: list[dict[str, object]] = []
        for number in itertools.islice(numbers, count):
            page, name = Image.new("L", (300, 60 * WORDS), 255), f"{split}_{number}.jpg"
            for place, word in enumerate(words(number)):
                draw_line(folder / "word.png", word.translate(DRAWN))
                with Image.open(folder / "word.png") as line:
                    page.paste(line, (20, 60 * place))
                left, top, right, bottom = 20, 60 * place, 20 + line.width, 60 * place + 60
                polygon = [left, top, right, top, right, bottom, left, bottom]
                attributes = {"translation": word}
                annotations.append(
                    {
                        "id": len(annotations),
                        "image_id": number,
                        "category_id": 0,
                        "group_id": place // 2,
                        "segmentation": [polygon],
                        "attributes": attributes,
                    }
                )
            page.save(folder / "images" / name)
            images.append({"id": number, "file_name": name})
        (folder / "word.png").unlink()
        content = {"categories": [{"id": 0, "name": "pupil_text"}], "images": images, "annotations": annotations}
        (folder / f"annotations_{split}.json").write_text(json.dumps(content), encoding="utf-8")


def write_table(images: Path, table: Path, header: str, separator: str, first: int) -> None:
    """Write images of words beside a table of them, as YeniseiGovReports-HWR and Kaggle's set have them."""
    images.mkdir(parents=True)
    rows = [header] if header else []
    for number, word in enumerate(words(first), start=first):
        draw_line(images / f"{number}.png", word.translate(DRAWN))
        rows.append(f"{number}.png{separator}{word}")
    table.write_text("\n".join(rows) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("russian_sets")
    numbers = itertools.count()
    write_pages(folder / "school_notebooks_RU", {"train": 2, "val": 1, "test": 1}, numbers)
    write_pages(folder / "Peter", {"train": 2, "val": 1, "test": 1}, numbers)
    for place, split in enumerate(("train", "val"), start=1):
        yenisei, kaggle = folder / "YeniseiGovReports-HWR" / split, folder / "cyrillic-handwriting-dataset"
        write_table(yenisei / "img", yenisei / "YeniseiGovReports-HWR_gt.csv", "filename,text", ",", 100 * place)
        name = ("train", "test")[place - 1]
        write_table(kaggle / name, kaggle / f"{name}.tsv", "", "\t", 100 * place)
    return folder


def test_each_set_is_read_whole(sets: Path, tmp_path: Path) -> None:
    for source in sorted(sets.iterdir()):
        dataset = dsocr.prepare(source, tmp_path / source.name)
        samples = [sample for split in ("train", "validation", "test") for sample in dataset.samples(split)]
        assert len({sample.text for sample in samples}) == (4 if (source / "images").is_dir() else 2) * WORDS


def test_the_table_scores_readers_on_both_sets(
    sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "cache"))
    reader = write_kraken(tmp_path / "model.safetensors", "tiny", 96, divisor=4)
    monkeypatch.setattr("sys.argv", ["russian_table.py", str(sets), str(reader), "--work", str(tmp_path / "work")])
    (crop, *rest) = russian_table.read_notebooks(sets / "school_notebooks_RU")
    assert [crop.text, *(line.text for line in rest)] == [" ".join(words(2)[at : at + 2]) for at in range(0, WORDS, 2)]
    inside, outside = (np.asarray(crop.image.convert("L"))[:, left : left + 20] for left in (20, crop.image.width // 2))
    assert inside.min() < 100 < 250 < outside.max(), "ink, and white between the words"
    russian_table.main()
    tables = (tmp_path / "work" / "table.md").read_text(encoding="utf-8")
    out = capsys.readouterr().out
    assert all(table in out for table in tables.split("\n\n"))
    assert "school_notebooks_RU, 4 lines" in tables
    assert "YeniseiGovReports-HWR, 8 lines" in tables


@pytest.mark.slow
def test_the_recipe_makes_a_base_that_others_can_start_from(
    sets: Path, small_dataset: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "cache"))
    kraken = write_kraken(tmp_path / "small.safetensors", "tiny", 96, divisor=4)
    short = {
        "training.epochs": "null",
        "training.max_steps": 1,
        "training.batch_size": 4,
        "training.micro_batch_size": 4,
    }
    settings = [word for key, value in short.items() for word in ("--set", f"{key}={value}")]

    def train(*arguments: object, output: str, base: Path) -> None:
        chosen = ("--set", f"output={tmp_path / output}", "--set", f"base={base}")
        call("train", *arguments, "--no-preflight", *settings, *chosen)

    coco, words = tmp_path / "coco", tmp_path / "words"
    coco.mkdir()
    for name in ("school_notebooks_RU", "Peter"):
        shutil.copytree(sets / name, coco / name)
    call("prepare", coco, "-o", tmp_path / "data")
    call("prepare", sets / "YeniseiGovReports-HWR", "-o", words)
    train(RECIPE, "--set", f"dataset={tmp_path / 'data'}", output="run", base=kraken)
    train(words, output="second", base=tmp_path / "run")
    call("export", tmp_path / "second", "-o", tmp_path / "base", "--form", "merged")
    line = small_dataset.parent / "source" / "test-0.png"
    readings = [dsocr.load(tmp_path / name).read(line).text for name in ("second", "base")]
    assert readings[0] == readings[1]
    train(small_dataset, output="mine", base=tmp_path / "base")
    out, _ = call("evaluate", tmp_path / "mine")
    assert "CER" in out
