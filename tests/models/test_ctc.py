"""Line recognisers with a CTC head through the whole product: train, resume, evaluate, read, serve, export."""

import json
import math
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional

import dsocr
from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset, training_samples
from dsocr.document import Split
from dsocr.images import open_image
from dsocr.io.files import shipped_path
from dsocr.io.work import write_manifest
from dsocr.models import ctc
from dsocr.models.canvas import steps_of
from dsocr.models.ctc import GPU_WIDTH_MULTIPLE, LineProcessor, count_steps, score_texts
from dsocr.models.ctc_network import LineNetwork, compute_logits
from dsocr.models.family import UNWRITABLE
from dsocr.models.generation import Generation
from dsocr.models.language_model import FILE, LanguageModel
from dsocr.models.loading import choose_dtype, load_base, load_processor
from dsocr.runs import RunFolder
from dsocr.training.preflight import CHEAP_SAMPLES, check_setup, errors
from dsocr.training.trainer import Trainer
from tests.data.making import page_line, page_xml, picture, write
from tests.models.test_ctc_network import write_ctc
from tests.raising import raises_code
from tests.training.running import pinned, set_up, train

LETTERS = list("abcdetrs 0123456789")


@pytest.fixture(autouse=True, scope="module")
def _few_weights() -> Iterator[None]:
    """Try two weights of a language model, which takes half a second each with random weights of the network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsocr.models.ctc._WEIGHTS", (0.3, 0.6))
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small recogniser with random weights that knows few letters."""
    return write_ctc(tmp_path_factory.mktemp("base"), LETTERS)


def configuration(base: Path, dataset: Path, output: Path, **training: Any) -> RunConfig:
    options = {"max_steps": 2, "batch_size": 4, "micro_batch_size": 2, "augmentation": 0.5} | training
    return RunConfig.model_validate(
        {
            "base": str(base),
            "dataset": dataset,
            "output": output,
            "training": options,
            "validation": {"every_steps": 2},
            "checkpoints": {"every_steps": 2, "keep": 5},
        }
    )


