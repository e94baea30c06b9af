"""One training in several processes: who is first, what all agree on, how they wait.

Every process trains on its share of each step; the first alone writes and speaks. Knows neither samples nor models.
"""

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from dsocr.errors import ConfigError, Interrupted, RunError
from dsocr.io.processes import rank_and_count

T = TypeVar("T")

_PATIENCE = timedelta(days=7)
"""How long processes wait for each other: one may prepare for hours, and the launcher ends them all where one fails."""

_UNREACHED = ("connection closed by peer", "connection reset by peer", "broken pipe", "socket closed", "connectfull")
_OTHER_WAYS = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "tensor parallelism",
}


class OthersEndedError(RunError):
    """Another process of this training ended, and says why itself."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's place among those that train together: `rank` of `count`, from 0; alone it waits for nobody.

    What processes tell each other is JSON and goes over the processors, so no graphics card is waited for. All of them
    must call the same methods in the same order.
    """

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """True for the one process that writes and speaks."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """The items that fall to this process: each falls to one."""
        return items[self.rank :: self.count]

    def gathered(self, value: Any) -> list[Any]:
        """Every process's value, in the order of their ranks."""
        if self.count == 1:
            return [value]
        ours = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [int(size) for size in self._all(torch.tensor([len(ours)]))]
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(ours)] = ours
        found = zip(self._all(padded), sizes, strict=True)
        return [json.loads(tensor[:size].numpy().tobytes()) for tensor, size in found]

    def wait(self) -> None:
        """Go on when all have come here."""
        self.gathered(None)

    def from_first(self, work: Callable[[], T]) -> T:
        """What the first process, which alone does the work, makes: a JSON value, in all of them.

        Where it fails there, the others raise OthersEndedError.
        """
        if self.count == 1:
            return work()
        if not self.first:
            answer = self.gathered(None)[0]
            if answer is None:
                raise OthersEndedError("the first process ended")
            value: T = answer["made"]
            return value
        try:
            made = work()
        except BaseException:
            self.gathered(None)
            raise
        self.gathered({"made": made})
        return made

    def in_turn(self, work: Callable[[], T]) -> T:
        """What each process makes for itself, the first before the others: what is fetched or refused, is so once."""
        made: list[T] = []
        self.from_first(lambda: made.append(work()))
        return made[0] if made else work()

    def _all(self, tensor: Tensor) -> list[Tensor]:
        found = [torch.empty_like(tensor) for _ in range(self.count)]
        distributed.all_gather(found, tensor)
        return found


def launched() -> Ranks:
    """This process's place by what a launcher wrote into its environment; alone where there was none."""
    return Ranks(*rank_and_count())


@contextmanager
def joined() -> Iterator[Ranks]:
    """This process's place, connected with the others inside.

    Raises ConfigError where processes cannot train together so, OthersEndedError where another one is gone.
    """
    ranks = launched()
    if ranks.count == 1 or distributed.is_initialized():  # then whoever connected them parts them, too
        yield ranks
        return
    distributed.init_process_group(_backend(), timeout=_PATIENCE)
    try:
        yield ranks
        ranks.wait()  # the first may still write
    except Interrupted:  # in all of them
        distributed.destroy_process_group()
        raise
    except RuntimeError as error:
        if not any(sign in str(error).lower() for sign in _UNREACHED):
            raise
        # `from None`: the other process tells the cause, here it is only noticed.
        hint = "where it said nothing, it may have been short of memory"
        raise OthersEndedError("another process of this training ended: see what it said", hint=hint) from None
    distributed.destroy_process_group()


def _backend() -> str:
    local = int(os.environ.get("LOCAL_RANK", 0))
    _refuse_together(local + 1)
    if not torch.cuda.is_available():
        return "gloo"
    torch.cuda.set_device(local)
    return "cpu:gloo,cuda:nccl"


def _refuse_together(count: int) -> None:
    """Raises ConfigError where so many processes of this machine cannot train together."""
    for name, way in _OTHER_WAYS.items():
        if os.environ.get(name, "").lower() in ("1", "true"):
            raise ConfigError(
                f"{way} is not supported: each process holds the whole base, of which only the adapter is learnt",
                hint="start it with torchrun, or with `accelerate launch --multi_gpu`",
            )
    if not torch.cuda.is_available():
        if torch.backends.mps.is_available():
            raise ConfigError("several processes train together on CUDA or on CPUs only", hint="start one process")
    elif count > (cards := torch.cuda.device_count()):
        hint = f"start {cards} with --nproc-per-node {cards}"
        raise ConfigError(f"there are more processes than graphics cards ({cards})", hint=hint)


def leave_to_each(model: torch.nn.Module) -> None:
    """Have torch leave frozen weights and buffers to each process, which has them from the same files.

    Else it would send the whole base around at the start, and the buffers in each forward pass.
    """
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    ours = [*frozen, *(name for name, _ in model.named_buffers())]
    wrapper: Any = torch.nn.parallel.DistributedDataParallel
    wrapper._set_params_and_buffers_to_ignore_for_model(model, ours)


class DrawnByStep(TrainerCallback):
    """Draws what a step drops from (seed, step, rank), so that only the first process's state has to be kept.

    Not for a process that is alone: that keeps all of its random numbers.
    """

    def __init__(self, seed: int, ranks: Ranks) -> None:
        self._seed = seed
        self._ranks = ranks

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin a step's random numbers."""
        drawn = random.Random(f"step {self._seed} {state.global_step} {self._ranks.rank}")  # noqa: S311
        torch.manual_seed(drawn.getrandbits(63))
