"""The configuration of a training run: settings, defaults and help texts, read from YAML.

The docstring under a setting is its help text. Relative paths are relative to the current directory, not to the file.
"""

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from os import PathLike
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
    model_serializer,
    model_validator,
)

from dsocr.errors import ConfigError
from dsocr.options import ScriptName, StrPath
from dsocr.text import TextPolicy


def read_yaml(path: Path, *, example: str, hint: str) -> dict[Any, Any]:
    """Read the keys and values of a YAML file. Raises ConfigError, also if a key is given twice.

    Errors show an `example` of the file's content, and the `hint`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        twice = list(_repeated_keys(yaml.compose(text, Loader=yaml.SafeLoader)))
        settings = yaml.safe_load(text)
    except FileNotFoundError as error:
        raise ConfigError("no such file", code="input-missing", where=path, hint=hint) from error
    except OSError as error:  # of a folder Windows says that access is denied
        why = "is a folder, not a YAML file" if path.is_dir() else f"cannot be read: {error.strerror}"
        raise ConfigError(why, code="config-unreadable", where=path, hint=hint) from error
    except UnicodeDecodeError as error:
        save = "save it with the encoding UTF-8"
        raise ConfigError("is not UTF-8 text", code="not-utf8", where=path, hint=save) from error
    except yaml.YAMLError as error:
        raise _yaml_error(path, error) from error
    if twice:
        raise ConfigError.listing(twice, where=path)
    if not isinstance(settings, dict):
        message = f"must hold keys and values, such as `{example}`"
        raise ConfigError(message, code="config-unreadable", where=path, hint=hint)
    return settings


def _repeated_keys(node: yaml.Node | None, section: str = "") -> Iterator[str]:
    """Describe each key that a file or section has twice; YAML itself would silently take the last."""
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        name, line = f"{section}{key.value}", key.start_mark.line + 1
        if name in lines:
            yield f"{name}: given twice, in lines {lines[name]} and {line}"
        lines[name] = line
        if not section:
            yield from _repeated_keys(value, f"{name}.")


def _yaml_error(path: Path, error: yaml.YAMLError) -> ConfigError:
    """The line that is not YAML, with a hint for the two mistakes that Windows paths and editors cause."""
    reason, mark = _reason(error), getattr(error, "problem_mark", None)
    hint = None
    if "escape" in reason:
        hint = "write paths with / , as C:/scans, or without the double quotes"
    elif r"'\t'" in reason:
        hint = "indent with spaces, not with tabs"
    where = path if mark is None else f"{path}:{mark.line + 1}"
    return ConfigError(f"is not YAML: {reason}", code="config-unreadable", where=where, hint=hint)


def _reason(error: yaml.YAMLError) -> str:
    return getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)


def problems_in(error: ValidationError | OSError, keys: Sequence[str] = ()) -> list[str]:
    """Describe each problem that pydantic found, e.g. `adapter.alhpa: unknown key; did you mean 'alpha'?`.

    `keys` are the known dotted keys, for suggestions.
    """
    if isinstance(error, OSError):
        return [f"cannot be read: {error}"]
    problems = []
    for problem in error.errors():
        name = ".".join(map(str, problem["loc"]))
        claim = _claim(name, problem, keys)
        problems.append(f"{name}: {claim}" if name else claim)
    return problems


def _claim(name: str, problem: Mapping[str, Any], keys: Sequence[str]) -> str:
    match problem["type"]:
        case "missing":
            return "is missing"
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


OTHER_NAMES = {
    "model_name_or_path": "base",
    "output_dir": "output",
    "num_train_epochs": "training.epochs",
    "per_device_train_batch_size": "training.micro_batch_size",
    "gradient_accumulation_steps": "training.batch_size",
    "lr": "training.learning_rate",
    "lr_scheduler_type": "training.lr_scheduler",
    "optim": "training.optimizer",
    "bf16": "training.precision",
    "fp16": "training.precision",
    "torch_compile": "training.compile",
    "dataloader_num_workers": "training.num_workers",
    "eval_steps": "validation.every_steps",
    "early_stopping_patience": "validation.patience",
    "save_steps": "checkpoints.every_steps",
    "save_total_limit": "checkpoints.keep",
    "per_device_eval_batch_size": "generation.batch_size",
    "load_in_4bit": "adapter.quantization",
}
"""Keys of the configuration by the names that transformers gives them, mostly in `TrainingArguments`."""


def _suggestion(name: str, keys: Sequence[str]) -> str:
    section, _, key = name.rpartition(".")
    if key in OTHER_NAMES and OTHER_NAMES[key] in keys:
        return f"here its name is {OTHER_NAMES[key]!r}"
    siblings = [known.rpartition(".")[2] for known in keys if known.rpartition(".")[0] == section]
    likely = get_close_matches(key, siblings, n=1)
    if not likely:
        last_parts = {known: known.rpartition(".")[2] for known in keys}
        nearest = get_close_matches(key, last_parts.values(), n=1)
        likely = [known for known, last_part in last_parts.items() if last_part in nearest]
    return f"did you mean {' or '.join(map(repr, likely))}?" if likely else f"the keys are {', '.join(siblings)}"


TargetName = Literal["decoder", "decoder+experts", "decoder+vision", "decoder+experts+vision", "vision", "all"]
AugmentationName = Literal["none", "light"]
Tracker = Literal["tensorboard", "mlflow", "wandb", "trackio"]


def _target_modules(target: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if isinstance(target, tuple) or target in get_args(TargetName):
        return target
    if not (target.startswith("^") and target.endswith("$")):
        names = ", ".join(get_args(TargetName))
        raise ValueError(f"must be {names}, a list of module names or a pattern from ^ to $, not {target!r}")
    try:
        re.compile(target)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return target


def read_augmentation(value: object) -> float | str:
    """Read `none`, `light`, or a number from 0 to 2, also as text. Raises ValueError for anything else."""
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
    """A frozen part of the configuration; an unknown key is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True, defer_build=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _require_number(cls, value: object, info: ValidationInfo) -> object:
        # YAML reads `yes` and `on` as true, which pydantic would take for the number 1.
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation not in (bool, Switch):
            raise ValueError(f"must not be {'true' if value else 'false'}")
        return value


