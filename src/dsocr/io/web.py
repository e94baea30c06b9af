"""Fetch documents and images from servers that are not trusted, and politely; ask a server that is.

One request at a time, a pause between requests to a host, retries with growing pauses. Only http and https; the address
that a socket connects to is checked, after redirects too, so a name that resolves to the inside of a network is
refused. Answers are limited in bytes and in seconds, and all of a source together is too. Proxies are not used: nothing
could check where they connect to.
"""

import ipaddress
import math
import socket
import ssl
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, cast
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from cyclopts import Parameter
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from dsocr import __version__
from dsocr.config import problems_in
from dsocr.errors import ConfigError, option
from dsocr.io.budget import MB, Budget
from dsocr.options import Rare, read_pairs

if TYPE_CHECKING:
    import httpcore2

_REDIRECTS = 5
_ATTEMPTS = 5
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_MAX_PAUSE = 120.0
"""Seconds; a server that asks for a longer pause counts as failed."""
_FAILURES = 3
"""Requests in a row that a host may fail, all attempts of each, before it is asked no more."""
_SILENCE = 30.0
"""Seconds until the next bytes of an answer."""
_LEAST_RATE = 1024
"""Bytes per second of an answer that takes longer than `_SILENCE`; a server that drips is not waited for."""
_REFUSAL_BYTES = 65_536
_AMOUNT = Field(ge=0, lt=1e9)


