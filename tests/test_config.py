"""The configuration: defaults, spellings and problems in sentences."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from dsocr.config import RunConfig, Section, config_keys, load_config
from dsocr.errors import ConfigError
from tests.raising import raises_code

NEEDED = "dataset: letters\noutput: runs/letters\n"

Written = Callable[[str | bytes], Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write(text: str | bytes) -> Path:
        path = tmp_path / "run.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


DEFAULTS = """
base: small
base_revision: null
dataset: letters
fold: null
output: runs/letters
seed: 17
input: {resolution: null, prompt: free_ocr}
adapter: {target_modules: decoder, r: 8, alpha: 16, dropout: 0.0, variant: lora, init_from: null, quantization: null}
training: {epochs: 10.0, max_steps: null, max_samples: null, batch_size: 32, micro_batch_size: 8,
  learning_rate: null, vision_learning_rate: null, warmup_ratio: 0.05, lr_scheduler: cosine, optimizer: AdamW,
  weight_decay: 0.01, max_grad_norm: 1.0, precision: auto, attention: sdpa, gradient_checkpointing: false,
  compile: false, group_by_length: true, feature_cache: auto, feature_cache_gb: 20.0, feature_cache_views: 4,
  augmentation: 0.0, long_text: error, max_text_tokens: 512, num_workers: 0, threads: null, unlabelled: [],
  report_to: [tensorboard]}
validation: {every_steps: 100, max_samples: 200, patience: 5}
checkpoints: {every_steps: 200, keep: 2}
generation: {max_new_tokens: 256, no_repeat_ngram_size: 20, no_repeat_ngram_window: 90,
  no_repeat_ngram_whitelist: [<td>, </td>], num_beams: 1, script: auto, language_model: auto,
  batch_size: 16,
  prefetch_batches: 8}
