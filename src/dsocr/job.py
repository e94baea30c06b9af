"""Open, find and check everything that a configuration names, once and without torch: a training run as a `Job`.

Wrong paths and settings are reported before anything slow is loaded.
"""

import importlib.util
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from dsocr.config import RunConfig, expand_keys, load_config, load_run_config
from dsocr.data.dataset import Dataset, image_hash, training_images, training_samples
from dsocr.data.layouts import require_layouts
from dsocr.data.sources import require_source
from dsocr.document import Split
from dsocr.errors import ConfigError, DataError, DsocrError, RunError, command, option, require_package, setting
from dsocr.io.work import all_files, hash_file, require_free_output
from dsocr.models.base_folder import INDEX, SINGLE, embedded_bases, find_base_metadata, weight_files
from dsocr.models.ctc import LineRecognizer, require_script
from dsocr.models.family import Family, default_learning_rate, trains_all_weights
from dsocr.models.language_model import read_other_texts
from dsocr.models.loading import Base, require_quantization
from dsocr.options import Changes, Paths, StrPath, as_paths
from dsocr.recipes import find_recipe
from dsocr.runs import DETECTOR, READING, ReadingSettings, RunFolder, is_detector_base, read_provenance

Config = StrPath | RunConfig | Mapping[str, Any] | None

TEMPORARY = re.compile(
    r"\.(features|(\.lock\.json|config\.yaml|provenance\.json|metrics\.jsonl|adapter|model|checkpoints)\.[0-9a-f]{8})\.tmp"
)
"""Files and folders of a run that was killed while it wrote or removed them."""
_RESUMABLE_CHANGES = ("micro_batch_size", "gradient_checkpointing", "num_workers", "threads", "report_to")
"""Settings of the training section that do not change the result, so that a run may resume with others."""

_DETECTOR_DEFAULTS: Mapping[str, Any] = {"learning_rate": 1e-4, "batch_size": 1, "micro_batch_size": 1}
"""A detector's settings of the training section where the configuration has none: pages differ in size."""
_DETECTOR_VALIDATIONS = 10
"""Validations of a detector whose configuration does not set their interval."""
_DETECTOR_SETTINGS = {
    "epochs",
    "max_steps",
    "max_samples",
    "batch_size",
    "micro_batch_size",
    "learning_rate",
    "warmup_ratio",
    "lr_scheduler",
    "optimizer",
    "weight_decay",
    "max_grad_norm",
    "threads",
    "report_to",
}
"""Settings of the training section that a detector has a use for."""
_READER_SECTIONS = ("input", "adapter", "generation")


@dataclass(frozen=True, slots=True)
class Job:
    """A run that can begin or resume; see `resolve`.

    `config` has the base's commit and the defaults of its kind, `given` only the caller's settings. `recorded` is the
    configuration of the run to resume, None for a new one. `base` is None for a detector, whose folder is `detector`.
    `start` is the adapter to start from, and `texts` are additional ones for the language model.
    `dataset` is None until a run that learns alone has read its scans.
    """

    given: RunConfig
    config: RunConfig
    run: RunFolder
    overwrite: bool
    recorded: RunConfig | None = None
    dataset: Dataset | None = None
    base: Base | None = None
    detector: Path | None = None
    start: Path | None = None
    texts: Sequence[str] = ()

    @property
    def samples_from(self) -> Dataset:
        """The dataset, which must be there."""
        assert self.dataset is not None, "a run that learns alone reads its scans first"
        return self.dataset

    def with_run(
        self, output: Path, *, dataset: Dataset | None = None, overwrite: bool = False, **training: Any
    ) -> "Job":
        """Return the job in another run folder, on another dataset or fold, with other settings of the training."""
        dataset = dataset or self.samples_from
        changes: dict[str, Any] = {"output": output, "dataset": dataset.folder, "fold": dataset.fold}
        changes["training"] = self.given.training.model_copy(update=training)
        return resolve(self.given.model_copy(update=changes), overwrite=overwrite, known=self, dataset=dataset)

    def is_finished(self) -> bool:
        """Whether the run folder holds this training, finished. RunError for other settings or a changed dataset."""
        if not self.run.config.is_file():
            return False
        recorded = load_run_config(self.run.config)
        require_same_settings(self.run, self.config, recorded, self.samples_from)
        if not self.run.provenance.is_file():  # killed before it began
            return False
        if read_provenance(self.run).get("dataset") != self.samples_from.card.hashes:
            message = f"was trained on an earlier state of {self.config.dataset}"
            raise RunError(message, code="other-dataset", where=self.run.path, hint=f"give {option('overwrite')}")
        return self.run.adapter.is_dir()


