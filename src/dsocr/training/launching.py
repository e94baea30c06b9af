"""What a launcher such as torchrun tells a process; read without torch."""

import os


def rank_and_count() -> tuple[int, int]:
    """Return this process's rank and the world size; (0, 1) without a launcher."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
