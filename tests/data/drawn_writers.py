"""A realistic dataset without fonts: writers with their own letter shapes, pages of lines, texts with every letter."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from dsocr.data.prepare import prepare

_WORDS = """милая бабушка вчера пришло твоё письмо ещё до обеда я сел у окна читал его вслух дети слушали молча кот спал
съезд объявлен эхо экзамен этот щука площадь борщ циркуль цапля фонарь фасоль шарф шуба жёлтый жук юла юг июль ёлка
мёд хлеб хутор чашка чердак гусь гроза зима здесь рыба подъезд ягода мышь пыль гора день ночь бумага перо"""
WORDS = _WORDS.split()
"""Words that contain each of the 33 letters several times."""
LINE_HEIGHT = 64
SPLITS = {"train": (6, 2, 16), "validation": (3, 1, 12), "test": (3, 2, 10)}
"""Split -> writers, pages of each, lines of a page."""


@dataclass(frozen=True)
class DrawnWriter:
    """A writer: every letter is the same stroke each time, with a little jitter."""

    seed: int

    def line(self, text: str, number: int) -> Image.Image:
        """Draw a line, grey on light grainy paper."""
        jitter = random.Random(f"{self.seed} {text} {number}")
        size = random.Random(self.seed).uniform(0.85, 1.15)
        strokes, right = [], 10.0
        for letter in text:
            points, width = self._stroke(letter)
            strokes.append([(right + x * size + jitter.gauss(0, 0.7), 32 + y * size) for x, y in points])
            right += width * size
        grain = np.random.default_rng(number).normal(232, 3, (LINE_HEIGHT, round(right) + 10))
        image = Image.fromarray(grain.clip(0, 255).astype(np.uint8))
        pen = ImageDraw.Draw(image)
        for stroke in strokes:
            if stroke:
                pen.line(stroke, fill=60, width=2, joint="curve")
        return image

    def _stroke(self, letter: str) -> tuple[list[tuple[float, float]], float]:
        if letter == " ":
            return [], 12
        shape = random.Random(f"{self.seed} {letter}")
        width = shape.uniform(11, 17)
        return [(shape.uniform(1, width - 1), shape.uniform(-20, 20)) for _ in range(5)], width


def texts(rng: random.Random) -> Iterator[str]:
    """Yield different lines of three to eight words; some have quotation marks, some a dash."""
    seen = set()
    while True:
        words = rng.choices(WORDS, k=rng.randint(3, 8))
        if rng.random() < 0.15:
            words[1] = f"«{words[1]}»"
        if rng.random() < 0.15:
            words.insert(1, "—")
        line = " ".join(words) + rng.choice([",", ".", ""])
        if line not in seen:
            seen.add(line)
            yield line


def clean_dataset(folder: Path) -> Path:
    """A dataset folder, split by writer, without findings."""
    source = folder / "source"
    source.mkdir(parents=True)
    lines = texts(random.Random(3))
    rows: list[dict[str, str]] = []
    for split, (writers, pages, count) in SPLITS.items():
        for writer in range(writers):
            drawn = DrawnWriter(len(rows))
            for page in range(pages):
                for _ in range(count):
                    text, name = next(lines), f"{len(rows):04d}.png"
                    drawn.line(text, len(rows)).save(source / name, compress_level=1)
                    place = {"writer": f"{split} {writer}", "page": f"{split} {writer} {page}"}
                    rows.append({"file_name": name, "text": text, "split": split, **place})
    table = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (source / "lines.jsonl").write_text(table, encoding="utf-8")
    dataset = prepare(source, folder / "dataset").folder
    card = json.loads((dataset / "dataset.json").read_text(encoding="utf-8"))
    (dataset / "dataset.json").write_text(json.dumps(card | {"split_by": "writer"}), encoding="utf-8")
    return dataset
