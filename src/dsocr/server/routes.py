"""The server's routes: transcriptions of image bytes, and OpenAI's chat completions."""

import asyncio
import json
import time
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal
from uuid import uuid4

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Counter, generate_latest
from pydantic import BaseModel, Field, ValidationError

from dsocr import __version__
from dsocr.inference.confidence import Prediction
from dsocr.server.access import (
    AccessMiddleware,
    ByteBudget,
    RequestError,
    ServerLimits,
    decode_data_uri,
    read_body,
)
from dsocr.server.engine import Engine, ServedModels, read_images

_REJECTIONS = Counter("dsocr_rejections", "Rejected requests by error code.", ["reason"])
_MAX_COMMAS = 10_000
"""Commas in a chat, which bound its JSON values: a parsed one takes fifty times its size."""
_MIN_LOGPROB = -9999.0
"""OpenAI's value for a probability of almost zero; JSON has no infinity."""


class ContentPart(BaseModel):
    """An image as a data URI, or a text, which has no effect: adapters read with the prompt of their training."""

    type: Literal["text", "image_url"]
    image_url: dict[str, str] = {}


class Message(BaseModel):
    """A message of a chat."""

    role: str
    content: str | list[ContentPart] | None = None


class ChatRequest(BaseModel):
    """A chat completion request. Other settings of the protocol, such as temperature, are accepted and ignored."""

    model: Annotated[str, Field(max_length=200)]
    messages: list[Message]
    stream: bool | None = False
    stream_options: dict[str, bool] | None = None
    logprobs: bool | None = False
    n: Literal[1] | None = 1


class Transcription(BaseModel):
    """The transcription of one image.

    `confidence` is the estimated share of the text that is right. `flags` are reasons to review it in any case: empty,
    looping, truncated, overruled, or page_shaped for an image that looks like a page and was read as a line.
    """

    id: str
    model: str
    text: str
    tokens: int
    confidence: float | None
    flags: list[str]