@pytest.fixture(scope="module")
def run(base: Path, small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("run")
    (folder / "letters.txt").write_text("a letter\nand another", encoding="utf-8")
    config = configuration(base, small_dataset, folder / "run")
    generation = config.generation.model_copy(update={"language_model": str(folder / "letters.txt")})
    return train(config.model_copy(update={"generation": generation}), preflight=False).run


def encoded(processor: Any, texts: list[str]) -> list[Any]:
    drawn = np.random.default_rng(1)
    sizes = [(40, 160 + 40 * place) for place in range(len(texts))]
    images = [Image.fromarray(drawn.integers(0, 255, (*size, 3), dtype=np.uint8)) for size in sizes]
    return [processor.encode(image, text) for image, text in zip(images, texts, strict=True)]


def test_loss_is_that_of_each_line_alone_if_it_has_a_text(base: Path) -> None:
    loaded = load_base(str(base))
    processor: Any = loaded.processor("x1.5", "free_ocr")
    texts = ["abcd", "seed rest", "a"]
    samples = encoded(processor, texts)
    batch = loaded.family.prepare_batch(processor.collate(samples))
    together = loaded.family.loss(loaded.network, batch, torch.tensor(2.0))
    alone = 0.0
    for sample, text in zip(samples, texts, strict=True):
        one = loaded.family.prepare_batch(processor.collate([sample]))
        logits = compute_logits(loaded.network, one["pixel_values"], one["columns"])
        probabilities = functional.log_softmax(logits, -1).transpose(0, 1)
        target = torch.tensor([LETTERS.index(letter) + 1 for letter in text])
        count = torch.tensor([len(text)])
        loss = float(functional.ctc_loss(probabilities, target, steps_of(one["columns"]), count, reduction="sum"))
        alone += loss
    assert float(together) * 2 == pytest.approx(alone, rel=1e-5)
    batch["labels"][2] = -100
    assert float(loaded.family.loss(loaded.network, batch, torch.tensor(1.0))) == pytest.approx(alone - loss, rel=1e-5)


def test_a_text_too_long_for_its_image_gets_a_wider_one(base: Path) -> None:
    processor: Any = load_processor(str(base), "x1", "")
    image, text = Image.new("L", (48, 48), 200), "seed" * 5
    sample = processor.encode(image, text)
    assert sample.image.shape[1] // 8 >= count_steps(text)
    moved = processor.encode(Image.new("L", (900, 48), 90), text).with_image_of(processor.encode(image))
    assert moved.image.shape[1] // 8 >= count_steps(text), "another image makes it less likely, but never impossible"
    assert processor.encode(image).image.shape[1] == 48
    assert not sample.has_input_of(processor.encode(image))
    assert sample.without_text().has_input_of(processor.encode(image)), "its text must not help to read it"


def test_head_is_cut_to_the_dataset_and_gets_its_new_letters(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.models.ctc._LARGE_HEAD", 5)
    loaded = load_base(str(base))
    before = loaded.network.head.head.weight.clone()
    network, processor = loaded.family.adapt_to(loaded.network, loaded.processor("x1.7", ""), ["test йод", "aé"])
    config = dict(loaded.family.network_files(network))["config.json"]
    assert json.loads(config)["line_stretch"] == 1.7, "as a base it keeps its stretch"
    characters: tuple[str, ...] = processor.characters  # type: ignore[attr-defined]
    assert set(characters) >= set("test йодaé0123456789")
    assert not set("bc") & set(characters)
    assert torch.equal(network.head.head.weight[1 + characters.index("t")], before[1 + LETTERS.index("t")])
    assert network.head.head.out_features == len(characters) + 1
    assert processor.unknown_characters("йод") == ""


@pytest.mark.parametrize("name", ["base", "x0.1", "x9", "x"])
def test_unknown_stretch(base: Path, name: str) -> None:
    with raises_code("resolution-unknown"):
        load_processor(str(base), name, "")


def test_a_run_holds_a_whole_network_that_reads(run: RunFolder, small_dataset: Path) -> None:
    assert run.adapter.name == "model"
    assert re.search("2 lines of .*letters.txt", run.log.read_text(encoding="utf-8")), "it says what texts are worth"
    assert {"config.json", "model.safetensors", "vocab.json", "reading.json"} <= {p.name for p in run.adapter.iterdir()}
    sample = Dataset.open(small_dataset).samples(Split.TEST)[0]
    reader = dsocr.load(run.path)
    prediction = reader.read(open_image(sample.image))
    assert len(prediction.characters) == len(prediction.text)
    assert set("йстtrain") & set(load_processor(str(run.adapter), None, "").characters)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (16, "light", 4e-4, 2e-4)),
        ({"learning_rate": 1e-4}, (16, "light", 1e-4, 5e-5)),
        ({"augmentation": 0, "vision_learning_rate": 1e-5}, (16, 0.0, 4e-4, 1e-5)),
        ({"micro_batch_size": 32}, (32, "light", 4e-4, 2e-4)),  # 16 would not be divisible
    ],
)
def test_line_recognisers_have_their_own_defaults(
    given: dict[str, Any], expected: tuple[Any, ...], base: Path, small_dataset: Path, tmp_path: Path
) -> None:
    settings = {"base": str(base), "dataset": str(small_dataset), "output": str(tmp_path / "run"), "training": given}
    training = pinned(RunConfig.model_validate(settings)).training
    found = training.batch_size, training.augmentation, training.learning_rate, training.vision_learning_rate
    assert found == expected


def test_precision_auto_trains_whole_networks_in_bf16_where_the_device_multiplies_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for capabilities, expected in (({"avx512_bf16": True}, torch.bfloat16), ({"avx2": True}, torch.float32)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda known=capabilities: known, raising=False)
        assert choose_dtype("auto", torch.device("cpu"), whole=True) is expected
        assert choose_dtype("auto", torch.device("cpu")) is torch.float32
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert choose_dtype("auto", torch.device("cuda"), whole=True) is torch.float32
    # In fp32 the weights of a large base take twice the memory.
    assert choose_dtype("auto", torch.device("cuda")) is torch.float16


def test_training_in_bf16_computes_in_bf16(base: Path) -> None:
    loaded = load_base(str(base))
    network, processor = loaded.network, loaded.processor(None, "")
    trainer = Trainer(network, torch.optim.SGD(network.parameters()), None, [], max_steps=1, precision="bf16")
    kinds = set()
    network.head.encoder.register_forward_pre_hook(lambda module, inputs: kinds.add(inputs[0].dtype))
    batch = processor.collate(encoded(processor, ["abc"]))
    loaded.family.loss(trainer.module, batch, torch.tensor(3))
    assert kinds == {torch.bfloat16}


