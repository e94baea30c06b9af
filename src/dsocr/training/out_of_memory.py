"""Running out of memory in a training, as an error that names the settings to lower."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dsocr.config import RunConfig
from dsocr.errors import RunError
from dsocr.model.loading import choose_device, choose_dtype
from dsocr.model.out_of_memory import is_out_of_memory
from dsocr.runs import RunFolder

_THREE = 3


@contextmanager
def out_of_memory_spoken(config: RunConfig) -> Iterator[None]:
    """Turn running out of memory, on a GPU or on the machine, into RunError; the run folder stays as it is."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        # `from None`: the traceback would keep the batch alive.
        raise _spoken(config) from None


def lighter_settings(config: RunConfig) -> dict[str, object]:
    """Three settings and their values that take less memory, those first that change nothing but the speed."""
    training = config.training
    fewer = [n for n in range(1, training.samples_per_forward // 2 + 1) if training.samples_per_step % n == 0]
    options: list[tuple[str, object]] = [("training.samples_per_forward", fewer[-1])] if fewer else []
    if not training.gradient_checkpointing:
        options.append(("training.gradient_checkpointing", True))
    device = choose_device()
    if choose_dtype("auto", device).itemsize < choose_dtype(training.precision, device).itemsize:
        options.append(("training.precision", "auto"))
    if training.attention != "sdpa":
        options.append(("training.attention", "sdpa"))
    if config.adapter.scope != "decoder":
        options.append(("adapter.scope", "decoder"))
    if config.adapter.rank > 1:
        options.append(("adapter.rank", config.adapter.rank // 2))
    options.append(("training.max_text_tokens", max(training.max_text_tokens // 2, 1)))
    return dict(options[:_THREE])


def as_overrides(settings: dict[str, object]) -> str:
    """The settings as options of the command line: `--set NAME=VALUE ...`."""
    return " ".join(f"--set {name}={str(value).lower()}" for name, value in settings.items())


def _spoken(config: RunConfig) -> RunError:
    checkpoint = max(RunFolder(config.run).checkpoints.glob("step-*"), default=None)
    message = f"training ran out of memory on the {choose_device().type.upper()}"
    hint = f"run it again with {as_overrides(lighter_settings(config))} or a smaller input.resolution"
    if checkpoint is not None:
        hint += f" (with only samples_per_forward and gradient_checkpointing changed, from {checkpoint.name} on)"
    return RunError(message, where=config.run, hint=hint)