"""


def test_no_default_changes_unnoticed(written: Written) -> None:
    """A default that changes also changes the results of everybody who did not set it: say so in CHANGELOG.md."""
    config = load_config(written(f"{NEEDED}training: {{epochs: null}}\ninput:\n"))
    assert yaml.safe_load(config.to_yaml()) == yaml.safe_load(DEFAULTS)


def test_every_problem_of_a_file_is_reported_at_once(written: Written) -> None:
    path = written("output: r\nadapter:\n  alpha: 0\n  alhpa: 8\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, ["adaptr.r=4", "adapter.r", "adapter.r=[", "output.r=4"])
    assert str(caught.value) == (
        f"{path}: 7 problems\n"
        "  'adapter.r': an override has the form section.key=value\n"
        "  adapter.r: '[' is not YAML: expected the node content, but found '<stream end>'\n"
        "  output.r: 'output' has no keys\n"
        "  dataset: is missing\n"
        "  adapter.alpha: must be greater than 0, not 0\n"
        "  adapter.alhpa: unknown key; did you mean 'alpha'?\n"
        "  adaptr: unknown key; did you mean 'adapter'?"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("alpha: 8", "alpha: unknown key; did you mean 'adapter.alpha'?", id="key outside its section"),
        pytest.param(
            "lerning_rate: 1", "unknown key; did you mean 'training.learning_rate'?", id="a typo outside its section"
        ),
        pytest.param(
            "checkpoints: {a: 1}", "checkpoints.a: unknown key; the keys are every_steps, keep", id="no guess"
        ),
        pytest.param("save_steps: 9", "here its name is 'checkpoints.every_steps'", id="a name of transformers"),
        pytest.param("training: {bf16: 1}", "here its name is 'training.precision'", id="another, in a section"),
        pytest.param("1: 2", "1: unknown key", id="a key that is no word"),
        pytest.param("input: []", "input: must hold keys and values, not []", id="a list for a section"),
        pytest.param("base: null", "base: must be a valid string, not null", id="nothing for a text"),
        pytest.param("seed: 3.5", "seed: must be a valid integer, not 3.5", id="half a seed"),
        pytest.param("training: {learning_rate: .nan}", "must be a finite number, not nan", id="not a number"),
        pytest.param("training: {lr_scheduler: cos}", "lr_scheduler.name: must be 'cosine', 'linear',", id="choices"),
        pytest.param("training: {warmup_ratio: yes}", "warmup_ratio: must not be true", id="yes is not the number 1"),
        pytest.param("training: {epochs: 1, max_steps: 2}", "exclude each other", id="two lengths"),
        pytest.param("training: {batch_size: 30}", "micro_batch_size (8) must divide", id="uneven step"),
        pytest.param("training: {augmentation: wild}", "must be none, light or a", id="no such preset"),
        pytest.param("training: {augmentation: 2.1}", "or a number from 0 to 2, not 2.1", id="too much augmentation"),
        pytest.param("training: {augmentation: .nan}", "or a number from 0 to 2, not nan", id="no augmentation at all"),
        pytest.param("adapter: {target_modules: q_proj}", "must be decoder, decoder+experts,", id="bare name"),
        pytest.param("adapter: {target_modules: '^(q$'}", "is not a regular expression", id="broken pattern"),
        pytest.param("output: twice", "output: given twice, in lines 2 and 3", id="duplicate key"),
        pytest.param("input: {prompt: a, prompt: b}", "input.prompt: given twice", id="duplicate key in a section"),
    ],
)
def test_a_mistake_is_reported_in_a_sentence(written: Written, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(NEEDED + text))
    assert caught.value.code == "config-invalid"
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("content", "code", "hint"),
    [
        pytest.param(b"a: 1\ndataset: [", "config-unreadable", None, id="broken"),
        pytest.param(b"- a list", "config-unreadable", "recipe", id="a list"),
        pytest.param(b"", "config-unreadable", "recipe", id="an empty file"),
        pytest.param("base: нано".encode("cp1251"), "not-utf8", "UTF-8", id="another encoding"),
        pytest.param(b"a: !!python/object/apply:os.getcwd []", "config-unreadable", None, id="no Python from YAML"),
        pytest.param(b'dataset: "C:\\Users\\scans"', "config-unreadable", "paths with /", id="a path of Windows"),
        pytest.param(b"training:\n\tepochs: 3", "config-unreadable", "indent with spaces", id="a tab"),
    ],
)
def test_a_file_that_is_no_configuration(written: Written, content: bytes, code: str, hint: str | None) -> None:
    path = written(content)
    with raises_code(code) as caught:
        load_config(path)
    assert str(caught.value.where).startswith(str(path))
    assert (hint or "") in (caught.value.hint or "")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with raises_code("input-missing", where="nowhere.yaml"):
        load_config(tmp_path / "nowhere.yaml")
    with raises_code("config-unreadable", where=str(tmp_path)):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        pytest.param("learning_rate: 1e-4", "learning_rate", 1e-4, id="PyYAML alone reads 1e-4 as a string"),
        pytest.param("max_steps: 3", "epochs", None, id="steps take the place of epochs"),
        pytest.param("augmentation: 1", "augmentation", 1.0, id="a number for an augmentation"),
        pytest.param("augmentation: '0.5'", "augmentation", 0.5, id="a number as text"),
        pytest.param("augmentation: none", "augmentation", "none", id="none, which YAML takes for a word"),
        pytest.param("augmentation: light", "augmentation", "light", id="a preset"),
        pytest.param("report_to: wandb", "report_to", ("wandb",), id="one tracker"),
        pytest.param("report_to: [tensorboard, mlflow]", "report_to", ("tensorboard", "mlflow"), id="two trackers"),
        pytest.param("report_to: none", "report_to", (), id="no tracker"),
    ],
)
def test_common_spellings_are_accepted(written: Written, text: str, key: str, value: object) -> None:
    config = load_config(written(f"\ufeff{NEEDED}training: {{{text}}}"))
    assert getattr(config.training, key) == value
    assert load_config(written(config.to_yaml())) == config


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        pytest.param("optimizer: SGD", "SGD", {}, id="a name"),
        pytest.param("optimizer: {name: SGD, momentum: 0.9}", "SGD", {"momentum": 0.9}, id="a name with arguments"),
    ],
)
def test_an_optimizer_has_a_name_and_arguments(written: Written, text: str, name: str, arguments: Any) -> None:
    config = load_config(written(f"{NEEDED}training: {{{text}}}"))
    assert (config.training.optimizer.name, config.training.optimizer.arguments) == (name, arguments)
    assert load_config(written(config.to_yaml())) == config


def test_what_was_given_makes_the_same_configuration_and_leaves_the_rest_to_the_base(written: Written) -> None:
    config = load_config(written(NEEDED + "adapter: {r: 4}\nseed: 18\n"), ["training.epochs=3"])
    config = config.model_copy(update={"fold": 2})
    given = {"dataset": "letters", "fold": 2, "output": "runs/letters", "seed": 18}
    given |= {"adapter": {"r": 4}, "training": {"epochs": 3}}
    assert yaml.safe_load(config.to_yaml(complete=False)) == given
    again = load_config(written(config.to_yaml(complete=False)))
    assert again == load_config(config.given()) == config
    assert again.training.model_fields_set == {"epochs"}


def test_module_names_become_one_pattern(written: Written) -> None:
    target = load_config(written(NEEDED + "adapter: {target_modules: [q_proj, v_proj]}")).adapter.target
    names = ["layers.0.q_proj", "layers.1.v_proj", "layers.0.k_proj", "layers.0.xq_proj"]
    assert [name for name in names if re.fullmatch(target, name)] == names[:2]


def test_overrides_win_over_the_file_and_survive_the_recorded_one(written: Written) -> None:
    overrides = ["adapter.r=4", "training.learning_rate=1e-3", "input.prompt=Прочти = это", "base=письма/модель"]
    overrides += ["validation.max_samples=null", "adapter.target_modules=^.*q_proj$", "base_revision='1e5'"]
    config = load_config(written(NEEDED + "adapter: {r: 16}\nvalidation:\n"), overrides)
    assert (config.adapter.r, config.training.learning_rate, config.base_revision) == (4, 1e-3, "1e5")
    assert (config.input.prompt, config.validation.max_samples) == ("Прочти = это", None)
    assert load_config(written(config.to_yaml())) == config
    prompt = 'input.prompt="<image>\\nРаз: два # три"'
    assert load_config(written(NEEDED), [prompt]).input.prompt == "<image>\nРаз: два # три"


def test_a_mapping_and_changes_are_a_configuration_too() -> None:
    given = {"dataset": "letters", "training": {"max_steps": 3}}
    config = load_config(given, changes={"output": Path("runs/letters"), "training.batch_size": 8})
    assert (config.training.max_steps, config.training.batch_size, config.output) == (3, 8, Path("runs/letters"))
    assert given == {"dataset": "letters", "training": {"max_steps": 3}}, "the caller's mapping is not changed"


def test_a_configuration_cannot_change() -> None:
    config = RunConfig(dataset=Path("d"), output=Path("r"))
    with pytest.raises(ValidationError):
        config.adapter.r = 3


def test_every_setting_has_a_help_text() -> None:
    sections = [RunConfig, *(field.annotation for field in RunConfig.model_fields.values())]
    for section in sections:
        if isinstance(section, type) and issubclass(section, Section):
            assert [name for name, field in section.model_fields.items() if not field.description] == []
    assert "adapter.r" in config_keys()
