"""Align the pages of a dataset with their own text, as it is and disturbed, and count lines with exactly their text.

    python benchmarks/align.py data/copiste [--base small] [--pages 40]
    python benchmarks/align.py examples/copiste --from-images OUT
    python benchmarks/align.py examples/copiste --book OUT [--pages 300]

The second aligns the images of a folder of ALTO files, without these, with a text a page, and compares the lines that
it finds with those of the files. The third is the whole command on drawn pages of ten lines, with words of these files,
of which the text has ten times as many lines; a network that misreads one letter in ten is simulated, so that the time
is what aligning costs beside reading.

Disturbances: a tenth of the words gone in runs of 1 to 20 (`missing`), notes of an edition between any two words
(`notes`), a tenth of the lines not found (`lines`), a tenth of the longer words respelt or abbreviated (`respelt`), all
of them (`all`), the pages looked for in the text of all pages, in another order (`anywhere`), and this with all that
changes no word (`together`). Lines are whole whose text is in the edition, word for word: only these can be right, and
only of these it is counted how many are and how many are sure.
"""

import argparse
import csv
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import dsocr
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.formats.alto import parse_alto
from dsocr.formats.tables import unescape_formula
from dsocr.formats.xml import parse_xml
from dsocr.images import open_image
from dsocr.inference.alignment import AlignedLine, Anchors, align_lines, judge
from dsocr.inference.line_fits import LineFit, ReadingFit, StepFit
from dsocr.inference.reader import LocalReader
from dsocr.models.scripts import script_of_texts
from dsocr.runs import RunFolder
from dsocr.text import comparable
from dsocr.training.align import LINES
from measuring import peak_resident

PAGE_SCHEMA = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"

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
    if reader.processor.family.reads_by_character:
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


def align_images(source: Path, out: Path, base: str) -> None:
    """Align images alone, and print how many of the true lines have exactly their text."""
    truth = {
        path.stem: [comparable(line.text) for line in parse_alto(parse_xml(path)).lines if line.text]
        for path in (source / "alto").glob("*.xml")
    }
    texts = out / "texts"
    texts.mkdir(parents=True)
    for name, lines in truth.items():
        (texts / f"{name}.txt").write_text(" ".join(lines), encoding="utf-8")
    dsocr.align(source / "jpg", texts, out / "aligned", run=base, rounds=1)
    left = {name: Counter(lines) for name, lines in truth.items()}
    right: list[tuple[bool, bool]] = []
    with (out / "aligned" / LINES).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, dialect="excel-tab"):
            text = comparable(unescape_formula(row["text"]))
            right.append((left[row["page"]][text] > 0, row["sure"] == "yes"))
            left[row["page"]][text] -= 1
    total, matched = sum(map(len, truth.values())), sum(is_right for is_right, _ in right)
    sure = [is_right for is_right, is_sure in right if is_sure]
    print(
        f"{matched} of {total} true lines have exactly their text ({matched / total:.1%}); {len(sure)} lines are sure,"
    )
    print(f"and {sum(sure)} of these are exactly a true line ({sum(sure) / len(sure):.2%})")


def draw_book(source: Path, out: Path, count: int) -> list[list[str]]:
    """Draw so many pages with PAGE files, and write a text of which they are a tenth; return the lines of the pages."""
    rng = random.Random(1)
    files = sorted((source / "alto").glob("*.xml"))
    words = sorted({word for file in files for line in parse_alto(parse_xml(file)).lines for word in line.text.split()})
    pages = [[" ".join(rng.choices(words, k=rng.randint(5, 9))) for _ in range(10)] for _ in range(10 * count)]
    on_scans = sorted(rng.sample(range(len(pages)), count))
    out.mkdir(parents=True)
    (out / "text.txt").write_text("\n".join(" ".join(page) for page in pages), encoding="utf-8")
    letters = ImageFont.load_default(28)
    scans = out / "scans"
    scans.mkdir()
    for number, place in enumerate(rng.sample(on_scans, count)):
        image = Image.new("L", (1400, 600), 245)
        drawing, lines = ImageDraw.Draw(image), []
        for row, text in enumerate(pages[place]):
            drawing.text((20, 60 * row + 10), text, 30, letters)
            box = f"20,{60 * row + 5} 1380,{60 * row + 5} 1380,{60 * row + 55} 20,{60 * row + 55}"
            lines.append(f'<TextLine id="l{row}"><Coords points="{box}"/></TextLine>')
        image.save(scans / f"{number:04d}.png")
        page = f'<Page imageFilename="{number:04d}.png" imageWidth="1400" imageHeight="600"><TextRegion id="r">'
        xml = f'<PcGts xmlns="{PAGE_SCHEMA}"><Metadata/>{page}<Coords points="0,0 1400,0 1400,600 0,600"/>'
        (scans / f"{number:04d}.xml").write_text(f"{xml}{''.join(lines)}</TextRegion></Page></PcGts>", encoding="utf-8")
        on_scans[number] = place
    return [pages[place] for place in on_scans]


