"""Fetch documents and images from servers that are not trusted, and politely.

One request at a time, a pause between requests to a host, retries with growing pauses. Only http and https; the address
that a socket connects to is checked, after redirects too, so a name that resolves to the inside of a network is
refused. Answers are limited in bytes and in seconds. Proxies are not used: nothing could check where they connect to.
"""

import http.client
import ipaddress
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, fields, replace
from email.utils import parsedate_to_datetime
from typing import Any, Self
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from dsocr import __version__
from dsocr.errors import ConfigError, DataError, option

_AGENT = f"dsocr/{__version__}"
_REDIRECTS = 5
_ATTEMPTS = 5
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_MAX_PAUSE = 120.0
"""Seconds; a server that asks for a longer pause counts as failed."""
_CHUNK = 64 * 1024
_FAILURES = 3
"""Requests in a row that a host may fail, all attempts of each, before it is asked no more."""
_MB = 1024 * 1024


class WebError(Exception):
    """What a server answered instead of what was asked; `status` is 0 without an answer."""

    def __init__(self, message: str, status: int = 0, *, is_transient: bool = False, wait: float | None = None) -> None:
        super().__init__(message)
        self.status, self.is_transient, self.wait = status, is_transient, wait


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """How a source on the web is fetched.

    `size` is the longest side of images in pixels, 0 the largest that the server gives. `pages` and `gigabytes` limit
    what is fetched, and `private` allows addresses inside a network and on this machine. `delay` is the pause between
    requests to a host and `timeout` the longest time of an answer, in seconds. `group` and `texts` name the file groups
    of a METS file with the images and with the ALTO or PAGE files. `fresh` fetches again what was fetched before.
    """

    size: int = 3000
    pages: int = 10_000
    gigabytes: float = 100.0
    private: bool = False
    delay: float = 0.2
    timeout: float = 300.0
    group: str = ""
    texts: str = ""
    fresh: bool = False

    @classmethod
    def parse(cls, settings: Sequence[str] | None) -> Self:
        """Parse `name=value` settings. Raises ConfigError."""
        kinds: dict[str, type[Any]] = {field.name: type(getattr(DEFAULT_FETCH, field.name)) for field in fields(cls)}
        values: dict[str, object] = {}
        for setting in settings or ():
            name, _, text = setting.partition("=")
            kind = kinds.get(name)
            yes_or_no = {"yes": True, "true": True, "no": False, "false": False}
            try:
                if kind is bool:
                    values[name] = yes_or_no[text.lower()]
                elif kind is not None:
                    values[name] = kind("0" if (name, text) == ("size", "max") else text)
            except (ValueError, KeyError):
                kind = None
            number = values.get(name)
            if kind is None or (isinstance(number, int | float) and not 0 <= number < 1e9):
                hint = f"the settings are: {', '.join(f'{kind}={_shown(kinds[kind]())}' for kind in kinds)}"
                raise ConfigError(
                    f"{option('fetch', ...)} has no setting {setting!r}", code="option-invalid", hint=hint
                )
        return replace(cls(), **values)  # type: ignore[arg-type]


def _shown(value: object) -> str:
    return "yes" if isinstance(value, bool) else "TEXT" if isinstance(value, str) else "NUMBER"


DEFAULT_FETCH = FetchOptions()


@dataclass(frozen=True, slots=True)
class Answer:
    """The content of an answer, its type, and the address that it came from after redirects."""

    content: bytes
    type: str
    url: str


