"""The server's response on each path, and the requests it rejects."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dsocr.server.access import ServerLimits
from dsocr.server.routes import create_app
from tests.conftest import PATIENCE
from tests.server.fakes import FakeModels, data_uri, png

TOKEN = "a token"
LIMITS = ServerLimits(max_body_bytes=100_000, max_pixels=1_000_000, max_queued=3, deadline=PATIENCE)


@pytest.fixture
def models() -> Iterator[FakeModels]:
    models = FakeModels()
    yield models
    models.gate.set()


def app_of(models: FakeModels, **settings: Any) -> FastAPI:
    settings.setdefault("limits", LIMITS)
    return create_app(models, **settings)  # type: ignore[arg-type]


@pytest.fixture
def client(models: FakeModels) -> Iterator[TestClient]:
    with TestClient(app_of(models)) as client:
        yield client


def chat(*urls: str, **others: Any) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    text = {"type": "text", "text": "Please transcribe"}
    return {"model": "mine", "messages": [{"role": "user", "content": [text, *parts]}], **others}


def code(response: Any) -> str:
    return str(response.json()["error"]["code"])


def test_transcriptions_take_image_bytes(client: TestClient) -> None:
    answer = client.post("/v1/transcriptions", content=png(20)).json()
    assert answer.pop("id").startswith("transcription-")
    assert answer == {"model": "mine", "text": "mine 20", "tokens": 4, "confidence": None, "flags": []}
    assert client.post("/v1/transcriptions?model=other", content=png(21)).json()["text"] == "other 21"
    plain = client.post("/v1/transcriptions", content=png(22), headers={"Accept": "text/plain"})
    assert plain.text == "mine 22"


def test_chat_reads_the_last_message_with_images_and_reports_usage(client: TestClient) -> None:
    request = chat(data_uri(png(20)), data_uri(png(99)), temperature=0.7, max_tokens=5, stream=None)
    request["messages"] = [
        {"role": "system", "content": "You read."},
        *request["messages"],
        {"role": "user", "content": "?"},
    ]
    answer = client.post("/v1/chat/completions", json=request).json()
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "mine 20\nmine 99"}
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"] is None
    assert answer["usage"] == {"prompt_tokens": 0, "completion_tokens": 8, "total_tokens": 8}
    assert [one["flags"] for one in answer["dsocr"]] == [[], ["truncated"]]


def test_logprobs_spell_the_answer_token_by_token(client: TestClient) -> None:
    answer = client.post("/v1/chat/completions", json=chat(data_uri(png()), data_uri(png()), logprobs=True)).json()
    content = answer["choices"][0]["logprobs"]["content"]
    assert [(one["token"], one["logprob"]) for one in content] == [
        *(("mine 2", -0.5), ("0", -0.5)),  # the tokens of one letter count as one
        ("\n", 0.0),
        *(("mine 2", -0.5), ("0", -0.5)),
    ]
    assert b"".join(bytes(one["bytes"]) for one in content).decode() == "mine 20\nmine 20"


@pytest.mark.parametrize("usage", [[], [([], 4)]])
def test_chat_streams(client: TestClient, usage: list[object]) -> None:
    request = chat(data_uri(png()), stream=True, logprobs=True, stream_options={"include_usage": bool(usage)})
    response = client.post("/v1/chat/completions", json=request)
    first, *further, done = (line.removeprefix("data: ") for line in response.text.split("\n\n") if line)
    (choice,) = json.loads(first)["choices"]
    assert (choice["delta"]["content"], len(choice["logprobs"]["content"]), done) == ("mine 20", 2, "[DONE]")
    last = [json.loads(event) for event in further]
    assert [(chunk["choices"], chunk["usage"]["completion_tokens"]) for chunk in last] == usage


@pytest.mark.parametrize(
    ("request_", "status", "expected"),
    [
        pytest.param(chat("https://example.com/line.png"), 400, "not_a_data_uri", id="URLs are not fetched"),
        pytest.param(chat("file:///etc/passwd"), 400, "not_a_data_uri", id="nor files"),
        pytest.param(chat("data:image/png;base64,%%%"), 400, "invalid_base64", id="not base64"),
        pytest.param(chat("data:image/png;base64,AAAA"), 422, "not_an_image", id="base64 of something else"),
        pytest.param(chat(), 400, "no_image", id="no image"),
        pytest.param(chat(*[data_uri(png())] * 17), 413, "too_many_images", id="too many images"),
        pytest.param(chat(data_uri(png()), data_uri(png(30)[:50])), 422, "unreadable_image", id="second one damaged"),
        pytest.param({"model": "mine"}, 400, "invalid_request", id="no messages"),
        pytest.param(chat(data_uri(png()), n=2), 400, "invalid_request", id="two answers"),
        pytest.param({**chat(data_uri(png())), "model": "gpt"}, 404, "model_not_found", id="unknown model"),
    ],
)
def test_invalid_chats(client: TestClient, request_: object, status: int, expected: str) -> None:
    response = client.post("/v1/chat/completions", json=request_)
    assert (response.status_code, code(response)) == (status, expected)


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        pytest.param(b"", 422, "not_an_image", id="empty"),
        pytest.param(b"GET / HTTP/1.1", 422, "not_an_image", id="not an image"),
        pytest.param(b"<svg xmlns='http://www.w3.org/2000/svg'/>", 422, "not_an_image", id="unsupported format"),
        pytest.param(png(30)[:50], 422, "unreadable_image", id="damaged"),
        pytest.param(b"x" * 100_001, 413, "body_too_large", id="one byte too many"),
        pytest.param((b"x" * 10_000 for _ in range(11)), 413, "body_too_large", id="too many chunks"),
        pytest.param(iter([b"x" * 100_000, b"x"]), 413, "body_too_large", id="chunks of one byte too many"),
        pytest.param(iter([b"x" * 100_000]), 422, "not_an_image", id="chunks of as many bytes as are allowed"),
        pytest.param(png(1001, 1000), 413, "too_many_pixels", id="few bytes, many pixels"),
        pytest.param(png(1, 201), 413, "extreme_aspect_ratio", id="tall as a thread: gigabytes at a line's height"),
        pytest.param(png(2010, 10), 413, "extreme_aspect_ratio", id="and wide"),
        pytest.param(png(13), 409, "cannot_read", id="the model raises an error"),
        pytest.param(png(14), 500, "internal_error", id="a bug"),
    ],
)
def test_invalid_images(models: FakeModels, body: Any, status: int, expected: str) -> None:
    with TestClient(app_of(models), raise_server_exceptions=False) as client:
        response = client.post("/v1/transcriptions", content=body)
        assert (response.status_code, code(response)) == (status, expected)
        assert client.post("/v1/transcriptions", content=png()).status_code == 200


@pytest.mark.parametrize(
    ("model", "size", "flags"),
    [
        pytest.param("mine", (600, 900), ["page_shaped"], id="a page sent to a model of lines"),
        pytest.param("mine", (900, 90), [], id="a line"),
        pytest.param("other", (600, 900), [], id="a page sent to a model of pages"),
    ],
)
def test_a_page_read_as_a_line_is_flagged(
    client: TestClient, model: str, size: tuple[int, int], flags: list[str]
) -> None:
    answer = client.post(f"/v1/transcriptions?model={model}", content=png(*size)).json()
    assert answer["flags"] == flags


def test_held_bytes_are_bounded_and_released(models: FakeModels) -> None:
    with TestClient(app_of(models, limits=ServerLimits(max_body_bytes=10_000, max_held_bytes=5_000))) as client:
        for _ in range(2):
            response = client.post("/v1/transcriptions", content=b"x" * 6_000)
            assert (response.status_code, code(response)) == (429, "busy")
            assert client.post("/v1/transcriptions", content=b"x" * 4_000).status_code == 422
        assert client.post("/v1/transcriptions", content=png()).status_code == 200


def test_a_full_queue_answers_429_and_recovers_at_once(models: FakeModels) -> None:
    models.gate.clear()
    with TestClient(app_of(models)) as client:
        with ThreadPoolExecutor(20) as threads:
            while client.get("/readyz").status_code == 200:
                threads.submit(client.post, "/v1/transcriptions", content=png())
                time.sleep(0.02)
            response = client.post("/v1/transcriptions", content=png())
            assert (response.status_code, code(response)) == (429, "busy")
            assert int(response.headers["Retry-After"]) >= 1
            time.sleep(0.2)  # a slow batch must not make the server more careful afterwards
            models.gate.set()
        assert [client.post("/v1/transcriptions", content=png()).status_code for _ in range(9)] == [200] * 9


def test_no_request_waits_longer_than_the_deadline(models: FakeModels) -> None:
    models.gate.clear()
    with TestClient(app_of(models, limits=ServerLimits(deadline=0.5))) as client:
        response = client.post("/v1/transcriptions", content=png())
        assert (response.status_code, code(response)) == (504, "deadline_exceeded")
        models.gate.set()


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/openapi.json", "/v1/nothing"])
def test_every_path_but_health_needs_the_token(models: FakeModels, path: str) -> None:
    with TestClient(app_of(models, token=TOKEN)) as client:
        for given in ("Bearer", "Bearer wrong", "Basic a token", "Bearer a tokenx", "Bearer ü", ""):
            response = client.get(path, headers=[(b"Authorization", given.encode("latin-1"))] if given else [])
            assert (response.status_code, code(response)) == (401, "invalid_token"), given
            assert response.headers["WWW-Authenticate"] == "Bearer"
        assert client.get(path, headers={"Authorization": f"Bearer {TOKEN}"}).status_code in {200, 404}
        assert client.get("/healthz").json() == {"status": "alive"}


def test_other_host_names_are_rejected(models: FakeModels) -> None:
    with TestClient(app_of(models, hosts={"localhost", "::1"})) as client:
        for host, status in (("evil.example:8000", 421), ("localhost:8000", 200), ("[::1]:8000", 200), ("", 421)):
            assert client.get("/v1/models", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"Origin": "https://evil.example", "Content-Type": "text/plain"}, 403, id="without a preflight"),
        pytest.param({"Origin": "null"}, 403, id="from a sandboxed frame or a file"),
        pytest.param({"Origin": "http://localhost:9000", "Host": "localhost:8000"}, 403, id="another port"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, 403, id="without an origin"),
        pytest.param({"Origin": "http://localhost:8000", "Host": "localhost:8000"}, 200, id="our own page"),
        pytest.param({}, 200, id="not a browser"),
    ],
)
def test_pages_of_other_sites_cannot_use_a_server_without_a_token(
    client: TestClient, headers: dict[str, str], status: int
) -> None:
    assert client.post("/v1/transcriptions", content=png(), headers=headers).status_code == status


def test_no_response_may_be_framed_or_run_scripts(client: TestClient) -> None:
    for path in ("/openapi.json", "/v1/models", "/nothing"):
        headers = client.get(path).headers
        assert headers["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_metrics_count_images_and_rejections(client: TestClient) -> None:
    def count(line: str) -> float:
        values = [row.rpartition(" ")[2] for row in client.get("/metrics").text.splitlines() if row.startswith(line)]
        return float(values[0]) if values else 0.0

    lines = [
        "dsocr_batch_images_sum",
        "dsocr_request_seconds_count",
        'dsocr_rejections_total{reason="not_an_image"}',
        'dsocr_flagged_images_total{flag="truncated"}',
    ]
    before = [count(line) for line in lines]
    client.post("/v1/transcriptions", content=png())
    client.post("/v1/transcriptions", content=png(99))
    client.post("/v1/transcriptions", content=b"")
    assert [count(line) - value for line, value in zip(lines, before, strict=True)] == [2, 2, 1, 1]