class WebError(Exception):
    """An unexpected answer of a server; `status` is 0 without an answer, `content` its first bytes."""

    def __init__(self, message: str, status: int = 0, *, is_transient: bool = False, wait: float | None = None) -> None:
        super().__init__(message)
        self.status, self.is_transient, self.wait = status, is_transient, wait
        self.content = b""


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """How a source on the web is fetched.

    `size` is the longest side of images in pixels, 0 the largest that the server gives. `pages`, `gigabytes` and
    `hours` limit fetching, and `private` allows addresses inside a network and on this machine. `delay` is the
    pause between requests to a host and `timeout` the longest time of an answer, in seconds. `group` and `texts` name
    the file groups of a METS file with the images and with the ALTO or PAGE files. `fresh` fetches again what was
    fetched before.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    size: Annotated[int, _AMOUNT] = 3000
    pages: Annotated[int, _AMOUNT] = 10_000
    gigabytes: Annotated[float, _AMOUNT] = 100.0
    hours: Annotated[float, _AMOUNT] = 24.0
    private: bool = False
    delay: Annotated[float, _AMOUNT] = 0.2
    timeout: Annotated[float, _AMOUNT] = 300.0
    group: str = ""
    texts: str = ""
    fresh: bool = False

    @classmethod
    def parse(cls, settings: "FetchOptions | Sequence[str] | None") -> "FetchOptions":
        """Parse `name=value` settings, unless they are parsed already. Raises ConfigError."""
        if isinstance(settings, FetchOptions):
            return settings
        values = read_pairs("fetch", settings)
        if values.get("size") == "max":
            values["size"] = "0"
        names = [field.name for field in fields(cls)]
        try:
            return TypeAdapter(cls).validate_python(values)
        except ValidationError as error:
            message = f"{option('fetch', ...)}: {'; '.join(problems_in(error, names))}"
            hint = f"the settings are: {', '.join(names)}"
            raise ConfigError(message, code="option-invalid", hint=hint) from None


DEFAULT_FETCH: FetchOptions = FetchOptions()
Fetch = Rare[Annotated[FetchOptions | Sequence[str], Parameter(metavar="NAME=VALUE")]]
"""Options of fetching, also as texts of the form name=value."""


class WebClient:
    """Sends one GET request at a time. `sleep` waits the given seconds."""

    def __init__(self, options: FetchOptions = DEFAULT_FETCH) -> None:
        self._options = options
        self._last: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._budget = Budget(size=int(options.gigabytes * 1024 * MB), seconds=3600 * options.hours)

    sleep = staticmethod(time.sleep)

    def get(self, url: str, *, limit: int, accept: str = "*/*") -> tuple[bytes, str]:
        """Return an answer of at most `limit` bytes, and its type. Raises WebError when all attempts have failed."""
        host = url.partition("://")[2].partition("/")[0]
        if self._failures.get(host, 0) >= _FAILURES:
            raise WebError(f"{host} does not answer; skipped its remaining files", is_transient=True)
        for attempt in range(1, _ATTEMPTS + 1):
            if self._budget.seconds_left <= 0:
                message = f"fetching has taken {self._options.hours:g} hours; run the same command again to resume"
                raise WebError(message, is_transient=True)
            try:
                content, kind = self._ask(url, min(limit, self._budget.size), accept)
            except WebError as error:
                pause = error.wait if error.wait is not None else min(2.0 ** (attempt - 1), _MAX_PAUSE)
                if not error.is_transient or attempt == _ATTEMPTS or pause > _MAX_PAUSE:
                    self._failures[host] = self._failures.get(host, 0) + 1 if error.is_transient else 0
                    raise
                self.sleep(max(pause, self._options.delay))
            else:
                self._failures[host] = 0
                self._budget.size -= len(content)
                return content, kind
        raise AssertionError

    def _ask(self, url: str, limit: int, accept: str) -> tuple[bytes, str]:
        headers = {"User-Agent": f"dsocr/{__version__}", "Accept": accept, "Accept-Encoding": "gzip, identity;q=0.5"}
        for _ in range(_REDIRECTS + 1):
            host = url.partition("://")[2].partition("/")[0]
            last = self._last.get(host, -math.inf)
            if (wait := last + self._options.delay - time.monotonic()) > 0:
                self.sleep(wait)
            network = _Network(min(self._options.timeout, self._budget.seconds_left), private=self._options.private)
            try:
                with _exchange(network, "GET", url, headers) as response:
                    if response.status in {301, 302, 303, 307, 308} and (target := _header(response, "Location")):
                        url = urljoin(url, target)
                        continue
                    if response.status != 200:
                        raise _refusal(response)
                    kind = _header(response, "Content-Type").partition(";")[0].strip().lower() or "text/plain"
                    return b"".join(_read_limited(response, limit)), kind
            finally:
                self._last[host] = time.monotonic()
        raise WebError(f"more than {_REDIRECTS} redirects")


def post(url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, limit: int) -> bytes:
    """Return the answer of a trusted server, which may be on this machine and silent until the timeout.

    Raises WebError, with the first bytes of the answer, if the server rejects the request.
    """
    with _exchange(_Network(timeout, private=True, is_patient=True), "POST", url, headers, body) as response:
        if response.status != 200:
            error = _refusal(response)
            with suppress(WebError):
                error.content = b"".join(_read_limited(response, _REFUSAL_BYTES))
            raise error
        return b"".join(_read_limited(response, limit))


@contextmanager
def _exchange(
    network: "_Network", method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
) -> Iterator["httpcore2.Response"]:
    """Send a request over a connection of its own, and yield the answer, whose body is still to be read."""
    import httpcore2

    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna"), parts.port
    except ValueError as error:
        raise WebError(f"{url!r} is not an address: {error}") from error
    if parts.scheme not in {"http", "https"} or not host or parts.username is not None:
        raise WebError(f"only http and https addresses without a password are fetched, not {url[:200]!r}")
    path = quote(urlunsplit(("", "", parts.path or "/", parts.query, "")), safe="/?#[]@!$&'()*+,;=:%-._~^")
    address = httpcore2.URL(scheme=parts.scheme.encode(), host=host, port=port, target=path.encode())
    backend = cast("httpcore2.NetworkBackend", network)
    try:
        with (
            httpcore2.ConnectionPool(ssl_context=_tls_context(), network_backend=backend) as pool,
            pool.stream(method, address, headers=list(headers.items()), content=body) as response,
        ):
            yield response
    except (OSError, ValueError, httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        is_late = network.budget.seconds_left <= 0
        why = f"no whole answer within {network.budget.seconds:g} s" if is_late else str(error) or type(error).__name__
        is_transient = not isinstance(error.__cause__, ssl.SSLCertVerificationError)
        raise WebError(f"{parts.hostname}: {why}", is_transient=is_transient) from error


class _Network:
    """The network of a request: it connects to addresses that were checked, and nothing outlasts its timeout."""

    def __init__(self, timeout: float, *, private: bool, is_patient: bool = False) -> None:
        self._allows_private, self._is_patient = private, is_patient
        self.budget, self._received = Budget(seconds=timeout), 0

    def longest_wait(self) -> float:
        """Seconds until the next bytes are due. Raises TimeoutError after the timeout."""
        if (left := self.budget.seconds_left) <= 0:
            raise TimeoutError
        return left if self._is_patient else min(left, _SILENCE)

    def count(self, received: int) -> None:
        """Raise WebError for a server that drips."""
        self._received += received
        took = time.monotonic() - self.budget.started
        if not self._is_patient and took > _SILENCE and self._received < _LEAST_RATE * took:
            raise WebError(f"only {self._received:,} bytes within {took:.0f} s", is_transient=True)

    def connect_tcp(self, host: str, port: int, *_: object, **__: object) -> "httpcore2.NetworkStream":
        """Connect to the first address of a host that answers, if all of them are public or private ones allowed."""
        import httpcore2

        resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in resolved))
        if not self._allows_private and (inside := [address for address in addresses if not _is_public(address)]):
            raise WebError(f"{host} is at {inside[0]}, inside a network; private=yes allows that")
        for number, address in enumerate(addresses, start=1):
            try:
                stream = httpcore2.SyncBackend().connect_tcp(address, port, self.longest_wait())
                return cast("httpcore2.NetworkStream", _TimedStream(stream, self))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if number == len(addresses):
                    raise
        raise OSError("the host has no address")


class _TimedStream:
    """A connection that waits no longer than its network says."""

    def __init__(self, stream: "httpcore2.NetworkStream", network: _Network) -> None:
        self._stream, self._network = stream, network
        self.close, self.get_extra_info = stream.close, stream.get_extra_info

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, self._network.longest_wait())
        self._network.count(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._network.longest_wait())

    def start_tls(self, context: ssl.SSLContext, host: str | None = None, *_: object, **__: object) -> "_TimedStream":
        return _TimedStream(self._stream.start_tls(context, host, self._network.longest_wait()), self._network)


@cache
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


def _header(response: "httpcore2.Response", name: str) -> str:
    """Return the first header of this name; empty if there is none."""
    values = (value for key, value in response.headers if key.lower() == name.lower().encode())
    return next(values, b"").decode("latin-1").strip()


def _refusal(response: "httpcore2.Response") -> WebError:
    reason = response.extensions.get("reason_phrase", b"").decode("latin-1")
    message = f"the server answers {response.status} {reason}".rstrip()
    if response.status in {401, 403}:
        message += "; files behind a login are not fetched"
    asked = _header(response, "Retry-After")
    wait = float(asked[:9]) if asked.isascii() and asked.isdigit() else None
    return WebError(message, response.status, is_transient=response.status in _RETRIED, wait=wait)


def _read_limited(response: "httpcore2.Response", limit: int) -> Iterator[bytes]:
    """Yield the body, unpacked; more than `limit` bytes, or a packed body that is cut off, are an error."""
    encoding = _header(response, "Content-Encoding").lower() or "identity"
    if encoding not in {"identity", "gzip", "x-gzip"}:
        raise WebError(f"the answer is packed as {encoding!r}")
    unpacker = None if encoding == "identity" else zlib.decompressobj(wbits=31)
    announced = _header(response, "Content-Length")
    if announced.isdigit() and int(announced) > limit:
        raise WebError(f"the answer has {int(announced):,} bytes, more than the limit of {limit:,}")
    total = 0
    try:
        for chunk in response.iter_stream():
            pieces = chunk if unpacker is None else unpacker.decompress(chunk, limit - total + 1)
            total += len(pieces)
            if total > limit:
                raise WebError(f"the answer has more than the limit of {limit:,} bytes")
            yield pieces
    except zlib.error as error:
        raise WebError(f"the answer cannot be unpacked: {error}", is_transient=True) from error
    if unpacker is not None and not unpacker.eof:
        raise WebError("the packed answer is cut off", is_transient=True)
