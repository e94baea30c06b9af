"""A listening server and clients that others wrote: OpenAI's, a fuzzer, and some that are slow or hostile.

Two of them are imported where they are used, for they take a second that every process would wait.
"""

import selectors
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from dsocr.server.limits import ServerLimits
from dsocr.server.routes import create_app
from tests.conftest import PATIENCE
from tests.server.fakes import FakeModels, data_uri, listening, png

LIMITS = ServerLimits(max_body_bytes=100_000, max_queued=8, deadline=PATIENCE, body_timeout=2.0)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with listening(create_app(FakeModels(), limits=LIMITS), LIMITS) as address:  # type: ignore[arg-type]
        yield address


def test_openai_client(address: str) -> None:
    import openai

    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["mine", "other", "base"]
        messages: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": data_uri(png())}}]}]
        answer = client.chat.completions.create(model="mine", messages=messages, logprobs=True)
        choice = answer.choices[0]
        assert (choice.message.content, choice.finish_reason) == ("mine 20", "stop")
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 4
        assert choice.logprobs is not None
        assert [token.logprob for token in choice.logprobs.content or ()] == [-0.5, -0.5]
        stream = client.chat.completions.create(
            model="other", messages=messages, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
        pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
        assert "".join(filter(None, pieces)) == "other 20"
        assert chunks[-1].usage is not None
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="gpt", messages=messages)


