"""The image a page names is found where people keep it, and only if there is no doubt which one is meant."""

from pathlib import Path

import pytest

from dsocr.data.convert import convert
from dsocr.data.prepare import prepare
from dsocr.errors import DataError
from dsocr.formats.format import ImageFinder
from tests.data.making import write, write_pages
from tests.raising import raises_code


@pytest.mark.parametrize(
    ("files", "name", "expected"),
    [
        pytest.param(["page/p.jpg", "p.jpg"], "p.jpg", "page/p.jpg", id="beside"),
        pytest.param(["p.jpg"], "p.jpg", "p.jpg", id="one level up"),
        pytest.param(["jpg/p.jpg"], "p.jpg", "jpg/p.jpg", id="in a folder beside"),
        pytest.param(["page/images/p.jpg"], "p.jpg", "page/images/p.jpg", id="in a folder below"),
        pytest.param(["thumbs/p.jpg", "images/p.jpg"], "p.jpg", "images/p.jpg", id="usual folder before another"),
        pytest.param(["jpg/P.JPG"], "p.jpg", "jpg/P.JPG", id="other case"),
        pytest.param(["tif/p.tif"], "p.jpg", "tif/p.tif", id="other suffix"),
        pytest.param(["jpg/p.jpg", "tif/p.tif"], "p.tif", "tif/p.tif", id="named suffix first"),
        pytest.param(["page/p.tif", "jpg/p.jpg"], "p.jpg", "jpg/p.jpg", id="exact name before nearness"),
        pytest.param(["jpg/p.jpg"], "p", "jpg/p.jpg", id="no suffix"),
        pytest.param(["p.nrm.png", "p.bin.png"], "p.png", "p.nrm.png", id="variants of OCRopus"),
        pytest.param(["p.nrm.png", "p.bin.png"], "p.bin.tif", "p.bin.png", id="the variant named"),
        pytest.param(["йод/й.jpg"], "и\u0306од/и\u0306.jpg", "йод/й.jpg", id="composed and decomposed"),
        pytest.param(["и\u0306.jpg"], "й.jpg", "и\u0306.jpg", id="decomposed and composed"),
        pytest.param(["jpg/p.1.jpg"], "p.1", "jpg/p.1.jpg", id="a dot in the name"),
        pytest.param(["my page.png"], "my%20page.png", "my page.png", id="percent-encoded"),
        pytest.param(["my page.png"], "my%20page.tif", "my page.png", id="percent-encoded with another suffix"),
        pytest.param(["p.pdf_page_1.png"], "p.pdf_page_1.png", "p.pdf_page_1.png", id="page of a PDF"),
        pytest.param(["img/p.pdf_page_1.jpg"], "p.pdf_page_1.png", "img/p.pdf_page_1.jpg", id="such as JPEG"),
        pytest.param(["p.pdf_page_1.png"], "p.pdf_page_1", "p.pdf_page_1.png", id="such without a suffix"),
        pytest.param(["p%201.png", "p 1.png"], "p%201.png", "p%201.png", id="a percent sign in the name"),
        pytest.param(["p.png"], "C:\\scans\\box 1\\p.png", "p.png", id="path on another Windows machine"),
        pytest.param(["p.png"], "/home/anna/scans/p.png", "p.png", id="path on another machine"),
        pytest.param(["p.png"], "file:///C:/scans/p.png", "p.png", id="file address"),
    ],
)
def test_where_an_image_is_found(tmp_path: Path, files: list[str], name: str, expected: str) -> None:
    for file in files:
        write(tmp_path / file, "")
    found = ImageFinder(tmp_path).find(name, near=tmp_path / "page")
    assert found.relative_to(tmp_path).as_posix() == expected


@pytest.mark.parametrize(
    ("files", "name", "code"),
    [
        pytest.param(["jpg/q.jpg"], "p.jpg", "image-not-found", id="none"),
        pytest.param(["a/p.jpg", "b/p.jpg"], "p.jpg", "image-ambiguous", id="two alike"),
        pytest.param(["a/b/p.jpg"], "p.jpg", "image-not-found", id="too far off"),
        pytest.param(["test/p.jpg"], "train/p.jpg", "image-not-found", id="another folder than the one named"),
    ],
)
def test_doubt_is_an_error(tmp_path: Path, files: list[str], name: str, code: str) -> None:
    for file in files:
        write(tmp_path / file, "")
    with raises_code(code):
        ImageFinder(tmp_path).find(name, near=tmp_path / "page")


def test_only_one_image_of_many_is_found(tmp_path: Path) -> None:
    pages = write_pages(tmp_path / "source", [f"p{number}" for number in range(20)])
    for number in range(1, 20):
        (pages / f"p{number}.png").unlink()
    with pytest.raises(DataError, match="19 of 20") as error:
        prepare(pages, tmp_path / "data")
    assert error.value.code == "too-few-groups"
    for notes in (
        prepare(pages, tmp_path / "data", split="1/0/0").card.notes,
        convert(pages, tmp_path / "out", to="tsv").conversion.notes,
    ):
        assert any("19 of 20" in note for note in notes)
