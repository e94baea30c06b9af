"""Predictions of other tools are read and matched with lines, and systems to compare come from the same lines."""

import csv
import json
import shutil
import unicodedata
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import pytest
from openpyxl import Workbook

from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.document import Sample, Split
from dsocr.errors import DsocrError
from dsocr.evaluation.compare import Comparison
from dsocr.evaluation.predictions import (
    MatchedPredictions,
    Missing,
    compare,
    match,
    parse_name,
    read_predictions,
)
from dsocr.io.encodings import text_encoding
from dsocr.runs import RunFolder
from dsocr.text import TextPolicy
from tests.data.making import alto, page_xml, write, write_pages
from tests.evaluation.making_runs import (
    change_card,
    make_evaluated_run,
    misread,
    other_test_split,
    read_better,
)
from tests.raising import raises_code

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


def placed(texts: list[str]) -> list[Sample]:
    return [sample(number, text, box=(10, 100 * number, 400, 100 * number + 60)) for number, text in enumerate(texts)]


SAMPLES = [sample(number, text) for number, text in enumerate(TEXTS)]
PLACED = placed(TEXTS)


def match_file(
    path: Path, samples: list[Sample] = SAMPLES, *, missing: Missing = "error", **columns: str
) -> MatchedPredictions:
    return match(read_predictions(path, columns), samples, TextPolicy(), missing=missing)


def texts_of(matched: MatchedPredictions) -> list[str]:
    return [matched.texts[name].text for name in sorted(matched.texts)]


def jsonl(path: Path, *rows: object) -> Path:
    write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("name", "head", "row", "how"),
    [
        pytest.param("a.jsonl", "", '{{"id": "test/images/p_000{n}.png", "text": "{text}"}}', "by id", id="ids"),
        pytest.param(
            *("a.jsonl", "", '{{"image": "D:\\\\x\\\\p_000{n}.PNG", "label": "?", "pred": "{text}"}}'),
            "by file name without suffix",
            id="paths of another machine, with a reference column",
        ),
        pytest.param("a.tsv", "", "lines/p_000{n}.png\t{text}", "by file name", id="TSV without a header"),
        pytest.param("a.csv", "file_name,prediction\n", "p_000{n}.jpg,{text}", "by file name without suffix", id="CSV"),
        pytest.param(
            "a.csv", "\ufeffid;text\r\n", "p_000{n};{text}\r", "by file name without suffix", id="spreadsheet"
        ),
    ],
)
def test_tables_are_read_and_matched(name: str, head: str, row: str, how: str, tmp_path: Path) -> None:
    write(tmp_path / name, head + "".join(row.format(n=n, text=text) + "\n" for n, text in enumerate(TEXTS)))
    found = match_file(tmp_path / name)
    assert texts_of(found) == TEXTS
    assert f"{how}: 3 of 3 lines" in found.notes


QUIRKY = ['Ёж, йод; и "щука"', '"да", сказалъ', "=1+1", "а; б, в", 'пять "', "и\u0306 сей", "0012", "конецъ,"]
QUIRKS = placed(QUIRKY)


def write_quirky(kind: str, folder: Path) -> Path:
    """Write the texts as predictions for the placed lines, and return the file or folder."""
    path = folder / f"predictions.{kind.partition(' ')[0]}"
    rows = [("id", "prediction"), *((one.id, one.text) for one in QUIRKS)]
    if kind == "jsonl":
        return jsonl(path, *({"id": id_, "text": text} for id_, text in rows[1:]))
    if kind == "xlsx":
        workbook = Workbook()
        for number, row in enumerate(rows, start=1):
            for column, text in enumerate(row, start=1):
                workbook.active.cell(number, column, text).data_type = "s"  # type: ignore[union-attr]
        workbook.save(path)
    elif kind.endswith("by hand"):
        write(path, "".join(("\t" if "tsv" in kind else ",").join(row) + "\n" for row in rows))
    elif path.suffix in {".csv", ".tsv"}:
        with path.open("w", encoding="utf-8-sig" if "Excel" in kind else "utf-8", newline="") as file:
            csv.writer(file, delimiter={"csv": ",", "csv of Excel": ";", "tsv": "\t"}[kind]).writerows(rows)
    elif kind == "txt":
        path = folder / "texts"
        for id_, text in rows[1:]:
            write(path / f"{Path(id_).stem}.pred.txt", text)
    else:
        words = "".join(page_line(number, escape(text)) for number, text in enumerate(QUIRKY))
        lines = "".join(
            f'<TextLine HPOS="10" VPOS="{n}00" WIDTH="390" HEIGHT="60"><String CONTENT={quoteattr(text)}/></TextLine>'
            for n, text in enumerate(QUIRKY)
        )
        path = folder / "p.xml"
        write(path, alto(lines) if kind == "alto" else page_xml(f"<TextRegion>{words}</TextRegion>"))
    return path


