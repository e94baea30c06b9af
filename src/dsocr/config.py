"""What one training run is told: the settings, their defaults and their help texts, read from a YAML file.

The docstring under a setting is its help text. Knows nothing about torch, and neither opens nor makes the folders
it names: relative paths are relative to the current directory, not to the file they stand in.
"""

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass

from dsocr.errors import ConfigError
from dsocr.text import TextPolicy


def read_yaml(path: Path, *, example: str, hint: str) -> dict[Any, Any]:
    """The keys and values of a YAML file; a key that is given twice is an error.

    Errors show what such a file holds by an `example` and the `hint`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        twice = list(_keys_given_twice(yaml.compose(text, Loader=yaml.SafeLoader)))
        settings = yaml.safe_load(text)
    except FileNotFoundError as error:
        raise ConfigError("no such file", where=path, hint=hint) from error
    except OSError as error:  # of a folder Windows says that access is denied
        why = "is a folder, not a YAML file" if path.is_dir() else f"cannot be read: {error.strerror}"
        raise ConfigError(why, where=path, hint=hint) from error
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8 text", where=path, hint="save it with the encoding UTF-8") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"is not YAML: {_reason(error)}", where=_place(path, error), hint=_mend(error)) from error
    if twice:
        raise ConfigError.listing(twice, where=path)
    if not isinstance(settings, dict):
        raise ConfigError(f"must hold keys and values, such as `{example}`", where=path, hint=hint)
    return settings


def override(settings: dict[Any, Any], text: str) -> list[str]:
    """Put one `section.key=value` into the settings; the problems with it, if there are any."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        return [f"{text!r}: an override reads section.key=value"]
    *sections, key = name.split(".")
    for section in sections:
        if settings.get(section) is None:
            settings[section] = {}
        settings = settings[section]
        if not isinstance(settings, dict):
            return [f"{name}: {section!r} has no keys"]
    try:
        settings[key] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        return [f"{name}: {value!r} is not YAML: {_reason(error)}"]
    return []


def problems_in(error: ValidationError, keys: Sequence[str] = ()) -> list[str]:
    """One sentence per problem that pydantic found, e.g. `adapter.rnak: unknown key; did you mean 'rank'?`.

    `keys` are the dotted keys that are known, for the suggestions.
    """
    return [_sentence(".".join(map(str, problem["loc"])), problem, keys) for problem in error.errors()]


def _sentence(name: str, problem: Mapping[str, Any], keys: Sequence[str]) -> str:
    claim = _claim(name, problem, keys)
    return f"{name}: {claim}" if name else claim


def _claim(name: str, problem: Mapping[str, Any], keys: Sequence[str]) -> str:
    match problem["type"]:
        case "missing":
            return "field required"
        case "extra_forbidden" | "unexpected_keyword_argument" | "invalid_key":
            return f"unknown key; {_suggestion(name, keys)}"
        case "value_error":
            return str(problem["ctx"]["error"])
        case "json_invalid":
            return f"is not JSON: {problem['ctx']['error']}"
        case "model_type" | "dataclass_type" | "dict_type":
            claim = "must hold keys and values"
        case "path_type":
            claim = "must be a path"
        case _:
            claim = re.sub(r", (got|unable) .*", "", problem["msg"].replace("Input should", "must"))
    value = problem["input"]
    return f"{claim}, not {'null' if value is None else reprlib.repr(value)}"


def _suggestion(name: str, keys: Sequence[str]) -> str:
    section, _, key = name.rpartition(".")
    siblings = [known.rpartition(".")[2] for known in keys if known.rpartition(".")[0] == section]
    elsewhere = [known for known in keys if known.rpartition(".")[2] == key]
    likely = get_close_matches(key, siblings, n=1) or elsewhere
    return f"did you mean {' or '.join(map(repr, likely))}?" if likely else f"the keys are {', '.join(siblings)}"


def _keys_given_twice(node: yaml.Node | None, section: str = "") -> Iterator[str]:
    """A sentence for each such key of the file and of its sections; YAML itself would silently take the last."""
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        name, line = f"{section}{key.value}", key.start_mark.line + 1
        if name in lines:
            yield f"{name}: given twice, in lines {lines[name]} and {line}"
        lines[name] = line
        if not section:
            yield from _keys_given_twice(value, f"{name}.")