def complete_config(
    config: Config,
    dataset: StrPath | Dataset | None,
    changes: Changes | None,
    keys: Mapping[str, object],
    unlabelled: Paths | None = None,
    *,
    may_learn_alone: bool = False,
) -> RunConfig:
    """Return the configuration of a run; changes and keys win over `config`.

    Raises ConfigError if it has no dataset; with `may_learn_alone`, if it has no unlabelled scans either.
    """
    settings, overrides = expand_changes(changes, keys)
    for given in (config, dataset):
        if not isinstance(given, str | PathLike | Mapping | RunConfig | Dataset | None):
            message = f"a dataset is a folder, not of type {type(given).__name__}"
            hint = (
                "write images and texts into a table with the columns image and text, and prepare it (`dsocr prepare`)"
            )
            raise DataError(message, code="not-a-dataset", hint=hint)
    if isinstance(dataset, Dataset):
        settings |= {"dataset": dataset.folder} | ({} if dataset.fold is None else {"fold": dataset.fold})
    elif dataset is not None:
        settings["dataset"] = Path(dataset)
    if unlabelled:
        settings["training.unlabelled"] = unlabelled
    if isinstance(config, RunConfig):
        config = config.given()
    if config is None:
        named, scans = settings.get("dataset"), as_paths(unlabelled or ())
        if named is None and not scans:
            raise _no_dataset()
        source = (scans[0] if named is None else Path(str(named))).resolve()
        config = {"output": f"runs/{source.stem if source.is_file() else source.name}"}
    recipe = find_recipe(config) if isinstance(config, str | PathLike) else None
    completed = load_config(recipe or config, overrides, changes=settings)
    if completed.learns_alone and not may_learn_alone:
        raise _no_dataset()
    return completed


def _no_dataset() -> ConfigError:
    hint = "give a dataset folder, or a configuration that names it"
    return ConfigError("there is no dataset to train on", code="dataset-missing", hint=hint)


def with_texts(keys: Mapping[str, object], texts: StrPath | None) -> Mapping[str, object]:
    """Return the keys with a file of texts. Raises ConfigError for a second one."""
    if texts is None:
        return keys
    if "language_model" in keys:
        message = f"{option('texts', texts)} and language_model both name texts"
        raise ConfigError(message, code="option-invalid", hint="give one of them")
    return {**keys, "language_model": Path(texts).as_posix()}


def expand_changes(changes: Changes | None, keys: Mapping[str, object]) -> tuple[dict[str, object], Sequence[str]]:
    """Return changes by their dotted keys, and changes given as texts."""
    if isinstance(changes, Mapping) or changes is None:
        return expand_keys({**(changes or {}), **keys}), ()
    return expand_keys(keys), changes


def resolve(
    config: RunConfig,
    *,
    overwrite: bool = False,
    finds_lines: bool = False,
    known: Job | None = None,
    dataset: Dataset | None = None,
) -> Job:
    """Open and check everything that a run needs, before torch is imported.

    Only with `finds_lines` may the base be a detector. `known` is another job of the same training, whose base is used
    again, and `dataset` replaces the configured one. With `overwrite` it does not matter what the run folder holds.

    Raises ConfigError for settings that do not fit, DataError if the dataset or the scans cannot be used, ModelError if
    there is no such base, and RunError if the run to resume has other settings.
    """
    require_package("training")
    run = RunFolder(config.output)
    recorded = load_run_config(run.config) if run.config.is_file() and not overwrite else None
    resumes = recorded is not None and run.has_begun
    for source in config.training.unlabelled:
        require_source(Path(source))
    require_trackers(config.training.report_to)
    job = Job(config, config, run, overwrite, recorded if resumes else None, dataset)
    if is_detector_base(config.base):
        job = _with_detector(job, finds_lines=finds_lines)
    else:
        job = _with_reader(job, recorded, known)
    if job.recorded is not None:
        require_same_settings(run, job.config, job.recorded, job.samples_from)
    return job