@pytest.mark.parametrize(
    "kind", ["csv", "csv of Excel", "csv by hand", "tsv", "tsv by hand", "jsonl", "xlsx", "txt", "page", "alto"]
)
def test_the_same_texts_are_read_from_every_format(kind: str, tmp_path: Path) -> None:
    found = texts_of(match_file(write_quirky(kind, tmp_path), QUIRKS))
    assert found == [unicodedata.normalize("NFC", text) for text in QUIRKY]


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", *({"line": f"p_000{n}", "best": text} for n, text in enumerate(TEXTS)))
    assert texts_of(match_file(path, id="line", text="best")) == TEXTS
    for columns, code in (({"txt": "best"}, "column-role-unknown"), ({"id": "line", "text": "?"}, "column-missing")):
        with raises_code(code):
            read_predictions(path, columns)
    with raises_code("not-a-table"):
        read_predictions(tmp_path, {"text": "best"})


def test_a_text_file_per_line_is_read_without_its_ground_truth(tmp_path: Path) -> None:
    for n, text in enumerate(TEXTS):
        write(tmp_path / f"p_000{n}.pred.txt", f"{text}\n")
        write(tmp_path / f"p_000{n}.gt.txt", "правда\n")
    assert texts_of(match_file(tmp_path)) == TEXTS


def page_line(number: int, text: str, *, moved: int = 0) -> str:
    top, bottom = 100 * number + moved, 100 * number + 60 + moved
    return (
        f'<TextLine id="tr_{9 - number}"><Coords points="12,{top} 398,{top} 398,{bottom} 12,{bottom}"/>'
        f"<TextEquiv><Unicode>{text}</Unicode></TextEquiv></TextLine>"
    )


def test_page_lines_are_matched_by_position(tmp_path: Path) -> None:
    """In another order, a little moved, one more line than the dataset has."""
    lines = [page_line(n, text, moved=7) for n, text in enumerate([*TEXTS, "ещё"])]
    write(tmp_path / "export/page/p.xml", page_xml(f'<TextRegion id="r">{"".join(lines[::-1])}</TextRegion>'))
    found = match_file(tmp_path / "export", PLACED)
    assert texts_of(found) == TEXTS
    assert "by page and position: 3 of 3 lines" in found.notes
    assert any("page/p.xml:" in note for note in found.notes[2:])


@pytest.mark.parametrize(
    ("first", "second", "third", "expected"),
    [
        pytest.param('index="0"', 'index="1"', 'index="1"', "олаж", id="Calamari"),
        pytest.param("", 'conf="0.9"', 'conf="0.9"', "олаж", id="a confidence"),
        pytest.param('index="0"', 'index="1" conf="0.9"', "", None, id="a transcription alone is no prediction"),
        pytest.param('index="0" conf="0.9"', 'index="1" conf="0.4"', 'conf="0.9"', "гроза", id="best of several"),
    ],
)
def test_the_transcription_in_a_file_is_not_its_prediction(
    first: str, second: str, third: str, expected: str | None, tmp_path: Path
) -> None:
    equiv = "<TextEquiv {}><Unicode>{}</Unicode></TextEquiv>".format
    lines = [page_line(number, "x") for number in range(3)]
    old = "<TextEquiv><Unicode>x</Unicode></TextEquiv>"
    both, alone = equiv(second, "олаж") + equiv(first, "гроза"), equiv(third, "олаж")
    written = "".join(line.replace(old, both if number else alone) for number, line in enumerate(lines))
    write(tmp_path / "p.xml", page_xml(f'<TextRegion id="r">{written}</TextRegion>'))
    if expected is None:
        with raises_code("prediction-missing"):
            match_file(tmp_path, PLACED)
        expected, missing = "олаж", [""]
    else:
        missing = ["олаж"]
    found = match_file(tmp_path, PLACED, missing="empty")
    assert texts_of(found) == [*missing, expected, expected]
    assert "TextEquiv" in found.notes[0]


