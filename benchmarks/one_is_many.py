"""Reads the same lines alone, in batches, shuffled, through a busy server and with Ray: all texts are equal.

    python benchmarks/one_is_many.py DATASET... [--lines 200] [--base small] [--ray]

Lines are drawn from all splits of the datasets, as many of each. Confidences must agree within 1e-5. `--ray` needs the
extra of that name. The exit code is 1 if a text differs.
"""

import io
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fastapi.testclient import TestClient
from PIL import Image

import dsocr
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.images import open_image
from dsocr.inference.reader import LocalReader
from dsocr.models.base_folder import embedded_bases
from dsocr.runs import RunFolder
from dsocr.server.access import ServerLimits
from dsocr.server.engine import ServedModels
from dsocr.server.routes import create_app
from runner import Table, make_parser, parse, record

CLIENTS = 16
TOLERANCE = 1e-5
"""By which a confidence may differ."""

Readings = dict[str, tuple[str, float | None]]
"""Text and confidence by the name of a line; None where a way of reading does not say it."""


def read_every_way(
    base: str, lines: Mapping[str, Image.Image], folder: Path, *, ray: bool = False
) -> Iterator[tuple[str, Readings]]:
    """Yield what each way reads, the lines alone first; `folder` is empty."""
    reader, named = LocalReader.of_run(RunFolder.to_read_with(Path(base))), [*lines.items()]

    def read(order: list[tuple[str, Image.Image]]) -> Readings:
        return {found.id: (found.text, found.confidence) for found in reader.read(order)}

    yield "alone", {name: reading for line in named for name, reading in read([line]).items()}
    yield "in batches", read(named)
    yield "shuffled", read(random.Random(6).sample(named, len(named)))

    (folder / "lines").mkdir()
    contents = {}
    for name, image in lines.items():
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        contents[name] = buffer.getvalue()
        (folder / "lines" / f"{name}.png").write_bytes(contents[name])

    def request(name: str) -> tuple[str, None]:
        return str(client.post("/v1/transcriptions", content=contents[name]).json()["text"]), None

    models = ServedModels({base: embedded_bases()[base]})
    app = create_app(models, limits=ServerLimits(max_queued=len(lines), deadline=600))
    with TestClient(app) as client, ThreadPoolExecutor(CLIENTS) as clients:
        yield f"served to {CLIENTS} clients", dict(zip(contents, clients.map(request, contents), strict=True))

    if ray:
        # Without a page there is no script to decide.
        report = dsocr.transcribe(
            base, folder / "lines", folder / "ray", engine="ray:2", images="line", format="jsonl", script="any"
        )
        rows = [json.loads(row) for file in report.out.rglob("*.jsonl") for row in file.read_text("utf-8").splitlines()]
        yield "with Ray", {Path(row["id"]).stem: (row["text"], None) for row in rows}


def different(one: Readings, other: Readings) -> list[str]:
    """The lines whose text or confidence is another one."""
    names = []
    for name in {**one, **other}:
        (text, confidence), (other_text, other_confidence) = (part.get(name, ("", None)) for part in (one, other))
        known = confidence is not None and other_confidence is not None
        if text != other_text or (known and abs((confidence or 0) - (other_confidence or 0)) > TOLERANCE):
            names.append(name)
    return names


def draw_lines(datasets: list[Path], count: int) -> dict[str, Image.Image]:
    """Lines of datasets, as many of each."""
    lines = {}
    for place, folder in enumerate(datasets):
        opened = Dataset.open(folder)
        samples = [sample for split in Split if split in opened.card.splits for sample in opened.samples(split)]
        share = count // len(datasets) + (place < count % len(datasets))
        for number, sample in enumerate(random.Random(5).sample(samples, min(share, len(samples)))):
            lines[f"{place}-{number:03}"] = open_image(sample.image)
    return lines


def main() -> None:
    """Print a row for each way."""
    parser = make_parser(__doc__)
    parser.add_argument("datasets", nargs="+", type=Path)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--base", default="small")
    parser.add_argument("--ray", action="store_true")
    options = parse(parser)
    lines, faults = draw_lines(options.datasets, options.lines), 0
    table, alone = Table("way", "lines", "different texts", "differ from alone", "seconds"), Readings()
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        for way, readings in read_every_way(options.base, lines, Path(folder), ray=options.ray):
            alone = alone or readings
            wrong = len(different(alone, readings))
            faults += wrong
            texts = len({text for text, _ in readings.values()})
            table.row(way, len(readings), texts, wrong, f"{time.monotonic() - began:.0f}")
    record(options, table.rows)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
