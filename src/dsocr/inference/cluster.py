"""Reading on a Ray cluster: every actor holds a model and reads groups of pages; what it read comes back here.

Only paths and texts travel, so all machines see run, base and scans under the same paths. Ray itself hands functions
and arguments to its processes as pickles in memory; no file is written or read so.
"""

import json
import logging
import math
import os
import platform
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from dsocr import __version__, errors
from dsocr.errors import ConfigError, DsocrError, RunError
from dsocr.inference.inputs import InputPage, Opening
from dsocr.inference.pages import Reads, Rows, read_here
from dsocr.models.loading import is_out_of_memory

_MOST_TRIES = 3
"""So many actors may die over the same pages."""


class Attempts:
    """Counts how often each group was begun and not ended; in a process of its own, as those that read may die."""

    def __init__(self) -> None:
        self._begun: Counter[int] = Counter()

    def begin(self, place: int) -> int:
        """How often the group was begun since it ended last, this time included."""
        self._begun[place] += 1
        return self._begun[place]

    def end(self, place: int) -> int:
        """Forgets the group: one that another's death takes with it on its way back is not to blame."""
        return self._begun.pop(place, 0)


@dataclass(frozen=True, slots=True)
class Settings:
    """How an actor reads: `open_reader` gives it its model, `begin` and `end` count each group's attempts.

    `folder` is where the command was given, `version` that of its dsocr.
    """

    opening: Opening
    open_reader: Callable[[], Reads]
    strict: bool
    folder: str
    begin: Callable[[int], int]
    end: Callable[[int], int]
    version: str = __version__


