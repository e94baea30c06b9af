"""What runs for days must not grow: the memory of a server over requests, and of a job over pages."""

import http.client
import io
import multiprocessing
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from fastapi import FastAPI
from PIL import Image

from dsocr.inference.transcribe import transcribe
from dsocr.runs import RunFolder
from dsocr.server.engine import ServedModels
from dsocr.server.routes import create_app
from tests.conftest import PATIENCE, draw_line
from tests.server.fakes import hosted

REQUESTS, PAGES = 2000, 500
_WARM = 200
"""Requests or pages after which everything that is kept has been loaded."""
_LEFT = 150
"""Megabytes over the start after large images."""
_SLOPE = 0.05
"""Megabytes for each further one."""
_TEXTS = ("a", "a short line", "a line of some words", "one line that is quite a bit longer", "№ 25")
_PAGE = (
    '<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15">'
    '<Page imageFilename="{name}.png" imageWidth="{width}" imageHeight="{height}"><TextRegion id="r">'
    '<Coords points="0,0 {width},0 {width},{height} 0,{height}"/><TextLine id="l">'
    '<Coords points="0,0 {width},0 {width},{height} 0,{height}"/></TextLine></TextRegion></Page></PcGts>'
)

pytestmark = pytest.mark.slow


def _small() -> FastAPI:
    return create_app(ServedModels({"small": RunFolder.to_read_with(Path("small")).adapter}))


def _transcribe(folder: Path, results: Any) -> None:
    process, sizes = psutil.Process(), dict[int, int]()

    def record(done: int, total: int) -> None:
        sizes[done] = process.memory_info().rss

    transcribe("small", [folder], folder.with_name("out"), progress=record)
    results.put(sizes)


def slope(sizes: Mapping[int, int]) -> float:
    """Megabytes that each further piece of work adds once warm, by least squares; `sizes` are bytes by work done."""
    warm = {done: size / 1e6 for done, size in sizes.items() if done > _WARM}
    return float(np.polyfit([*warm], [*warm.values()], 1)[0])


def post(address: str, body: bytes) -> int:
    """The status of a request to read an image, on a connection of its own."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=PATIENCE)
    connection.request("POST", "/v1/transcriptions", body)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.timeout(6 * PATIENCE)
def test_a_server_does_not_grow_with_its_requests(tmp_path: Path) -> None:
    bodies = []
    for number, text in enumerate(_TEXTS):
        draw_line(tmp_path / f"{number}.png", text)
        bodies.append((tmp_path / f"{number}.png").read_bytes())
    bodies.append(bodies[0][:60])  # damaged
    sizes = dict[int, int]()
    with hosted(_small) as (address, process):
        for number in range(REQUESTS):
            assert post(address, bodies[number % len(bodies)]) in {200, 422}
            sizes[number] = process.memory_info().rss
    assert slope(sizes) < _SLOPE


@pytest.mark.timeout(3 * PATIENCE)
def test_large_images_leave_nothing(tmp_path: Path) -> None:
    """Each takes some hundred megabytes while it is read, which the C library would keep."""
    draw_line(tmp_path / "line.png", _TEXTS[1])
    bodies = [(tmp_path / "line.png").read_bytes()]
    for size in ((6240, 6240), (16000, 2400), (2400, 16000)):
        buffer = io.BytesIO()
        Image.new("RGB", size, (200, 190, 180)).save(buffer, "PNG", compress_level=1)
        bodies.append(buffer.getvalue())
    with hosted(_small) as (address, process):
        sizes = []
        for body in bodies:
            assert post(address, body) == 200
            sizes.append(process.memory_info().rss / 1e6)
        until = time.monotonic() + 5
        while process.memory_info().rss / 1e6 >= sizes[0] + _LEFT:
            assert time.monotonic() < until
            time.sleep(0.1)


@pytest.mark.timeout(6 * PATIENCE)
def test_a_job_does_not_grow_with_its_pages(tmp_path: Path) -> None:
    folder = tmp_path / "scans"
    folder.mkdir()
    for number in range(PAGES):
        name = f"{number:04d}"
        draw_line(folder / f"{name}.png", _TEXTS[number % len(_TEXTS)] + name)
        with Image.open(folder / f"{name}.png") as image:
            width, height = image.size
        page = _PAGE.format(name=name, width=width - 1, height=height - 1)
        (folder / f"{name}.xml").write_text(page, encoding="utf-8")
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    child = spawn.Process(target=_transcribe, args=(folder, results))
    child.start()
    sizes = results.get(timeout=5 * PATIENCE)
    child.join()
    assert max(sizes) == PAGES
    assert slope(sizes) < _SLOPE
