"""Repairs: of texts only where the intended text is certain, of datasets in a copy that lists every change."""

import json
import shutil
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.data.check import check_dataset
from dsocr.data.check.text_checks import find_invisible, find_look_alikes
from dsocr.data.dataset import Dataset
from dsocr.data.fix import fix_dataset, fix_text
from dsocr.data.prepare import prepare
from dsocr.document import Split
from dsocr.images import open_image, read_bytes
from tests.data.making import file_of
from tests.data.test_checks import CLEAN
from tests.raising import raises_code


def fixed(text: str) -> str:
    changes = fix_text(text)
    return changes[-1].after if changes else text


@pytest.mark.parametrize(
    ("text", "after", "code"),
    [
        pytest.param("сло\u00adво", "слово", "invisible-characters", id="a soft hyphen inside a line is not seen"),
        pytest.param("сло\u00ad", "сло-", "invisible-characters", id="at its end it is seen as a hyphen"),
        pytest.param("сло\u00ad\nво", "сло-\nво", "invisible-characters", id="at the end of a line of a page too"),
        pytest.param("5\u00a0кг", "5 кг", "invisible-characters", id="no-break space"),
        pytest.param("5 \u00a0\u202f кг", "5 кг", "invisible-characters", id="no second space is made"),
        pytest.param("\ufeffслово", "слово", "invisible-characters", id="byte order mark"),
        pytest.param("сло\u200bво\u2060", "слово", "invisible-characters", id="zero-width"),
        pytest.param("да\tнет", "да нет", "invisible-characters", id="tab"),
        pytest.param("да\x07\x00", "да", "invisible-characters", id="controls"),
        pytest.param("и\u0306од", "йод", "decomposed-characters", id="two characters for one"),
        pytest.param("мaма", "мама", "look-alikes", id="a Latin letter in a Cyrillic word"),
        pytest.param("Lоndоn", "London", "look-alikes", id="Cyrillic letters in a Latin word"),
        pytest.param("он a она", "он а она", "look-alikes", id="a word of one letter"),
    ],
)
def test_certain_repairs(text: str, after: str, code: str) -> None:
    (change,) = fix_text(text)
    assert (change.rule, change.before, change.after) == (code, text, after)
    assert fix_text(after) == []


@pytest.mark.parametrize(
    "text",
    [
        *CLEAN,
        pytest.param("аaос", id="every letter is of both scripts"),
        pytest.param("Иc", id="as many of one as of the other"),
        pytest.param("DVDшка", id="letters that do not look alike"),
        pytest.param("\u200b\ufeff", id="nothing would be left"),
        pytest.param("значок \ue000", id="a private letter"),
    ],
)
def test_uncertain_texts_are_left_alone(text: str) -> None:
    assert fix_text(text) == []


ANY_TEXT = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("аaоoсc \u00ad\u00a0\u200b\n\t"))
)


@given(ANY_TEXT)
def test_fixed_text_needs_no_repair(text: str) -> None:
    after = fixed(text)
    assert fix_text(after) == []
    if after != text:
        assert unicodedata.is_normalized("NFC", after)
        assert find_invisible(after) == []


@given(st.text("абвгдежз abcdefz.,-"))
def test_only_look_alikes_are_replaced(text: str) -> None:
    after = fixed(text)
    replaced = {(old, new) for old, new in zip(text, after, strict=True) if old != new}
    assert replaced <= {("a", "а"), ("c", "с"), ("e", "е"), ("а", "a"), ("е", "e")}
    assert len(list(find_look_alikes(after))) <= len(list(find_look_alikes(text)))


@pytest.fixture
def folder(small_dataset: Path, tmp_path: Path) -> Path:
    return shutil.copytree(small_dataset, tmp_path / "dataset")


def edit(folder: Path, split: str, changes: dict[int, dict[str, Any]]) -> None:
    path = folder / split / "metadata.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for number, change in changes.items():
        rows[number].update(change)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def copy_sample(folder: Path, of: tuple[str, int], to: tuple[str, int]) -> None:
    """Image and text of one sample for another."""
    dataset = Dataset.open(folder)
    old, new = (dataset.samples(Split(split))[number] for split, number in (of, to))
    shutil.copyfile(file_of(old), file_of(new))
    edit(folder, to[0], {to[1]: {"text": old.text}})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def codes(folder: Path) -> set[str]:
    return {finding.code for finding in check_dataset(Dataset.open(folder), workers=1)}


def plant(folder: Path) -> None:
    edit(folder, "train", {0: {"text": "сло\u00adво мaма", "mine": "kept"}, 1: {"text": "и\u0306од"}})
    edit(folder, "test", {1: {"text": "пять\u00a0кг"}})
    copy_sample(folder, ("train", 4), ("train", 9))
    copy_sample(folder, ("test", 2), ("train", 7))
    copy_sample(folder, ("test", 3), ("validation", 0))