def _reason(error: yaml.YAMLError) -> str:
    return getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)


def _mend(error: yaml.YAMLError) -> str | None:
    """What to do about the two faults that editors and Windows' paths bring in."""
    reason = _reason(error)
    if "escape" in reason:
        return "write paths with / , as C:/scans, or without the double quotes"
    return "indent with spaces, not with tabs" if r"'\t'" in reason else None


def _place(path: Path, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return str(path) if mark is None else f"{path}:{mark.line + 1}"


ScopeName = Literal["decoder", "decoder+experts", "decoder+vision"]
AugmentationName = Literal["none", "light", "medium", "strong"]


def _scope(scope: str) -> str:
    if scope in get_args(ScopeName):
        return scope
    if not (scope.startswith("^") and scope.endswith("$")):
        raise ValueError(f"must be {', '.join(get_args(ScopeName))} or a pattern from ^ to $, not {scope!r}")
    try:
        re.compile(scope)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return scope


def read_augmentation(value: object) -> float | str:
    """A preset's name, or a number from 0 to 2, also one that is written as text. Raises ValueError for all else."""
    if value in get_args(AugmentationName):
        return str(value)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number <= 2:
        names = ", ".join(get_args(AugmentationName))
        raise ValueError(f"must be {names} or a number from 0 to 2, not {value!r}")
    return number


Switch = Literal["auto"] | bool
Text = Annotated[str, Field(min_length=1)]
Folder = Annotated[Path, PlainSerializer(Path.as_posix)]  # forward slashes, so that a run can change machines
Fraction = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A part of the configuration: it cannot change, and a key it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_a_truth_value_as_number(cls, value: object, info: ValidationInfo) -> object:
        # YAML reads `yes` and `on` as true, which pydantic would take for the number 1.
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation not in (bool, Switch):
            raise ValueError(f"must not be {'true' if value else 'false'}")
        return value


_REMOVED_INPUT = {"lines_per_sheet": 1, "single_lines": 0.0, "read_sheets": True}
"""Settings that earlier versions had, with the values that changed nothing."""


class InputSection(Section):
    """What the model is shown."""

    resolution: Text | None = None
    """How an image enters the model, by name; the base's own default where it is not given."""
    prompt: Text = "free_ocr"
    """The name of a prompt, or the prompt itself."""

    @model_validator(mode="before")
    @classmethod
    def _ignore_removed_settings(cls, values: Any) -> Any:
        # The configurations of earlier runs hold every setting, these with their defaults.
        if not isinstance(values, Mapping):
            return values
        for name, default in _REMOVED_INPUT.items():
            if values.get(name, default) != default:
                raise ValueError(f"{name} was removed: an image shows one sample; delete the setting")
        return {name: value for name, value in values.items() if name not in _REMOVED_INPUT}


class AdapterSection(Section):
    """The LoRA weights that are learnt."""

    scope: Annotated[str, AfterValidator(_scope)] = "decoder"
    """Which layers get an adapter: decoder, decoder+experts, decoder+vision, or a pattern from ^ to $ of names."""
    rank: PositiveInt = 8
    """Rank of the adapter: more learns more, needs more memory and memorises sooner."""
    alpha: PositiveInt = 16
    """Scale of the adapter: its output is multiplied by alpha / rank."""
    dropout: Fraction = 0.0
    """Part of the adapter's inputs zeroed while training."""
    variant: Literal["lora", "rslora", "dora"] = "lora"
    """lora; rslora, scaled by alpha / sqrt(rank) for high ranks; or dora, which learns magnitudes apart, slower."""


class TrainingSection(Section):
    """The optimization schedule."""

    epochs: PositiveFloat | None = None
    """Times every training sample is seen; 10 where neither epochs nor steps is given."""
    steps: PositiveInt | None = None
    """Optimizer steps, in place of epochs."""
    samples: PositiveInt | None = None
    """So many training samples, drawn with the seed; all where it is not given. More of them are these and others."""
    samples_per_step: PositiveInt = 32
    """Samples per optimizer step, over all devices and accumulation."""
    samples_per_forward: PositiveInt = 8
    """Samples that are in memory at once on one device; divides samples_per_step."""
    learning_rate: PositiveFloat = 2e-4
    """Peak learning rate, after warmup."""
    vision_learning_rate: PositiveFloat | None = None
    """Peak learning rate of the adapter's part in the vision towers; learning_rate where it is not given."""
    warmup: Fraction = 0.05
    """Fraction of all steps in which the learning rate rises to its peak."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """How the learning rate falls after the warmup."""
    weight_decay: NonNegativeFloat = 0.01
    """Weight decay of AdamW."""
    max_gradient_norm: PositiveFloat = 1.0
    """Gradients longer than this are shortened to it."""
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto"
    """Number format of the frozen base; auto takes bf16 where the device has it, and fp32 on a CPU."""
    attention: Literal["sdpa", "eager"] = "sdpa"
    """How attention is computed: sdpa is fused and fast, eager is step by step."""
    gradient_checkpointing: bool = False
    """Compute activations twice to hold fewer of them: slower, less memory."""
    compile: bool = False
    """Translate the layers with torch.compile: minutes at the start, and needs a compiler; worth it on a large GPU."""
    length_window: NonNegativeInt = 1
    """Steps whose samples are sorted by length into batches: 1 keeps each step's draw, more pads less, 0 does not."""
    vision_cache: Switch = "auto"
    """Keep on disk what frozen vision towers say of each image; auto does where images are not varied and it pays."""
    vision_cache_gigabytes: PositiveFloat = 20.0
    """The most it takes on disk, of all runs together; what was used longest ago goes first."""
    vision_cache_views: PositiveInt = 4
    """Variations of each image that it holds; they come back after so many epochs."""
    augmentation: Annotated[float | str, BeforeValidator(read_augmentation)] = 0.0
    """How each image is varied every epoch: none, light, medium, strong, or a number; 1 is as one writer varies."""
    long_text: Literal["error", "exclude"] = "error"
    """What to do with a transcription over max_text_tokens: stop, or leave the sample out and count it."""
    max_text_tokens: PositiveInt = 512
    """Longest transcription, in tokens; never cut."""
    workers: NonNegativeInt = 0
    """Processes that prepare images beside the training; 0 prepares them in the training process."""

    @model_validator(mode="before")
    @classmethod
    def _some_length(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("epochs") is None and values.get("steps") is None:
            return {**values, "epochs": 10}
        return values

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("epochs and steps exclude each other: set one of them to null")
        if self.samples_per_step % self.samples_per_forward:
            a_forward, a_step = self.samples_per_forward, self.samples_per_step
            raise ValueError(f"samples_per_forward ({a_forward}) must divide samples_per_step ({a_step})")
        return self


class ValidationSection(Section):
    """How the validation split is watched during training."""

    every_steps: PositiveInt = 100
    """Steps between two readings of the validation split."""
    samples: PositiveInt | None = 200
    """Samples that are read each time; null reads the whole split."""
    patience: NonNegativeInt = 5
    """Readings without a better CER before training stops early; 0 never stops early."""


class GuardSection(Section):
    """A small set that the base could read already, read again at every evaluation to see what training costs."""

    dataset: Folder | None = None
    """A prepared dataset folder; the print that ships with it where the base is nano, else none."""
    split: Literal["train", "validation", "test"] | None = None
    """The split its lines are taken from; all of them where it is not given."""
    lines: NonNegativeInt = 32
    """Lines that are read each time, spread over the set, each as long to read as a validation line; 0 reads none."""
    margin: NonNegativeFloat = 2.0
    """Points of CER that the set may get worse before there is a warning."""


class CheckpointsSection(Section):
    """The state from which an interrupted run goes on."""

    every_steps: PositiveInt = 200
    """Steps between two checkpoints."""
    keep: PositiveInt = 2
    """Checkpoints that are kept, the latest ones."""


class GenerationSection(Section):
    """How text is generated, in validation and in transcription."""

    max_new_tokens: PositiveInt = 256
    """Tokens after which a transcription is cut off and counted as truncated."""
    no_repeat_ngram_size: NonNegativeInt = 20
    """Tokens in a row that may not come twice, against loops; 0 is off."""
    no_repeat_ngram_window: PositiveInt = 90
    """How many tokens back a repetition is looked for."""
    no_repeat_ngram_whitelist: tuple[Text, ...] = ("<td>", "</td>")
    """Tokens that may always come again, by their text; ones that the base does not have mean nothing."""
    beams: PositiveInt = 1
    """Texts that are followed at once in search of the likeliest; 1 takes the likeliest token each time, fastest."""
    samples_per_batch: PositiveInt = 16
    """Samples that are read at once."""
    look_ahead: PositiveInt = 8
    """Batches that are opened at once and sorted by length, so that little is padded; 1 reads as they come."""


class RunConfig(Section):
    """Everything one training run is told."""

    base: Text = "nano"
    """The base model: nano (ships with the package), a Hub id, or a local folder."""
    base_revision: Text | None = None
    """The commit, tag or branch of a Hub id; the newest where it is not given."""
    dataset: Folder
    """The dataset folder that `dsocr prepare` wrote."""
    fold: PositiveInt | None = None
    """The fold that tests, of a dataset with folds; the next one validates and the others train."""
    run: Folder
    """The run folder: made by training, and resumed where it is there."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 17
    """Seed of everything that is drawn."""
    input: InputSection = InputSection()
    """What the model is shown."""
    adapter: AdapterSection = AdapterSection()
    """The LoRA weights that are learnt."""
    training: TrainingSection = TrainingSection()
    """The optimization schedule."""
    validation: ValidationSection = ValidationSection()
    """How the validation split is watched during training."""
    guard: GuardSection = GuardSection()
    """A small set that the base could read already, read again at every evaluation to see what training costs."""
    checkpoints: CheckpointsSection = CheckpointsSection()
    """The state from which an interrupted run goes on."""
    generation: GenerationSection = GenerationSection()
    """How text is generated, in validation and in transcription."""

    def to_yaml(self) -> str:
        """Every setting, defaults included; `load_config` reads the same configuration back."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True)


def load_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The configuration in a YAML file, with `section.key=value` overrides on top; all problems in one error.

    The value of an override is read as YAML, and a section that is left empty holds its defaults.
    """
    settings = read_yaml(path, example="dataset: my_dataset", hint=_which(path))
    problems = [problem for text in overrides for problem in override(settings, text)]
    for name, section in _sections():
        if name in settings and settings[name] is None:
            settings[name] = section()
    try:
        config = RunConfig.model_validate(settings)
    except ValidationError as error:
        problems += problems_in(error, config_keys())
    if problems:
        raise ConfigError.listing(problems, where=path)
    return config


def _which(path: Path) -> str:
    """Which file to give in place of one that cannot be read, or of a folder."""
    if (path / "config.yaml").is_file():
        return f"a run's configuration is {path / 'config.yaml'}; configs/ holds recipes to start from"
    if (path / "dataset.json").is_file():
        return f"configs/ holds recipes to start from; the dataset is named in one, or with --set dataset={path}"
    return "configs/ holds recipes to start from"


def config_keys() -> list[str]:
    """Every key of the configuration, `section.key` where it stands in a section, in the order of the file."""
    sections = dict(_sections())
    keys: list[str] = []
    for name in RunConfig.model_fields:
        inner = sections[name].model_fields if name in sections else ()
        keys += [name, *(f"{name}.{key}" for key in inner)]
    return keys


def _sections() -> Iterator[tuple[str, type[Section]]]:
    for name, field in RunConfig.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield name, field.annotation


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class _Settings:
    policy: TextPolicy


_SECTION = "policy."
_EXAMPLE = "struck: strip"
_HINT = f"a text policy is a YAML file of lines such as `{_EXAMPLE}`; docs/guide/texts.md lists its keys"
_KEYS = [_SECTION + field.name for field in fields(TextPolicy)]


def read_policy(path: Path | None, settings: Mapping[str, str | None]) -> TextPolicy:
    """The policy of a file, if there is one, with the settings that are not None; all problems in one error."""
    given = {name: value for name, value in settings.items() if value is not None}
    stated = read_yaml(path, example=_EXAMPLE, hint=_HINT) if path else {}
    try:
        return TypeAdapter(_Settings).validate_python({"policy": {**stated, **given}}).policy
    except ValidationError as error:
        problems = [problem.removeprefix(_SECTION).removeprefix("policy: ") for problem in problems_in(error, _KEYS)]
        raise ConfigError.listing(problems, where=path or "the text policy") from error
