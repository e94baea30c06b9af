"""`dsocr preview`."""

from pathlib import Path
from typing import TYPE_CHECKING

from dsocr.console import Printer
from dsocr.errors import ConfigError

if TYPE_CHECKING:
    from dsocr.config import RunConfig


def preview_command(
    printer: Printer,
    path: Path,
    out: Path,
    *,
    samples: int,
    epochs: int,
    augmentation: str | None,
    seed: int | None,
    as_model: bool,
) -> None:
    """`dsocr preview`."""
    from dsocr.data.contact_sheet import sheet_writer

    write = sheet_writer(out)
    config = _config(path, augmentation, seed)
    # Slow, and not needed to say that something is not there.
    from dsocr.models.family import load_processor
    from dsocr.training.preview import preview

    encoder = load_processor(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    rows = list(preview(config, encoder, samples=samples, epochs=epochs, as_model=as_model))
    how = f"augmentation {config.training.augmentation}, seed {config.seed}"
    seen = f", as {config.base} sees it at {encoder.resolution.name}" if as_model else ""
    write(f"{config.dataset.resolve().name}: {how}{seen}", rows)
    printer.say(f"{len(rows)} samples in {epochs} epochs, {how}{seen}")
    printer.result(f"sheet: {out}")
    if config.training.augmentation in (0, "none") and not as_model:
        printer.say("next:  nothing is varied; --augmentation medium shows what that would do")
    else:
        printer.say("next:  look at it; what no pen and no scanner could have made is too much")


def chosen_augmentation(text: str) -> float | str:
    """What `--augmentation` says: a preset or a number. Raises ConfigError for anything else."""
    from dsocr.config import read_augmentation

    try:
        return read_augmentation(text)
    except ValueError as error:
        raise ConfigError(f"--augmentation: {error}") from error


def _config(path: Path, augmentation: str | None, seed: int | None) -> "RunConfig":
    """The configuration that is named, or the default one for a dataset folder, varied as `medium` does."""
    from dsocr.config import RunConfig, load_config
    from dsocr.data.dataset import Dataset

    if path.suffix in (".yaml", ".yml"):
        config = load_config(path)
    else:
        config = RunConfig(dataset=path, output=path)
        augmentation = augmentation or "medium"
    Dataset.open(config.dataset)
    if augmentation is not None:
        training = config.training.model_copy(update={"augmentation": chosen_augmentation(augmentation)})
        config = config.model_copy(update={"training": training})
    return config if seed is None else config.model_copy(update={"seed": seed})