def _with_detector(job: Job, *, finds_lines: bool) -> Job:
    config = job.given
    if not finds_lines or config.training.unlabelled:
        message = f"base: {config.base} finds lines and reads none, so unlabelled scans teach it nothing"
        hint = f"train it with {command('train', 'CONFIG')}, without {option('unlabelled', ...)}"
        raise ConfigError(message, code="base-is-detector", hint=hint)
    dataset = job.dataset or Dataset.open(config.dataset, fold=config.fold)
    require_layouts(dataset)
    detector = RunFolder.to_find_lines_with(Path(config.base))
    _require_detector_settings(config)
    completed = _with_training(config, _DETECTOR_DEFAULTS)
    if "every_steps" not in config.validation.model_fields_set:
        steps = total_steps(completed, len(training_samples(dataset, completed)))
        every = {"every_steps": max(1, steps // _DETECTOR_VALIDATIONS)}
        completed = completed.model_copy(update={"validation": config.validation.model_copy(update=every)})
    return replace(job, config=completed, dataset=dataset, detector=detector)


def _require_detector_settings(config: RunConfig) -> None:
    """Raise ConfigError for settings that differ from the default and that only readers have a use for."""
    changed = config.model_dump(include={"training", *_READER_SECTIONS}, exclude_defaults=True)
    problems = [
        f"{section}.{name}: is for readers"
        for section, values in changed.items()
        for name in values
        if section != "training" or name not in _DETECTOR_SETTINGS
    ]
    if "micro_batch_size" in config.training.model_fields_set and config.training.micro_batch_size != 1:
        problems.append("training.micro_batch_size: must be 1, since pages differ in size")
    if problems:
        raise ConfigError.listing(problems, where="the configuration", code="detector-setting")


def _with_reader(job: Job, recorded: RunConfig | None, known: Job | None) -> Job:
    config = job.given
    if job.recorded is not None or not config.learns_alone:  # a new run that learns alone makes its dataset
        job = replace(job, dataset=_open_lines(config, job.dataset))
    texts = read_other_texts(config.generation.language_model)
    start = (
        None if job.recorded or config.adapter.init_from is None else RunFolder.to_read_with(config.adapter.init_from)
    )
    revision = config.base_revision
    if revision is None and recorded is not None and recorded.base == config.base:
        revision = recorded.base_revision
    if revision is None and start is not None:
        settings = ReadingSettings.load(start.adapter)
        revision = settings.base_revision if settings.base == config.base else None
    base = None if known is None else known.base
    if base is None or revision not in (None, base.revision):
        base = Base.find(config.base, revision)
    family = base.family
    family.validate_input(config.input.resolution, config.input.prompt)
    require_quantization(family, config.adapter.quantization)
    require_script(family, config.generation.script)
    if texts and not isinstance(family, LineRecognizer):
        message = f"generation.language_model: {config.base} has no language model of its own to learn texts"
        raise ConfigError(message, code="language-model-unused", hint="leave the texts out, or train `small`")
    completed = with_defaults(config, base)
    adapter = None if start is None else _require_continuable(start, completed, family)
    return replace(job, config=completed, base=base, start=adapter, texts=texts)


def with_defaults(config: RunConfig, base: Base) -> RunConfig:
    """Return the configuration with the base's commit and the defaults of its family."""
    training, family = config.training, base.family
    learning_rate = training.learning_rate or default_learning_rate(family, config.adapter.target)
    defaults = {"learning_rate": learning_rate, **family.training_defaults(learning_rate)}
    if "micro_batch_size" in training.model_fields_set:  # which may not divide another batch size
        defaults.pop("batch_size", None)
    return _with_training(config.model_copy(update={"base_revision": base.revision}), defaults)


def _with_training(config: RunConfig, defaults: Mapping[str, Any]) -> RunConfig:
    """Return the configuration with defaults for the settings of the training section that nobody gave."""
    given = {name for name in config.training.model_fields_set if getattr(config.training, name) is not None}
    missing = {name: value for name, value in defaults.items() if name not in given}
    return config.model_copy(update={"training": config.training.model_copy(update=missing)})


def _open_lines(config: RunConfig, dataset: Dataset | None) -> Dataset:
    """Open a reader's dataset. Raises DataError if it shows no lines, or cannot tell whether own readings help."""
    dataset = dataset or Dataset.open(config.dataset, fold=config.fold)
    if dataset.card.unit == "layout":
        detect = f"give {setting('base', DETECTOR)} to learn to find their lines"
        hint = f"{detect}, or prepare it with {option('unit', 'line')}, region or page"
        message = "the dataset shows layouts, whose lines may have no text, so no reader learns from it"
        raise DataError(message, code="dataset-is-layout", where=dataset.folder, hint=hint)
    judges = config.training.unlabelled and not config.learns_alone
    if judges and not dataset.samples(Split.VALIDATION):
        hint = f"prepare it with {option('split', '0.8/0.2/0')}, or leave the unlabelled scans out"
        message = "the dataset has no validation split, so nothing tells whether own readings help"
        raise DataError(message, code="unlabelled-unjudged", where=dataset.folder, hint=hint)
    return dataset


def require_trainable(run: RunFolder, *, overwrite: bool) -> None:
    """Raise DataError if the folder holds anything but a run, or a finished run that is not to be overwritten."""
    names = [path.name for path in run.path.iterdir()] if run.path.is_dir() else []
    if all(TEMPORARY.fullmatch(name) or name in kept_names(run) for name in names) and not run.path.is_file():
        return
    overwrite = overwrite or not run.adapter.is_dir()
    files = all_files if run.config.is_file() else lambda folder: None
    require_free_output(run.path, "finished run", files, overwrite=overwrite)


def kept_names(run: RunFolder) -> set[str]:
    """Return the names in a run folder that overwriting keeps: the lock, forecasts and folds."""
    return {run.lock.name, f"{run.lock.name}.json", run.forecast.name, run.folds.name}


def require_same_settings(run: RunFolder, config: RunConfig, recorded: RunConfig, dataset: Dataset) -> None:
    """Raise RunError if the run was begun with settings that change what is trained; places of folders do not."""
    ours, theirs = config.model_dump(), recorded.model_dump()
    for values in (ours, theirs):
        del values["output"]
        for name in _RESUMABLE_CHANGES:
            del values["training"][name]
    different = [key for key in ours if ours[key] != theirs[key]]
    if different == ["dataset"] and read_provenance(run).get("dataset") == dataset.card.hashes:
        return  # which was moved
    if different:
        raise RunError(
            f"holds {'a' if run.adapter.is_dir() else 'an unfinished'} run with other settings: {', '.join(different)}",
            code="other-settings",
            where=run.path,
            hint=f"resume it with {command('train', run.config.as_posix())}, or give {option('overwrite')}",
        )


def require_trackers(names: Sequence[str]) -> None:
    """Raise ConfigError if the package of a tracker is not installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            hint = f"pip install {name}, or leave it out of training.report_to"
            raise ConfigError(f"training.report_to: {name} is not installed", code="package-missing", hint=hint)


def _require_continuable(run: RunFolder, config: RunConfig, family: Family) -> Path:
    """Return the adapter folder of the run to start from.

    Raises ConfigError if it was trained on another base, has other layers, another rank or scaling, or is a whole
    network; RunError or ModelError if it is unfinished, damaged or not an adapter.
    """
    start = config.adapter.init_from
    assert start is not None
    if trains_all_weights(family, config.adapter.target) or (run.adapter / SINGLE).is_file():
        raise ConfigError(
            "adapter.init_from: all weights are trained or were trained, so there is no adapter to continue",
            code="init-from-network",
            where=start,
            hint=f"leave it out, and set `base: {start.as_posix()}` to continue from that run's network",
        )
    settings = ReadingSettings.load(run.adapter)
    merged = command("export", start.as_posix(), output="FOLDER", form="merged")
    merge = f"merge it with {merged}, and set `base: FOLDER`"
    if not _is_same_base(settings, config):
        revision = f" at {settings.base_revision}" if settings.base_revision else ""
        raise ConfigError(
            f"adapter.init_from: the adapter belongs to the base {settings.base}{revision}, not to {config.base}",
            code="init-from-base",
            where=start,
            hint=f"set `base: {settings.base}`, or leave init_from out, {merge}",
        )
    _require_same_shape(config, run.adapter, dict(family.target_modules), list(family.expert_parameters), merge)
    return run.adapter


def first_reader(config: RunConfig) -> RunFolder:
    """Return the reader of unlabelled scans for self-training alone: the adapter to start from, or the base."""
    return RunFolder.to_read_with(config.adapter.init_from or Path(config.base), config.base_revision)


def _require_same_shape(
    config: RunConfig, adapter: Path, named: dict[str, str], experts: list[str], merge: str
) -> None:
    from dsocr.models.adapters import has_experts, read_adapter_config, target_modules_of, variant_of

    ours, saved = config.adapter, read_adapter_config(adapter)
    theirs = {"r": saved["r"], "alpha": saved["lora_alpha"], "variant": variant_of(saved)}
    remedies = {name: value for name, value in theirs.items() if value != getattr(ours, name)}
    targets = named.get(ours.target, ours.target), experts if has_experts(ours.target) else None
    if (saved["target_modules"], saved.get("target_parameters") or None) != targets:
        remedies["target_modules"] = target_modules_of(saved)
    if remedies:
        differences = ", ".join(f"{name} {value}, not {getattr(ours, name)}" for name, value in remedies.items())
        settings = " ".join(setting(f"adapter.{name}", value) for name, value in remedies.items())
        raise ConfigError(
            f"adapter.init_from: the adapter has {differences}",
            code="init-from-shape",
            where=config.adapter.init_from,
            hint=f"set {settings}; or, for an adapter of another shape, leave init_from out, {merge}",
        )


def _is_same_base(settings: ReadingSettings, config: RunConfig) -> bool:
    """Whether an adapter belongs to the configured base: of the same name and commit, or with the same weights."""
    if settings.base == config.base:
        return config.base_revision in (None, settings.base_revision)
    if not (_is_local(settings.base) and _is_local(config.base)):
        return False
    theirs, ours = find_base_metadata(settings.base), find_base_metadata(config.base)
    return theirs.resolve() == ours.resolve() or _hashes(theirs) == _hashes(ours)


def _is_local(base: str) -> bool:
    return base in embedded_bases() or Path(base).is_dir()


def _hashes(folder: Path) -> dict[str, str]:
    whole = (folder / SINGLE).is_file() or (folder / INDEX).is_file()
    files = weight_files(folder) if whole else sorted(folder.glob("*.safetensors"))
    return {file.name: hash_file(file) for file in files}


def list_ancestors(config: RunConfig, dataset: Dataset) -> list[dict[str, Any]]:
    """List the ancestors of a run, newest first: the run that `init_from` or `base` names, its own start, and so on.

    An export counts as the run that it was made from. `known_lines` has the number of lines of the validation and the
    test split that the run was trained on, if the dataset of that run is still there: images are compared by bytes.
    """
    start = config.adapter.init_from or Path(config.base)
    is_export = start.name in {"adapter", "model"} and RunFolder(start.parent).config.is_file()
    run = RunFolder(start.parent if is_export else start)
    if start.as_posix() in embedded_bases() or not (run.adapter / READING).is_file():  # a base that no run made
        return []
    settings = ReadingSettings.load(run.adapter)
    made = read_provenance(run)
    parent = {
        "run": run.path.as_posix(),
        "sha256": _hashes(run.adapter),
        "base": settings.base,
        "base_revision": settings.base_revision,
        **{name: made.get(name) for name in ("dataset", "dataset_source", "begun_at", "dsocr_version")},
    }
    ancestors = [parent, *made.get("started_from", [])]
    ours = {split: list(map(image_hash, dataset.samples(split))) for split in (Split.VALIDATION, Split.TEST)}
    return [{**ancestor, "known_lines": _count_known(ancestor["run"], ours)} for ancestor in ancestors]


def _count_known(run: str, ours: Mapping[Split, Sequence[str]]) -> dict[str, int] | None:
    """Count the images of each split on which a run was trained; None if its dataset is not found."""
    try:
        known = training_images(load_run_config(RunFolder(Path(run)).config))
    except DsocrError:
        return None
    return {split.value: sum(digest in known for digest in digests) for split, digests in ours.items()}


# The number of steps


def fit_to_world_size(config: RunConfig, world_size: int) -> RunConfig:
    """Lower `micro_batch_size` until ranks have equally many micro-batches a step. ConfigError for uneven samples."""
    training = config.training
    if training.batch_size % world_size:
        message = f"training.batch_size: {training.batch_size} samples cannot be shared by {world_size} processes"
        raise ConfigError(message, code="batch-size-indivisible", hint=f"set it to a multiple of {world_size}")
    share = training.batch_size // world_size
    micro_batch_size = max(n for n in range(1, training.micro_batch_size + 1) if share % n == 0)
    return config.model_copy(update={"training": training.model_copy(update={"micro_batch_size": micro_batch_size})})


def total_steps(config: RunConfig, samples: int, world_size: int = 1) -> int:
    """Return the optimizer steps of the training; the last, smaller step of an epoch counts."""
    if config.training.max_steps is not None:
        return config.training.max_steps
    assert config.training.epochs is not None
    return max(1, math.ceil(config.training.epochs * steps_per_epoch(config, samples, world_size)))


def steps_per_epoch(config: RunConfig, samples: int, world_size: int = 1) -> int:
    """Return the optimizer steps in which every sample is seen once."""
    return math.ceil(micro_batches_per_epoch(config, samples, world_size) / micro_batches_per_step(config, world_size))


def micro_batches_per_epoch(config: RunConfig, samples: int, world_size: int = 1) -> int:
    """Return the micro-batches of each rank in which every sample is seen once."""
    return math.ceil(samples / (config.training.micro_batch_size * world_size))


def micro_batches_per_step(config: RunConfig, world_size: int = 1) -> int:
    """Return the micro-batches of each rank that make an optimizer step."""
    return max(1, config.training.batch_size // (config.training.micro_batch_size * world_size))


def log_interval(max_steps: int) -> int:
    """Return the steps between two logs: about 50 logs in a short training, every 10 steps in a long one."""
    return max(1, min(10, max_steps // 50))
