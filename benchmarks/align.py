"""Align the pages of a dataset with their own text, as it is and disturbed, and count lines with exactly their text.

    python benchmarks/align.py data/copiste [--base small] [--pages 40]
    python benchmarks/align.py examples/copiste --from-images OUT

The second aligns the images of a folder of ALTO files, without these, with a text a page, and compares the lines that
it finds with those of the files.

Disturbances: a tenth of the words gone in runs of 1 to 20 (`missing`), notes of an edition between any two words
(`notes`), a tenth of the lines not found (`lines`), a tenth of the longer words respelt or abbreviated (`respelt`), all
of them (`all`), the pages searched for in the text of all pages, in another order (`anywhere`), and this with
everything that changes no word (`together`). A line is whole if its text is in the edition word for word: only whole
lines can be right, so only they count as right or sure.
"""

import csv
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import dsocr
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.formats.alto import parse_alto
from dsocr.formats.tables import unescape_formula
from dsocr.formats.xml import parse_xml
from dsocr.images import open_image
from dsocr.inference.alignment import AlignedLine, Anchors, align_lines
from dsocr.inference.line_fits import LineFit, ReadingFit, StepFit
from dsocr.inference.reader import LocalReader
from dsocr.models.ctc import LineRecognizer
from dsocr.models.scripts import script_of_texts
from dsocr.runs import RunFolder
from dsocr.text import comparable
from dsocr.training.align import LINES
from runner import Table, make_parser, parse, record

NOTES = (
    "Publié par nos soins d'après le manuscrit conservé aux archives départementales, série E, liasse 214. "
    "L'éditeur a rétabli la ponctuation et l'accentuation selon l'usage moderne. Voir aussi la lettre du 14 mars 1862. "
    "Le mot est illisible dans l'original; nous suivons ici la leçon de l'édition de 1894. "
)
SCENES = ("clean", "missing", "notes", "lines", "respelt", "all", "anywhere", "together")
SURE = 0.93


@dataclass(frozen=True)
class ReadLine:
    """A line with its true text and its fit."""

    text: str
    fit: LineFit


def read_pages(folder: Path, base: str, count: int) -> tuple[list[list[ReadLine]], dict[str, int]]:
    """Read the pages of a dataset, lines in their order; return the reader's classes too."""
    pages: dict[str, list[Sample]] = defaultdict(list)
    for split in Split:
        for sample in Dataset.open(folder).samples(split):
            pages[sample.page or ""].append(sample)
    chosen = [sorted(samples, key=lambda sample: sample.id) for _, samples in sorted(pages.items())][:count]
    reader = LocalReader.of_run(RunFolder.to_read_with(Path(base)))
    if isinstance(reader.processor.family, LineRecognizer):
        reader = reader.with_script(script_of_texts(sample.text for page in chosen for sample in page))
    read = []
    for samples in chosen:
        images = [(sample.id, open_image(Path(str(sample.image))).convert("RGB")) for sample in samples]
        lines = zip(samples, reader.read_steps(images), strict=True)
        read.append(
            [
                ReadLine(sample.text, ReadingFit(text) if steps is None else StepFit(text, steps))
                for sample, (text, steps) in lines
            ]
        )
    return read, {character: number for number, character in enumerate(reader.characters, 1)}


def disturb(page: Sequence[ReadLine], scene: str, rng: random.Random) -> tuple[list[ReadLine], str, list[str | None]]:
    """Return lines, text and the text that each line should get: "" where it is gone, None where it is changed."""
    kinds = {"all": SCENES[1:5], "together": SCENES[1:4]}.get(scene, (scene,))
    words = [(word, number) for number, line in enumerate(page) for word in line.text.split()]
    gone: dict[int, list[bool]] = defaultdict(list)
    changed: set[int] = set()
    if "missing" in kinds:
        is_gone = np.zeros(len(words), bool)
        while is_gone.mean() < 0.1:
            start = rng.randrange(len(words))
            is_gone[start : start + rng.randint(1, 20)] = True
        for (_, number), is_word_gone in zip(words, is_gone.tolist(), strict=True):
            gone[number].append(is_word_gone)
        words = [word for word, is_word_gone in zip(words, is_gone.tolist(), strict=True) if not is_word_gone]
    if "respelt" in kinds:
        for place, (word, number) in enumerate(words):
            if len(word) > 3 and rng.random() < 0.1:
                other = rng.choice([word.replace("é", "e").replace("ai", "oi"), word + word[-1], f"{word[:2]}."])
                changed |= {number} if other != word else set()
                words[place] = (other, number)
    text = [word for word, _ in words]
    for _ in range(rng.randint(1, 3) if "notes" in kinds else 0):
        start, length = rng.randrange(len(NOTES) // 2), rng.randint(30, 200)
        text.insert(rng.randrange(len(text) + 1), NOTES[start : start + length].strip())
    kept = [number for number in range(len(page)) if "lines" not in kinds or rng.random() > 0.1]
    expected: list[str | None] = []
    for number in kept:
        is_changed = number in changed or any(gone[number])
        expected.append("" if gone[number] and all(gone[number]) else None if is_changed else page[number].text)
    return [page[number] for number in kept], " ".join(text), expected


@dataclass(frozen=True)
class WrittenLine:
    """A line that `dsocr align` wrote: whether it is exactly a true line of its page, its score, and whether sure."""

    is_right: bool
    score: float
    is_sure: bool


def judge_lines(lines: Path, truth: dict[str, list[str]]) -> list[WrittenLine]:
    """Compare a table of lines with the true lines of each page; each true line counts once."""
    left = {name: Counter(map(comparable, texts)) for name, texts in truth.items()}
    written = []
    with lines.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, dialect="excel-tab"):
            text = comparable(unescape_formula(row["text"]))
            score = float(row["score"]) if text else math.nan
            written.append(WrittenLine(left[row["page"]][text] > 0, score, row["sure"] == "yes"))
            left[row["page"]][text] -= 1
    return written


