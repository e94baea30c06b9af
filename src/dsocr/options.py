"""The types of the options of public functions, light enough that `dsocr --help` can read them.

The keys of the configuration stand here a second time because type checkers cannot derive them from `RunConfig`; a test
holds both equal.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from numbers import Integral, Real
from os import PathLike
from types import UnionType
from typing import Annotated, Literal, TypedDict, TypeVar, Union, get_args, get_origin

from dsocr.errors import DISK_FULL, ConfigError, disk_full, option

StrPath = str | PathLike[str]
"""A path: text, a `Path`, or a `Run`."""
ScriptName = Literal["auto", "latin", "cyrillic", "any"]
"""Script of a collection; `auto` decides it."""
SplitName = Literal["train", "validation", "test"]
"""Name of a split of a dataset."""
ExportForm = Literal["peft", "vllm", "merged"]
"""What is exported: the adapter for PEFT or vLLM, or the base with the adapter merged in."""


@dataclass(frozen=True, slots=True)
class Range:
    """The smallest and the largest value of a numeric option."""

    least: float
    most: float | None = None


Count = Annotated[int, Range(1)]
"""A number of things, at least one."""


class InputKeys(TypedDict, total=False):
    """Keys of the section `input`."""

    resolution: str | None
    prompt: str


class AdapterKeys(TypedDict, total=False):
    """Keys of the section `adapter`."""

    target_modules: str | Sequence[str]
    r: int
    alpha: int
    dropout: float
    variant: Literal["lora", "rslora", "dora"]
    init_from: StrPath | None
    quantization: Literal["nf4"] | None


class NamedTrainingKeys(TypedDict, total=False):
    """Keys of the section `training` but its unlabelled scans, which are an option of their own."""

    epochs: float | None
    max_steps: int | None
    max_samples: int | None
    batch_size: int
    micro_batch_size: int
    learning_rate: float | None
    vision_learning_rate: float | None
    warmup_ratio: float
    lr_scheduler: str | Mapping[str, object]
    optimizer: str | Mapping[str, object]
    weight_decay: float
    max_grad_norm: float
    precision: Literal["auto", "bf16", "fp16", "fp32"]
    attention: Literal["sdpa", "eager"]
    gradient_checkpointing: bool
    compile: bool
    group_by_length: bool
    feature_cache: bool | Literal["auto"]
    feature_cache_gb: float
    feature_cache_views: int
    augmentation: float | str
    long_text: Literal["error", "exclude"]
    max_text_tokens: int
    num_workers: int
    threads: int | None
    report_to: str | Sequence[str] | None


class TrainingKeys(NamedTrainingKeys, total=False):
    """Keys of the section `training`."""

    unlabelled: StrPath | Sequence[StrPath] | None


class ValidationKeys(TypedDict, total=False):
    """Keys of the section `validation`."""

    every_steps: int
    max_samples: int | None
    patience: int


class CheckpointsKeys(TypedDict, total=False):
    """Keys of the section `checkpoints`."""

    every_steps: int
    keep: int


class GenerationKeys(TypedDict, total=False):
    """Keys of the section `generation`."""

    max_new_tokens: int
    no_repeat_ngram_size: int
    no_repeat_ngram_window: int
    no_repeat_ngram_whitelist: Sequence[str]
    num_beams: int
    script: ScriptName
    language_model: str
    batch_size: int
    prefetch_batches: int


class RecipeKeys(InputKeys, AdapterKeys, NamedTrainingKeys, total=False):
    """Keys of the configuration but its dataset and output: sections, and those keys whose name says the section."""

    base: str
    base_revision: str | None
    fold: int | None
    seed: int
    input: InputKeys
    adapter: AdapterKeys
    training: TrainingKeys
    validation: ValidationKeys
    checkpoints: CheckpointsKeys
    generation: GenerationKeys
    patience: int
    keep: int
    max_new_tokens: int
    no_repeat_ngram_size: int
    no_repeat_ngram_window: int
    no_repeat_ngram_whitelist: Sequence[str]
    num_beams: int
    script: ScriptName
    language_model: str
    prefetch_batches: int


class RunConfigKeys(RecipeKeys, total=False):
    """Keys of the configuration but its dataset."""

    output: StrPath


F = TypeVar("F", bound=Callable[..., object])


_KINDS: dict[object, tuple[tuple[type, ...], str]] = {
    str: ((str,), "text"),
    PathLike: ((PathLike,), "text"),
    bool: ((bool,), "true or false"),
    int: ((Integral,), "a whole number"),
    float: ((Real,), "a number"),
    Sequence: ((Iterable,), "a list"),
    Mapping: ((Mapping,), "a mapping"),
    Callable: ((Callable,), "a function"),  # type: ignore[dict-item]
    type(None): ((type(None),), ""),
}
"""The classes of what may be given for an annotation, and what they are called."""


def checked(function: F) -> F:
    """Let a function raise ConfigError for an option of another type, out of its range or not among its choices.

    A full disk is a RunError, whatever was being written.
    """
    parameters = inspect.signature(function).parameters
    annotations = {name: parameter.annotation for name, parameter in parameters.items()}
    # All positional arguments of `*systems` are called so.
    several = [name for name, parameter in parameters.items() if parameter.kind is parameter.VAR_POSITIONAL]
    before = list(parameters)[: list(parameters).index(several[0])] if several else list(parameters)
    rules = {name: rule for name, kind in annotations.items() if (rule := rule_of(kind)) is not None}
    kinds = {name: kind for name, kind in annotations.items() if kinds_of(kind)}

    @wraps(function)
    def called(*arguments: object, **options: object) -> object:
        names = [*before, *several * len(arguments)]
        for name, value in [*zip(names, arguments, strict=False), *options.items()]:
            if name in kinds:
                _require_kind(name, value, kinds[name])
        for name, value in options.items():
            if name in rules:
                for part in value if isinstance(value, list | tuple) else [value]:
                    _require(name, part, rules[name])
        try:
            return function(*arguments, **options)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            raise disk_full(error.filename) from error

    return called  # type: ignore[return-value]


def kinds_of(annotation: object) -> list[object]:
    """Return the kinds, of `_KINDS`, that a parameter may have; none if it may have another one too."""
    if get_origin(annotation) is Annotated:
        return kinds_of(get_args(annotation)[0])
    is_union = get_origin(annotation) in {Union, UnionType}
    parts = [kinds_of(part) for part in get_args(annotation)] if is_union else []
    if is_union:
        return [kind for part in parts for kind in part] if all(parts) else []
    kind = get_origin(annotation) or annotation
    return [kind] if kind in _KINDS else []


def _require_kind(name: str, value: object, annotation: object) -> None:
    kinds = kinds_of(annotation)
    if not isinstance(value, tuple(part for kind in kinds for part in _KINDS[kind][0])):
        titles = list(dict.fromkeys(_KINDS[kind][1] for kind in kinds if _KINDS[kind][1]))
        message = f"{option(name, ...)} must be {' or '.join(titles)}, not {type(value).__name__} {value!r:.40}"
        raise ConfigError(message, code="option-invalid")
    items = next((get_args(part)[0] for part in _parts(annotation) if get_origin(part) is Sequence), None)
    for item in value if items is not None and isinstance(value, list | tuple) else ():
        _require_kind(name, item, items)


def _parts(annotation: object) -> tuple[object, ...]:
    return get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)


def rule_of(annotation: object) -> Range | tuple[object, ...] | None:
    """Return the range or the choices in the annotation of a parameter, if it has either."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if get_origin(annotation) is Annotated:
        return next((part for part in get_args(annotation) if isinstance(part, Range)), None)
    rules = [rule_of(part) for part in get_args(annotation) if part is not type(None)]
    return rules[0] if len(rules) == 1 else None


def _require(name: str, value: object, rule: Range | tuple[object, ...]) -> None:
    if value is None:
        return
    if isinstance(rule, tuple):
        if value not in rule:
            likely = get_close_matches(str(value), map(str, rule), n=1)
            hint = f"did you mean {likely[0]!r}?" if likely else None
            choices = ", ".join(map(str, rule))
            raise ConfigError(f"{option(name, value)} is not one of {choices}", code="option-invalid", hint=hint)
    elif isinstance(value, int | float) and not rule.least <= value <= (math.inf if rule.most is None else rule.most):
        most = "" if rule.most is None else f" and at most {rule.most:g}"
        message = f"{option(name, value)} must be at least {rule.least:g}{most}"
        raise ConfigError(message, code="option-invalid")
