"""Who is let in from other machines."""

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect

from dsocr.workbench.serving import TokenMiddleware


async def greet(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("hello")
    await websocket.close()


def client(token: str = "t0ken", secret: str = "secret") -> TestClient:
    routes = [Route("/ru", lambda _: PlainTextResponse("inside")), WebSocketRoute("/socket", greet)]
    app: ASGIApp = TokenMiddleware(Starlette(routes=routes), token=token, secret=secret)
    return TestClient(app, follow_redirects=False)


def test_the_token_is_shown_once_and_leaves_the_address() -> None:
    browser = client()
    answer = browser.get("/ru?token=t0ken")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ru")
    assert "t0ken" not in answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict"} <= set(answer.headers["set-cookie"].split("; "))
    assert browser.get("/ru").text == "inside"
    with browser.websocket_connect("/socket") as socket:
        assert socket.receive_text() == "hello"


@pytest.mark.parametrize("address", ["/ru", "/ru?token=", "/ru?token=other", "/ru?token=ключ"])
def test_without_it_nobody_is_let_in(address: str) -> None:
    browser = client()
    browser.cookies.set("dsocr_token", "made-up")
    assert browser.get(address).status_code == 401
    with pytest.raises(WebSocketDisconnect) as error, browser.websocket_connect("/socket?token=t0ken"):
        pass
    assert error.value.code == 1008


@pytest.mark.parametrize("other", [{"token": "another"}, {"secret": "another"}])
def test_a_cookie_is_worthless_elsewhere(other: dict[str, str]) -> None:
    browser, elsewhere = client(), client(**other)
    browser.get("/ru?token=t0ken")
    elsewhere.cookies = browser.cookies
    assert elsewhere.get("/ru").status_code == 401
