"""Whether a training may work in its run folder, as the folder's files tell; writes nothing and loads no network."""

from dsocr.config import RunConfig
from dsocr.errors import RunError
from dsocr.runs import RunFolder
from dsocr.training.locking import RunLock


def refuse_run(run: RunFolder, *, overwrite: bool) -> None:
    """An error where the run folder is of something else, or of a finished run."""
    others = {path.name for path in run.path.iterdir()} - beside(run) if run.path.is_dir() else set()
    if others and not run.config.is_file():
        raise RunError("is not empty and not a run folder", where=run.path, hint="give `run:` another folder")
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
    for name in ("samples_per_forward", "gradient_checkpointing", "processes"):
        ours["training"].pop(name), theirs["training"].pop(name)
    return [f"{key}" for key in ours if ours[key] != theirs[key]]
