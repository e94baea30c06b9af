"""Images with a text file each; unpaired files are reported."""

from pathlib import Path

from dsocr.document import Page, Skipped, SkipReason, Split
from dsocr.formats.text_files import find_pairs, read_pairs
from tests.data.making import pair, picture, write


def read(folder: Path) -> tuple[dict[str, str], dict[str, SkipReason]]:
    """Image name -> text, and where -> reason."""
    items = list(read_pairs(folder))
    images = [item for item in items if isinstance(item, Page)]
    skipped = [item for item in items if isinstance(item, Skipped)]
    return {image.name: image.lines[0].text for image in images}, {item.where: item.reason for item in skipped}


def test_texts_are_beside_their_images_or_in_a_folder_of_texts(tmp_path: Path) -> None:
    pair(tmp_path, "a", "recognized")
    write(tmp_path / "a.gt.txt", "transcribed")
    pair(tmp_path / "sub", "b", "буква б", ending=".gt.txt")
    picture(tmp_path / "images" / "1_2_3.png")
    write(tmp_path / "words" / "1_2_3.txt", "слово", "utf-8-sig")
    assert read(tmp_path) == ({"a": "transcribed", "images/1_2_3": "слово", "sub/b": "буква б"}, {})


def test_unpaired_files_are_reported(tmp_path: Path) -> None:
    pair(tmp_path, "a", "а")
    picture(tmp_path / "b.png")
    write(tmp_path / "c.gt.txt", "в")
    write(tmp_path / "README.txt", "about")
    assert read(tmp_path)[1] == {"b.png": SkipReason.NO_TRANSCRIPTION, "c.gt.txt": SkipReason.NO_IMAGE}


def test_another_encoding_is_skipped_with_the_option_that_reads_it(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    write(tmp_path / "a.txt", "буква", "cp1251")
    (item,) = read_pairs(tmp_path)
    assert isinstance(item, Skipped)
    assert item.reason is SkipReason.BAD_SOURCE
    assert "cp1251" in item.message


def test_folders_named_after_splits_give_the_split(tmp_path: Path) -> None:
    pair(tmp_path / "val" / "x", "a", "а")
    (item,) = read_pairs(tmp_path)
    assert isinstance(item, Page)
    assert item.split == Split.VALIDATION


def test_a_text_without_any_image_is_no_pair(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "а")
    assert find_pairs(tmp_path) == []
