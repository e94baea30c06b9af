"""The types of the options of public functions, light enough that `dsocr --help` can read them.

The keys of the configuration stand here a second time because type checkers cannot derive them from `RunConfig`; a test
holds both equal.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Literal, TypedDict

StrPath = str | PathLike[str]
"""A path: text, a `Path`, or a `Run`."""
SplitName = Literal["train", "validation", "test"]
"""Name of a split of a dataset."""
ExportForm = Literal["peft", "vllm", "merged"]
"""What is exported: the adapter for PEFT or vLLM, or the base with the adapter merged in."""


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


class TrainingKeys(TypedDict, total=False):
    """Keys of the section `training`."""

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
    report_to: str | Sequence[str] | None


class ValidationKeys(TypedDict, total=False):
    """Keys of the section `validation`."""

    every_steps: int
    max_samples: int | None
    patience: int


class GuardKeys(TypedDict, total=False):
    """Keys of the section `guard`."""

    dataset: StrPath | None
    split: SplitName | None
    lines: int
    margin: float


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
    language_model: str
    batch_size: int
    prefetch_batches: int


class RecipeKeys(InputKeys, AdapterKeys, TrainingKeys, total=False):
    """Keys of the configuration but its dataset and output: sections, and those keys whose name says the section."""

    base: str
    base_revision: str | None
    fold: int | None
    seed: int
    input: InputKeys
    adapter: AdapterKeys
    training: TrainingKeys
    validation: ValidationKeys
    guard: GuardKeys
    checkpoints: CheckpointsKeys
    generation: GenerationKeys
    patience: int
    margin: float
    keep: int
    max_new_tokens: int
    no_repeat_ngram_size: int
    no_repeat_ngram_window: int
    no_repeat_ngram_whitelist: Sequence[str]
    num_beams: int
    language_model: str
    prefetch_batches: int


class RunConfigKeys(RecipeKeys, total=False):
    """Keys of the configuration but its dataset."""

    output: StrPath
