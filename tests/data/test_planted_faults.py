"""Forty planted faults are found, each with its code and place, and nothing else; a clean dataset has no findings.

Every fault is in a line of its own, so that one cannot hide another.
"""

import io
import json
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from dsocr.data.check import Findings, check_dataset
from dsocr.data.dataset import Dataset
from dsocr.images import open_image
from tests.data.check_samples import processor
from tests.data.drawn_writers import clean_dataset

Row = dict[str, Any]


ERRORS = {
    "unreadable-image",
    "empty-text",
    "long-text",
    "image-crosses",
    "near-image-crosses",
    "writer-crosses",
}
NOTES = {
    "several-lines",
    "many-tokens",
    "markup-in-text",
    "mixed-punctuation",
    "mixed-yo",
    "old-spelling",
    "rare-characters",
    "seen-once",
    "text-crosses",
}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_dataset(tmp_path_factory.mktemp("clean"))


@pytest.fixture
def folder(clean: Path, tmp_path: Path) -> Path:
    return shutil.copytree(clean, tmp_path / "dataset")


def run_checks(folder: Path) -> Findings:
    base = processor(
        unknown="☃",
        count_tokens=lambda text: sum(3 if letter in "ქართულია" else 1 for letter in text),
        distortion=lambda width, height: 2.0 if height == 62 else 1.0,
    )
    return check_dataset(Dataset.open(folder), base, max_text_tokens=100, workers=1)


def places(findings: Findings) -> set[tuple[str, str]]:
    """Code and place of all findings."""
    return {
        (finding.code, example.where.replace("/metadata.jsonl", ""))
        for finding in findings
        for example in finding.examples
    }


