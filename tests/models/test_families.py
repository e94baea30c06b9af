"""Every family goes through the whole product; the one in `toy_family.py` is a single file."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from peft import PeftModel
from PIL import Image
from safetensors.torch import load_file

import dsocr
from convert_recogniser import save_network
from dsocr.config import RunConfig, load_run_config
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.images import open_image
from dsocr.inference import reader as reader_module
from dsocr.inference.reader import LocalReader
from dsocr.models.base_folder import WEIGHTS, find_base
from dsocr.models.export import export_merged
from dsocr.models.generation import Generation
from dsocr.models.loading import load_base, recognize
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.server.engine import ServedModels
from dsocr.training.preflight import overfit
from tests.conftest import TEXTS
from tests.integration.calling import fail
from tests.making_models import write_first, write_shallow
from tests.models import toy_family
from tests.models.chat_models import CHAT_MODELS, write_chat_model
from tests.models.encoder_decoder_models import write_donut, write_trocr
from tests.models.test_ctc_network import V5, init_evenly, small_network, write_ctc
from tests.raising import raises_code
from tests.training.running import pinned, set_up, train


class Case(NamedTuple):
    """How a small base with random weights is written, and how it is trained in the tests."""

    write: Callable[[Path], Path]
    target: str = "decoder"
    rate: float = 1e-2
    memory: Callable[[Path], Path] | None = None
    """The base that memorizes five samples; weights of 0.02 make features too small for an adapter."""


def write_teachable_ctc(folder: Path, kind: str) -> Path:
    """Write a small line recogniser that learns quickly: it has a row of its head for each letter of the dataset."""
    letters = sorted({*"".join(TEXTS), *"train0123456789"})
    network = small_network(letters, kind)
    network.config.line_stretch = 0.7
    torch.manual_seed(7)  # some weights take eight times as many steps as others
    init_evenly(network)
    save_network(network, letters, folder)
    return folder


# The checks before training require a first loss near a uniform guess's.
_HEAD_STD = {"glm_ocr": 0.03, "smolvlm": 0.03, "qwen3_5": 0.015, "hunyuan_vl": 0.04}
HARD_TO_TEACH = ("qwen3_5", "internvl", "qianfan_ocr", "hunyuan_vl")
"""Types that need larger random weights to memorize."""
SLOW = {*CHAT_MODELS, *(f"PP-OCR{kind}" for kind in V5), "trocr", "donut", "nano"} - {"qwen3_vl"}
"""Cases that only `make test-slow` takes through the whole product, four seconds of a core or more each.

