"""The content of an HTML page, parsed as a browser would."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """The tags, attributes and words of a page; every tag that is opened must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in {"meta", "img", "br", "input"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def values(self, name: str) -> list[str]:
        """The values of an attribute, in the order of the page."""
        return [value for own, value in self.attributes if own == name]

    def handle_data(self, data: str) -> None:
        self.words += data
