"""Predictions of other tools: what is read, whose line each is, and what is refused or counted in the open."""

import json
import unicodedata
from pathlib import Path

import pytest

from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.evaluation.predictions import Matched, Missing, match, read_predictions
from dsocr.io.encodings import text_encoding
from dsocr.text import TextPolicy
from tests.data.making import alto, page_xml, write

TEXTS = ["Ёж йод", "щука", "=1+1"]


def sample(number: int, text: str, *, page: str = "p", box: tuple[int, int, int, int] | None = None) -> Sample:
    return Sample(
        id=f"test/images/{page}_{number:04d}.png",
        image=Path("p.png"),
        text=text,
        split=Split.TEST,
        page=page,
        source=f"page/{page}.xml:{number}",
        geometry={} if box is None else {"bbox": list(box)},
    )


SAMPLES = [sample(number, text) for number, text in enumerate(TEXTS)]
PLACED = [sample(number, text, box=(10, 100 * number, 400, 100 * number + 60)) for number, text in enumerate(TEXTS)]


def taken(path: Path, samples: list[Sample] = SAMPLES, *, missing: Missing = "refuse", **columns: str) -> Matched:
    return match(read_predictions(path, columns), samples, TextPolicy(), missing=missing)


def texts_of(matched: Matched) -> list[str]:
    return [matched.predictions[name].text for name in sorted(matched.predictions)]


def jsonl(path: Path, *rows: object) -> Path:
    write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("name", "content", "how"),
    [
        pytest.param(
            "a.jsonl",
            "".join(json.dumps({"id": one.id, "text": one.text}) + "\n" for one in SAMPLES),
            "by id: 3 of 3 lines",
            id="JSON lines with ids",
        ),
        pytest.param(
            "a.jsonl",
            "".join(
                json.dumps({"image": f"D:\\x\\p_000{n}.PNG", "label": "?", "pred": TEXTS[n]}) + "\n" for n in (2, 1, 0)
            ),
            "by file name without suffix: 3 of 3 lines",
            id="paths of another machine, the transcription beside what was read",
        ),
        pytest.param(
            "a.tsv",
            "".join(f"lines/p_000{n}.png\t{text}\n" for n, text in enumerate(TEXTS)),
            "by file name: 3 of 3 lines",
            id="TSV without a header",
        ),
        pytest.param(
            "a.csv",
            "file_name,prediction\n" + "".join(f"p_000{n}.jpg,{text}\n" for n, text in enumerate(TEXTS)),
            "by file name without suffix: 3 of 3 lines",
            id="CSV, another suffix",
        ),
        pytest.param(
            "a.csv",
            "\ufeffid;text\r\n" + "".join(f"p_000{n};{text}\r\n" for n, text in enumerate(TEXTS)),
            "by file name without suffix: 3 of 3 lines",
            id="CSV of a spreadsheet on Windows",
        ),
    ],
)
def test_tables_are_read_and_matched(name: str, content: str, how: str, tmp_path: Path) -> None:
    write(tmp_path / name, content)
    matched = taken(tmp_path / name)
    assert texts_of(matched) == TEXTS
    assert how in matched.notes


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", *({"line": f"p_000{n}", "best": text} for n, text in enumerate(TEXTS)))
    assert texts_of(taken(path, id="line", text="best")) == TEXTS


def test_a_text_file_for_each_line_is_read_and_ground_truth_beside_it_is_not(tmp_path: Path) -> None:
    for n, text in enumerate(TEXTS):
        write(tmp_path / f"p_000{n}.pred.txt", f"{text}\n")
        write(tmp_path / f"p_000{n}.gt.txt", "правда\n")
    assert texts_of(taken(tmp_path)) == TEXTS


def page_line(number: int, text: str, *, moved: int = 0) -> str:
    top, bottom = 100 * number + moved, 100 * number + 60 + moved
    return (
        f'<TextLine id="tr_{9 - number}"><Coords points="12,{top} 398,{top} 398,{bottom} 12,{bottom}"/>'
        f"<TextEquiv><Unicode>{text}</Unicode></TextEquiv></TextLine>"
    )


def test_page_lines_are_matched_by_where_they_stand(tmp_path: Path) -> None:
    """In another order, a little moved, one more line than the dataset has."""
    lines = [page_line(n, text, moved=7) for n, text in enumerate([*TEXTS, "ещё"])]
    write(tmp_path / "export/page/p.xml", page_xml(f'<TextRegion id="r">{"".join(lines[::-1])}</TextRegion>'))
    matched = taken(tmp_path / "export", PLACED)
    assert texts_of(matched) == TEXTS
    assert "by page and place on it: 3 of 3 lines" in matched.notes
    assert any("1 predictions of no line of the split, not used: page/p.xml:" in remark for remark in matched.notes)


def test_alto_lines_are_matched_by_where_they_stand(tmp_path: Path) -> None:
    lines = "".join(
        f'<TextLine HPOS="10" VPOS="{100 * n}" WIDTH="380" HEIGHT="55"><String CONTENT="{text}"/></TextLine>'
        for n, text in enumerate(TEXTS)
    )
    write(tmp_path / "p.xml", alto(lines))
    assert texts_of(taken(tmp_path / "p.xml", PLACED)) == TEXTS


def test_a_sample_that_is_a_whole_page_takes_its_lines_together(tmp_path: Path) -> None:
    lines = "".join(page_line(n, text) for n, text in enumerate(TEXTS))
    write(tmp_path / "p.xml", page_xml(f'<TextRegion id="r">{lines}</TextRegion>'))
    matched = taken(tmp_path, [sample(1, "\n".join(TEXTS))])
    assert texts_of(matched) == ["\n".join(TEXTS)]
    assert not any("not used" in remark for remark in matched.notes)


