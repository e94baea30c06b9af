"""What a training writes into its run folder first, and whether it has been trained already."""

import json
import platform
import shutil
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from dsocr import __version__
from dsocr.config import RunConfig, load_config
from dsocr.data.dataset import Dataset
from dsocr.errors import RunError
from dsocr.model.finding import find_base
from dsocr.model.loading import choose_device
from dsocr.runs import RunFolder, to_json, write_atomically
from dsocr.training.checkpoints import remove_leftovers
from dsocr.training.locking import RunLock
from dsocr.training.refusing import beside, refuse_other_settings


def is_trained(config: RunConfig) -> bool:
    """True where the run folder holds this very training, finished; it may as well be begun, or not there.

    Raises RunError where it holds one with other settings, or of a dataset that has changed since.
    """
    run = RunFolder(config.run)
    if not run.config.is_file():
        return False
    begun = load_config(run.config)
    refuse_other_settings(run, pinned(config, begun), begun)
    if not run.provenance.is_file():  # killed before it began
        return False
    dataset = Dataset.open(config.dataset, fold=config.fold)
    try:
        trained_on = json.loads(run.provenance.read_text(encoding="utf-8"))["dataset"]
    except (OSError, ValueError, KeyError, TypeError):
        trained_on = None
    if trained_on != {split.value: card.sha256 for split, card in dataset.card.splits.items()}:
        raise RunError(f"was not trained on {config.dataset} as it is", where=run.path, hint="give --overwrite")
    return run.adapter.is_dir()


def pinned(config: RunConfig, begun: RunConfig | None) -> RunConfig:
    """The configuration with the commit of a Hub base written in, which a resumed run and whoever reads with it get."""
    revision = config.base_revision
    if revision is None and begun is not None and begun.base == config.base:
        revision = begun.base_revision
    _, commit = find_base(config.base, revision)
    return config.model_copy(update={"base_revision": commit})


def begin_run(
    run: RunFolder,
    lock: RunLock,
    config: RunConfig,
    dataset: Dataset,
    *,
    fresh: bool,
    overwrite: bool,
    processes: int = 1,
) -> None:
    """Make the run folder, or take it up again; what it is made with is written once."""
    lock.take()
    if overwrite:
        _clear(run)
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    write_atomically(run.config, config.to_yaml())
    if fresh:
        remove_leftovers(run.checkpoints)
        run.metrics.unlink(missing_ok=True)
        write_atomically(run.provenance, to_json(_provenance(config, dataset, processes)))


def _clear(run: RunFolder) -> None:
    """Remove all that a run left, its configuration last: without it the folder would be taken for something else."""
    if run.checkpoints.is_dir():  # at once, so that what is left half removed is not gone on from
        run.checkpoints.rename(run.checkpoints.with_name(f".{run.checkpoints.name}.{uuid4().hex[:8]}.tmp"))
    others = [path for path in run.path.iterdir() if path.name not in beside(run) and path != run.config]
    for path in [*others, run.config]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _provenance(config: RunConfig, dataset: Dataset, processes: int) -> dict[str, Any]:
    """What the run is made with."""
    packages = ("torch", "transformers", "peft", "accelerate", "Pillow", "numpy")
    return {
        "begun_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "dsocr_version": __version__,
        "base": config.base,
        "base_revision": config.base_revision,
        "dataset": {split.value: card.sha256 for split, card in dataset.card.splits.items()},
        "dataset_source": dataset.card.source,
        "fold": dataset.fold,
        "python": sys.version.split()[0],
        "packages": {name: version(name) for name in packages},
        "machine": f"{platform.system()} {platform.machine()}",
        "device": str(choose_device()),
        "processes": processes,
    }