def test_a_sample_that_is_a_whole_page_takes_its_lines_together(tmp_path: Path) -> None:
    lines = "".join(page_line(n, text) for n, text in enumerate(TEXTS))
    write(tmp_path / "p.xml", page_xml(f'<TextRegion id="r">{lines}</TextRegion>'))
    found = match_file(tmp_path, [sample(1, "\n".join(TEXTS))])
    assert texts_of(found) == ["\n".join(TEXTS)]
    assert len(found.notes) == 2


def test_pages_with_the_same_name_are_distinguished_by_folder(tmp_path: Path) -> None:
    samples = [sample(0, text, page=f"{box}/p", box=(10, 0, 400, 60)) for box, text in (("a", "раз"), ("b", "два"))]
    for box, text in (("a", "раз"), ("b", "два")):
        write(tmp_path / f"page/{box}/p.xml", page_xml(f'<TextRegion id="r">{page_line(0, text)}</TextRegion>'))
    assert texts_of(match_file(tmp_path, samples)) == ["раз", "два"]
    with raises_code("prediction-ambiguous"):
        match_file(tmp_path / "page/a", samples)


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        pytest.param([("p_0000", "а"), ("p_0002", "б")], "prediction-missing", id="a line is missing"),
        pytest.param([("x", "а"), ("y", "б")], "nothing-matches", id="another dataset"),
        pytest.param([("p_0000", "а"), ("p_0000", "б")], "prediction-ambiguous", id="one line twice"),
    ],
)
def test_predictions_that_do_not_match_are_rejected(rows: list[tuple[str, str]], code: str, tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "id\ttext\n" + "".join(f"{name}\t{text}\n" for name, text in rows))
    with raises_code(code):
        match_file(tmp_path / "a.tsv")


def test_everything_unusual_is_counted(tmp_path: Path) -> None:
    rows = [("p_0000", unicodedata.normalize("NFD", "Ёж  йод"))] * 2 + [("p_0002", " "), ("p_0777", "?")]
    path = jsonl(tmp_path / "a.jsonl", *({"id": name, "text": text} for name, text in rows))
    found = match_file(path, missing="empty")
    assert texts_of(found) == ["Ёж йод", "", ""]
    # Unused, missing, duplicate, empty, changed by the text policy.
    assert [note.split()[0] for note in found.notes[2:]] == ["1", "1", "1", "1", "2"]
    assert found.notes[2].endswith("a.jsonl:4")
    assert found.notes[3].endswith("test/images/p_0001.png")


def test_names_are_compared_in_one_normal_form_and_not_guessed(tmp_path: Path) -> None:
    """macOS writes й in file names as two characters."""
    line = Sample("test/images/йод_1.png", Path("p.png"), "а", Split.TEST)
    path = jsonl(tmp_path / "a.jsonl", {"id": unicodedata.normalize("NFD", "йод_1"), "text": "а"})
    assert texts_of(match_file(path, [line])) == ["а"]
    ambiguous = [Sample(f"test/images/{box}/1.png", Path("p.png"), "а", Split.TEST) for box in "ab"]
    with raises_code("nothing-matches"):
        match_file(jsonl(tmp_path / "b.jsonl", {"id": "1.png", "text": "а"}), ambiguous)


