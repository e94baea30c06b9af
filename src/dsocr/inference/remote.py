"""Reading by a server that speaks OpenAI's chat completions: vLLM with the exported model, or `dsocr serve`.

The run says how: prompt, decoding and text policy are its own; the server has the weights. Knows nothing of pages.
"""

import base64
import io
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from PIL import Image

from dsocr.errors import ConfigError, DsocrError, RunError
from dsocr.inference.confidence import Prediction
from dsocr.inference.generation import Generation, batches
from dsocr.models.deepseek_ocr import IMAGE
from dsocr.runs import ReadingSettings
from dsocr.text import loop_start

_TRIES = 8
_LONGEST_PAUSE = 60.0
"""Seconds between two tries, whatever the server asks for."""
_PATIENCE = 300.0
"""Seconds for one answer."""
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
"""What a server answers that may answer otherwise in a while."""
_LONGEST_ANSWER = 16 * 2**20


ENGINE_TOKEN = "DSOCR_ENGINE_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable with the token that a server asks for."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A server that reads: its address, which ends in /v1, and what it calls the model.

    `together` is how many requests are under way at once. Raises ConfigError for what is no address.
    """

    address: str
    model: str
    together: int = 16

    def __post_init__(self) -> None:
        if not self.address.startswith(("http://", "https://")):
            raise ConfigError(f"--engine {self.address}: is no address", hint=_hint(self.address))

    def told(self) -> dict[str, str]:
        """What of it decides the texts."""
        return {"engine": self.address, "engine_model": self.model}


def _hint(given: str) -> str:
    """What to give in place of what is no address."""
    if given.lower() != "vllm":
        return "it begins with http:// and ends in /v1; or it is ray"
    return (
        "start vLLM, then name its server: dsocr export RUN --merged DIR; vllm serve DIR --served-model-name mine; and "
        "here --engine http://HOST:8000/v1 --engine-model mine"
    )


class RemoteReader:
    """Reads as a Transcriber does, without confidences: no server here tells how likely its tokens were."""

    def __init__(self, engine: Engine, settings: ReadingSettings) -> None:
        self._url = f"{engine.address.rstrip('/')}/chat/completions"
        self._model = engine.model
        self._prompt = settings.prompt.replace(IMAGE, "").strip("\n")
        self._generation = Generation(**settings.generation)
        self._policy = settings.text_policy
        self._headers = {"Content-Type": "application/json"}
        if token := os.environ.get(ENGINE_TOKEN):
            self._headers["Authorization"] = f"Bearer {token}"
        self._together = engine.together

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order. Raises RunError where the server cannot be asked."""
        with ThreadPoolExecutor(self._together, thread_name_prefix="dsocr-asking") as threads:
            for some in batches(images, 4 * self._together):
                yield from threads.map(self._read, some)

    def _read(self, named: tuple[str, Image.Image]) -> Prediction:
        name, image = named
        answer = self._asked(self._request(image))
        try:
            choice = answer["choices"][0]
            text, reason = choice["message"]["content"] or "", choice.get("finish_reason")
            tokens = int((answer.get("usage") or {}).get("completion_tokens") or 0)
        except (LookupError, TypeError, ValueError) as error:
            raise RunError("its answer is no chat completion", where=self._url) from error
        start = loop_start(text)
        told = self._policy.apply(text if start is None else text[:start])
        return Prediction(name, told, tokens, truncated=reason == "length", looping=start is not None)

    def _request(self, image: Image.Image) -> bytes:
        file = io.BytesIO()
        image.save(file, "PNG")
        url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
        generation = self._generation
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": url}},
                        {"type": "text", "text": self._prompt},
                    ],
                }
            ],
            "temperature": 0,
            "max_tokens": generation.max_new_tokens,
            # vLLM's own: table tags are text, and the guard against loops.
            "skip_special_tokens": False,
        }
        if generation.no_repeat_ngram_size:
            guard = {"ngram_size": generation.no_repeat_ngram_size, "window_size": generation.no_repeat_ngram_window}
            body["vllm_xargs"] = guard
        return json.dumps(body).encode()

    def _asked(self, body: bytes) -> dict[str, Any]:
        """The server's answer; one that is busy or away is asked again for a while."""
        said: DsocrError | None = None
        for number in range(_TRIES):
            request = urllib.request.Request(self._url, body, self._headers)  # noqa: S310 - http or https, see above
            try:
                with urllib.request.urlopen(request, timeout=_PATIENCE) as response:  # noqa: S310
                    answer = json.loads(response.read(_LONGEST_ANSWER))
                    if not isinstance(answer, dict):
                        raise RunError("its answer is no JSON object", where=self._url)
                    return answer
            except urllib.error.HTTPError as error:
                with error:
                    said = RunError(f"it answers {error.code}: {_reason(error)}", where=self._url)
                    if error.code not in _LATER:
                        raise said from None
                    pause = _seconds(error.headers.get("Retry-After"))
            except json.JSONDecodeError as error:
                raise RunError("its answer is no JSON", where=self._url) from error
            except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
                hint = "is the server running, and the address one that ends in /v1?"
                said = RunError(f"cannot be asked: {getattr(error, 'reason', error)}", where=self._url, hint=hint)
                pause = None
            if number + 1 < _TRIES:
                time.sleep(min(_LONGEST_PAUSE, 0.5 * 2**number if pause is None else pause))
        raise said or RunError("cannot be asked", where=self._url)


def _reason(error: urllib.error.HTTPError) -> str:
    """What the server says, as OpenAI's do, else the name of the status."""
    try:
        told = json.loads(error.read(65536))
        return str(told["error"]["message"])[:500]
    except (ValueError, LookupError, TypeError, OSError):
        return str(error.reason)


def _seconds(told: str | None) -> float | None:
    return float(told) if told is not None and told.isascii() and told.isdigit() else None
