"""A server that really listens, asked by clients that others wrote: OpenAI's, and one that makes up requests."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from dsocr.server.app import create_app
from dsocr.server.limits import Limits
from tests.conftest import PATIENCE
from tests.serving.making import FakeModels, data_uri, listening, png

LIMITS = Limits(body_bytes=100_000, waiting=8, deadline=PATIENCE, body_seconds=2.0)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server with fake models at a free port of this machine."""
    with listening(create_app(FakeModels(), limits=LIMITS)) as address:  # type: ignore[arg-type]
        yield address


def test_openais_client_reads_streams_and_lists(address: str) -> None:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["mine", "other", "base"]
        messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": data_uri(png())}}]}]
        answer = client.chat.completions.create(model="mine", messages=messages)  # type: ignore[arg-type]
        assert answer.choices[0].message.content == "mine 20"
        assert answer.choices[0].finish_reason == "stop"
        stream = client.chat.completions.create(model="other", messages=messages, stream=True)  # type: ignore[arg-type]
        pieces = [chunk.model_dump()["choices"][0]["delta"].get("content") for chunk in stream]  # type: ignore[union-attr]
        assert "".join(filter(None, pieces)) == "other 20"
        with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'"):
            client.chat.completions.create(model="gpt", messages=messages)  # type: ignore[arg-type]


OPERATIONS = [
    *("POST /v1/transcriptions", "POST /v1/chat/completions", "GET /v1/models", "PUT /v1/adapters/{name}"),
    *("DELETE /v1/adapters/{name}", "GET /healthz", "GET /readyz", "GET /metrics"),
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_whatever_is_asked_the_answer_is_as_described(address: str, operation: str) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    method, path = operation.split()

    @given(case=schema[path][method].as_strategy())
    @settings(max_examples=25, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def ask(case: schemathesis.Case[Any]) -> None:
        # A schema cannot say that bytes are an image, so what fits it may still be refused.
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    ask()


def conversation(address: str, *parts: bytes, pause: float = 0.0) -> bytes:
    """What the server says to raw bytes, sent part by part."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        said = b""
        while chunk := connection.recv(65536):
            said += chunk
            if b"\r\n\r\n" in said and b"}" in said:
                break
        return said


HEAD = b"POST /v1/transcriptions HTTP/1.1\r\nHost: localhost\r\n"


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
def test_broken_and_slow_clients_are_sent_away(address: str, parts: list[bytes], status: bytes) -> None:
    assert conversation(address, *parts).split(b" ")[1] == status
    assert conversation(address, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200")
