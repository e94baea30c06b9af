"""What an ALTO or PAGE file says about its page, read as `prepare` reads it."""

from lxml import etree

from dsocr.data.sources import alto, page
from dsocr.data.sources.markup import Page
from dsocr.errors import DataError

_DESCRIBE = {"alto": alto.describe_page, "PcGts": page.describe_page}


def describe(root: etree._Element) -> Page:
    """The page of an ALTO or PAGE document, told apart by its outermost element."""
    name = etree.QName(root).localname
    if name not in _DESCRIBE:
        raise DataError(f"the XML is neither ALTO nor PAGE: its outermost element is {name!r}")
    return _DESCRIBE[name](root)
