"""Checks of transcriptions alone: nothing in them, too long for a base, characters that are not what they look like."""

from collections import Counter
from collections.abc import Callable

from dsocr.data.checking.findings import Checked, Findings
from dsocr.text import is_blank


def check_empty(checked: list[Checked], findings: Findings) -> None:
    """Transcriptions with nothing to read in them."""
    for item in checked:
        if is_blank(item.sample.text):
            findings.add("empty-text", "error", "the transcription is empty", item)


def check_lengths(checked: list[Checked], findings: Findings, count_tokens: Callable[[str], int], limit: int) -> None:
    """Transcriptions longer than a model is given room for."""
    message = f"the transcription is longer than the {limit} tokens there is room for"
    for item in checked:
        tokens = count_tokens(item.sample.text)
        if tokens > limit:
            findings.add("long-text", "error", message, item, f"{tokens} tokens")


def check_characters(checked: list[Checked], findings: Findings, unknown_characters: Callable[[str], str]) -> None:
    """Characters that the tokenizer of a base cannot write."""
    unknown = [(item, unknown_characters(item.sample.text)) for item in checked]
    counts = Counter("".join(characters for _, characters in unknown))
    told = ", ".join(f"{shown(character)} {count}x" for character, count in counts.most_common(20))
    for item, characters in unknown:
        if characters:
            message = f"{len(counts)} characters that the base does not know: {told}"
            findings.add("unknown-characters", "warning", message, item, "".join(dict.fromkeys(characters)))


def shown(character: str) -> str:
    """A character as a person can see it."""
    return character if character.isprintable() and not character.isspace() else f"U+{ord(character):04X}"
