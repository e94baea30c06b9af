"""What the server answers, path by path, and what it refuses."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dsocr.server.app import create_app
from dsocr.server.limits import Limits
from tests.conftest import PATIENCE
from tests.serving.making import FakeModels, data_uri, png

TOKEN = "a token"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def models() -> FakeModels:
    return FakeModels()


def app_of(models: FakeModels, **settings: Any) -> FastAPI:
    settings.setdefault("limits", Limits(body_bytes=100_000, pixels=1_000_000, waiting=3, deadline=PATIENCE))
    return create_app(models, **settings)  # type: ignore[arg-type]


@pytest.fixture
def client(models: FakeModels) -> Iterator[TestClient]:
    with TestClient(app_of(models)) as client:
        yield client
        models.gate.set()


def chat(*urls: str, **others: Any) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    text = {"type": "text", "text": "Please transcribe"}
    return {"model": "mine", "messages": [{"role": "user", "content": [text, *parts]}], **others}


def code(response: Any) -> str:
    return str(response.json()["error"]["code"])


def test_bytes_are_read(client: TestClient) -> None:
    answer = client.post("/v1/transcriptions", content=png(20)).json()
    assert answer.pop("id").startswith("transcription-")
    assert answer == {"model": "mine", "text": "mine 20", "tokens": 3, "confidence": None, "flags": []}
    assert client.post("/v1/transcriptions?model=base", content=png(21)).json()["text"] == "base 21"
    plain = client.post("/v1/transcriptions", content=png(22), headers={"Accept": "text/plain"})
    assert plain.text == "mine 22"


def test_a_chat_reads_the_images_of_its_last_message_that_has_any(client: TestClient) -> None:
    asked = chat(data_uri(png(20)), data_uri(png(99)), temperature=0.7, max_tokens=5)
    asked["messages"] = [
        {"role": "system", "content": "You read."},
        *asked["messages"],
        {"role": "user", "content": "?"},
    ]
    answer = client.post("/v1/chat/completions", json=asked).json()
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "mine 20\nmine 99"}
    assert choice["finish_reason"] == "length"


def test_a_chat_streams(client: TestClient) -> None:
    response = client.post("/v1/chat/completions", json=chat(data_uri(png()), stream=True))
    events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    deltas = [json.loads(event)["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("content", "") for delta in deltas) == "mine 20"


@pytest.mark.parametrize(
    ("asked", "status", "expected"),
    [
        pytest.param(chat("https://example.com/line.png"), 400, "not_a_data_uri", id="no address is fetched"),
        pytest.param(chat("file:///etc/passwd"), 400, "not_a_data_uri", id="nor a file"),
        pytest.param(chat("data:image/png;base64,%%%"), 400, "not_base64", id="not base64"),
        pytest.param(chat("data:image/png;base64,AAAA"), 422, "not_an_image", id="base64 of something else"),
        pytest.param(chat(), 400, "no_image", id="no image"),
        pytest.param(chat(*[data_uri(png())] * 17), 413, "too_many_images", id="too many images"),
        pytest.param(
            chat(data_uri(png()), data_uri(png(30)[:50])), 422, "unreadable_image", id="the second is cut off"
        ),
        pytest.param({"model": "mine"}, 400, "not_understood", id="no messages"),
        pytest.param(chat(data_uri(png()), n=2), 400, "not_understood", id="two answers are not to be had"),
        pytest.param({**chat(data_uri(png())), "model": "gpt"}, 404, "no_such_model", id="another's model"),
    ],
)
def test_a_chat_that_cannot_be_answered(client: TestClient, asked: object, status: int, expected: str) -> None:
    response = client.post("/v1/chat/completions", json=asked)
    assert (response.status_code, code(response)) == (status, expected)


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        pytest.param(b"", 422, "not_an_image", id="empty"),
        pytest.param(b"GET / HTTP/1.1", 422, "not_an_image", id="not an image"),
        pytest.param(b"<svg xmlns='http://www.w3.org/2000/svg'/>", 422, "not_an_image", id="a format that is not read"),
        pytest.param(png(30)[:50], 422, "unreadable_image", id="cut off"),
        pytest.param(b"x" * 100_001, 413, "too_large", id="a byte too many"),
        pytest.param(png(1001, 1000), 413, "too_many_pixels", id="few bytes, many pixels"),
        pytest.param(png(13), 409, "cannot_read", id="the model cannot"),
        pytest.param(png(14), 500, "fault", id="a bug is admitted"),
    ],
)
def test_bytes_that_cannot_be_read(models: FakeModels, body: bytes, status: int, expected: str) -> None:
    with TestClient(app_of(models), raise_server_exceptions=False) as client:
        response = client.post("/v1/transcriptions", content=body)
        assert (response.status_code, code(response)) == (status, expected)
        assert client.post("/v1/transcriptions", content=png()).status_code == 200


def test_a_body_without_a_length_is_cut_off_too(client: TestClient) -> None:
    chunks = (b"x" * 10_000 for _ in range(11))
    assert client.post("/v1/transcriptions", content=chunks).status_code == 413


def test_no_more_is_held_than_allowed(models: FakeModels) -> None:
    limits = Limits(body_bytes=10_000, held_bytes=5_000)
    with TestClient(app_of(models, limits=limits)) as client:
        for _ in range(2):  # what was held is given back
            response = client.post("/v1/transcriptions", content=b"x" * 6_000)
            assert (response.status_code, code(response)) == (429, "busy")
        assert client.post("/v1/transcriptions", content=png()).status_code == 200


def test_more_than_can_wait_is_told_when_to_come_back(models: FakeModels) -> None:
    models.gate.clear()
    with TestClient(app_of(models, limits=Limits(waiting=3, deadline=PATIENCE))) as client:
        asking: list[threading.Thread] = []
        for _ in range(50):  # those that come while others are being taken may be refused already
            if client.get("/readyz").status_code != 200:
                break
            asking.append(threading.Thread(target=client.post, args=("/v1/transcriptions",), kwargs={"content": png()}))
            asking[-1].start()
            time.sleep(0.02)
        response = client.post("/v1/transcriptions", content=png())
        models.gate.set()
        for thread in asking:
            thread.join()
        assert (response.status_code, code(response)) == (429, "busy")
        assert int(response.headers["Retry-After"]) >= 1
        assert client.get("/readyz").status_code == 200


def test_more_than_may_be_open_at_once_is_told_as_json_and_whether_it_lives_is_answered(models: FakeModels) -> None:
    models.gate.clear()
    with TestClient(app_of(models, limits=Limits(open_requests=1, deadline=PATIENCE))) as client:
        asking = threading.Thread(target=client.post, args=("/v1/transcriptions",), kwargs={"content": png()})
        asking.start()
        assert models.asked.wait(PATIENCE)
        response = client.get("/v1/models")
        assert client.get("/healthz").status_code == 200
        models.gate.set()
        asking.join()
        assert (response.status_code, code(response)) == (503, "crowded")
        assert response.headers["Retry-After"] == "1"
        assert client.get("/v1/models").status_code == 200
        assert 'dsocr_refusals_total{reason="crowded"} 1' in client.get("/metrics").text


def test_nobody_waits_longer_than_the_deadline(models: FakeModels) -> None:
    models.gate.clear()
    with TestClient(app_of(models, limits=Limits(deadline=0.5))) as client:
        response = client.post("/v1/transcriptions", content=png())
        assert (response.status_code, code(response)) == (504, "too_late")
        models.gate.set()
        until = time.monotonic() + PATIENCE
        while client.get("/readyz").status_code != 200:  # what was begun is read to its end
            assert time.monotonic() < until
            time.sleep(0.01)
        assert client.post("/v1/transcriptions", content=png()).status_code in {200, 504}


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/openapi.json", "/docs", "/v1/nothing"])
@pytest.mark.parametrize("given", [None, "Bearer", "Bearer wrong", "Basic a token", "Bearer a tokenx", "Bearer ü"])
def test_without_the_token_nothing_is_told(models: FakeModels, path: str, given: str | None) -> None:
    with TestClient(app_of(models, token=TOKEN)) as client:
        headers = {} if given is None else {"Authorization": given.encode("latin-1")}
        response = client.get(path, headers=headers)  # type: ignore[arg-type]
        assert (response.status_code, code(response)) == (401, "no_token")
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert client.get(path, headers=AUTHORIZED).status_code in {200, 404}
        assert client.get("/healthz").json() == {"status": "alive"}


def test_a_name_that_was_made_to_point_here_is_not_answered(models: FakeModels) -> None:
    with TestClient(app_of(models, hosts={"localhost", "::1"})) as client:
        for host, status in (("evil.example:8000", 421), ("localhost:8000", 200), ("[::1]:8000", 200), ("", 421)):
            assert client.get("/v1/models", headers={"Host": host}).status_code == status


def test_models_can_be_changed_from_the_shelf_alone(models: FakeModels, tmp_path: Path) -> None:
    adapter = tmp_path / "new"
    adapter.mkdir()
    (adapter / "reading.json").write_text("{}", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    with TestClient(app_of(models, token=TOKEN, shelf=tmp_path), headers=AUTHORIZED) as client:
        assert client.put("/v1/adapters/new").json() == {"models": ["new", "mine", "other", "base"]}
        assert client.delete("/v1/adapters/new").json() == {"models": ["mine", "other", "base"]}
        assert client.delete("/v1/adapters/new").status_code == 409
        for name in ("empty", "none", "..", "%2e%2e%2fnew", "..%2fnew"):
            assert client.put(f"/v1/adapters/{name}").status_code in {404, 405}
    with TestClient(app_of(models, shelf=tmp_path)) as client:
        assert client.put("/v1/adapters/new").status_code == 403


def test_what_happened_is_counted(client: TestClient) -> None:
    client.post("/v1/transcriptions", content=png())
    client.post("/v1/transcriptions", content=png(99))
    client.post("/v1/transcriptions", content=b"")
    client.get("/anything/at/all")
    counted = client.get("/metrics").text
    assert 'dsocr_requests_total{path="/v1/transcriptions",status="200"} 2.0' in counted
    assert 'dsocr_requests_total{path="/v1/transcriptions",status="422"} 1.0' in counted
    assert 'dsocr_requests_total{path="other",status="404"} 1.0' in counted
    assert 'dsocr_refusals_total{reason="not_an_image"} 1.0' in counted
    assert 'dsocr_doubtful_images_total{kind="truncated"} 1.0' in counted
    assert "dsocr_images_total 2.0" in counted


def test_the_manual_names_every_path_and_needs_no_scripts(client: TestClient) -> None:
    page = client.get("/docs").text
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/transcriptions", "/v1/chat/completions", "/v1/models", "/healthz", "/readyz", "/metrics"} <= set(paths)
    assert all(path in page for path in paths)
    assert "<script" not in page


def test_a_truncated_base64_body_is_not_decoded_at_all(client: TestClient) -> None:
    huge = "data:image/png;base64," + base64.b64encode(b"x" * 100_002).decode()
    response = client.post("/v1/chat/completions", json=chat(huge))
    assert response.status_code == 413
