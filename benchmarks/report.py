"""Seconds, memory and size of a report: `python benchmarks/report.py [--lines 100000] [--json FILE]`.

The lines are those of `benchmarks/scorecard.py`, each with a picture of its own name: noise and strokes, 1,200 by 80
pixels as JPEG, of which 300 are drawn and the others linked to them. `dsocr report` runs in a process of its own, as
the command does; memory is the most that belongs to no other process (USS), looked at five times a second.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from dsocr.data.dataset import METADATA_FILE, SplitCard, split_hash
from dsocr.document import Sample, Split
from dsocr.evaluation.scorecard import make_scorecard
from dsocr.evaluation.scores import score_lines, write_lines
from dsocr.runs import RunFolder
from measuring import append_json, watch, write_card
from scorecard import made_up, misread

DRAWN = 300


def make_dataset(folder: Path, samples: list[Sample]) -> None:
    """A dataset folder whose test split holds these samples."""
    images = folder / "test" / "images"
    images.mkdir(parents=True)
    chance = np.random.default_rng(17)
    rows = []
    for number, sample in enumerate(samples):
        path = images / sample.id
        if number < DRAWN:
            pixels = chance.normal(225, 8, (80, 1200))
            for left in chance.integers(0, 1190, 160):
                top = chance.integers(10, 50)
                pixels[top : top + 20, left : left + 4] -= 150
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=85)
        else:
            os.link(images / samples[number % DRAWN].id, path)
        place = {"writer": sample.writer, "page": sample.page, "source": sample.source}
        rows.append({"file_name": f"images/{sample.id}", "text": sample.text, **place})
    metadata = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    (folder / "test" / METADATA_FILE).write_bytes(metadata)
    characters = sum(len(sample.text) for sample in samples)
    split = SplitCard(
        samples=len(samples), writers=200, pages=4000, characters=characters, sha256=split_hash(metadata, [])
    )
    write_card(folder, {Split.TEST: split}, {Split.TEST: 1.0})


def make_run(run: RunFolder, dataset: Path, samples: list[Sample]) -> None:
    """An evaluated run: the base reads with a CER of about 30 %, the adapter with about 10 %."""
    run.path.mkdir()
    run.config.write_text(f"dataset: {dataset.as_posix()}\noutput: {run.path.as_posix()}\n", encoding="utf-8")
    named = [Sample(f"test/images/{one.id}", one.image, one.text, one.split, one.writer, one.page) for one in samples]
    read = {
        "base": score_lines(named, misread(named, 0.3, 2)),
        "adapter": score_lines(named, misread(named, 0.1, 3)),
    }
    write_lines(run.lines, read)
    make_scorecard("test", read["base"], read["adapter"]).save(run.scorecard)


def main() -> None:
    """Make everything, then time the command as a page and as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        run = RunFolder(Path(name) / "run")
        samples = made_up(options.lines, 1)
        make_dataset(Path(name) / "dataset", samples)
        make_run(run, Path(name) / "dataset", samples)
        for form, flags in (("page", []), ("markdown", ["--markdown"])):
            command = [sys.executable, "-m", "dsocr", "report", str(run.path), "--json", *flags]
            printed, took = watch(command)
            made = json.loads(printed)
            rows.append({"form": form, "bytes": made["bytes"], **took})
            times = f"{took['seconds']:.1f} s on the clock, {took['cpu']:.1f} s of a processor"
            sizes = f"{took['uss'] / 1e9:.2f} GB, file {made['bytes'] / 1e6:.1f} MB"
            print(f"{options.lines} lines, {form}: {times}, {sizes}", flush=True)
            assert not made["warnings"], made["warnings"]
    append_json(options.json, "report", {"lines": options.lines}, rows)


if __name__ == "__main__":
    main()
