"""Types of the options that public functions share; cyclopts makes the options of the command line from them.

The keys of the configuration stand here a second time because type checkers cannot derive them from `RunConfig`; a test
holds both equal.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated, Literal, TypedDict, TypeVar

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from dsocr.errors import ConfigError, option

Value = TypeVar("Value")
StrPath = Annotated[str | PathLike[str], Parameter(metavar="PATH")]
"""A path: text, a `Path`, or a `Run`."""
ScriptName = Literal["auto", "latin", "cyrillic", "any"]
"""Script of a collection; `auto` decides it."""
SplitName = Literal["train", "validation", "test"]
"""Name of a split of a dataset."""
ExportForm = Literal["peft", "vllm", "merged"]
"""What is exported: the adapter for PEFT or vLLM, or the base with the adapter merged in."""

Rare = Annotated[Value, Parameter(group=Group("Rare", sort_key=9))]
"""An option that few need, listed last in the help."""
ON = Parameter(negative_bool="no-")
"""A switch that is on, with an option that turns it off."""
IN_PYTHON = Parameter(parse=False)
"""An argument without an option."""
Paths = Annotated[Sequence[StrPath] | StrPath, Parameter(metavar="PATH")]
"""One path or several."""
Texts = Annotated[Sequence[str] | str, Parameter(metavar="TEXT")]
"""One text or several."""
Output = Annotated[StrPath, Parameter(alias="-o")]
"""A file or folder to write."""
Pairs = Annotated[Mapping[str, str] | Sequence[str], Parameter(metavar="NAME=VALUE")]
"""Values by their names, also as texts of the form name=value."""
Columns = Annotated[Pairs, Parameter(name="--column")]
"""Columns of a table by what they hold, such as text=transcription."""
Changes = Annotated[Mapping[str, object] | Sequence[str], Parameter(name="--set", metavar="KEY=VALUE")]
"""Changed settings by their dotted keys, also as texts of the form key=value."""
Count = Annotated[int, Parameter(validator=Number(gte=1))]
"""A number of things, at least one."""
Share = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]
"""A share of a whole, from 0 to 1."""


def between(least: float, most: float | None = None) -> Parameter:
    """Return the range of a number."""
    return Parameter(validator=Number(gte=least, lte=most))


def as_paths(paths: Paths) -> list[Path]:
    """Return one path or several as a list."""
    return [Path(path) for path in ([paths] if isinstance(paths, str | PathLike) else paths)]


def read_pairs(name: str, pairs: Mapping[str, str] | Sequence[str] | None) -> dict[str, str]:
    """Return an option of the form name=value as a mapping. Raises ConfigError for a text without `=`."""
    if pairs is None or isinstance(pairs, Mapping):
        return dict(pairs or {})
    for pair in pairs:
        if not pair.partition("=")[2]:
            message = f"{option(name, ...)} {pair!r} has no ="
            raise ConfigError(message, hint="write name=value, for example text=label", code="option-invalid")
    return dict(pair.split("=", 1) for pair in pairs)


Section = Mapping[str, object]
"""Keys of a section of the configuration with their values."""


class RecipeKeys(TypedDict, total=False):
    """Keys of the configuration but its dataset and output: sections, and those keys whose name says the section."""

    base: str
    base_revision: str | None
    fold: int | None
    seed: int
    input: Section
    adapter: Section
    training: Section
    validation: Section
    checkpoints: Section
    generation: Section
    # input
    resolution: str | None
    prompt: str
    # adapter
    target_modules: str | Sequence[str]
    r: int
    alpha: int
    dropout: float
    variant: Literal["lora", "rslora", "dora"]
    init_from: StrPath | None
    quantization: Literal["nf4"] | None
    # training, but its unlabelled scans, which are an option of their own
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
    # validation, checkpoints, generation
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