class WebClient:
    """Sends one GET request at a time. `sleep` waits the given seconds."""

    def __init__(self, options: FetchOptions = DEFAULT_FETCH) -> None:
        self._options = options
        self._last: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._left = int(options.gigabytes * 1024 * _MB)

    sleep = staticmethod(time.sleep)

    def get(self, url: str, *, limit: int, accept: str = "*/*") -> Answer:
        """Return the answer of at most `limit` bytes. Raises WebError when all attempts have failed."""
        host = url.partition("://")[2].partition("/")[0]
        if self._failures.get(host, 0) >= _FAILURES:
            raise WebError(f"{host} does not answer; its other files were not asked for", is_transient=True)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                answer = self._follow(url, min(limit, self._left), accept)
            except WebError as error:
                pause = error.wait if error.wait is not None else min(2.0 ** (attempt - 1), _MAX_PAUSE)
                if not error.is_transient or attempt == _ATTEMPTS or pause > _MAX_PAUSE:
                    self._failures[host] = self._failures.get(host, 0) + 1 if error.is_transient else 0
                    raise
                self.sleep(max(pause, self._options.delay))
            else:
                self._failures[host] = 0
                self._left -= len(answer.content)
                return answer
        raise AssertionError

    def _follow(self, url: str, limit: int, accept: str) -> Answer:
        for _ in range(_REDIRECTS + 1):
            answer = self._ask(url, limit, accept)
            if isinstance(answer, Answer):
                return answer
            url = urljoin(url, answer)
        raise WebError(f"more than {_REDIRECTS} redirects")

    def _ask(self, url: str, limit: int, accept: str) -> Answer | str:
        """Return the answer, or the address that the server redirects to."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise WebError(f"{url!r} is not an address: {error}") from error
        if parts.scheme not in {"http", "https"} or not host or parts.username is not None:
            raise WebError(f"only http and https addresses without a password are fetched, not {url[:200]!r}")
        self._pause(parts.netloc)
        path = quote(urlunsplit(("", "", parts.path or "/", parts.query, "")), safe="/?#[]@!$&'()*+,;=:%-._~^")
        connection = _Connection(host, port, parts.scheme == "https", self._options)
        watch = threading.Timer(self._options.timeout, connection.abort)
        watch.daemon = True
        try:
            with closing(connection):
                watch.start()
                connection.request(
                    "GET",
                    path,
                    headers={"User-Agent": _AGENT, "Accept": accept, "Accept-Encoding": "gzip, identity;q=0.5"},
                )
                with closing(connection.getresponse()) as response:
                    if response.status in {301, 302, 303, 307, 308} and (target := response.getheader("Location")):
                        return target
                    if response.status != 200:
                        raise _refusal(response)
                    content = b"".join(_read_limited(response, limit))
                    if connection.is_aborted:  # an answer of unknown length ends as if it were whole
                        raise TimeoutError
                    return Answer(content, response.headers.get_content_type(), url)
        except (OSError, http.client.HTTPException, UnicodeError, ValueError) as error:
            why = f"no whole answer within {self._options.timeout:g} s" if connection.is_aborted else error
            is_transient = not isinstance(error, ssl.SSLCertVerificationError | UnicodeError)
            raise WebError(f"{host}: {why or type(error).__name__}", is_transient=is_transient) from error
        finally:
            watch.cancel()
            self._last[parts.netloc] = time.monotonic()

    def _pause(self, host: str) -> None:
        if (last := self._last.get(host)) is not None:
            wait = last + self._options.delay - time.monotonic()
            if wait > 0:
                self.sleep(wait)


class _Connection(http.client.HTTPConnection):
    """A connection to an address that was checked, whatever the name resolves to later."""

    def __init__(self, host: str, port: int | None, is_secure: bool, options: FetchOptions) -> None:
        super().__init__(host, port or (443 if is_secure else 80), timeout=min(30.0, options.timeout))
        self._is_secure, self._allows_private = is_secure, options.private
        self.is_aborted = False
        self._used: socket.socket | None = None

    def connect(self) -> None:
        resolved = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in resolved))
        if not self._allows_private and (inside := [address for address in addresses if not _is_public(address)]):
            message = f"{self.host} is at {inside[0]}, inside a network; private=yes allows that"
            raise WebError(message)
        for number, address in enumerate(addresses, start=1):
            try:
                self.sock = socket.create_connection((address, self.port), self.timeout)
                break
            except OSError:
                if number == len(addresses):
                    raise
        if self._is_secure:
            self.sock = _tls_context().wrap_socket(self.sock, server_hostname=self.host)
        self._used = self.sock  # http.client forgets it as soon as the server says that it will close
        if self.is_aborted:
            raise TimeoutError

    def abort(self) -> None:
        """Break the connection from another thread; whoever reads from it gets an error."""
        self.is_aborted = True
        if self._used is not None:
            with suppress(OSError):
                self._used.shutdown(socket.SHUT_RDWR)


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    with suppress(ImportError):  # comes with huggingface_hub; some systems have no certificates of their own
        import certifi

        context.load_verify_locations(certifi.where())
    return context


def _is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        embedded = parsed.ipv4_mapped or parsed.sixtofour
        if embedded is not None and not _is_public(str(embedded)):
            return False
        if parsed in ipaddress.ip_network("64:ff9b::/96"):
            return _is_public(str(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)))
    return parsed.is_global and not parsed.is_multicast


def _refusal(response: http.client.HTTPResponse) -> WebError:
    message = f"the server answers {response.status} {response.reason}"
    if response.status in {401, 403}:
        message += "; what needs a login is not fetched"
    is_transient = response.status in _RETRIED
    return WebError(message, response.status, is_transient=is_transient, wait=_retry_after(response))


def _retry_after(response: http.client.HTTPResponse) -> float | None:
    value = (response.getheader("Retry-After") or "").strip()
    if value.isdigit():
        return float(value[:9])
    with suppress(ValueError, TypeError):
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    return None


def _read_limited(response: http.client.HTTPResponse, limit: int) -> Iterator[bytes]:
    """Yield the body, unpacked; more than `limit` bytes, or fewer than announced, are an error."""
    encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding not in {"identity", "gzip", "x-gzip"}:
        raise WebError(f"the answer is packed as {encoding!r}")
    unpacker = None if encoding == "identity" else zlib.decompressobj(wbits=31)
    announced = response.length
    if announced is not None and announced > limit:
        raise WebError(f"the answer has {announced:,} bytes, more than the limit of {limit:,}")
    received = total = 0
    try:
        while chunk := response.read1(_CHUNK):
            received += len(chunk)
            pieces = chunk if unpacker is None else unpacker.decompress(chunk, limit - total + 1)
            total += len(pieces)
            if total > limit:
                raise WebError(f"the answer has more than the limit of {limit:,} bytes")
            yield pieces
    except zlib.error as error:
        raise WebError(f"the answer cannot be unpacked: {error}", is_transient=True) from error
    if (announced is not None and received < announced) or (unpacker is not None and not unpacker.eof):
        raise WebError(f"the answer ended after {received:,} bytes", is_transient=True)


def require_document(client: WebClient, url: str, *, limit: int, accept: str) -> Answer:
    """Fetch what nothing can be done without. Raises DataError."""
    try:
        return client.get(url, limit=limit, accept=accept)
    except WebError as error:
        hint = "check the address in a browser, and the network; run the same command again to resume"
        raise DataError(str(error), code="web-unreachable", where=url, hint=hint) from error