def test_repaired_copy(folder: Path, tmp_path: Path) -> None:
    plant(folder)
    before, found_before = contents(folder), codes(folder)
    report = fix_dataset(Dataset.open(folder), tmp_path / "new")
    assert contents(folder) == before
    assert dict(report.counts()) == {
        ("invisible-characters", Split.TRAIN): 1,
        ("look-alikes", Split.TRAIN): 1,
        ("decomposed-characters", Split.TRAIN): 1,
        ("invisible-characters", Split.TEST): 1,
        ("duplicate-image", Split.TRAIN): 2,
    }
    assert report.duplicates_left == 1
    new = Dataset.open(tmp_path / "new")
    texts = [sample.text for sample in new.samples(Split.TRAIN)]
    assert (texts[0], texts[1], len(texts)) == ("слово мама", "йод", 14)
    assert new.samples(Split.TEST)[1].text == "пять кг"
    fixable = {"invisible-characters", "look-alikes", "decomposed-characters", "duplicate-image", "hash-differs"}
    assert fixable <= found_before
    assert codes(tmp_path / "new") & fixable == set()


def test_every_change_is_listed_and_other_columns_and_images_are_kept(folder: Path, tmp_path: Path) -> None:
    plant(folder)
    fix_dataset(Dataset.open(folder), tmp_path / "new")
    rows = [json.loads(line) for line in (tmp_path / "new" / "fixes.jsonl").read_text(encoding="utf-8").splitlines()]
    train, test = (Dataset.open(folder).samples(split) for split in (Split.TRAIN, Split.TEST))
    assert rows[0] == {
        "id": train[0].id,
        "code": "invisible-characters",
        "before": "сло\u00adво мaма",
        "after": "слово мaма",
        "same_as": None,
    }
    dropped = [(row["id"], row["after"], row["same_as"]) for row in rows if row["code"] == "duplicate-image"]
    assert dropped == [(train[7].id, None, test[2].id), (train[9].id, None, train[4].id)]
    old, new = Dataset.open(folder).card, Dataset.open(tmp_path / "new").card
    assert new.splits[Split.TRAIN].samples == old.splits[Split.TRAIN].samples - 2
    assert {code: part.count for code, part in new.repaired.items()} == Counter(row["code"] for row in rows)
    assert "'и\u0306од' -> 'йод'" in new.repaired["decomposed-characters"].examples[0]
    assert (new.source, new.seed, new.split_by) == (old.source, old.seed, old.split_by)
    first = (tmp_path / "new" / "train" / "metadata.jsonl").read_text(encoding="utf-8").splitlines()[0]
    assert json.loads(first)["mine"] == "kept"
    before, after = contents(folder), contents(tmp_path / "new")
    images = {name for name in after if name.endswith(".png")}
    assert len(images) == 22
    assert all(after[name] == before[name] for name in images)


def test_what_is_left_of_a_short_dataset_is_copied(folder: Path, tmp_path: Path) -> None:
    lost = folder / "train" / "metadata.jsonl"
    rows = lost.read_text(encoding="utf-8").splitlines(keepends=True)
    lost.write_text("".join(rows[:-2]), encoding="utf-8", newline="\n")
    report = fix_dataset(Dataset.open(folder), tmp_path / "new")
    assert (report.dataset, report.fixes, report.lost) == (tmp_path / "new", [], {Split.TRAIN: 2})
    new = Dataset.open(tmp_path / "new")
    assert len(new.samples(Split.TRAIN)) == len(rows) - 2
    assert not codes(tmp_path / "new") & {"metadata-short", "hash-differs"}
    assert fix_dataset(new, tmp_path / "newer").dataset is None


def test_fixing_twice_adds_up(folder: Path, tmp_path: Path) -> None:
    plant(folder)
    fix_dataset(Dataset.open(folder), tmp_path / "new")
    edit(tmp_path / "new", "train", {3: {"text": "ещё\u200b раз"}})
    fix_dataset(Dataset.open(tmp_path / "new"), tmp_path / "newer")
    assert Dataset.open(tmp_path / "newer").card.repaired["invisible-characters"].count == 3
    fix_dataset(Dataset.open(folder), tmp_path / "newer", overwrite=True)
    assert Dataset.open(tmp_path / "newer").card.repaired["invisible-characters"].count == 2


def test_a_packed_dataset_stays_packed(small_dataset: Path, tmp_path: Path) -> None:
    packed = prepare(small_dataset.parent / "source", tmp_path / "packed", store="parquet").folder
    edit(packed, "train", {0: {"text": "сло\u00adво"}})
    fix_dataset(Dataset.open(packed), tmp_path / "new")
    new = Dataset.open(tmp_path / "new")
    assert new.card.store == "parquet"
    assert not (tmp_path / "new" / "train" / "images").exists()
    assert new.samples(Split.TRAIN)[0].text == "слово"
    old = Dataset.open(packed).samples(Split.TRAIN)
    pairs = zip(old, new.samples(Split.TRAIN), strict=True)
    assert all(read_bytes(before.image) == read_bytes(after.image) for before, after in pairs)
    assert "hash-differs" not in codes(tmp_path / "new")


