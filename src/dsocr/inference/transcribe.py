"""The recipe of a transcription: image files and folders in, a file of texts out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from dsocr.data.images import IMAGE_SUFFIXES, open_image
from dsocr.errors import DataError
from dsocr.inference.formats import WRITER_BY_SUFFIX
from dsocr.inference.transcriber import Prediction, Transcriber
from dsocr.runs import RunFolder

Progress = Callable[[int, int], None]
"""Told after each image: how many are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class TranscribeReport:
    """What was written, and which images could not be read, each with the reason.

    `read_again` counts the lines that were read alone after their sheet was answered with another number of lines.
    """

    out: Path
    images: int
    truncated: int
    empty: int
    read_again: int
    refused: list[str]


def transcribe(
    run: RunFolder,
    inputs: Sequence[Path],
    out: Path,
    *,
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> TranscribeReport:
    """Read every image among `inputs` with a run's adapter and write the texts to `out` (.jsonl or .txt).

    An image that cannot be opened is counted and listed; `strict` makes it an error.
    """
    write = WRITER_BY_SUFFIX.get(out.suffix.lower())
    if write is None:
        raise DataError(f"is no kind of output: give a name ending in {' or '.join(WRITER_BY_SUFFIX)}", where=out)
    if out.exists() and not overwrite:
        raise DataError("is there already", where=out, hint="name another file, or give --overwrite")
    images = find_images(inputs)
    transcriber = Transcriber.of_run(run, merged=True)
    refused: list[str] = []
    seen: list[Prediction] = []

    def opened() -> Iterator[tuple[str, Image.Image]]:
        for identifier, path in images:
            try:
                yield identifier, open_image(path)
            except DataError as error:
                if strict:
                    raise
                refused.append(str(error))

    def predictions() -> Iterator[Prediction]:
        for prediction in transcriber.read(opened()):
            seen.append(prediction)
            if progress is not None:
                progress(len(seen) + len(refused), len(images))
            yield prediction

    out.parent.mkdir(parents=True, exist_ok=True)
    written = write(predictions(), out)
    truncated = sum(prediction.truncated for prediction in seen)
    empty, again = sum(not prediction.text for prediction in seen), sum(prediction.read_again for prediction in seen)
    return TranscribeReport(out, written, truncated, empty, again, refused)


def find_images(inputs: Sequence[Path]) -> list[tuple[str, Path]]:
    """Every image file named or lying in a named folder, with its id: the path as seen from there. Sorted by path."""
    found: list[tuple[str, Path]] = []
    for given in inputs:
        if given.is_dir():
            files = sorted(
                path for path in given.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()
            )
            found += [(path.relative_to(given).as_posix(), path) for path in files]
        elif given.is_file():
            found.append((given.name, given))
        else:
            raise DataError("no such file or folder", where=given)
    if not found:
        raise DataError(
            f"no image among {', '.join(map(str, inputs))}", hint=f"images end in {', '.join(sorted(IMAGE_SUFFIXES))}"
        )
    return found
