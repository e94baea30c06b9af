"""The client for servers that are not trusted: what it refuses, what it tries again, and when it gives up."""

import gzip
import socket
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from dsocr.io.web import FetchOptions, WebClient, WebError
from tests.loopback import Archive, archive, pauses, send
from tests.raising import raises_code

__all__ = ["archive", "pauses"]

LOCAL = FetchOptions(private=True, delay=0.0, timeout=5.0)


def get(url: str, options: FetchOptions = LOCAL, limit: int = 10_000) -> bytes:
    return WebClient(options).get(url, limit=limit)[0]


def redirect(target: str) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: send(handler, b"", "Location", target, status=302)


def test_it_reads_plain_packed_and_chunked_answers(archive: Archive) -> None:
    def chunked(handler: BaseHTTPRequestHandler) -> None:
        handler.protocol_version = "HTTP/1.1"
        send(handler, b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "Transfer-Encoding", "chunked", "Content-Length", "")

    archive.bad["/packed"] = lambda handler: send(handler, gzip.compress(b"words"), "Content-Encoding", "gzip")
    archive.bad["/chunked"] = chunked
    archive.bad["/there"] = redirect("/plain?page=1&name=%D0%B9")
    assert get(archive.add("/plain?page=1&name=%D0%B9", b"text")) == b"text"
    assert get(archive.url + "/packed") == b"words"
    assert get(archive.url + "/chunked") == b"abcde"
    assert get(archive.url + "/there") == b"text"


