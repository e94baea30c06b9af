"""The run folder of a training: what must hold before it begins, its lock, how it begins, from what, and resumes.

Fast and without torch, so that a wrong path or setting is reported at once.
"""

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from filelock import FileLock, Timeout

from dsocr import __version__
from dsocr.config import RunConfig, load_run_config
from dsocr.data.dataset import Dataset, image_hash, training_images
from dsocr.data.layouts import require_layouts
from dsocr.document import Split
from dsocr.errors import ConfigError, DataError, DsocrError, RunError, command, option, setting
from dsocr.io.files import rename
from dsocr.io.work import hash_file, remove_path, require_free_output, write_file
from dsocr.models.base_folder import INDEX, SINGLE, embedded_bases, find_base_metadata, weight_files
from dsocr.models.families import Base, recognize
from dsocr.models.family import Family, default_learning_rate, trains_all_weights
from dsocr.runs import (
    DETECTOR,
    READING,
    ReadingSettings,
    RunFolder,
    UnlabelledReport,
    cut_back,
    is_detector_base,
    read_provenance,
    to_json,
)
from dsocr.training.callbacks import require_trackers

_TEMPORARY = re.compile(
    r"\.(\.lock\.json|config\.yaml|provenance\.json|metrics\.jsonl|adapter|model|checkpoints)\.[0-9a-f]{8}\.tmp"
)
"""Files and folders of a training that was killed while it wrote or removed them."""
_RESUMABLE_CHANGES = ("micro_batch_size", "gradient_checkpointing", "num_workers", "threads", "report_to")
"""Settings of the training section that do not change what is trained, so that a run may resume with others."""
_PACKAGES = ("torch", "transformers", "peft", "accelerate", "Pillow", "numpy")


class RunLock:
    """Keeps other trainings out of a run folder as long as this process lives; a crash leaves no lock behind.

    A folder that does not exist is made and locked by `acquire`, so a training that is refused makes none.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._lock = FileLock(run.lock, timeout=0)
        self._holder = run.lock.with_name(f"{run.lock.name}.json")

    def __enter__(self) -> Self:
        if self._run.path.is_dir():
            self._lock_folder()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock.is_locked:
            self._holder.unlink(missing_ok=True)
            self._lock.release()

    def acquire(self) -> None:
        """Make and lock the folder, unless it is locked. Raises RunError if another process was faster."""
        if self._lock.is_locked:
            return
        self._run.path.mkdir(parents=True, exist_ok=True)
        self._lock_folder()
        if any(path.name not in self.file_names(self._run) for path in self._run.path.iterdir()):
            hint = "run the same command again"
            raise RunError("another process has begun this run", code="run-begun", where=self._run.path, hint=hint)

    @staticmethod
    def file_names(run: RunFolder) -> set[str]:
        """Return the names of the lock's own files."""
        return {run.lock.name, f"{run.lock.name}.json"}

    def _lock_folder(self) -> None:
        try:
            self._lock.acquire()
        except Timeout as error:
            message = f"{self._describe_holder()} is training this run"
            hint = "wait until it ends, or stop it"
            raise RunError(message, code="run-locked", where=self._run.path, hint=hint) from error
        for path in self._run.path.iterdir():
            if _TEMPORARY.fullmatch(path.name):
                remove_path(path)
        since = datetime.now(UTC).isoformat("T", "seconds")
        write_file(self._holder, to_json({"process": os.getpid(), "machine": platform.node(), "since": since}))

    def _describe_holder(self) -> str:
        try:
            holder: dict[str, Any] = json.loads(self._holder.read_text(encoding="utf-8"))
            return f"process {holder['process']} on {holder['machine']} since {holder['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"


def require_sources(config: RunConfig, *, finds_lines: bool = False) -> None:
    """Raise if dataset, unlabelled scans, base, resolution, prompt or a tracker is missing or unfit.

    Only where it `finds_lines` may the base be a detector.
    """
    from dsocr.data.sources import require_source

    for source in config.training.unlabelled:
        require_source(Path(source))
    if is_detector_base(config.base):
        if not finds_lines:
            message = f"base: {config.base} finds lines and reads none"
            raise ConfigError(message, code="base-is-detector", hint=f"train it with {command('train', 'CONFIG')}")
        if config.training.unlabelled:
            message = f"base: {config.base} finds lines and reads none, so unlabelled scans teach it nothing"
            raise ConfigError(message, code="base-is-detector", hint=f"leave {option('unlabelled', ...)} out")
        require_layouts(Dataset.open(config.dataset, fold=config.fold))
        require_trackers(config.training.report_to)
        RunFolder.to_find_lines_with(Path(config.base))
        return
    if not config.learns_alone:  # else it makes its dataset
        _require_dataset(config)
    folder = find_base_metadata(config.base, config.base_revision)
    require_trackers(config.training.report_to)
    # Slow imports, which the refusals above need not wait for.
    from dsocr.models.loading import require_quantization

    family = recognize(folder)
    family.validate_input(config.input.resolution, config.input.prompt)
    require_quantization(family, config.adapter.quantization)
    if not any(RunFolder(config.output).checkpoints.glob("step-*")):  # a run that resumes needs it no more
        find_initial_adapter(config, family)