def map_doubtful(
    family: Any, function: Any, network: Any, processor: Any, texts: list[str], other: str = "e"
) -> list[Any]:
    """Stand in for `map_logits`: a network that takes every `a` for `other` by a hair."""
    logits = np.full((len(texts), 2 * max(map(len, texts)), len(processor.characters) + 1), -9.0, np.float32)
    for row, text in zip(logits, texts, strict=True):
        row[:, 0] = 0.0
        for place, character in enumerate(text):
            row[2 * place, processor.classes[character]] = 4.0
            if character == "a":
                row[2 * place, processor.classes[other]] = 4.1
    steps = [2 * len(text) for text in texts]
    return [function(rows[:count]) for rows, count in zip(logits, steps, strict=True)]


TEXTS = ["a cat", "a bad cat", "sat"] * 3
TAKEN = [text.replace("a", "e") for text in TEXTS]


@pytest.fixture
def doubtful(base: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, list[NDArray[np.float32]]]:
    """A base whose network takes every `a` for `e` by a hair, its processor, and the logits of `TEXTS`."""
    loaded = load_base(str(base))
    monkeypatch.setattr(type(loaded.family), "map_logits", map_doubtful)
    processor = loaded.processor(None, "")
    return loaded, processor, map_doubtful(None, lambda logits: logits, None, processor, TEXTS)


def has_fewer(before: Sequence[int], after: Sequence[int]) -> bool:
    return sum(after) < sum(before)


@pytest.mark.parametrize(("learned", "helps"), [("a bad cat sat", True), ("e bed cet set", False)])
def test_language_model_is_used_where_it_helps(learned: str, helps: bool, doubtful: Any) -> None:
    (base, processor, lines), plain = doubtful, Generation()
    fitted: Any = base.family.fit_language_model(processor, [learned] * 9, lines, TEXTS, plain, is_better=has_fewer)
    read = base.family.decode(base.network, fitted, TEXTS, plain)
    assert [line.text for line in read] == (TEXTS if helps else TAKEN)
    assert (fitted.language_model is not None) is helps
    if helps:
        without, with_model = fitted.language_model.gain
        assert without > with_model == 0
        assert [line.plain for line in read] == TAKEN
        spared = base.family.decode(base.network, fitted, TEXTS, Generation(language_model="none"))
        assert [line.text for line in spared] == TAKEN
        assert all(len(line.scores) - 1 == len(line.positions) == len(line.text) for line in read)
        chosen = [
            score.log_probability for line in read for score in line.scores if line.text[score.start :][:1] == "a"
        ]
        assert math.exp(min(chosen)) > 0.5, "the language model has its part in the probabilities"


def test_language_model_of_the_base_is_kept_and_added_to(doubtful: Any) -> None:
    base, processor, lines = doubtful
    former, plain, fit = LanguageModel.fit(["a bad cat sat"] * 9), Generation(), base.family.fit_language_model
    processor = replace(processor, language_model_source=former)
    fitted: Any = fit(processor, ["123"], lines, TEXTS, plain, is_better=has_fewer)
    assert fitted.language_model.followers[""]["1"] == 4
    assert fitted.language_model.followers["b"] == former.followers["b"]
    assert [line.text for line in base.family.decode(base.network, fitted, TEXTS, plain)] == TEXTS


@pytest.mark.parametrize("has_former", [True, False])
@pytest.mark.parametrize("is_sure", [True, False])
def test_the_judge_decides_whether_a_language_model_comes_or_goes(
    doubtful: Any, has_former: bool, is_sure: bool
) -> None:
    """Where the judge is not sure, it stays as it was with the base: 60 lines on 8 pages rejected 42 % fewer errors."""
    base, processor, lines = doubtful
    former = LanguageModel.fit(["a bad cat sat"] * 9) if has_former else None
    processor = replace(processor, language_model_source=former)
    fit = base.family.fit_language_model
    fitted: Any = fit(processor, ["123"], lines, TEXTS, Generation(), is_better=lambda before, after: is_sure)
    assert (fitted.language_model is not None) == (has_former != is_sure)


@pytest.mark.parametrize(
    ("learnt", "others", "used"),
    [
        pytest.param(["123"], ["a bad cat sat"] * 9, 9, id="texts of the archive"),
        pytest.param(["a bad cat sat"] * 9, ["e bed cet set"] * 30, 0, id="texts of something else"),
        pytest.param(["a bad cat sat"] * 9, ["a bad cat sat"], 0, id="texts without a gain"),
    ],
)
@pytest.mark.parametrize("of_base", [[], ["a rat"]])
def test_texts_without_images_are_learnt_where_they_help(
    learnt: list[str], others: list[str], used: int, of_base: list[str], doubtful: Any
) -> None:
    (base, processor, lines), plain = doubtful, Generation()
    processor = replace(processor, language_model_source=LanguageModel.fit(of_base) if of_base else None)
    fit = base.family.fit_language_model
    fitted: Any = fit(processor, learnt, lines, TEXTS, plain, others, is_better=has_fewer)
    assert fitted.language_model.others == used
    assert [line.text for line in base.family.decode(base.network, fitted, TEXTS, plain)] == TEXTS


