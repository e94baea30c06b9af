import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from dsocr.config import RENAMED_KEYS, RunConfig, Section, config_keys, load_config, load_run_config
from dsocr.errors import ConfigError

NEEDED = "dataset: letters\noutput: runs/letters\n"


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_every_problem_of_a_file_is_reported_at_once(written: Callable[[str], Path]) -> None:
    path = written("output: r\nadapter:\n  alpha: 0\n  alhpa: 8\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value) == (
        f"{path}: 3 problems\n"
        "  dataset: field required\n"
        "  adapter.alpha: must be greater than 0, not 0\n"
        "  adapter.alhpa: unknown key; did you mean 'alpha'?"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            "traning: {max_steps: 3}", "traning: unknown key; did you mean 'training'?", id="misspelt section"
        ),
        pytest.param("alpha: 8", "alpha: unknown key; did you mean 'adapter.alpha'?", id="key outside its section"),
        pytest.param(
            "checkpoints: {a: 1}", "checkpoints.a: unknown key; the keys are every_steps, keep", id="no guess"
        ),
        pytest.param("1: 2", "1: unknown key", id="a key that is no word"),
        pytest.param("input: []", "input: must hold keys and values, not []", id="a list for a section"),
        pytest.param("base: null", "base: must be a valid string, not null", id="nothing for a text"),
        pytest.param("seed: 3.5", "seed: must be a valid integer, not 3.5", id="half a seed"),
        pytest.param("training: {learning_rate: .nan}", "must be a finite number, not nan", id="not a number"),
        pytest.param(
            "training: {lr_scheduler: cos}", "training.lr_scheduler: must be one of cosine, linear,", id="choices"
        ),
        pytest.param(
            "training: {warmup_ratio: yes}", "training.warmup_ratio: must not be true", id="yes is not the number 1"
        ),
        pytest.param("training: {epochs: 1, max_steps: 2}", "exclude each other", id="two lengths"),
        pytest.param("training: {batch_size: 30}", "micro_batch_size (8) must divide", id="uneven step"),
        pytest.param(
            "adapter: {target_modules: q_proj}",
            "adapter.target_modules: must be decoder, decoder+experts,",
            id="bare name",
        ),
        pytest.param(
            "adapter: {target_modules: '^(q$'}",
            "adapter.target_modules: is not a regular expression",
            id="broken pattern",
        ),
        pytest.param("output: twice", "output: given twice, in lines 2 and 3", id="duplicate key"),
        pytest.param("input: {prompt: a, prompt: b}", "input.prompt: given twice", id="duplicate key in a section"),
    ],
)
def test_a_mistake_is_reported_in_a_sentence(written: Callable[[str], Path], text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(NEEDED + text))
    assert caught.value.code == "config-invalid"
    assert problem in str(caught.value)


OLD = """
dataset: letters
run: runs/letters
input: {lines_per_sheet: 1, single_lines: 0.0, read_sheets: true}  # dialect: key of an old file
adapter: {scope: decoder+vision, rank: 4}
training: {epochs: null, steps: 5, samples: 7,
  samples_per_step: 4, samples_per_forward: 2, warmup: 0.1,  # dialect: key of an old file
  schedule: linear, max_gradient_norm: 2.0, length_window: 0,  # dialect: key of an old file
  vision_cache: false, vision_cache_gigabytes: 3.0,
  vision_cache_views: 2, workers: 1, processes: auto}
validation: {samples: 6}
generation: {beams: 2, samples_per_batch: 3, look_ahead: 4}  # dialect: key of an old file
"""
NEW = """
dataset: letters
output: runs/letters
adapter: {target_modules: decoder+vision, r: 4}
training: {max_steps: 5, max_samples: 7, batch_size: 4, micro_batch_size: 2, warmup_ratio: 0.1, lr_scheduler: linear,
  max_grad_norm: 2.0, group_by_length: false, feature_cache: false, feature_cache_gb: 3.0, feature_cache_views: 2,
  num_workers: 1}
validation: {max_samples: 6}
generation: {num_beams: 2, batch_size: 3, prefetch_batches: 4}
"""


def test_the_configuration_of_an_earlier_run_is_read_with_todays_names(written: Callable[[str], Path]) -> None:
    assert load_run_config(written(OLD)) == load_config(written(NEW))


def test_every_renamed_key_is_reported_beside_other_problems(written: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(OLD + "sead: 1"), ["training.workers=2"])
    assert caught.value.code == "config-key-renamed"
    for old, new in RENAMED_KEYS.items():
        assert f"{old} was renamed to {new}" in str(caught.value)
    assert "sead: unknown key" in str(caught.value)


@pytest.mark.parametrize("load", [load_config, load_run_config])
def test_a_removed_setting_that_mattered_is_an_error(
    written: Callable[[str], Path], load: Callable[[Path], RunConfig]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(NEEDED + "input: {lines_per_sheet: auto}"))  # dialect: key of an old file
    assert "input.lines_per_sheet" in str(caught.value)  # dialect: key of an old file


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        pytest.param("optimizer: SGD", "SGD", {}, id="a name"),
        pytest.param("optimizer: {name: SGD, momentum: 0.9}", "SGD", {"momentum": 0.9}, id="a name with arguments"),
    ],
)
def test_an_optimizer_has_a_name_and_arguments(
    written: Callable[[str], Path], text: str, name: str, arguments: dict[str, object]
) -> None:
    config = load_config(written(f"{NEEDED}training: {{{text}}}"))
    assert (config.training.optimizer.name, config.training.optimizer.arguments) == (name, arguments)
    assert load_config(written(config.to_yaml())) == config


