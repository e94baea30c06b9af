"""Rows of delimited files: whoever wrote them, each comes back as it was or is refused."""

import csv
import io
import os
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dsocr.errors import DataError
from dsocr.evaluation.predictions import read_predictions
from dsocr.formats.tables import read_rows, read_table
from dsocr.io.encodings import text_encoding
from tests.raising import raises_code

WRITERS = {
    "csv": {"delimiter": ","},
    "quoted": {"delimiter": ",", "quoting": csv.QUOTE_ALL},
    "spreadsheet": {"delimiter": ";"},
    "tabs": {"delimiter": "\t"},
    "quoted tabs": {"delimiter": "\t", "quoting": csv.QUOTE_ALL},
}
BY_HAND = {"commas": ",", "semicolons": ";", "tabulators": "\t"}


def written(rows: list[list[str]], form: str) -> str:
    if form in BY_HAND:
        return "".join(BY_HAND[form].join(row) + "\n" for row in rows)
    text = io.StringIO(newline="")
    csv.writer(text, **WRITERS[form]).writerows(rows)  # type: ignore[arg-type]
    return text.getvalue()


def is_written_by_csv(text: str, delimiter: str) -> bool:
    """Whether a library would write the very same file for other texts, which no reader can tell."""
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    copy = io.StringIO(newline="")
    csv.writer(copy, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return '"' in text and copy.getvalue() == text


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@settings(max_examples=int(os.environ.get("DRAWS", "150")))
@given(
    st.lists(st.text(alphabet='",;\t|\na Дб.', min_size=1, max_size=8), min_size=1, max_size=8),
    st.sampled_from([*WRITERS, *BY_HAND]),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["utf-8", "utf-8-sig", "cp1251", "utf-16"]),
)
@example(['"Да', "б", 'в"'], "commas", 0, True, True, "utf-8")
@example(["Да, б", "в,", "г"], "commas", 0, False, True, "utf-8")
@example(['"а, б"', 'в "г"'], "commas", 1, True, True, "utf-8")
@example(["а\nб"], "commas", 2, True, False, "utf-8")
@example(["\n;;"], "semicolons", 1, True, False, "utf-8")
def test_rows_come_back_or_are_refused(
    table: Path, lines: list[str], form: str, extra: int, has_header: bool, text_last: bool, encoding: str
) -> None:
    names, others = [f"l{number}.png" for number in range(len(lines))], ["x", "y", "z"][:extra]
    assume(has_header or not extra)
    head = ["image", *others, "text"] if text_last else ["image", "text", *others]
    rows = [
        [{"image": name, "text": text}.get(key, key) for key in head] for name, text in zip(names, lines, strict=True)
    ]
    content = written([head] * has_header + rows, form)
    if form in BY_HAND:
        assume(not is_written_by_csv(content, BY_HAND[form]))
        assume(not all(text[0] == text[-1] == '"' for text in lines))
        assume(has_header or not (BY_HAND[form] == "\t" and all("\t" in text for text in lines)))
    path = table / ("t.tsv" if "tab" in form else "t.csv")
    path.write_text(content, encoding=encoding, newline="")
    try:
        with text_encoding(None if encoding.startswith("utf-8") else encoding):
            read_back = read_table(path, {})
    except DataError as error:
        if error.code != "table-headless":
            raise
        return
    image, column = ("image", "text") if has_header else read_back.header[:2]
    found = {cells[image]: cells[column] for _, cells in read_back.rows}
    ends = list(accumulate((written([row], form).count("\n") for row in rows), initial=has_header))
    for name, text, start, end in zip(names, lines, ends, ends[1:], strict=False):
        if name in found:
            assert found[name].split() == text.split()
        else:
            assert any(start < int(number) <= end for number, _ in read_back.skipped)


LINES = [
    "Пришло письмо,",
    "онъ пишетъ:",
    '"Дорога плохая',
    "и хлѣба нѣтъ,",
    'пришлите денегъ, хлѣба"',
    "Отвѣчено; въ среду",
]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        pytest.param("file_name,text\n", "{},{}\n", id="commas"),
        pytest.param("", "{},{}\n", id="commas without header"),
        pytest.param("Имя файла;Если есть, подпись, дата;Текст\r\n", "{};;{}\r\n", id="commas in a header"),
        pytest.param("image\ttext\n", "{}\t{}\n", id="tabs"),
    ],
)
def test_lines_written_without_quotes_stay_whole(tmp_path: Path, header: str, row: str) -> None:
    rows = [row.format(f"{number}.png", line) for number, line in enumerate(LINES)]
    name = "t.tsv" if "\t" in row else "t.csv"
    (tmp_path / name).write_text(header + "".join(rows), encoding="utf-8", newline="")
    found = read_rows(tmp_path / name, {})[1]
    assert [list(cells.values())[-1] for _, cells in found] == LINES


def test_ambiguous_columns_are_an_error_until_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a.png,онъ пишетъ,Анна\n", encoding="utf-8")
    with raises_code("table-headless", "t.csv"):
        read_rows(tmp_path / "t.csv", {})
    ((_, cells),) = read_rows(tmp_path / "t.csv", {"image": "1", "text": "2", "writer": "3"})[1]
    assert cells == {"1": "a.png", "2": "онъ пишетъ", "3": "Анна"}


