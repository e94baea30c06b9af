"""Kraken's recognisers as bases: their pixels, logits and labels, what they learn, and files that are refused.

`parity/fixtures/kraken.*` hold what kraken 7.1.1 answers for weights and pictures made by the rules of
`parity/rules.py`, each line alone; its own answers in a batch differ from these.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file

from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.evaluation import decide
from dsocr.evaluation.decide import name_better_base
from dsocr.images import open_image
from dsocr.inference.reader import LocalReader
from dsocr.models.generation import Generation
from dsocr.models.loading import BaseModel, load_base
from dsocr.runs import RunFolder
from dsocr.text import TextPolicy
from tests.conftest import draw_line
from tests.models.test_ctc import configuration
from tests.parity.rules import HERE, Fixture, picture, weight
from tests.raising import raises_code
from tests.training.running import train

FIXTURE = Fixture.read(HERE / "fixtures" / "kraken")
CODEC: dict[str, Any] = FIXTURE.numbers["codec"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "cache"))


def tensor(name: str, shape: list[int]) -> NDArray[Any]:
    values = weight(FIXTURE.numbers["salt"], name, shape).numpy()
    if not name.endswith("running_var"):
        return values
    return 1 + 0.3 * np.abs(values / np.float32(0.05))


def write_kraken(
    file: Path, variant: str, height: int, *, codec: Mapping[str, Any] | None = None, divisor: int = 1, **changes: Any
) -> Path:
    """Write a file as kraken does, with a codec; its layers are `divisor` times as narrow as the variant's."""
    codec = CODEC if codec is None else codec
    classes = 1 + len(codec)
    shapes = {
        name: [size // divisor if size > 9 else size for size in shape]
        for name, shape in FIXTURE.numbers["tensors"][variant].items()
    }
    head = "nn.head.fc2" if variant == "tiny" else "nn.head.fc"
    shapes |= {f"{head}.bias": [classes], f"{head}.weight": [classes, shapes[f"{head}.weight"][1]]}
    meta = {"_model": "PPOCRv6Model", "variant": variant, "num_classes": classes, "height": height, "codec": codec}
    tensors = {f"one.{name}": np.ascontiguousarray(tensor(name, shape)) for name, shape in shapes.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, file, metadata={"kraken_meta": json.dumps({"one": meta | changes})})
    return file


def logits(base: BaseModel, samples: list[Any]) -> list[NDArray[np.float32]]:
    family: Any = base.family
    lines: list[NDArray[np.float32]] = family.map_logits(np.copy, base.network, base.processor(None, ""), samples)
    return lines


@pytest.mark.parametrize(
    ("variant", "height"),
    [("tiny", 96), ("small", 96), ("small", 64), pytest.param("medium", 128, marks=pytest.mark.slow)],
)
def test_pixels_and_logits_are_krakens_alone_and_in_company(tmp_path: Path, variant: str, height: int) -> None:
    base = load_base(str(write_kraken(tmp_path / "model.safetensors", variant, height)))
    processor: Any = base.processor(None, "")
    cases = {
        number: case
        for number, case in enumerate(FIXTURE.numbers["cases"])
        if (case["variant"], case["line_height"]) == (variant, height)
    }
    samples = {number: processor.encode(picture(case)) for number, case in cases.items()}
    company = processor.encode(picture({"width": 400, "height": 50, "seed": 9}))
    for number, sample in samples.items():
        expected = FIXTURE.answers[f"{number}_logits"]
        if f"{number}_pixels" in FIXTURE.answers:
            pixels = processor.canvas.values(sample.image).transpose(2, 0, 1)
            assert np.abs(pixels - FIXTURE.answers[f"{number}_pixels"] / np.float32(255)).max() < 1e-6
        batch = processor.collate([company, *samples.values()])
        with torch.inference_mode():
            together = base.network(batch["pixel_values"], batch["columns"])[1 + list(samples).index(number)]
        for got in (logits(base, [sample])[0], together[: len(expected)].numpy()):
            assert np.abs(got - expected).max() < 1e-5


@pytest.fixture
def narrow(tmp_path: Path) -> Path:
    return write_kraken(tmp_path / "narrow.safetensors", "tiny", 64, divisor=4)


def test_labels_of_several_code_points_are_written_and_read(narrow: Path) -> None:
    """`й` of NFC is two labels of this codec, and `ѡ` with its mark above one."""
    base = load_base(str(narrow))
    processor: Any = base.processor(None, "")
    text = "й ѡ\u0483бtz"
    classes = [CODEC[label][0] for label in ("и", "\u0306", " ", "ѡ\u0483", "б", "tz")]
    assert processor.text_ids(text) == classes
    reader: Any = LocalReader(base.network, processor, Generation(), TextPolicy())
    assert (reader.can_write(text), reader.can_write(text + "ж")) == (True, False)
    path = np.full((2 * len(classes), len(CODEC) + 1), -20.0, np.float32)
    path[range(0, 2 * len(classes), 2), classes] = 20
    path[1::2, 0] = 20
    family: Any = base.family
    read = family.logits_decoder(processor, Generation())(path)
    assert read.text == text
    assert [(score.start, score.end) for score in read.scores] == [
        (0, 1), (0, 1), (1, 2), (2, 4), (4, 5), (5, 7), (7, 7)
    ]  # fmt: skip
    assert len(read.positions) == len(text)
    network, wider = base.family.adapt_to(base.network, processor, [text, "жй"])
    assert wider.text_ids("tzж") == [CODEC["tz"][0], len(CODEC) + 1], "the codec stays, and what it lacks is added"
    files = dict(base.family.network_files(network))
    assert json.loads(files["vocab.json"]) == [*CODEC, "ж"]


def test_its_language_model_counts_the_labels_of_its_codec(narrow: Path) -> None:
    """Also of texts with `й`, which its codec has as two, and of labels of several code points."""
    base = load_base(str(narrow))
    processor: Any = base.processor(None, "")
    family: Any = base.family
    text = "йtz"
    classes = processor.text_ids(text)
    path = np.full((6, len(CODEC) + 1), -20.0, np.float32)
    path[range(0, 6, 2), classes] = 20
    path[1::2, 0] = 20
    fitted = family.fit_language_model(
        processor, [text] * 3, [path], [text], Generation(), is_better=lambda before, after: True
    )
    assert fitted.language_model.gain == (0, 0), "read without an error"
    assert processor.fold(text) == "".join(processor.characters[number - 1] for number in classes)
    assert set(fitted.language_model.followers[""]) >= set(processor.fold(text))


def test_it_learns_and_reads_what_it_learnt(narrow: Path, small_dataset: Path, tmp_path: Path) -> None:
    """A checkpoint keeps the canvas and the codec, and a run reads as its network in memory did."""
    run = train(configuration(narrow, small_dataset, tmp_path / "run"), preflight=False).run
    config = json.loads((run.adapter / "config.json").read_text(encoding="utf-8"))
    assert (config["line_height"], config["line_kraken"], config["line_stretch"]) == (64, True, 1.0)
    again, start = load_base(str(run.adapter)), load_base(str(narrow))
    processor: Any = again.processor(None, "")
    assert processor.canvas == start.processor(None, "").canvas  # type: ignore[attr-defined]
    labels = [processor.spelled.get(character, character) for character in processor.characters]
    assert labels[: len(CODEC)] == list(CODEC)
    sample = processor.encode(picture({"width": 200, "height": 40, "seed": 1}))
    assert not np.array_equal(logits(again, [sample])[0][:, : len(CODEC)], logits(start, [sample])[0][:, : len(CODEC)])


@pytest.mark.slow
def test_a_random_network_memorises_five_lines(tmp_path: Path) -> None:
    base = load_base(str(write_kraken(tmp_path / "tiny.safetensors", "tiny", 64, divisor=4)))
    network, processor, family = base.network, base.processor(None, ""), base.family
    texts, samples = ["абв", "вба г", "иа б", "tz в", "ѣ а"], []
    for text in texts:
        draw_line(tmp_path / "line.png", text)
        samples.append(processor.encode(open_image(tmp_path / "line.png"), text))
    optimizer = torch.optim.AdamW(network.requires_grad_(True).parameters(), lr=5e-3, weight_decay=0)
    batch, read = processor.collate(samples), list[str]()
    for step in range(400):
        family.loss(network.train(), batch, (batch["labels"] >= 0).sum()).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 19:
            read = [line.text for line in family.decode(network, processor, samples, Generation())]
        if read == texts:
            break
    assert read == texts


def test_a_folder_with_one_file_is_that_file_and_a_run_reads_with_it(narrow: Path) -> None:
    assert RunFolder.to_read_with(narrow).is_base
    assert RunFolder.to_read_with(narrow.parent).path == RunFolder.to_read_with(narrow).path
    write_kraken(narrow.parent / "second.safetensors", "tiny", 96, divisor=4)
    with raises_code("kraken-model"):
        RunFolder.to_read_with(narrow.parent)


def written(**changes: Any) -> Callable[[Path], object]:
    return lambda folder: write_kraken(folder / "m.safetensors", "tiny", 96, divisor=4, **changes)


def renumbered(text: str, number: int) -> Mapping[str, Any]:
    return CODEC | {text: [number]}


def truncated(folder: Path) -> None:
    file = write_kraken(folder / "m.safetensors", "tiny", 96, divisor=4)
    file.write_bytes(file.read_bytes()[:-1000])


def foreign(folder: Path, **metadata: str) -> None:
    save_file({"one.nn.x": np.zeros(3, np.float32)}, folder / "m.safetensors", metadata=metadata)


OTHER_NETWORK = json.dumps({"one": {"_model": "PPOCRv6Model", "height": 96, "num_classes": 2, "codec": {"a": [1]}}})
WRONG: list[tuple[str, str, Callable[[Path], object]]] = [
    ("an old kraken model", "kraken-model", lambda folder: (folder / "m.mlmodel").write_bytes(b"x")),
    ("a segmentation model", "kraken-model", written(_model="TorchVGSLModel")),
    ("another network", "kraken-model", lambda folder: foreign(folder, kraken_meta=OTHER_NETWORK)),
    ("a header that is no JSON", "not-json", lambda folder: foreign(folder, kraken_meta="{")),
    ("a file of another program", "base-incomplete", foreign),
    ("no codec", "kraken-codec", written(codec={})),
    ("two letters of one class", "kraken-codec", written(codec=renumbered("б", 2))),
    ("a class that is not there", "kraken-codec", written(codec=renumbered("б", 99))),
    ("a letter of two classes", "kraken-codec", written(codec=CODEC | {"ж": [1, 2]})),
    ("a truncated file", "weights-damaged", truncated),
    ("pickled weights", "weights-pickled", lambda folder: (folder / "m.pt").write_bytes(b"x")),
]


@pytest.mark.parametrize(("code", "write"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_files_are_refused_by_name(tmp_path: Path, code: str, write: Callable[[Path], object]) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    write(folder)
    (file,) = folder.iterdir()
    with raises_code(code, where=file.name):
        load_base(str(file))
    with raises_code(code, where=file.name):
        RunFolder.to_read_with(file)


def test_a_downloaded_base_that_reads_better_is_named(
    narrow: Path, small_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = list(Dataset.open(small_dataset).samples(Split.TRAIN))
    assert name_better_base("small", lines) is None, "nothing was downloaded"
    monkeypatch.setattr(decide, "find_cached_model", lambda name, revision: narrow)
    monkeypatch.setattr(decide, "KRAKENS_BASE", str(narrow))
    assert name_better_base("small", lines) is None, "it reads worse"
    monkeypatch.setattr(decide, "KRAKENS_BASE", "small")
    monkeypatch.setattr(decide, "embedded_bases", lambda: {str(narrow): narrow})
    better = name_better_base(str(narrow), lines)
    assert better is not None
    assert f"{len(lines)} of these lines" in better
    assert "base=small" in better
