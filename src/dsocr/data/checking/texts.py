"""Checks of transcriptions as a base sees them: nothing in them, too many tokens, characters it cannot write."""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence

from dsocr.data.checking.findings import Checked, Findings
from dsocr.text import is_blank

MANY_A_CHARACTER = 1.5
"""Tokens; a tokenizer that knows a script needs at most one a character, bytes of a foreign one are two or three."""
MANY_TIMES_USUAL = 2.0
LEAST_MORE = 10
"""Tokens that a text needs more than usual, before it is told on its own."""


def check_empty(checked: Sequence[Checked], findings: Findings) -> None:
    """Transcriptions with nothing to read in them."""
    for item in checked:
        if is_blank(item.sample.text):
            findings.add("empty-text", "error", "the transcription is empty", item)


def check_tokens(
    checked: Sequence[Checked], findings: Findings, count_tokens: Callable[[str], int], limit: int | None
) -> None:
    """Transcriptions longer than a model is given room for, and such as cost far more tokens than characters."""
    counts = [count_tokens(item.sample.text) for item in checked]
    if limit is not None:
        message = f"the transcription is longer than the {limit} tokens there is room for"
        for item, tokens in zip(checked, counts, strict=True):
            if tokens > limit:
                findings.add("long-text", "error", message, item, f"{tokens} tokens")
    _check_density(checked, counts, findings)


def _check_density(checked: Sequence[Checked], counts: Sequence[int], findings: Findings) -> None:
    """A dataset whose script the tokenizer spells in bytes is told once, a text among others by itself."""
    densities = [tokens / max(1, len(item.sample.text)) for item, tokens in zip(checked, counts, strict=True)]
    if not densities:
        return
    usual = statistics.median(densities)
    if usual > MANY_A_CHARACTER:
        message = f"the base's tokenizer needs {usual:.1f} tokens for a character, so texts are long and slow to read"
        findings.add("many-tokens", "note", message, max(zip(densities, checked, strict=True), key=_first)[1])
        return
    limit = max(MANY_A_CHARACTER, MANY_TIMES_USUAL * usual)
    for item, tokens, density in zip(checked, counts, densities, strict=True):
        if density > limit and tokens - usual * len(item.sample.text) >= LEAST_MORE:
            message = "the transcription needs unusually many tokens, as a script does that the tokenizer hardly knows"
            detail = f"{tokens} tokens for {len(item.sample.text)} characters, {usual:.1f} a character are usual"
            findings.add("many-tokens", "note", message, item, detail)


def _first(pair: tuple[float, Checked]) -> float:
    return pair[0]


def check_characters(checked: Sequence[Checked], findings: Findings, unknown_characters: Callable[[str], str]) -> None:
    """Characters that the tokenizer of a base cannot write."""
    # Asked once about every character there is, not about every text: a tokenizer is slow to ask.
    seen = dict.fromkeys(character for item in checked for character in item.sample.text)
    unknown = frozenset(unknown_characters("".join(seen)))
    if not unknown:
        return
    counts = Counter(character for item in checked for character in item.sample.text if character in unknown)
    told = ", ".join(f"{shown(character)} {count}x" for character, count in counts.most_common(20))
    message = f"{len(counts)} characters that the base does not know: {told}"
    for item in checked:
        if characters := [character for character in dict.fromkeys(item.sample.text) if character in unknown]:
            findings.add("unknown-characters", "warning", message, item, "".join(characters))


def shown(character: str) -> str:
    """A character as a person can see it."""
    return character if character.isprintable() and not character.isspace() else f"U+{ord(character):04X}"
