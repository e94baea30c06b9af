"""Read on a Ray cluster: every actor holds a model and reads groups of pages, and the results come back here.

Only paths and texts are sent, so all machines must see run, base and scans under the same paths. Ray itself passes
functions and arguments between its processes as pickles in memory; no pickled file is written or read.
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
from dsocr.inference.inputs import InputPage, PagePreparer
from dsocr.inference.pages import ImageReader, Rows, read_locally
from dsocr.models.loading import is_out_of_memory

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


@dataclass(frozen=True, slots=True)
class ActorSettings:
    """What an actor needs: `open_reader` loads its model, `start` and `finish` count each group's attempts.

    `folder` is the command's working folder, `version` its version of dsocr.
    """

    preparer: PagePreparer
    open_reader: Callable[[], ImageReader]
    strict: bool
    folder: str
    start: Callable[[int], int]
    finish: Callable[[int], int]
    version: str = __version__


class Actor:
    """Read groups of pages, given by index, with a model that is loaded when the first one arrives.

    The answer is JSON for `rows_of`; errors are part of it, so that they arrive unchanged.
    """

    def __init__(self, groups: Sequence[Sequence[InputPage]], settings: ActorSettings) -> None:
        self._groups, self._settings = groups, settings
        self._reader: ImageReader | None = None

    def __call__(self, batch: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
        """Read a batch of one group, as Ray Data passes it."""
        group = int(batch["group"][0])
        answer = json.dumps(self._answer(group), ensure_ascii=False)
        self._settings.finish(group)
        return {"answer": [answer]}

    def _answer(self, group: int) -> dict[str, Any]:
        pages, settings = self._groups[group], self._settings
        try:
            self._check_machine(pages, settings.start(group))
            (rows,) = read_locally([pages], settings.preparer, self._open_reader, strict=settings.strict, workers=1)
            return {"rows": rows}
        except DsocrError as error:
            return {"error": [type(error).__name__, error.message, error.code, error.where, error.hint]}
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return {"memory": platform.node()}

    def _open_reader(self) -> ImageReader:
        self._reader = self._reader or self._settings.open_reader()
        return self._reader

    def _check_machine(self, pages: Sequence[InputPage], attempt: int) -> None:
        """Raise RunError if this machine has another dsocr or other files, or if these pages kill every process."""
        machine = f"machine {platform.node()} of the cluster"
        if self._settings.version != __version__:
            message = f"dsocr {__version__} is installed here, and {self._settings.version} where the command runs"
            hint = "install the same version on all machines"
            raise RunError(message, code="cluster-version", where=machine, hint=hint)
        if attempt > _MAX_ATTEMPTS:
            hint = "everything else is kept: remove the page that causes it, or lower --actors if memory runs out"
            message = f"{_MAX_ATTEMPTS} processes died while reading these pages"
            raise RunError(message, code="cluster-actors-died", where=_page_ids(pages), hint=hint)
        if not any(page.path.exists() for page in pages):
            hint = "keep scans, run, base and output where all machines see them under the same path"
            raise RunError(f"Cannot see {pages[0].path}", code="cluster-path", where=machine, hint=hint)
        if Path(self._settings.folder).is_dir():
            # A base may be given relative to it.
            os.chdir(self._settings.folder)


def rows_of(answer: Mapping[str, Any]) -> Rows:
    """Return the rows of an actor's answer. Raises the error that reading raised there, or MemoryError."""
    if "error" in answer:
        kind, message, code, where, hint = answer["error"]
        raise getattr(errors, kind)(message, code=code, where=where, hint=hint)
    if "memory" in answer:
        raise MemoryError(answer["memory"])
    return [(id_, stamp, row) for id_, stamp, row in answer["rows"]]


def _page_ids(pages: Sequence[InputPage]) -> str:
    more = f" and {len(pages) - 3} more" if len(pages) > 3 else ""
    return ", ".join(page.id for page in pages[:3]) + more