def failing(times: int, status: int = 500, *headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    left = [times]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        left[0] -= 1
        send(handler, b"done" if left[0] < 0 else b"", *headers, status=200 if left[0] < 0 else status)

    return answer


def test_what_may_pass_is_tried_again_with_growing_pauses(archive: Archive, pauses: list[float]) -> None:
    archive.bad["/weak"] = failing(3, 503)
    assert get(archive.url + "/weak") == b"done"
    assert pauses == [1.0, 2.0, 4.0]
    archive.bad["/busy"] = failing(1, 429, "Retry-After", "17")
    assert get(archive.url + "/busy") == b"done"
    assert pauses[3:] == [17.0]
    archive.bad["/later"] = failing(1, 503, "Retry-After", "86400")
    with pytest.raises(WebError, match="503"):
        get(archive.url + "/later")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_what_is_refused_is_not_asked_for_again(archive: Archive, status: int) -> None:
    archive.bad["/no"] = failing(9, status)
    with pytest.raises(WebError) as error:
        get(archive.url + "/no")
    assert (error.value.status, archive.asked) == (status, ["/no"])


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(10_000):
        handler.wfile.write(b"x" * 4096)


def dripping(handler: BaseHTTPRequestHandler) -> None:
    for _ in range(400):
        handler.wfile.write(b"H" if handler.path == "/slow-head" else b"HTTP/1.0 200 OK\r\n\r\n")
        handler.wfile.flush()
        time.sleep(0.02)


def no_http(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"hello\r\n")


BAD: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {
    "endless": endless,
    "long": lambda handler: send(handler, b"x" * 20_000),
    "bomb": lambda handler: send(handler, gzip.compress(bytes(10_000_000)), "Content-Encoding", "gzip"),
    "claims to be long": lambda handler: send(handler, b"abc", "Content-Length", "99999999"),
    "ends early": lambda handler: send(handler, b"abc", "Content-Length", "500"),
    "packed by half": lambda handler: send(handler, gzip.compress(bytes(5000))[:-9], "Content-Encoding", "gzip"),
    "not packed": lambda handler: send(handler, b"abc", "Content-Encoding", "gzip"),
    "unknown packing": lambda handler: send(handler, b"abc", "Content-Encoding", "br"),
    "no http": no_http,
    "nothing": lambda handler: None,
    "circle": redirect("/bad"),
    "to a file": redirect("file:///etc/passwd"),
    "to ftp": redirect("ftp://127.0.0.1/x"),
    "with a password": redirect("http://me:secret@127.0.0.1/x"),
    "to no host": redirect("http:///x"),
    "to a bad port": redirect("http://127.0.0.1:99999/"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_answers_are_errors(archive: Archive, kind: str) -> None:
    archive.bad["/bad"] = BAD[kind]
    with pytest.raises(WebError):
        get(archive.url + "/bad")
    assert len(archive.asked) <= 6


@pytest.mark.parametrize("path", ["/slow-head", "/slow-body"])
def test_slow_answers_end_at_the_deadline(archive: Archive, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.io.web._ATTEMPTS", 1)
    archive.bad[path] = dripping
    began = time.monotonic()
    with pytest.raises(WebError, match="within"):
        get(archive.url + path, FetchOptions(private=True, timeout=0.3))
    assert time.monotonic() - began < 3


def test_a_server_that_drips_is_not_waited_for(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.io.web._SILENCE", 0.1)
    archive.bad["/slow-body"] = dripping
    began = time.monotonic()
    with pytest.raises(WebError):
        get(archive.url + "/slow-body", FetchOptions(private=True, delay=0, timeout=60))
    assert time.monotonic() - began < 15, "five attempts of a tenth of a second"


def test_all_answers_together_have_a_deadline(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    client = WebClient(FetchOptions(private=True, delay=0))
    archive.add("/x", b"x")
    client.get(archive.url + "/x", limit=10)
    tomorrow = time.monotonic() + 25 * 3600
    monkeypatch.setattr(time, "monotonic", lambda: tomorrow)
    with pytest.raises(WebError, match="hours"):
        client.get(archive.url + "/x", limit=10)
    assert archive.asked == ["/x"]


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[Any]:
    """Make every name resolve to these addresses, one set after the other; returns the connections."""
    connected: list[Any] = []

    def fail(address: Any, timeout: float, **options: Any) -> None:
        connected.append(address)
        raise ConnectionRefusedError

    waiting = list(addresses)

    def resolve(host: str, port: int, **options: Any) -> list[Any]:
        found = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found.split()]

    monkeypatch.setattr(socket, "create_connection", fail)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return connected


INSIDE = (
    *("127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.9.9", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
    *("::1", "fe80::1%eth0", "fc00::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1"),
    "93.184.216.34 10.0.0.1",
)


@pytest.mark.parametrize("addresses", INSIDE)
def test_addresses_inside_a_network_are_not_connected_to(monkeypatch: pytest.MonkeyPatch, addresses: str) -> None:
    connected = resolving(monkeypatch, addresses)
    with pytest.raises(WebError, match="inside a network"):
        get("https://archive.example/x", FetchOptions())
    assert connected == []


def test_a_name_that_changes_its_address_is_checked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    connected = resolving(monkeypatch, "93.184.216.34", "127.0.0.1")
    monkeypatch.setattr(WebClient, "sleep", staticmethod(lambda seconds: None))
    with pytest.raises(WebError, match="inside a network"):
        get("http://archive.example/x", FetchOptions())
    assert connected == [("93.184.216.34", 80)]


def test_a_redirect_inside_is_refused(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.bad["/out"] = redirect(f"http://localhost:{archive.url.rpartition(':')[2]}/in")
    archive.add("/in", b"secret")
    monkeypatch.setattr("dsocr.io.web._is_public", lambda address: "/out" not in archive.asked)
    with pytest.raises(WebError, match="inside a network"):
        get(archive.url + "/out", FetchOptions())
    assert archive.asked == ["/out"]


def test_a_host_that_fails_is_asked_no_more(archive: Archive) -> None:
    client = WebClient(LOCAL)
    archive.bad |= {f"/{number}": failing(99) for number in range(5)}
    for number in range(5):
        with pytest.raises(WebError):
            client.get(f"{archive.url}/{number}", limit=10)
    assert len(archive.asked) == 15


def test_there_is_a_pause_between_requests(archive: Archive, pauses: list[float]) -> None:
    client = WebClient(FetchOptions(private=True, delay=30.0))
    for _ in range(3):
        client.get(archive.add("/x", b""), limit=10)
    assert len(pauses) == 2
    assert all(29 < pause <= 30 for pause in pauses)


def test_all_answers_together_are_limited(archive: Archive) -> None:
    client = WebClient(FetchOptions(private=True, delay=0, gigabytes=1000 / 2**30))
    archive.add("/x", b"x" * 600)
    client.get(archive.url + "/x", limit=10_000)
    with pytest.raises(WebError, match="limit"):
        client.get(archive.url + "/x", limit=10_000)


def test_settings_are_parsed() -> None:
    parsed = FetchOptions.parse(["size=max", "pages=5", "private=yes", "delay=0.5", "group=MAX"])
    assert parsed == FetchOptions(size=0, pages=5, private=True, delay=0.5, group="MAX")
    for wrong in ("size", "size=big", "pages=-1", "private=maybe", "speed=3", "delay=nan"):
        with raises_code("option-invalid"):
            FetchOptions.parse([wrong])
