"""The lines to draw, out of a text file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.data.synthesize import LONGEST, SHORTEST, choose_lines
from dsocr.errors import DataError
from tests.data.making import write


def test_short_lines_are_taken_as_they_stand(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "\ufeffПервая  строка\r\n\r\n второ\u0438\u0306 \nтретья")
    assert sorted(choose_lines(path, 10, 1).lines) == ["Первая строка", "второй", "третья"]


def test_running_text_is_broken_at_word_ends_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    words = [f"слово{number}" for number in range(400)]
    lines = choose_lines(write(tmp_path / "t.txt", " ".join(words)), 1000, 1).lines
    assert sorted(" ".join(lines).split()) == sorted(words)
    assert max(map(len, lines)) <= LONGEST
    assert sum(len(line) < SHORTEST - 9 for line in lines) <= 1


def test_lines_that_come_again_count_once(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "да\nнет\nда\nда \n")
    assert sorted(choose_lines(path, 10, 1).lines) == ["да", "нет"]


def test_the_seed_decides_which_lines_and_their_order(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "\n".join(map(str, range(1000))))
    first, same, other = (choose_lines(path, 20, seed).lines for seed in (1, 1, 2))
    assert first == same != other
    assert len(set(first)) == 20
    assert len(set(first) & set(other)) < 5


def test_every_line_has_the_same_chance_wherever_it_stands(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "\n".join(map(str, range(100))))
    chosen = [int(line) for seed in range(60) for line in choose_lines(path, 10, seed).lines]
    assert 210 < sum(number < 50 for number in chosen) < 390


def test_what_is_no_line_to_draw_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", f"a\u200bb\n{'x' * 61} and {'y' * 70}\ngood\n")
    chosen = choose_lines(path, 10, 1)
    assert sorted(chosen.lines) == ["and", "good"]
    assert dict(chosen.passed_over) == {
        "lines with characters that nobody can see": 1,
        "words of more than 60 characters": 2,
    }


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(b"", "nothing to draw", id="an empty file"),
        pytest.param(b" \n\t\n", "nothing to draw", id="white space"),
        pytest.param("привет".encode("cp1251"), "is not UTF-8", id="another encoding"),
        pytest.param(b"abc \xd0", "is not UTF-8", id="cut within a letter"),
    ],
)
def test_a_text_that_cannot_be_used_is_a_sentence(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        choose_lines(path, 10, 1)


def test_a_missing_text_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        choose_lines(tmp_path / "nowhere.txt", 10, 1)


@pytest.mark.parametrize("end", [" ", ""], ids=["words", "one endless word"])
def test_a_line_of_megabytes_is_read_in_pieces(end: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", f"ёлка{end}" * 100_000 + "\nlast")
    chosen = choose_lines(path, 5, 1)
    assert len(chosen.lines) <= 5
    assert set("".join(chosen.lines)) <= set("ёлка last")


@given(st.text(max_size=300), st.integers(1, 20))
def test_any_text_gives_clean_lines_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, text: str, count: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "t.txt"
    path.write_bytes(text.encode("utf-8", "ignore"))
    try:
        lines = choose_lines(path, count, 1).lines
    except DataError:
        return
    assert 0 < len(lines) <= count
    assert all(line == " ".join(line.split()) and line and len(line) <= LONGEST for line in lines)
