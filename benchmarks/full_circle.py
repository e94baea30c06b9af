"""What an evening of corrections is worth: `python benchmarks/full_circle.py [--corrections 100] [--epochs 15]`.

Pages of every fifth writer of `examples/copiste` (or of the full-size export, if DSOCR_REAL_DATA names it) go through
the workbench's own parts with their texts taken out: the base, which never saw these hands, reads them; the first
lines of every page are corrected from the truth, in turn over the pages, until there are enough; an adapter is
trained on them, from the base and as the workbench's button does it; and the lines that nobody corrected are read
again. Those whose text was corrected elsewhere (the volunteers copied the same consent) are left out of the score and
counted.
"""

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path

from PIL import Image

from dsocr.config import RunConfig, load_config, load_run_config
from dsocr.data.dataset import Dataset
from dsocr.data.source_report import SourceReport
from dsocr.document import Sample, Split
from dsocr.evaluation.compare import Comparison, System, compare, render_comparison
from dsocr.evaluation.scores import score_lines
from dsocr.inference.prediction_files import MatchedText
from dsocr.inference.reader import LocalReader
from dsocr.models.generation import Generation
from dsocr.models.loading import load_base
from dsocr.runs import RunFolder
from dsocr.text import TextPolicy
from dsocr.workbench.archive import Archive, import_pages, open_archive
from dsocr.workbench.background import BackgroundReader, BackgroundTraining
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State, StoredLine, StoredPage
from measuring import COPISTE, PROJECT, append_json, describe, machine, require_copiste

WRITER = r"((?:imp_)?wikitexte_\d+)"
EVERY = 5


@dataclass(frozen=True, slots=True)
class Round:
    """Uncorrected lines before and after; the number of skipped lines, and the splits of the corrected ones."""

    found: Comparison
    repeated: int
    splits: Mapping[str, int]
    seconds: float


def take_pages(folder: Path) -> None:
    """Copy the pages of every fifth writer twice: to `pages` without their texts, to `truth` as they are."""
    files = sorted((COPISTE / "alto").glob("*.xml"))
    writer_by_file = {file: match[1] for file in files if (match := re.match(WRITER, file.stem))}
    writers = sorted(set(writer_by_file.values()))[::EVERY]
    for place, keeps_texts in (("pages", False), ("truth", True)):
        for part in ("alto", "jpg"):
            (folder / place / part).mkdir(parents=True)
        for file in (file for file, writer in writer_by_file.items() if writer in writers):
            markup = file.read_text(encoding="utf-8")
            markup = markup if keeps_texts else re.sub(r'CONTENT="[^"]*"', 'CONTENT=""', markup)
            (folder / place / "alto" / file.name).write_text(markup, encoding="utf-8", newline="\n")
            shutil.copy(COPISTE / "jpg" / f"{file.stem}.jpg", folder / place / "jpg")


def true_texts(folder: Path) -> dict[tuple[str, float], str]:
    """What really stands in each line, by its page's name and its place there."""
    with (
        closing(CorrectionStore.open(folder / "truth.sqlite")) as store,
        open_archive(store, folder / "truth", folder / "unpacked-truth") as archive,
    ):
        import_pages(store, archive, SourceReport(strict=False), format="alto", writer=WRITER)
        names = {page.number: page.name for page in store.pages()}
        return {(names[line.page], line.place): line.text for line in store.lines()}


def base_reader(config: RunConfig) -> LocalReader:
    """The base alone, with the settings of the recipe."""
    base = load_base(config.base, config.base_revision)
    encoder = base.processor(config.input.resolution, config.input.prompt)
    return LocalReader(base.network, encoder, Generation(**config.generation.model_dump()), TextPolicy())


def to_correct(lines: Sequence[StoredLine], count: int) -> list[StoredLine]:
    """The first lines of every page, round-robin over the pages."""
    by_page: dict[int, list[StoredLine]] = {}
    for line in lines:
        by_page.setdefault(line.page, []).append(line)
    interleaved = (line for turn in zip_longest(*by_page.values()) for line in turn if line is not None)
    return list(islice(interleaved, count))


