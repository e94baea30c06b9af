"""Whether what a training names is there, and its run folder free, as files tell; writes nothing, loads no network."""

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.errors import RunError
from dsocr.evaluation.guard import Guard
from dsocr.model.architectures import read_config_json, recognise
from dsocr.model.finding import base_at_hand
from dsocr.model.prompts import find_prompt
from dsocr.model.resolution import find_resolution
from dsocr.runs import RunFolder
from dsocr.training.locking import RunLock


def demand_named(config: RunConfig) -> Dataset:
    """The dataset of a configuration; an error where it, the base, resolution, prompt or guard set is not there."""
    dataset = Dataset.open(config.dataset, fold=config.fold)
    folder = base_at_hand(config.base, config.base_revision)
    find_resolution(recognise(read_config_json(folder), folder).family, config.input.resolution)
    find_prompt(config.input.prompt)
    Guard.open(config.guard, config.base)
    return dataset


def refuse_run(run: RunFolder, *, overwrite: bool, another: str = "give `run:` another folder") -> None:
    """An error where the run folder is of something else, or of a finished run; `another` is how to name another."""
    if run.path.exists() and not run.path.is_dir():
        raise RunError("is a file, and a run needs a folder", where=run.path, hint=another)
    others = {path.name for path in run.path.iterdir()} - beside(run) if run.path.is_dir() else set()
    if others and not run.config.is_file():
        raise RunError("is not empty and not a run folder", where=run.path, hint=another)
    if run.adapter.is_dir() and not overwrite:
        raise RunError(
            "holds a finished run", where=run.path, hint="name another folder with --set run=..., or give --overwrite"
        )


def refuse_other_settings(run: RunFolder, config: RunConfig, begun: RunConfig) -> None:
    """An error where the unfinished run was begun with settings that change what is learnt."""
    if different := _differences(config, begun):
        raise RunError(
            f"holds {'a' if run.adapter.is_dir() else 'an unfinished'} run with other settings: {', '.join(different)}",
            where=run.path,
            hint=f"resume it with `{run.resume_command}`, or give --overwrite",
        )


def beside(run: RunFolder) -> set[str]:
    """Names in a run folder that are none of the run's own: its lock, and trainings on fewer samples."""
    return {*RunLock.names(run), run.forecast.name}


def _differences(config: RunConfig, other: RunConfig) -> list[str]:
    ours, theirs = config.model_dump(), other.model_dump()
    ours.pop("run"), theirs.pop("run")
    # They change how it is computed, not what is learnt: a run whose memory ended goes on with less of it.
    for name in ("samples_per_forward", "gradient_checkpointing"):
        ours["training"].pop(name), theirs["training"].pop(name)
    return [f"{key}" for key in ours if ours[key] != theirs[key]]