@pytest.mark.parametrize(
    ("text", "trackers"),
    [("wandb", ("wandb",)), ("[tensorboard, mlflow]", ("tensorboard", "mlflow")), ("none", ()), ("[]", ())],
)
def test_trackers_are_a_name_or_a_list(written: Callable[[str], Path], text: str, trackers: tuple[str, ...]) -> None:
    config = load_config(written(f"{NEEDED}training: {{report_to: {text}}}"))
    assert config.training.report_to == trackers
    assert load_config(written(config.to_yaml())) == config


def test_module_names_become_one_pattern(written: Callable[[str], Path]) -> None:
    target = load_config(written(NEEDED + "adapter: {target_modules: [q_proj, v_proj]}")).adapter.target
    names = ["layers.0.q_proj", "layers.1.v_proj", "layers.0.k_proj", "layers.0.xq_proj"]
    assert [name for name in names if re.fullmatch(target, name)] == names[:2]


def test_a_mapping_and_changes_are_a_configuration_too() -> None:
    given = {"dataset": "letters", "training": {"max_steps": 3}}
    config = load_config(given, changes={"output": Path("runs/letters"), "training.batch_size": 8})
    assert (config.training.max_steps, config.training.batch_size, config.output) == (3, 8, Path("runs/letters"))
    assert given == {"dataset": "letters", "training": {"max_steps": 3}}, "the caller's mapping is not changed"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b"dataset: [", "run.yaml:1: is not YAML", id="broken, with its line"),
        pytest.param(b"- a list", "must hold keys and values", id="a list"),
        pytest.param(b"", "must hold keys and values", id="an empty file"),
        pytest.param("base: нано".encode("cp1251"), "is not UTF-8 text", id="another encoding"),
        pytest.param(b"a: !!python/object/apply:os.getcwd []", "is not YAML", id="no Python from YAML"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        pytest.param(b'dataset: "C:\\Users\\scans"', "write paths with /", id="a path of Windows in quotes"),
        pytest.param(b"training:\n\tepochs: 3", "indent with spaces", id="a tab"),
    ],
)
def test_artefacts_of_editors_and_windows_get_a_hint(tmp_path: Path, content: bytes, hint: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert hint in (caught.value.hint or "")


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError, match="is a folder, not a YAML file"):
        load_config(tmp_path)


def test_common_spellings_are_accepted(written: Callable[[str], Path]) -> None:
    config = load_config(written(f"\ufeff{NEEDED}training:\n  learning_rate: 1e-4\ninput:\n"))
    assert config.training.learning_rate == 1e-4, "PyYAML alone reads 1e-4 as a string"
    assert config.input.prompt == "free_ocr", "an empty section holds its defaults"
    assert config.training.epochs == 10


@pytest.mark.parametrize(
    ("written_as", "augmentation"),
    [
        pytest.param("1", 1.0, id="a number"),
        pytest.param("'0.5'", 0.5, id="a number as text"),
        pytest.param("none", "none", id="none, which YAML takes for a word"),
        pytest.param("strong", "strong", id="a preset"),
    ],
)
def test_augmentation_is_a_preset_or_a_number(
    written: Callable[[str], Path], written_as: str, augmentation: float | str
) -> None:
    config = load_config(written(f"{NEEDED}training: {{augmentation: {written_as}}}"))
    assert config.training.augmentation == augmentation
    assert load_config(written(config.to_yaml())) == config


@pytest.mark.parametrize("value", ["wild", "2.1", "-1", ".nan", "null", "[1]"])
def test_another_augmentation_is_reported_with_the_choices(written: Callable[[str], Path], value: str) -> None:
    with pytest.raises(ConfigError, match="must be none, light, medium, strong or a number from 0 to 2, not"):
        load_config(written(f"{NEEDED}training: {{augmentation: {value}}}"))


def test_steps_take_the_place_of_epochs(written: Callable[[str], Path]) -> None:
    training = load_config(written(NEEDED + "training: {max_steps: 3}")).training
    assert (training.epochs, training.max_steps) == (None, 3)


def test_overrides_win_over_the_file(written: Callable[[str], Path]) -> None:
    overrides = [
        "adapter.r=4",
        "training.learning_rate=1e-3",
        "input.prompt=Прочти = это",
        "validation.max_samples=null",
    ]
    config = load_config(written(NEEDED + "adapter: {r: 16}\nvalidation:\n"), overrides)
    assert config.adapter.r == 4
    assert config.training.learning_rate == 1e-3
    assert config.input.prompt == "Прочти = это"
    assert config.validation.max_samples is None


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        pytest.param("adapter.r", "'adapter.r': an override has the form section.key=value", id="no value"),
        pytest.param("adaptr.r=4", "adaptr: unknown key; did you mean 'adapter'?", id="misspelt section"),
        pytest.param("adapter.r=[", "adapter.r: '[' is not YAML", id="broken value"),
        pytest.param("base.r=4", "base.r: 'base' has no keys", id="a key inside a value"),
    ],
)
def test_a_wrong_override_is_listed_with_the_other_problems(
    written: Callable[[str], Path], override: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written("output: r\nbase: nano\n"), [override])
    assert problem in str(caught.value)
    assert "dataset: field required" in str(caught.value)


def test_a_configuration_survives_its_file(written: Callable[[str], Path]) -> None:
    overrides = [
        "base=письма/модель",
        'input.prompt="<image>\\nРаз: два # три"',
        "adapter.target_modules=^.*q_proj$",
        "base_revision='1e5'",
    ]
    config = load_config(written(NEEDED), overrides)
    assert config.input.prompt == "<image>\nРаз: два # три"
    assert load_config(written(config.to_yaml())) == config


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
