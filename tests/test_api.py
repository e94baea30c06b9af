"""`import dsocr`: lazy, typed, with the command line's defaults, and the code of the README."""

import ast
import builtins
import collections.abc
import inspect
import json
import random
import re
import shutil
import subprocess
import sys
import tomllib
import typing
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import TypeAdapter
from transformers.utils import logging

import dsocr
from dsocr.cli.commands import COMMANDS
from dsocr.config import Component, config_sections
from dsocr.data.dataset import Dataset
from dsocr.job import complete_config
from dsocr.models.loading import family_of
from dsocr.runs import RunFolder
from tests.integration.calling import arguments_of
from tests.raising import raises_code
from tests.training.running import pinned
from write_reference import coded_errors, without_options

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dsocr"
QUICK: dict[str, Any] = {
    "adapter": {"target_modules": "decoder", "r": 2},
    "max_steps": 2,
    "training.batch_size": 4,
    "micro_batch_size": 4,
    "validation": {"every_steps": 2, "max_samples": 2},
    "max_new_tokens": 12,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_calls_a_public_function(name: str) -> None:
    command = COMMANDS[name]
    if name != "demo":  # which calls the others
        functions = [command.function, *(switch.function for switch in command.switches if not switch.is_alone)]
        assert {function.removeprefix("dsocr:") for function in functions} <= {*dsocr.__all__}


def test_commands_options_codes_and_requirements_grow_no_more() -> None:
    """What a person must learn, install or look up; for a new one an old one goes."""
    codes = {code for file in SOURCE.rglob("*.py") for code, *_ in coded_errors(ast.parse(file.read_text("utf-8")))}
    options = [argument.name for name in COMMANDS for argument in arguments_of(name) if argument.name.startswith("-")]
    alone = [switch.name for command in COMMANDS.values() for switch in command.switches if switch.is_alone]
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    counts = [len(COMMANDS), len(options + alone) + 2, len(codes), len(requirements)]  # also --json and --quiet
    assert all(count <= limit for count, limit in zip(counts, [19, 152, 275, 15], strict=True)), counts


def test_importing_and_help_load_nothing_slow() -> None:
    script = """import sys, dsocr
assert not [name for name in sys.modules if name.startswith('dsocr.')]
dir(dsocr), dsocr.DataError
assert not {'torch', 'numpy', 'pydantic'} & set(sys.modules)
from dsocr.cli.app import invoke
invoke(['--help'])
assert not {'torch', 'transformers', 'numpy', 'pydantic'} & set(sys.modules)
dsocr.prepare, dsocr.Run, dsocr.load_config
assert 'torch' not in sys.modules"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, encoding="utf-8")
    assert "transcribe" in done.stdout


def test_every_public_name_is_there() -> None:
    assert set(dsocr.__all__) <= set(dir(dsocr))
    for name in dsocr.__all__:
        assert getattr(dsocr, name) is not None
    with pytest.raises(AttributeError):
        getattr(dsocr, "nothing")  # noqa: B009


HELD = {"Callback", "Dataset", "Reader", "Run", "Trainer"}
"""Classes whose methods users call; the others are results."""


def annotations_of(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Each annotation of a public function, or of the public methods of a class, as it is written."""
    members = (
        {name: value} if not inspect.isclass(value) else {f"{name}.{key}": part for key, part in vars(value).items()}
    )
    for where, member in members.items():
        function = getattr(member, "fget", getattr(member, "__func__", member))
        if inspect.isfunction(function) and not function.__name__.startswith("_"):
            for annotation in function.__annotations__.values():
                yield where, annotation if isinstance(annotation, str) else str(without_options(annotation))


def test_every_type_of_a_public_signature_can_be_imported() -> None:
    known = {*dsocr.__all__, *vars(builtins), *vars(typing), *vars(collections.abc), "NoneType", "Path", "PathLike"}
    foreign = {"Range", "PIL", "Image", "PreTrainedModel", "Module", "Optimizer", "LRScheduler", "DataLoader", "Tensor"}
    missing = {
        (where, word)
        for name in dsocr.__all__
        if name in HELD or not inspect.isclass(getattr(dsocr, name))
        for where, annotation in annotations_of(name, getattr(dsocr, name))
        for word in re.findall(r"\b[A-Z]\w+", re.sub(r"Literal\[.*?\]", "", annotation))
        if word not in known | foreign
    }
    assert missing == set()


def test_a_configuration_object_trains_with_the_defaults_of_the_base() -> None:
    config = dsocr.load_config({"base": "small", "dataset": "letters", "output": "runs/letters", "seed": 18})
    completed = complete_config(config, None, None, {"epochs": 3})
    assert completed.training.model_fields_set == {"epochs"}
    training = pinned(completed).training
    assert (completed.seed, training.epochs, training.batch_size, training.augmentation) == (18, 3, 16, "light")


def test_keywords_of_train_are_the_keys_of_the_configuration() -> None:
    sections = {name: set(section.model_fields) for name, section in config_sections().items()}
    counts = Counter(key for keys in sections.values() for key in keys)
    first = set().union(*(sections[name] for name in ("input", "adapter", "training")))
    unique = {key for key, count in counts.items() if count == 1}
    expected = {*dsocr.RunConfig.model_fields, *first, *unique} - {"dataset", "unlabelled"}
    assert get_type_hints(dsocr.RunConfigKeys).keys() == expected


def test_every_default_of_the_configuration_has_the_type_of_its_keyword() -> None:
    hints = get_type_hints(dsocr.RunConfigKeys)
    for kind in config_sections().values():
        for key, field in kind.model_fields.items():
            if key in hints:
                default = field.default.name if isinstance(field.default, Component) else field.default
                TypeAdapter(hints[key]).validate_python(default)


def test_a_run_is_evaluated_read_with_and_exported(small_run: RunFolder, small_dataset: Path, tmp_path: Path) -> None:
    run = dsocr.Run(shutil.copytree(small_run.path, tmp_path / "run"))
    assert (run.config.training.max_steps, run.config.dataset) == (8, small_dataset)
    assert run.history.training[-1]["step"] == 8
    assert run.scorecard is None
    card = run.evaluate(limit=2, base=False)
    assert run.scorecard is not None
    assert run.scorecard.cer == card.cer
    assert run.report().path.is_file()
    assert "best validation CER" in run._repr_html_()

    reader = run.reader()
    image = next(iter(Dataset.open(small_dataset))).image
    alone, (first, second) = reader.read(image), reader.read([str(image), Image.open(str(image))])
    assert alone.text == first.text == second.text
    grey = Image.open(str(image)).convert("L")
    twelve_bits = Image.fromarray(np.asarray(grey).astype(np.uint16) * 16)
    assert reader.read(twelve_bits).confidence == pytest.approx(reader.read(grey).confidence, rel=0.1)
    report = reader.transcribe(small_dataset / "test", tmp_path / "texts.jsonl", review=tmp_path / "review.txt")
    rows = [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text(encoding="utf-8").splitlines()]
    assert report.lines == len(rows) == 4
    review = tmp_path / "again.txt"
    again = dsocr.transcribe(run, [small_dataset / "test"], tmp_path / "pages", format="text", review=review)
    assert again.lines == 4
    assert report.estimated_cer is not None
    assert again.estimated_cer is not None
    assert report.estimated_cer.cer == pytest.approx(again.estimated_cer.cer, abs=0.01)

    dsocr.export(run, tmp_path / "export")
    assert dsocr.load(tmp_path / "export").read(image).text == alone.text
    with raises_code("output-exists"):
        dsocr.train(dataset=small_dataset, output=tmp_path / "run", base="nano", **QUICK)


def test_a_page_that_is_read_as_a_line_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="transcribe"):
        dsocr.load("small").read(Image.new("L", (900, 1200), 255))


