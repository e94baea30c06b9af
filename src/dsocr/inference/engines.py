"""Read with other machines: a server that speaks OpenAI's chat completions, or a Ray cluster.

A server (vLLM with an exported model, or `dsocr serve`) has the weights; prompt, decoding and text policy are those of
the run.

On a cluster every actor holds a model and reads groups of pages, and the results come back here. Only paths and texts
are sent, so all machines must see run, base and scans under the same paths. Ray itself passes functions and arguments
between its processes as pickles in memory; no pickled file is written or read.
"""

import base64
import json
import logging
import math
import os
import platform
import re
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

from PIL import Image

from dsocr import __version__, errors
from dsocr.errors import ConfigError, DsocrError, RunError, command, first_few, not_installed, option
from dsocr.images import encode_image
from dsocr.inference.confidence import UNCALIBRATED, Calibration, Prediction
from dsocr.inference.inputs import InputPage, PagePreparer
from dsocr.inference.pages import ImageReader, Rows, read_locally
from dsocr.io.web import WebError, post
from dsocr.models.checkpoints import instructions_of
from dsocr.models.family import IMAGE
from dsocr.models.generation import Generation, ScoredText, TokenScore, batches
from dsocr.models.loading import is_out_of_memory
from dsocr.runs import ReadingSettings
from dsocr.text import loop_start

_MAX_TRIES = 8
_MAX_UNREACHABLE_TRIES = 4
"""Tries before the server has ever answered: about four seconds, so that a wrong address is reported soon."""
_MAX_PAUSE = 60.0
"""Seconds between two tries, whatever the server asks for."""
_TIMEOUT = 300.0
"""Seconds for one answer."""
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
            serve = f"start vLLM or {command('serve', 'RUN')}"
            hint = f"{serve}, and give the address of the server, as http://HOST:8000/v1; or give ray"
            message = f"Not the address of a server: {option('engine', self.address)}"
            raise ConfigError(message, code="engine-address", hint=hint)


class RemoteReader:
    """Read images as a `LocalReader` does; confidences come from the server's log probabilities, if it returns them."""

    def __init__(
        self, engine: RemoteEngine, settings: ReadingSettings, calibration: Calibration = UNCALIBRATED
    ) -> None:
        self._url = f"{engine.address.rstrip('/')}/chat/completions"
        self._model = engine.model
        instructions = instructions_of(settings.base)
        # DeepSeek-OCR's prompts say where the image is, and are asked as they are.
        says_where = IMAGE in settings.prompt
        prompt = settings.prompt.replace(IMAGE, "").strip("\n") if says_where else settings.prompt
        self._instructions = replace(instructions, prompt=prompt) if says_where else instructions.asking(prompt)
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
        content = self._post(self._request(image))
        try:
            answer = json.loads(content)
            choice = answer["choices"][0]
            text, reason = choice["message"]["content"] or "", choice.get("finish_reason")
            tokens = int((answer.get("usage") or {}).get("completion_tokens") or 0)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise RunError("Answer is not a chat completion", code="engine-refused", where=self._url) from error
        scored = _scored(text, choice)
        start = loop_start(text)
        if start is not None:
            scored = scored.cut(start)
        read = Prediction(name, text, tokens, truncated=reason == "length", looping=start is not None)
        return read.rescore(scored.rewrite(self._policy.apply(scored.text)), self._calibration)

    def _request(self, image: Image.Image) -> bytes:
        url = "data:image/png;base64," + base64.b64encode(encode_image(image, "PNG").content).decode()
        messages = self._instructions.messages()
        for part in messages[-1]["content"]:
            if part["type"] == "image":
                part |= {"type": "image_url", "image_url": {"url": url}}
        generation = self._generation
        body: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            "temperature": 0,
            "max_tokens": generation.max_new_tokens,
            "logprobs": True,
            # vLLM's own: table tags are text, no thoughts, as in training, and the loop guard.
            "skip_special_tokens": False,
            "chat_template_kwargs": {"enable_thinking": False},
        }
        if generation.no_repeat_ngram_size:
            guard = {"ngram_size": generation.no_repeat_ngram_size, "window_size": generation.no_repeat_ngram_window}
            body["vllm_xargs"] = guard
        return json.dumps(body).encode()

    def _post(self, body: bytes) -> bytes:
        """Return the server's answer, after several tries if it is busy or unreachable."""
        for number in range(1, _MAX_TRIES + 1):
            pause = 0.25 * 2**number
            try:
                content = post(self._url, body, self._headers, timeout=_TIMEOUT, limit=_MAX_ANSWER_BYTES)
                self._has_answered = True
                return content
            except WebError as error:
                if error.status:
                    self._has_answered = True
                    message = f"Server answered {error.status}: {_reason(error)}"
                    failure = RunError(message, code="engine-refused", where=self._url)
                    if not error.is_transient:
                        raise failure from None
                    pause = pause if error.wait is None else error.wait
                else:
                    hint = "check that the server is running and that the address ends in /v1"
                    message = f"Cannot reach the server: {error}"
                    failure = RunError(message, code="engine-unreachable", where=self._url, hint=hint)
                    if number >= _MAX_UNREACHABLE_TRIES and not self._has_answered:
                        break
            if number < _MAX_TRIES:
                time.sleep(min(_MAX_PAUSE, pause))
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


