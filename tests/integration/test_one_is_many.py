"""The small base reads each of 200 lines the same alone, in batches, shuffled, in shards and through a busy server."""

import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

import dsocr
from dsocr.images import open_image
from dsocr.inference.reader import LocalReader
from dsocr.models.base_folder import embedded_bases
from dsocr.server.engine import ServedModels
from dsocr.server.limits import ServerLimits
from dsocr.server.routes import create_app

LINES = 200
CLIENTS = 16


@pytest.fixture(scope="module")
def lines() -> list[tuple[str, Image.Image]]:
    """Lines of the shipped sample, each cut at another place, so that all widths occur."""
    files = sorted((Path(__file__).parents[2] / "examples" / "handwriting").rglob("*.jpg"))
    drawn = np.random.default_rng(5)
    cut = []
    for number in range(LINES):
        image = open_image(files[number % len(files)])
        width = int(image.width * drawn.uniform(0.3, 1))
        cut.append((f"line{number:03}", image.crop((0, 0, max(width, 20), image.height))))
    return cut


@pytest.mark.slow
def test_one_is_many(lines: list[tuple[str, Image.Image]], tmp_path: Path) -> None:
    reader = LocalReader.of_base("small")
    alone = {line[0]: next(reader.read([line])) for line in lines}
    expected = {name: prediction.text for name, prediction in alone.items()}
    assert len(set(expected.values())) > LINES / 2

    shuffled = [lines[place] for place in np.random.default_rng(6).permutation(LINES)]
    for order in (lines, shuffled):
        for prediction in reader.read(order):
            assert prediction.text == expected[prediction.id]
            assert prediction.confidence == pytest.approx(alone[prediction.id].confidence, abs=1e-5)

    (tmp_path / "lines").mkdir()
    contents = {}
    for name, image in lines:
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        contents[name] = buffer.getvalue()
        (tmp_path / "lines" / f"{name}.png").write_bytes(contents[name])

    def request(name: str) -> str:
        return str(client.post("/v1/transcriptions", content=contents[name]).json()["text"])

    models = ServedModels({"small": embedded_bases()["small"]})
    app = create_app(models, limits=ServerLimits(max_queued=LINES, deadline=600))
    with TestClient(app) as client, ThreadPoolExecutor(CLIENTS) as clients:
        served = dict(zip(contents, clients.map(request, contents), strict=True))
    assert served == expected

    def transcribed(shard: str, **options: Any) -> dict[str, str]:
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        dsocr.transcribe("small", tmp_path / "lines", out, images="line", format="jsonl", shard=shard, **options)
        rows = [
            json.loads(row) for file in out.rglob("*.jsonl") for row in file.read_text(encoding="utf-8").splitlines()
        ]
        return {Path(row["id"]).stem: row["text"] for row in rows}

    assert transcribed("1/2", script="any") | transcribed("2/2", script="any") == expected
    assert transcribed("1/2") | transcribed("2/2") == transcribed("1/1"), "all shards have the script of the whole job"
