from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from dsocr.config import RunConfig, Section, config_keys, load_config
from dsocr.errors import ConfigError

NEEDED = "dataset: letters\nrun: runs/letters\n"


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_every_problem_of_a_file_is_told_at_once(written: Callable[[str], Path]) -> None:
    path = written("run: r\nadapter:\n  alpha: 0\n  rnak: 8\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value) == (
        f"{path}: 3 problems\n"
        "  dataset: field required\n"
        "  adapter.alpha: must be greater than 0, not 0\n"
        "  adapter.rnak: unknown key; did you mean 'rank'?"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("traning: {steps: 3}", "traning: unknown key; did you mean 'training'?", id="misspelt section"),
        pytest.param("rank: 8", "rank: unknown key; did you mean 'adapter.rank'?", id="key outside its section"),
        pytest.param(
            "checkpoints: {a: 1}", "checkpoints.a: unknown key; the keys are every_steps, keep", id="no guess"
        ),
        pytest.param("1: 2", "1: unknown key", id="a key that is no word"),
        pytest.param("input: []", "input: must hold keys and values, not []", id="a list for a section"),
        pytest.param("base: null", "base: must be a valid string, not null", id="nothing for a text"),
        pytest.param("seed: 3.5", "seed: must be a valid integer, not 3.5", id="half a seed"),
        pytest.param("training: {learning_rate: .nan}", "must be a finite number, not nan", id="not a number"),
        pytest.param("training: {schedule: cos}", "must be 'cosine', 'linear' or 'constant', not 'cos'", id="choices"),
        pytest.param("training: {warmup: yes}", "training.warmup: must not be true", id="yes is not the number 1"),
        pytest.param("training: {epochs: 1, steps: 2}", "exclude each other", id="two lengths"),
        pytest.param("training: {samples_per_step: 30}", "samples_per_forward (8) must divide", id="uneven step"),
        pytest.param("adapter: {scope: q_proj}", "adapter.scope: must be decoder, decoder+experts,", id="bare name"),
        pytest.param("adapter: {scope: '^(q$'}", "adapter.scope: is not a regular expression", id="broken pattern"),
        pytest.param("input: {lines_per_sheet: auto}", "input: lines_per_sheet was removed", id="a removed setting"),
        pytest.param("run: twice", "run: given twice, in lines 2 and 3", id="duplicate key"),
        pytest.param("input: {prompt: a, prompt: b}", "input.prompt: given twice", id="duplicate key in a section"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(written: Callable[[str], Path], text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(NEEDED + text))
    assert problem in str(caught.value)


def test_settings_that_were_removed_are_ignored_where_they_changed_nothing(written: Callable[[str], Path]) -> None:
    earlier = "input: {lines_per_sheet: 1, single_lines: 0.0, read_sheets: true}"
    assert load_config(written(NEEDED + earlier)) == load_config(written(NEEDED))


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
def test_what_editors_and_windows_bring_in_is_told_how_to_mend(tmp_path: Path, content: bytes, hint: str) -> None:
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


def test_what_people_write_is_understood(written: Callable[[str], Path]) -> None:
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
def test_another_augmentation_is_told_with_those_there_are(written: Callable[[str], Path], value: str) -> None:
    with pytest.raises(ConfigError, match="must be none, light, medium, strong or a number from 0 to 2, not"):
        load_config(written(f"{NEEDED}training: {{augmentation: {value}}}"))


def test_steps_take_the_place_of_epochs(written: Callable[[str], Path]) -> None:
    training = load_config(written(NEEDED + "training: {steps: 3}")).training
    assert (training.epochs, training.steps) == (None, 3)


def test_overrides_win_over_the_file(written: Callable[[str], Path]) -> None:
    overrides = [
        "adapter.rank=4",
        "training.learning_rate=1e-3",
        "input.prompt=Прочти = это",
        "validation.samples=null",
    ]
    config = load_config(written(NEEDED + "adapter: {rank: 16}\nvalidation:\n"), overrides)
    assert config.adapter.rank == 4
    assert config.training.learning_rate == 1e-3
    assert config.input.prompt == "Прочти = это"
    assert config.validation.samples is None


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        pytest.param("adapter.rank", "'adapter.rank': an override reads section.key=value", id="no value"),
        pytest.param("adaptr.rank=4", "adaptr: unknown key; did you mean 'adapter'?", id="misspelt section"),
        pytest.param("adapter.rank=[", "adapter.rank: '[' is not YAML", id="broken value"),
        pytest.param("base.rank=4", "base.rank: 'base' has no keys", id="a key inside a value"),
    ],
)
def test_a_wrong_override_is_listed_with_the_other_problems(
    written: Callable[[str], Path], override: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written("run: r\nbase: nano\n"), [override])
    assert problem in str(caught.value)
    assert "dataset: field required" in str(caught.value)


def test_a_configuration_survives_its_file(written: Callable[[str], Path]) -> None:
    overrides = [
        "base=письма/модель",
        'input.prompt="<image>\\nРаз: два # три"',
        "adapter.scope=^.*q_proj$",
        "base_revision='1e5'",
    ]
    config = load_config(written(NEEDED), overrides)
    assert config.input.prompt == "<image>\nРаз: два # три"
    assert load_config(written(config.to_yaml())) == config


def test_a_configuration_cannot_change() -> None:
    config = RunConfig(dataset=Path("d"), run=Path("r"))
    with pytest.raises(ValidationError):
        config.adapter.rank = 3


def test_every_setting_has_a_help_text() -> None:
    sections = [RunConfig, *(field.annotation for field in RunConfig.model_fields.values())]
    for section in sections:
        if isinstance(section, type) and issubclass(section, Section):
            assert [name for name, field in section.model_fields.items() if not field.description] == []
    assert "adapter.rank" in config_keys()