def _require_dataset(config: RunConfig) -> None:
    """Raise DataError if the dataset shows no lines, or if it cannot tell whether own readings help."""
    dataset = Dataset.open(config.dataset, fold=config.fold)
    if dataset.card.unit == "layout":
        detect = f"give {setting('base', DETECTOR)} to learn to find their lines"
        hint = f"{detect}, or prepare it with {option('unit', 'line')}, region or page"
        message = "the dataset shows layouts, whose lines may have no text, so no reader learns from it"
        raise DataError(message, code="dataset-is-layout", where=dataset.folder, hint=hint)
    if config.training.unlabelled and not dataset.samples(Split.VALIDATION):
        hint = f"prepare it with {option('split', '0.8/0.2/0')}, or leave the unlabelled scans out"
        message = "the dataset has no validation split, so nothing tells whether own readings help"
        raise DataError(message, code="unlabelled-unjudged", where=dataset.folder, hint=hint)


def require_trainable(run: RunFolder, *, overwrite: bool) -> None:
    """Raise DataError if the folder holds anything but a run, or a finished run that is not to be overwritten."""
    names = [path.name for path in run.path.iterdir()] if run.path.is_dir() else []
    if all(_TEMPORARY.fullmatch(name) or name in _kept_names(run) for name in names) and not run.path.is_file():
        return
    overwrite = overwrite or not run.adapter.is_dir()
    require_free_output(run.path, "finished run", _run_files, overwrite=overwrite)


def _run_files(folder: Path) -> list[str] | None:
    """Return all that is in the folder of a run, since whatever is done with a run adds to it."""
    names = [path.name for path in folder.iterdir()]
    return [*names, *(f"{name}/" for name in names)] if RunFolder(folder).config.is_file() else None


def require_same_settings(run: RunFolder, config: RunConfig, recorded: RunConfig) -> None:
    """Raise RunError if the run was begun with settings that change what is trained; places of folders do not."""
    ours, theirs = config.model_dump(), recorded.model_dump()
    for values in (ours, theirs):
        del values["output"]
        for name in _RESUMABLE_CHANGES:
            del values["training"][name]
    different = [key for key in ours if ours[key] != theirs[key]]
    if different == ["dataset"] and _is_its_dataset(run, config):
        return
    if different:
        raise RunError(
            f"holds {'a' if run.adapter.is_dir() else 'an unfinished'} run with other settings: {', '.join(different)}",
            code="other-settings",
            where=run.path,
            hint=f"resume it with {command('train', run.config.as_posix())}, or give {option('overwrite')}",
        )


def _is_its_dataset(run: RunFolder, config: RunConfig) -> bool:
    """Whether the configuration names the dataset that a run was begun with, wherever that lies now."""
    hashes = read_provenance(run).get("dataset")
    if hashes is None or not config.dataset.is_dir():
        return False
    return bool(hashes == Dataset.open(config.dataset, fold=config.fold).card.hashes)


def pin_base(config: RunConfig, recorded: RunConfig | None) -> tuple[RunConfig, Base]:
    """Find the base; return it, and the configuration with its commit and the defaults of its family.

    Resumed runs and readers use the commit of a base from the Hub.
    """
    revision = config.base_revision
    if revision is None and recorded is not None and recorded.base == config.base:
        revision = recorded.base_revision
    if revision is None and config.adapter.init_from is not None and recorded is None:
        adapter = ReadingSettings.load(RunFolder.to_read_with(config.adapter.init_from).adapter)
        revision = adapter.base_revision if adapter.base == config.base else None
    base = Base.find(config.base, revision)
    training, family = config.training, base.family
    learning_rate = training.learning_rate or default_learning_rate(family, config.adapter.target)
    defaults = {"learning_rate": learning_rate, **family.training_defaults(learning_rate)}
    if "micro_batch_size" in training.model_fields_set:  # which may not divide another batch size
        defaults.pop("batch_size", None)
    missing = {name: value for name, value in defaults.items() if name not in training.model_fields_set}
    training = training.model_copy(update=missing | {"learning_rate": learning_rate})
    return config.model_copy(update={"base_revision": base.revision, "training": training}), base