class Component(Section):
    """A class or function by name, with keyword arguments; in YAML a name, or a mapping of name and arguments."""

    model_config = ConfigDict(extra="allow")

    name: Text
    """Name of the class or function."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments besides the name."""
        return dict(self.model_extra or {})

    @model_validator(mode="before")
    @classmethod
    def _accept_name(cls, values: Any) -> Any:
        return {"name": values} if isinstance(values, str) else values

    @model_serializer
    def _as_written(self) -> str | dict[str, Any]:
        return {"name": self.name, **self.arguments} if self.arguments else self.name


class LearningRateScheduler(Component):
    """A schedule of transformers that needs no metric."""

    name: Literal[
        "cosine",
        "linear",
        "constant",
        "constant_with_warmup",
        "cosine_with_restarts",
        "cosine_with_min_lr",
        "cosine_warmup_with_min_lr",
        "polynomial",
        "inverse_sqrt",
        "warmup_stable_decay",
    ]
    """Name of the schedule."""


def _sources(value: object) -> object:
    sources = [] if value is None else [value] if isinstance(value, str | PathLike) else value
    if not isinstance(sources, list | tuple):
        return sources
    return tuple(Path(source).as_posix() if isinstance(source, PathLike) else source for source in sources)


def _trackers(value: object) -> object:
    if value in (None, "none", []):
        return ()
    return (value,) if isinstance(value, str) else value


class InputSection(Section):
    """The model's input."""

    resolution: Text | None = None
    """Name of the resolution at which images enter the model; the base's default if not given."""
    prompt: str = "free_ocr"
    """Name of a prompt, or the prompt itself; free_ocr is the prompt of the base's authors, "" the image alone."""


class AdapterSection(Section):
    """The LoRA adapter."""

    target_modules: Annotated[str | tuple[Text, ...], AfterValidator(_target_modules)] = "decoder"
    """Layers that get an adapter: decoder, decoder+experts, decoder+vision, decoder+experts+vision, vision, a list of \
module names, or a regular expression from ^ to $ over full names; or all, to train all weights of a base instead."""
    r: PositiveInt = 8
    """LoRA rank. A higher rank learns more, needs more memory and overfits sooner."""
    alpha: PositiveInt = 16
    """LoRA scaling: the adapter's output is multiplied by alpha / r."""
    dropout: Fraction = 0.0
    """Dropout on the adapter's inputs during training."""
    variant: Literal["lora", "rslora", "dora"] = "lora"
    """lora; rslora, which scales by alpha / sqrt(r) for high ranks; or dora, which learns magnitudes separately and \
is slower."""

    init_from: Folder | None = None
    """Run or adapter folder whose adapter is trained further; its base, layers, rank and alpha must be the same."""

    quantization: Literal["nf4"] | None = None
    """nf4 keeps the frozen decoder of a chat model in 4 bits (QLoRA); needs bitsandbytes and an NVIDIA GPU."""

    @property
    def target(self) -> str:
        """The target modules as one named set or one pattern."""
        if isinstance(self.target_modules, str):
            return self.target_modules
        return rf"^(?:.*\.)?(?:{'|'.join(map(re.escape, self.target_modules))})$"


