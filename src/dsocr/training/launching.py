"""What a launcher such as torchrun tells a process, read without torch."""

import os


def rank_and_count() -> tuple[int, int]:
    """Which process of how many this is, from 0; (0, 1) where no launcher started it."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