_ENVIRONMENT = {
    # Ray reports usage to its makers by default.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Its C++ part writes to the console.
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster: the one in RAY_ADDRESS or the one this machine belongs to, else this machine alone.

    `actors` read in parallel, each with its own model; None means one per graphics card, else one per machine. Raises
    ConfigError for less than one, and if Ray is not installed.
    """

    actors: int | None = None

    def __post_init__(self) -> None:
        if self.actors is not None and self.actors < 1:
            raise ConfigError(f"--actors must be at least 1, not {self.actors}", code="cluster-actors")
        _import_ray()

    def job_settings(self) -> dict[str, str]:
        """Return the settings that decide the texts: none, so a job may be continued without the cluster."""
        return {}

    def read(
        self,
        wanted: Sequence[Sequence[InputPage]],
        preparer: PagePreparer,
        open_reader: Callable[[], ImageReader],
        *,
        strict: bool,
    ) -> Generator[Rows]:
        """Yield the rows of each group of pages as groups are finished, in any order.

        `open_reader` loads an actor's model. An actor that dies is restarted with its pages. Raises what reading raises
        there, and RunError if the cluster is lost or pages kill one actor after the other.
        """
        if not wanted:
            return
        groups = [[_with_absolute_paths(page) for page in group] for group in wanted]
        with _connection() as ray:
            # A machine without processors only coordinates the cluster.
            machines = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
            actors, resources = plan_actors(machines, self.actors)
            attempts = ray.remote(num_cpus=0)(Attempts).remote()
            start, finish = (partial(_call, method) for method in (attempts.start, attempts.finish))
            folder = str(Path.cwd())
            settings = ActorSettings(preparer, open_reader, strict=strict, folder=folder, start=start, finish=finish)
            # Two groups per actor, the current and the next one, so that losing an actor costs little.
            pool = ray.data.ActorPoolStrategy(size=min(actors, len(wanted)), max_tasks_in_flight_per_actor=2)
            answered = ray.data.from_items(
                [{"group": group} for group in range(len(groups))], override_num_blocks=len(groups)
            ).map_batches(Actor, batch_size=1, compute=pool, fn_constructor_args=(groups, settings), **resources)
            for answer in answered.iter_rows():
                yield rows_of(json.loads(answer["answer"]))


def plan_actors(machines: Sequence[Mapping[str, float]], requested: int | None) -> tuple[int, dict[str, float]]:
    """Return the number of actors and the resources of each, given each machine's "CPU" and "GPU".

    Raises ConfigError if more actors are requested than there are processors.
    """
    cpus, cards = (int(sum(machine.get(name, 0) for machine in machines)) for name in ("CPU", "GPU"))
    actors = requested or cards or len(machines)
    if actors > cpus:
        message = f"--actors {actors} needs as many processors, and the cluster has {cpus}"
        raise ConfigError(message, code="cluster-actors")
    if cards:
        return actors, {"num_cpus": 1, "num_gpus": 1 / math.ceil(actors / cards)}
    least = min(machine["CPU"] for machine in machines)
    return actors, {"num_cpus": max(1, int(least) // math.ceil(actors / len(machines)))}


def _call(method: Any, group: int) -> int:
    """Call a method of the process that counts attempts."""
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
        hint = 'pip install "dsocr-hw[ray]", on every machine of the cluster'
        raise ConfigError("--engine ray needs Ray, which is not installed", code="ray-missing", hint=hint) from error
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
        raise RunError(f"Cannot reach the Ray cluster: {error}", code="cluster-unreachable", hint=hint) from error
    except ray.exceptions.RayTaskError:
        raise  # a bug in an actor, which needs its traceback
    except ray.exceptions.RayError as error:
        hint = "finished pages are kept: run the same command again, with or without --engine ray"
        # The last line is the error itself, those before it are Ray's traceback.
        message = f"The Ray cluster failed: {str(error).strip().splitlines()[-1]}"
        raise RunError(message, code="cluster-failed", hint=hint) from error
    finally:
        if not was_connected:
            ray.shutdown()


def _with_absolute_paths(page: InputPage) -> InputPage:
    """Return the page with paths that do not depend on a process's working folder."""
    return replace(page, path=page.path.absolute(), image=page.image and page.image.absolute())
