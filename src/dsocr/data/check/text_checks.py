"""Checks of transcriptions as a base sees them: nothing in them, too many tokens, characters it cannot write."""

import re
import statistics
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dsocr.data.check.findings import Checked, Findings
from dsocr.text import comparable, is_blank

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


WORD = re.compile(r"[^\W\d_]+")

_TO_CYRILLIC = dict(zip("ABCEHIJKMOPSTXYaceijopsxy", "АВСЕНІЈКМОРЅТХУасеіјорѕху", strict=True))
_TO_LATIN = {cyrillic: latin for latin, cyrillic in _TO_CYRILLIC.items()}
_ONE_LETTER_WORDS = frozenset("aco")
"""Latin letters that stand for a Russian word of one letter; others may be meant as Latin (x, y, I, V)."""
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_CYRILLIC = re.compile("[\u0400-\u052f]")


def look_alikes(text: str) -> Iterator[str]:
    """The words with letters of another script that look like their own, as a sentence each.

    Only words whose minority letters are all look-alikes are told: `USB-кабель` and `Wi-Fi` are meant so.
    """
    words = WORD.findall(unicodedata.normalize("NFC", text))
    for word in dict.fromkeys(words):
        latin, cyrillic = _LATIN.findall(word), _CYRILLIC.findall(word)
        if latin and cyrillic:
            sides = [(latin, _TO_CYRILLIC, "Latin"), (cyrillic, _TO_LATIN, "Cyrillic")]
            for strangers, alike, script in sorted(sides, key=lambda side: len(side[0])):
                if alike.keys() >= set(strangers):
                    yield f"{word!r} has {script} {' '.join(dict.fromkeys(strangers))}"
                    break
    for word in _lonely(words):
        yield f"{word!r} between Cyrillic words is Latin"


def in_one_script(text: str) -> str:
    """The text with look-alikes replaced where it is certain what was meant.

    That is in a word whose other letters are more, of one script, and one of them at least looks like none of the
    other script; and in Latin words of one letter between Cyrillic ones.
    """
    lonely = set(_lonely(WORD.findall(text)))
    return WORD.sub(lambda found: _one_script(found.group(), lonely), text)


def _one_script(word: str, lonely: set[str]) -> str:
    if word in lonely:
        return _TO_CYRILLIC[word]
    latin, cyrillic = _LATIN.findall(word), _CYRILLIC.findall(word)
    sides = [(latin, cyrillic, _TO_CYRILLIC, _TO_LATIN), (cyrillic, latin, _TO_LATIN, _TO_CYRILLIC)]
    for strangers, own, there, back in sides:
        certain = len(strangers) < len(own) and not back.keys() >= set(own) and there.keys() >= set(strangers)
        if strangers and certain and len(strangers) + len(own) == len(word):
            return "".join(there.get(letter, letter) if letter in strangers else letter for letter in word)
    return word


def _lonely(words: list[str]) -> list[str]:
    """The Latin words of one letter in a text that is otherwise Cyrillic, each once."""
    if sum(map(len, (_CYRILLIC.findall(word) for word in words))) <= 2:
        return []
    latin_words = {word for word in words if _LATIN.match(word) and not _CYRILLIC.search(word)}
    return sorted(latin_words) if latin_words and latin_words <= _ONE_LETTER_WORDS else []


_OLD_LETTERS = frozenset("ѢѣѲѳѴѵ")
_OLD_END = re.compile(r"(?:ъ|Ъ)\b")
_BREAKS = frozenset("\n")
NO_BREAK = frozenset("\u00a0\u202f\u2007")
_SCRIPT_SIGNS = frozenset("\u200c\u200d\u200e\u200f")


def check_letters(checked: Sequence[Checked], findings: Findings) -> None:
    """Every check of this module."""
    for item in checked:
        text = item.sample.text
        if strangers := list(look_alikes(text)):
            message = "a word mixes Latin and Cyrillic letters that look alike"
            findings.add("look-alikes", "warning", message, item, ", ".join(strangers))
        if unseen := invisible(text):
            message = "the transcription holds characters that nobody can see"
            told = ", ".join(f"U+{ord(character):04X} {_name(character)}" for character in unseen)
            findings.add("invisible-characters", "warning", message, item, told)
        if text != (composed := unicodedata.normalize("NFC", text)):
            message = "characters are written as two, a letter and its mark"
            told = ", ".join(dict.fromkeys(set(composed) - set(text)))
            findings.add("decomposed-characters", "warning", message, item, told)
        if broken := list(mojibake(text)):
            message = "the transcription was once read in a wrong encoding"
            findings.add("mojibake", "warning", message, item, ", ".join(broken))
        if old := [word for word in WORD.findall(text) if _is_old(word)]:
            message = "the transcription is in the spelling of before 1918"
            findings.add("old-spelling", "note", message, item, ", ".join(dict.fromkeys(old)))
    _check_seen_once(checked, findings)
    _check_yo(checked, findings)


def invisible(text: str) -> list[str]:
    """The characters of a text that show nothing: controls, zero-width ones, soft hyphens and no-break spaces.

    Line breaks are no fault, nor are joiners and marks of direction in texts whose script is written with them.
    """
    return [character for character in dict.fromkeys(text) if _is_invisible(character, text)]


def _is_invisible(character: str, text: str) -> bool:
    if character in _BREAKS:
        return False
    if character in _SCRIPT_SIGNS:
        return not any("\u0590" <= other <= "\u0dff" for other in text)
    return character in NO_BREAK or unicodedata.category(character) in {"Cc", "Cf", "Co", "Zl", "Zp"}