def calibration_error(scores: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """Return the ECE of lines over ten bins of equal count."""
    parts = np.array_split(np.argsort(scores), 10)
    return float(sum(abs(scores[part].mean() - right[part].mean()) * len(part) for part in parts) / len(scores))


def align_images(source: Path, out: Path, base: str) -> None:
    """Align images alone, and print how many of the true lines have exactly their text."""
    truth = {
        path.stem: [line.text for line in parse_alto(parse_xml(path)).lines if line.text]
        for path in (source / "alto").glob("*.xml")
    }
    texts = out / "texts"
    texts.mkdir(parents=True)
    for name, lines in truth.items():
        (texts / f"{name}.txt").write_text(" ".join(lines), encoding="utf-8")
    dsocr.align(source / "jpg", texts, out / "aligned", run=base, rounds=1)
    written = judge_lines(out / "aligned" / LINES, truth)
    total, right = sum(map(len, truth.values())), sum(line.is_right for line in written)
    sure = [line.is_right for line in written if line.is_sure]
    print(f"{right} of {total} true lines have exactly their text ({right / total:.1%}); {len(sure)} lines are sure,")
    print(f"and {sum(sure)} of these are exactly a true line ({sum(sure) / len(sure):.2%})")


def align_scene(scene: str, pages: Sequence[Sequence[ReadLine]], classes: dict[str, int], seed: int) -> list[str]:
    """Align the disturbed pages, and return the cells of a row."""
    rng, began = random.Random(seed), time.process_time()
    order = rng.sample(range(len(pages)), len(pages))
    disturbed = [disturb(page, scene, rng) for page in pages]
    whole = "\n".join(disturbed[place][1] for place in order)
    anchors = Anchors(whole)
    aligned: list[AlignedLine] = []
    truths: list[tuple[str, str | None]] = []
    for lines, text, expected in disturbed:
        if scene in {"anywhere", "together"}:
            place = anchors.find(" ".join(line.fit.reading for line in lines))
            text = whole[place[0] : place[1]] if place else ""
        aligned += align_lines([line.fit for line in lines], text, classes)
        truths += zip((line.text for line in lines), expected, strict=True)
    seconds = (time.process_time() - began) / len(pages)
    is_right = np.array([line.text == " ".join(text.split()) for line, (text, _) in zip(aligned, truths, strict=True)])
    scores = np.array([line.score for line in aligned])
    is_whole = np.array([bool(expected) for _, expected in truths])
    is_gone = np.array([expected == "" for _, expected in truths])
    given = np.array([bool(line.text) for line in aligned])
    is_sure = scores >= SURE
    return [
        scene,
        str(len(aligned)),
        str(is_whole.sum()),
        f"{is_right[is_whole].mean():.1%}",
        f"{(~given)[is_gone].mean():.1%} of {is_gone.sum()}" if is_gone.any() else "-",
        f"{is_sure[is_whole].mean():.1%} ({is_sure.mean():.1%} of all)",
        f"{is_right[is_sure].mean():.2%}",
        f"{calibration_error(scores[given], is_right[given]):.3f}",
        f"{seconds:.2f}",
    ]


def main() -> None:
    """Print a row for each scene."""
    parser = make_parser(__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--base", default="small")
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from-images", type=Path)
    options = parse(parser)
    if options.from_images:
        align_images(options.dataset, options.from_images, options.base)
        return
    pages, classes = read_pages(options.dataset, options.base, options.pages)
    print(f"{len(pages)} pages, {sum(map(len, pages))} lines")
    heads = ("scene", "lines", "whole", "right", "no text where it is gone", "sure", "right of the sure", "ECE")
    table = Table(*heads, "s a page")
    for scene in SCENES:
        table.row(*align_scene(scene, pages, classes, options.seed))
    record(options, table.rows)


if __name__ == "__main__":
    main()
