"""Checks of transcriptions: empty, too long, unknown or invisible characters, encodings, spelling, conventions."""

import re
import statistics
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from dsocr.data.check.findings import CheckedSample, Problem, Severity
from dsocr.text import TextPolicy, comparable, repair_mojibake

_MAX_TOKENS_PER_CHARACTER = 1.5
"""A tokenizer that knows a script needs at most one token per character; bytes of an unknown one are two or three."""
_MAX_TIMES_USUAL = 2.0
_MIN_EXTRA_TOKENS = 10
"""Tokens above the usual number before a single text is reported."""


def check_tokens(
    samples: Sequence[CheckedSample], text_ids: Callable[[str], Sequence[int]], limit: int | None
) -> Iterator[Problem]:
    """Find transcriptions longer than `limit` tokens, or with far more tokens than characters."""
    counts = [(item, len(text_ids(item.text))) for item in samples]
    for item, tokens in counts:
        if limit is not None and tokens > limit:
            message = f"Transcription is longer than max_text_tokens ({limit})"
            yield Problem("long-text", "error", message, item, f"{tokens} tokens")
    densities = [tokens / max(1, len(item.text)) for item, tokens in counts]
    usual = statistics.median(densities or [0])
    if usual > _MAX_TOKENS_PER_CHARACTER:
        # The tokenizer spells the whole script in bytes, so one place stands for all.
        densest = samples[densities.index(max(densities))]
        message = f"The base's tokenizer needs {usual:.1f} tokens per character, so texts are long and slow to read"
        yield Problem("many-tokens", "note", message, densest)
        return
    message = "Transcription needs unusually many tokens: the tokenizer hardly knows its script"
    for (item, tokens), density in zip(counts, densities, strict=True):
        is_dense = density > max(_MAX_TOKENS_PER_CHARACTER, _MAX_TIMES_USUAL * usual)
        if is_dense and tokens - usual * len(item.text) >= _MIN_EXTRA_TOKENS:
            detail = f"{tokens} tokens for {len(item.text)} characters; usual are {usual:.1f} per character"
            yield Problem("many-tokens", "note", message, item, detail)


def check_unknown_characters(
    samples: Sequence[CheckedSample], unknown_characters: Callable[[str], str]
) -> Iterator[Problem]:
    """Find characters that the base's tokenizer cannot write; if most texts have one, it is the wrong base."""
    # One call with all characters instead of one per text, because tokenizers are slow.
    counts = Counter(character for item in samples for character in item.text)
    unknown = frozenset(unknown_characters("".join(counts)))
    listed = [f"{printable(character)} {count}x" for character, count in counts.most_common() if character in unknown]
    message = f"Base does not know {len(listed)} characters: {', '.join(listed[:20])}"
    places = [item for item in samples if not unknown.isdisjoint(item.text)]
    severity: Severity = "error" if 2 * len(places) > len(samples) else "warning"
    for item in places:
        characters = "".join(character for character in dict.fromkeys(item.text) if character in unknown)
        yield Problem("unknown-characters", severity, message, item, characters)


def printable(character: str) -> str:
    """The character itself, or its code point if it cannot be seen."""
    return character if character.isprintable() and not character.isspace() else f"U+{ord(character):04X}"


def _name(character: str) -> str:
    return unicodedata.name(character, "a control character").lower()


WORD = re.compile(r"[^\W\d_]+")
LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
CYRILLIC = re.compile("[\u0400-\u052f]")
TO_CYRILLIC = dict(zip("ABCEHIJKMOPSTXYaceijopsxy", "АВСЕНІЈКМОРЅТХУасеіјорѕху", strict=True))
TO_LATIN = {cyrillic: latin for latin, cyrillic in TO_CYRILLIC.items()}
_ONE_LETTER_WORDS = frozenset("aco")
"""Latin letters that look like a Russian word of one letter; others may be meant as Latin (x, y, I, V)."""
VISIBLE_TEXT = TextPolicy(unicode="keep")
"""Removes invisible characters and changes nothing else but spaces."""
_TWO_WORDS = frozenset(
    {"все", "всем", "чем", "нем", "небо", "осел", "мел", "лет", "берет", "узнает", "падеж", "совершенный"}
)
"""Frequent pairs of words that differ in ё and е only; the rest of them is rare enough for a note."""


