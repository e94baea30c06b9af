"""Load test of `dsocr serve`: many times more requests than it can read, some of them hostile.

    python benchmarks/serve.py RUN IMAGE_FOLDER [--seconds 300] [--times 10]

The server runs in another process on a free port of this machine. First its capacity is measured with clients that
send the next request as soon as they are answered. Then requests arrive at `--times` that rate for `--seconds`, one in
twenty of them hostile: an empty body, a damaged image, one of too many pixels, one of extreme aspect ratio, a body that
is announced and never sent, and a client that disconnects at once. Meanwhile one client asks for /healthz every second.
"""

import argparse
import asyncio
import math
import os
import re
import struct
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import mean, quantiles

import psutil

from runner import Table, make_parser, parse, record

CLIENTS = 24
MAX_OPEN = 200
"""Simultaneous connections of the flood; requests beyond are counted as unsent."""


@dataclass
class Results:
    """Counts of each status, and how long each image took that was read."""

    statuses: Counter[str] = field(default_factory=Counter)
    hostile: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    unsent: int = 0


def png_header(width: int, height: int) -> bytes:
    """The first chunk of a PNG of that size."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunk = b"IHDR" + head
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


async def ask(
    port: int, body: bytes, *, announced: int | None = None, leave: bool = False, path: str = "/v1/transcriptions"
) -> str:
    """The status of one request on a new connection, or a word for why there is none."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        return f"no connection ({error.errno})"
    try:
        size = len(body) if announced is None else announced
        method = "GET" if path == "/healthz" else "POST"
        fields = {"Host": "localhost", "Content-Length": str(size), "Connection": "close"}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        await writer.drain()
        if leave:
            return "left"
        answer = await asyncio.wait_for(reader.read(), 120)
        return answer.split(b" ", 2)[1].decode() if answer else "closed"
    except (OSError, TimeoutError) as error:
        return type(error).__name__
    finally:
        writer.close()


async def capacity(port: int, images: list[bytes], seconds: float) -> float:
    """Images per second with clients that wait for each answer."""
    bodies, until, done = cycle(images), time.monotonic() + seconds, 0

    async def client() -> None:
        nonlocal done
        while time.monotonic() < until:
            status = await ask(port, next(bodies))
            done += status == "200"

    started = time.monotonic()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return done / (time.monotonic() - started)


async def flood(port: int, images: list[bytes], rate: float, seconds: float, watch: Callable[[], None]) -> Results:
    """Send `rate` requests per second, whether they are answered or not."""
    results, bodies = Results(), cycle(images)
    running: set[asyncio.Task[None]] = set()
    hostile = cycle(
        [
            partial(ask, port, b""),
            partial(ask, port, images[0][: len(images[0]) // 2]),
            partial(ask, port, png_header(10_000, 10_000)),
            partial(ask, port, png_header(1, 39_000_000)),
            partial(ask, port, b"x", announced=1000),
            partial(ask, port, images[0], leave=True),
        ]
    )

    async def one(number: int) -> None:
        if number % 20 == 0:
            results.hostile[await next(hostile)()] += 1
            return
        started = time.monotonic()
        status = await ask(port, next(bodies))
        results.statuses[status] += 1
        if status == "200":
            results.seconds.append(time.monotonic() - started)

    started, sent = time.monotonic(), 0
    while (now := time.monotonic() - started) < seconds:
        while sent < now * rate:
            sent += 1
            if len(running) >= MAX_OPEN:
                results.unsent += 1
                continue
            task = asyncio.create_task(one(sent))
            running.add(task)
            task.add_done_callback(running.discard)
        watch()
        await asyncio.sleep(0.01)
    await asyncio.gather(*running)
    return results


async def check_health(port: int, until: float) -> list[float]:
    """Seconds that each of a row of health checks took; infinite for one that failed."""
    seconds = []
    while time.monotonic() < until:
        started = time.monotonic()
        status = await ask(port, b"", path="/healthz")
        seconds.append(time.monotonic() - started if status == "200" else math.inf)
        await asyncio.sleep(1)
    return seconds


async def attack(
    port: int, images: list[bytes], rate: float, seconds: float, watch: Callable[[], None]
) -> tuple[Results, list[float]]:
    """The flood; its results and the times of health checks."""
    until = time.monotonic() + seconds
    health = asyncio.create_task(check_health(port, until))
    results = await flood(port, images, rate, seconds, watch)
    return results, await health


def main() -> None:
    """Start the server, measure it, and stop it."""
    parser = make_parser(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--times", type=float, default=10)
    options = parse(parser)
    images = [path.read_bytes() for path in sorted(options.images.rglob("*.jpg"))[:64]]
    images = images or [path.read_bytes() for path in sorted(options.images.rglob("*.png"))[:64]]
    with served(options.run) as (port, server):
        measure(port, images, options, server)


@contextmanager
def served(run: Path) -> Iterator[tuple[int, psutil.Process]]:
    """A server of a run on a free port, in another process."""
    command = [sys.executable, "-m", "dsocr", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=dict(os.environ)) as server:
        try:
            assert server.stdout is not None
            announced = re.search(r":(\d+) as", server.stdout.readline())
            assert announced is not None, "the server did not start"
            yield int(announced[1]), psutil.Process(server.pid)
        finally:
            server.terminate()
        server.wait(60)


def measure(port: int, images: list[bytes], options: argparse.Namespace, server: psutil.Process) -> None:
    """Measure and print."""
    asyncio.run(capacity(port, images, 3))
    most = asyncio.run(capacity(port, images, 15))
    memory: list[tuple[float, int]] = []

    def watch() -> None:
        now = time.monotonic()
        if not memory or now - memory[-1][0] >= 1:
            memory.append((now, server.memory_info().rss))

    rate, seconds = options.times * most, options.seconds
    results, health = asyncio.run(attack(port, images, rate, seconds, watch))
    cut = sorted(results.seconds)
    p50, p99 = quantiles(cut, n=100)[49], quantiles(cut, n=100)[98]
    sizes = [size / 1e6 for _, size in memory]
    quarters = [sizes[len(sizes) * place // 4 : len(sizes) * (place + 1) // 4] for place in range(4)]
    after = asyncio.run(ask(port, images[0]))
    table = Table("measure", "value")
    table.row("images/s at capacity", f"{most:.1f}")
    table.row("images/s asked", f"{rate:.1f}")
    table.row("images/s read", f"{len(cut) / seconds:.1f}")
    table.row("p50, p99", f"{p50:.2f}, {p99:.2f} s")
    table.row("statuses", dict(results.statuses))
    table.row("hostile", dict(results.hostile))
    table.row("unsent", results.unsent)
    table.row("resident MB by quarter", ", ".join(f"{mean(part):.0f} (at most {max(part):.0f})" for part in quarters))
    table.row("slowest health check", f"{max(health):.2f} s")
    table.row("status afterwards", after)
    record(options, table.rows)


if __name__ == "__main__":
    main()