def test_what_is_no_image_or_has_no_pixels_is_named() -> None:
    reader: Any = dsocr.load("small")
    for image in (None, b"line.png", np.zeros((48, 300), np.uint8), [3]):
        with raises_code("image-type"):
            reader.read(image)
    for size in ((0, 0), (300, 0), (0, 48)):
        with raises_code("image-empty"):
            reader.read(Image.new("L", size))


@pytest.mark.parametrize("callback", [print, dsocr.Callback], ids=["no hooks", "a class, where its object is meant"])
def test_what_is_no_callback_is_refused_before_any_work(callback: Any, small_dataset: Path, tmp_path: Path) -> None:
    with raises_code("callback-type"):
        dsocr.train(dataset=small_dataset, output=tmp_path / "run", callbacks=[callback])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("function", [dsocr.train, dsocr.dry_run])
@pytest.mark.parametrize("name", ["config", "dataset"])
def test_a_list_of_pairs_is_to_be_prepared(function: Any, name: str) -> None:
    with raises_code("not-a-dataset") as error:
        function(**{name: [("a.png", "текст")]})
    assert "dsocr prepare" in str(error.value.hint)


@pytest.mark.parametrize(
    ("settings", "code", "named"),
    [
        pytest.param({"every_steps": 3}, "config-key-ambiguous", "validation.every_steps", id="a key of two sections"),
        pytest.param({"max_stepz": 3}, "config-invalid", "max_stepz", id="no key"),
    ],
)
def test_settings_that_are_wrong_are_named(settings: dict[str, Any], code: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(dsocr.ConfigError) as caught:
        dsocr.train(dataset=tmp_path, **settings)
    assert caught.value.code == code
    assert named in str(caught.value)


def blocks_of(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def code_of(name: str) -> str:
    return "\n".join(blocks_of(name))


def test_the_guide_to_training_in_other_projects_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, hooks, loop, _, _ = blocks_of("docs/guide/python.md")
    called: dict[str, Any] = {}
    monkeypatch.setitem(dsocr.__dict__, "train", called.update)
    exec(compile(hooks, "python.md", "exec"), {})
    (hook,) = called["callbacks"]
    assert isinstance(hook, dsocr.Callback)
    names: dict[str, Any] = {}
    exec(compile(loop, "python.md", "exec"), names)
    assert names["trainer"].state.step == 100
    assert names["model"].weight.detach().numpy() == pytest.approx(1, abs=0.3)


def test_transformers_trains_with_our_processor(
    small_dataset: Path, shallow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, plain, _ = blocks_of("docs/guide/python.md")
    for text, other in (("nano", shallow), ("data/mine", str(small_dataset)), ("max_steps=20", "max_steps=2")):
        assert text in plain
        plain = plain.replace(text, other.replace("\\", "/"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PEFT and transformers
        exec(compile(plain, "python.md", "exec"), names)
    assert names["trainer"].state.global_step == 2
    assert any(bool(weight.any()) for name, weight in names["model"].named_parameters() if "lora_B" in name)


def test_a_training_leaves_its_process_as_it_was(small_dataset: Path, shallow: str, tmp_path: Path) -> None:
    def state() -> list[object]:
        drawn = np.random.get_state(legacy=False)["state"]["key"].tolist()
        return [random.getstate(), drawn, torch.get_rng_state().tolist(), [*warnings.filters], logging.get_verbosity()]

    import_module("dsocr.training.recipe")  # libraries have filters of their own, from when they are imported
    import_module("accelerate.scheduler")
    random.seed(5)
    before = state()
    dsocr.train(dataset=small_dataset, output=tmp_path / "run", base=shallow, preflight=False, **QUICK)
    assert state() == before


def test_a_reader_hands_out_what_reads(capfd: pytest.CaptureFixture[str]) -> None:
    reader = dsocr.load("nano")
    assert capfd.readouterr() == ("", "")
    assert not reader.network.training
    assert reader.processor.family == family_of(reader.network)


def test_the_code_of_the_readme_runs(
    small_dataset: Path, shallow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = code_of("README.md")
    assert code
    assert ast.dump(ast.parse(code)) == ast.dump(ast.parse(code_of("README.ru.md"))), "comments are translated"
    monkeypatch.chdir(tmp_path)
    samples = list(Dataset.open(small_dataset))
    (tmp_path / "scans").mkdir()
    for number, sample in enumerate(samples):
        line = tmp_path / "scans" / f"{'abcde'[number % 5]}_{number}.png"
        shutil.copy(str(sample.image), line)
        line.with_suffix(".txt").write_text(sample.text, encoding="utf-8")
    shutil.copytree(small_dataset / "test", tmp_path / "new_scans")
    shutil.copy(str(samples[0].image), tmp_path / "line.png")
    train = dsocr.train
    monkeypatch.setitem(dsocr.__dict__, "train", lambda **given: train(**given, **QUICK, base=shallow, preflight=False))
    exec(compile(code, "README.md", "exec"), {})
    assert (tmp_path / "out").is_dir()


def test_the_notebook_runs(shallow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((ROOT / "examples" / "first_steps.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell.get("outputs") for cell in notebook["cells"])
    shorter = {
        "run.evaluate()": "run.evaluate(limit=4)",
        '"examples/copiste"': '"few"',
        "examples/copiste/jpg/wikitexte_0001_1.jpg": "line.png",
    }
    for whole, few in shorter.items():
        assert any(whole in cell for cell in cells)
        cells = [cell.replace(whole, few) for cell in cells]
    monkeypatch.chdir(tmp_path)
    for name in ("wikitexte_0001_1", "wikitexte_0007", "wikitexte_0009", "wikitexte_0026"):
        for file in (f"alto/{name}.xml", f"jpg/{name}.jpg"):
            (tmp_path / "few" / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / "examples" / "copiste" / file, tmp_path / "few" / file)
    line = next((ROOT / "examples" / "handwriting" / "test" / "images").iterdir())
    shutil.copy(line, tmp_path / "line.png")
    train = dsocr.train
    monkeypatch.setitem(
        dsocr.__dict__, "train", lambda **given: train(**{**given, **QUICK, "base": shallow}, preflight=False)
    )
    names: dict[str, Any] = {"display": print}
    for cell in cells:
        exec(compile(cell, "first_steps.ipynb", "exec"), names)
    assert names["card"]._repr_html_()


@pytest.mark.parametrize("score", [dsocr.cer, dsocr.wer])
def test_what_is_no_text_is_not_scored(score: Any) -> None:
    for references, predictions in ([None], ["a"]), (["a"], [3]):
        with raises_code("not-a-text"):
            score(references, predictions)