def check_letters(samples: Sequence[CheckedSample]) -> Iterator[Problem]:
    """Find letters of the wrong script, invisible and decomposed characters, broken encodings, and old spelling."""
    for item in samples:
        for code, severity, message, find in _LETTERS:
            if details := list(find(item.text)):
                yield Problem(code, severity, message, item, ", ".join(details))
    # Characters that no model can learn from this dataset, or typos.
    counts = Counter(character for item in samples for character in item.text)
    first = {character: item for item in reversed(samples) for character in item.text}
    for character, count in counts.items():
        if count == 1 and not character.isspace() and not find_invisible(character):
            detail = f"{printable(character)}, {_name(character)}"
            yield Problem("seen-once", "note", "Character is in the whole dataset only once", first[character], detail)
    yield from _check_yo(samples)


def find_look_alikes(text: str) -> Iterator[str]:
    """Describe each word with letters of another script that look like its own.

    Only if all letters of the minority script have a look-alike: `USB-кабель` and `Wi-Fi` are intended.
    """
    words = WORD.findall(unicodedata.normalize("NFC", text))
    for word in dict.fromkeys(words):
        latin, cyrillic = LATIN.findall(word), CYRILLIC.findall(word)
        if latin and cyrillic:
            scripts = [(latin, TO_CYRILLIC, "Latin"), (cyrillic, TO_LATIN, "Cyrillic")]
            for minority, look_alikes, script in sorted(scripts, key=lambda entry: len(entry[0])):
                if look_alikes.keys() >= set(minority):
                    yield f"{word!r} has {script} {' '.join(dict.fromkeys(minority))}"
                    break
    for word in lone_latin_words(words):
        yield f"{word!r} between Cyrillic words is Latin"


def lone_latin_words(words: list[str]) -> list[str]:
    """The Latin one-letter words of an otherwise Cyrillic text."""
    if sum(len(CYRILLIC.findall(word)) for word in words) <= 2:
        return []
    latin_words = {word for word in words if LATIN.match(word) and not CYRILLIC.search(word)}
    return sorted(latin_words) if latin_words <= _ONE_LETTER_WORDS else []


def find_invisible(text: str) -> list[str]:
    """The characters that the usual text policy removes or writes as a plain space, line breaks excepted."""
    visible = VISIBLE_TEXT.apply(text)
    return [sign for sign in dict.fromkeys(text) if sign not in visible and sign not in " \n"]


_LATIN1_LETTERS = re.compile("[\u00c0-\u00ff\u00b8\u00a8]{4,}")


def find_mojibake(text: str) -> Iterator[str]:
    """Describe what the text policy would repair, words in cp1251 read as Latin-1, and lost characters (U+FFFD)."""
    repaired = repair_mojibake(text)
    if repaired != text:
        yield f"may mean {repaired!r}"
    if "\ufffd" in text:
        yield "U+FFFD where a character was lost"
    for word in dict.fromkeys(_LATIN1_LETTERS.findall(repaired)):
        yield f"{word!r} may mean {word.encode('latin-1').decode('cp1251')!r}"


_OLD_WORD = re.compile(".*[ѢѣѲѳѴѵ]|.+[ъЪ]$")
_LETTERS: tuple[tuple[str, Severity, str, Callable[[str], Iterable[str]]], ...] = (
    ("look-alikes", "warning", "A word mixes Latin and Cyrillic letters that look alike", find_look_alikes),
    (
        "invisible-characters",
        "warning",
        "Transcription has invisible characters",
        lambda text: (f"U+{ord(sign):04X} {_name(sign)}" for sign in find_invisible(text)),
    ),
    (
        "decomposed-characters",
        "warning",
        "Transcription has decomposed characters, a letter and its mark",
        lambda text: (word for word in text.split() if not unicodedata.is_normalized("NFC", word)),
    ),
    ("mojibake", "warning", "Transcription was read in a wrong encoding, or escaped twice", find_mojibake),
    (
        "old-spelling",
        "note",
        "Transcription uses the spelling from before 1918",
        # Letters abolished then; і and ї live on in other languages, ъ within words too.
        lambda text: filter(_OLD_WORD.match, dict.fromkeys(WORD.findall(text))),
    ),
)
"""Code, severity and message of what is found in a text alone, and a function that describes each place."""


def _check_yo(samples: Sequence[CheckedSample]) -> Iterator[Problem]:
    """Find words written both with ё and with е: a model that reads one is scored as wrong by the other."""
    spellings: dict[str, dict[str, list[CheckedSample]]] = defaultdict(lambda: defaultdict(list))
    for item in samples:
        for word in WORD.findall(unicodedata.normalize("NFC", item.text).lower()):
            spellings[word.replace("ё", "е")][word].append(item)
    for plain, words in spellings.items():
        if len(words) > 1 and plain not in _TWO_WORDS:
            by_count = sorted(words, key=lambda word: (-len(words[word]), word))
            detail = " and ".join(f"{word!r} {len(words[word])}x" for word in by_count)
            place = words[by_count[-1]][0]
            yield Problem("mixed-yo", "note", "A word is written both with ё and with е", place, detail)


