"""Read with a server that speaks OpenAI's chat completions: vLLM with an exported model, or `dsocr serve`.

Prompt, decoding and text policy are the run's; the server has the weights.
"""

import base64
import io
import json
import math
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from PIL import Image

from dsocr.errors import ConfigError, DsocrError, RunError
from dsocr.inference.confidence import (
    UNCALIBRATED,
    Calibration,
    Prediction,
    ScoredText,
    TokenScore,
    character_confidences,
    line_confidence,
    words_of,
)
from dsocr.inference.generation import Generation, batches
from dsocr.models.deepseek_ocr import IMAGE
from dsocr.runs import ReadingSettings
from dsocr.text import loop_start

_MAX_TRIES = 8
_MAX_UNREACHABLE_TRIES = 4
"""Tries before the server has ever answered: about four seconds, so that a wrong address is reported soon."""
_MAX_PAUSE = 60.0
"""Seconds between two tries, whatever the server asks for."""
_TIMEOUT = 300.0
"""Seconds for one answer."""
_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Status codes after which the same request may succeed."""
_MAX_ANSWER_BYTES = 16 * 2**20

ENGINE_TOKEN = "DSOCR_ENGINE_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable with the server's access token."""


@dataclass(frozen=True, slots=True)
class RemoteEngine:
    """A server's address, which ends in /v1, its name for the model, and the number of simultaneous requests.

    Raises ConfigError for an invalid address.
    """

    address: str
    model: str
    concurrency: int = 16

    def __post_init__(self) -> None:
        if not self.address.startswith(("http://", "https://")):
            raise ConfigError(
                f"Not the address of a server: --engine {self.address}",
                code="engine-address",
                hint=_address_hint(self.address),
            )

    def job_settings(self) -> dict[str, str]:
        """Return the settings that decide the texts."""
        return {"engine": self.address, "engine_model": self.model}


def _address_hint(value: str) -> str:
    if value.lower() != "vllm":
        return "use an address like http://HOST:8000/v1, or ray"
    return (
        "start vLLM and give its address: dsocr export RUN --merged DIR; vllm serve DIR --served-model-name mine; then "
        "--engine http://HOST:8000/v1 --engine-model mine"
    )


class RemoteReader:
    """Read images as a `LocalReader` does; confidences come from the server's log probabilities, if it returns them."""

    def __init__(
        self, engine: RemoteEngine, settings: ReadingSettings, calibration: Calibration = UNCALIBRATED
    ) -> None:
        self._url = f"{engine.address.rstrip('/')}/chat/completions"
        self._model = engine.model
        self._prompt = settings.prompt.replace(IMAGE, "").strip("\n")
        self._generation = Generation(**settings.generation)
        self._policy = settings.text_policy
        self._calibration = calibration
        self._headers = {"Content-Type": "application/json"}
        if token := os.environ.get(ENGINE_TOKEN):
            self._headers["Authorization"] = f"Bearer {token}"
        self._concurrency = engine.concurrency
        self._has_answered = False

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """Yield a prediction for every (id, image), in their order. Raises RunError if the server cannot be used."""
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="dsocr-remote") as threads:
            for group in batches(images, 4 * self._concurrency):
                yield from threads.map(self._read, group)

    def _read(self, item: tuple[str, Image.Image]) -> Prediction:
        name, image = item
        answer = self._post(self._request(image))
        try:
            choice = answer["choices"][0]
            text, reason = choice["message"]["content"] or "", choice.get("finish_reason")
            tokens = int((answer.get("usage") or {}).get("completion_tokens") or 0)
        except (LookupError, TypeError, ValueError) as error:
            raise RunError("Answer is not a chat completion", code="engine-answer", where=self._url) from error
        scored = _scored(text, choice)
        start = loop_start(text)
        if start is not None:
            scored = scored.cut(start)
        scored = scored.rewrite(self._policy.apply(scored.text))
        scales = self._calibration
        return Prediction(
            id=name,
            text=scored.text,
            tokens=tokens,
            truncated=reason == "length",
            looping=start is not None,
            confidence=line_confidence(scored, scales.line),
            words=words_of(scored, scales.word),
            characters=tuple(character_confidences(scored, scales.character)),
            lines=tuple(line_confidence(part, scales.line) for part in scored.lines()) if scored.scores else (),
        )

    def _request(self, image: Image.Image) -> bytes:
        file = io.BytesIO()
        image.save(file, "PNG")
        url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": self._prompt}]
        generation = self._generation
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": "user", "content": content}],
            "temperature": 0,
            "max_tokens": generation.max_new_tokens,
            "logprobs": True,
            # vLLM's own: table tags are text, and the loop guard.
            "skip_special_tokens": False,
        }
        if generation.no_repeat_ngram_size:
            guard = {"ngram_size": generation.no_repeat_ngram_size, "window_size": generation.no_repeat_ngram_window}
            body["vllm_xargs"] = guard
        return json.dumps(body).encode()

    def _post(self, body: bytes) -> dict[str, Any]:
        """Return the server's answer, after several tries if it is busy or unreachable."""
        failure: DsocrError | None = None
        unreachable = 0
        for number in range(_MAX_TRIES):
            request = urllib.request.Request(self._url, body, self._headers)  # noqa: S310 - http or https, see above
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:  # noqa: S310
                    answer = json.loads(response.read(_MAX_ANSWER_BYTES))
                self._has_answered = True
                if not isinstance(answer, dict):
                    raise RunError("Answer is not a JSON object", code="engine-answer", where=self._url)
                return answer
            except urllib.error.HTTPError as error:
                self._has_answered = True
                with error:
                    message = f"Server answered {error.code}: {_reason(error)}"
                    failure = RunError(message, code="engine-refused", where=self._url)
                    if error.code not in _TEMPORARY:
                        raise failure from None
                    pause = _seconds(error.headers.get("Retry-After"))
            except json.JSONDecodeError as error:
                raise RunError("Answer is not JSON", code="engine-answer", where=self._url) from error
            except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
                message = f"Cannot reach the server: {getattr(error, 'reason', error)}"
                hint = "check that the server is running and that the address ends in /v1"
                failure = RunError(message, code="engine-unreachable", where=self._url, hint=hint)
                pause = None
                unreachable += 1
                if unreachable >= _MAX_UNREACHABLE_TRIES and not self._has_answered:
                    break
            if number + 1 < _MAX_TRIES:
                time.sleep(min(_MAX_PAUSE, 0.5 * 2**number if pause is None else pause))
        assert failure is not None, "the loop ends with an answer or a failure"
        raise failure


def _scored(text: str, choice: Mapping[str, Any]) -> ScoredText:
    """Return the text with the log probabilities of its tokens, without them if they do not make up the text."""
    scores: list[TokenScore] = []
    position = 0
    try:
        for entry in (choice.get("logprobs") or {}).get("content") or ():
            token, log_probability = str(entry["token"]), float(entry["logprob"])
            end = position + len(token) if text.startswith(token, position) else position
            scores.append(TokenScore(position, end, min(log_probability, 0.0)))
            position = end
    except (LookupError, TypeError, ValueError, AttributeError):
        return ScoredText(text)
    complete = position == len(text) and all(math.isfinite(score.log_probability) for score in scores)
    return ScoredText(text, tuple(scores) if complete else ())


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the message of an OpenAI-style error, else the name of the status."""
    try:
        return str(json.loads(error.read(65536))["error"]["message"])[:500]
    except (ValueError, LookupError, TypeError, OSError):
        return str(error.reason)


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isascii() and value.isdigit() else None