OPERATIONS = [
    *("POST /v1/transcriptions", "POST /v1/chat/completions", "GET /v1/models"),
    *("GET /healthz", "GET /readyz", "GET /metrics"),
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_answers_match_the_openapi_description(address: str, operation: str) -> None:
    import schemathesis
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    method, path = operation.split()

    @given(case=schema[path][method].as_strategy())
    @settings(max_examples=10, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def send(case: "schemathesis.Case[Any]") -> None:
        # A schema cannot say that bytes are an image, so data that matches it may still be rejected.
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    send()


def connect(address: str, source: str = "127.0.0.1") -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE, source_address=(source, 0))


def converse(address: str, *parts: bytes) -> bytes:
    """The answer to raw bytes, sent part by part."""
    with connect(address) as connection:
        for part in parts:
            with suppress(ConnectionError):  # it may have been answered and closed already
                connection.sendall(part)
        return answer_on(connection)


def answer_on(connection: socket.socket) -> bytes:
    """The next answer, whose body is JSON; headers and body may come one after the other."""
    answer = b""
    with suppress(ConnectionError):
        while chunk := connection.recv(65536):
            answer += chunk
            if b"\r\n\r\n" in answer and b"}" in answer:
                break
    return answer


def answered(connections: list[socket.socket], count: int) -> list[socket.socket]:
    """The first so many of the connections on which an answer begins to arrive."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        ready: list[socket.socket] = []
        until = time.monotonic() + PATIENCE
        while len(ready) < count and time.monotonic() < until:
            for key, _ in selector.select(timeout=1):
                selector.unregister(key.fileobj)
                ready.append(cast(socket.socket, key.fileobj))
        return ready


HEAD = b"POST /v1/transcriptions HTTP/1.1\r\nHost: localhost\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        pytest.param([HEAD + b"Content-Length: 1000\r\n\r\n", b"x"], b"408", id="a body that never ends"),
        pytest.param([HEAD + b"Content-Length: 999999999\r\n\r\n"], b"413", id="a body announced too large"),
        pytest.param([HEAD + b"Content-Length: -5\r\n\r\n"], b"400", id="less than nothing"),
        pytest.param([HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\n"], b"400", id="broken chunks"),
        pytest.param([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"], b"400", id="not HTTP at all"),
    ],
)
def test_broken_and_slow_requests_are_answered(address: str, parts: list[bytes], status: bytes) -> None:
    assert converse(address, *parts).split(b" ")[1] == status
    assert converse(address, HEALTH).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(HEALTH[:-2] + b"X-Large: " + b"x" * 200_000 + b"\r\n\r\n", id="a large header"),
        pytest.param(HEALTH[:-2] + b"X-Large: " + b"x" * 10_000_000 + b"\r\n\r\n", id="a header of 10 MB"),
        pytest.param(HEALTH[:-2] + b"X: y\r\n" * 40_000 + b"\r\n", id="many headers"),
        pytest.param(b"GET /healthz?" + b"x" * 200_000 + HEALTH[12:], id="a long address"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 200_000, id="a body in crumbs"),
    ],
)
def test_requests_that_take_much_time_to_parse_are_cut_off(address: str, request_: bytes) -> None:
    # The connection may be reset before the answer is read, since not all that was sent is.
    assert converse(address, request_)[:12] in {b"", b"HTTP/1.1 400"}
    assert converse(address, HEALTH).startswith(b"HTTP/1.1 200")


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_many_half_open_connections_do_not_lock_others_out(address: str) -> None:
    with ExitStack() as stack:
        connections = []
        for _ in range(700):
            connections.append(stack.enter_context(connect(address)))
            connections[-1].sendall(HEAD)  # and never the end of the header
        started = time.monotonic()
        with urllib.request.urlopen(f"{address}/healthz", timeout=PATIENCE) as answer:
            assert answer.status == 200
        assert time.monotonic() - started < 10


def test_the_address_with_most_idle_connections_makes_room() -> None:
    limits = ServerLimits(max_idle_connections=50, header_timeout=PATIENCE)
    with ExitStack() as stack:
        address = stack.enter_context(listening(create_app(FakeModels(), limits=limits), limits))  # type: ignore[arg-type]
        try:
            other = stack.enter_context(connect(address, source="127.0.0.2"))
        except OSError:
            pytest.skip("this system has one loopback address")
        other.sendall(HEAD)
        connections = [stack.enter_context(connect(address)) for _ in range(60)]
        assert is_closed(connections[0])
        assert converse(address, HEALTH).startswith(b"HTTP/1.1 200")
        other.sendall(b"Content-Length: 0\r\n\r\n")
        assert other.recv(100).startswith(b"HTTP/1.1 422"), "it was older, but the only one of its address"


def test_slow_bodies_of_an_address_leave_room_for_others() -> None:
    usual = ServerLimits()
    assert 4 * usual.max_uploads_per_address <= usual.max_open_requests
    limits = ServerLimits(max_open_requests=40, max_uploads_per_address=30, body_timeout=PATIENCE)
    with ExitStack() as stack:
        address = stack.enter_context(listening(create_app(FakeModels(), limits=limits), limits))  # type: ignore[arg-type]
        slow = [stack.enter_context(connect(address)) for _ in range(40)]
        for connection in slow:
            connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\nx")
        refused = answered(slow, 10)
        waiting = [connection for connection in slow if connection not in refused]
        assert len(waiting) == 30
        answers = [answer_on(connection) for connection in refused]
        assert all(b"too_many_uploads" in answer for answer in answers)
        assert all(answer.startswith(b"HTTP/1.1 503") for answer in answers)
        with urllib.request.urlopen(f"{address}/v1/models", timeout=PATIENCE) as answer:
            assert answer.status == 200
        waiting[0].sendall(b"x" * 999)
        assert b"not_an_image" in answer_on(waiting[0]), "who came in time is still served"
        assert b"not_an_image" in converse(address, HEAD + b"Content-Length: 1\r\n\r\nx"), "the place is free again"


@pytest.mark.parametrize(
    "before", [pytest.param(b"", id="the first request"), pytest.param(HEALTH, id="a later request")]
)
def test_a_header_must_arrive_in_time(before: bytes) -> None:
    limits = ServerLimits(header_timeout=1.0)
    with (
        listening(create_app(FakeModels(), limits=limits), limits) as address,  # type: ignore[arg-type]
        connect(address) as connection,
    ):
        connection.sendall(before)
        if before:
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(HEAD)
        started = time.monotonic()
        while not is_closed(connection):
            assert time.monotonic() - started < PATIENCE