@pytest.mark.parametrize(
    ("delimiter", "encoding", "given"),
    [
        pytest.param(";", "utf-8-sig", None, id="CSV UTF-8 of a spreadsheet"),
        pytest.param(";", "cp1251", "cp1251", id="CSV of a Russian spreadsheet"),
        pytest.param("\t", "utf-16", "utf-16", id="Unicode text of a spreadsheet"),
    ],
)
def test_corrections_come_back_from_a_spreadsheet(
    delimiter: str, encoding: str, given: str | None, small_dataset: Path, tmp_path: Path
) -> None:
    sample = Dataset.open(small_dataset).samples("test")[0]
    rows = [("Rank", "ID", "Correction "), ("1", sample.id, "«Новый» текст")]
    text = f"sep={delimiter}\r\n" + "".join(delimiter.join(cells) + "\r\n" for cells in rows)
    (tmp_path / "audit.csv").write_bytes(text.encode(encoding))
    fix_dataset(Dataset.open(small_dataset), tmp_path / "out", corrections=tmp_path / "audit.csv", encoding=given)
    assert {one.id: one.text for one in Dataset.open(tmp_path / "out")}[sample.id] == "«Новый» текст"
    if given:
        with raises_code("not-utf8"):
            fix_dataset(Dataset.open(small_dataset), tmp_path / "other", corrections=tmp_path / "audit.csv")


def test_corrections_are_applied_and_listed(small_dataset: Path, tmp_path: Path) -> None:
    first, second, third, fourth = Dataset.open(small_dataset).samples("test")[:4]
    table = tmp_path / "audit.csv"
    rows = [f'1,{first.id},"a, corrected   line"', f"2,{second.id},-", f"3,{third.id},"]
    rows.append(f"4,{fourth.id},'=x")
    table.write_text("\n".join(["rank,id,correction", *rows]) + "\n", encoding="utf-8")
    report = fix_dataset(Dataset.open(small_dataset), tmp_path / "out", corrections=table)
    left = {sample.id: sample.text for sample in Dataset.open(tmp_path / "out")}
    assert (left[first.id], left.get(second.id), left[third.id]) == ("a, corrected line", None, third.text)
    assert left[fourth.id] == "=x"
    assert [(fix.id, fix.code, fix.after) for fix in report.fixes] == [
        (first.id, "correction", "a, corrected line"),
        (second.id, "correction", None),
        (fourth.id, "correction", "=x"),
    ]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param("id,correction\ntest/images/none.png,x\n", "correction-invalid", id="another dataset"),
        pytest.param("id,correction\ntest/images/none.png,\n", "correction-invalid", id="nothing written"),
        pytest.param("id,text\ntest/images/none.png,x\n", "column-missing", id="another table"),
        pytest.param("id,correction\na,one, two\n", "row-refused", id="a comma without quotes"),
        pytest.param("id,correction\na,one\na,two\n", "correction-invalid", id="one line corrected in two ways"),
        pytest.param("id,correction\na,#NAME?\n", "correction-invalid", id="a dash taken for a formula"),
        pytest.param("id,correction\na,#ИМЯ?\n", "correction-invalid", id="the same in a Russian spreadsheet"),
        pytest.param("id,correction\na,Err:508\n", "correction-invalid", id="the same in LibreOffice"),
    ],
)
def test_tables_without_corrections_are_refused(content: str, code: str, small_dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(content, encoding="utf-8")
    with raises_code(code):
        fix_dataset(Dataset.open(small_dataset), tmp_path / "out", corrections=tmp_path / "t.csv")


@pytest.mark.parametrize(("split", "number"), [("train", 2), ("test", 2)])
def test_another_scan_of_a_line_is_dropped_from_train_alone(
    folder: Path, tmp_path: Path, split: str, number: int
) -> None:
    copy_sample(folder, (split, number), ("train", 9))
    line = Dataset.open(folder).samples(Split.TRAIN)[9]
    image = open_image(file_of(line))
    image.crop((2, 1, image.width, image.height)).save(file_of(line))
    assert {"near-duplicate-image", "near-image-crosses"} & codes(folder)
    report = fix_dataset(Dataset.open(folder), tmp_path / "new")
    kept = Dataset.open(folder).samples(Split(split))[number]
    fixes = [fix for fix in report.fixes if fix.code == "near-duplicate-image"]
    assert [(fix.id, fix.after, fix.same_as) for fix in fixes] == [(line.id, None, kept.id)]
    assert not {"near-duplicate-image", "near-image-crosses"} & codes(tmp_path / "new")
    assert len(Dataset.open(tmp_path / "new").samples(Split.TEST)) == len(Dataset.open(folder).samples(Split.TEST))