class TrainingSection(Section):
    """The optimization."""

    epochs: PositiveFloat | None = None
    """Passes over the training samples; 10 if neither epochs nor max_steps is given."""
    max_steps: PositiveInt | None = None
    """Number of optimizer steps, instead of epochs."""
    max_samples: PositiveInt | None = None
    """Train on this many samples, drawn with the seed; null trains on all. A larger draw contains the smaller one."""
    batch_size: PositiveInt = 32
    """Samples per optimizer step, over all devices and accumulation; 16 for line recognisers if not given."""
    micro_batch_size: PositiveInt = 8
    """Samples per forward pass on one device; must divide batch_size."""
    learning_rate: PositiveFloat | None = None
    """Peak learning rate, after warmup; 2e-4 for adapters and 4e-4 for all weights if not given."""
    vision_learning_rate: PositiveFloat | None = None
    """Peak learning rate of the vision encoder's part; learning_rate if not given, half of it for line recognisers."""
    warmup_ratio: Fraction = 0.05
    """Fraction of all steps over which the learning rate rises to its peak."""
    lr_scheduler: LearningRateScheduler = LearningRateScheduler(name="cosine")
    """Learning rate schedule after warmup, one of transformers': its name, or a mapping of name and arguments."""
    optimizer: Component = Component(name="AdamW")
    """Class in torch.optim: its name, or a mapping of name and arguments."""
    weight_decay: NonNegativeFloat = 0.01
    """Weight decay."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are clipped to this norm."""
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto"
    """Number format; auto is bf16 where the device has it, else fp16 for frozen weights on a GPU, else fp32."""
    attention: Literal["sdpa", "eager"] = "sdpa"
    """Attention implementation: sdpa is fused and fast, eager is the reference."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: slower, less memory."""
    compile: bool = False
    """Compile the layers with torch.compile: takes minutes at the start and needs a compiler; pays on a large GPU."""
    group_by_length: bool = True
    """Sort the samples of a step by length into micro-batches, so that less padding is computed."""
    feature_cache: Switch = "auto"
    """Keep the output of a frozen vision encoder on disk; auto does so where images are not augmented and it pays."""
    feature_cache_gb: PositiveFloat = 20.0
    """Maximum size of the feature cache on disk, in the run folder until the run ends."""
    feature_cache_views: PositiveInt = 4
    """Augmented views of each image in the feature cache; after this many epochs they repeat."""
    augmentation: Annotated[float | str, BeforeValidator(read_augmentation)] = 0.0
    """Augmentation: none, light (line recognisers' default), or a number (1: as a writer varies)."""
    long_text: Literal["error", "exclude"] = "error"
    """What to do with a transcription over max_text_tokens: stop, or exclude the sample and count it."""
    max_text_tokens: PositiveInt = 512
    """Longest transcription, in tokens; nothing is truncated."""
    num_workers: NonNegativeInt = 0
    """Processes that prepare images during training; 0 prepares them in the training process."""
    threads: PositiveInt | None = None
    """Threads that compute on a CPU; null takes all cores, or fewer beside other work that keeps them busy."""
    unlabelled: Annotated[tuple[Text, ...], BeforeValidator(_sources)] = ()
    """Scans without transcriptions, a path or a list; ALTO and PAGE files may have texts of other programs."""
    report_to: Annotated[tuple[Tracker, ...], BeforeValidator(_trackers)] = ("tensorboard",)
    """Experiment trackers, a name or a list: tensorboard, mlflow, wandb, trackio, or none."""

    @model_validator(mode="before")
    @classmethod
    def _default_epochs(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("epochs") is None and values.get("max_steps") is None:
            return {**values, "epochs": 10}
        return values

    @model_validator(mode="after")
    def _validate_amounts(self) -> Self:
        if self.epochs is not None and self.max_steps is not None:
            raise ValueError("epochs and max_steps exclude each other: set one of them to null")
        if self.batch_size % self.micro_batch_size:
            raise ValueError(f"micro_batch_size ({self.micro_batch_size}) must divide batch_size ({self.batch_size})")
        return self


class ValidationSection(Section):
    """Validation during training."""

    every_steps: PositiveInt = 100
    """Steps between two validations."""
    max_samples: PositiveInt | None = 200
    """Validation samples to read each time; null reads the whole split."""
    patience: NonNegativeInt = 5
    """Validations without a lower CER before training stops early; 0 never stops early."""


class CheckpointsSection(Section):
    """Checkpoints, to resume an interrupted run."""

    every_steps: PositiveInt = 200
    """Steps between two checkpoints."""
    keep: PositiveInt = 2
    """Number of checkpoints to keep, the latest ones."""


class GenerationSection(Section):
    """Text generation, in validation and in transcription."""

    max_new_tokens: PositiveInt = 256
    """Maximum number of generated tokens; a text that reaches it counts as truncated."""
    no_repeat_ngram_size: NonNegativeInt = 20
    """Length of token sequences that may not repeat, against loops; 0 switches it off."""
    no_repeat_ngram_window: PositiveInt = 90
    """How many tokens back to look for a repetition."""
    no_repeat_ngram_whitelist: tuple[Text, ...] = ("<td>", "</td>")
    """Tokens that may always repeat, by their text; tokens that the base lacks are ignored."""
    num_beams: PositiveInt = 1
    """Beams in beam search; 1 is greedy decoding, the fastest."""
    script: ScriptName = "auto"
    """Of line recognisers: leave letters of the other script out; auto takes it from the training texts or the page."""
    language_model: Text = "auto"
    """Of line recognisers: auto learns it from the training texts, a path adds that text file if it helps; or none."""
    batch_size: PositiveInt = 16
    """Samples to read at once."""
    prefetch_batches: PositiveInt = 8
    """Batches opened at once and sorted by length, so that little is padded; 1 reads in order."""


OWN_DATASET = Path("unlabelled", "dataset")
"""The dataset of a run without transcribed lines, below its folder."""


class RunConfig(Section):
    """All settings of one training run."""

    base: Text = "small"
    """Base model: small or nano (they ship with the package), a Hub id, a folder, or a run that trained all weights."""
    base_revision: Text | None = None
    """Commit, tag or branch of a Hub id; the newest if not given."""
    dataset: Folder
    """Dataset folder written by `dsocr prepare`; with unlabelled scans alone the run makes one of its readings."""
    fold: PositiveInt | None = None
    """Fold to test on, in a dataset with folds; the next one validates and the others train."""
    output: Folder
    """Run folder: created by training, and resumed if it exists."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 17
    """Seed of all random numbers."""
    input: InputSection = InputSection()
    """The model's input."""
    adapter: AdapterSection = AdapterSection()
    """The LoRA adapter."""
    training: TrainingSection = TrainingSection()
    """The optimization."""
    validation: ValidationSection = ValidationSection()
    """Validation during training."""
    checkpoints: CheckpointsSection = CheckpointsSection()
    """Checkpoints, to resume an interrupted run."""
    generation: GenerationSection = GenerationSection()
    """Text generation, in validation and in transcription."""

    @model_validator(mode="before")
    @classmethod
    def _own_dataset(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or values.get("dataset") is not None or not values.get("output"):
            return values
        training = values.get("training")
        has_scans = isinstance(training, Mapping) and training.get("unlabelled")
        return {**values, "dataset": Path(values["output"]) / OWN_DATASET} if has_scans else values

    @property
    def learns_alone(self) -> bool:
        """Whether nothing is transcribed: the dataset is made by the run, of its own readings of unlabelled scans."""
        return bool(self.training.unlabelled) and self.dataset == self.output / OWN_DATASET

    def given(self, mode: Literal["python", "json"] = "python") -> dict[str, Any]:
        """Return the settings that were given; `load_config` makes the same configuration of them.

        A base has defaults of its own for what nobody gave: with all settings it would train otherwise.
        """
        return self.model_dump(mode=mode, exclude_unset=True)

    def to_yaml(self, *, complete: bool = True) -> str:
        """Return every setting, or only the given ones, as YAML that `load_config` reads back."""
        settings = self.model_dump(mode="json") if complete else self.given("json")
        return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)


def load_config(
    source: StrPath | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    changes: Mapping[str, object] | None = None,
) -> RunConfig:
    """Load a configuration from a YAML file or a mapping, or make the default one for a dataset folder.

    `overrides` are texts such as `training.max_steps=100`, whose values are YAML; `changes` maps dotted keys to values.
    Both win over the source. An empty section means its defaults. A run on a dataset folder goes to `runs/NAME`, named
    as the dataset. Raises ConfigError with all problems at once.
    """
    settings: dict[Any, Any]
    where: object = "the configuration"
    if isinstance(source, Mapping):
        settings = {key: dict(value) if isinstance(value, Mapping) else value for key, value in source.items()}
    elif (Path(source) / "dataset.json").is_file():
        settings = {"dataset": Path(source), "output": f"runs/{Path(source).resolve().name}"}
    else:
        where = Path(source)
        settings = _read_file(where)
    problems = [problem for text in overrides for problem in _override(settings, text)]
    for name, value in (changes or {}).items():
        problems += _put(settings, name, value)
    return _validate(settings, where, problems)


def load_run_config(path: Path) -> RunConfig:
    """Load the `config.yaml` of a run."""
    return _validate(_read_file(path), path)


def _read_file(path: Path) -> dict[Any, Any]:
    hint = "give a dataset folder, which `dsocr prepare` makes, a YAML file, or the name of a recipe, as deepseek_ocr"
    if (path / "config.yaml").is_file():
        hint = f"a run's configuration is {path / 'config.yaml'}; {hint}"
    return read_yaml(path, example="dataset: my_dataset", hint=hint)


def _override(settings: dict[Any, Any], text: str) -> list[str]:
    """Put one `section.key=value` into the settings; return the problems with it, if any."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        return [f"{text!r}: an override has the form section.key=value"]
    try:
        return _put(settings, name, yaml.safe_load(value))
    except yaml.YAMLError as error:
        return [f"{name}: {value!r} is not YAML: {_reason(error)}"]


def _put(settings: dict[Any, Any], name: str, value: object) -> list[str]:
    """Set a dotted key; return the problems with it, if any."""
    *sections, key = name.split(".")
    for section in sections:
        if settings.get(section) is None:
            settings[section] = {}
        settings = settings[section]
        if not isinstance(settings, dict):
            return [f"{name}: {section!r} has no keys"]
    settings[key] = value
    return []


def _validate(settings: dict[Any, Any], where: object, problems: Sequence[str] = ()) -> RunConfig:
    """Make the configuration, or raise ConfigError with these problems and pydantic's."""
    sections = config_sections()
    try:
        given = {key: value for key, value in settings.items() if value is not None or key not in sections}
        config = RunConfig.model_validate(given)
    except ValidationError as error:
        problems = [*problems, *problems_in(error, config_keys())]
    if problems:
        raise ConfigError.listing(problems, where=where, code="config-invalid")
    return config


def config_keys() -> list[str]:
    """Return every key of the configuration in order, as `section.key` within sections."""
    sections = config_sections()
    keys: list[str] = []
    for name in RunConfig.model_fields:
        inner = sections[name].model_fields if name in sections else ()
        keys += [name, *(f"{name}.{key}" for key in inner)]
    return keys


def config_sections() -> dict[str, type[Section]]:
    """Return the sections of the configuration by their names."""
    annotations = {name: field.annotation for name, field in RunConfig.model_fields.items()}
    return {name: kind for name, kind in annotations.items() if isinstance(kind, type) and issubclass(kind, Section)}


def expand_keys(settings: Mapping[str, object]) -> dict[str, object]:
    """Expand keyword arguments to dotted keys of the configuration.

    A name is a key (`seed`), a dotted key (`training.epochs`), a section with a mapping, or the last part of
    a dotted key: of `training` if it has such a key, else of the only section that has one. Raises ConfigError.
    """
    known, sections = config_keys(), config_sections()
    problems: list[str] = []
    expanded: dict[str, object] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and name in sections:
            expanded |= {f"{name}.{key}": inner for key, inner in value.items()}
            continue
        matches = [key for key in (name, f"training.{name}") if key in known][:1]
        matches = matches or [key for key in known if key.endswith(f".{name}")]
        if len(matches) > 1:
            problems.append(f"{name}: is it {' or '.join(matches)}?")
        else:
            expanded[matches[0] if matches else name] = value  # load_config reports all unknown keys together
    if problems:
        raise ConfigError.listing(problems, where="the configuration", code="config-key-ambiguous")
    return expanded


def read_policy(given: TextPolicy | StrPath | Sequence[str]) -> TextPolicy:
    """Read a text policy from files and from texts of the form key=value; all problems are in one error."""
    if isinstance(given, TextPolicy):
        return given
    example = "struck: strip"
    hint = f"a text policy is a YAML file of lines such as `{example}`; docs/guide/dataset.md lists its keys"
    policy: dict[Any, Any] = {}
    path = None
    for text in [str(given)] if isinstance(given, str | PathLike) else given:
        key, is_rule, value = text.partition("=")
        if is_rule and key.isidentifier():
            policy[key] = value
        else:
            path = Path(text)
            policy |= read_yaml(path, example=example, hint=hint)
    try:
        return TypeAdapter(TextPolicy).validate_python(policy)
    except ValidationError as error:
        problems = problems_in(error, [field.name for field in fields(TextPolicy)])
        raise ConfigError.listing(problems, where=path or "the text policy") from error
