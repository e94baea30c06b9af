"""The server's routes: what can be requested, and how it is answered."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal
from uuid import uuid4

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException

from dsocr import __version__
from dsocr.html import render
from dsocr.inference.confidence import Prediction
from dsocr.server.access import AccessMiddleware, RequestError
from dsocr.server.engine import Engine, ServedModels, Transcript, read_images
from dsocr.server.limits import (
    MAX_TEXT_BYTES,
    METRICS_TYPE,
    ByteAccount,
    ByteBudget,
    Metrics,
    MetricsMiddleware,
    ServerLimits,
    Uploads,
    check_chat_body,
    decode_data_uri,
    guarded_protocol,
    internal_error,
    read_body,
    too_many_images,
)

_MAX_PARTS = 1000
"""Messages of a chat, and parts of a message."""
_MAX_NAME = 200
_MAX_PROBLEM = 300
"""Characters of a message about a field, which may repeat what was sent."""
_MIN_LOGPROB = -9999.0
"""What OpenAI's API answers for a probability of almost zero; JSON has no infinity."""
_CSP = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


class ImageUrl(BaseModel):
    """An image as a data URI."""

    url: str


class ImagePart(BaseModel):
    """An image in a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


class TextPart(BaseModel):
    """A text in a message. It has no effect: an adapter reads with the prompt it was trained with."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """A message of a chat; images belong to the user's."""

    role: Literal["system", "developer", "user", "assistant"]
    content: (
        str
        | Annotated[
            list[Annotated[ImagePart | TextPart, Field(discriminator="type")]],
            Field(fail_fast=True, max_length=_MAX_PARTS),
        ]
    )


class StreamOptions(BaseModel):
    """Options of a streamed answer."""

    include_usage: bool = False


class ChatRequest(BaseModel):
    """A chat completion request. Other settings of the protocol, such as temperature, are accepted and ignored."""

    model: Annotated[str, Field(max_length=_MAX_NAME)]
    messages: Annotated[list[Message], Field(fail_fast=True, min_length=1, max_length=_MAX_PARTS)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    logprobs: bool | None = False
    n: Literal[1] | None = 1

    def images(self, limits: ServerLimits) -> list[bytes]:
        """The images of the last message that has any. Raises RequestError if there are none, or too many."""
        for message in reversed(self.messages):
            parts = message.content if isinstance(message.content, list) else []
            if urls := [part.image_url.url for part in parts if isinstance(part, ImagePart)]:
                if len(urls) > limits.max_images_per_request:
                    text = f"{len(urls)} images in one message; at most {limits.max_images_per_request} are allowed"
                    raise too_many_images(text)
                return [decode_data_uri(url, limits) for url in urls]
        raise RequestError(400, "no_image", "no message has an image: add a part of type image_url with a data URI")


class Transcription(BaseModel):
    """The transcription of one image.

    `confidence` is the estimated share of the text that is right. `flags` are reasons to review it in any case: empty,
    looping, truncated, overruled, or page_shaped for what looks like a page and was read as a line.
    """

    id: str
    model: str
    text: str
    tokens: int
    confidence: float | None
    flags: list[str]


class ErrorDetail(BaseModel):
    """Why a request was not served."""

    message: str
    type: str
    code: str


class ErrorResponse(BaseModel):
    """An error in the form that OpenAI's clients expect."""

    error: ErrorDetail


_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": description}
    for status, description in (
        (400, "invalid request"),
        (401, "missing or wrong token"),
        (403, "the request comes from another site's page"),
        (404, "no such model"),
        (408, "the body arrived too slowly"),
        (409, "the model cannot read it"),
        (413, "the body or the image is too large"),
        (421, "not a host name of this server"),
        (422, "not an image that can be read"),
        (429, "the queue is full; see Retry-After"),
        (503, "out of memory, too many open requests, or the server is shutting down"),
        (504, "not read before the deadline"),
    )
}
_IMAGE_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_CHAT_SCHEMA = ChatRequest.model_json_schema(ref_template="#/components/schemas/{model}")
_CHAT_PARTS: dict[str, Any] = _CHAT_SCHEMA.pop("$defs")
_CHAT_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": _CHAT_SCHEMA}}}}


class _App(FastAPI):
    """FastAPI, with the parts of a chat in its description: bodies are read within limits, not by FastAPI."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI description."""
        description = super().openapi()
        description["components"]["schemas"].update(_CHAT_PARTS)
        return description


