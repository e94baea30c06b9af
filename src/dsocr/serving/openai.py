"""The part of OpenAI's chat completions that makes sense for reading images, as its clients write and read it.

Prompts are the adapter's own, so texts in a request are taken and not used; what cannot be honoured is refused.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dsocr.serving.bodies import image_of_data_uri
from dsocr.serving.limits import Limits, RefusedError


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
