"""A dataset as training would see it: which samples fit, what would spoil it, and how images are augmented.

Needs no torch, so it answers at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from markupsafe import Markup
from PIL import Image

from dsocr.config import RunConfig, load_config
from dsocr.console import current_reporter, progress_bar
from dsocr.data.augment import augment, generator
from dsocr.data.augment import changes as changes_images
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.errors import ConfigError, DataError, option
from dsocr.html import image_tag, render
from dsocr.images import open_image
from dsocr.io.processes import ProgressCallback
from dsocr.io.work import explain_disk_errors, require_output_folder, write_file
from dsocr.job import Job, expand_changes, resolve
from dsocr.options import Changes, Count, Output, Rare, StrPath, between

if TYPE_CHECKING:
    from dsocr.data.check import Findings
    from dsocr.data.fix import FixReport
    from dsocr.models.family import Processor


_MAX_SIDE = 720
"""Pixels of an image on a page; larger ones are scaled down."""


def text_limit(processor: "Processor", config: RunConfig) -> int:
    """Return the most tokens of a text that is trained on: as configured, and as the network can write."""
    limit = config.training.max_text_tokens
    return limit if processor.max_text_tokens is None else min(limit, processor.max_text_tokens)


def within_budget(
    samples: Sequence[Sample], processor: "Processor", config: RunConfig, split: Split = Split.TRAIN
) -> tuple[list[Sample], int]:
    """Return the samples whose transcription fits, and the number of others. Raises DataError if none fits."""
    limit = text_limit(processor, config)
    fitting = [sample for sample in samples if len(processor.text_ids(sample.text)) <= limit]
    if not fitting:
        message = f"no sample of the {split} split fits max_text_tokens ({limit})"
        raise DataError(message, code="text-too-long", where=config.dataset, hint="see `dsocr check`")
    return fitting, len(samples) - len(fitting)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What `check` found in a dataset, and what was fixed before, if anything was."""

    dataset: Dataset
    findings: "Findings"
    fixes: "FixReport | None" = None
    written: Mapping[str, StrPath] = field(default_factory=dict)
    """Files that were written: `page` and `table`."""

    def to_dict(self) -> dict[str, object]:
        """Return the findings and the splits in JSON's types."""
        findings = [finding.to_dict() for finding in self.findings]
        return {
            "findings": findings,
            "fold": self.dataset.fold,
            **(self.findings.splits.as_dict() if self.findings.splits else {}),
        }


