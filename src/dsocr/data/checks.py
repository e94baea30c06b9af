"""What is wrong or doubtful in a dataset folder, as findings: bad images, bad texts, leaks between splits.

Knows no model: what a tokenizer cannot write and how long a text becomes is asked of functions that are handed in.
The single checks are in `data/checking`, a module a subject.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dsocr.data.checking.balance import check_balance
from dsocr.data.checking.findings import Checked, Finding, Findings
from dsocr.data.checking.habits import check_habits
from dsocr.data.checking.images import check_aspects, check_inverted, check_looks, check_shapes, check_sizes
from dsocr.data.checking.leaks import check_crossing, check_duplicates, check_hashes, check_near_duplicates
from dsocr.data.checking.letters import check_letters
from dsocr.data.checking.neighbours import check_neighbours
from dsocr.data.checking.pairs import check_pairs
from dsocr.data.checking.reading import promised, read_samples
from dsocr.data.checking.repeats import check_repeats
from dsocr.data.checking.texts import check_characters, check_empty, check_tokens
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import Progress

__all__ = ["Finding", "Survey", "survey_dataset"]


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found in a dataset, errors first, and every sample with what was seen of it, in their order."""

    findings: list[Finding]
    samples: list[Checked]


def survey_dataset(
    dataset: Dataset,
    *,
    unknown_characters: Callable[[str], str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
    max_text_tokens: int | None = None,
    distortion: Callable[[int, int], float] | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Survey:
    """All findings about a dataset, none where nothing doubtful was found, and its samples.

    `unknown_characters` gives the characters of a text that the base's tokenizer cannot write; `count_tokens` a text's
    length in tokens, which `max_text_tokens` limits; `distortion` how much taller than true the letters of an image of
    some width and height are shown to the model. `workers` is how many processes look at images: 1 for this one alone,
    None for as many as there are cores if the dataset is worth it.
    """
    findings = Findings()
    checked = _read_all(dataset, findings, workers, progress)
    check_empty(checked, findings)
    if count_tokens:
        check_tokens(checked, findings, count_tokens, max_text_tokens)
    if distortion:
        check_shapes(checked, findings, distortion)
    if unknown_characters:
        check_characters(checked, findings, unknown_characters)
    for check in (
        *(check_letters, check_habits, check_repeats),
        *(check_pairs, check_neighbours),
        *(check_looks, check_inverted, check_sizes, check_aspects),
        *(check_duplicates, check_near_duplicates),
    ):
        check(checked, findings)
    for check_with_card in (check_balance, check_crossing, check_hashes):
        check_with_card(dataset, checked, findings)
    return Survey(findings.listed(), checked)


def _read_all(dataset: Dataset, findings: Findings, workers: int | None, progress: Progress | None) -> list[Checked]:
    """Every sample with a look at its image, and a finding where that fails."""
    checked: list[Checked] = []
    total = promised(dataset)
    for item, refused in read_samples(dataset, workers):
        checked.append(item)
        if refused:
            detail = f"{item.sample.id}: {refused}"
            findings.add("unreadable-image", "error", "the image cannot be read", item, detail)
        if progress:
            progress(len(checked), max(total, len(checked)))
    return checked
