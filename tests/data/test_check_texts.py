"""Checks of texts: characters, encodings, spelling and transcribers' conventions; ordinary texts pass."""

import pytest

from dsocr.data.check.findings import CheckedSample, Finding
from dsocr.data.check.text_checks import check_habits, check_letters, check_repeats, count_marks
from tests.data.check_samples import details, run_check, sample


def letters(*texts: str) -> dict[str, Finding]:
    return run_check(check_letters, [sample(number, text) for number, text in enumerate(texts, start=1)])


CLEAN = [
    "Милая Соня! Письмо твоё пришло в четверг,",
    "«СССР», «Ёлка» — № 7 (1905 г.); «Р»",
    "Déjà vu à l'école créée, naïve Œuvre «CAFÉ»",
    "Größe, Straße, Übermut; Ångström, façade",
    "USB-кабель, Wi-Fi и Windows XP в Москве, том IV, век XX",
    "Київ і Їжак, қазақ тілі",
    "Γειά σου, κόσμε",
]


@pytest.mark.parametrize("text", CLEAN)
def test_ordinary_texts_pass(text: str) -> None:
    assert letters(text, text) == {}


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        pytest.param("мaма", "'мaма' has Latin a", id="a Latin letter in a Cyrillic word"),
        pytest.param("Hаука и cтол", "'Hаука' has Latin H, 'cтол' has Latin c", id="two words"),
        pytest.param("Lоndоn", "'Lоndоn' has Cyrillic о", id="Cyrillic letters in a Latin word"),
        pytest.param("исторiя", "'исторiя' has Latin i", id="a Latin i for the old letter"),
        pytest.param("он a она", "'a' between Cyrillic words is Latin", id="a word of one letter"),
        pytest.param("точка a на прямой AB", None, id="Latin words beside it"),
        pytest.param("DVDшка", None, id="letters that do not look alike"),
    ],
)
def test_look_alikes(text: str, detail: str | None) -> None:
    findings = letters(text, text)
    assert (details(findings["look-alikes"]) if detail else findings) == (
        [f"1: {detail}", f"2: {detail}"] if detail else {}
    )


@pytest.mark.parametrize(
    "character", ["\u00ad", "\u200b", "\ufeff", "\u00a0", "\u202f", "\u202e", "\u2060", "\x07", "\t"]
)
def test_invisible_characters(character: str) -> None:
    finding = letters("слово", f"сло{character}во")["invisible-characters"]
    assert (finding.severity, finding.where) == ("warning", "train/metadata.jsonl:2")
    assert f"U+{ord(character):04X}" in finding.examples[0].detail


@pytest.mark.parametrize("text", ["строка\nстрока", "می\u200cخواهم"], ids=["line break", "joiner of a script"])
def test_characters_that_only_seem_invisible(text: str) -> None:
    assert "invisible-characters" not in letters(text)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("utf-8", "cp1252"), ("utf-8", "latin-1"), ("utf-8", "cp1251"), ("cp1251", "latin-1")],
)
@pytest.mark.parametrize("text", ["Привет, мир", "Эхо съезда", "ёжик и щука"])
def test_wrong_encoding_is_named_with_the_intended_text(text: str, wrong: str, right: str) -> None:
    data = text.encode(wrong)
    broken = "".join(bytes([byte]).decode(right, errors="ignore") or bytes([byte]).decode("latin-1") for byte in data)
    detail = letters(broken)["mojibake"].examples[0].detail
    assert any(word in detail for word in text.replace(",", "").split() if len(word) > 3)


@pytest.mark.parametrize("text", ["cafÃ©", "Â«CafÂ»", "пропа\ufffdо"])
def test_single_broken_letters(text: str) -> None:
    assert letters(text)["mojibake"].severity == "warning"


@pytest.mark.parametrize(
    ("texts", "code", "expected"),
    [
        pytest.param(
            ("ах, да", "ах, да и ω", "и вот, вот"), "seen-once", ["2: ω, greek small letter omega"], id="seen once"
        ),
        pytest.param(
            ("Ещё ёлка", "ещё ёлка", "еще ёлка", "все и всё"), "mixed-yo", ["3: 'ещё' 2x and 'еще' 1x"], id="yo"
        ),
        pytest.param(("вѣкъ и мiръ",), "old-spelling", ["1: вѣкъ, мiръ"], id="old spelling"),
        pytest.param(("объезд и съезд, твёрдый знак ъ",), "old-spelling", [], id="a hard sign inside a word"),
    ],
)
def test_notes_on_letters(texts: tuple[str, ...], code: str, expected: list[str]) -> None:
    finding = letters(*texts).get(code)
    assert (details(finding) if finding else []) == expected
    assert finding is None or finding.severity == "note"


