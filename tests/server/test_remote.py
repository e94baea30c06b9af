"""Transcribing by a server: the same texts as by the run itself, and patience with one that is busy."""

import dataclasses
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dsocr.inference.engines import RemoteEngine, RemoteReader
from dsocr.inference.transcribe import transcribe
from dsocr.io.web import WebError
from dsocr.models.generation import Generation
from dsocr.runs import ReadingSettings
from dsocr.server.routes import create_app
from dsocr.text import TextPolicy
from tests.conftest import draw_line
from tests.inference.reading_pages import fake_run
from tests.raising import raises_code
from tests.server.fakes import FakeModels, listening

SETTINGS = ReadingSettings("nano", None, "<image>\nFree OCR.", "wrap", TextPolicy(), Generation().as_dict())


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with listening(create_app(FakeModels())) as address:  # type: ignore[arg-type]
        yield f"{address}/v1"


def test_what_a_server_reads_is_written_in_order(address: str, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "mine").path
    (tmp_path / "scans").mkdir()
    for number in range(4):
        draw_line(tmp_path / "scans" / f"{number}.png", "a" * (number + 1))
    report = transcribe(run, [tmp_path / "scans"], tmp_path / "texts.jsonl", engine=address)
    rows = [json.loads(line) for line in report.out.read_text(encoding="utf-8").splitlines()]
    assert [row["text"] for row in rows] == [f"mine {26 * number + 46}" for number in range(4)]
    assert {row["confidence"] for row in rows} == {0.6065}, "from the server's log probabilities"


def test_a_model_that_is_not_served_and_a_server_that_is_not_there_are_sentences(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    image = [("line", Image.new("L", (40, 10)))]
    with raises_code("engine-refused"):
        list(RemoteReader(RemoteEngine(address, "other name"), SETTINGS).read(image))
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with raises_code("engine-unreachable"):
        list(RemoteReader(RemoteEngine(nobody, "mine"), SETTINGS).read(image))
    with raises_code("engine-address"):
        RemoteEngine("file:///etc/passwd", "mine")


def completion(text: str, reason: str = "stop") -> bytes:
    answer = {"choices": [{"message": {"content": text}, "finish_reason": reason}], "usage": {"completion_tokens": 7}}
    return json.dumps(answer).encode()


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Has the server give these answers, one after the other; gives what it was asked and how long was waited."""

    def prepare(*answers: object) -> list[Any]:
        seen: list[Any] = []
        left = iter(answers)

        def answer(url: str, body: bytes, headers: dict[str, str], *, timeout: float, limit: int) -> bytes:
            seen.append(json.loads(body) | {"headers": headers})
            said = next(left)
            if isinstance(said, Exception):
                raise said
            assert isinstance(said, bytes)
            return said

        monkeypatch.setattr("dsocr.inference.engines.post", answer)
        monkeypatch.setattr(time, "sleep", seen.append)
        return seen

    return prepare


def away() -> WebError:
    return WebError("away", is_transient=True)


def refusal(status: int, after: float | None = None) -> WebError:
    return WebError("busy", status, is_transient=True, wait=after)


def read_one() -> Any:
    engine = RemoteEngine("http://localhost/v1/", "mine", concurrency=1)
    (prediction,) = RemoteReader(engine, SETTINGS).read([("line", Image.new("L", (40, 10)))])
    return prediction


def test_a_busy_server_is_asked_again_when_it_says(answering: Callable[..., list[Any]]) -> None:
    seen = answering(refusal(429, 7.0), refusal(503), away(), completion("text"))
    assert read_one().text == "text"
    assert [seconds for seconds in seen if isinstance(seconds, float)] == [7.0, 1.0, 2.0]


def test_a_server_that_restarts_is_waited_for_and_a_wrong_address_is_not(answering: Callable[..., list[Any]]) -> None:
    unreachable = [away()] * 5
    reader = RemoteReader(RemoteEngine("http://localhost/v1/", "mine", concurrency=1), SETTINGS)
    image = Image.new("L", (40, 10))
    answering(completion("one"), *unreachable, completion("two"))
    assert [prediction.text for prediction in reader.read([("a", image), ("b", image)])] == ["one", "two"]
    asked = answering(*unreachable, completion("late"))
    with raises_code("engine-unreachable"):
        read_one()
    assert sum(seconds for seconds in asked if isinstance(seconds, float)) < 10


def test_a_server_that_ends_in_the_middle_of_an_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    whole = completion("text")
    answers = [
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(whole), whole[:9]),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n" + whole[:4],
        b"nothing that HTTP has\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(whole), whole),
    ]

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            length = 0
            while line := self.rfile.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            self.rfile.read(length)
            self.wfile.write(answers.pop(0))

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            engine = RemoteEngine(f"http://127.0.0.1:{server.server_address[1]}/v1", "mine")
            (prediction,) = RemoteReader(engine, SETTINGS).read([("line", Image.new("L", (40, 10)))])
        finally:
            server.shutdown()
    assert (prediction.text, answers) == ("text", [])


def test_a_loop_is_cut_off_and_marked(answering: Callable[..., list[Any]]) -> None:
    answering(completion("начало " + "и так далее " * 40))
    prediction = read_one()
    assert prediction.text == "начало"
    assert prediction.flags == ("looping",)


ALONE = [["image_url"]]


@pytest.mark.parametrize(
    ("base", "prompt", "expected"),
    [
        pytest.param("nano", "<image>\nFree OCR.", [["image_url", "Free OCR."]], id="DeepSeek-OCR"),
        pytest.param("lightonai/LightOnOCR-3-0.8B", "", ALONE, id="the image alone"),
        pytest.param("allenai/olmOCR-2-7B-1025", "Read.", [["Read.", "image_url"]], id="the prompt first"),
        pytest.param("stanford-oval/churro-3B", "", ["Transcribe", ["image_url"]], id="in the system message"),
    ],
)
def test_a_server_is_asked_as_the_network_was_trained(
    base: str, prompt: str, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies: list[dict[str, Any]] = []

    def answer(url: str, body: bytes, *_: Any, **__: Any) -> bytes:
        bodies.append(json.loads(body))
        return json.dumps({"choices": [{"message": {"content": "a"}}]}).encode()

    monkeypatch.setattr("dsocr.inference.engines.post", answer)
    settings = dataclasses.replace(SETTINGS, base=base, prompt=prompt)
    list(RemoteReader(RemoteEngine("http://localhost/v1", "mine"), settings).read([("a", Image.new("L", (40, 10)))]))
    shown = [
        content[:10] if isinstance(content, str) else [part.get("text") or part["type"] for part in content]
        for content in (message["content"] for message in bodies[0]["messages"])
    ]
    assert shown == expected
    assert bodies[0]["chat_template_kwargs"] == {"enable_thinking": False}