def is_trained(config: RunConfig) -> bool:
    """True if the run folder holds this training, finished; False if it was not begun or not finished.

    Raises RunError if the folder holds a run with other settings, or on a dataset that has changed since.
    """
    run = RunFolder(config.output)
    if not run.config.is_file():
        return False
    recorded = load_run_config(run.config)
    require_same_settings(run, pin_base(config, recorded)[0], recorded)
    if not run.provenance.is_file():  # killed before it began
        return False
    trained_on = read_provenance(run).get("dataset")
    if trained_on != Dataset.open(config.dataset, fold=config.fold).card.hashes:
        message = f"was trained on an earlier state of {config.dataset}"
        raise RunError(message, code="other-dataset", where=run.path, hint=f"give {option('overwrite')}")
    return run.adapter.is_dir()


def begun_at(run: RunFolder, *, hint: str) -> str:
    """Return when the training of a run began, by which it is known again. Raises RunError if it does not say."""
    begun = read_provenance(run).get("begun_at")
    if begun is None:
        message = "does not say when the training began"
        raise RunError(message, code="provenance-unreadable", where=run.provenance, hint=hint)
    return str(begun)


def start_run(
    run: RunFolder,
    config: RunConfig,
    dataset: Dataset,
    started_from: Sequence[Mapping[str, Any]] = (),
    *,
    device: str,
    world_size: int,
    samples: int | None = None,
    unlabelled: UnlabelledReport | None = None,
) -> None:
    """Prepare the locked folder of a new run: checkpoints, no metrics, and the provenance."""
    run.checkpoints.mkdir(exist_ok=True)
    _remove_unfinished(run)
    run.metrics.unlink(missing_ok=True)
    provenance = {
        "begun_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "dsocr_version": __version__,
        "base": config.base,
        "base_revision": config.base_revision,
        "started_from": list(started_from),
        "dataset": dataset.card.hashes,
        "dataset_source": dataset.card.source,
        "training_samples": samples,
        "fold": dataset.fold,
        "python": sys.version.split()[0],
        "packages": {name: version(name) for name in _PACKAGES},
        "machine": f"{platform.system()} {platform.machine()}",
        "device": device,
        "processes": world_size,
    }
    if unlabelled is not None:
        provenance["unlabelled"] = asdict(unlabelled)
    write_file(run.provenance, to_json(provenance))


def rewind_run(run: RunFolder, step: int) -> bool:
    """Bring the files of a run back to the step of a checkpoint; True if a row of its metrics was incomplete."""
    _remove_unfinished(run)
    return cut_back(run.metrics, step)


def clear_run(run: RunFolder, *, but: Path | None = None) -> None:
    """Remove all that a run left, except the folder `but`; its configuration last, which makes the folder a run's."""
    if run.checkpoints.is_dir():  # renamed first, so that nothing resumes from half of them
        rename(run.checkpoints, run.checkpoints.with_name(f".{run.checkpoints.name}.{uuid4().hex[:8]}.tmp"))
    kept = {run.path / name for name in _kept_names(run)} | {run.config, but}
    others = [path for path in run.path.iterdir() if path not in kept]
    for path in [*others, run.config]:
        remove_path(path)


def _remove_unfinished(run: RunFolder) -> None:
    """Remove the folders that an interrupted save left behind."""
    for unfinished in run.checkpoints.glob(".*.tmp"):
        shutil.rmtree(unfinished, ignore_errors=True)


def _kept_names(run: RunFolder) -> set[str]:
    """Return the names in a run folder that overwriting keeps: the lock, and other trainings and a search."""
    return {*RunLock.file_names(run), run.forecast.name, run.folds.name}


# What a run starts from: `adapter.init_from` continues an adapter, `base` a network all of whose weights were trained


_COMPARED = {"r": "r", "lora_alpha": "alpha", "use_dora": "variant", "use_rslora": "variant"}
"""Keys of a saved adapter's config that must be as configured, and the settings of the adapter section for them."""


def find_initial_adapter(config: RunConfig, family: Family) -> Path | None:
    """Return the adapter folder to start from, None if there is none to start from.

    Raises ConfigError if it was trained on another base, has other layers, another rank or scaling, or is a whole
    network; RunError or ModelError if it is unfinished, damaged or not an adapter.
    """
    start = config.adapter.init_from
    if start is None:
        return None
    run = RunFolder.to_read_with(start)
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
    """Return the reader of unlabelled scans without transcribed lines: the adapter to start from, or the base."""
    return RunFolder.to_read_with(config.adapter.init_from or Path(config.base), config.base_revision)


