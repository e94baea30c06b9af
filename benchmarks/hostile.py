"""Hostile requests against a running `dsocr serve`, each kind by itself, and how long an honest client waits meanwhile.

    python benchmarks/hostile.py RUN LINE_IMAGE [--seconds 20]

The honest client sends the image of a line, and the next one when it is answered. It should be answered with 200 within
ten seconds throughout; the exit code is 1 if it was not.
"""

import argparse
import asyncio
import http.client
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from PIL import Image

from measuring import machine, table_line
from serve import ask, png_header, served, stay_half_open

LONGEST = 10.0
"""Seconds within which the honest client should be answered."""
HALF_OPEN = 700
"""Connections that send half a header."""
CROWD = 60
"""Requests at once after all the others; the queue holds 64."""
WIDTHS = (44, 24, 10, 10, 10, 8)

Attack = Callable[[], Awaitable[str]]


def png(width: int, height: int) -> bytes:
    """A blank image as a PNG file, which packs some hundred pixels into a byte."""
    file = BytesIO()
    Image.new("L", (width, height), 200).save(file, "PNG")
    return file.getvalue()


async def handshake(port: int, origin: str) -> str:
    """The status of a websocket handshake by a page of another site."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    writer.write(f"{head}{key}Origin: {origin}\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(64), 120)
    writer.close()
    return answer.split(b" ", 2)[1].decode() if answer else "closed"


def attacks(port: int, line: bytes) -> Iterator[tuple[str, int, Attack]]:
    """Each kind of request, and the number of clients that send it again and again."""
    post = partial(ask, port)
    foreign = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
    yield "a client that leaves at once", 16, partial(post, line, leave=True)
    yield "1 x 39,000,000 pixels in 38 kB", 8, partial(post, png(1, 39_000_000))
    yield "39,000,000 x 1 pixels", 8, partial(post, png(39_000_000, 1))
    yield "180 x 36,000 pixels, just not too extreme", 8, partial(post, png(180, 36_000))
    yield "10,000 x 10,000 pixels announced", 8, partial(post, png_header(10_000, 10_000))
    yield "a page sent to a model of lines", 8, partial(post, png(2500, 3500))
    yield "a damaged image", 8, partial(post, line[: len(line) // 2])
    yield "an empty body", 8, partial(post, b"")
    yield "a body of 17 MB", 4, partial(post, bytes(17 * 2**20))
    yield "a body announced and never sent", 64, partial(post, b"x", announced=1000)
    yield "text/plain from a page of another site", 8, partial(post, line, headers=foreign)
    yield "a websocket of another site", 8, partial(handshake, port, foreign["Origin"])
    yield "another host name", 8, partial(post, line, headers={"Host": "evil.example"})


async def repeat(attack: Attack, until: float, answers: Counter[str]) -> None:
    """Send a request again and again, and count the answers."""
    while time.monotonic() < until:
        try:
            answers[await attack()] += 1
        except (OSError, TimeoutError) as error:
            answers[type(error).__name__] += 1
        await asyncio.sleep(0.02)


def be_honest(port: int, line: bytes, seconds: float) -> list[tuple[str, float]]:
    """Statuses and seconds of the requests of a client that waits for each answer; runs in a process of its own."""
    found = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        started = time.monotonic()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            connection.request("POST", "/v1/transcriptions", line)
            status = str(connection.getresponse().status)
            connection.close()
        except (OSError, http.client.HTTPException) as error:
            status = type(error).__name__
        found.append((status, time.monotonic() - started))
        time.sleep(0.1)
    return found


async def measure(port: int, line: bytes, seconds: float, server: psutil.Process) -> bool:
    """Print a row for each kind of request; returns whether the honest client was always answered in time."""
    print(table_line(("hostile requests", "answers", "honest", "median s", "slowest s", "MB"), WIDTHS))
    in_time, pool = True, ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    async def row(name: str, hostile: list[Coroutine[Any, Any, None]], answers: Counter[str]) -> None:
        nonlocal in_time
        honest = asyncio.get_running_loop().run_in_executor(pool, be_honest, port, line, seconds)
        tasks = [asyncio.create_task(one) for one in hostile]
        most = 0.0
        while not honest.done():
            most = max(most, server.memory_info().rss / 1e6)
            await asyncio.sleep(0.1)
        statuses, took = zip(*await honest, strict=True)
        await asyncio.gather(*tasks)
        in_time = in_time and set(statuses) == {"200"} and max(took) <= LONGEST
        cells = (name, counted(answers), counted(Counter(statuses)), f"{median(took):.2f}", f"{max(took):.2f}")
        print(table_line((*cells, f"{most:.0f}"), WIDTHS), flush=True)

    await row("none", [], Counter())
    for name, clients, attack in attacks(port, line):
        until, answers = time.monotonic() + seconds, Counter[str]()
        await row(name, [repeat(attack, until, answers) for _ in range(clients)], answers)
    until = time.monotonic() + seconds
    await row("half a header", [stay_half_open(port, until) for _ in range(HALF_OPEN)], Counter())
    crowd = Counter(await asyncio.gather(*(ask(port, line) for _ in range(CROWD))))
    print(f"{CROWD} honest requests at once, just after: {counted(crowd)}")
    return in_time


def counted(answers: Counter[str]) -> str:
    """The answers with their numbers."""
    return ", ".join(f"{status}: {count}" for status, count in sorted(answers.items()))


def main() -> None:
    """Start a server on a free port, and send it everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("image", type=Path)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    print(machine())
    with served(options.run) as (port, server):
        in_time = asyncio.run(measure(port, options.image.read_bytes(), options.seconds, server))
    sys.exit(not in_time)


if __name__ == "__main__":
    main()