def train(training: BackgroundTraining) -> Path:
    """Press the button, and wait for the adapter."""
    run = training.start()
    while (status := training.status()) is None or status.is_running:
        time.sleep(1)
    if status.error:
        sys.exit(f"the training ended: {status.error}")
    return run


def read_again(
    run: Path, archive: Archive, pages: Mapping[int, StoredPage], lines: Sequence[StoredLine]
) -> dict[str, MatchedText]:
    """What the new adapter reads, by the line's number."""
    reader = LocalReader.of_run(RunFolder(run))

    def images() -> Iterator[tuple[str, Image.Image]]:
        for page in pages.values():
            own = [line for line in lines if line.page == page.number]
            cut = zip((str(line.number) for line in own), archive.cut(page, own), strict=True)
            yield from ((name, image) for name, image in cut if isinstance(image, Image.Image))

    return {one.id: MatchedText(one.text, one.truncated) for one in reader.read(images())}


def go_round(
    store: CorrectionStore,
    archive: Archive,
    work: Path,
    recipe: RunConfig,
    truth: Mapping[tuple[str, float], str],
    corrections: int,
) -> Round:
    """Read, correct, train, read again."""
    pages = {page.number: page for page in store.pages()}
    reading = BackgroundReader(store, archive, partial(base_reader, recipe))
    reading.start()
    while reading.is_running:
        time.sleep(0.2)
    if reading.error:
        sys.exit(f"the reading ended: {reading.error}")
    lines = [line for line in store.lines() if truth[pages[line.page].name, line.place]]
    texts = {line.number: truth[pages[line.page].name, line.place] for line in lines}
    corrected = to_correct(lines, corrections)
    for line in corrected:
        store.review(line, texts[line.number], State.ACCEPTED, who="full circle")

    training = BackgroundTraining(store, archive, work, recipe)
    started = time.monotonic()
    run = train(training)
    seconds = time.monotonic() - started

    settled = {line.number for line in corrected}
    known = {texts[number] for number in settled}
    others = [line for line in lines if line.number not in settled]
    left = [line for line in others if texts[line.number] not in known]
    after = read_again(run, archive, pages, left)
    samples = [
        Sample(
            str(line.number),
            archive.root / pages[line.page].image,
            texts[line.number],
            Split.TEST,
            writer=pages[line.page].writer,
            page=pages[line.page].name,
        )
        for line in left
    ]
    before = {str(line.number): MatchedText(line.machine or "") for line in left}
    found = compare([System(name, score_lines(samples, read)) for name, read in (("before", before), ("after", after))])
    splits = Dataset.open(load_run_config(RunFolder(run).config).dataset).card.splits
    return Round(found, len(others) - len(left), {name.value: split.samples for name, split in splits.items()}, seconds)


def main() -> None:
    """Go once round, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--corrections", type=int, default=100)
    parser.add_argument("--epochs", type=float, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    require_copiste()
    settings = [f"training.epochs={options.epochs}", "validation.every_steps=1000000"]
    recipe = load_config(PROJECT / "configs" / "copiste_nano.yaml", settings)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        take_pages(folder)
        truth = true_texts(folder)
        with (
            closing(CorrectionStore.open(folder / "work" / "corrections.sqlite")) as store,
            open_archive(store, folder / "pages", folder / "unpacked") as archive,
        ):
            import_pages(store, archive, SourceReport(strict=False), format="alto", writer=WRITER)
            done = go_round(store, archive, folder / "work", recipe, truth, options.corrections)
    print(describe(machine()))
    print(f"corrected {sum(done.splits.values())} lines: {describe(done.splits)}; trained for {done.seconds:.0f} s")
    print(f"left out, their text being among the corrected: {done.repeated}")
    print(render_comparison(done.found))
    facts = {"repeated": done.repeated, "splits": dict(done.splits), "seconds": done.seconds}
    chosen = {"corrections": options.corrections, "epochs": options.epochs}
    append_json(options.json, "full_circle", chosen, [{**facts, "comparison": done.found.to_dict()}])


if __name__ == "__main__":
    main()
