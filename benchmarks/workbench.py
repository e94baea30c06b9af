"""The workbench at work: learning from accepted lines, a large archive, and being killed.

    python benchmarks/workbench.py learn examples/copiste --accept 100
    python benchmarks/workbench.py large --pages 600
    python benchmarks/workbench.py kill --rounds 100

`learn` hides the texts of a source, lets `small` read all lines, accepts the right texts of the first ones, and lets
the workbench train and read the rest again. `large` and `kill` drive Chromium, which must be on PATH, by the keyboard.
"""

import argparse
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from PIL import Image, ImageDraw
from playwright.sync_api import Error, Page, sync_playwright

from dsocr.data.source_report import SourceReport
from dsocr.evaluation.metrics import character_errors, pool
from dsocr.inference.reader import LocalReader
from dsocr.runs import RunFolder
from dsocr.workbench.archive import import_pages, open_archive
from dsocr.workbench.background import BackgroundTraining, Learner, find_training_config
from dsocr.workbench.session import Session
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State
from measuring import machine

FIELD = "Text of the line"
LINES = 34


def learn(source: Path, accept: int, base: str, *, doubtful_first: bool) -> dict[str, Any]:
    """CER of the lines that nobody accepted, before and after learning from the others, and the minutes."""
    with tempfile.TemporaryDirectory() as folder, closing(CorrectionStore.open(Path(folder) / "c.sqlite")) as store:
        work = Path(folder)
        with open_archive(store, source, work / "unpacked") as archive:
            import_pages(store, archive, SourceReport(strict=False))
            truth = {line.number: line.text for line in store.lines() if line.text}
            run = RunFolder.to_read_with(Path(base))
            session = Session(source.name, store, archive, work)
            for line in store.lines():
                store.review(line, "", State.UNREAD, who="benchmark")
            started = time.monotonic()
            session.read_again(lambda: LocalReader.of_run(run))
            wait(session)
            first_reading = time.monotonic() - started
            numbers = store.by_doubt() if doubtful_first else [line.number for line in store.lines()]
            numbers = [number for number in numbers if number in truth]
            chosen, rest = set(numbers[:accept]), numbers[accept:]
            for line in [line for line in store.lines() if line.number in chosen]:
                store.review(line, truth[line.number], State.ACCEPTED, who="benchmark")
            pages = len({line.page for line in store.lines() if line.number in chosen})
            before = errors(store, rest, truth)
            config = find_training_config(Path(base), None)
            assert config is not None
            training = BackgroundTraining(store, archive, work, config)
            learner = Learner(
                *(store, training, session.read_again),
                load=lambda path: LocalReader.of_run(RunFolder(path)),
                first=lambda: LocalReader.of_run(run),
                least=accept,
            )
            learner.is_on = True
            started = time.monotonic()
            learner.step()
            while (status := training.status()) is not None and status.is_running:
                time.sleep(1)
            trained = time.monotonic() - started
            learner.step()
            wait(session)
            lesson = learner.lesson
            if lesson is None:
                raise SystemExit(f"{learner.error} {status}")
            return {
                "accepted": accept,
                "pages": pages,
                "doubtful_first": doubtful_first,
                "rest": len(rest),
                "cer_before": before,
                "cer_after": errors(store, rest, truth),
                "validation": [lesson.lines, lesson.before.rate if lesson.before else None, lesson.after.rate],
                "minutes_first_reading": first_reading / 60,
                "minutes_training": trained / 60,
                "minutes_in_all": (time.monotonic() - started) / 60,
            }


def errors(store: CorrectionStore, numbers: Sequence[int], truth: dict[int, str]) -> float:
    """The pooled CER of lines as the store has them."""
    texts = {line.number: line.text for line in store.lines()}
    return pool(character_errors(truth[number], texts[number]) for number in numbers).rate


def wait(session: Session) -> None:
    """Until the background reader has read everything."""
    while session.reader is not None and session.reader.is_running:
        time.sleep(0.2)
    if session.reader is not None and session.reader.error:
        raise SystemExit(session.reader.error)