def test_a_row_that_may_be_either_is_refused_and_a_file_of_predictions_with_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,text\na,"да, нѣтъ"\nb,"да", сказалъ онъ\n', encoding="utf-8")
    with raises_code("row-refused", "t.csv:2"):
        read_predictions(tmp_path / "t.csv")


@pytest.mark.parametrize("rest", ["и хлѣба, такъ", "и,такъ", "въ 1905 году, да", "и\nхлѣба, такъ", "и"])
@pytest.mark.parametrize("ids", ["a1 a2 a3", "л/12 л/12об л/13", "1 2 3"])
def test_the_rest_of_a_broken_text_is_no_prediction(tmp_path: Path, rest: str, ids: str) -> None:
    first, *others = [f"{id_},Дорога\n" for id_ in ids.split()]
    (tmp_path / "t.csv").write_text(f"id,text\n{first}{rest}\n{''.join(others)}", encoding="utf-8")
    with raises_code("row-refused", "t.csv:2"):
        read_predictions(tmp_path / "t.csv")


@pytest.mark.parametrize("ids", ["a1 a2 cover", "9 9об 10 10об", "3fa beef 0b1 12c", "cover a1"])
def test_predictions_may_have_unlike_names_if_they_are_quoted(tmp_path: Path, ids: str) -> None:
    (tmp_path / "t.csv").write_text(
        written([["id", "text"], *([id_, "да"] for id_ in ids.split())], "quoted"), encoding="utf-8"
    )
    assert [prediction.name for prediction in read_predictions(tmp_path / "t.csv").predictions] == ids.split()


def test_a_quoted_text_never_takes_up_the_next_prediction(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,text\na1,"Дорога\na2,и хлѣба\na3,такъ"\na4,x\n', encoding="utf-8")
    found = [(prediction.name, prediction.text) for prediction in read_predictions(tmp_path / "t.csv").predictions]
    assert found == [("a1", '"Дорога'), ("a2", "и хлѣба"), ("a3", 'такъ"'), ("a4", "x")]


ALL = [f"{number}.png" for number in range(12)]


@pytest.mark.parametrize(
    ("content", "texts", "refused"),
    [
        pytest.param("".join(f'{name},"да"\n' for name in ALL), ["да"] * 12, [], id="quotes around all of a column"),
        pytest.param("".join(f'{name}, "да"\n' for name in ALL), ["да"] * 12, [], id="spaces before quotes"),
        pytest.param(
            "".join(f'{name},"да"\n' for name in ALL) + 'a.png,"онъ "да""\n', ["да"] * 12, [14], id="quotes not doubled"
        ),
        pytest.param('a.png,"да"\nb.png,"нѣтъ"\n', [], [2, 3], id="too few to tell"),
        pytest.param('a.png,"да"\nb.png,нѣтъ\n', ['"да"', "нѣтъ"], [], id="a text in quotes"),
        pytest.param('a.png,раз\nдва\nb.png,"а, б"\n', ["а, б"], [2, 3], id="a line break among quotes"),
        pytest.param("a.png,раз\rb.png,два\r", ["раз", "два"], [], id="line ends of an old Mac"),
        pytest.param("a.png,раз,,\nb.png,два, три,,\n", [], [2, 3], id="empty cells that the header lacks"),
        pytest.param("a.png,раз,,\nb.png,два\n", ["два"], [2], id="empty cells of a block of rows"),
        pytest.param("a.png,раз,\nb.png,два,\n", [], [2, 3], id="one empty cell or a comma"),
        pytest.param("a.png,\nb.png,\n", ["", ""], [], id="no texts"),
        pytest.param('a.png,"раз,,"\nb.png,"два,,"\n', ["раз,,", "два,,"], [], id="commas in quotes"),
    ],
)
def test_quotes_are_those_that_the_table_shows(
    tmp_path: Path, content: str, texts: list[str], refused: list[int | str]
) -> None:
    end = "\r" if "\r" in content else "\n"
    (tmp_path / "t.csv").write_text(f"image,text{end}{content}", encoding="utf-8", newline="")
    table = read_table(tmp_path / "t.csv", {})
    numbers = [number for number, _ in table.skipped]
    assert ([cells["text"] for _, cells in table.rows], numbers) == (texts, refused)


def test_a_text_before_its_image_never_takes_up_the_next(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('text,image\n"да,a.png\nнѣтъ",b.png\n"въ\nдвухъ",c.png\n', encoding="utf-8")
    table = read_table(tmp_path / "t.csv", {})
    numbers = [number for number, _ in table.skipped]
    assert ([cells["image"] for _, cells in table.rows], numbers) == (["a.png", "b.png"], [4, 5])


def test_named_columns_of_a_table_without_header_take_the_rest_into_the_last(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a.png,раз, два\nb.png,три, четыре, пять\n", encoding="utf-8")
    rows = read_rows(tmp_path / "t.csv", {"image": "1", "text": "2"})[1]
    assert [cells["2"] for _, cells in rows] == ["раз, два", "три, четыре, пять"]


@pytest.mark.parametrize("form", [*WRITERS, *BY_HAND])
def test_predictions_are_the_same_in_every_spelling(tmp_path: Path, form: str) -> None:
    path = tmp_path / ("t.tsv" if "tab" in form else "t.csv")
    texts = [text for text in LINES if form != "semicolons" or ";" not in text]
    content = written([["id", "text"], *([f"a{number}", text] for number, text in enumerate(texts))], form)
    path.write_text(content, encoding="utf-8", newline="")
    assert [prediction.text for prediction in read_predictions(path).predictions] == texts
