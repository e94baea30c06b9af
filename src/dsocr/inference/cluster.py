"""Reading on a Ray cluster: every actor holds a model and reads groups of pages; what it read comes back here.

Only paths and texts travel, so all machines see run, base and scans under the same paths. Ray itself hands functions
and arguments to its processes as pickles in memory; no file is written or read so.
"""

import json
import logging
import math
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from dsocr.errors import ConfigError, RunError
from dsocr.inference.cluster_actor import Actor, Attempts, Settings, rows_of
from dsocr.inference.inputs.finding import InputPage
from dsocr.inference.inputs.showing import Opening
from dsocr.inference.reading import Reads, Rows

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
