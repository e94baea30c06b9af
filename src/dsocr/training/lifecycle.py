"""The run folder of a training: what must hold before one begins, the lock on it, and how it is begun and resumed.

Fast and without torch, so that a wrong path or setting is reported at once.
"""

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from filelock import FileLock, Timeout

from dsocr import __version__
from dsocr.config import RunConfig, load_run_config
from dsocr.data.dataset import Dataset
from dsocr.errors import RunError, command, option
from dsocr.io.files import rename
from dsocr.io.work import remove_path, require_free_output, write_file
from dsocr.models.base_folder import find_base, find_base_metadata
from dsocr.runs import ReadingSettings, RunFolder, cut_back, read_provenance, to_json
from dsocr.training.callbacks import require_trackers

_TEMPORARY = re.compile(
    r"\.(\.lock\.json|config\.yaml|provenance\.json|metrics\.jsonl|adapter|model|checkpoints)\.[0-9a-f]{8}\.tmp"
)
"""Files and folders of a training that was killed while it wrote or removed them."""
_RESUMABLE_CHANGES = ("micro_batch_size", "gradient_checkpointing", "num_workers", "report_to")
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


def require_sources(config: RunConfig) -> Dataset:
    """Open the dataset of a configuration; raise if it, base, resolution, prompt, guard set or a tracker is missing."""
    dataset = Dataset.open(config.dataset, fold=config.fold)
    folder = find_base_metadata(config.base, config.base_revision)
    require_trackers(config.training.report_to)
    # Slow imports, which the refusals above need not wait for.
    from dsocr.evaluation.evaluate import GuardSet
    from dsocr.models.family import recognize
    from dsocr.models.loading import require_quantization
    from dsocr.training.warm_start import find_initial_adapter

    family = recognize(folder)
    family.validate_input(config.input.resolution, config.input.prompt)
    require_quantization(family, config.adapter.quantization)
    if not any(RunFolder(config.output).checkpoints.glob("step-*")):  # a run that resumes needs it no more
        find_initial_adapter(config)
    GuardSet.load(config.guard, config.base)
    return dataset


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
    """Raise RunError if the run was begun with settings that change what is trained."""
    ours, theirs = config.model_dump(), recorded.model_dump()
    for values in (ours, theirs):
        del values["output"]
        for name in _RESUMABLE_CHANGES:
            del values["training"][name]
    if different := [key for key in ours if ours[key] != theirs[key]]:
        raise RunError(
            f"holds {'a' if run.adapter.is_dir() else 'an unfinished'} run with other settings: {', '.join(different)}",
            code="other-settings",
            where=run.path,
            hint=f"resume it with {command('train', run.config.as_posix())}, or give {option('overwrite')}",
        )


def pin_base(config: RunConfig, recorded: RunConfig | None) -> RunConfig:
    """Set the commit of a base from the Hub, which resumed runs and readers use, and the defaults of its family."""
    from dsocr.models.family import default_learning_rate, recognize

    revision = config.base_revision
    if revision is None and recorded is not None and recorded.base == config.base:
        revision = recorded.base_revision
    if revision is None and config.adapter.init_from is not None and recorded is None:
        adapter = ReadingSettings.load(RunFolder.to_read_with(config.adapter.init_from).adapter)
        revision = adapter.base_revision if adapter.base == config.base else None
    folder, commit = find_base(config.base, revision)
    training, family = config.training, recognize(folder)
    learning_rate = training.learning_rate or default_learning_rate(family, config.adapter.target)
    defaults = {"learning_rate": learning_rate, **family.training_defaults(learning_rate)}
    if "micro_batch_size" in training.model_fields_set:  # which may not divide another batch size
        defaults.pop("batch_size", None)
    missing = {name: value for name, value in defaults.items() if name not in training.model_fields_set}
    training = training.model_copy(update=missing | {"learning_rate": learning_rate})
    return config.model_copy(update={"base_revision": commit, "training": training})


def is_trained(config: RunConfig) -> bool:
    """True if the run folder holds this training, finished; False if it was not begun or not finished.

    Raises RunError if the folder holds a run with other settings, or on a dataset that has changed since.
    """
    run = RunFolder(config.output)
    if not run.config.is_file():
        return False
    recorded = load_run_config(run.config)
    require_same_settings(run, pin_base(config, recorded), recorded)
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
    write_file(run.provenance, to_json(provenance))


def rewind_run(run: RunFolder, step: int) -> bool:
    """Bring the files of a run back to the step of a checkpoint; True if a row of its metrics was incomplete."""
    _remove_unfinished(run)
    return cut_back(run.metrics, step)


def clear_run(run: RunFolder) -> None:
    """Remove all that a run left; its configuration last, without which the folder would not be known as a run."""
    if run.checkpoints.is_dir():  # renamed first, so that nothing resumes from half of them
        rename(run.checkpoints, run.checkpoints.with_name(f".{run.checkpoints.name}.{uuid4().hex[:8]}.tmp"))
    others = [path for path in run.path.iterdir() if path.name not in _kept_names(run) and path != run.config]
    for path in [*others, run.config]:
        remove_path(path)


def _remove_unfinished(run: RunFolder) -> None:
    """Remove the folders that an interrupted save left behind."""
    for unfinished in run.checkpoints.glob(".*.tmp"):
        shutil.rmtree(unfinished, ignore_errors=True)


def _kept_names(run: RunFolder) -> set[str]:
    """Return the names in a run folder that overwriting keeps: the lock, and other trainings and a search."""
    return {*RunLock.file_names(run), run.forecast.name, run.folds.name, run.tune.name}