def _require_same_shape(
    config: RunConfig, adapter: Path, named: dict[str, str], experts: list[str], merge: str
) -> None:
    from dsocr.models.adapters import WITH_EXPERTS, read_adapter_config, target_modules_of, variant_of

    adapter_settings, saved = config.adapter, read_adapter_config(adapter)
    expected: dict[str, object] = {
        "r": adapter_settings.r,
        "lora_alpha": adapter_settings.alpha,
        "use_dora": adapter_settings.variant == "dora",
        "use_rslora": adapter_settings.variant == "rslora",
    }
    remedies = {}
    for key, value in expected.items():
        if (saved.get(key) or False) != value:
            remedies[_COMPARED[key]] = variant_of(saved) if key.startswith("use_") else f"{saved[key]:g}"
    targets = (
        named.get(adapter_settings.target, adapter_settings.target),
        experts if adapter_settings.target == WITH_EXPERTS else None,
    )
    if (saved["target_modules"], saved.get("target_parameters") or None) != targets:
        remedies["target_modules"] = target_modules_of(saved)
    if remedies:
        differences = ", ".join(
            f"{name} {value}, not {getattr(adapter_settings, name)}" for name, value in remedies.items()
        )
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
    """Return the hash of each file of weights in the folder of a network or an adapter."""
    whole = (folder / SINGLE).is_file() or (folder / INDEX).is_file()
    files = weight_files(folder) if whole else sorted(folder.glob("*.safetensors"))
    return {file.name: hash_file(file) for file in files}


def list_ancestors(config: RunConfig, dataset: Dataset) -> list[dict[str, Any]]:
    """Return what a training starts from besides a published base: the run, what it started from, and so on.

    An export counts as the run that it was made from. `known_lines` has the number of lines of the validation and the
    test split that the run was trained on, if the dataset of that run is still there: images are compared by bytes.
    """
    start = config.adapter.init_from
    if start is None:
        start = None if config.base in embedded_bases() or not Path(config.base).is_dir() else Path(config.base)
    if start is None:
        return []
    run = RunFolder(start)
    if start.name in {"adapter", "model"} and RunFolder(start.parent).config.is_file():
        run = RunFolder(start.parent)
    if not (run.adapter / READING).is_file():  # a base that no run made
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


# Out of memory


@contextmanager
def explain_out_of_memory(config: RunConfig) -> Iterator[None]:
    """Turn running out of memory into RunError with settings that take less; the run folder stays as it is."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        from dsocr.models.loading import choose_device, is_out_of_memory

        if not is_out_of_memory(error):
            raise
        hint = f"run it again with {describe_lighter_settings(config)}"
        checkpoint = max(RunFolder(config.output).checkpoints.glob("step-*"), default=None)
        if checkpoint is not None:
            settings = "micro_batch_size and gradient_checkpointing"
            hint += f" (with only {settings} changed it resumes from {checkpoint.name})"
        message = f"training ran out of memory on the {choose_device().type.upper()}"
        # `from None`: the traceback would keep the batch in memory.
        raise RunError(message, code="out-of-memory", where=config.output, hint=hint) from None


def describe_lighter_settings(config: RunConfig) -> str:
    """Describe up to three settings that take less memory, first those that change nothing but the speed."""
    from dsocr.models.loading import choose_device, choose_dtype

    training, device = config.training, choose_device()
    smaller = [n for n in range(1, training.micro_batch_size // 2 + 1) if training.batch_size % n == 0]
    sizes = [choose_dtype(precision, device).itemsize for precision in ("auto", training.precision)]
    options = [
        ("training.micro_batch_size", max(smaller, default=1), bool(smaller)),
        ("training.gradient_checkpointing", True, not training.gradient_checkpointing),
        ("training.precision", "auto", sizes[0] < sizes[1]),
        ("training.attention", "sdpa", training.attention != "sdpa"),
        ("adapter.target_modules", "decoder", config.adapter.target_modules != "decoder"),
        ("adapter.r", config.adapter.r // 2, config.adapter.r > 1),
        ("training.max_text_tokens", max(training.max_text_tokens // 2, 1), True),
    ]
    lighter = [setting(key, value) for key, value, applies in options if applies]
    return f"{' '.join(lighter[:3])} or a smaller input.resolution"
