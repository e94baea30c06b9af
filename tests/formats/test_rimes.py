"""RIMES of 2011: many pages to a file, lines in paragraphs, boxes by their four sides."""

from pathlib import Path

import pytest

from dsocr.document import Item, Outline, Region, SkipReason, Split
from dsocr.formats.rimes import find_rimes
from tests.data.making import picture, write
from tests.formats.reading import pages, read, skipped, texts

LINE = '<Line Left="10" Top="10" Right="60" Bottom="30" Value="Je vous prie d&apos;agr&#233;er"/>'


def page(*lines: str, image: str = "images_gray/train2011-0.png") -> str:
    box = 'Left="5" Top="5" Right="90" Bottom="45"'
    return f'<SinglePage FileName="{image}"><Paragraph {box}>{"".join(lines)}</Paragraph></SinglePage>'


def document(*pages: str) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<DocumentList>\n{"".join(pages)}</DocumentList>'


def read_rimes(folder: Path, *pages: str, name: str = "training_2011.xml") -> list[Item]:
    picture(folder / "images_gray" / "train2011-0.png")
    write(folder / name, document(*pages))
    return read("rimes", folder)


@pytest.mark.parametrize(
    ("name", "split"),
    [("training_2011.xml", Split.TRAIN), ("eval_2011_annotated.xml", Split.TEST), ("mine.xml", None)],
)
def test_a_page_is_read(tmp_path: Path, name: str, split: Split | None) -> None:
    (item,) = pages(read_rimes(tmp_path, page(LINE, LINE.replace("Je vous", "Nous vous")), name=name))
    assert texts([item]) == ["Je vous prie d'agréer", "Nous vous prie d'agréer"]
    assert item.lines[0].outline == Outline((10, 10, 60, 30))
    assert item.lines[0].region == Region("1", Outline((5, 5, 90, 45)))
    assert (item.page, item.where, item.split) == ("images_gray/train2011-0", f"{name}:3", split)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(page(LINE, image="gone.png"), SkipReason.NO_IMAGE, id="no image"),
        pytest.param(page(LINE, image="/etc/gone.png"), SkipReason.NO_IMAGE, id="absolute path"),
        pytest.param(page(LINE, image="../p.png"), SkipReason.NO_IMAGE, id="climbing path"),
        pytest.param(page(LINE, image=""), SkipReason.NO_IMAGE, id="no name"),
        pytest.param(page('<Line Left="1" Value="a"/>'), SkipReason.NO_OUTLINE, id="sides missing"),
        pytest.param(page(LINE.replace('"60"', '"5"')), SkipReason.NO_OUTLINE, id="right of left"),
        pytest.param(page(LINE.replace('"60"', '"99999999"')), SkipReason.NO_OUTLINE, id="far outside"),
        pytest.param("<SinglePage FileName=", SkipReason.BAD_SOURCE, id="broken"),
    ],
)
def test_unusable_entries_are_skipped(tmp_path: Path, content: str, reason: SkipReason) -> None:
    assert [skip for skip, _ in skipped(read_rimes(tmp_path, content))] == [reason]


def test_a_file_can_be_named_alone(tmp_path: Path) -> None:
    read_rimes(tmp_path, page(LINE))
    write(tmp_path / "eval_2011.xml", document(page(LINE)))
    assert find_rimes(tmp_path / "eval_2011.xml") == [tmp_path / "eval_2011.xml"]
    assert len(find_rimes(tmp_path)) == 2