test_image_text_to_text.py and test_encoder_decoder.py try what differs in them; other rooms' tests use nano.
"""


def marked(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in names]


CASES = {
    "nano": Case(write_shallow),
    "toy": Case(toy_family.write_base),
    "ctc": Case(write_ctc, rate=2e-2),  # whether random weights end without an error depends on the processor
    **{
        f"PP-OCR{kind}": Case(partial(write_ctc, kind=kind), rate=3e-3, memory=partial(write_teachable_ctc, kind=kind))
        for kind in V5
    },
    "trocr": Case(write_trocr, "decoder+vision", memory=partial(write_trocr, std=0.15)),
    "trocr, all weights": Case(write_trocr, "all", 3e-3, partial(write_trocr, std=0.15)),
    "donut": Case(write_donut, memory=partial(write_donut, std=0.15)),
    # The target changes from type to type, so that both are tried.
    **{
        name: Case(
            partial(write_chat_model, model_type=name, head_std=_HEAD_STD.get(name, 0.055)),
            "decoder+vision" if number % 2 else "decoder",
            3e-3 if name == "qwen3_5" else 1e-2,
            memory=partial(write_chat_model, model_type=name) if name in HARD_TO_TEACH else None,
        )
        for number, name in enumerate(CHAT_MODELS)
    },
}


@pytest.fixture(autouse=True, scope="module")
def _one_weight() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsocr.models.ctc._WEIGHTS", (0.3,))  # a search for each takes a second with random weights
        yield


def configured(
    case: Case, base: Path, dataset: Path, output: Path, *, r: int = 8, dropout: float = 0.1, **training: Any
) -> RunConfig:
    options = {"max_steps": 2, "batch_size": 4, "micro_batch_size": 2, "learning_rate": 1e-3, "augmentation": 0.5}
    return RunConfig.model_validate(
        {
            "base": str(base),
            "dataset": dataset,
            "output": output,
            "adapter": {"target_modules": case.target, "r": r, "alpha": 2 * r, "dropout": dropout},
            "training": options | training,
            "validation": {"every_steps": 2, "max_samples": 2},
            "checkpoints": {"every_steps": 1, "keep": 5},
            "generation": {"max_new_tokens": 8},
        }
    )


@pytest.fixture(scope="module", params=marked(CASES), ids=lambda name: name)
def trained(
    request: pytest.FixtureRequest, small_dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Case, RunFolder]:
    case, folder = CASES[request.param], tmp_path_factory.mktemp("family")
    return case, train(configured(case, case.write(folder / "base"), small_dataset, folder / "run")).run


@pytest.fixture(scope="module")
def reader(trained: tuple[Case, RunFolder]) -> LocalReader:
    return LocalReader.of_run(trained[1], precision="fp32", merged=False)


# test_image_text_to_text.py compares the features of chat models, test_feature_cache.py nano's training.
@pytest.mark.parametrize("name", marked(["ctc", "trocr, all weights", "donut"]))
def test_learns_the_same_from_cached_features(name: str, small_dataset: Path, tmp_path: Path) -> None:
    case = CASES[name]._replace(target="decoder")
    base = case.write(tmp_path / "base")
    plain, kept = (
        configured(case, base, small_dataset, tmp_path / f"cached-{cached}", augmentation=0, feature_cache=cached)
        for cached in (False, True)
    )
    if not recognize(base).caches_features:
        with raises_code("feature-cache-unsupported"):
            train(kept)
        return
    computed, cached = (load_file(train(config).run.adapter / WEIGHTS) for config in (plain, kept))
    assert "feature cache: " in RunFolder(kept.output).log.read_text(encoding="utf-8")
    assert computed.keys() == cached.keys()
    for name, tensor in computed.items():
        assert cached[name].numpy() == pytest.approx(tensor.numpy(), abs=1e-6), name


def lines_of(dataset: Path, count: int, split: Split = Split.TRAIN) -> list[Sample]:
    return list(Dataset.open(dataset).samples(split))[:count]


def weights(run: RunFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(run.adapter.iterdir())}


# test_resuming.py does it with nano.
@pytest.mark.parametrize("trained", marked(name for name in CASES if name != "nano"), indirect=True)
def test_resumes_bit_by_bit(trained: tuple[Case, RunFolder]) -> None:
    _, run = trained
    before, metrics = weights(run), [row["loss"] for row in rows(run)]
    shutil.rmtree(run.adapter)
    shutil.rmtree(run.checkpoints / "step-0000002")
    assert train(load_run_config(run.config)).resumed_from == 1
    assert weights(run) == before
    assert [row["loss"] for row in rows(run)] == metrics


def rows(run: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines()]


def test_is_scored_read_and_served(trained: tuple[Case, RunFolder], small_dataset: Path, tmp_path: Path) -> None:
    _, run = trained
    image = open_image(lines_of(small_dataset, 1, Split.TEST)[0].image)
    text = dsocr.load(run.path).read(image).text

    card = dsocr.Run(run.path).evaluate(base=False, report=False)
    assert card.adapter is not None
    assert card.adapter.lines == 4
    name = recognize(find_base(load_run_config(run.config).base)[0]).name
    assert card.settings["family"] == name

    image.save(tmp_path / "line.png")
    dsocr.transcribe(run.path, tmp_path / "line.png", tmp_path / "texts", images="line", format="text")
    (written,) = (tmp_path / "texts").rglob("*.txt")
    one_line = text.replace("\n", " / ")
    assert written.read_text(encoding="utf-8").rstrip("\n") == f"line.png\t{one_line}"

    (served,) = ServedModels({"new": run.adapter}).read("new", [("line", image)])
    assert served.text == text


def losses(network: Any, processor: Any, samples: list[Sample]) -> list[float]:
    """The loss of each sample, which depends on every probability of its tokens."""
    encoded = [processor.encode(open_image(sample.image), sample.text) for sample in samples]
    batch = processor.family.prepare_batch(processor.collate(encoded), network.dtype)
    return [float(loss) for loss in processor.family.sample_losses(network.eval(), batch)]


@pytest.fixture(scope="module")
def lines_of_all_lengths() -> list[Image.Image]:
    drawn = np.random.default_rng(8)
    sizes = [(int(height), int(width)) for height, width in drawn.integers((30, 40), (60, 400), (5, 2))]
    return [Image.fromarray(drawn.integers(0, 255, (*size, 3), dtype=np.uint8)) for size in sizes]


def test_a_line_is_read_in_company_as_it_is_alone(reader: LocalReader, lines_of_all_lengths: list[Image.Image]) -> None:
    lines = [(str(number), image) for number, image in enumerate(lines_of_all_lengths)]
    alone = {line[0]: next(reader.read([line])) for line in lines}
    for size, order in ((16, lines), (3, lines[::-1])):
        smaller = replace(reader, generation=replace(reader.generation, batch_size=size))
        for prediction in smaller.read(order):
            expected = alone[prediction.id]
            assert prediction.text == expected.text
            assert prediction.confidence == pytest.approx(expected.confidence, abs=1e-5)
            # Of single characters more is seen of the order in which batches add up floats.
            assert prediction.characters == pytest.approx(expected.characters, abs=1e-4)


def test_validation_computes_for_a_line_in_company_what_it_computes_alone(
    reader: LocalReader, lines_of_all_lengths: list[Image.Image]
) -> None:
    processor, network = reader.processor, reader.network.eval()
    texts = ["abe", "a", "ba", "eab a", "be"]
    encoded = [processor.encode(image, text) for image, text in zip(lines_of_all_lengths, texts, strict=True)]
    batches = [encoded, *([sample] for sample in encoded)]
    losses = [
        processor.family.sample_losses(network, processor.family.prepare_batch(processor.collate(batch)))
        for batch in batches
    ]
    together, alone = losses[0], [loss for (loss,) in losses[1:]]
    # Batches add up floats in another order: the last digit of some losses, which are up to 43.
    assert together == pytest.approx(alone, abs=1e-5, rel=3e-6)


@pytest.mark.parametrize(
    ("recorded", "device", "loaded"),
    [("fp16", "cpu", torch.float32), ("fp16", "mps", torch.float16), ("bf16", "cpu", torch.float32)],
)
def test_a_run_is_read_in_its_precision_where_the_device_can(
    recorded: Any,
    device: str,
    loaded: torch.dtype,
    small_run: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = RunFolder(Path(shutil.copytree(small_run.path, tmp_path / "run")))
    assert ReadingSettings.load(run.adapter).precision == "auto"
    replace(ReadingSettings.load(run.adapter), precision=recorded).save(run.adapter)
    monkeypatch.setattr(reader_module, "choose_device", lambda: torch.device(device))
    monkeypatch.setattr(reader_module, "load_base", lambda base, dtype, device: load_base(base, dtype=dtype))
    reader = LocalReader.of_run(run)
    assert next(reader.network.parameters()).dtype is loaded


def test_merged_weights_are_base_and_adapter(
    trained: tuple[Case, RunFolder], reader: LocalReader, small_dataset: Path, tmp_path: Path
) -> None:
    _, run = trained
    samples = lines_of(small_dataset, 3)
    expected = losses(reader.network, reader.processor, samples)
    in_memory = LocalReader.of_run(run, precision="fp32")
    assert not isinstance(in_memory.network, PeftModel)
    assert losses(in_memory.network, in_memory.processor, samples) == pytest.approx(expected, rel=1e-4)
    export_merged(run, tmp_path / "merged")
    # Next to untrained, the texts of a network change with the last digit of a sum.
    merged = LocalReader.of_run(RunFolder(tmp_path / "merged"), precision="fp32")
    assert losses(merged.network, merged.processor, samples) == pytest.approx(expected, rel=1e-4)
    base = load_base(load_run_config(run.config).base)
    assert f"`{base.family.name}`" in (tmp_path / "merged" / "README.md").read_text(encoding="utf-8")
    if base.family.name != "toy":
        plain = base.processor(reader.processor.resolution_name, reader.processor.prompt)
        assert losses(base.network, plain, samples) != pytest.approx(expected, rel=1e-5)

    if isinstance(reader.network, PeftModel):
        alone = PeftModel.from_pretrained(base.network, str(run.adapter))
        assert losses(alone, reader.processor, samples) == pytest.approx(expected, rel=1e-6)


def test_what_was_trained_is_a_start(trained: tuple[Case, RunFolder], reader: LocalReader, small_dataset: Path) -> None:
    _, run = trained
    config = load_run_config(run.config)
    if (run.path / "adapter").is_dir():
        changes: dict[str, Any] = {"adapter": config.adapter.model_copy(update={"init_from": run.path})}
    else:
        changes = {"base": str(run.path)}
    setup = set_up(pinned(config.model_copy(update=changes)), lines_of(small_dataset, 4))
    samples = lines_of(small_dataset, 3)
    assert losses(setup.model, setup.processor, samples) == losses(reader.network, reader.processor, samples)


# test_preflight.py does it with nano.
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.memory])
def test_learns_five_samples_by_heart(
    name: str, small_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    samples = lines_of(small_dataset, 5)
    assert case.memory is not None
    base = case.memory(tmp_path / "base")
    config = configured(case, base, small_dataset, tmp_path / "run", r=32, dropout=0, augmentation=0)
    setup = set_up(pinned(config), samples)
    texts = [sample.text for sample in samples]
    encoded = [setup.samples[index] for index in range(5)]
    checks = setup.processor.family.check_inputs(setup.model, setup.processor, encoded, texts)
    assert [check.verdict for check in checks] == ["ok"] * len(checks)
    generation = Generation(max_new_tokens=24, no_repeat_ngram_size=0)
    monkeypatch.setattr("dsocr.training.preflight.OVERFIT_STEPS", 600)  # how many it takes depends on the processor
    steps, cer, seconds = overfit(setup, encoded, texts, generation, learning_rate=case.rate, batch_size=5)
    assert cer == 0, (steps[-1], seconds)


# What is no base


def config_of(folder: Path, **entries: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(entries), encoding="utf-8")
    return folder


def test_line_recognisers_that_transformers_does_not_load_are_named(tmp_path: Path) -> None:
    with raises_code("paddle-checkpoint") as caught:
        recognize(config_of(tmp_path, Global={"model_name": "PP-OCRv5_server_rec"}, PostProcess={}))
    assert "PaddlePaddle/PP-OCRv5_server_rec_safetensors" in (caught.value.hint or "")
    with raises_code("recogniser-unknown") as caught:
        recognize(config_of(tmp_path, model_type="pp_ocrv6_huge_rec"))
    assert "pp_ocrv5_mobile_rec" in (caught.value.hint or "")


def without_image_token(base: Path) -> None:
    tokenizer = write_first(base) / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text(encoding="utf-8").replace("<image>", "<picture>"), encoding="utf-8")


@pytest.mark.parametrize(
    ("code", "write"),
    [
        ("model-unknown", partial(config_of, model_type="bert")),
        ("remote-code", partial(config_of, model_type="dots_ocr", auto_map={"AutoModel": "modeling.Dots"})),
        ("base-incomplete", lambda base: (write_trocr(base) / "preprocessor_config.json").unlink()),
        ("base-incomplete", without_image_token),
    ],
)
def test_a_base_that_cannot_be_used_ends_with_the_remedy(
    code: str, write: Callable[[Path], object], small_dataset: Path, tmp_path: Path
) -> None:
    write(tmp_path / "base")
    error = fail("train", small_dataset, "--set", f"base={tmp_path / 'base'}", "--set", f"output={tmp_path / 'run'}")
    assert error.code == code
    assert error.hint
    assert not (tmp_path / "run").exists()