def create_app(
    models: ServedModels,
    *,
    limits: ServerLimits | None = None,
    token: str | None = None,
    hosts: Collection[str] | None = None,
) -> FastAPI:
    """The application; it reads from startup to shutdown. `hosts` are the host names to answer under, None for any."""
    limits = limits or ServerLimits()
    budget = ByteBudget(limits.max_held_bytes)
    engine = Engine(models, limits)
    parsing = asyncio.Semaphore()

    app = FastAPI(
        title="dsocr",
        version=__version__,
        lifespan=lambda _: engine.running(),
        responses={status: {"description": "error with message, type and code"} for status in ("4XX", "5XX")},
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
    )
    csp = "default-src 'none'; frame-ancestors 'none'"
    app.add_middleware(AccessMiddleware, hosts=hosts, token=token, csp=csp)

    @app.exception_handler(RequestError)
    async def answer_error(_: Request, error: RequestError) -> Response:
        _REJECTIONS.labels(error.code).inc()
        return error.response()

    def known_model(name: str) -> str:
        if name not in models.names:
            raise RequestError(404, "model_not_found", f"no model {name!r}; available: {', '.join(models.names)}")
        return name

    @app.post(
        "/v1/transcriptions",
        response_model=Transcription,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        openapi_extra=_body("application/octet-stream", {"type": "string", "format": "binary"}),
    )
    async def transcriptions(request: Request, model: str | None = None) -> Any:
        """Read the image whose bytes are the body; with `Accept: text/plain` the answer is the text alone."""
        name = known_model(model or models.default)
        engine.check_room()
        with budget.account() as reserve:
            data = await read_body(request, limits.max_body_bytes, limits.body_timeout, reserve)
            (prediction,) = await read_images(request, [data], name, engine, limits)
        if request.headers.get("accept", "").startswith("text/plain"):
            return PlainTextResponse(prediction.text)
        return Transcription(
            id=f"transcription-{uuid4().hex}",
            model=name,
            text=prediction.text,
            tokens=prediction.tokens,
            confidence=prediction.confidence,
            flags=list(prediction.flags),
        )

    @app.post("/v1/chat/completions", openapi_extra=_body("application/json", {"type": "object"}))
    async def chat_completions(request: Request) -> Response:
        """Read the images of the last message that has any, each a data URI; their texts are joined by line breaks."""
        engine.check_room()
        with budget.account() as reserve:
            body = await read_body(request, limits.max_body_bytes * 4 // 3 + 2**20, limits.body_timeout, reserve)
            async with parsing:  # one at a time, since a parsed body is several times as large
                chat, images = await asyncio.to_thread(_parse_chat, body)
            del body
            name = known_model(chat.model)
            predictions = await read_images(request, images, name, engine, limits)
        completion = _completion(chat, name, predictions)
        return _stream(chat, completion) if chat.stream else JSONResponse(completion)

    @app.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        """The models that a request can name."""
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "dsocr"} for name in models.names]
        return {"object": "list", "data": data}

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the server is alive."""
        engine.check_room(0)
        return {"status": "alive"}

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Whether an image would be accepted now."""
        engine.check_room()
        return {"status": "ready"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Metrics in Prometheus' text format."""
        return Response(generate_latest(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return app


def _body(media_type: str, schema: dict[str, str]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


def make_server(app: FastAPI, limits: ServerLimits) -> uvicorn.Server:
    """Make a server with uvicorn's limits and without an access log."""
    config = uvicorn.Config(
        app,
        http="h11",  # bounds the size of a header, as httptools does not
        log_config=None,
        access_log=False,
        limit_concurrency=limits.max_connections,
        timeout_graceful_shutdown=30,
    )
    return uvicorn.Server(config)


def _parse_chat(body: bytes) -> tuple[ChatRequest, list[bytes]]:
    """Parse a chat; return it without messages, and the images of the last message that has any."""
    if body.count(b",") > _MAX_COMMAS:
        raise RequestError(413, "chat_too_long", f"the chat has more than {_MAX_COMMAS:,} commas")
    try:
        chat = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, item['loc'])) or 'body'}: {item['msg']}" for item in error.errors()[:5]]
        text = "; ".join(problem[:300] for problem in problems)  # a problem may repeat the request
        raise RequestError(400, "invalid_request", text) from None
    for message in reversed(chat.messages):
        parts = message.content if isinstance(message.content, list) else []
        if images := [part.image_url.get("url", "") for part in parts if part.type == "image_url"]:
            return chat.model_copy(update={"messages": []}), [decode_data_uri(url) for url in images]
    raise RequestError(400, "no_image", "no message has an image: add a part of type image_url with a data URI")


def _completion(chat: ChatRequest, model: str, predictions: Sequence[Prediction]) -> dict[str, Any]:
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
        "dsocr": [{"confidence": prediction.confidence, "flags": list(prediction.flags)} for prediction in predictions],
    }


def _stream(chat: ChatRequest, completion: dict[str, Any]) -> Response:
    """The same as a stream: one chunk with the whole text, then the usage if the client asks for it."""
    head = {**completion, "object": "chat.completion.chunk", "usage": None}
    (choice,) = completion["choices"]
    chunks = [{**head, "choices": [{**choice, "delta": choice.pop("message")}]}]
    if (chat.stream_options or {}).get("include_usage"):
        chunks.append({**completion, "object": "chat.completion.chunk", "choices": []})
    events = [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
    return StreamingResponse((f"data: {event}\n\n" for event in events), media_type="text/event-stream")


def _logprobs(predictions: Sequence[Prediction]) -> dict[str, Any] | None:
    """Tokens with their log probabilities; their texts joined are the answer. None if the model gives none."""
    if not any(prediction.scores for prediction in predictions):
        return None
    tokens: list[tuple[str, float]] = []
    for prediction in predictions:
        if tokens:
            tokens.append(("\n", 0.0))  # between images; not generated
        at = 0
        spelling = (score for score in prediction.scores if score.end > score.start)  # without the end token
        for end, parts in groupby(spelling, key=lambda score: score.end):  # several tokens may spell one letter
            tokens.append((prediction.text[at:end], max(sum(part.log_probability for part in parts), _MIN_LOGPROB)))
            at = end
        if at < len(prediction.text):
            tokens.append((prediction.text[at:], 0.0))
    content = [
        {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": []}
        for token, logprob in tokens
    ]
    return {"content": content, "refusal": None}