def draw_pages(folder: Path, pages: int) -> Path:
    """Pages of bars with a PAGE file each."""
    (folder / "page").mkdir(parents=True)
    image = Image.new("RGB", (1200, 1700), (240, 235, 220))
    drawing = ImageDraw.Draw(image)
    lines = []
    for line in range(LINES):
        top = 40 + 48 * line
        drawing.rectangle((80, top + 10, 1000 - 7 * line, top + 22), fill=(60, 60, 90))
        lines.append((line, f"60,{top} 1120,{top} 1120,{top + 40} 60,{top + 40}"))
    for number in range(pages):
        name = f"scan-{number:04d}"
        drawing.rectangle((0, 0, 30 + number % 200, 20), fill=(number % 255, 90, 90))
        image.save(folder / f"{name}.jpg", quality=80)
        text = "".join(
            f'<TextLine id="l{line}"><Coords points="{points}"/>'
            f"<TextEquiv><Unicode>line {line} of page {number}</Unicode></TextEquiv></TextLine>"
            for line, points in lines
        )
        (folder / "page" / f"{name}.xml").write_text(
            '<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15">'
            f'<Page imageFilename="{name}.jpg" imageWidth="1200" imageHeight="1700"><TextRegion id="r">'
            f'<Coords points="30,30 1160,30 1160,1690 30,1690"/>{text}</TextRegion></Page></PcGts>',
            encoding="utf-8",
        )
    return folder


@contextmanager
def serving(
    source: Path, work: Path, *options: str, output: Path | None = None
) -> Iterator[tuple[str, "subprocess.Popen[bytes]", float]]:
    """A workbench in another process: its address, the process, and the seconds until it answers.

    `output` is a file for what it prints.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dsocr", "workbench", str(source), "--work", str(work), "--port", str(port)]
    started = time.monotonic()
    with Path(output or os.devnull).open("wb") as log:
        server = subprocess.Popen([*command, *options, "--no-show", "--quiet"], stdout=log, stderr=subprocess.STDOUT)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if server.poll() is not None:
                    raise SystemExit("the workbench did not start") from None
                time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/", server, time.monotonic() - started
    finally:
        server.kill()
        server.wait()


def open_chromium(playwright: Any) -> Any:
    """Chromium as the system has it."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        raise SystemExit("there is no Chromium on PATH")
    return playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])


def value_after(page: Page, key: str) -> float:
    """Seconds from a key to another text in the field."""
    script = """(key) => new Promise((done) => {
        const field = document.querySelector('input[aria-label="Text of the line"]'), was = field.value;
        const start = performance.now();
        const look = () => (field.value !== was ? done(performance.now() - start) : requestAnimationFrame(look));
        field.dispatchEvent(new KeyboardEvent("keydown", { key, code: key, bubbles: true }));
        look();
    })"""
    return float(page.evaluate(script, key)) / 1000


ZOOM = """() => new Promise((done) => {
    const view = document.querySelector('[data-page-view], .page-view, canvas, svg')?.parentElement ?? document.body;
    const box = view.getBoundingClientRect(), times = [];
    let last;
    const turn = (now) => {
        if (last !== undefined) times.push(now - last);
        last = now;
        if (times.length === 60) return done(times);
        view.dispatchEvent(new WheelEvent("wheel", { deltaY: times.length < 30 ? -60 : 60, ctrlKey: true, bubbles: true,
            cancelable: true, clientX: box.x + box.width / 2, clientY: box.y + box.height / 2 }));
        requestAnimationFrame(turn);
    };
    requestAnimationFrame(turn);
})"""