def test_a_text_that_the_language_model_knows_late_is_followed(base: Path) -> None:
    """Of the sixteen words of four doubtful letters, the network takes this one for the least likely."""
    processor: Any = load_processor(str(base), None, "")
    words = ["".join(letters) for letters in product("ab", repeat=4)]
    model = LanguageModel.fit([word + ("c" if word == "bbbb" else "d") for word in words] * 5)
    model.weight = 0.5
    classes = processor.classes
    logits = np.full((10, len(processor.characters) + 1), -9.0, np.float32)
    logits[1::2, 0] = 5.0
    logits[:8:2, classes["a"]], logits[:8:2, classes["b"]], logits[8, classes["c"]] = 4.1, 4.0, 5.0
    decode = processor.family.logits_decoder(replace(processor, language_model_source=model), Generation())
    read = decode(logits)
    assert (read.text, read.plain) == ("bbbbc", "aaaac")


@pytest.mark.parametrize(
    ("others", "readings", "used", "read"),
    [
        pytest.param([], ["a bad cat sat"] * 9, 0, 9, id="readings alone"),
        pytest.param(["a rat"], ["a bad cat sat"] * 9, 1, 9, id="readings beside other texts"),
        pytest.param([], ["e bed cet set"] * 9, 0, 0, id="wrong readings"),
    ],
)
def test_own_readings_are_learnt_where_they_help(
    others: list[str], readings: list[str], used: int, read: int, doubtful: Any
) -> None:
    (base, processor, lines), plain = doubtful, Generation()
    learnt = ["123"] if read else ["a bad cat sat"] * 9
    fit = base.family.fit_language_model
    fitted: Any = fit(processor, learnt, lines, TEXTS, plain, others, readings, is_better=has_fewer)
    assert fitted.language_model.others == used
    assert fitted.language_model.followers["b"] == {"a": 9}, "misread words are left out"
    assert [line.text for line in base.family.decode(base.network, fitted, TEXTS, plain)] == TEXTS


