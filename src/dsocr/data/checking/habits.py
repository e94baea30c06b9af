"""Checks of how transcribers write: signs of their own for what no letter says, and several signs for one thing."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from dsocr.data.checking.findings import Checked, Findings

CONVENTIONS = {
    "><": re.compile("><|>\u2060<"),
    ">struck out<": re.compile(r">[^<>\n]+<"),
    "<tag>": re.compile(r"</?[A-Za-z][^<>\n]*>"),
    "[words]": re.compile(r"\[[^\W\d_][^\[\]\n]*\]"),
    "[...]": re.compile(r"\[\s*(?:\.{2,}|…)\s*\]"),
    "[?] or (?)": re.compile(r"\[\?+\]|\(\?+\)"),
    "???": re.compile(r"\?{3,}"),
    "xxx": re.compile(r"\b[xXхХ]{3,}\b"),
    "¬": re.compile("[¬⸗]"),
    "{}": re.compile(r"\{[^{}\n]*\}"),
    "@": re.compile(r"(?<![\w.])@|@(?![\w])"),
    "#": re.compile(r"#(?!\d)"),
    "^ or _ or ~": re.compile(r"[\^~]|__"),
}
"""Name -> what it looks like; signs by which transcribers say what no letter of the line says."""

HABITS: dict[str, dict[str, re.Pattern[str]]] = {
    "quotes": {
        "« »": re.compile("[«»]"),
        '" "': re.compile('"'),
        "“ ”": re.compile("[“”„]"),
    },
    "apostrophes": {"'": re.compile(r"(?<=\w)'(?=\w)"), "’": re.compile(r"(?<=\w)’(?=\w)")},
    "dashes": {
        "—": re.compile("—"),
        "–": re.compile(r"(?<!\d)–(?!\d)"),
        "-": re.compile(r"(?<=\s)-(?=\s)"),
    },
    "dots": {"…": re.compile("…"), "...": re.compile(r"(?<!\.)\.{3}(?![.\]])")},
    "hyphens at line ends": {"-": re.compile(r"\w-$", re.MULTILINE), "¬": re.compile(r"¬$", re.MULTILINE)},
}
"""What is written -> sign -> what it looks like; one hand uses one sign, so two of them are two transcribers."""

ESTABLISHED = 5
"""Times that a sign is used, from which another for the same thing is a deviation."""


def check_habits(checked: Sequence[Checked], findings: Findings) -> None:
    """Every check of this module."""
    _check_conventions(checked, findings)
    _check_mixed(checked, findings)


def conventions(text: str) -> dict[str, int]:
    """The transcribers' signs in a text, and how often each occurs."""
    found = {name: len(pattern.findall(text)) for name, pattern in CONVENTIONS.items()}
    return {name: count for name, count in found.items() if count}


def _check_conventions(checked: Sequence[Checked], findings: Findings) -> None:
    marked = [(item, found) for item in checked if (found := conventions(item.sample.text))]
    counts: Counter[str] = Counter()
    for _, found in marked:
        counts.update(found)
    told = ", ".join(f"{name} {count}x" for name, count in counts.most_common())
    for item, found in marked:
        message = f"signs of the transcribers stand in the texts, and a model learns to write them: {told}"
        findings.add("markup-in-text", "note", message, item, ", ".join(found))


def _check_mixed(checked: Sequence[Checked], findings: Findings) -> None:
    """Every use of a rarer sign where another is established."""
    deviations = []
    told = []
    for what, signs in HABITS.items():
        uses = {sign: list(_uses(checked, pattern)) for sign, pattern in signs.items()}
        usual, *others = sorted(uses, key=lambda sign: -len(uses[sign]))
        if len(uses[usual]) < ESTABLISHED or not any(uses[other] for other in others):
            continue
        told.append(f"{what} {', '.join(f'{sign} {len(uses[sign])}x' for sign in (usual, *others) if uses[sign])}")
        deviations += [(place, item, sign) for sign in others for place, item in uses[sign]]
    message = f"several signs are used for one thing: {'; '.join(told)}"
    for _, item, sign in sorted(deviations, key=lambda deviation: deviation[0]):
        findings.add("mixed-punctuation", "note", message, item, sign)


def _uses(checked: Sequence[Checked], pattern: re.Pattern[str]) -> Iterator[tuple[int, Checked]]:
    """The samples in which a pattern occurs, with their places."""
    for place, item in enumerate(checked):
        if pattern.search(item.sample.text):
            yield place, item
