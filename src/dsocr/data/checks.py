"""What is wrong or doubtful in a dataset folder, as findings: bad images, bad texts, leaks between splits.

Knows no model: what a tokenizer cannot write and how long a text becomes is asked of functions that are handed in.
The single checks are in `data/checking`, a module a subject.
"""

import hashlib
from collections.abc import Callable, Iterator

from dsocr.data.checking.findings import Checked, Finding, Findings
from dsocr.data.checking.images import check_looks, check_shapes, check_sizes
from dsocr.data.checking.leaks import check_crossing, check_duplicates, check_hashes, check_near_duplicates
from dsocr.data.checking.letters import check_letters
from dsocr.data.checking.looks import look_at
from dsocr.data.checking.pairs import check_pairs
from dsocr.data.checking.texts import check_characters, check_empty, check_lengths
from dsocr.data.dataset import Dataset
from dsocr.data.images import decode_image, read_bytes
from dsocr.data.prepare import Progress
from dsocr.errors import DataError
from dsocr.samples import Split

__all__ = ["Finding", "check_dataset"]


def check_dataset(
    dataset: Dataset,
    *,
    unknown_characters: Callable[[str], str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
    max_text_tokens: int | None = None,
    distortion: Callable[[int, int], float] | None = None,
    progress: Progress | None = None,
) -> list[Finding]:
    """All findings about a dataset, errors first; none means that nothing doubtful was found.

    `unknown_characters` gives the characters of a text that the base's tokenizer cannot write; `count_tokens` a text's
    length in tokens, which `max_text_tokens` limits; `distortion` how much taller than true the letters of an image of
    some width and height are shown to the model.
    """
    findings = Findings()
    checked = list(_read_all(dataset, findings, progress))
    check_empty(checked, findings)
    if count_tokens and max_text_tokens is not None:
        check_lengths(checked, findings, count_tokens, max_text_tokens)
    if distortion:
        check_shapes(checked, findings, distortion)
    if unknown_characters:
        check_characters(checked, findings, unknown_characters)
    check_letters(checked, findings)
    check_pairs(checked, findings)
    check_looks(checked, findings)
    check_sizes(checked, findings)
    check_crossing(dataset, checked, findings)
    check_duplicates(checked, findings)
    check_near_duplicates(checked, findings)
    check_hashes(dataset, checked, findings)
    return findings.listed()


def _read_all(dataset: Dataset, findings: Findings, progress: Progress | None) -> Iterator[Checked]:
    """Every sample with its image decoded once, and a finding where that fails."""
    numbered = [pair for split in Split for pair in dataset.numbered(split)]
    for done, (where, sample) in enumerate(numbered, start=1):
        digest = size = look = refused = None
        try:
            data = read_bytes(sample.image)
            digest = hashlib.sha256(data).hexdigest()
            image = decode_image(data, name=sample.image).image
            size, look = image.size, look_at(image)
        except DataError as error:
            refused = error.message
        item = Checked(where, sample, digest, size, look)
        if refused:
            findings.add("unreadable-image", "error", "the image cannot be read", item, f"{sample.id}: {refused}")
        yield item
        if progress:
            progress(done, len(numbered))
