"""Samples as the checks see them: each with its place, and with statistics of its image taken in worker processes."""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt
from PIL import Image

from dsocr.data.dataset import Dataset
from dsocr.document import Outline, Sample, Split
from dsocr.errors import DataError
from dsocr.images import MAX_PIXELS, decode_image, read_bytes
from dsocr.io.processes import worker_processes
from dsocr.outlines import is_off_baseline

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


@dataclass(frozen=True, slots=True)
class ImageStats:
    """Statistics of an image in about a kilobyte.

    `darkest`, `median` and `lightest` are grey levels (0-255), specks ignored; `black` and `white` are the shares of
    pixels at either end. `ink_width` is the width of the writing in pixels without its margins, `dhash` a 64-bit
    difference hash, `thumbnail` the grey levels at 64 x 16 pixels.
    """

    darkest: int
    median: int
    lightest: int
    black: float
    white: float
    ink_width: int
    dhash: int
    thumbnail: bytes

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to read: less contrast than this is the grain of empty paper."""
        return self.lightest - self.darkest < 32

    @property
    def is_inverted(self) -> bool:
        """Whether the writing is lighter than its background."""
        return self.lightest - self.median > 2 * (self.median - self.darkest)

    def correlation(self, other: "ImageStats") -> float:
        """Correlation of the two thumbnails: 1 for the same picture in any light, 0 for an even one."""
        return float(_standardized(self.thumbnail) @ _standardized(other.thumbnail))


@dataclass(frozen=True, slots=True)
class CheckedSample:
    """A sample and its place (`split/metadata.jsonl:line`), with its image's SHA-256, (width, height) and statistics.

    The last three are None if the image cannot be read; `error` then says why. `is_off_baseline` compares the outline
    on the page with its baseline. The geometry itself is dropped, because all samples are held in memory at once.
    """

    where: str
    sample: Sample
    digest: str | None = None
    size: tuple[int, int] | None = None
    stats: ImageStats | None = None
    error: str | None = None
    is_off_baseline: bool = False

    @property
    def text(self) -> str:
        """The sample's transcription."""
        return self.sample.text


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
    inverted = lightest - median > median - darkest
    threshold = max(_MIN_INK_CONTRAST, _INK_SHARE * max(lightest - median, median - darkest))
    inked = levels.max(axis=0) > median + threshold if inverted else levels.min(axis=0) < median - threshold
    columns = np.flatnonzero(inked)
    return int(columns[-1] - columns[0] + 1) if len(columns) else grey.width


def _standardized(thumbnail: bytes) -> npt.NDArray[np.float32]:
    """The thumbnail with mean 0 and norm 1, so that the dot product of two is their correlation."""
    values = np.frombuffer(thumbnail, dtype=np.uint8).astype(np.float32)
    values -= values.mean()
    norm = float(np.linalg.norm(values))
    return values / norm if norm else values


def read_samples(dataset: Dataset, workers: int | None = None) -> Iterator[CheckedSample]:
    """Yield every sample in order with its image measured.

    `workers` is the number of processes: 1 stays in this one, None starts one per core if the dataset is worth it.
    """
    samples = (item for split in Split for item in dataset.numbered(split))
    with worker_processes(workers) as pool:
        pending: deque[Future[list[CheckedSample]]] = deque()
        while batch := list(islice(samples, _BATCH)):
            pending.append(pool.submit(_inspect_batch, batch))
            while len(pending) > pool.backlog:
                yield from pool.result(pending.popleft())
        while pending:
            yield from pool.result(pending.popleft())


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