def test_two_pages_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    samples = [sample(0, text, page=f"{box}/p", box=(10, 0, 400, 60)) for box, text in (("a", "раз"), ("b", "два"))]
    for box, text in (("a", "раз"), ("b", "два")):
        write(tmp_path / f"page/{box}/p.xml", page_xml(f'<TextRegion id="r">{page_line(0, text)}</TextRegion>'))
    assert texts_of(taken(tmp_path, samples)) == ["раз", "два"]
    with pytest.raises(DataError, match="2 pages of the dataset are called p"):
        taken(tmp_path / "page/a", samples)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param(
            [("p_0000", "а"), ("p_0002", "б")],
            r"no prediction for 1 of 3 lines \(by file name without suffix\): test/images/p_0001.png",
            id="a line is missing",
        ),
        pytest.param(
            [("x", "а"), ("y", "б")], "none of the 2 predictions is of one of the 3 lines", id="another dataset"
        ),
        pytest.param(
            [("p_0000", "а"), ("p_0000", "б")],
            "a.tsv:2 and a.tsv:3 are both of the line test/images/p_0000.png, and differ",
            id="one line twice",
        ),
    ],
)
def test_what_does_not_fit_is_refused(rows: list[tuple[str, str]], message: str, tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "id\ttext\n" + "".join(f"{name}\t{text}\n" for name, text in rows))
    with pytest.raises(DataError, match=message):
        taken(tmp_path / "a.tsv")


def test_what_was_not_plain_is_counted(tmp_path: Path) -> None:
    rows = [("p_0000", unicodedata.normalize("NFD", "Ёж  йод")), ("p_0000", unicodedata.normalize("NFD", "Ёж  йод"))]
    rows += [("p_0002", " "), ("p_0777", "?")]
    path = jsonl(tmp_path / "a.jsonl", *({"id": name, "text": text} for name, text in rows))
    matched = taken(path, missing="empty")
    assert texts_of(matched) == ["Ёж йод", "", ""]
    assert matched.notes == [
        "columns id and text",
        "by file name without suffix: 2 of 3 lines",
        "1 predictions of no line of the split, not used: a.jsonl:4",
        "1 lines without a prediction, counted as empty: test/images/p_0001.png",
        "1 predictions that stand there twice, alike",
        "1 empty predictions",
        "2 predictions changed by the dataset's text policy",
        "1 predictions not in the normal form NFC, as references are",
    ]


def test_half_a_character_that_json_can_write_is_counted_as_one_sign(tmp_path: Path) -> None:
    rows = (f'{{"id": "p_000{n}", "text": "да\\ud83d"}}\n' for n in range(3))
    write(tmp_path / "a.jsonl", "".join(rows))
    matched = taken(tmp_path / "a.jsonl")
    assert texts_of(matched) == ["да\ufffd"] * 3
    assert "3 predictions with half a character, read as \ufffd" in matched.notes


def test_names_in_another_normal_form_are_the_same_names(tmp_path: Path) -> None:
    """macOS writes й in file names as two characters."""
    line = Sample("test/images/йод_1.png", Path("p.png"), "а", Split.TEST)
    path = jsonl(tmp_path / "a.jsonl", {"id": unicodedata.normalize("NFD", "йод_1"), "text": "а"})
    assert texts_of(taken(path, [line])) == ["а"]


def test_a_name_that_two_folders_have_is_not_guessed(tmp_path: Path) -> None:
    samples = [Sample(f"test/images/{box}/1.png", Path("p.png"), "а", Split.TEST) for box in "ab"]
    path = jsonl(tmp_path / "a.jsonl", {"id": "1.png", "text": "а"})
    with pytest.raises(DataError, match="none of the 1 predictions"):
        taken(path, samples)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("a.jsonl", "", "the table is empty", id="an empty file"),
        pytest.param(
            "a.jsonl",
            '{"id": "a", "text": "б"}\n{"id": "b", "text": null}\n',
            "a.jsonl:2: has no 'text', which says what was read",
            id="no text",
        ),
        pytest.param("a.jsonl", '{"id": "a"\n', "line 1 is not JSON", id="half a row"),
        pytest.param("a.csv", "id,label\na,б\n", "no column is known to say what was read", id="only a transcription"),
        pytest.param("a.csv", "line,text\na,б\n", "no column is known to say which line it is", id="no id"),
        pytest.param("a.xml", "<x/>", "nothing here can be read as predictions", id="other XML"),
        pytest.param("a.xml", page_xml(""), "holds no prediction", id="a page without lines"),
        pytest.param("a.xml", '<PcGts xmlns="x"><Page><TextLine>', "the XML cannot be read", id="XML cut off"),
        pytest.param("a.docx", "?", "nothing here can be read as predictions", id="another format"),
    ],
)
def test_what_cannot_be_read_is_refused(name: str, content: str, message: str, tmp_path: Path) -> None:
    write(tmp_path / name, content)
    with pytest.raises(DataError, match=message):
        read_predictions(tmp_path / name)


def test_another_encoding_is_refused_with_its_name_and_read_when_it_is_given(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "id\ttext\np_0000\tСъешь ещё этих мягких булок\n", encoding="cp1251")
    with pytest.raises(DataError, match="--encoding cp1251"):
        read_predictions(tmp_path / "a.tsv")
    with text_encoding("cp1251"):
        assert read_predictions(tmp_path / "a.tsv").found[0].text == "Съешь ещё этих мягких булок"


def test_page_and_alto_in_one_folder_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path / "a.xml", page_xml(""))
    write(tmp_path / "b.xml", alto(""))
    with pytest.raises(DataError, match="both 1 PAGE and 1 ALTO files"):
        read_predictions(tmp_path)
