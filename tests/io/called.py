"""What tests call in other processes, which import this module and nothing that is slow to load."""

import os

from dsocr.errors import DataError


def square(number: int) -> int:
    return number * number


def fail(number: int) -> int:
    raise DataError(f"{number} cannot be used", code="refused", where="here", hint="give another")


def die() -> None:
    os._exit(3)


def fill_memory() -> int:
    return len(b"x" * (2000 * 2**20))


def fill_memory_slowly() -> None:
    held = []
    while True:
        held.append(b"x" * 2**20)


def never_end() -> None:
    while True:
        pass


def raise_a_bug() -> None:
    raise ValueError("a bug")
