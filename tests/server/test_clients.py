"""A listening server and clients that others wrote: OpenAI's, a fuzzer, and some that are slow or broken.

Two of them are imported where they are used, for they take a second that every process would wait.
"""

import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from dsocr.server.access import ServerLimits
from dsocr.server.routes import create_app
from tests.conftest import PATIENCE
from tests.server.fakes import FakeModels, data_uri, listening, png

LIMITS = ServerLimits(max_body_bytes=100_000, max_queued=8, deadline=PATIENCE, body_timeout=1.0)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with listening(create_app(FakeModels(), limits=LIMITS), LIMITS) as address:  # type: ignore[arg-type]
        yield address


@pytest.mark.slow
def test_openai_client(address: str) -> None:
    import openai

    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["mine", "other"]
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
    @settings(max_examples=5, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def send(case: "schemathesis.Case[Any]") -> None:
        # A schema cannot say that bytes are an image, so data that matches it may still be rejected.
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    send()


def converse(address: str, *parts: bytes) -> bytes:
    """The start of the answer to raw bytes, sent part by part."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        for part in parts:
            with suppress(ConnectionError):  # it may have been answered and closed already
                connection.sendall(part)
        return connection.recv(65536)


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
        pytest.param([HEALTH[:-2] + b"X-Large: " + b"x" * 70_000], b"400", id="a large header"),
    ],
)
def test_broken_and_slow_requests_are_answered(address: str, parts: list[bytes], status: bytes) -> None:
    assert converse(address, *parts).split(b" ")[1] == status
    assert converse(address, HEALTH).startswith(b"HTTP/1.1 200")
