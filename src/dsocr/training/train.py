"""The recipe of a training: from a configuration to a run folder with the best adapter in it."""

import json
import platform
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from transformers import PrinterCallback

from dsocr import __version__
from dsocr.config import RunConfig, load_config
from dsocr.data.checks import Finding
from dsocr.data.dataset import Dataset
from dsocr.errors import DataError, RunError
from dsocr.inference.decoding import Generation
from dsocr.model.adapters import save_adapter
from dsocr.model.encoding import Encoder
from dsocr.model.loading import choose_device, find_base, load_encoder
from dsocr.runs import ReadingSettings, RunFolder, to_json, write_atomically
from dsocr.samples import Split
from dsocr.training.arguments import steps_per_epoch, total_steps, training_arguments, without_workers
from dsocr.training.callbacks import Recorder, Report, close_training_log, training_log
from dsocr.training.checkpoints import TRAINER_STATE, latest_checkpoint
from dsocr.training.collator import Collator
from dsocr.training.preflight import check_for_base
from dsocr.training.setup import Setup, sample_order, set_up, within_budget
from dsocr.training.trainer import AdapterTrainer
from dsocr.training.validation import Validation, chosen_samples
from dsocr.training.vision import keep_features


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a training made. `best_cer` is None where there was no validation split to read."""

    run: RunFolder
    steps: int
    best_step: int | None
    best_cer: float | None
    seconds: float
    excluded: int
    resumed_from: int


def train(
    config: RunConfig,
    *,
    overwrite: bool = False,
    report: Report | None = None,
    warn: Callable[[Finding], None] | None = None,
) -> TrainResult:
    """Train the adapter that the configuration describes, or go on where an earlier call was interrupted.

    `report` is told after each step where the training stands, `warn` of each doubtful thing in the dataset. Raises
    DataError where the dataset has errors, RunError where the run folder holds another or a finished run.
    """
    started = time.monotonic()
    run = RunFolder(config.run)
    _refuse_run(run, overwrite=overwrite)
    dataset = Dataset.open(config.dataset, fold=config.fold)
    begun = None if overwrite else _begun(run)
    config = _pinned(config, begun)
    if begun is not None:
        _refuse_other_settings(run, config, begun)
    encoder = load_encoder(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    _check(dataset, encoder, config, warn)
    samples, excluded = within_budget(dataset.samples(Split.TRAIN), encoder, config)
    setup = set_up(config, samples)
    _begin_run(run, config, dataset, overwrite=overwrite)
    try:
        training_log(run).info("%d training samples, %d excluded as too long", len(samples), excluded)

        trainer, validation = _trainer(config, run, dataset, setup, report)
        checkpoint = latest_checkpoint(run.checkpoints)
        if checkpoint is not None:
            _restore_validation(validation, checkpoint)
            training_log(run).info("resuming from %s", checkpoint.name)
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        _finish(run, config, dataset, encoder, trainer.model, validation)
        return TrainResult(
            run=run,
            steps=trainer.state.global_step,
            best_step=validation.best_step if validation else None,
            best_cer=validation.best_cer if validation else None,
            seconds=time.monotonic() - started,
            excluded=excluded,
            resumed_from=0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2]),
        )
    finally:
        close_training_log(run)


def _refuse_run(run: RunFolder, *, overwrite: bool) -> None:
    """An error where the run folder is of something else, or of a finished run; writes nothing."""
    if run.path.is_dir() and any(run.path.iterdir()) and not run.config.is_file():
        raise RunError("is not empty and not a run folder", where=run.path, hint="give `run:` another folder")
    if run.adapter.is_dir() and not overwrite:
        raise RunError(
            "holds a finished run", where=run.path, hint="name another folder with --set run=..., or give --overwrite"
        )


def _begun(run: RunFolder) -> RunConfig | None:
    """The configuration of a run that was interrupted; None where there is nothing to go on from.

    A run without a checkpoint holds nothing to lose: settings that stopped it at once may be put right.
    """
    return load_config(run.config) if run.config.is_file() and latest_checkpoint(run.checkpoints) is not None else None


def _pinned(config: RunConfig, begun: RunConfig | None) -> RunConfig:
    """The configuration with the commit of a Hub base written in, which a resumed run and whoever reads with it get."""
    revision = config.base_revision
    if revision is None and begun is not None and begun.base == config.base:
        revision = begun.base_revision
    _, commit = find_base(config.base, revision)
    return config.model_copy(update={"base_revision": commit})


def _refuse_other_settings(run: RunFolder, config: RunConfig, begun: RunConfig) -> None:
    if different := _differences(config, begun):
        raise RunError(
            f"holds an unfinished run with other settings: {', '.join(different)}",
            where=run.path,
            hint=f"resume it with `dsocr train {run.config.as_posix()}`, or give --overwrite",
        )


def _begin_run(run: RunFolder, config: RunConfig, dataset: Dataset, *, overwrite: bool) -> None:
    """Make the run folder, or take it up again; what it is made with is written once."""
    if overwrite and run.config.is_file():
        shutil.rmtree(run.path)
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    write_atomically(run.config, config.to_yaml())
    if latest_checkpoint(run.checkpoints) is None:
        run.metrics.unlink(missing_ok=True)
        write_atomically(run.provenance, to_json(_provenance(config, dataset)))


def _differences(config: RunConfig, other: RunConfig) -> list[str]:
    ours, theirs = config.model_dump(), other.model_dump()
    ours.pop("run"), theirs.pop("run")
    return [f"{key}" for key in ours if ours[key] != theirs[key]]


def _check(dataset: Dataset, encoder: Encoder, config: RunConfig, warn: Callable[[Finding], None] | None) -> None:
    """Refuse a dataset with errors; what is merely doubtful is passed on."""
    limit = config.training.max_text_tokens if config.training.long_text == "error" else None
    findings = check_for_base(dataset, encoder, max_text_tokens=limit)
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        shown = "".join(f"\n  {finding.where}: {finding.message} ({finding.count})" for finding in errors)
        raise DataError(
            f"the dataset has errors{shown}", where=dataset.folder, hint=f"see `dsocr check {dataset.folder}`"
        )
    if warn is not None:
        for finding in findings:
            warn(finding)


def _trainer(
    config: RunConfig, run: RunFolder, dataset: Dataset, setup: Setup, report: Report | None
) -> tuple[AdapterTrainer, Validation | None]:
    recorder = Recorder(run, samples_per_step=config.training.samples_per_step, report=report)
    callbacks: list[Any] = [recorder]
    validation = _validation(config, run, dataset, setup.encoder, recorder)
    if validation is not None:
        callbacks.append(validation)
    if keep_features(
        config,
        setup.model,
        setup.samples,
        validation.encoded if validation else None,
        dtype=setup.dtype,
        epochs=total_steps(config, len(setup.samples)) / steps_per_epoch(config, len(setup.samples)),
        tell=training_log(run).info,
    ):
        config = without_workers(config)  # reading features is quicker than handing them over
    trainer = AdapterTrainer(
        model=setup.model,
        args=training_arguments(config, samples=len(setup.samples), device=setup.device, dtype=setup.dtype),
        data_collator=Collator(setup.encoder.pad_id),
        train_dataset=setup.samples,
        optimizers=(setup.optimizer, None),
        callbacks=callbacks,
        folder=run.checkpoints,
        keep=config.checkpoints.keep,
        order=sample_order(config, setup.samples),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, validation


def _validation(
    config: RunConfig, run: RunFolder, dataset: Dataset, encoder: Encoder, recorder: Recorder
) -> Validation | None:
    samples = chosen_samples(dataset.samples(Split.VALIDATION), config.validation.samples, config.seed)
    if not samples:
        training_log(run).warning("there is no validation split: the last weights are kept, not the best")
        return None
    return Validation(
        samples,
        encoder,
        Generation(**config.generation.model_dump()),
        every_steps=config.validation.every_steps,
        patience=config.validation.patience,
        best=run.checkpoints / "best",
        report=recorder.record_validation,
    )


def _restore_validation(validation: Validation | None, checkpoint: Path) -> None:
    state = json.loads((checkpoint / TRAINER_STATE).read_text(encoding="utf-8"))
    if validation is not None and Validation.__name__ in state["stateful_callbacks"]:
        validation.restore(state["stateful_callbacks"][Validation.__name__])


def _finish(
    run: RunFolder, config: RunConfig, dataset: Dataset, encoder: Encoder, model: Any, validation: Validation | None
) -> None:
    """Lay the best adapter, with the settings to read with, into the run folder: its presence says the run is whole."""
    beside = run.path / ".adapter.tmp"
    shutil.rmtree(beside, ignore_errors=True)
    best = run.checkpoints / "best"
    if validation is not None and best.is_dir():
        shutil.copytree(best, beside)
    else:
        beside.mkdir()
        save_adapter(model, beside)
    ReadingSettings(
        base=config.base,
        base_revision=config.base_revision,
        prompt=encoder.prompt,
        resolution=encoder.resolution.name,
        text_policy=dataset.card.policy(),
        generation=config.generation.model_dump(),
    ).save(beside)
    beside.rename(run.adapter)


def _provenance(config: RunConfig, dataset: Dataset) -> dict[str, Any]:
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
    }
