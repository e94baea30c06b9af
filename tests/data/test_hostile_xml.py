"""XML made to hurt is left out, and nothing outside the source is ever opened."""

from pathlib import Path

import pytest

from dsocr.document import Skipped, SkipReason
from dsocr.formats import xml as markup
from dsocr.formats.alto import read_alto
from tests.data.making import alto, alto_line, picture, write

BOMB = (
    "<!DOCTYPE alto ["
    + '<!ENTITY a0 "ha">'
    + "".join(f'<!ENTITY a{place} "{f"&a{place - 1};" * 10}">' for place in range(1, 10))
    + "]>"
)
QUADRATIC = f'<!DOCTYPE alto [<!ENTITY a "{"x" * 100_000}">]>'


def external(path: Path) -> str:
    return f'<!DOCTYPE alto [<!ENTITY x SYSTEM "{path.as_uri()}">]>'


@pytest.mark.parametrize(
    ("head", "text"),
    [
        pytest.param(BOMB, "&a9;", id="billion laughs in an attribute"),
        pytest.param(QUADRATIC, "&a;" * 1000, id="quadratic blow-up"),
        pytest.param(
            '<!DOCTYPE alto SYSTEM "http://127.0.0.1:9/alto.dtd">', "т", id="a document type from the network"
        ),
        pytest.param('<!DOCTYPE alto [<!ENTITY x "т">]>', "&x;", id="a harmless entity"),
    ],
)
def test_declared_entities_are_rejected(tmp_path: Path, head: str, text: str) -> None:
    picture(tmp_path / "p.png")
    write(tmp_path / "p.xml", alto(alto_line(text), head=head))
    (item,) = read_alto(tmp_path)
    assert isinstance(item, Skipped)
    assert item.reason == SkipReason.BAD_SOURCE


def test_an_entity_in_text_is_never_expanded(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret.txt", "СЕКРЕТ")
    picture(tmp_path / "s" / "p.png")
    document = alto("<TextLine>&x;</TextLine>", head=external(secret))
    write(tmp_path / "s" / "p.xml", document)
    (item,) = read_alto(tmp_path / "s")
    assert isinstance(item, Skipped)
    assert "СЕКРЕТ" not in item.message


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        pytest.param("../secret.png", "leaves the folder", id="one level up"),
        pytest.param("/etc/passwd", "no image", id="absolute"),
        pytest.param("C:\\secret.png", "no image", id="drive"),
        pytest.param("file:///etc/passwd", "no image", id="address"),
        pytest.param("http://example.org/secret.png", "no image", id="address on the network"),
    ],
)
def test_an_image_outside_the_source_is_not_used(tmp_path: Path, image: str, problem: str) -> None:
    picture(tmp_path / "secret.png")
    write(tmp_path / "source" / "p.xml", alto(alto_line("т"), image=image))
    (item,) = read_alto(tmp_path / "source")
    assert isinstance(item, Skipped)
    assert item.reason == SkipReason.NO_IMAGE
    assert problem in item.message


def test_the_size_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markup, "MAX_XML_BYTES", 100)
    write(tmp_path / "p.xml", alto(alto_line("т")))
    (item,) = read_alto(tmp_path)
    assert isinstance(item, Skipped)
    assert "larger than" in item.message


def test_deep_nesting_is_rejected(tmp_path: Path) -> None:
    depth = 5000
    write(tmp_path / "p.xml", alto("<a>" * depth + "</a>" * depth))
    (item,) = read_alto(tmp_path)
    assert isinstance(item, Skipped)
