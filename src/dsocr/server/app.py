"""The server's paths: what may be asked, and how it is answered."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from dsocr import __version__
from dsocr.errors import DsocrError
from dsocr.html import render
from dsocr.inference.confidence import Prediction
from dsocr.io.files import inside
from dsocr.server.engine import Engine, ServedModels, read_images
from dsocr.server.limits import (
    BASE64_ROOM,
    CONTENT_TYPE,
    Account,
    Budget,
    Gate,
    Limits,
    Measures,
    RefusedError,
    fault,
    image_of_data_uri,
    read_body,
    refusal_body,
    refusal_headers,
)
from dsocr.server.naming import adapter_folder


class ImageUrl(BaseModel):
    """An image as a data URI."""

    url: str


class ImagePart(BaseModel):
    """An image in a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


class TextPart(BaseModel):
    """A text in a message; it is not used, for the adapter has the prompt it was trained with."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message; images stand in the user's."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Annotated[ImagePart | TextPart, Field(discriminator="type")]]


class ChatRequest(BaseModel):
    """What is asked for. Other settings of the protocol, such as temperature, are taken and change nothing."""

    model_config = ConfigDict(extra="ignore")

    model: str
    messages: list[Message] = Field(min_length=1)
    stream: bool = False
    n: Literal[1] | None = 1

    def urls(self, limits: Limits) -> list[str]:
        """The images of the last message that has any. Raises RefusedError where there are none, or too many."""
        for message in reversed(self.messages):
            parts = message.content if isinstance(message.content, list) else []
            if urls := [part.image_url.url for part in parts if isinstance(part, ImagePart)]:
                if len(urls) > limits.images_a_request:
                    message_ = f"{len(urls)} images in one message, where {limits.images_a_request} are allowed"
                    raise RefusedError(413, "too_many_images", message_)
                return urls
        raise RefusedError(400, "no_image", "no message holds an image: add a part of type image_url with a data URI")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a chat asks for, without its body: the images' files, who reads them, and how to answer."""

    model: str
    images: list[bytes]
    stream: bool


def asked_in(body: bytes, limits: Limits) -> Asked:
    """What a body asks for. Raises pydantic's ValidationError, and RefusedError where it holds no image to read."""
    request = ChatRequest.model_validate_json(body)
    return Asked(request.model, [image_of_data_uri(url, limits) for url in request.urls(limits)], request.stream)


def completion(identifier: str, created: int, model: str, text: str, *, truncated: bool) -> dict[str, Any]:
    """The answer in one piece."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "length" if truncated else "stop",
    }
    return {
        "id": identifier,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": None,
    }


def chunks(identifier: str, created: int, model: str, text: str, *, truncated: bool) -> list[dict[str, Any]]:
    """The answer as a stream has it: who speaks, all of the text, and why it ended."""
    deltas: list[tuple[dict[str, str], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        ({"content": text}, None),
        ({}, "length" if truncated else "stop"),
    ]
    return [
        {
            "id": identifier,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        }
        for delta, reason in deltas
    ]


_ADDRESS = "http://127.0.0.1:8000"
_CHAT_MANUAL = """\
client = openai.OpenAI(base_url='{address}/v1', api_key='TOKEN')
image = 'data:image/png;base64,' + base64.b64encode(open('line.png', 'rb').read()).decode()
part = {{'type': 'image_url', 'image_url': {{'url': image}}}}
answer = client.chat.completions.create(model='{model}', messages=[{{'role': 'user', 'content': [part]}}])
print(answer.choices[0].message.content)"""


def manual(description: Mapping[str, Any], models: Sequence[str]) -> str:
    """Render an OpenAPI description with examples that use the first of these models."""
    examples = {
        "/v1/transcriptions": f"curl --data-binary @line.png {_ADDRESS}/v1/transcriptions",
        "/v1/chat/completions": _CHAT_MANUAL.format(address=_ADDRESS, model=models[0]),
    }
    return render(__package__, "manual.html.jinja", description=description, models=models, examples=examples)


class Transcription(BaseModel):
    """What was read of one image.

    `confidence` is the share of the text that is likely to be right. `flags` are reasons to look at it whatever that
    says: empty, looping, truncated, overruled.
    """

    id: str
    model: str
    text: str
    tokens: int
    confidence: float | None
    flags: list[str]


class Fault(BaseModel):
    """Why a request was not served."""

    message: str
    type: str
    code: str


class Faults(BaseModel):
    """A refusal, as OpenAI's clients read it."""

    error: Fault


_STATUSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Faults, "description": description}
    for status, description in (
        (400, "the request cannot be understood"),
        (401, "the token is missing or wrong"),
        (403, "the models of this server stay as they are"),
        (404, "no such model or run"),
        (408, "the body came too slowly"),
        (409, "the model cannot do that"),
        (413, "the body or the image is too large"),
        (421, "not a host name of this server"),
        (422, "not an image that can be read"),
        (429, "too many requests; see Retry-After"),
        (503, "the image takes more memory than is free, too many requests are open, or the server is ending"),
        (504, "not read in time"),
    )
}
_IMAGE_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_CHAT = ChatRequest.model_json_schema(ref_template="#/components/schemas/{model}")
_CHAT_PARTS: dict[str, Any] = _CHAT.pop("$defs")
_CHAT_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": _CHAT}}}}


class _Described(FastAPI):
    """An application whose description knows the parts of a chat, too: their bodies are read within limits, by hand."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI description."""
        description = super().openapi()
        description["components"]["schemas"].update(_CHAT_PARTS)
        return description


def create_app(
    models: ServedModels,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Collection[str] | None = None,
    shelf: Path | None = None,
) -> FastAPI:
    """The application, which reads from when it starts until it ends. Without `hosts` it answers under any host name.

    `shelf` is a folder of runs that may be taken in while the server runs, by those who have the token.
    """
    limits = limits or Limits()
    measures = Measures()
    budget = Budget(limits.held_bytes)
    engine = Engine(models, limits, measures)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        engine.start()
        try:
            yield
        finally:
            engine.close()

    app = _Described(
        title="dsocr",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.add_middleware(Gate, token=token, hosts=hosts, measures=measures, most=limits.open_requests)

    @app.exception_handler(RefusedError)
    async def refuse(_: Request, refusal: RefusedError) -> Response:
        measures.was_refused(refusal.code)
        return JSONResponse(refusal_body(refusal), refusal.status, refusal_headers(refusal))

    @app.exception_handler(Exception)
    async def admit_a_fault(request: Request, _: Exception) -> Response:
        return await refuse(request, fault())

    @app.exception_handler(RequestValidationError)
    async def refuse_parameters(request: Request, error: RequestValidationError) -> Response:
        return await refuse(request, _not_understood(error))

    @app.exception_handler(HTTPException)
    async def refuse_path(_: Request, error: HTTPException) -> Response:
        refusal = RefusedError(error.status_code, "no_such_path", str(error.detail))
        return JSONResponse(refusal_body(refusal), error.status_code, dict(error.headers or {}))

    def chosen(model: str | None) -> str:
        name = model or models.default
        if name not in models.names:
            raise RefusedError(404, "no_such_model", f"there is no model {name!r}; there are {', '.join(models.names)}")
        return name

    async def predictions(request: Request, images: list[bytes], model: str) -> list[Prediction]:
        return await read_images(request, images, model, engine, limits)

    async def body_of(request: Request, most: int, account: Account) -> bytes:
        engine.demand_room()
        return await read_body(request, most, limits, account)

    async def chat_in(request: Request, account: Account) -> Asked:
        body = await body_of(request, limits.body_bytes * 4 // 3 + BASE64_ROOM, account)
        try:
            asked = asked_in(body, limits)
        except ValidationError as error:
            raise _not_understood(error) from None
        account.keep(sum(map(len, asked.images)))  # the body goes, its images wait
        return asked

    @app.post(
        "/v1/transcriptions",
        response_model=Transcription,
        responses={**_STATUSES, 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        openapi_extra=_IMAGE_BODY,
    )
    async def transcriptions(request: Request, model: str | None = None) -> Any:
        """Read the image whose bytes are the body; `Accept: text/plain` asks for the text alone."""
        name = chosen(model)
        with budget.account() as account:
            data = await body_of(request, limits.body_bytes, account)
            (prediction,) = await predictions(request, [data], name)
        if request.headers.get("accept", "").startswith("text/plain"):
            return PlainTextResponse(prediction.text)
        return Transcription(
            id=_identifier("transcription"),
            model=name,
            text=prediction.text,
            tokens=prediction.tokens,
            confidence=prediction.confidence,
            flags=list(prediction.flags),
        )

    @app.post("/v1/chat/completions", responses=_STATUSES, openapi_extra=_CHAT_BODY)
    async def chat_completions(request: Request) -> Response:
        """Read the images of the last message that has any, each a data URI; their texts are joined by line breaks."""
        with budget.account() as account:
            asked = await chat_in(request, account)
            name = chosen(asked.model)
            read = await predictions(request, asked.images, name)
        text, truncated = "\n".join(one.text for one in read), any(one.truncated for one in read)
        identifier, created = _identifier("chatcmpl"), int(time.time())
        if not asked.stream:
            return JSONResponse(completion(identifier, created, name, text, truncated=truncated))
        pieces = [json.dumps(piece) for piece in chunks(identifier, created, name, text, truncated=truncated)]
        events = [f"data: {piece}\n\n" for piece in [*pieces, "[DONE]"]]
        return StreamingResponse(iter(events), media_type="text/event-stream")

    @app.put("/v1/adapters/{name}", responses=_STATUSES)
    async def load_adapter(name: str) -> dict[str, list[str]]:
        """Take in the run of that name from the server's shelf, or take it in anew; answers what can be named."""
        folder = _on_shelf(shelf, name, token)
        await _between_batches(engine, lambda: models.load(name, folder))
        return {"models": models.names}

    @app.delete("/v1/adapters/{name}", responses=_STATUSES)
    async def unload_adapter(name: str) -> dict[str, list[str]]:
        """Forget an adapter; the default stays."""
        _on_shelf(shelf, name, token, there=False)
        await _between_batches(engine, lambda: models.unload(name))
        return {"models": models.names}

    @app.get("/v1/models", responses={status: _STATUSES[status] for status in (401, 421)})
    async def list_models() -> dict[str, Any]:
        """What can be named as a model."""
        names = models.names
        return {
            "object": "list",
            "data": [{"id": name, "object": "model", "created": 0, "owned_by": "dsocr"} for name in names],
        }

    @app.get("/healthz", responses={503: _STATUSES[503]})
    async def healthz() -> dict[str, str]:
        """Whether the server lives."""
        if not engine.is_alive:
            raise RefusedError(503, "not_alive", "the thread that reads has ended")
        return {"status": "alive"}

    @app.get("/readyz", responses={503: _STATUSES[503]})
    async def readyz() -> dict[str, str]:
        """Whether an image would be taken."""
        engine.demand_room()
        return {"status": "ready"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters, as Prometheus reads them."""
        return Response(measures.as_text(), media_type=CONTENT_TYPE)

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> Response:
        """The paths and how to use them, as a page without scripts."""
        return HTMLResponse(manual(app.openapi(), models.names))

    return app


def _on_shelf(shelf: Path | None, name: str, token: str | None, *, there: bool = True) -> Path:
    """The adapter of a run on the shelf. Raises RefusedError where nobody may change the models, or there is none."""
    if shelf is None or token is None:
        raise RefusedError(
            403, "fixed_models", "this server was started without --shelf or without a token: its models stay"
        )
    try:
        folder = inside(shelf, name)
        return adapter_folder(folder) if there else folder
    except DsocrError as error:
        raise RefusedError(404, "no_such_run", f"no finished run {name!r} on the shelf: {error.message}") from None


async def _between_batches(engine: Engine, change: Callable[[], None]) -> None:
    try:
        await asyncio.wrap_future(engine.call(change))
    except DsocrError as error:
        raise RefusedError(409, "cannot_change", str(error)) from None


def _identifier(kind: str) -> str:
    return f"{kind}-{uuid4().hex}"


def _not_understood(error: RequestValidationError | ValidationError) -> RefusedError:
    faults = [f"{'.'.join(map(str, fault['loc'])) or 'body'}: {fault['msg']}" for fault in error.errors()]
    return RefusedError(400, "not_understood", "; ".join(faults[:5]))