def create_app(
    models: ServedModels,
    *,
    limits: ServerLimits | None = None,
    token: str | None = None,
    hosts: Collection[str] | None = None,
) -> FastAPI:
    """The application; it reads from startup to shutdown. `hosts` are the host names to answer under, None for any."""
    limits = limits or ServerLimits()
    metrics = Metrics()
    budget = ByteBudget(limits.max_held_bytes)
    engine = Engine(models, limits, metrics)
    uploads = Uploads(limits.max_uploads_per_address)
    parsing = asyncio.Semaphore()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        engine.start()
        try:
            yield
        finally:
            engine.close()

    app = _App(title="dsocr", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(
        AccessMiddleware,
        hosts=hosts,
        token=token,
        max_open=limits.max_open_requests,
        csp=_CSP,
        on_reject=lambda code: metrics.rejections.labels(code).inc(),
    )
    app.add_middleware(MetricsMiddleware, metrics=metrics)

    @app.exception_handler(RequestError)
    async def answer_error(_: Request, error: RequestError) -> Response:
        metrics.rejections.labels(error.code).inc()
        return JSONResponse(error.body(), error.status, error.headers())

    @app.exception_handler(Exception)
    async def answer_bug(request: Request, _: Exception) -> Response:
        return await answer_error(request, internal_error())

    @app.exception_handler(RequestValidationError)
    async def answer_invalid(request: Request, error: RequestValidationError) -> Response:
        return await answer_error(request, _invalid(error))

    @app.exception_handler(HTTPException)
    async def answer_no_route(_: Request, error: HTTPException) -> Response:
        body = RequestError(error.status_code, "no_such_path", str(error.detail)).body()
        return JSONResponse(body, error.status_code, dict(error.headers or {}))

    def known_model(name: str | None) -> str:
        name = name or models.default
        if name not in models.names:
            raise RequestError(404, "model_not_found", f"no model {name!r}; available: {', '.join(models.names)}")
        return name

    async def read_request(request: Request, max_bytes: int, account: ByteAccount) -> bytes:
        engine.check_room()
        with uploads.of(request):
            return await read_body(request, max_bytes, limits, account)

    async def read_chat(request: Request, account: ByteAccount) -> tuple[ChatRequest, list[bytes]]:
        body = await read_request(request, limits.max_body_bytes * 4 // 3 + MAX_TEXT_BYTES, account)
        async with parsing:  # one at a time, since a parsed body is several times as large
            chat, images = await asyncio.to_thread(_parse_chat, body, limits)
        account.shrink(sum(map(len, images)))
        return chat, images

    @app.post(
        "/v1/transcriptions",
        response_model=Transcription,
        responses={**_ERRORS, 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        openapi_extra=_IMAGE_BODY,
    )
    async def transcriptions(request: Request, model: str | None = None) -> Any:
        """Read the image whose bytes are the body; with `Accept: text/plain` the answer is the text alone."""
        name = known_model(model)
        with ByteAccount(budget) as account:
            data = await read_request(request, limits.max_body_bytes, account)
            (transcript,) = await read_images(request, [data], name, engine, limits)
        prediction = transcript.prediction
        if request.headers.get("accept", "").startswith("text/plain"):
            return PlainTextResponse(prediction.text)
        return Transcription(
            id=f"transcription-{uuid4().hex}",
            model=name,
            text=prediction.text,
            tokens=prediction.tokens,
            confidence=prediction.confidence,
            flags=list(transcript.flags),
        )

    @app.post("/v1/chat/completions", responses=_ERRORS, openapi_extra=_CHAT_BODY)
    async def chat_completions(request: Request) -> Response:
        """Read the images of the last message that has any, each a data URI; their texts are joined by line breaks."""
        with ByteAccount(budget) as account:
            chat, images = await read_chat(request, account)
            name = known_model(chat.model)
            transcripts = await read_images(request, images, name, engine, limits)
        if not chat.stream:
            return JSONResponse(_completion(chat, name, transcripts))
        events = (json.dumps(chunk) for chunk in _chunks(chat, name, transcripts))
        stream = (f"data: {event}\n\n" for event in (*events, "[DONE]"))
        return StreamingResponse(stream, media_type="text/event-stream")

    @app.get("/v1/models", responses={status: _ERRORS[status] for status in (401, 403, 421)})
    async def list_models() -> dict[str, Any]:
        """The models that a request can name."""
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "dsocr"} for name in models.names]
        return {"object": "list", "data": data}

    @app.get("/healthz", responses={503: _ERRORS[503]})
    async def healthz() -> dict[str, str]:
        """Whether the server is alive."""
        if not engine.is_alive:
            raise RequestError(503, "engine_failed", "the reading thread has ended; restart the server")
        return {"status": "alive"}

    @app.get("/readyz", responses={status: _ERRORS[status] for status in (429, 503)})
    async def readyz() -> dict[str, str]:
        """Whether an image would be accepted now."""
        engine.check_room()
        return {"status": "ready"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        """Counters in Prometheus' text format."""
        return Response(metrics.render(), media_type=METRICS_TYPE)

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs(request: Request) -> Response:
        """A manual of these paths, without scripts."""
        address = str(request.base_url).rstrip("/")
        return HTMLResponse(
            render(__package__, "manual.html.jinja", api=app.openapi(), models=models.names, address=address)
        )

    return app


def run_server(app: FastAPI, listener: socket.socket, limits: ServerLimits) -> None:
    """Serve on a listening socket until a signal ends the process."""
    make_server(app, limits).run(sockets=[listener])


def make_server(app: FastAPI, limits: ServerLimits) -> uvicorn.Server:
    """A server that closes connections which do not send a request in time, and has no access log."""
    config = uvicorn.Config(
        app,
        http=guarded_protocol(limits),
        log_config=None,
        access_log=False,
        timeout_keep_alive=int(limits.header_timeout),
        timeout_graceful_shutdown=30,
    )
    return uvicorn.Server(config)


def _parse_chat(body: bytes, limits: ServerLimits) -> tuple[ChatRequest, list[bytes]]:
    """A chat without its messages, and the images to read. Raises RequestError."""
    check_chat_body(body)
    try:
        chat = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise _invalid(error) from None
    return chat.model_copy(update={"messages": []}), chat.images(limits)


def _completion(chat: ChatRequest, model: str, transcripts: Sequence[Transcript]) -> dict[str, Any]:
    predictions = [transcript.prediction for transcript in transcripts]
    text = "\n".join(prediction.text for prediction in predictions)
    tokens = sum(prediction.tokens for prediction in predictions)  # images and the run's prompt are not counted
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "length" if any(prediction.truncated for prediction in predictions) else "stop",
        "logprobs": _logprobs(predictions) if chat.logprobs else None,
    }
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": {"prompt_tokens": 0, "completion_tokens": tokens, "total_tokens": tokens},
        "dsocr": [
            {"confidence": transcript.prediction.confidence, "flags": list(transcript.flags)}
            for transcript in transcripts
        ],
    }


