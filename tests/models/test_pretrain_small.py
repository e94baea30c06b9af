"""The tool that pretrains the embedded base `small`: its cache of lines, batches, checkpoint and texts."""

import argparse
import math
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import pretrain_small
from dsocr.models.canvas import LINE_HEIGHT, LineCanvas
from dsocr.models.ctc import collate_lines
from dsocr.models.ctc_network import load_network
from pretrain_small import Training
from small_lines import Batches, open_cache, stream_pools, to_batch, write_source
from small_texts import CHARACTERS, LineMaker, Words, spell_before_reform
from tests.models.test_ctc_network import write_ctc


def line(width: int, value: int = 200) -> NDArray[np.uint8]:
    pixels = np.full((LINE_HEIGHT, width), value, dtype=np.uint8)
    pixels[20:30, ::7] = 30
    return pixels


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    hands = [(f"text {number}", line(160 + 16 * number, number), number % 5 == 0) for number in range(20)]
    write_source(folder, "timeuscorpus", iter(hands))
    write_source(folder, "drawn-joined-1", iter([("буквы ѣ", line(200), False)]))
    write_source(folder, "unseen-joined", iter([("kept away", line(200), True)]))
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_ctc(tmp_path / "base", "aetx")


def test_alphabet() -> None:
    assert len(set(CHARACTERS)) == len(CHARACTERS)
    assert all(len(character) == 1 == len(unicodedata.normalize("NFC", character)) for character in CHARACTERS)
    assert set("ёѣіѳѵЁѢІѲѴѐќ№«»—…‹›éœßñçłő’ &") <= set(CHARACTERS)


def test_cache_keeps_lines_and_texts(cache: Path) -> None:
    hands = next(source for source in open_cache(cache) if source.name == "timeuscorpus")
    assert len(hands.texts) == 20
    assert hands.texts[7] == "text 7"
    np.testing.assert_array_equal(hands.line(7), line(160 + 16 * 7, 7))
    assert hands.validates.sum() == 4


@pytest.mark.parametrize(
    ("text", "width", "kept"),
    [
        ("A &amp; B", 200, ["A & B"]),
        ("e\u0301te\u0301  two", 200, ["été two"]),
        ("", 200, []),
        ("中", 200, []),
        ("too long for its width", 64, []),
        ("too wide", 5000, []),
    ],
)
def test_lines_that_cannot_be_learned_are_skipped(tmp_path: Path, text: str, width: int, kept: list[str]) -> None:
    write_source(tmp_path, "one", iter([(text, line(width), False), ("other", line(200), False)]))
    assert open_cache(tmp_path)[0].texts == [*kept, "other"]


def test_batches_are_the_same_each_time_and_never_show_validation_lines(cache: Path) -> None:
    batches = Batches(open_cache(cache), argparse.Namespace(pixels=1500, pool=64, lines=0, seed=3))
    first, again = batches.pool(4), batches.pool(4)
    texts = [text for batch in first for text in batch.texts]
    assert texts == [text for batch in again for text in batch.texts]
    assert all(len(batch.texts) * max(batch.widths) <= 1500 for batch in first)
    assert {"text 0", "text 5", "kept away"}.isdisjoint(texts)
    # Shares 0.22 and 0.15, whatever the numbers of lines.
    assert 26 < texts.count("буквы ѣ") < 48


def test_batches_of_few_shapes_hold_all_lines(cache: Path) -> None:
    sums, shapes = (
        Batches(open_cache(cache), argparse.Namespace(pixels=1500, pool=64, lines=lines, seed=3)).pool(4)
        for lines in (0, 8)
    )
    assert {text for batch in sums for text in batch.texts} == {text for batch in shapes for text in batch.texts}
    assert {len(batch.texts) for batch in shapes} == {8}
    assert {batch.pixels.shape[2] for batch in shapes} <= {256, 512, 768}


