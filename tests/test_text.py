"""The text policy is exact and idempotent, texts compare as metrics need it, and endless repetitions are found."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr.text import Revision, TextPolicy, comparable, is_blank, is_looping, letters_of, loop_start

TEXTS = st.text(alphabet="ёйе \u0306\u0308\u00a0\u2003\u2028\t\r\nа.-", max_size=20) | st.text(max_size=20)


@pytest.mark.parametrize(
    ("policy", "text", "stored"),
    [
        pytest.param(TextPolicy(), "и\u0306од", "йод", id="composed"),
        pytest.param(TextPolicy(unicode="keep"), "и\u0306од", "и\u0306од", id="decomposed kept on request"),
        pytest.param(TextPolicy(), "  а\u00a0 \tб ", "а б", id="no-break spaces and tabs are spaces"),
        pytest.param(TextPolicy(), "а \n\n б\r\nв", "а\nб\nв", id="line breaks stay, blank lines go"),
        pytest.param(TextPolicy(spaces="keep"), " а  б\n", " а  б\n", id="spaces kept on request"),
        pytest.param(TextPolicy(), "Ёлка № 5…", "Ёлка № 5…", id="nothing else is folded"),
        pytest.param(TextPolicy(), "\ufeffсло\u00adво\u200b \x07а", "слово а", id="invisible characters go"),
        pytest.param(TextPolicy(), "сло\u00ad \nво\n\u00ad", "сло-\nво", id="a soft hyphen at a line end is seen"),
        pytest.param(TextPolicy(invisible="keep"), "сло\u00adво", "сло\u00adво", id="invisible ones kept on request"),
        pytest.param(TextPolicy(), "سال\u200cها", "سال\u200cها", id="a joiner between Persian letters is spelling"),
        pytest.param(TextPolicy(), "سال\u200c\u200cها", "سال\u200cها", id="one joiner says it"),
        pytest.param(TextPolicy(), "ക്\u200d", "ക്\u200d", id="a joiner after a virama ends a word"),
        pytest.param(TextPolicy(), "سال\u200c до\u200dм", "سال дом", id="no joiner at a word's end, nor in Cyrillic"),
        pytest.param(TextPolicy(), "\u0600١", "\u0600١", id="format characters that are written stay"),
    ],
)
def test_policy_applies(policy: TextPolicy, text: str, stored: str) -> None:
    assert policy.apply(text) == stored


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(" а\n\u2003б ", "а б", id="a line break counts as a space"),
        pytest.param("е\u0308ж", "ёж", id="decomposed"),
        pytest.param("Еж № ½", "Еж № ½", id="case, compatibility characters and ё/е stay"),
    ],
)
def test_comparable_text(text: str, expected: str) -> None:
    assert comparable(text) == expected


@pytest.mark.parametrize("text", ["", " \u00a0\n", "\u200b\ufeff\u00ad"], ids=["empty", "white space", "invisible"])
def test_blank_text(text: str) -> None:
    assert is_blank(text)
    assert not is_blank(f"{text}-"), "a dash can be read"


@given(TEXTS)
def test_comparison_is_idempotent_and_stored_texts_compare_equal(text: str) -> None:
    assert comparable(comparable(text)) == comparable(text)
    assert comparable(TextPolicy(invisible="keep").apply(text)) == comparable(text)


ARCHIVE = TextPolicy(struck="strip", unclear="strip", hyphen_signs="hyphen", line_end_hyphens="join", mojibake="repair")


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        pytest.param("дом >стол< стоит", "дом стоит", id="struck out, with one of its spaces"),
        pytest.param("дом >стол<, стоит", "дом, стоит", id="before a stop"),
        pytest.param(">стол< дом", "дом", id="at the beginning"),
        pytest.param("при>шол<ехал", "приехал", id="inside a word"),
        pytest.param("a >б >в< г< д", "a д", id="one in another"),
        pytest.param("а ~~б~~ <del>в</del> [[г]] д", "а д", id="other conventions"),
        pytest.param("5 > 3", "5 > 3", id="a mark alone is no pair"),
        pytest.param(">а\nб<", ">а\nб<", id="no pair over two lines"),
        pytest.param("дом [?] стоит[нрзб.].", "дом стоит.", id="unclear"),
        pytest.param("слово >< и xxx", "слово и", id="unreadable"),
        pytest.param("xxxv XXX", "xxxv XXX", id="letters are marks as whole words only"),
        pytest.param("пере¬\nнос", "перенос", id="a word broken at a line's end"),
        pytest.param("пере-  \n  нос и даль-\nше", "перенос и дальше", id="twice, with spaces around"),
        pytest.param("Нью-\nЙорк, 1914-\n1918, и -\nтак", "Нью-\nЙорк, 1914-\n1918, и -\nтак", id="no broken words"),
        pytest.param("РџСЂРёРІРµС‚, РјРёСЂ", "Привет, мир", id="read as cp1251"),
        pytest.param("ÐŸÑ€Ð¸Ð²ÐµÑ‚", "Привет", id="read as cp1252"),
        pytest.param("Ð\x9fÑ\x80Ð¸Ð²ÐµÑ\x82", "Привет", id="read as Latin-1"),
        pytest.param("№ 5: РјРёСЂ и мир", "№ 5: мир и мир", id="a part of the text"),
        pytest.param("cafÃ© Ã©tÃ©", "café été", id="French"),
        pytest.param("un cafÃ©", "un café", id="one letter that says how it was misread"),
        pytest.param("СССР» и Рё", "СССР» и Рё", id="one letter proves nothing"),
        pytest.param("Ёлка «в лесу» — №5, été", "Ёлка «в лесу» — №5, été", id="a text that is right"),
    ],
)
def test_archive_policy(text: str, stored: str) -> None:
    assert ARCHIVE.apply(text) == stored
    assert text in (stored, TextPolicy(spaces="keep", invisible="keep").apply(text)), (
        "the default policy does none of it"
    )


@pytest.mark.parametrize(
    ("policy", "text", "dropped"),
    [
        pytest.param(TextPolicy(struck="drop-line"), "а >б< в", "struck", id="struck"),
        pytest.param(TextPolicy(unclear="drop-line"), "а [?]", "unclear", id="unclear"),
        pytest.param(TextPolicy(unclear="drop-line"), "а >б< в", None, id="another mark"),
        pytest.param(TextPolicy(struck="strip", unclear="drop-line"), "а >б [?]< в", None, id="struck out first"),
        pytest.param(TextPolicy(struck="drop-line", struck_marks=(("{", "}"),)), "а >б< {в}", "struck", id="own marks"),
        pytest.param(TextPolicy(struck="drop-line", struck_marks=()), "а >б<", None, id="no marks"),
    ],
)
def test_dropped_lines(policy: TextPolicy, text: str, dropped: str | None) -> None:
    assert policy.revise(text).dropped == dropped


@pytest.mark.parametrize("marks", [{"struck_marks": (("", "<"),)}, {"unclear_marks": (" ",)}])
def test_empty_mark_is_an_error(marks: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a mark must not be empty"):
        TextPolicy(**marks)


MARKED = st.text(alphabet=">< ~[]?xаб\u0306ё\u00ad\u200c\u200dसा्¬-\n\rРёÃ©\u0098\u00a0<del>/&amp;#38", max_size=24)
CHOICES = {
    "unicode": ("NFC", "keep"),
    "spaces": ("collapse", "keep"),
    "invisible": ("strip", "keep"),
    "mojibake": ("repair", "keep"),
    "hyphen_signs": ("hyphen", "keep"),
    "line_end_hyphens": ("join", "keep"),
    "struck": ("strip", "keep", "drop-line"),
    "unclear": ("strip", "keep", "drop-line"),
}
POLICIES = st.builds(TextPolicy, **{name: st.sampled_from(choices) for name, choices in CHOICES.items()})


@given(policy=POLICIES, text=MARKED | TEXTS)
@settings(max_examples=100)
def test_any_policy_is_idempotent(policy: TextPolicy, text: str) -> None:
    once = policy.apply(text)
    assert policy.apply(once) == once
    if policy.unicode == "NFC":
        assert unicodedata.is_normalized("NFC", once)


@given(policy=POLICIES, text=MARKED | TEXTS)
@settings(max_examples=100)
def test_changes_name_rules_that_are_switched_on(policy: TextPolicy, text: str) -> None:
    revision = policy.revise(text)
    switched_on = {name for name in CHOICES if getattr(policy, name) not in ("keep", "drop-line")}
    assert {change.rule for change in revision.changes} <= switched_on
    if not revision.changes:
        assert revision.text == text.rstrip("\r\n") or revision.text == text


@given(text=MARKED | TEXTS)
def test_policy_that_keeps_everything_changes_nothing(text: str) -> None:
    keep = TextPolicy(**dict.fromkeys(CHOICES, "keep"))  # type: ignore[arg-type]
    assert keep.revise(text) == Revision(text)


@given(st.text(alphabet="абвгдежзийклмнопрстуфхцчшщъыьэюяёАЯ ,.№«»—éçà", min_size=4, max_size=30))
@settings(max_examples=100)
def test_mojibake_is_repaired_and_correct_texts_stay(text: str) -> None:
    repaired = TextPolicy(unicode="keep", spaces="keep", invisible="keep", mojibake="repair")
    high = [letter for letter in text if ord(letter) > 127]
    misread = text.encode().decode("latin-1")
    if len(high) >= 2 and any(letter.isalpha() for letter in high):
        assert repaired.apply(misread) == text
    assert repaired.apply(text) == text


@pytest.mark.parametrize(
    ("stored", "meant"),
    [
        pytest.param("Hodan &amp; fils", "Hodan & fils", id="a name"),
        pytest.param("l&#39;acte, &#x2116; 5", "l'acte, № 5", id="numbers"),
        pytest.param("a &amp;amp;lt; b", "a < b", id="three times"),
        pytest.param("Рога &amp; копыта РџСЂРёРІРµС‚", "Рога & копыта Привет", id="beside another encoding"),
        pytest.param("AT&T; &co; &#; & c", "AT&T; &co; &#; & c", id="no references"),
    ],
)
def test_signs_that_were_escaped_twice_are_repaired(stored: str, meant: str) -> None:
    assert TextPolicy(mojibake="repair").apply(stored) == meant
    assert TextPolicy().apply(stored) == stored


def test_two_spellings_of_a_line_have_the_same_letters() -> None:
    assert letters_of("Ёлка, ёлка! 5") == letters_of("елка е\u0308лка — 5") == "елкаелка5"


PROSE = "Въ началѣ іюня мы пріѣхали въ деревню, и дождь шелъ три дня подъ-рядъ. "
WORDS = st.text("абвгдежзик ", min_size=1, max_size=24).filter(lambda unit: any(map(str.isalpha, unit)))


@pytest.mark.parametrize(
    ("text", "start"),
    [
        pytest.param("Милая Соня! " + "ой " * 40, 12, id="a word"),
        pytest.param("Милая Соня! " + "а" * 60, 12, id="a letter"),
        pytest.param("я и ты " + "и он тоже был тамъ " * 5 + "и он то", 7, id="a phrase that is cut off"),
        pytest.param("ой " * 40 + "и конец.", 0, id="a few words after it"),
        pytest.param("да: " + "ой " * 14 + "ай " + "ой " * 14, 4, id="interrupted by a guard"),
        pytest.param(PROSE + "." * 400, len(PROSE), id="signs, far more than a row of them"),
        pytest.param("<table>" + "<td>нет</td>" * 60, 7, id="cells without end"),
        pytest.param("abc " * 50, 0, id="Latin letters"),
        pytest.param("語" * 99, 0, id="other letters"),
    ],
)
def test_loop_is_found_where_it_begins(text: str, start: int) -> None:
    found = loop_start(text)
    assert found is not None
    assert abs(found - start) <= 1, "a space before the loop may belong to it"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param(PROSE, id="prose"),
        pytest.param(PROSE * 4, id="a paragraph copied three times"),
        pytest.param("ха-ха-ха, сказал онъ, ха-ха-ха!", id="laughter"),
        pytest.param("ха-ха-ха-ха-ха-ха-ха-ха-ха", id="much laughter"),
        pytest.param("Аллилуйя, аллилуйя, аллилуйя, слава Тебѣ, Боже", id="a prayer"),
        pytest.param("Господи, помилуй. " * 3, id="a prayer said thrice"),
        pytest.param("Глава первая" + "." * 120 + "17", id="dots to a page number"),
        pytest.param("-" * 150, id="a rule of dashes"),
        pytest.param("_ " * 80, id="a blank to fill in"),
        pytest.param("| --- " * 20 + "|", id="the rule of a table"),
        pytest.param("| нет " * 20 + "|", id="a row that says no"),
        pytest.param("0\t" * 40, id="a column of zeros"),
        pytest.param("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", id="zeros"),
        pytest.param("да\n" * 20, id="a column of answers"),
        pytest.param("Ой, морозъ, морозъ,\nне морозь меня,\n" * 5, id="a refrain"),
        pytest.param("ой " * 40 + PROSE, id="found its way out"),
        pytest.param("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25", id="numbers that count"),
    ],
)
def test_no_loop(text: str) -> None:
    assert not is_looping(text)


@given(WORDS, st.integers(5, 30), st.integers(0, 23))
def test_anything_repeated_often_enough_is_a_loop(unit: str, times: int, cut: int) -> None:
    looping = PROSE + (unit * (times + 40 // len(unit)) + unit[: cut % len(unit)]).rstrip()
    start = loop_start(looping)
    assert start is not None
    assert start <= len(PROSE) + 2 * len(unit)
