"""How the threads of a computation wait for each other, said before torch is loaded."""

import os

_LOOKS = "2000"


def wait_briefly() -> None:
    """Have threads sleep soon where they wait, on Linux; what a user has set in the environment stays.

    torch's threads meet at the end of every product of matrices. By itself its OpenMP library (libgomp) has those that
    are there look 300,000 times whether the others are: milliseconds, in which they keep from a core whom they wait
    for, where anything else runs. `docs/experiments.md` has what it costs.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _LOOKS)