def test_a_batch_is_the_networks_input() -> None:
    lines = [("a", line(160)), ("b", line(72, 90))]
    images, columns = to_batch(lines).to(torch.device("cpu"))
    drawn = [np.repeat(pixels[:, :, None], 3, axis=2) for _, pixels in lines]
    expected, expected_columns = collate_lines(drawn, LineCanvas())
    assert torch.equal(images, expected)
    assert torch.equal(columns, expected_columns)


@pytest.mark.slow
def test_worker_processes_make_the_same_batches(base: Path, cache: Path, tmp_path: Path) -> None:
    settings = options(base, cache, tmp_path, steps=1)
    alone = next(stream_pools(settings, 5))
    settings.workers = 1
    pools = stream_pools(settings, 5)
    beside = next(pools)
    pools.close()
    assert [batch.texts for batch in beside] == [batch.texts for batch in alone]
    assert all(np.array_equal(one.pixels, other.pixels) for one, other in zip(beside, alone, strict=True))


def options(base: Path, cache: Path, folder: Path, steps: int) -> argparse.Namespace:
    return argparse.Namespace(
        base=base, cache=cache, work=folder / "work", out=folder / "out", test=None, steps=steps, learning_rate=1e-3,
        average=0.9, pixels=8000, check_minutes=60, threads=1, seed=2, minutes=math.inf, falling=0.3, device="cpu",
        workers=0, pool=256, lines=0,
    )  # fmt: skip


def test_training_writes_a_base_and_resumes(base: Path, cache: Path, tmp_path: Path) -> None:
    pretrain_small.train(options(base, cache, tmp_path, steps=1))
    network, characters = load_network(tmp_path / "out")
    assert characters == CHARACTERS
    assert network.config.head_out_channels == len(CHARACTERS) + 1
    log = (tmp_path / "work" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    step = int(log[-1].split('"step": ')[1].split(",")[0])
    pretrain_small.train(options(base, cache, tmp_path, steps=step + 1))
    resumed = (tmp_path / "work" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert f'"step": {step},' in resumed[len(log)]


def test_checkpoint_restores_network_average_and_optimizer(base: Path, tmp_path: Path) -> None:
    def new_training() -> Training:
        network: Any = pretrain_small.start_network(base)
        return Training(network, pretrain_small.start_network(base), torch.optim.AdamW(network.parameters(), lr=1e-3))

    def take_step(training: Training) -> None:
        for parameter in training.network.parameters():
            parameter.grad = torch.ones_like(parameter)
        training.optimizer.step()
        training.step += 1

    training = new_training()
    take_step(training)
    training.average.load_state_dict(training.network.state_dict())
    training.best = 0.25
    training.save(tmp_path / "checkpoint.safetensors")
    take_step(training)
    restored = new_training()
    restored.load(tmp_path / "checkpoint.safetensors")
    assert (restored.step, restored.best) == (1, 0.25)
    for name, tensor in restored.average.state_dict().items():
        assert torch.equal(tensor, restored.network.state_dict()[name])
    take_step(restored)
    for name, tensor in restored.network.state_dict().items():
        assert torch.equal(tensor, training.network.state_dict()[name]), name


@pytest.mark.parametrize(
    ("word", "spelled"),
    [("дом", "домъ"), ("Иванов", "Ивановъ"), ("издание", "изданіе"), ("хлеб", "хлѣбъ"), ("я", "я"), ("ДОМ", "ДОМЪ")],
)
def test_spelling_before_the_reform(word: str, spelled: str) -> None:
    rng = np.random.default_rng(3)
    assert spelled in {spell_before_reform(word, rng) for _ in range(20)}


def test_lines_are_of_known_characters() -> None:
    words = {"ru": Words([], np.array([]), ["дом", "лес", "объезд"]), "fr": Words([], np.array([]), ["été", "où"])}
    maker = LineMaker(words, {"ru": 0.4, "old_ru": 0.4, "fr": 0.2, "uk": 0.5})
    rng = np.random.default_rng(1)
    lines = [maker.line(rng, 30) for _ in range(200)]
    assert {language for language, _ in lines} == {"ru", "old_ru", "fr"}
    assert set("".join(text for _, text in lines)) <= set(CHARACTERS)
    assert all(20 < len(text) < 80 for _, text in lines)
