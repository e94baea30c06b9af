"""Measure the images of a dataset, and check exposure, size, orientation and shape."""

import hashlib
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
from PIL import Image

from dsocr.data.check.findings import CheckedSample, Findings, ImageStats
from dsocr.data.dataset import Dataset
from dsocr.document import Outline, Sample, Split
from dsocr.errors import DataError
from dsocr.images import MAX_PIXELS, decode_image, read_bytes
from dsocr.io.processes import worker_processes
from dsocr.outlines import is_off_baseline

MAX_DISTORTION = 1.5
"""Letters shown this many times too tall or too wide no longer look like those a model has learned."""
_BATCH = 64
"""Images per task of a worker process."""
_SPECKS = 0.001
"""Share of pixels at either end of the histogram that is ignored as specks."""
_MAX_SIDE = 2048
"""Longer images are reduced before they are measured; letters survive that."""
_HASH_SIZE = (9, 8)
_THUMBNAIL_SIZE = (64, 16)
_INK_SHARE = 0.4
"""Ink differs from the paper by at least this share of the strongest stroke's contrast."""
_MIN_INK_CONTRAST = 24
_CLIPPED = 0.5
_FAINT = 115
"""Ink on clipped paper with less contrast than this has lost its thin strokes."""
_MIN_PIXELS = 20
"""Letters of a line this low have about ten pixels."""
_LINE_ASPECT = 2.0
"""A dataset whose median image is at least this many times as wide as high holds lines."""
_SIDEWAYS = 1.2
"""A line this many times higher than wide is probably sideways, if its text is longer than a word."""
_SIDEWAYS_CHARACTERS = 4
_TWO_LINES = 1.85
"""Times the median height of a page's lines; slanting lines of real pages reach 1.7."""
_HALF_A_LINE = 0.45
_HALF_A_LINE_CHARACTERS = 10
"""A shorter text may have neither ascenders nor descenders, and be low because of that."""
_LINES_PER_PAGE = 5
"""Lines of a page needed to know its usual height."""


def read_samples(dataset: Dataset, workers: int | None = None) -> Iterator[CheckedSample]:
    """Yield every sample in order with its image measured; see `check_dataset` for `workers`."""
    samples = (item for split in Split for item in dataset.numbered(split))
    batches = iter(lambda: list(islice(samples, _BATCH)), [])
    with worker_processes(workers) as pool:
        started = (partial(pool.result, pool.submit(_inspect_batch, batch)) for batch in batches)
        for inspected in pool.in_order(started):
            yield from inspected


def _inspect_batch(batch: Sequence[tuple[str, Sample]]) -> list[CheckedSample]:
    return [_inspect(where, sample) for where, sample in batch]


def _inspect(where: str, sample: Sample) -> CheckedSample:
    """Read and decode the image of a sample once."""
    polygon, baseline = (tuple(map(tuple, sample.geometry.get(name) or ())) for name in ("polygon", "baseline"))
    is_off = len(polygon) >= 3 and is_off_baseline(Outline.of_polygon(polygon, baseline))
    sample = replace(sample, geometry={})
    digest = None
    try:
        data = read_bytes(sample.image)
        digest = hashlib.sha256(data).hexdigest()
        image = decode_image(data, name=sample.image, max_pixels=MAX_PIXELS).image
    except DataError as error:
        return CheckedSample(where, sample, digest, error=error.message, is_off_baseline=is_off)
    return CheckedSample(where, sample, digest, image.size, measure_image(image), is_off_baseline=is_off)


