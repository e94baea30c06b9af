"""What a launcher such as torchrun, or a training that starts others, tells a process; read without torch."""

import os

MEETING = "DSOCR_MEETING"
"""The variable with the file by which the processes of one machine find each other, where no launcher started them."""


def rank_and_count() -> tuple[int, int]:
    """Which process of how many this is, from 0; (0, 1) where it is alone."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def is_watched() -> bool:
    """True where a launcher ends the processes that take too long to end."""
    return rank_and_count()[1] > 1 and MEETING not in os.environ