class Actor:
    """Reads the group whose place in `groups` it is handed, with a model that is loaded when the first one comes.

    The answer is JSON that `rows_of` understands: what reading raises travels in it, so that it arrives as it was.
    """

    def __init__(self, groups: Sequence[Sequence[InputPage]], settings: Settings) -> None:
        self._groups, self._settings = groups, settings
        self._reader: Reads | None = None

    def __call__(self, batch: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
        """A batch of one group, as Ray Data hands it over."""
        place = int(batch["place"][0])
        answer = json.dumps(self._answer(place), ensure_ascii=False)
        self._settings.end(place)
        return {"answer": [answer]}

    def _answer(self, place: int) -> dict[str, Any]:
        pages = self._groups[place]
        try:
            self._demand(pages, self._settings.begin(place))
            settings = self._settings
            (rows,) = read_here([pages], settings.opening, self._opened, strict=settings.strict, workers=1)
            return {"rows": rows}
        except DsocrError as error:
            return {"error": [type(error).__name__, error.message, error.where, error.hint]}
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return {"memory": platform.node()}

    def _opened(self) -> Reads:
        self._reader = self._reader or self._settings.open_reader()
        return self._reader

    def _demand(self, pages: Sequence[InputPage], attempt: int) -> None:
        """A RunError where this machine has another dsocr or other files, or these pages end every process."""
        machine = f"machine {platform.node()} of the cluster"
        if self._settings.version != __version__:
            message = f"has dsocr {__version__}, and this one {self._settings.version}"
            raise RunError(message, where=machine, hint="install the same version on all machines")
        if attempt > _MOST_TRIES:
            hint = "all else that was read is kept: take the page that does it out, or, if memory ends, lower --actors"
            raise RunError(f"{_MOST_TRIES} processes died over these pages", where=_named(pages), hint=hint)
        if not any(page.path.exists() for page in pages):
            hint = "keep scans, run, base and what is written where all machines see them under the same path"
            raise RunError(f"does not see {pages[0].path}", where=machine, hint=hint)
        if Path(self._settings.folder).is_dir():
            # A base may be named by where it lies from there.
            os.chdir(self._settings.folder)


def rows_of(answer: Mapping[str, Any]) -> Rows:
    """The rows in an actor's answer. Raises what it tells of: the error that reading raised, or a MemoryError."""
    if "error" in answer:
        kind, message, where, hint = answer["error"]
        raise getattr(errors, kind)(message, where=where, hint=hint)
    if "memory" in answer:
        raise MemoryError(answer["memory"])
    return [(id_, stamp, row) for id_, stamp, row in answer["rows"]]


def _named(pages: Sequence[InputPage]) -> str:
    more = f" and {len(pages) - 3} more" if len(pages) > 3 else ""
    return ", ".join(page.id for page in pages[:3]) + more


_ENVIRONMENT = {
    # Ray tells its makers of every use unless it is told not to.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Its C++ part writes to the console of whoever called it.
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster: the one that RAY_ADDRESS names or this machine belongs to, else this machine alone.

    `actors` read at once, each with a model of its own; None is one for each graphics card, else one for each machine.
    Raises ConfigError for none, and where Ray is not installed.
    """

    actors: int | None = None

    def __post_init__(self) -> None:
        if self.actors is not None and self.actors < 1:
            raise ConfigError(f"--actors {self.actors}: one at least has to read")
        _ray()

    def told(self) -> dict[str, str]:
        """What of it decides the texts: nothing. A job may be begun on a cluster and ended without one."""
        return {}

    def read(
        self, wanted: Sequence[Sequence[InputPage]], opening: Opening, open_reader: Callable[[], Reads], *, strict: bool
    ) -> Generator[Rows]:
        """What became of the pages of each group, in the order in which groups are done.

        `open_reader` gives an actor its model. An actor that dies is begun anew, and its pages with it. Raises what
        reading raises there, and RunError where the cluster is lost or pages let one actor after the other die.
        """
        if not wanted:
            return
        there = [[_from_anywhere(page) for page in group] for group in wanted]
        with _connected() as ray:
            # A machine without processors only keeps the cluster together.
            machines = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
            actors, needs = shares(machines, self.actors)
            attempts = ray.remote(num_cpus=0)(Attempts).remote()
            begin, end = (partial(_counted, method) for method in (attempts.begin, attempts.end))
            settings = Settings(opening, open_reader, strict=strict, folder=str(Path.cwd()), begin=begin, end=end)
            # Two groups with each actor, the one it reads and the next, so that a death costs little.
            pool = ray.data.ActorPoolStrategy(size=min(actors, len(wanted)), max_tasks_in_flight_per_actor=2)
            answered = ray.data.from_items(
                [{"place": place} for place in range(len(there))], override_num_blocks=len(there)
            ).map_batches(Actor, batch_size=1, compute=pool, fn_constructor_args=(there, settings), **needs)
            for answer in answered.iter_rows():
                yield rows_of(json.loads(answer["answer"]))


def shares(machines: Sequence[Mapping[str, float]], asked: int | None) -> tuple[int, dict[str, float]]:
    """How many actors read, and what each takes of the machines, whose "CPU" and "GPU" are told.

    Raises ConfigError where more were asked for than there are processors.
    """
    cpus, cards = (int(sum(machine.get(name, 0) for machine in machines)) for name in ("CPU", "GPU"))
    actors = asked or cards or len(machines)
    if actors > cpus:
        raise ConfigError(f"--actors {actors}: the cluster has {cpus} processors, and each actor needs one")
    if cards:
        return actors, {"num_cpus": 1, "num_gpus": 1 / math.ceil(actors / cards)}
    least = min(machine["CPU"] for machine in machines)
    return actors, {"num_cpus": max(1, int(least) // math.ceil(actors / len(machines)))}


def _counted(method: Any, place: int) -> int:
    """What the process that counts attempts says of a group."""
    import ray

    return int(ray.get(method.remote(place)))


def _ray() -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        ray = import_module("ray")
        # Ray is installed without it by those who use it for something else.
        import_module("ray.data")
    except ImportError as error:
        hint = 'pip install "dsocr-hw[ray]", on every machine of the cluster'
        raise ConfigError("--engine ray: Ray is not installed", hint=hint) from error
    return ray


@contextmanager
def _connected() -> Iterator[Any]:
    """Ray, connected to its cluster and let go of again if it was not before; its errors as sentences."""
    ray = _ray()
    was_connected = ray.is_initialized()
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        if not was_connected:
            ray.init(log_to_driver=False, logging_level=logging.ERROR)
        yield ray
    except ConnectionError as error:
        hint = "RAY_ADDRESS names a cluster; without it, one is begun on this machine"
        raise RunError(f"the Ray cluster cannot be reached: {error}", hint=hint) from error
    except ray.exceptions.RayTaskError:
        raise  # A mistake of ours in an actor: its traceback is worth more than a sentence.
    except ray.exceptions.RayError as error:
        hint = "what was read is kept: the same command goes on with it, also without --engine ray"
        # The last line is the error itself, those before it are Ray's traceback.
        raise RunError(f"the Ray cluster failed: {str(error).strip().splitlines()[-1]}", hint=hint) from error
    finally:
        if not was_connected:
            ray.shutdown()


def _from_anywhere(page: InputPage) -> InputPage:
    """The page under paths that do not depend on the folder that a process is in."""
    return replace(page, path=page.path.absolute(), image=page.image and page.image.absolute())
