"""Training in several processes: rank and world size, collectives that do not go through a graphics card, and threads.

Every process trains on its shard of each step; rank 0 alone writes files and reports. Collectives exchange JSON values
through the CPU backend (gloo). All processes must call them in the same order.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, distributed

from dsocr.config import RunConfig
from dsocr.errors import ConfigError, Interrupted, RunError, setting
from dsocr.html import counted
from dsocr.io.processes import available_cores, free_threads, rank_and_count

T = TypeVar("T")

_TIMEOUT = timedelta(days=7)
"""Preparing may take one process hours; the launcher ends all processes as soon as one fails."""

_CONNECTION_LOST = ("closed by peer", "reset by peer", "broken pipe", "socket closed", "connectfull")
_UNSUPPORTED_LAUNCHES = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "tensor parallelism",
}


@dataclass(frozen=True, slots=True)
class Distributed:
    """This process's rank among `world_size` processes; a single process waits for nobody."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """True for the process that writes files and reports."""
        return self.rank == 0

    def shard(self, items: Sequence[T]) -> Sequence[T]:
        """Return this process's share of the items."""
        return items[self.rank :: self.world_size]

    def all_gather(self, value: Any) -> list[Any]:
        """Return the JSON values of all processes, in the order of their ranks."""
        if self.world_size == 1:
            return [value]
        ours = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [int(size) for size in self._all_gather_tensor(torch.tensor([len(ours)]))]
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(ours)] = ours
        gathered = zip(self._all_gather_tensor(padded), sizes, strict=True)
        return [json.loads(tensor[:size].numpy().tobytes()) for tensor, size in gathered]

    def barrier(self) -> None:
        """Wait until all processes are here."""
        self.all_gather(None)

    def broadcast(self, function: Callable[[], T]) -> T:
        """Call the function on rank 0 alone and return its JSON value everywhere.

        Raises RunError on the other ranks if the function fails.
        """
        if self.world_size == 1:
            return function()
        if not self.is_main:
            message = self.all_gather(None)[0]
            if message is None:
                raise RunError("the main process failed", code="peer-failed")
            return cast(T, message["value"])
        try:
            result = function()
        except BaseException:
            self.all_gather(None)
            raise
        self.all_gather({"value": result})
        return result

    def main_first(self, function: Callable[[], T]) -> T:
        """Call the function on every rank, on rank 0 before the others: downloads and refusals happen once."""
        results: list[T] = []
        self.broadcast(lambda: results.append(function()))
        return results[0] if results else function()

    def _all_gather_tensor(self, tensor: Tensor) -> list[Tensor]:
        gathered = [torch.empty_like(tensor) for _ in range(self.world_size)]
        distributed.all_gather(gathered, tensor)
        return gathered


ALONE = Distributed()
"""A process that no launcher started."""


@contextmanager
def connect() -> Iterator[Distributed]:
    """Connect with the other processes of this launch for the `with` block.

    Raises ConfigError if the processes cannot train together, RunError if another one fails.
    """
    dist = Distributed(*rank_and_count())
    if dist.world_size == 1 or distributed.is_initialized():  # whoever initialised the process group destroys it
        yield dist
        return
    # Defaults of its functions are the group at import: imported later, they would keep gloo's threads to the end.
    import torch.distributed.nn  # noqa: F401

    distributed.init_process_group(_backend(), timeout=_TIMEOUT)
    try:
        yield dist
        dist.barrier()  # rank 0 may still be writing
    except Interrupted:  # raised on every rank
        distributed.destroy_process_group()
        raise
    except RuntimeError as error:
        if not any(sign in str(error).lower() for sign in _CONNECTION_LOST):
            raise
        # `from None`: the failed process reports the cause; this one only lost its connection.
        hint = "see its own message; without one, it may have run out of memory"
        raise RunError("another process of this training failed", code="peer-failed", hint=hint) from None
    distributed.destroy_process_group()


def exclude_frozen_from_ddp(model: torch.nn.Module) -> None:
    """Keep DistributedDataParallel from broadcasting frozen weights and buffers, which every rank loads itself."""
    names = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    names += [name for name, _ in model.named_buffers()]
    ddp: Any = torch.nn.parallel.DistributedDataParallel
    ddp._set_params_and_buffers_to_ignore_for_model(model, names)


def _backend() -> str:
    """Choose the backend and this process's graphics card; raises ConfigError for unsupported launches."""
    for variable, name in _UNSUPPORTED_LAUNCHES.items():
        if os.environ.get(variable, "").lower() in ("1", "true"):
            message = f"{name} is not supported: every process holds the whole base and trains the adapter alone"
            hint = "start it with torchrun, or with `accelerate launch --multi_gpu`"
            raise ConfigError(message, code="launch-unsupported", hint=hint)
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if torch.cuda.is_available():
        if local_rank >= (cards := torch.cuda.device_count()):
            hint = f"start {cards} with --nproc-per-node {cards}"
            message = f"there are more processes than graphics cards ({cards})"
            raise ConfigError(message, code="too-many-processes", hint=hint)
        torch.cuda.set_device(local_rank)
        return "cpu:gloo,cuda:nccl"
    if torch.backends.mps.is_available():
        message = "several processes train together on CUDA or on CPUs only"
        raise ConfigError(message, code="launch-unsupported", hint="start one process")
    return "gloo"


# Threads


def limit_threads(config: RunConfig, recorded: RunConfig | None) -> tuple[RunConfig, str]:
    """Compute in the threads that are set, else in those of the run to resume, else in fewer beside other work.

    Returns the configuration with its threads, and why they are fewer, or an empty text. A run that resumes computes in
    as many as before: another number gives other last digits.
    """
    if config.training.threads is not None:
        torch.set_num_threads(config.training.threads)
        return config, ""
    threads = free_threads() if recorded is None else recorded.training.threads
    if threads is None or (recorded is None and threads >= torch.get_num_threads()):
        return config, ""
    torch.set_num_threads(threads)
    few, choice = counted(threads, "thread"), setting("training.threads", available_cores())
    reason = (
        f"training computes in {few}, since other programs kept this machine busy when it began; {choice} takes all"
    )
    return config.model_copy(update={"training": config.training.model_copy(update={"threads": threads})}), reason
