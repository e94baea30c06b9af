"""What nobody sees in a transcription is named, and ordinary texts in several languages are let be."""

from dataclasses import replace
from pathlib import Path

import pytest

from dsocr.data.check.findings import Checked, Finding, Findings
from dsocr.data.check.text_checks import check_letters, invisible, look_alikes, mojibake
from dsocr.document import Sample, Split


def found(*texts: str) -> dict[str, Finding]:
    sample = Sample("train/a.png", Path("a.png"), "", Split.TRAIN)
    checked = [
        Checked(f"train/metadata.jsonl:{line}", replace(sample, text=text), None, None)
        for line, text in enumerate(texts, start=1)
    ]
    findings = Findings()
    check_letters(checked, findings)
    return {finding.code: finding for finding in findings.listed()}


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
def test_ordinary_texts_are_let_be(text: str) -> None:
    assert found(text, text) == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("мaма", "'мaма' has Latin a", id="a Latin letter in a Cyrillic word"),
        pytest.param("Hаука и cтол", "'Hаука' has Latin H, 'cтол' has Latin c", id="two words"),
        pytest.param("Lоndоn", "'Lоndоn' has Cyrillic о", id="Cyrillic letters in a Latin word"),
        pytest.param("исторiя", "'исторiя' has Latin i", id="a Latin i for the old letter"),
        pytest.param("он a она", "'a' between Cyrillic words is Latin", id="a word of one letter"),
        pytest.param("точка a на прямой AB", "", id="Latin words stand beside it"),
        pytest.param("DVDшка", "", id="letters that do not look alike"),
    ],
)
def test_letters_of_another_script(text: str, told: str) -> None:
    assert ", ".join(look_alikes(text)) == told


@pytest.mark.parametrize(
    "character", ["\u00ad", "\u200b", "\ufeff", "\u00a0", "\u202f", "\u202e", "\u2060", "\x07", "\t"]
)
def test_what_nobody_sees(character: str) -> None:
    finding = found("слово", f"сло{character}во")["invisible-characters"]
    assert (finding.severity, finding.where) == ("warning", "train/metadata.jsonl:2")
    assert f"U+{ord(character):04X}" in finding.examples[0]


def test_line_breaks_and_the_joiners_of_a_script_are_no_fault() -> None:
    assert invisible("строка\nстрока") == []
    assert invisible("می\u200cخواهم") == []


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("utf-8", "cp1252"), ("utf-8", "latin-1"), ("utf-8", "cp1251"), ("cp1251", "latin-1")],
)
@pytest.mark.parametrize("text", ["Привет, мир", "Эхо съезда", "ёжик и щука"])
def test_a_wrong_encoding_is_named_with_what_was_meant(text: str, wrong: str, right: str) -> None:
    data = text.encode(wrong)
    broken = "".join(bytes([byte]).decode(right, errors="ignore") or bytes([byte]).decode("latin-1") for byte in data)
    told = " ".join(mojibake(broken))
    assert any(word in told for word in text.replace(",", "").split() if len(word) > 3)


@pytest.mark.parametrize("text", ["cafÃ©", "Â«CafÂ»", "пропа\ufffdо"])
def test_single_broken_letters(text: str) -> None:
    assert found(text)["mojibake"].severity == "warning"


def test_characters_seen_once() -> None:
    finding = found("ах, да", "ах, да и ω", "и вот, вот")["seen-once"]
    assert (finding.severity, finding.count) == ("note", 1)
    assert finding.examples == ("train/metadata.jsonl:2: ω, greek small letter omega",)


def test_words_with_and_without_yo() -> None:
    finding = found("Ещё ёлка", "ещё ёлка", "еще ёлка", "все и всё")["mixed-yo"]
    assert (finding.severity, finding.count) == ("note", 1)
    assert finding.examples == ("train/metadata.jsonl:3: 'ещё' 2x and 'еще' 1x",)


def test_the_old_spelling_is_a_note() -> None:
    finding = found("вѣкъ и мiръ")["old-spelling"]
    assert (finding.severity, finding.count) == ("note", 1)
    assert "old-spelling" not in found("объезд и съезд, твёрдый знак ъ")