_MARKS = {
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
"""Name -> pattern of a mark that transcribers add to the text of the line."""

_SIGNS: dict[str, dict[str, re.Pattern[str]]] = {
    "quotes": {"« »": re.compile("[«»]"), '" "': re.compile('"'), "“ ”": re.compile("[“”„]")},
    "apostrophes": {"'": re.compile(r"(?<=\w)'(?=\w)"), "’": re.compile(r"(?<=\w)’(?=\w)")},
    "dashes": {"—": re.compile("—"), "–": re.compile(r"(?<!\d)–(?!\d)"), "-": re.compile(r"(?<=\s)-(?=\s)")},
    "dots": {"…": re.compile("…"), "...": re.compile(r"(?<!\.)\.{3}(?![.\]])")},
    "hyphens at line ends": {"-": re.compile(r"\w-$", re.MULTILINE), "¬": re.compile(r"¬$", re.MULTILINE)},
}
"""Purpose -> sign -> pattern; one writer uses one sign, so two of them come from two transcribers."""

_ESTABLISHED = 5
"""Uses of a sign after which another one for the same thing is a deviation."""
_MIN_REPEATED = 10
"""Characters; shorter texts repeat on a page naturally."""
_MIN_SAMPLES = 20
"""Samples needed before the share of one text means something."""
_PAGE = ("split", "writer", "document", "page")
"""Equal for lines of one page."""


def check_habits(samples: Sequence[CheckedSample]) -> Iterator[Problem]:
    """Find transcribers' marks in texts, and different signs used for the same thing."""
    marked = [(item, marks) for item in samples if (marks := count_marks(item.text))]
    totals = sum((marks for _, marks in marked), Counter[str]())
    listed = ", ".join(f"{name} {count}x" for name, count in totals.most_common())
    message = f"Texts contain transcribers' marks, which a model learns to write: {listed}"
    for item, marks in marked:
        yield Problem("markup-in-text", "note", message, item, ", ".join(marks))
    yield from _check_mixed_signs(samples)


def count_marks(text: str) -> Counter[str]:
    """The transcribers' marks in a text, and how often each occurs."""
    return +Counter({name: len(pattern.findall(text)) for name, pattern in _MARKS.items()})


def _check_mixed_signs(samples: Sequence[CheckedSample]) -> Iterator[Problem]:
    """Report every use of a rarer sign if another one is established."""
    deviations: list[tuple[int, str]] = []
    listed = []
    for purpose, signs in _SIGNS.items():
        places = {
            sign: [place for place, item in enumerate(samples) if pattern.search(item.text)]
            for sign, pattern in signs.items()
        }
        usual, *others = sorted(filter(places.get, places), key=lambda sign: -len(places[sign])) or [""]
        if others and len(places[usual]) >= _ESTABLISHED:
            listed.append(f"{purpose} {', '.join(f'{sign} {len(places[sign])}x' for sign in (usual, *others))}")
            deviations += [(place, sign) for sign in others for place in places[sign]]
    message = f"Several signs are used for the same thing: {'; '.join(listed)}"
    for place, sign in sorted(deviations, key=lambda deviation: deviation[0]):
        yield Problem("mixed-punctuation", "note", message, samples[place], sign)


def check_repeats(samples: Sequence[CheckedSample]) -> Iterator[Problem]:
    """Find texts copied to the next line of a page, and splits that hold one text and little else."""
    for first, second in pairwise(samples):
        sample, other, text = first.sample, second.sample, comparable(first.text)
        is_same_page = sample.page and all(getattr(sample, name) == getattr(other, name) for name in _PAGE)
        # The same image twice is another finding.
        is_copied = len(text) >= _MIN_REPEATED and text == comparable(second.text) and first.digest != second.digest
        if is_same_page and is_copied:
            message = "Text repeats that of the previous line of the page"
            yield Problem("text-repeats", "warning", message, second, f"as {first.place}", first)
    by_split: dict[str, dict[str, list[CheckedSample]]] = defaultdict(lambda: defaultdict(list))
    for item in samples:
        by_split[item.sample.split][comparable(item.text)].append(item)
    for split, texts in by_split.items():
        count, commonest = sum(map(len, texts.values())), max(texts.values(), key=len)
        if count >= _MIN_SAMPLES and 2 * len(commonest) > count:
            message, detail = "Most images of a split have the same text", f"{len(commonest)} of {count} in {split}"
            yield Problem("all-same-text", "warning", message, commonest[0], detail)
