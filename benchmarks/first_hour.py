"""The first hour of somebody with scans: `dsocr workbench SCANS` in Chromium until it has learnt from 50 lines.

    python benchmarks/first_hour.py examples/copiste --pages 12 --pictures OUT

The texts of the source, which must be ALTO, are taken out of a copy of some of its pages. `small` reads it; each line
that is next gets its right text, and Enter. A keystroke is a letter that differs from what was read, or an Enter. What
learning changed is measured on the lines after those that were accepted. Nothing is done outside the window.
"""

import argparse
import json
import shutil
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from rapidfuzz.distance import Levenshtein

from dsocr.evaluation.metrics import character_errors, pool
from dsocr.workbench.stored_lines import StoredLine
from measuring import machine
from workbench import FIELD, open_chromium, serving
from workbench_day import Day, read_truth, take_texts_out

TO_LEARN, TO_MEASURE = 50, 100


def wait_for(day: Day, condition: Any, minutes: float) -> float:
    """Wait until a condition on the stored lines holds; returns the seconds."""
    started = time.monotonic()
    while not condition(stored_lines(day)):
        if time.monotonic() - started > 60 * minutes:
            raise SystemExit(f"nothing happened within {minutes:g} minutes; it says {sentence(day.page)!r}")
        day.page.wait_for_timeout(500)
    return time.monotonic() - started


def stored_lines(day: Day) -> list[StoredLine]:
    """All lines in order."""
    return [line for (page,) in day.select("number FROM page ORDER BY number") for line in day.lines(page)]


def sentence(page: Page) -> str:
    """What the window says comes next."""
    return " | ".join(text for text in page.locator("[role=status]").all_inner_texts() if text)


def cer(day: Day, lines: list[StoredLine]) -> float:
    """The CER of what was read in lines."""
    return pool(character_errors(day.truth[line.number], line.machine or "") for line in lines).rate


def first_hour(day: Day, minutes: float, pictures: Path) -> dict[str, Any]:
    """Accept 50 lines, let it learn, and measure; returns what was seen."""
    seen: dict[str, Any] = {"sentences": []}
    seen["seconds_until_first_text"] = wait_for(day, lambda lines: lines[0].machine is not None, minutes)
    seen["seconds_until_read"] = wait_for(day, lambda lines: all(line.machine is not None for line in lines), minutes)
    rest = stored_lines(day)[TO_LEARN : TO_LEARN + TO_MEASURE]
    seen["lines_measured"], seen["cer_before"] = len(rest), cer(day, rest)
    keystrokes = waits = 0.0
    for accepted in range(1, TO_LEARN + 1):
        line = next(line for line in stored_lines(day) if line.number == day.selected())
        keystrokes += 1 + Levenshtein.distance(line.text, day.truth[line.number])
        day.correct(1)
        waits += day.waits[-1]
        if accepted in {1, 20, TO_LEARN}:
            day.page.wait_for_timeout(4000)
            seen["sentences"].append(sentence(day.page))
            day.page.screenshot(path=pictures / f"accepted_{accepted}.png")
    seen |= {"keystrokes": keystrokes, "seconds_of_the_machine": waits}
    day.page.get_by_role("button", name="Learn from them while you go on").click()
    started = time.monotonic()
    said = day.page.locator("[role=status]").filter(has_text="learnt from")
    said.wait_for(timeout=60_000 * minutes)
    seen["seconds_of_learning"] = time.monotonic() - started
    seen["sentences"].append(sentence(day.page))
    day.page.screenshot(path=pictures / "learnt.png")
    if ", but " not in said.first.inner_text():  # it is used
        started = time.monotonic()
        wait_until_read_again(day, minutes)
        seen["seconds_of_reading_again"] = time.monotonic() - started
    after = {line.number: line for line in stored_lines(day)}
    seen["cer_after"] = cer(day, [after[line.number] for line in rest])
    return seen


def wait_until_read_again(day: Day, minutes: float) -> None:
    """Wait until the window has said nothing of reading for five seconds."""
    quiet, until = 0, time.monotonic() + 60 * minutes
    while quiet < 10:
        if time.monotonic() > until:
            raise SystemExit(f"not read again within {minutes:g} minutes; it says {sentence(day.page)!r}")
        quiet = 0 if "reading:" in sentence(day.page) else quiet + 1
        day.page.wait_for_timeout(500)


def main() -> None:
    """Print what was seen as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--pages", type=int, default=12, help="page images to take, in the order of their names")
    parser.add_argument("--minutes", type=float, default=40, help="longest wait for a step")
    parser.add_argument("--pictures", type=Path, required=True, help="folder for screenshots")
    options = parser.parse_args()
    options.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        work = Path(folder)
        shutil.copytree(options.source, work / "some")
        for path in islice(sorted((work / "some").rglob("*.xml")), options.pages, None):
            path.unlink()
        named = {path.stem for path in (work / "some").rglob("*.xml")}
        for path in (work / "some").rglob("*.jpg"):
            if path.stem not in named:
                path.unlink()
        truth, blank = read_truth(work / "some", work), take_texts_out(work / "some", work / "scans")
        started = time.monotonic()
        with serving(blank, work / "work", output=work / "server.log") as (address, _, _):
            page = open_chromium(playwright).new_page(viewport={"width": 1600, "height": 1000})
            page.set_default_timeout(60_000)
            page.goto(address)
            page.wait_for_function(f"document.querySelector('input[aria-label=\"{FIELD}\"]')")
            seconds = time.monotonic() - started
            seen = first_hour(Day(page, work / "work" / "corrections.sqlite", truth), options.minutes, options.pictures)
    print(json.dumps({"machine": machine(), "seconds_until_open": seconds, **seen}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