@pytest.mark.parametrize(
    ("files", "code"),
    [
        pytest.param({"a.jsonl": '{"id": 1, "text": "б"}\n{"id": 2}\n'}, "value-missing", id="no text"),
        pytest.param({"a.csv": "id,label\na,б\n"}, "column-missing", id="only a reference"),
        pytest.param({"a.csv": "line,text\na,б\n"}, "column-missing", id="no id"),
        pytest.param({"a.xml": "<x/>"}, "format-unknown", id="other XML"),
        pytest.param({"a.xml": page_xml("")}, "no-predictions", id="a page without lines"),
        pytest.param({"a.docx": "?"}, "format-unknown", id="another format"),
        pytest.param({"a.xml": page_xml(""), "b.xml": alto("")}, "formats-mixed", id="PAGE and ALTO"),
    ],
)
def test_files_that_cannot_be_read_are_rejected(files: dict[str, str], code: str, tmp_path: Path) -> None:
    for name, content in files.items():
        write(tmp_path / name, content)
    with raises_code(code):
        read_predictions(tmp_path / name if len(files) == 1 else tmp_path)


def test_another_encoding_is_read_when_it_is_given(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "id\ttext\np_0000\tСъешь ещё этих мягких булок\n", encoding="cp1251")
    with text_encoding("cp1251"):
        assert read_predictions(tmp_path / "a.tsv").predictions[0].text == "Съешь ещё этих мягких булок"


@pytest.fixture
def run(small_dataset: Path, tmp_path: Path) -> RunFolder:
    return make_evaluated_run(tmp_path / "poor", small_dataset, {"base": misread, "adapter": misread})


@pytest.fixture
def better(small_dataset: Path, tmp_path: Path) -> RunFolder:
    return make_evaluated_run(tmp_path / "fair", small_dataset, {"base": misread, "adapter": read_better})


@pytest.fixture
def table(small_dataset: Path, tmp_path: Path) -> Path:
    """Write another tool's predictions for the test split, without the first letter of each line."""
    rows = ({"id": sample.id, "text": sample.text[1:]} for sample in Dataset.open(small_dataset).samples(Split.TEST))
    return jsonl(tmp_path / "kraken.jsonl", *rows)


def names(found: Comparison) -> list[str]:
    return [system.name for system in found.systems]


def code_of(*paths: object, **options: Any) -> str:
    with pytest.raises(DsocrError) as caught:
        compare(*map(str, paths), **options)
    return caught.value.code


def test_a_single_run_is_compared_with_its_base(better: RunFolder, tmp_path: Path) -> None:
    found = compare(better.path)
    assert names(found) == ["base", "fair"]
    named_base = Path(shutil.copytree(better.path, tmp_path / "base"))
    assert names(compare(named_base)) == ["base", "trained"]
    assert {line.id for line in found.systems[0].lines} == found.images.keys()
    assert found.about["split"] == "test"


def test_systems_keep_their_order_and_names(run: RunFolder, better: RunFolder, table: Path) -> None:
    found = compare(run.path, f"новая={better.path}", table, base=True)
    assert names(found) == ["base", "poor", "новая", "kraken"]
    assert [line.cer.errors for line in found.systems[3].lines] == [1, 1, 1, 1]


def test_predictions_alone_need_a_dataset(table: Path, small_dataset: Path) -> None:
    assert code_of(table, f"b={table}") == "dataset-missing"
    assert names(compare(table, f"b={table}", dataset=small_dataset)) == ["kraken", "b"]
    assert code_of(table, base=True, dataset=small_dataset) == "no-base"
    assert code_of(table.parent / "nothing") == "input-missing"
    write(table, table.read_text(encoding="utf-8").partition("\n")[0])
    assert code_of(table, f"b={table}", dataset=small_dataset) == "prediction-missing"
    assert len(compare(table, f"b={table}", dataset=small_dataset, missing="empty").systems[0].lines) == 4


def test_a_name_ends_at_the_first_equals_sign(tmp_path: Path) -> None:
    (tmp_path / "a=b").mkdir()
    assert parse_name(str(tmp_path / "a=b"))[0] == "a=b"
    assert parse_name("TrOCR large=out/x.v2.tsv") == ("TrOCR large", Path("out/x.v2.tsv"))
    assert parse_name("out/x.v2.tsv")[0] == "x.v2"
    assert parse_name("out=1/x.tsv") == ("out", Path("1/x.tsv"))
    assert parse_name("some/out=1/x.tsv") == ("x", Path("some/out=1/x.tsv"))


