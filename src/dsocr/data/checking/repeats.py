"""Checks for texts that stand where they do not belong, by a slip of copying: next to themselves, or everywhere."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from dsocr.data.checking.findings import Checked, Findings
from dsocr.text import comparable

LONG_ENOUGH = 10
"""Characters; shorter texts repeat on a page by themselves."""
MANY = 20
"""Samples from which a share of one text says something."""
SHARE = 0.5


def check_repeats(checked: Sequence[Checked], findings: Findings) -> None:
    """Texts copied to the next line of a page, and splits that hold one text and little else."""
    for first, second in pairwise(checked):
        if first.sample.page and _place(first) == _place(second) and _is_copied(first, second):
            message = "the text is that of the line before, on the same page"
            findings.add("text-repeats", "warning", message, second, f"as {first.where}", first)
    splits: dict[str, list[Checked]] = defaultdict(list)
    for item in checked:
        splits[item.sample.split].append(item)
    for split, own in splits.items():
        _check_share(split, own, findings)


def _place(item: Checked) -> tuple[str | None, ...]:
    return item.sample.split, item.sample.writer, item.sample.document, item.sample.page


def _is_copied(first: Checked, second: Checked) -> bool:
    """Whether two images have one text; the same image twice is another finding."""
    text = comparable(first.sample.text)
    return len(text) >= LONG_ENOUGH and first.digest != second.digest and text == comparable(second.sample.text)


def _check_share(split: str, own: Sequence[Checked], findings: Findings) -> None:
    if len(own) < MANY:
        return
    text, count = Counter(comparable(item.sample.text) for item in own).most_common(1)[0]
    if count > SHARE * len(own):
        first = next(item for item in own if comparable(item.sample.text) == text)
        message = "one text stands at most images of a split"
        findings.add("all-same-text", "warning", message, first, f"{count} of {len(own)} in {split}")
