"""How transcribers write is told once with its counts, and ordinary texts are let be."""

import pytest

from dsocr.data.check.text_checks import check_habits, conventions
from tests.data.checking_samples import found, sample

CLEAN = [
    "Милая Соня! Письмо твоё пришло в четверг, в 3-м часу?",
    "№ 7 (1905–1907 гг.), м. б. и позже; том IV — стр. 12",
    "Пиши мне: sonya@example.org, или #7, кв. 5",
    "5 < 7 и 7 > 5; a_b; век XX; (да?)",
    "Что?! Как??",
]


@pytest.mark.parametrize("text", CLEAN)
def test_ordinary_texts_have_no_conventions(text: str) -> None:
    assert conventions(text) == {}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("он >< пришёл", "><"),
        ("он >не пришёл< ушёл", ">struck out<"),
        ("он <unclear>шёл</unclear>", "<tag>"),
        ("он [неразб.] пришёл", "[words]"),
        ("он [...] пришёл", "[...]"),
        ("он […] пришёл", "[...]"),
        ("он пришёл [?]", "[?] or (?)"),
        ("он (?) пришёл", "[?] or (?)"),
        ("он ??? пришёл", "???"),
        ("он ххх пришёл", "xxx"),
        ("при¬", "¬"),
        ("он {при}шёл", "{}"),
        ("он @ пришёл", "@"),
        ("он # пришёл", "#"),
        ("он ~ пришёл", "^ or _ or ~"),
    ],
)
def test_signs_of_transcribers(text: str, name: str) -> None:
    assert name in conventions(text)


def test_conventions_are_one_note_with_counts() -> None:
    finding = found(check_habits, [sample(1, "а [...] б [...]"), sample(2, "обычно"), sample(3, "??? и [...]")])
    assert list(finding) == ["markup-in-text"]
    note = finding["markup-in-text"]
    assert note.message.endswith(": [...] 3x, ??? 1x")
    assert note.examples == ("train/metadata.jsonl:1: [...]", "train/metadata.jsonl:3: [...], ???")


@pytest.mark.parametrize(
    ("usual", "other", "told"),
    [
        pytest.param("«да»", '"да"', 'quotes « » 5x, " " 1x', id="quotes"),
        pytest.param("да — нет", "да - нет", "dashes — 5x, - 1x", id="a hyphen for a dash"),
        pytest.param("да — нет", "да – нет", "dashes — 5x, – 1x", id="a short dash"),
        pytest.param("да…", "да...", "dots … 5x, ... 1x", id="dots"),
        pytest.param("d'or", "d’or", "apostrophes ' 5x, ’ 1x", id="apostrophes"),
        pytest.param("при-", "при¬", "hyphens at line ends - 5x, ¬ 1x", id="hyphens at line ends"),
    ],
)
def test_a_sign_that_deviates(usual: str, other: str, told: str) -> None:
    items = [*(sample(number, usual) for number in range(1, 6)), sample(6, other)]
    finding = found(check_habits, items)["mixed-punctuation"]
    assert finding.message.endswith(told)
    assert [example.partition(": ")[0] for example in finding.examples] == ["train/metadata.jsonl:6"]


def test_no_sign_is_usual_where_there_are_few() -> None:
    assert found(check_habits, [sample(1, "«да»"), sample(2, '"да"')]) == {}
    assert found(check_habits, [sample(number, "да — нет, 1905–1907") for number in range(9)]) == {}
