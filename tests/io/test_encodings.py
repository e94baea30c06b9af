"""Texts that are not UTF-8 are rejected with their likely encoding, and read in the one that is named."""

from pathlib import Path

import pytest

from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.document import Split
from dsocr.errors import RunError
from dsocr.io.encodings import likely_encoding, read_object, read_text, reading_json, text_encoding
from tests.data.making import picture, write
from tests.integration.calling import call
from tests.raising import raises_code

RUSSIAN = [
    "Съешь ещё этих мягких французских булок, да выпей чаю",
    "Я пришёл домой в 5 часов вечера, и никого не было",
    "Петербург, 12 марта 1905 г.",
    "Здравствуй, дорогая мама!",
    "«Зима» — стихотворение № 7",
    "Опись имущества крестьянина Ивана Петрова сына",
    "МОСКВА",
    "и снег",
    "image\ttext\n1.png\tКрестьяне пахали землю\n2.png\tЯрмарка в селе",
]


WESTERN = ["L'été dernier, il a fait très chaud à Québec", "Straße nach Köln", "garçon"]
SHORT = [*RUSSIAN, "été", "the end"]


@pytest.mark.parametrize(
    ("encoding", "texts"),
    [
        *(pytest.param(encoding, RUSSIAN, id=encoding) for encoding in ("cp1251", "koi8-r", "cp866")),
        *(pytest.param(encoding, SHORT, id=encoding) for encoding in ("utf-16", "utf-16-le", "utf-16-be")),
        pytest.param("cp1252", WESTERN, id="accents between Latin letters"),
    ],
)
def test_an_encoding_is_recognised_by_its_letters(encoding: str, texts: list[str]) -> None:
    assert {text: likely_encoding(text.encode(encoding, errors="ignore")) for text in texts} == dict.fromkeys(
        texts, encoding
    )


@pytest.mark.parametrize(
    "data", [b"\x81\x8d\x8f\x90\x9d", bytes(range(128, 256)), b"\xb0\xb1\xb2\xb3", b"", b"plain", 9 * b"ab\4c"]
)
def test_what_makes_no_sense_is_nothing(data: bytes) -> None:
    assert likely_encoding(data) is None


@pytest.mark.parametrize("encoding", ["cp1251", "utf-16"])
def test_a_table_is_read_in_the_encoding_that_is_named(tmp_path: Path, encoding: str) -> None:
    for number in (1, 2):
        picture(tmp_path / f"s/{number}.png", colour=(number, 0, 0))
    write(tmp_path / "s/lines.tsv", RUSSIAN[-1], encoding=encoding)
    with raises_code("no-samples"):
        prepare(tmp_path / "s", tmp_path / "out", format="table", split="1/0/0")
    out = prepare(tmp_path / "s", tmp_path / "out", split="1/0/0", encoding=encoding).folder
    texts = [sample.text for sample in Dataset.open(out).samples(Split.TRAIN)]
    assert texts == ["Крестьяне пахали землю", "Ярмарка в селе"]


def test_a_conversion_reads_the_encoding_that_its_refusal_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture(tmp_path / "s/1.png")
    picture(tmp_path / "s/2.png")
    write(tmp_path / "s/lines.tsv", RUSSIAN[-1], encoding="cp1251")
    arguments = ["convert", tmp_path / "s", "-o", tmp_path / "out", "--to", "tsv", "--format", "table"]
    assert "cp1251" in call(monkeypatch, capsys, *arguments, code=2)[1]
    call(monkeypatch, capsys, *arguments, "--encoding", "cp1251")
    (table,) = (tmp_path / "out").rglob("*.tsv")
    assert "Крестьяне пахали землю" in table.read_text(encoding="utf-8")


@pytest.mark.parametrize("encoding", ["cp1251", "utf-16"])
def test_utf8_is_detected_even_if_another_encoding_is_named(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path / "a.txt", RUSSIAN[0])
    with text_encoding(encoding):
        assert read_text(path) == RUSSIAN[0]


@pytest.mark.parametrize(
    ("encoding", "code"),
    [("cp1251", "wrong-encoding"), ("cp9999", "encoding-unknown"), ("base64", "encoding-unknown")],
)
def test_a_file_in_a_third_encoding_and_an_unknown_one_are_errors(tmp_path: Path, encoding: str, code: str) -> None:
    (tmp_path / "a.txt").write_bytes(b"\x98\xd1\xd1")
    with raises_code(code), text_encoding(encoding):
        read_text(tmp_path / "a.txt")


@pytest.mark.parametrize("text", ["мир", "the end"])
def test_two_bytes_a_letter_without_a_mark_are_no_utf8_with_controls(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.txt", text, encoding="utf-16-le")
    with raises_code("not-utf8"):
        read_text(path)
    with text_encoding("utf-16-le"):
        assert read_text(path) == text


def test_a_named_encoding_is_forgotten_afterwards(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", RUSSIAN[0], encoding="cp1251")
    with text_encoding("cp1251"):
        assert read_text(path) == RUSSIAN[0]
    with raises_code("not-utf8", "a.txt") as error:
        read_text(path)
    assert "--encoding cp1251" in error.value.render()


@pytest.mark.parametrize("content", [None, b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_an_object_that_cannot_be_read_is_empty_or_an_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    assert read_object(path) == {}
    failing = pytest.raises(FileNotFoundError) if content is None else raises_code("no-run", str(path))
    with failing, reading_json(path, RunError, "no-run") as read:
        read["key"]


def test_an_object_is_read_and_errors_of_its_reader_pass(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", '{"имя": 1}')
    assert read_object(path) == {"имя": 1}
    with raises_code("other"), reading_json(path, RunError, "no-run") as read:
        raise RunError(str(read), code="other")
    with pytest.raises(ZeroDivisionError), reading_json(path, RunError, "no-run"):
        raise ZeroDivisionError