class Planting:
    """The rows and images of a dataset, to be changed; `expected` is what a check must find."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.expected: set[tuple[str, str]] = set()
        self.rows: dict[str, list[Row]] = {
            split: [json.loads(line) for line in (folder / split / "metadata.jsonl").read_text("utf-8").splitlines()]
            for split in ("train", "validation", "test")
        }

    def row(self, place: str) -> Row:
        split, _, line = place.partition(":")
        return self.rows[split][int(line) - 1]

    def path(self, place: str) -> Path:
        name: str = self.row(place)["file_name"]
        return self.folder / place.partition(":")[0] / name

    def expect(self, place: str, *codes: str) -> None:
        self.expected |= {(code, place) for code in codes}

    def text(self, place: str, change: Callable[[str], str], *codes: str) -> None:
        """Another text for a line."""
        self.row(place)["text"] = change(self.row(place)["text"])
        self.expect(place, *codes)

    def image(self, place: str, change: Callable[[Image.Image], Image.Image], *codes: str) -> None:
        """Another image for a line."""
        change(open_image(self.path(place))).save(self.path(place))
        self.expect(place, *codes)

    def copy(
        self, place: str, of: str, *codes: str, change: Callable[[bytes], bytes] = bytes, text: bool = True
    ) -> None:
        """The image of another line, with its text or without."""
        self.path(place).write_bytes(change(self.path(of).read_bytes()))
        if text:
            self.row(place)["text"] = self.row(of)["text"]
        self.expect(place, *codes)

    def write(self) -> None:
        for split, rows in self.rows.items():
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (self.folder / split / "metadata.jsonl").write_text(lines, encoding="utf-8", newline="\n")


def greys(low: int, high: int) -> Callable[[Image.Image], Image.Image]:
    """Map the grey levels of an image to a range, clipped at white."""

    def change(image: Image.Image) -> Image.Image:
        values = np.asarray(image.convert("L"), dtype=np.float32) / 255
        return Image.fromarray(np.clip(low + values * (high - low), 0, 255).astype(np.uint8))

    return change


def as_another_jpeg(data: bytes) -> bytes:
    """The image a little smaller, saved as a JPEG."""
    buffer = io.BytesIO()
    image = Image.open(io.BytesIO(data)).convert("L")
    image.resize((image.width * 9 // 10, image.height * 9 // 10)).save(buffer, "JPEG", quality=60)
    return buffer.getvalue()


def plant_in_images(planting: Planting) -> None:
    planting.path("train:1").unlink()
    planting.expect("train:1", "unreadable-image")
    planting.path("train:3").write_bytes(planting.path("train:3").read_bytes()[:400])
    planting.expect("train:3", "unreadable-image")
    planting.image("train:5", lambda image: Image.new("L", image.size, 230), "blank-image")
    planting.image("train:7", greys(160, 330), "saturated-image")
    too_low = ("low-resolution", "unusual-aspect", "text-too-short")
    planting.image("train:9", lambda image: image.resize((image.width, 18)), *too_low)
    planting.image("train:11", lambda image: image.transpose(Image.Transpose.ROTATE_90), "text-too-long")
    planting.image("train:13", ImageOps.invert, "inverted-image")
    planting.image("train:15", lambda image: ImageOps.expand(image, (0, 70, 0, 0), 232))  # a flourish is no fault
    planting.image("train:16", lambda image: image.resize((170, 26)))
    planting.text("train:16", lambda text: text[:13])  # inserted between lines
    planting.image("train:17", lambda image: image.resize((image.width, 62)), "distorted-image")
    planting.copy("train:19", "train:2", "duplicate-image")
    planting.copy("test:1", "train:42", "image-crosses")
    planting.copy("train:21", "train:4", "near-duplicate-image", change=as_another_jpeg)
    planting.copy("test:3", "train:46", "near-image-crosses", change=as_another_jpeg)
    planting.copy("train:23", "train:6", "duplicate-image", "texts-disagree", text=False)


def plant_in_texts(planting: Planting) -> None:
    planting.text("validation:1", lambda text: " \u200b", "empty-text", "invisible-characters")
    planting.text(
        "validation:3", lambda text: " ".join([text] * 6)[:220], "long-text", "text-too-long", "several-lines"
    )
    planting.text("train:51", lambda text: text[:-3] + " ☃☃", "unknown-characters")
    planting.text("train:53", lambda text: text[:-8] + " бaбушкa", "look-alikes")
    planting.text("train:55", lambda text: text[0] + "\u00ad" + text[1:], "invisible-characters")
    planting.text("train:57", lambda text: text.replace(" ", "\u00a0"), "invisible-characters")
    planting.text("train:59", lambda text: "\ufeff" + text, "invisible-characters")
    planting.text("train:61", lambda text: text.replace(" ", "\t"), "invisible-characters")
    planting.text("train:63", lambda text: text.replace(" ", "\x07 "), "invisible-characters")
    planting.text(
        "train:65", lambda text: unicodedata.normalize("NFD", text[:-8] + " мёд йод мёд й"), "decomposed-characters"
    )
    planting.text("train:67", lambda text: text[:-10] + " Ð¾Ð¾Ð¾", "mojibake")
    planting.text("train:69", lambda text: text[:-3] + "\ufffd\ufffd", "mojibake")
    planting.text("train:81", lambda text: text[:-4] + " вѣѣ", "old-spelling")
    planting.text("train:83", lambda text: text[:-2] + " ω", "seen-once")
    planting.text("train:85", lambda text: text[:-4] + " еще", "mixed-yo")
    planting.text("train:84", lambda text: " ".join([text] * 4)[:99], "text-too-long")
    planting.text("train:89", lambda text: text[:5], "text-too-short")
    planting.text("train:91", lambda text: text[:-12] + " [...] [...]", "markup-in-text")
    planting.text("train:93", lambda text: f">{text[:4]}< >{text[9:]}<", "markup-in-text")
    planting.text("train:95", lambda text: f'"{text[:-3]}"', "mixed-punctuation")
    planting.text("train:97", lambda text: text.replace(" ", " - ", 2), "mixed-punctuation")
    planting.text("train:99", lambda text: ("ქართულია" * 9)[: len(text)], "many-tokens")
    planting.text("test:21", lambda text: text[:-3] + " ZZ", "unseen-in-train")
    planting.text("test:23", lambda text: text[:-6] + "%%%%%", "rare-characters")
    planting.text("train:101", lambda text: text[:-2] + "%%")


def plant_across_lines(planting: Planting) -> None:
    short, long = planting.row("train:113"), planting.row("train:114")
    short["text"], long["text"] = long["text"], short["text"]
    planting.expect("train:113", "neighbours-swapped")
    page = [planting.row(f"train:{line}") for line in range(129, 145)]
    for row, text in zip(page, [row["text"] for row in (*page[1:], page[0])], strict=True):
        row["text"] = text
    planting.expect("train:130", "lines-shifted")
    planting.text("test:43", lambda _: planting.row("test:42")["text"], "text-repeats")
    planting.row("test:45").update(writer="train 1")
    planting.row("test:47").update(page="train 1 0")
    planting.row("test:49").update(text=planting.row("train:35")["text"])
    planting.row("test:51").update(writer="")
    planting.expect("test:51", "no-writer")
    planting.expect("train:33", "writer-crosses", "page-crosses")
    for line in ("train:35", "train:42", "train:46"):
        planting.expect(line, "text-crosses")
    planting.expected |= {("hash-differs", split) for split in planting.rows}


def test_a_clean_dataset_has_no_findings(clean: Path) -> None:
    assert list(run_checks(clean)) == []


def test_forty_planted_faults_are_found_and_nothing_else(folder: Path) -> None:
    planting = Planting(folder)
    for plant in (plant_in_images, plant_in_texts, plant_across_lines):
        plant(planting)
    planting.write()
    findings = run_checks(folder)
    found = places(findings)
    assert len({code for code, _ in planting.expected}) >= 36
    assert (planting.expected - found, found - planting.expected) == (set(), set())
    assert {finding.code for finding in findings.of("error")} == ERRORS
    assert {finding.code for finding in findings.of("note")} == NOTES
