"""XML made to hurt is skipped, and nothing outside the source is ever opened."""

from pathlib import Path

import pytest

from dsocr.document import SkipReason
from dsocr.errors import DataError
from dsocr.formats import fill_xml, xml
from tests.data.making import alto, alto_line, picture, write
from tests.formats.reading import read, skipped
from tests.raising import raises_code

BOMB = (
    "<!DOCTYPE alto ["
    + '<!ENTITY a0 "ha">'
    + "".join(f'<!ENTITY a{place} "{f"&a{place - 1};" * 10}">' for place in range(1, 10))
    + "]>"
)
QUADRATIC = f'<!DOCTYPE alto [<!ENTITY a "{"x" * 100_000}">]>'


@pytest.mark.parametrize(
    ("head", "text"),
    [
        pytest.param(BOMB, "&a9;", id="billion laughs"),
        pytest.param(QUADRATIC, "&a;" * 1000, id="quadratic blow-up"),
        pytest.param('<!DOCTYPE alto SYSTEM "http://127.0.0.1:9/a.dtd">', "т", id="a document type from the network"),
        pytest.param('<!DOCTYPE alto [<!ENTITY x "т">]>', "&x;", id="a harmless entity"),
        pytest.param('<!DOCTYPE alto [<!ENTITY x SYSTEM "secret.txt">]>', "т", id="an external entity, unused"),
    ],
)
def test_declared_entities_are_rejected(tmp_path: Path, head: str, text: str) -> None:
    picture(tmp_path / "p.png")
    path = write(tmp_path / "p.xml", alto(alto_line(text), head=head))
    assert skipped(read("alto", tmp_path)) == [(SkipReason.BAD_SOURCE, "p.xml")]
    for function in (xml.parse_xml_bytes, lambda raw: fill_xml(raw, {}), lambda raw: xml.XmlEditor(raw, ())):
        with pytest.raises(DataError):
            function(path.read_bytes())


def test_an_entity_in_text_is_never_expanded(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret.txt", "СЕКРЕТ")
    picture(tmp_path / "s" / "p.png")
    head = f'<!DOCTYPE alto [<!ENTITY x SYSTEM "{secret.as_uri()}">]>'
    write(tmp_path / "s" / "p.xml", alto("<TextLine>&x;</TextLine>", head=head))
    items = read("alto", tmp_path / "s")
    assert skipped(items) == [(SkipReason.BAD_SOURCE, "p.xml")]
    assert "СЕКРЕТ" not in repr(items)


def test_what_an_entity_names_is_never_opened(tmp_path: Path) -> None:
    # It would make the document invalid.
    path = write(tmp_path / "open.txt", "<open>")
    document = alto("<TextLine>&x;</TextLine>", head=f'<!DOCTYPE alto [<!ENTITY x SYSTEM "{path.as_uri()}">]>')
    with raises_code("xml-doctype"):
        xml.parse_xml_bytes(document.encode())


@pytest.mark.parametrize(
    "image",
    ["../secret.png", "/etc/passwd", "C:\\secret.png", "file:///etc/passwd", "http://example.org/secret.png"],
)
def test_an_image_outside_the_source_is_not_used(tmp_path: Path, image: str) -> None:
    picture(tmp_path / "secret.png")
    write(tmp_path / "source" / "p.xml", alto(alto_line("т"), image=image))
    assert skipped(read("alto", tmp_path / "source")) == [(SkipReason.NO_IMAGE, "p.xml")]


def test_the_size_and_depth_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml, "MAX_XML_BYTES", 100_000)
    write(tmp_path / "deep.xml", alto("<a>" * 5000 + "</a>" * 5000))
    write(tmp_path / "large.xml", alto(alto_line("т" * 100_000)))
    assert skipped(read("alto", tmp_path)) == [(SkipReason.BAD_SOURCE, f"{name}.xml") for name in ("deep", "large")]
    with raises_code("xml-too-large", "large.xml"):
        xml.parse_xml(tmp_path / "large.xml")