def test_what_a_validation_saw_is_not_read_again(
    base: Path, small_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = list[int]()
    forward = LineNetwork.forward

    def count_read(network: Any, pixels: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        lines.extend([] if network.training else [len(pixels)])
        return forward(network, pixels, steps)

    monkeypatch.setattr(LineNetwork, "forward", count_read)
    train(configuration(base, small_dataset, tmp_path / "run", augmentation=0))
    count, validations = len(Dataset.open(small_dataset).samples(Split.VALIDATION)), 2
    assert sum(lines) == CHEAP_SAMPLES + validations * count + count, "the losses with the readings; the language model"


def test_run_without_validation_keeps_the_language_model_of_its_base(
    base: Path, small_dataset: Path, tmp_path: Path
) -> None:
    known = tmp_path / "known"
    shutil.copytree(base, known)
    model = LanguageModel.fit(["a bad cat sat"])
    (known / FILE).write_text(model.to_json(), encoding="utf-8")
    dataset = tmp_path / "dataset"
    shutil.copytree(small_dataset, dataset)
    card = json.loads((dataset / "dataset.json").read_text(encoding="utf-8"))
    del card["splits"]["validation"]
    shutil.rmtree(dataset / "validation")
    (dataset / "dataset.json").write_text(json.dumps(card), encoding="utf-8")
    config = configuration(known, dataset, tmp_path / "run", max_steps=1)
    (tmp_path / "letters.txt").write_text("a letter\nand another", encoding="utf-8")
    generation = config.generation.model_copy(update={"language_model": str(tmp_path / "letters.txt")})
    said: list[str] = []
    run = train(config.model_copy(update={"generation": generation}), preflight=False, on_message=said.append).run
    kept = LanguageModel.load(run.adapter)
    assert kept is not None
    assert kept.followers == model.followers
    assert any("2 lines of" in message for message in said), "texts that nothing weighs are said to be left out"


def test_scorecard_has_the_gain_of_the_language_model(run: RunFolder, tmp_path: Path) -> None:
    copy = RunFolder(tmp_path / "run")
    shutil.copytree(run.path, copy.path)
    model = LanguageModel.fit(["trains and tests"])
    model.weight = 0.3
    (copy.adapter / FILE).write_text(model.to_json(), encoding="utf-8")
    write_manifest(copy.adapter)
    card = dsocr.Run(copy.path).evaluate(base=False, report=False, limit=2)
    assert card.settings["language_model"]["weight"] == 0.3
    assert card.settings["language_model"]["cer"] == pytest.approx(card.cer)
    plain = dsocr.Run(run.path).evaluate(base=False, report=False, limit=2)
    assert card.settings["language_model"]["cer_without"] == pytest.approx(plain.cer)
    assert "language_model" not in plain.settings


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        # "a cat" on ten steps: 0 to 0.15 and 0.35 to 0.95 of what is cropped, a pixel more at each side.
        ("100,100 499,100 499,149 100,149", [(100, 159), (240, 481)]),
        ("0,100 399,100 399,149 0,149", [(0, 60), (140, 381)]),
    ],
)
def test_words_have_their_boxes_on_the_page(
    points: str, expected: list[tuple[int, int]], run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = type(load_processor(str(run.adapter), None, "").family)
    monkeypatch.setattr(
        family, "map_logits", lambda f, see, net, processor, _: map_doubtful(f, see, net, processor, ["a cat"], "a")
    )
    picture(tmp_path / "in" / "p.png", (600, 800))
    line = page_line("", points=points).replace("<TextLine", '<TextLine id="l"')
    write(tmp_path / "in" / "p.xml", page_xml(f'<TextRegion id="r">{line}</TextRegion>', size=(600, 800)))
    dsocr.transcribe(run.path, tmp_path / "in", tmp_path / "out", format="page")
    (file,) = (tmp_path / "out").rglob("*.xml")
    words = re.findall(r'<Word[^>]*><Coords points="(\d+),\d+ (\d+),', file.read_text(encoding="utf-8"))
    assert [(int(begin), int(end) + 1) for begin, end in words] == expected


def test_texts_are_refused_where_nothing_would_learn_them(base: Path, small_dataset: Path, tmp_path: Path) -> None:
    letters, output = tmp_path / "letters.txt", tmp_path / "run"
    with raises_code("language-model-text"):
        dsocr.train(dataset=small_dataset, texts=letters, base=str(base), output=output, preflight=False)
    letters.write_text("a letter", encoding="utf-8")
    with raises_code("option-invalid"):
        dsocr.train(dataset=small_dataset, texts=letters, language_model="none", base=str(base), output=output)
    with raises_code("language-model-unused"):
        dsocr.train(dataset=small_dataset, texts=letters, base="nano", output=output, preflight=False)
    assert not output.exists()


def test_reading_gives_each_letter_its_probability(base: Path) -> None:
    loaded = load_base(str(base))
    processor: Any = loaded.processor(None, "")
    decoded = loaded.family.decode(loaded.network, processor, encoded(processor, ["a", "b"]), Generation())
    for line in decoded:
        *letters, end = [score[:2] for score in line.scores]
        assert letters == [(place, place + 1) for place in range(len(line.text))]
        assert end == (len(line.text), len(line.text))
        assert all(-math.inf < score.log_probability <= 0 for score in line.scores)
        assert len(line.positions) == len(line.text)
        assert list(line.positions) == sorted(line.positions)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_cpu_reads_eight_lines_of_the_same_width_at_once(base: Path, num_threads: int) -> None:
    loaded = load_base(str(base))
    processor: Any = loaded.processor(None, "")
    rng, shapes = np.random.default_rng(1), list[tuple[int, int]]()
    widths = [120, 60, *[120] * 9]
    images = [Image.fromarray(rng.integers(0, 255, (40, width, 3), dtype=np.uint8), "RGB") for width in widths]
    samples = [processor.encode(image) for image in images]

    def read(some: list[Any]) -> list[str]:
        return [line.text for line in processor.family.decode(loaded.network, processor, some, Generation())]

    loaded.network.register_forward_pre_hook(lambda _, inputs: shapes.append((len(inputs[0]), torch.get_num_threads())))
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        together = read(samples)
        assert torch.get_num_threads() == num_threads
    finally:
        torch.set_num_threads(before)
    assert sorted(lines for lines, _ in shapes) == [1, 2, 8]
    assert {threads for _, threads in shapes} == {1}
    assert together == [text for sample in samples for text in read([sample])]


def test_a_gpu_gets_few_shapes_and_reads_the_same(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_base(str(base))
    processor: Any = loaded.processor(None, "")
    rng = np.random.default_rng(1)
    widths = [*range(40, 1000, 320), *[300] * 5]
    images = [Image.fromarray(rng.integers(0, 255, (48, width, 3), dtype=np.uint8), "RGB") for width in widths]
    samples = [processor.encode(image) for image in images]

    def read() -> list[NDArray[np.float32]]:
        logits: list[NDArray[np.float32]] = processor.family.map_logits(
            lambda logits: logits, loaded.network, processor, samples
        )
        return logits

    def loss() -> torch.Tensor:
        encoded = [processor.encode(image, "abc 1") for image in images[:3]]
        batch = processor.family.prepare_batch(processor.collate(encoded))
        shapes.add(tuple(batch["pixel_values"].shape))
        with torch.no_grad():
            value: torch.Tensor = processor.family.loss(loaded.network, batch, torch.tensor(15))
        return value

    shapes = set[tuple[int, ...]]()
    expected, expected_loss = read(), loss()
    shapes.clear()
    loaded.network.register_forward_pre_hook(lambda _, inputs: shapes.add(tuple(inputs[0].shape)))
    monkeypatch.setattr(ctc, "_is_cpu", lambda device: False)
    for line, alone in zip(read(), expected, strict=True):
        np.testing.assert_allclose(line, alone, rtol=1.3e-6, atol=1e-5)
    assert {shape[0] for shape in shapes} == {16}
    torch.testing.assert_close(loss(), expected_loss)
    assert {shape[3] % GPU_WIDTH_MULTIPLE for shape in shapes} == {0}


def test_processor_sees_images_as_bytes(base: Path) -> None:
    processor: Any = load_processor(str(base), None, "")
    assert isinstance(processor, LineProcessor)
    (sample,) = encoded(processor, ["abc"])
    assert sample.pixels().shape == (48, round(160 * 48 / 40 * 1.3), 3)
    assert sample.has_input_of(replace(sample, classes=()))
    assert not sample.has_input_of(replace(sample, image=sample.image // 2))


@pytest.mark.slow
def test_small_passes_the_checks_before_training(small_dataset: Path, tmp_path: Path) -> None:
    """At three times its learning rate the weights that it has were destroyed and five lines never memorized."""
    config = configuration(Path("small"), small_dataset, tmp_path / "run", batch_size=16, micro_batch_size=8)
    config = pinned(config.model_copy(update={"base": "small"}))
    setup = set_up(config, training_samples(Dataset.open(small_dataset), config))
    checks = {check.name: check for check in check_setup(setup, config, thorough=True)}
    assert checks["overfit"].verdict == "ok", checks["overfit"]
    assert not errors(list(checks.values()))


def test_probabilities_of_all_texts_sum_to_one() -> None:
    logits = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    texts = ["".join(text) for length in range(5) for text in product("ab", repeat=length)]
    scores = score_texts(logits, {"a": 1, "b": 2}, texts)
    fitting = [score for text, score in zip(texts, scores, strict=True) if count_steps(text) <= 4]
    assert math.fsum(map(math.exp, fitting)) == pytest.approx(1, abs=1e-5)
    known, unknown = score_texts(logits, {"a": 1, "b": 2}, ["ab", "acb"])
    assert unknown == pytest.approx(known + UNWRITABLE)


def test_small_reads_russian_letters_it_never_saw() -> None:
    samples = Dataset.open(shipped_path("examples/handwriting")).samples(Split.TEST)[::30]
    reader = dsocr.load("small")
    texts = [reader.read(open_image(sample.image)).text for sample in samples]
    assert dsocr.cer([sample.text for sample in samples], texts) < 0.08


def test_what_is_read_is_the_likeliest_text_of_its_image() -> None:
    base = load_base("small")
    processor = base.processor(None, "")
    images = [open_image(sample.image) for sample in Dataset.open("examples/print").samples("test")[:2]]
    generation = Generation(language_model="none")
    read = processor.family.decode(base.network, processor, [processor.encode(image) for image in images], generation)
    texts = [[one.text, one.text[:-1], one.text + "a", "", read[0].text + read[1].text] for one in read]
    for scores in processor.family.log_likelihoods(base.network, processor, images, texts):
        assert scores[0] == max(scores) > -20
        assert all(math.isfinite(score) for score in scores)