@pytest.mark.parametrize(
    "text",
    [
        "Милая Соня! Письмо твоё пришло в четверг, в 3-м часу?",
        "№ 7 (1905–1907 гг.), м. б. и позже; том IV — стр. 12",
        "Пиши мне: sonya@example.org, или #7, кв. 5",
        "5 < 7 и 7 > 5; a_b; век XX; (да?)",
        "Что?! Как??",
    ],
)
def test_ordinary_texts_have_no_marks(text: str) -> None:
    assert count_marks(text) == {}


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("><", ["><"]),
        (">struck out<", [">не пришёл<"]),
        ("<tag>", ["<unclear>шёл</unclear>"]),
        ("[words]", ["[неразб.]"]),
        ("[...]", ["[...]", "[…]"]),
        ("[?] or (?)", ["[?]", "(?)"]),
        ("???", ["???"]),
        ("xxx", ["ххх"]),
        ("¬", ["при¬"]),
        ("{}", ["{при}шёл"]),
        ("@", ["@"]),
        ("#", ["#"]),
        ("^ or _ or ~", ["~"]),
    ],
)
def test_transcribers_marks(name: str, marks: list[str]) -> None:
    assert all(name in count_marks(f"он {mark} пришёл") for mark in marks)


def test_marks_are_one_note_with_counts() -> None:
    findings = run_check(check_habits, [sample(1, "а [...] б [...]"), sample(2, "обычно"), sample(3, "??? и [...]")])
    assert list(findings) == ["markup-in-text"]
    note = findings["markup-in-text"]
    assert note.message.endswith(": [...] 3x, ??? 1x")
    assert details(note) == ["1: [...]", "3: [...], ???"]


@pytest.mark.parametrize(
    ("usual", "other", "counts"),
    [
        pytest.param("«да»", '"да"', 'quotes « » 5x, " " 1x', id="quotes"),
        pytest.param("да — нет", "да - нет", "dashes — 5x, - 1x", id="a hyphen for a dash"),
        pytest.param("да — нет", "да – нет", "dashes — 5x, – 1x", id="a short dash"),
        pytest.param("да…", "да...", "dots … 5x, ... 1x", id="dots"),
        pytest.param("d'or", "d’or", "apostrophes ' 5x, ’ 1x", id="apostrophes"),
        pytest.param("при-", "при¬", "hyphens at line ends - 5x, ¬ 1x", id="hyphens at line ends"),
    ],
)
def test_mixed_signs(usual: str, other: str, counts: str) -> None:
    finding = run_check(check_habits, [*(sample(number, usual) for number in range(1, 6)), sample(6, other)])[
        "mixed-punctuation"
    ]
    assert finding.message.endswith(counts)
    assert (finding.count, finding.where) == (1, "train/metadata.jsonl:6")


def test_no_sign_is_established_by_few_uses() -> None:
    assert run_check(check_habits, [sample(1, "«да»"), sample(2, '"да"')]) == {}
    assert run_check(check_habits, [sample(number, "да — нет, 1905–1907") for number in range(9)]) == {}


TEXT = "Милая Соня, письмо пришло"


@pytest.mark.parametrize(
    ("text", "second", "is_reported"),
    [
        pytest.param(TEXT, sample(2, TEXT), True, id="on the next line"),
        pytest.param(TEXT, sample(2, TEXT, page="2"), False, id="on another page"),
        pytest.param(TEXT, sample(2, TEXT, writer="boris"), False, id="by another writer"),
        pytest.param(TEXT, sample(2, TEXT, digest="train 1"), False, id="the same image, which is another finding"),
        pytest.param("да, да", sample(2, "да, да"), False, id="a short text"),
    ],
)
def test_text_copied_to_the_next_line(text: str, second: CheckedSample, is_reported: bool) -> None:
    findings = run_check(check_repeats, [sample(1, text), second, sample(3, "иначе")])
    assert set(findings) == ({"text-repeats"} if is_reported else set())
    if is_reported:
        assert details(findings["text-repeats"]) == ["2: as train/metadata.jsonl:1"]
        assert findings["text-repeats"].examples[0].other == "train/1.png"


def test_most_images_with_the_same_text() -> None:
    samples = [sample(number, TEXT if number % 3 else str(number), page=None) for number in range(30)]
    assert details(run_check(check_repeats, samples)["all-same-text"]) == ["1: 20 of 30 in train"]
    assert run_check(check_repeats, samples[:19]) == {}