def check(
    dataset: StrPath,
    *,
    changes: Changes | None = None,
    html: StrPath | None = None,
    csv: StrPath | None = None,
    workers: Rare[Count | None] = None,
    fix: bool = False,
    corrections: StrPath | None = None,
    encoding: str | None = None,
    output: Output | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> CheckReport:
    """Find problems of a dataset before training, and report the splits.

    Args:
        dataset: Dataset folder, or a configuration that names one.
        changes: Change a setting, as base=nano, fold=2 or training.max_text_tokens=200; repeatable.
        html: Also write the findings, with images, to this page.
        csv: Also write every place of every finding to this table.
        workers: Number of processes; one per core if not given.
        fix: Repair what is certain in a new dataset, then check that.
        corrections: Table of corrected texts for `fix`, such as the audit.csv of `audit`.
        encoding: Encoding of the corrections if it is not UTF-8, e.g. cp1251.
        output: Dataset folder for `fix` to write.
        overwrite: Replace what an earlier command wrote there.
        progress: Called with the samples done and in total, instead of a progress bar.

    Raises:
        ConfigError: Options do not go together, or the configuration has problems.
        DataError: There is no dataset, or it cannot be read or written.
    """
    for name, file in {"html": html, "csv": csv}.items():
        if file is not None and (Path(file).is_dir() or not Path(file).absolute().parent.is_dir()):
            hint = "name a file in an existing folder"
            raise ConfigError(f"{option(name, file)} cannot be written", code="option-invalid", hint=hint)
    if fix != (output is not None):
        code, both = "option-missing" if fix else "option-invalid", f"{option('fix')} and {option('output', 'NEW')}"
        raise ConfigError(f"{both} go together", code=code, hint="give both or neither")
    if corrections is not None and not fix:
        message = f"{option('corrections', ...)} is for {option('fix')}"
        raise ConfigError(message, code="option-invalid", hint=f"give {option('fix')} too")
    config = load_recipe(dataset, changes)
    opened, fixes = Dataset.open(config.dataset, fold=config.fold), None
    if output is not None:
        from dsocr.data.fix import fix_dataset

        table = None if corrections is None else Path(corrections)
        with progress_bar(progress, "copying", "samples") as copied:
            fixes = fix_dataset(
                opened, Path(output), corrections=table, encoding=encoding, overwrite=overwrite, progress=copied
            )
        opened = opened if fixes.dataset is None else Dataset.open(Path(output), fold=opened.fold)
    # Slow, and not needed to say that there is no dataset.
    from dsocr.data.check import check_dataset
    from dsocr.models.loading import load_processor

    processor = load_processor(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    limit = text_limit(processor, config)
    with progress_bar(progress, "checking", "samples") as done:
        findings = check_dataset(opened, processor, max_text_tokens=limit, workers=workers, progress=done)
    if html is not None:
        findings.to_html(Path(html))
    if csv is not None:
        findings.to_csv(Path(csv))
    written = {name: path for name, path in (("page", html), ("table", csv)) if path is not None}
    return CheckReport(opened, findings, fixes, written)


def load_recipe(source: StrPath, changes: Changes | None) -> RunConfig:
    """Load a configuration, or the default one for a dataset folder, with changes."""
    path = Path(source)
    named = path if path.suffix in {".yaml", ".yml"} else {"dataset": path, "output": path}
    settings, overrides = expand_changes(changes, {})
    return load_config(named, overrides, changes=settings)


def preview(
    data: StrPath,
    *,
    output: Output = "preview.html",
    samples: Annotated[int, between(1, 200)] = 8,
    epochs: Annotated[int, between(1, 50)] = 4,
    changes: Changes | None = None,
    as_model: bool = False,
) -> RunConfig:
    """Show training samples with their augmentation; return the configuration that they are shown for.

    Args:
        data: Dataset folder, or a configuration that names one.
        output: Page to write, an .html file.
        samples: Number of training samples, evenly spread.
        epochs: Number of epochs to show each of them in.
        changes: Change a setting, as seed=3 or training.augmentation=light; repeatable.
        as_model: Show images as the model sees them, with their number of tokens.

    Raises:
        ConfigError: The configuration has problems.
        DataError: There is no dataset, or the page cannot be written.
    """
    path = Path(output)
    if path.suffix.lower() not in {".html", ".htm"}:
        hint = f"for example {path.with_suffix('.html').name}"
        raise DataError("contact sheets are .html files", where=path, hint=hint, code="sheet-format")
    require_output_folder(path)
    config = load_recipe(data, changes)
    job = resolve(config, overwrite=True)
    config = job.config
    assert job.base is not None, "a detector has no preview"
    processor = job.base.processor(config.input.resolution, config.input.prompt)
    rows = list(preview_rows(job, processor, samples=samples, epochs=epochs, as_model=as_model))
    how = f"augmentation {config.training.augmentation}, seed {config.seed}"
    how += f", as {config.base} sees it at {processor.resolution_name}" if as_model else ""
    title = f"{config.dataset.resolve().name}: {how}"
    page = render(__package__, "contact_sheet.html.jinja", title=title, rows=rows, embed=_embed)
    with explain_disk_errors(path.parent, where=path):
        write_file(path, page.encode("utf-8", "replace"))
    current_reporter().message(f"{len(rows)} samples in {epochs} epochs, {how}\npage: {output}")
    return config


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One sample: its transcription, a line of details, and its images from left to right, each with a caption."""

    text: str
    details: str
    images: Sequence[tuple[str, Image.Image]]


def preview_rows(job: Job, processor: "Processor", *, samples: int, epochs: int, as_model: bool) -> Iterator[SheetRow]:
    """Yield a row for each of `samples` training samples: the original image, then that of each of the first epochs.

    The samples are spread evenly. With `as_model` the images are the processor's, the tiles of a view below the whole.
    """
    config, dataset = job.config, job.samples_from
    split = dataset.samples(Split.TRAIN)
    if not split:
        raise DataError("dataset has no train split to preview", where=dataset.folder, code="train-missing")
    training, _ = within_budget(split, processor, config)
    for index in sorted({round(place) for place in np.linspace(0, len(training) - 1, min(samples, len(training)))}):
        sample = training[index]
        # Epochs count from 0 in the random draws and from 1 on the sheet.
        images = [("original", open_image(sample.image))]
        images += [(f"epoch {epoch + 1}", _image(sample, index, epoch, config, processor)) for epoch in range(epochs)]
        details = f"{sample.id}, writer {sample.writer}" if sample.writer else sample.id
        yield SheetRow(sample.text, details, [_captioned(*image, processor, as_model) for image in images])


def _embed(image: Image.Image) -> Markup:
    thumbnail = image.convert("RGB")
    thumbnail.thumbnail((_MAX_SIDE, _MAX_SIDE))
    return image_tag(thumbnail, quality=88)


def _image(sample: Sample, index: int, epoch: int, config: RunConfig, processor: "Processor") -> Image.Image:
    """The image of a sample as `EncodedSamples` has it in an epoch."""
    image, augmentation = open_image(sample.image), config.training.augmentation
    if not changes_images(augmentation):
        return image
    return augment(processor.shrink(image), generator(config.seed, epoch, index), augmentation)


def _captioned(name: str, image: Image.Image, processor: "Processor", as_model: bool) -> tuple[str, Image.Image]:
    if not as_model:
        return f"{name}, {image.width} x {image.height}", image
    vision = processor.measure("", lambda: image.size).vision
    return f"{name}, {vision} vision tokens", Image.fromarray(processor.encode(image).pixels())