def large(pages: int, source: Path | None) -> dict[str, Any]:
    """How long a large archive takes to open, the next line to appear, and a frame while zooming."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        drawn = source or draw_pages(Path(folder) / "box", pages)
        work = Path(folder) / "work"
        with serving(drawn, work, "--run", "none") as (_, _, first_start):
            pass
        with closing(sqlite3.connect(work / "corrections.sqlite")) as connection, connection:
            # as if a model had read everything
            connection.execute("UPDATE line SET machine = text, confidence = 0.8 + 0.2 * (number % 97) / 97.0")
        with serving(drawn, work, "--run", "none") as (address, _, start):
            page = open_chromium(playwright).new_page(viewport={"width": 1400, "height": 900})
            opened = []
            for _ in range(3):
                began = time.monotonic()
                page.goto(address)
                page.wait_for_function(f"document.querySelector('input[aria-label=\"{FIELD}\"]')?.value")
                opened.append(time.monotonic() - began)
            page.wait_for_timeout(1000)
            steps = [value_after(page, "Enter") for _ in range(60)]
            page.wait_for_timeout(1000)
            frames = page.evaluate(ZOOM)
            with closing(CorrectionStore.open(work / "corrections.sqlite")) as store:
                accepted = store.counts()[State.ACCEPTED]
                lines = len(store.lines())
        return {
            "pages": pages,
            "lines": lines,
            "seconds_first_start": first_start,
            "seconds_start": start,
            "seconds_open": opened,
            "seconds_next_line": {"median": median(steps), "max": max(steps)},
            "accepted": accepted,
            "frame_ms": {"median": median(frames), "95 %": sorted(frames)[int(0.95 * len(frames))]},
        }


def kill(rounds: int, seed: int) -> dict[str, Any]:
    """Kill the server or the browser at random moments; every line that was seen to be accepted must be there."""
    draw = random.Random(seed)
    shown = lost = 0
    killed: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        source, work = draw_pages(Path(folder) / "box", 60), Path(folder) / "work"
        expected: dict[str, str] = {}
        for number in range(rounds):
            victim = draw.choice(("server", "browser"))
            killed[victim] = killed.get(victim, 0) + 1
            browser = open_chromium(playwright)
            with serving(source, work, "--run", "none") as (address, server, _):
                page = browser.new_page()
                page.set_default_timeout(20_000)
                page.goto(address)
                page.wait_for_function(f"document.querySelector('input[aria-label=\"{FIELD}\"]')?.value")
                until = time.monotonic() + draw.uniform(0.1, 2.5)
                try:
                    while time.monotonic() < until:
                        was = page.get_by_label(FIELD).input_value()
                        page.get_by_label(FIELD).fill(f"{was} accepted")
                        if victim == "server" and time.monotonic() > until - 0.05:
                            page.keyboard.press("Enter")
                            break  # killed while it is stored
                        page.keyboard.press("Enter")
                        page.wait_for_function(
                            f"(was) => document.querySelector('input[aria-label=\"{FIELD}\"]').value !== was",
                            arg=f"{was} accepted",
                        )
                        expected[was] = f"{was} accepted"
                        shown += 1
                except Error as error:
                    print(f"round {number}: {error}", file=sys.stderr)
                if victim == "browser":
                    for process in psutil.Process().children(recursive=True):
                        if "chrom" in process.name():
                            with suppress(psutil.NoSuchProcess):
                                process.kill()
                else:
                    os.kill(server.pid, signal.SIGKILL)
                    server.wait()
                with suppress(Error):
                    browser.close()
            with closing(CorrectionStore.open(work / "corrections.sqlite")) as store:
                held = {line.text for line in store.lines() if line.state is State.ACCEPTED}
            missing = [text for text in expected.values() if text not in held]
            lost += len(missing)
            expected = {was: text for was, text in expected.items() if text in held}
    return {"rounds": rounds, "killed": killed, "accepted_lines_seen": shown, "lost": lost}


def main() -> None:
    """Measure one of the three, and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    learning = parts.add_parser("learn")
    learning.add_argument("source", type=Path)
    learning.add_argument("--accept", type=int, default=100)
    learning.add_argument("--base", default="small")
    learning.add_argument("--doubtful-first", action="store_true", help="accept the most doubtful lines, of all pages")
    size = parts.add_parser("large")
    size.add_argument("--pages", type=int, default=600)
    size.add_argument("--source", type=Path, help="a source of your own instead of drawn pages")
    killing = parts.add_parser("kill")
    killing.add_argument("--rounds", type=int, default=100)
    killing.add_argument("--seed", type=int, default=17)
    chosen = parser.parse_args()
    if chosen.part == "learn":
        result = learn(chosen.source, chosen.accept, chosen.base, doubtful_first=chosen.doubtful_first)
    else:
        result = large(chosen.pages, chosen.source) if chosen.part == "large" else kill(chosen.rounds, chosen.seed)
    print(json.dumps({"machine": machine(), **result}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
