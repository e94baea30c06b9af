"""Line detection scores: each drawn line is matched with the detected line that overlaps it most."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import fspath
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dsocr.config import RunConfig, load_run_config
from dsocr.console import current_reporter, progress_bar
from dsocr.data.dataset import Dataset, image_hash, training_images
from dsocr.data.layouts import read_layout, require_layouts
from dsocr.document import Box, Outline, Sample, Split, bounds
from dsocr.errors import ConfigError, DsocrError, option
from dsocr.evaluation.evaluate import require_samples
from dsocr.images import MAX_PAGE_PIXELS, open_image
from dsocr.io.processes import ProgressCallback
from dsocr.io.work import write_file
from dsocr.layout.lines import find_outlines
from dsocr.options import ON, Count, Rare, SplitName, StrPath
from dsocr.outlines import fill_polygon
from dsocr.runs import SHIPPED_DETECTOR, RunFolder, to_json

ENOUGH = 0.5
"""Least intersection over union of a drawn line and the line that it is detected as."""
_SHRUNK = 3
"""Overlaps are counted in pixels of the page at a third of its width and height."""


@dataclass(frozen=True, slots=True)
class LineCounts:
    """Lines that are drawn, detected, and detected where they are drawn."""

    drawn: int = 0
    detected: int = 0
    matched: int = 0

    def __add__(self, other: "LineCounts") -> "LineCounts":
        return LineCounts(self.drawn + other.drawn, self.detected + other.detected, self.matched + other.matched)

    @property
    def recall(self) -> float:
        """The share of drawn lines that are detected; 1 if none is drawn."""
        return self.matched / self.drawn if self.drawn else 1.0

    @property
    def precision(self) -> float:
        """The share of detected lines that are drawn; 1 if none is detected."""
        return self.matched / self.detected if self.detected else 1.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both; 1 for a page without lines on which none is detected."""
        lines = self.drawn + self.detected
        return 2 * self.matched / lines if lines else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return counts and rates."""
        return asdict(self) | {"precision": self.precision, "recall": self.recall, "f1": self.f1}


def count_lines(drawn: Sequence[Outline], detected: Sequence[Outline]) -> LineCounts:
    """Count the lines of a page that overlap enough, each once."""
    matched = sum(overlap >= ENOUGH for overlap in match_lines(drawn, detected))
    return LineCounts(len(drawn), len(detected), matched)


def match_lines(drawn: Sequence[Outline], detected: Sequence[Outline]) -> list[float]:
    """Return the overlaps (intersection over union) of the lines that belong together, best first, each line once."""
    expected, others = ([_Shape.of(outline) for outline in outlines] for outlines in (drawn, detected))
    boxes = np.array([other.box for other in others]).reshape(-1, 4)
    overlaps = []
    for place, shape in enumerate(expected):
        left, top, right, bottom = shape.box
        meets = (boxes[:, 0] < right) & (boxes[:, 2] > left) & (boxes[:, 1] < bottom) & (boxes[:, 3] > top)
        for number in np.flatnonzero(meets).tolist():
            if (overlap := shape.overlap(others[number])) > 0:
                overlaps.append((overlap, place, number))
    places: set[int] = set()
    numbers: set[int] = set()
    kept: list[float] = []
    for overlap, place, number in sorted(overlaps, reverse=True):
        if place not in places and number not in numbers:
            places.add(place)
            numbers.add(number)
            kept.append(overlap)
    return kept


@dataclass(frozen=True, slots=True)
class _Shape:
    """The pixels of an outline: those in `box` that are True in `mask`."""

    box: Box
    mask: NDArray[np.bool_]
    area: int

    @classmethod
    def of(cls, outline: Outline) -> "_Shape":
        corners = [(x / _SHRUNK, y / _SHRUNK) for x, y in outline.border]
        left, top, right, bottom = bounds([(int(x), int(y)) for x, y in corners])
        inside = [(x - left, y - top) for x, y in corners]
        mask = np.asarray(fill_polygon(inside, (right - left + 1, bottom - top + 1)))
        return cls((left, top, left + mask.shape[1], top + mask.shape[0]), mask, int(mask.sum()))

    def overlap(self, other: "_Shape") -> float:
        left, top = max(self.box[0], other.box[0]), max(self.box[1], other.box[1])
        right, bottom = min(self.box[2], other.box[2]), min(self.box[3], other.box[3])
        parts = [
            shape.mask[top - shape.box[1] : bottom - shape.box[1], left - shape.box[0] : right - shape.box[0]]
            for shape in (self, other)
        ]
        common = int((parts[0] & parts[1]).sum())
        return common / (self.area + other.area - common)


@dataclass(frozen=True, slots=True)
class PageLines:
    """The lines of a page that a detector finds, and the detector that it is compared with, if any."""

    id: str
    document: str
    counts: LineCounts
    base: LineCounts | None = None


@dataclass(frozen=True, slots=True)
class LayoutScores:
    """A detector's lines on the pages of a split, beside those of the shipped one; `path` is the file with them."""

    detector: str
    dataset: str
    split: str
    pages: Sequence[PageLines]
    path: Path | None = None

    @property
    def counts(self) -> LineCounts:
        """The lines of all pages together."""
        return _sum(self.pages)[0]

    @property
    def base(self) -> LineCounts | None:
        """The lines of the shipped detector on all pages; None if it was not asked."""
        return _sum(self.pages)[1]

    @property
    def documents(self) -> Mapping[str, tuple[LineCounts, LineCounts | None]]:
        """The lines of each document, and those of the shipped detector, in the order of the dataset."""
        names = dict.fromkeys(page.document for page in self.pages)
        return {name: _sum([page for page in self.pages if page.document == name]) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return all scores in JSON's types."""
        return {
            "detector": self.detector,
            "dataset": self.dataset,
            "split": self.split,
            "overlap": ENOUGH,
            **_describe(self.counts, self.base),
            "documents": {name: _describe(*counts) for name, counts in self.documents.items()},
            "pages": {page.id: _describe(page.counts, page.base) for page in self.pages},
        }


def _sum(pages: Sequence[PageLines]) -> tuple[LineCounts, LineCounts | None]:
    known = [page.base for page in pages if page.base is not None]
    return sum((page.counts for page in pages), LineCounts()), sum(known, LineCounts()) if known else None


def _describe(counts: LineCounts, base: LineCounts | None) -> dict[str, Any]:
    return counts.to_dict() | ({"base": base.to_dict()} if base else {})


def score_layouts(samples: Sequence[Sample], detector: Any, base: Any, progress: ProgressCallback) -> list[PageLines]:
    """Find the lines of samples with a network, and with another one. Raises DataError for a page without a layout."""
    from dsocr.layout.text_detector import detect_text

    pages = []
    for number, sample in enumerate(samples):
        drawn = [line.outline for line in read_layout(sample).lines if line.outline]
        image = open_image(sample.image, max_pixels=MAX_PAGE_PIXELS)
        detected, others = (
            network and find_outlines(detect_text(image, network), image.size) for network in (detector, base)
        )
        base_counts = None if others is None else count_lines(drawn, others)
        document = sample.document or sample.page or sample.id
        pages.append(PageLines(sample.id, document, count_lines(drawn, detected), base_counts))
        progress(number + 1, len(samples))
    return pages


def evaluate_layout(
    run: StrPath,
    *,
    dataset: StrPath | None = None,
    split: SplitName = "test",
    limit: Rare[Count | None] = None,
    base: Annotated[bool, ON] = True,
    progress: ProgressCallback | None = None,
) -> LayoutScores:
    """Score how many lines a detector finds on pages it never saw, beside the shipped detector.

    Args:
        run: Run folder of a detector, or `detector`, which ships with dsocr.
        dataset: Another dataset of layouts than the run's own.
        split: Split to score.
        limit: Score the first samples only, this many.
        base: Also score the shipped detector.
        progress: Called with the pages done and in total, instead of a progress bar.

    A found line counts where it and a drawn line have half of what they cover together in common, each line once. The
    scores of a run are written to layout.json in its folder.

    Raises:
        ConfigError: Options do not go together.
        DataError: There is no dataset of layouts, or no such split of it.
        RunError: The run is missing, unfinished or damaged, or is a reader.
    """
    folder, results = RunFolder.to_find_lines_with(Path(run)), RunFolder(Path(run))
    config = load_run_config(results.config) if results.config.is_file() else None
    if config is None and dataset is None:
        hint = f"give {option('dataset', 'FOLDER')}"
        raise ConfigError("the shipped detector has no dataset of its own", code="dataset-missing", hint=hint)
    from dsocr.layout.text_detector import keep_detector, open_detector

    opened = (
        Dataset.open(config.dataset, fold=config.fold) if dataset is None and config else Dataset.open(str(dataset))
    )
    require_layouts(opened)
    samples = require_samples(opened, Split(split), limit)
    with progress_bar(progress, "finding lines", "pages") as done:
        compared = keep_detector(SHIPPED_DETECTOR) if base and config is not None else None
        pages = score_layouts(samples, open_detector(folder), compared, done)
    scores = LayoutScores(fspath(run), opened.folder.as_posix(), split, pages)
    if config is None:
        return scores
    _warn_of_pages_learnt(config, samples)
    write_file(results.layout, to_json(scores.to_dict()))
    return replace(scores, path=results.layout)


def _warn_of_pages_learnt(config: RunConfig, samples: Sequence[Sample]) -> None:
    """Warn of pages on which the detector, or a run that it started from, was trained, as far as they are known."""
    complain = current_reporter().complain
    trained: set[str] = set()
    while True:
        try:
            trained |= training_images(config)
        except DsocrError as error:
            complain(f"warning: it is not known whether the detector was trained on these pages: {error}")
        start = RunFolder(Path(config.base))
        if not start.config.is_file():
            break
        config = load_run_config(start.config)  # a run that started from a run
    if known := sum(image_hash(sample) in trained for sample in samples):
        complain(f"warning: the detector was trained on {known} of these pages")
