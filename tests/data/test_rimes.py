"""RIMES of 2011: many pages to a file, lines in paragraphs, boxes by their four sides."""

from pathlib import Path

import pytest

from dsocr.data.prepare import prepare
from dsocr.document import Outline, Page, Region, Skipped, SkipReason, Split
from dsocr.formats.rimes import find_rimes, read_rimes
from tests.data.making import picture, write

LINE = '<Line Left="10" Top="10" Right="60" Bottom="30" Value="Je vous prie d&apos;agr&#233;er"/>'


def page(*lines: str, image: str = "images_gray/train2011-0.png") -> str:
    box = 'Left="5" Top="5" Right="90" Bottom="45"'
    return f'<SinglePage FileName="{image}"><Paragraph {box}>{"".join(lines)}</Paragraph></SinglePage>'


def document(*pages: str) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<DocumentList>\n{"".join(pages)}</DocumentList>'


def read(folder: Path, *pages: str, name: str = "training_2011.xml") -> list[Page | Skipped]:
    picture(folder / "images_gray" / "train2011-0.png")
    write(folder / name, document(*pages))
    return list(read_rimes(folder))


def test_a_page_is_read(tmp_path: Path) -> None:
    (item,) = read(tmp_path, page(LINE, LINE.replace("Je vous", "Nous vous")))
    assert isinstance(item, Page)
    assert [line.text for line in item.lines] == ["Je vous prie d'agréer", "Nous vous prie d'agréer"]
    assert item.lines[0].outline == Outline((10, 10, 60, 30))
    assert item.lines[0].region == Region("1", Outline((5, 5, 90, 45)))
    assert (item.page, item.where) == ("images_gray/train2011-0", "training_2011.xml:3")


@pytest.mark.parametrize(
    ("name", "split"),
    [
        pytest.param("training_2011.xml", Split.TRAIN, id="training"),
        pytest.param("eval_2011_annotated.xml", Split.TEST, id="evaluation"),
        pytest.param("mine.xml", None, id="neither"),
    ],
)
def test_the_file_name_determines_the_split(tmp_path: Path, name: str, split: Split | None) -> None:
    (item,) = read(tmp_path, page(LINE), name=name)
    assert isinstance(item, Page)
    assert item.split == split


@pytest.mark.parametrize(
    ("pages", "reason", "message"),
    [
        pytest.param([page(LINE, image="gone.png")], SkipReason.NO_IMAGE, "no image 'gone.png'", id="no image"),
        pytest.param([page(LINE, image="/etc/gone.png")], SkipReason.NO_IMAGE, "no image", id="absolute path"),
        pytest.param([page(LINE, image="../p.png")], SkipReason.NO_IMAGE, "leaves the folder", id="climbing path"),
        pytest.param([page(LINE, image="")], SkipReason.NO_IMAGE, "is empty", id="no name"),
        pytest.param([page('<Line Left="1" Value="a"/>')], SkipReason.NO_OUTLINE, "no box", id="sides missing"),
        pytest.param([page(LINE.replace('"60"', '"5"'))], SkipReason.NO_OUTLINE, "no box", id="right of left"),
        pytest.param([page(LINE.replace('"60"', '"99999999"'))], SkipReason.NO_OUTLINE, "no box", id="far outside"),
        pytest.param(["<SinglePage FileName="], SkipReason.BAD_SOURCE, "the XML cannot be read", id="broken"),
    ],
)
def test_unusable_entries_are_skipped(tmp_path: Path, pages: list[str], reason: SkipReason, message: str) -> None:
    skipped = [item for item in read(tmp_path, *pages) if isinstance(item, Skipped)]
    assert [item.reason for item in skipped] == [reason]
    assert message in skipped[0].message


def test_a_file_can_be_named_alone(tmp_path: Path) -> None:
    read(tmp_path, page(LINE))
    write(tmp_path / "eval_2011.xml", document(page(LINE)))
    assert find_rimes(tmp_path / "eval_2011.xml") == [tmp_path / "eval_2011.xml"]
    assert len(find_rimes(tmp_path)) == 2


def test_files_become_a_dataset_with_their_splits(tmp_path: Path) -> None:
    source = tmp_path / "s"
    for place, name in enumerate(("training_2011", "eval_2011_annotated")):
        picture(source / "images" / f"{name}.png", colour=(255, 255, 250 - place))
        lines = [LINE.replace("Je", f"{name} {number}") for number in range(2)]
        write(source / f"{name}.xml", document(page(*lines, image=f"{name}.png")))
    card = prepare(source, tmp_path / "out").card
    assert (card.source_format, card.split_by, card.skipped) == ("rimes", "given", {})
    assert {split: part.samples for split, part in card.splits.items()} == {Split.TRAIN: 2, Split.TEST: 2}
    regions = prepare(source, tmp_path / "regions", unit="region").card
    assert {split: part.samples for split, part in regions.splits.items()} == {Split.TRAIN: 1, Split.TEST: 1}