def _reason(error: WebError) -> str:
    try:
        return str(json.loads(error.content)["error"]["message"])[:500]
    except (ValueError, LookupError, TypeError):
        return str(error)


_MAX_ATTEMPTS = 3
"""How many actors may die over the same pages."""


class Attempts:
    """Count how often each group was started and not finished, in a separate process, because actors may die."""

    def __init__(self) -> None:
        self._started: Counter[int] = Counter()

    def start(self, group: int) -> int:
        """Count an attempt; returns how many there were since the group was finished last."""
        self._started[group] += 1
        return self._started[group]

    def finish(self, group: int) -> int:
        """Forget the group's attempts."""
        return self._started.pop(group, 0)


@dataclass(kw_only=True)
class Actor:
    """Read groups of pages, given by index, with a model that is loaded when the first one arrives.

    `start` and `finish` count each group's attempts; `folder` is the command's working folder, `version` its version of
    dsocr. The answer is JSON for `rows_of`; errors are part of it, so that they arrive unchanged.
    """

    groups: Sequence[Sequence[InputPage]]
    preparer: PagePreparer
    open_reader: Callable[[], ImageReader]
    strict: bool
    start: Callable[[int], int]
    finish: Callable[[int], int]
    folder: str = "."
    version: str = __version__

    def __post_init__(self) -> None:
        self.open_reader = cache(self.open_reader)

    def __call__(self, batch: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
        """Read a batch of one group, as Ray Data passes it."""
        group = int(batch["group"][0])
        answer = json.dumps(self._answer(group), ensure_ascii=False)
        self.finish(group)
        return {"answer": [answer]}

    def _answer(self, group: int) -> dict[str, Any]:
        pages = self.groups[group]
        try:
            self._check_machine(pages, self.start(group))
            (rows,) = read_locally([pages], self.preparer, self.open_reader, strict=self.strict)
            return {"rows": rows}
        except DsocrError as error:
            hint = error.hint and error.hint.raw
            return {"error": [type(error).__name__, error.message.raw, error.code, error.where, hint]}
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return {"memory": platform.node()}

    def _check_machine(self, pages: Sequence[InputPage], attempt: int) -> None:
        """Raise RunError if this machine has another dsocr or other files, or if these pages kill every process."""
        machine = f"machine {platform.node()} of the cluster"
        if self.version != __version__:
            message = f"dsocr {__version__} is installed here, and {self.version} where the command runs"
            hint = "install the same version on all machines"
            raise RunError(message, code="cluster-failed", where=machine, hint=hint)
        if attempt > _MAX_ATTEMPTS:
            lower = f"give {option('engine', 'ray:N')} with fewer actors if memory runs out"
            hint = f"everything else is kept: remove the page that causes it, or {lower}"
            message = f"{_MAX_ATTEMPTS} processes died while reading these pages"
            raise RunError(message, code="cluster-failed", where=first_few([page.id for page in pages]), hint=hint)
        if not any(page.path.exists() for page in pages):
            hint = "keep scans, run, base and output where all machines see them under the same path"
            raise RunError(f"Cannot see {pages[0].path}", code="cluster-failed", where=machine, hint=hint)
        if Path(self.folder).is_dir():
            # A base may be given relative to it.
            os.chdir(self.folder)


def rows_of(answer: Mapping[str, Any]) -> Rows:
    """Return the rows of an actor's answer. Raises the error that reading raised there, or MemoryError."""
    if "error" in answer:
        kind, message, code, where, hint = answer["error"]
        raise getattr(errors, kind)(message, code=code, where=where, hint=hint)
    if "memory" in answer:
        raise MemoryError(answer["memory"])
    return [(key, row) for key, row in answer["rows"]]


_ENVIRONMENT = {
    # Ray reports usage to its makers by default.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Its C++ part writes to the console.
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster: the one in RAY_ADDRESS or the one this machine belongs to, else this machine alone.

    `actors` read in parallel, each with its model; None: one per card, else per machine. RunError if Ray is missing.
    """

    actors: int | None = None

    def __post_init__(self) -> None:
        _import_ray()

    def read(
        self,
        groups_to_read: Sequence[Sequence[InputPage]],
        preparer: PagePreparer,
        open_reader: Callable[[], ImageReader],
        *,
        strict: bool,
    ) -> Generator[Rows]:
        """Yield the rows of each group of pages as groups are finished, in any order.

        `open_reader` loads an actor's model. An actor that dies is restarted with its pages. Raises what reading raises
        there, and RunError if the cluster is lost or pages kill one actor after the other.
        """
        if not groups_to_read:
            return
        groups = [
            [replace(page, path=page.path.absolute(), image=page.image and page.image.absolute()) for page in group]
            for group in groups_to_read
        ]
        with _connection() as ray:
            # A machine without processors only coordinates the cluster.
            machines = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
            actors, resources = plan_actors(machines, self.actors)
            attempts = ray.remote(num_cpus=0)(Attempts).remote()
            start, finish = (partial(_call, method) for method in (attempts.start, attempts.finish))
            settings = {"preparer": preparer, "open_reader": open_reader, "strict": strict, "folder": str(Path.cwd())}
            # Two groups per actor, the current and the next one, so that losing an actor costs little.
            pool = ray.data.ActorPoolStrategy(size=min(actors, len(groups_to_read)), max_tasks_in_flight_per_actor=2)
            answered = ray.data.from_items(
                [{"group": group} for group in range(len(groups))], override_num_blocks=len(groups)
            ).map_batches(
                Actor,
                batch_size=1,
                compute=pool,
                fn_constructor_kwargs={**settings, "groups": groups, "start": start, "finish": finish},
                **resources,
            )
            for answer in answered.iter_rows():
                yield rows_of(json.loads(answer["answer"]))


TORCH: Final = "torch"

Engine = RemoteEngine | Cluster | Literal["torch"] | None
"""Where a model runs; None for this process, whose torch computes it even where ONNX Runtime could if TORCH."""


def choose_engine(engine: str | None, model: str) -> Engine:
    """Return the Ray cluster of `ray` or `ray:ACTORS`, or the server at an address, which calls the model by this name.

    None or TORCH for this process. Raises ConfigError for anything else.
    """
    if engine == TORCH:
        return TORCH
    if cluster := re.fullmatch(r"ray(?::([1-9]\d*))?", engine or ""):
        return Cluster(None if cluster[1] is None else int(cluster[1]))
    return RemoteEngine(engine, model) if engine else None


def plan_actors(machines: Sequence[Mapping[str, float]], requested: int | None) -> tuple[int, dict[str, float]]:
    """Return the number of actors and the resources of each, given each machine's "CPU" and "GPU".

    Raises ConfigError if more actors are requested than there are processors.
    """
    cpus, cards = (int(sum(machine.get(name, 0) for machine in machines)) for name in ("CPU", "GPU"))
    actors = requested or cards or len(machines)
    if actors > cpus:
        message = f"{option('engine', f'ray:{actors}')} needs as many processors, and the cluster has {cpus}"
        raise ConfigError(message, code="cluster-actors")
    if cards:
        return actors, {"num_cpus": 1, "num_gpus": 1 / math.ceil(actors / cards)}
    least = min(machine["CPU"] for machine in machines)
    return actors, {"num_cpus": max(1, int(least) // math.ceil(actors / len(machines)))}


def _call(method: Any, group: int) -> int:
    import ray

    return int(ray.get(method.remote(group)))


def _import_ray() -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        ray = import_module("ray")
        # Ray can be installed without it.
        import_module("ray.data")
    except ImportError as error:
        raise not_installed(option("engine", "ray"), "Ray on every machine of the cluster", "ray") from error
    return ray


@contextmanager
def _connection() -> Iterator[Any]:
    """Connect to the cluster, unless connected already, and turn Ray's errors into RunError."""
    ray = _import_ray()
    was_connected = ray.is_initialized()
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        if not was_connected:
            ray.init(log_to_driver=False, logging_level=logging.ERROR)
        yield ray
    except ConnectionError as error:
        hint = "set RAY_ADDRESS to a running cluster, or unset it to start one on this machine"
        raise RunError(f"Cannot reach the Ray cluster: {error}", code="cluster-failed", hint=hint) from error
    except ray.exceptions.RayTaskError:
        raise  # a bug in an actor, which needs its traceback
    except ray.exceptions.RayError as error:
        hint = f"finished pages are kept: run the same again, with or without {option('engine', 'ray')}"
        # The last line is the error itself, those before it are Ray's traceback.
        message = f"The Ray cluster failed: {str(error).strip().splitlines()[-1]}"
        raise RunError(message, code="cluster-failed", hint=hint) from error
    finally:
        if not was_connected:
            ray.shutdown()