def test_runs_must_have_read_the_same_split(run: RunFolder, better: RunFolder, small_dataset: Path) -> None:
    with pytest.raises(DsocrError) as caught:
        compare(run.path, split="validation")
    assert caught.value.code == "other-dataset"
    command = f"dsocr evaluate {run.path.as_posix()} --dataset {small_dataset.as_posix()} --split validation"
    assert command in caught.value.render()
    card = json.loads(better.scorecard.read_text(encoding="utf-8"))
    card["dataset"]["test"] = "f" * 64
    better.scorecard.write_text(json.dumps(card), encoding="utf-8")
    assert code_of(run.path, better.path) == "other-dataset"


def test_runs_scored_on_another_dataset_than_their_own_are_compared(small_dataset: Path, tmp_path: Path) -> None:
    own = change_card(small_dataset, tmp_path / "own", other_test_split)
    runs = [
        make_evaluated_run(tmp_path / name, small_dataset, {"adapter": reader}, trained_on=own)
        for name, reader in (("a", misread), ("b", read_better))
    ]
    found = compare(*(run.path for run in runs))
    assert names(found) == ["a", "b"]
    assert (found.about["dataset"], len(found.images)) == (small_dataset.name, 4)


def test_runs_are_compared_after_their_dataset_has_changed_or_gone_but_not_with_predictions(
    small_dataset: Path, table: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(small_dataset, tmp_path / "copy"))
    runs = [make_evaluated_run(tmp_path / name, copy, {"adapter": read_better}) for name in "ab"]
    scored = Dataset.open(copy).card.splits[Split.TEST].sha256
    change_card(copy, copy, other_test_split)
    found = compare(*(run.path for run in runs))
    assert (names(found), found.about["sha256"]) == (["a", "b"], scored)
    assert code_of(runs[0].path, table) == "other-dataset"
    shutil.rmtree(copy)
    found = compare(*(run.path for run in runs))
    assert (names(found), found.images) == (["a", "b"], {})
    assert code_of(runs[0].path, table) == "dataset-missing"


def test_a_run_needs_an_evaluation_with_its_base(run: RunFolder, small_dataset: Path, tmp_path: Path) -> None:
    alone = make_evaluated_run(tmp_path / "alone", small_dataset, {"adapter": misread})
    assert code_of(alone.path) == "no-base"
    run.scorecard.unlink()
    assert code_of(run.path) == "scorecard-missing"


def test_whole_pages_are_compared_whatever_their_lines(tmp_path: Path) -> None:
    """A tool that found other lines, in another order, has read everything; one that read a line wrong has not."""
    dataset = prepare(write_pages(tmp_path / "scans", [f"p{n}" for n in range(12)]), tmp_path / "data").folder
    pages: dict[str, list[str]] = {}
    for sample in Dataset.open(dataset).samples(Split.TEST):
        pages.setdefault(str(sample.page), []).append(sample.text)
    for name, lines in pages.items():
        write(tmp_path / "tool" / f"{name}.txt", "\n".join([*lines[1:], lines[0].replace(" ", "\n")]))
        write(tmp_path / "other" / f"{name}.txt", "\n".join(["x" * 8, *lines[1:]]))
    paths = [f"{name}={tmp_path / name}" for name in ("tool", "other")]
    found = compare(*paths, dataset=dataset, pages=True)
    rates = {rate.name: [one.errors for one in rate.rates] for rate in found.rates}
    assert [line.id for line in found.systems[0].lines] == list(pages)
    assert rates["bag-of-words WER"][0] == 0 < rates["bag-of-words WER"][1]
    assert rates["flexible CER"][0] < rates["flexible CER"][1]
    assert rates["WER in reading order"][0] > 0
    (tmp_path / "tool" / f"{name}.txt").unlink()
    write(tmp_path / "tool" / "p99.txt", "more")
    assert code_of(*paths, dataset=dataset, pages=True) == "prediction-missing"
    assert len(compare(*paths, dataset=dataset, pages=True, missing="empty").systems[0].lines) == len(pages)