def _name(character: str) -> str:
    return unicodedata.name(character, "a control character").lower()


_HIGH = re.compile("[\u0080-\U0010ffff]{2,}")
_LATIN1_RUN = re.compile("[\u00c0-\u00ff\u00b8\u00a8]{4,}")
_QUOTES = frozenset("«»“”‘’")


def mojibake(text: str) -> Iterator[str]:
    """The parts of a text that make sense once the encoding they were misread in is undone, with that sense.

    UTF-8 read as cp1252, Latin-1 or cp1251, and cp1251 read as Latin-1; and the sign for what no encoding could read.
    """
    if "\ufffd" in text:
        yield "U+FFFD where a character was lost"
    for run in dict.fromkeys(_HIGH.findall(text)):
        for encoding in ("cp1252", "cp1251"):
            meant = _undone(run, encoding)
            if meant is not None:
                yield f"{run!r} may mean {meant!r}"
                break
        else:
            for part in _LATIN1_RUN.findall(run):
                yield f"{part!r} may mean {part.encode('latin-1').decode('cp1251')!r}"


def _undone(run: str, encoding: str) -> str | None:
    """What UTF-8 would have made of a run that `encoding` was read as; None where that is no text either.

    One letter alone proves little: `СССР»` ends in the two bytes of an `л`.
    """
    try:
        meant = b"".join(_byte(letter, encoding) for letter in run).decode("utf-8")
    except UnicodeError:
        return None
    if len(meant) == 1 and (run[0] not in "ÃÂ" or (run[0] == "Ã" and run[-1] in _QUOTES)):
        return None
    known = all("\u00a0" <= letter <= "\u045f" or "\u2010" <= letter <= "\u2122" for letter in meant)
    return meant if known else None


def _byte(letter: str, encoding: str) -> bytes:
    """The byte that was read as a letter; bytes that have none in cp1252 come through as controls."""
    return letter.encode("latin-1" if encoding == "cp1252" and "" <= letter <= "" else encoding)


def _is_old(word: str) -> bool:
    """Whether a word has a letter that went in 1918; і and ї live on in other languages, ъ inside words too."""
    return bool(_OLD_LETTERS & set(word)) or (len(word) > 1 and _OLD_END.search(word) is not None)


def _check_seen_once(checked: Sequence[Checked], findings: Findings) -> None:
    """Characters that no model can learn from what there is, or that are slips."""
    first: dict[str, Checked] = {}
    counts: Counter[str] = Counter()
    for item in checked:
        counts.update(item.sample.text)
        for character in item.sample.text:
            first.setdefault(character, item)
    for character, count in counts.items():
        if count == 1 and not character.isspace() and not invisible(character):
            message = "a character stands once in the whole dataset"
            name = unicodedata.name(character, "a control character").lower()
            findings.add("seen-once", "note", message, first[character], f"{shown(character)}, {name}")


def _check_yo(checked: Sequence[Checked], findings: Findings) -> None:
    """Words written with ё here and with е there: a model that reads either is counted as wrong by the other."""
    counts: Counter[str] = Counter()
    places: dict[str, Checked] = {}
    folded: dict[str, set[str]] = defaultdict(set)
    for item in checked:
        for word in WORD.findall(unicodedata.normalize("NFC", item.sample.text).lower()):
            counts[word] += 1
            places.setdefault(word, item)
            folded[word.replace("ё", "е")].add(word)
    for plain, spellings in folded.items():
        if len(spellings) > 1 and plain not in _BOTH:
            told = " and ".join(
                f"{word!r} {counts[word]}x" for word in sorted(spellings, key=lambda word: -counts[word])
            )
            rarest = min(spellings, key=lambda word: counts[word])
            findings.add("mixed-yo", "note", "a word is written with ё and with е", places[rarest], told)


_BOTH = frozenset(
    {"все", "всем", "чем", "нем", "небо", "осел", "мел", "лет", "берет", "узнает", "падеж", "совершенный"}
)
"""Frequent words that are two words, one with ё and one with е; the rest of them is rare enough for a note."""


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


_HYPHEN_AT_LINE_END = re.compile("\u00ad+[^\\S\n]*(?=\n|$)")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was put right: the code of the finding it answers, the text before and after."""

    code: str
    before: str
    after: str


def clean(text: str) -> list[Step]:
    """The steps that put a text right, in their order; none where there is nothing to put right.

    A text of which nothing would be left is not touched, nor are private letters, whose meaning only their font knows.
    """
    steps = []
    for code, repaired in _REPAIRS.items():
        after = repaired(text)
        if after != text and not is_blank(after):
            steps.append(Step(code, text, after))
            text = after
    return steps


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _visible(text: str) -> str:
    """The text without what nobody sees; a soft hyphen at the end of a line is one that is seen there."""
    if not invisible(text):
        return text
    text = _HYPHEN_AT_LINE_END.sub("-", text)
    for character in invisible(text):
        if unicodedata.category(character) == "Co":
            continue
        if character in NO_BREAK or character.isspace():
            text = re.sub(f" *{re.escape(character)}[{re.escape(character)} ]*", " ", text)
        else:
            text = text.replace(character, "")
    return "\n".join(line.strip(" ") for line in text.split("\n"))


_REPAIRS: dict[str, Callable[[str], str]] = {
    "decomposed-characters": _composed,
    "invisible-characters": _visible,
    "look-alikes": in_one_script,
}