def simulate_steps(text: str, characters: Sequence[str], rng: random.Random) -> NDArray[np.float32]:
    """Return the steps of a network that misreads one letter in ten: two a letter, and a blank."""
    steps = np.full((3 * len(text), len(characters) + 1), 1e-4, np.float32)
    classes = {character: number for number, character in enumerate(characters, 1)}
    for place, letter in enumerate(text):
        right, other = classes.get(letter, 1), rng.randrange(1, len(characters) + 1)
        sure = 0.3 if rng.random() < 0.1 else 0.9
        steps[3 * place : 3 * place + 2, right] = sure
        steps[3 * place : 3 * place + 2, other] += 0.95 - sure
        steps[3 * place + 2, 0] = 0.95
    steps /= steps.sum(1, keepdims=True)
    return steps


def align_book(source: Path, out: Path, count: int) -> None:
    """Align a book, and print time, memory, and how many lines got exactly their text."""
    lines = draw_book(source, out, count)
    rng, pages, spent = random.Random(2), iter(lines), 0.0

    def read_steps(reader: LocalReader, images: Sequence[tuple[str, object]]) -> list[tuple[str, NDArray[np.float32]]]:
        nonlocal spent
        began, read = time.process_time(), []
        for text, _ in zip(next(pages), images, strict=True):
            steps = simulate_steps(text, reader.characters, rng)
            best = [int(step.argmax()) for step in steps[::3]]
            read.append(("".join(reader.characters[place - 1] for place in best if place), steps))
        spent += time.process_time() - began
        return read

    LocalReader.read_steps = read_steps  # type: ignore[method-assign, assignment]
    began = time.process_time()
    report = dsocr.align(out / "scans", out / "text.txt", out / "aligned")
    seconds = time.process_time() - began - spent
    right, sure = 0, 0
    with (out / "aligned" / LINES).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, dialect="excel-tab"):
            is_right = unescape_formula(row["text"]) == lines[int(row["page"])][int(row["line"].lstrip("l"))]
            right, sure = right + is_right, sure + (is_right and row["sure"] == "yes")
    memory = (peak_resident() or 0) / 2**20
    print(f"{count} pages in a text of {10 * len(lines):,} pages: {seconds / count:.2f} s a page, {memory:.0f} MiB")
    print(f"{right} of {10 * count} lines right; {report.sure} sure, {sure} of them right; {report.missing=}")


def main() -> None:
    """Print a row for each scene."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--base", default="small")
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from-images", type=Path)
    parser.add_argument("--book", type=Path)
    arguments = parser.parse_args()
    if arguments.book:
        align_book(arguments.dataset, arguments.book, min(arguments.pages, 300))
        return
    if arguments.from_images:
        align_images(arguments.dataset, arguments.from_images, arguments.base)
        return
    began = time.process_time()
    pages, classes = read_pages(arguments.dataset, arguments.base, arguments.pages)
    print(f"{len(pages)} pages, {sum(map(len, pages))} lines, read in {time.process_time() - began:.0f} s of processor")
    print("| scene | lines | whole | right | no text where it is gone | sure | right of the sure | ECE | s a page |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    by_steps = isinstance(pages[0][0].fit, StepFit)
    for scene in SCENES:
        rng, began = random.Random(arguments.seed), time.process_time()
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
        is_right = np.array(
            [line.text == " ".join(text.split()) for line, (text, _) in zip(aligned, truths, strict=True)]
        )
        scores = np.array(judge(aligned, by_steps=by_steps))
        whole_lines = np.array([bool(expected) for _, expected in truths])
        is_gone = np.array([expected == "" for _, expected in truths])
        is_empty = np.array([not line.text for line in aligned])
        is_sure = scores >= SURE
        given = ~is_empty
        parts = np.array_split(np.argsort(scores[given]), 10)
        error = sum(abs(scores[given][part].mean() - is_right[given][part].mean()) * len(part) for part in parts)
        left = f"{is_empty[is_gone].mean():.1%} of {is_gone.sum()}" if is_gone.any() else "-"
        print(
            f"| {scene} | {len(aligned)} | {whole_lines.sum()} | {is_right[whole_lines].mean():.1%} | {left} "
            f"| {is_sure[whole_lines].mean():.1%} ({is_sure.mean():.1%} of all) "
            f"| {is_right[is_sure].mean():.2%} | {error / given.sum():.3f} | {seconds:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
