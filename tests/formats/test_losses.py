"""Whatever a damaged source loses is listed: every sample is in the dataset or in `skipped.jsonl` and the summary."""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dsocr.data.dataset import SKIPPED_FILE
from dsocr.data.prepare import prepare
from dsocr.images import IMAGE_SUFFIXES
from tests.formats.making_sources import BASELINE, POLYGON, SOURCES, points
from tests.raising import raises_code

TEXT = "=1+1"
OUTLINES = (
    f'<Polygon POINTS="{points(POLYGON, " ")}"/>',
    f'<Coords points="{points(POLYGON)}"/><Baseline points="{points(BASELINE)}"/>',
    json.dumps([number for point in POLYGON for number in point])[1:-1],
    '{"x": 10',
    'Left="10" Top="0" Right="60"',
)
"""The outline of the first line of a source, as its format writes it."""

ONE_IMAGE = {"page", "coco", "label-studio", "rimes"}
"""Sources of a single image, without which nothing is left."""


def rewrite(folder: Path, change: Callable[[str], str]) -> bool:
    """Change the first file of a source that can be changed so."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in {".xml", ".json", ".jsonl", ".csv", ".txt"}:
            before = path.read_bytes().decode()
            if (after := change(before)) != before:
                path.write_bytes(after.encode())
                return True
    return False


def remove_image(folder: Path) -> bool:
    """Remove the first image, if that is a file of its own."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in IMAGE_SUFFIXES:
            path.unlink()
            return True
    return False


def damage_image(folder: Path) -> bool:
    """Cut the first image short."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in IMAGE_SUFFIXES:
            path.write_bytes(path.read_bytes()[:40])
            return True
    return False


def blank_text(folder: Path) -> bool:
    """Take away the text of a sample, and leave the sample."""
    for path in folder.rglob("*.parquet"):
        table = pq.read_table(path)
        rows = [{**row, "text": row["text"].replace(TEXT, "")} for row in table.to_pylist()]
        pq.write_table(table.from_pylist(rows), path)
    is_packed = any(folder.rglob("*.parquet"))
    return rewrite(folder, lambda content: content.replace("\fвторая", "\f").replace(TEXT, "")) or is_packed


def move_outline(folder: Path) -> bool:
    """Move the outline of a line beyond its image."""

    def move(content: str) -> str:
        for outline in OUTLINES:
            if outline in content:
                far = re.sub(r"(?<!\d)([1-6]\d)(?!\d)", r"9\1", outline)
                return content.replace(outline, far, 1)
        return content

    return rewrite(folder, move)


@pytest.mark.parametrize("damage", [remove_image, damage_image, blank_text, move_outline])
@pytest.mark.parametrize("source", [name for name in SOURCES if name != "dataset"])
def test_what_a_damaged_source_loses_is_listed(source: str, damage: Callable[[Path], bool], tmp_path: Path) -> None:
    folder = tmp_path / "source"
    SOURCES[source](folder)
    whole = prepare(folder, tmp_path / "whole", split="1/0/0")
    if not damage(folder):
        pytest.skip("the format has no such place")
    if damage in (remove_image, damage_image) and source in ONE_IMAGE:
        with raises_code("no-samples"):
            prepare(folder, tmp_path / "out", split="1/0/0")
        return
    dataset = prepare(folder, tmp_path / "out", split="1/0/0")
    listed = [(str(item.reason), item.where, item.message) for item in dataset.report.skipped]
    rows = map(json.loads, (dataset.folder / SKIPPED_FILE).read_text(encoding="utf-8").splitlines())
    assert [tuple(row.values()) for row in rows] == listed
    assert sum(part.count for part in dataset.card.skipped.values()) == len(listed)
    before, after = ([(sample.source or "", sample.text) for sample in samples] for samples in (whole, dataset))
    lost = Counter(before) - Counter(after)
    assert lost
    assert not Counter(after) - Counter(before), "texts stay with their places"
    for place, _ in lost:
        assert any(re.match(rf"{re.escape(where)}(\W|$)", place) for _, where, _ in listed), place
    if damage in (blank_text, move_outline):
        assert lost.total() == len(listed) - len(whole.report.skipped) == 1
