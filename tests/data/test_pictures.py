"""The image a page names is found where people keep it, and only if there is no doubt which one is meant."""

from pathlib import Path

import pytest

from dsocr.errors import DataError
from dsocr.formats.image_finder import ImageFinder
from tests.data.making import write


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
        pytest.param(["jpg/p.jpg"], "p", "jpg/p.jpg", id="no suffix"),
        pytest.param(["йод/й.jpg"], "и\u0306од/и\u0306.jpg", "йод/й.jpg", id="composed and decomposed"),
        pytest.param(["и\u0306.jpg"], "й.jpg", "и\u0306.jpg", id="decomposed and composed"),
        pytest.param(["jpg/p.1.jpg"], "p.1", "jpg/p.1.jpg", id="a dot in the name"),
        pytest.param(["my page.png"], "my%20page.png", "my page.png", id="percent-encoded"),
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
    ("files", "name", "message"),
    [
        pytest.param(["jpg/q.jpg"], "p.jpg", "no image 'p.jpg'", id="none"),
        pytest.param(["a/p.jpg", "b/p.jpg"], "p.jpg", "more than one image could be", id="two alike"),
        pytest.param(["a/b/p.jpg"], "p.jpg", "no image", id="too far off"),
        pytest.param(["test/p.jpg"], "train/p.jpg", "no image", id="another folder than the one named"),
    ],
)
def test_doubt_is_an_error(tmp_path: Path, files: list[str], name: str, message: str) -> None:
    for file in files:
        write(tmp_path / file, "")
    with pytest.raises(DataError, match=message):
        ImageFinder(tmp_path).find(name, near=tmp_path / "page")