def _chunks(chat: ChatRequest, model: str, transcripts: Sequence[Transcript]) -> Iterator[dict[str, Any]]:
    """The same as a stream: the role, the whole text, and why it ended; then the usage, if asked for."""
    whole = _completion(chat, model, transcripts)
    choice = whole["choices"][0]
    head = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    for delta, logprobs, reason in (
        ({"role": "assistant", "content": ""}, None, None),
        ({"content": choice["message"]["content"]}, choice["logprobs"], None),
        ({}, None, choice["finish_reason"]),
    ):
        part = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        yield {**head, "choices": [part]}
    if chat.stream_options and chat.stream_options.include_usage:
        yield {**head, "choices": [], "usage": whole["usage"]}


def _logprobs(predictions: Sequence[Prediction]) -> dict[str, Any] | None:
    """Tokens with their log probabilities; their texts joined are the answer. None if the model gives none."""
    if not any(prediction.scores for prediction in predictions):
        return None
    tokens: list[tuple[str, float]] = []
    for prediction in predictions:
        if tokens:
            tokens.append(("\n", 0.0))  # between images; not generated
        at = 0
        for score in prediction.scores:
            logprob = max(score.log_probability, _MIN_LOGPROB)
            if score.end > at:
                tokens.append((prediction.text[at : score.end], logprob))
                at = score.end
            elif score.end > score.start:  # another part of the same letter; the end token stands for none
                tokens[-1] = (tokens[-1][0], max(tokens[-1][1] + logprob, _MIN_LOGPROB))
        if at < len(prediction.text):
            tokens.append((prediction.text[at:], 0.0))
    content = [
        {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": []}
        for token, logprob in tokens
    ]
    return {"content": content, "refusal": None}


def _invalid(error: RequestValidationError | ValidationError) -> RequestError:
    problems = [f"{'.'.join(map(str, problem['loc'])) or 'body'}: {problem['msg']}" for problem in error.errors()[:5]]
    return RequestError(400, "invalid_request", "; ".join(problem[:_MAX_PROBLEM] for problem in problems))