def measure_image(image: Image.Image) -> ImageStats:
    """Measure an upright image, RGB or L."""
    factor = max(1, max(image.size) // _MAX_SIDE)
    grey = (image.reduce(factor) if factor > 1 else image).convert("L")
    counts = np.asarray(grey.histogram(), dtype=np.float64)
    cumulative = np.cumsum(counts) / counts.sum()
    darkest, median, lightest = (int(level) for level in np.searchsorted(cumulative, (_SPECKS, 0.5, 1 - _SPECKS)))
    cells = np.asarray(grey.resize(_HASH_SIZE, Image.Resampling.BOX), dtype=np.int16)
    return ImageStats(
        darkest,
        median,
        lightest,
        black=float(cumulative[2]),
        white=float(1 - cumulative[252]),
        ink_width=min(image.width, factor * _ink_width(grey, darkest, median, lightest)),
        dhash=int.from_bytes(np.packbits(cells[:, 1:] > cells[:, :-1]).tobytes(), "big"),
        thumbnail=grey.resize(_THUMBNAIL_SIZE, Image.Resampling.BOX).tobytes(),
    )


def _ink_width(grey: Image.Image, darkest: int, median: int, lightest: int) -> int:
    """Distance from the first to the last column with ink; the full width if there is none."""
    levels = np.asarray(grey)
    is_inverted = lightest - median > median - darkest
    threshold = max(_MIN_INK_CONTRAST, _INK_SHARE * max(lightest - median, median - darkest))
    inked = levels.max(axis=0) > median + threshold if is_inverted else levels.min(axis=0) < median - threshold
    columns = np.flatnonzero(inked)
    return int(columns[-1] - columns[0] + 1) if len(columns) else grey.width


def check_brightness(samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find blank images, and those whose ink is lost to over- or underexposure."""
    for item in samples:
        stats = item.stats
        if stats is None:
            continue
        contrast = stats.lightest - stats.darkest
        if stats.is_blank:
            findings.add("blank-image", "warning", "Image is blank or nearly so", item, f"contrast {contrast} of 255")
        elif contrast < _FAINT and max(stats.white, stats.black) > _CLIPPED:
            share, name = (stats.white, "white") if stats.white > stats.black else (stats.black, "black")
            detail = f"{share:.0%} is pure {name}, and the rest has a contrast of {contrast} of 255"
            findings.add("saturated-image", "warning", "Image is over- or underexposed", item, detail)


def check_inverted(samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find light writing on dark among dark writing on light, or the other way round."""
    measured = [(item, item.stats.is_inverted) for item in samples if item.stats and not item.stats.is_blank]
    mostly_inverted = 2 * sum(inverted for _, inverted in measured) > len(measured)
    kind = "dark on light, others light on dark" if mostly_inverted else "light on dark, others dark on light"
    for item, inverted in measured:
        if inverted != mostly_inverted:
            findings.add("inverted-image", "warning", f"Writing is {kind}", item)


def check_outlines(samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find lines whose outline on the page is not around their baseline, so that the image shows something else."""
    message = "Outline of the line is off its baseline, so the image may show another part of the page"
    for item in samples:
        if item.is_off_baseline:
            findings.add("outline-off-baseline", "warning", message, item)


def check_line_heights(samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find images of unusual height for their page: two lines in one, or part of a line."""
    pages: dict[tuple[str | None, ...], list[tuple[CheckedSample, int, int]]] = defaultdict(list)
    for item in samples:
        if item.size and item.sample.page and item.text.strip() and "\n" not in item.text:
            pages[item.sample.writer, item.sample.document, item.sample.page].append((item, *item.size))
    message = "Image has an unusual height for its page: it may hold several lines, or part of one"
    for page in pages.values():
        if len(page) < _LINES_PER_PAGE:
            continue
        usual = statistics.median(height for _, _, height in page)
        for item, width, height in page:
            ratio = height / usual
            if ratio > _TWO_LINES or (ratio < _HALF_A_LINE and len(item.text) >= _HALF_A_LINE_CHARACTERS):
                detail = f"{width} x {height} pixels, {ratio:.2g} times the page's median height"
                findings.add("unusual-aspect", "warning", message, item, detail)


def check_sizes(samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find images too small to read, and lines that are sideways."""
    sized = [(item, *item.size) for item in samples if item.size]
    are_lines = bool(sized) and statistics.median(width / height for _, width, height in sized) >= _LINE_ASPECT
    for item, width, height in sized:
        detail, characters = f"{width} x {height} pixels", len(item.text.strip())
        if min(width, height) < _MIN_PIXELS and characters > 1:
            message = f"Image has fewer than {_MIN_PIXELS} pixels in height or width"
            findings.add("low-resolution", "warning", message, item, detail)
        if are_lines and height > _SIDEWAYS * width and characters >= _SIDEWAYS_CHARACTERS:
            message = "Line image is higher than wide and may be sideways"
            findings.add("turned-image", "warning", message, item, detail)


def check_distortion(
    samples: Sequence[CheckedSample], findings: Findings, distortion: Callable[[int, int], float]
) -> None:
    """Find images whose letters the chosen resolution would squeeze or stretch."""
    factors = [(item, *item.size, distortion(*item.size)) for item in samples if item.size]
    distorted = [factor for factor in factors if not 1 / MAX_DISTORTION <= factor[3] <= MAX_DISTORTION]
    if not distorted:
        return
    typical = statistics.median(factor for *_, factor in distorted)
    amount = f"{typical:.1f} times too tall" if typical > 1 else f"{1 / typical:.1f} times too wide"
    message = f"This resolution distorts letters, typically {amount}"
    for item, width, height, factor in distorted:
        detail = f"{width} x {height} pixels, height is stretched {factor:.2f} times as much as width"
        findings.add("distorted-image", "warning", message, item, detail)
