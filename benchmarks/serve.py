"""What `dsocr serve` bears: many times more requests than it can read, some of them hostile.

    python benchmarks/serve.py RUN IMAGE_FOLDER [--seconds 300] [--times 10]

The server is a process of its own at a free port of this machine. First its capacity: clients that ask again as soon as
they are answered. Then requests come at `--times` that rate for so many seconds, whether answered or not, one in twenty
of them hostile: an empty body, a cut-off picture, one of too many pixels, a body announced and never sent, a client who
leaves at once. Requests and time are bounded, and nothing but this machine is asked.
"""

import argparse
import asyncio
import os
import re
import struct
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import mean, quantiles

import psutil

from measuring import machine

CLIENTS = 24
MOST_OPEN = 200
"""Connections at once; a request that finds no free one is not sent, and counted."""


@dataclass
class Seen:
    """What came back: how many of each status, and how long each took that was read."""

    statuses: Counter[str] = field(default_factory=Counter)
    hostile: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    unsent: int = 0


def huge_picture() -> bytes:
    """A PNG of a few bytes that claims 100 megapixels."""
    head = struct.pack(">IIBBBBB", 10_000, 10_000, 8, 0, 0, 0, 0)
    chunk = b"IHDR" + head
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


async def ask(port: int, body: bytes, *, announced: int | None = None, leave: bool = False) -> str:
    """The status of one request on a connection of its own; a word where there is none."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        return f"no connection ({error.errno})"
    try:
        size = len(body) if announced is None else announced
        head = f"POST /v1/transcriptions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
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
    """Images a second where each client waits for its answer."""
    bodies, until, done = cycle(images), time.monotonic() + seconds, 0

    async def client() -> None:
        nonlocal done
        while time.monotonic() < until:
            status = await ask(port, next(bodies))
            done += status == "200"

    started = time.monotonic()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return done / (time.monotonic() - started)


async def flood(port: int, images: list[bytes], rate: float, seconds: float, watch: Callable[[], None]) -> Seen:
    """So many requests a second, whether answered or not."""
    seen, bodies = Seen(), cycle(images)
    running: set[asyncio.Task[None]] = set()
    hostile = cycle(
        [
            partial(ask, port, b""),
            partial(ask, port, images[0][: len(images[0]) // 2]),
            partial(ask, port, huge_picture()),
            partial(ask, port, b"x", announced=1000),
            partial(ask, port, images[0], leave=True),
        ]
    )

    async def one(number: int) -> None:
        if number % 20 == 0:
            seen.hostile[await next(hostile)()] += 1
            return
        started = time.monotonic()
        status = await ask(port, next(bodies))
        seen.statuses[status] += 1
        if status == "200":
            seen.seconds.append(time.monotonic() - started)

    started, sent = time.monotonic(), 0
    while (now := time.monotonic() - started) < seconds:
        while sent < now * rate:
            sent += 1
            if len(running) >= MOST_OPEN:
                seen.unsent += 1
                continue
            task = asyncio.create_task(one(sent))
            running.add(task)
            task.add_done_callback(running.discard)
        watch()
        await asyncio.sleep(0.01)
    await asyncio.gather(*running)
    return seen


def main() -> None:
    """Start the server, measure it, and end it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--times", type=float, default=10)
    options = parser.parse_args()
    images = [path.read_bytes() for path in sorted(options.images.rglob("*.jpg"))[:64]]
    images = images or [path.read_bytes() for path in sorted(options.images.rglob("*.png"))[:64]]
    command = [sys.executable, "-m", "dsocr", "serve", str(options.run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=dict(os.environ)) as server:
        try:
            assert server.stdout is not None
            said = re.search(r":(\d+) as", server.stdout.readline())
            assert said is not None, "the server did not start"
            measure(int(said[1]), images, options.seconds, options.times, psutil.Process(server.pid))
        finally:
            server.terminate()
        server.wait(60)


def measure(port: int, images: list[bytes], seconds: float, times: float, server: psutil.Process) -> None:
    """Measure, and print."""
    asyncio.run(capacity(port, images, 3))
    most = asyncio.run(capacity(port, images, 15))
    memory: list[tuple[float, int]] = []

    def watch() -> None:
        now = time.monotonic()
        if not memory or now - memory[-1][0] >= 1:
            memory.append((now, server.memory_info().rss))

    seen = asyncio.run(flood(port, images, times * most, seconds, watch))
    cut = sorted(seen.seconds)
    p50, p99 = quantiles(cut, n=100)[49], quantiles(cut, n=100)[98]
    sizes = [size / 1e6 for _, size in memory]
    quarters = [sizes[len(sizes) * place // 4 : len(sizes) * (place + 1) // 4] for place in range(4)]
    after = asyncio.run(ask(port, images[0]))
    row = {
        "images_a_second_at_capacity": round(most, 1),
        "asked_a_second": round(times * most, 1),
        "read_a_second": round(len(cut) / seconds, 1),
        "p50_seconds": round(p50, 2),
        "p99_seconds": round(p99, 2),
        "statuses": dict(seen.statuses),
        "hostile": dict(seen.hostile),
        "unsent": seen.unsent,
        "rss_mb_by_quarter": ", ".join(f"{mean(quarter):.0f} (at most {max(quarter):.0f})" for quarter in quarters),
        "after": after,
    }
    print(machine())
    for name, value in row.items():
        print(f"{name:<28} {value}")


if __name__ == "__main__":
    main()
