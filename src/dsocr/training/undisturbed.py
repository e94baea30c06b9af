"""A stretch of work after which a model and the random numbers are as if it had never been done."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from peft import PeftModel


@contextmanager
def undisturbed(model: PeftModel) -> Iterator[None]:
    """Train, read and draw inside; afterwards weights, modes and random numbers are the old ones, gradients gone.

    Only weights that have gradients are put back: the base is frozen, and a second copy of it may not fit.
    """
    kept = [(parameter, parameter.detach().clone()) for parameter in model.parameters() if parameter.requires_grad]
    modes = [(module, module.training) for module in model.modules()]
    drawn, drawn_by_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(drawn)
        np.random.set_state(drawn_by_numpy)
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            for parameter, old in kept:
                parameter.copy_(old)
        for module, training in modes:
            module.training = training
