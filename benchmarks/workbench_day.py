"""A day's work at the workbench, in Chromium: correcting lines, changing shapes, searching, training, exporting.

    python benchmarks/workbench_day.py examples/copiste --lines 300 --shapes 40

The texts of the source, which must be ALTO, are taken out of a copy; `small` reads it, and the right texts are typed
into the lines that somebody would correct. The file that comes out must have every text, shape, type and order that the
day left, and everything else that the source had: ids, types and tags of blocks and lines, and all that nobody changed.
"""

import argparse
import json
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from lxml import etree
from playwright.sync_api import Page, expect, sync_playwright

from dsocr.data.source_report import SourceReport
from dsocr.workbench.archive import import_pages, open_archive
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State, StoredLine
from measuring import machine
from workbench import FIELD, open_chromium, serving

KINDS = ("draw", "below", "delete", "cut", "merge", "handle", "shift", "region", "retype", "later")
TYPE = "marginalia"
MINUTES = 20


@dataclass
class Day:
    """The browser page, the corrections file, and what is expected of it."""

    page: Page
    corrections: Path
    truth: dict[int, str]
    texts: dict[int, str] = field(default_factory=dict)
    """What each line that was corrected must have."""
    waits: list[float] = field(default_factory=list)
    edits: Counter[str] = field(default_factory=Counter)
    learnt: list[str] = field(default_factory=list)

    def select(self, what: str, *values: object) -> list[Any]:
        """Rows of the corrections file."""
        with closing(sqlite3.connect(self.corrections, timeout=30)) as connection:
            return connection.execute(f"SELECT {what}", values).fetchall()

    def lines(self, number: int) -> list[StoredLine]:
        """The lines of a page in reading order."""
        with closing(CorrectionStore.open(self.corrections)) as store:
            return store.lines(number)

    def selected(self) -> int:
        """The number of the line that is selected."""
        return int(self.page.locator(".line.selected").get_attribute("data-line") or 0)

    def wait_for_other(self, number: int) -> None:
        """Wait until another line is selected."""
        script = "(was) => (document.querySelector('.line.selected')?.dataset.line ?? was) !== was"
        self.page.wait_for_function(script, arg=str(number))

    def open(self, place: int) -> None:
        """Open a page by its small image, and wait until it is shown."""
        self.page.get_by_role("navigation", name="All pages").get_by_role("button").nth(place).click()
        script = """(number) => {
            const image = document.querySelector('.page-view-layer img');
            return image?.src.includes(`/page/${number}`) && image.complete && image.naturalWidth > 0;
        }"""
        self.page.wait_for_function(script, arg=place + 1)

    def correct(self, count: int) -> None:
        """Type the right texts of the next lines, and accept them."""
        for _ in range(count):
            number = self.selected()
            self.page.get_by_label(FIELD).fill(self.truth[number])
            started = time.monotonic()
            self.page.keyboard.press("Enter")
            self.wait_for_other(number)
            self.waits.append(time.monotonic() - started)
            self.texts[number] = self.truth[number].strip()

    # Shapes

    def change(self, kind: str, page: int) -> None:
        """Change a shape, of a line that nobody corrected, on the page that is shown, and wait until it is stored."""
        before = self.select("COUNT(*) FROM change")[0][0]
        free = [line for line in self.lines(page) if line.number not in self.texts and not line.is_reviewed][1:-1]
        line = max(free, key=lambda one: one.outline.box[2] - one.outline.box[0])
        at = self.lines(page).index(line)
        rows = self.page.get_by_role("list").get_by_role("listitem")
        expect(rows).to_have_count(len(self.lines(page)))
        if kind == "region":
            left, top, right, bottom = line.outline.box
            self.key("g")
            self.drag((left + 2, top + 2), (right - 2, bottom - 2))
        elif kind == "draw":
            left, _, right, bottom = line.outline.box
            self.key("b")
            for x in (left + 20, right - 20):
                self.page.mouse.click(*self.point(x, min(bottom + 12, self.size(page)[1] - 2)))
            self.page.keyboard.press("Enter")
        elif kind == "retype":
            self.page.locator("g[data-region] text").last.click()
            self.page.get_by_label("Type of region").select_option(TYPE)
        else:
            rows.nth(at).click()
            self.page.wait_for_function(
                "(wanted) => document.querySelector('.line.selected.chosen')?.dataset.line === wanted",
                arg=str(line.number),
            )
            self.act_on(kind, line, page)
        self.wait_for_change(before, kind)
        self.edits[kind] += 1

    def act_on(self, kind: str, line: StoredLine, page: int) -> None:
        """Change the shape of the line that is chosen."""
        left, top, right, bottom = line.outline.box
        middle = (left + right) // 2
        if kind == "cut":
            self.key("k")
            self.drag((middle, top - 6), (middle, bottom + 6))
        elif kind == "handle":
            x, y = line.outline.border[0]
            self.fit("l")
            self.drag((x, y), (x - 20, y - 10))
            self.fit("f")
        elif kind == "merge":
            lines = self.lines(page)
            following = lines[lines.index(line) + 1]
            self.page.keyboard.down("Shift")
            x1, y1, x2, y2 = following.outline.box
            self.page.mouse.click(*self.point((x1 + x2) / 2, (y1 + y2) / 2))
            self.page.keyboard.up("Shift")
            self.key("m")
        else:
            self.key({"below": "n", "delete": "Delete", "shift": "Shift+ArrowLeft", "later": "]"}[kind])

    def fit(self, key: str) -> None:
        """Zoom to the line or the page, which glides to its place."""
        self.key(key)
        self.page.wait_for_timeout(400)

    def key(self, key: str) -> None:
        """Press a key on the page."""
        self.page.locator(".page-view-window").focus()
        self.page.keyboard.press(key)

    def size(self, page: int) -> tuple[int, int]:
        """Width and height of a page in pixels."""
        return tuple(self.select("width, height FROM page WHERE number = ?", page)[0])

    def point(self, x: float, y: float) -> tuple[float, float]:
        """Where a point of the page is in the window."""
        script = """() => { const box = document.querySelector('.page-view-layer').getBoundingClientRect();
            const svg = document.querySelector('.page-view-layer svg').viewBox.baseVal;
            return [box.x, box.y, box.width / svg.width, box.height / svg.height]; }"""
        left, top, horizontal, vertical = self.page.evaluate(script)
        return left + x * horizontal, top + y * vertical

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag from one point of the page to another."""
        self.page.mouse.move(*self.point(*start))
        self.page.mouse.down()
        self.page.mouse.move(*self.point(*end), steps=4)
        self.page.mouse.up()

    def wait_for_change(self, before: int, what: str) -> None:
        """Wait until more than so many changes are stored."""
        until = time.monotonic() + 30
        while self.select("COUNT(*) FROM change")[0][0] == before:
            if time.monotonic() > until:
                raise SystemExit(f"{what}: nothing was stored within 30 seconds")
            self.page.wait_for_timeout(20)

    # Searching

    def search(self, wanted: str, replacement: str | None = None) -> int:
        """Find a text on all pages, and perhaps replace it; returns the lines that have it."""
        self.page.get_by_label(FIELD).press("Alt+r")
        self.page.get_by_role("textbox", name="Find", exact=True).fill(wanted)
        self.page.get_by_text("match case").click()
        rows = self.select("number, text FROM line")
        found = [(number, text) for number, text in rows if wanted in text]
        places = sum(text.count(wanted) for _, text in found)
        expect(self.page.get_by_text(f"{places} in {len(found)} lines")).to_be_visible()
        if replacement is None:
            self.page.get_by_role("button", name="Close").click()
        else:
            before = self.select("COUNT(*) FROM change")[0][0]
            self.page.get_by_label("Replace with").fill(replacement)
            self.page.get_by_role("button", name=f"Replace in {len(found)} lines").click()
            self.wait_for_change(before, "replacing")
        expect(self.page.locator(".q-dialog")).to_have_count(0)
        return len(found)

    def export(self, kind: str, folder: Path, *, accepted_only: bool) -> None:
        """Export into a folder through the dialog."""
        self.page.get_by_role("button", name="Export").click()
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_role("combobox").click()
        self.page.get_by_role("option", name=kind, exact=True).click()
        box = dialog.get_by_role("checkbox", name="Only accepted corrections")
        if box.is_checked() is not accepted_only:
            box.click()
        dialog.get_by_role("textbox", name="Output folder").fill(str(folder))
        dialog.get_by_role("button", name="Save").click()
        expect(self.page.locator(".q-dialog")).to_have_count(0, timeout=180_000)


def take_texts_out(source: Path, out: Path) -> Path:
    """A copy of an ALTO source whose lines have no text."""
    shutil.copytree(source, out)
    for path in out.rglob("*.xml"):
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r'CONTENT="[^"]*"', 'CONTENT=""', text), encoding="utf-8")
    return out


def read_truth(source: Path, work: Path) -> dict[int, str]:
    """The texts of the source by the numbers that a workbench gives its lines."""
    with closing(CorrectionStore.open(work / "truth.sqlite")) as store:
        with open_archive(store, source, work / "truth") as archive:
            import_pages(store, archive, SourceReport(strict=False))
        return {line.number: line.text for line in store.lines()}


def elements(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Blocks by id with their tags, and lines with id, tags, block, text and shape, of an ALTO file."""
    root: Any = etree.parse(path).getroot()
    labels = {tag.get("ID"): tag.get("LABEL") for tag in root.iterfind("{*}Tags/{*}*")}
    blocks = {one.get("ID"): labels.get(one.get("TAGREFS"), "") for one in root.iter("{*}TextBlock")}
    lines = [
        {
            "id": line.get("ID"),
            "tags": line.get("TAGREFS"),
            "block": line.getparent().get("ID"),
            "text": " ".join(one.get("CONTENT") for one in line.iterfind("{*}String")).strip(),
            "polygon": line.find("{*}Shape/{*}Polygon").get("POINTS"),
            "baseline": tuple(map(int, re.findall(r"\d+", line.get("BASELINE") or ""))),
        }
        for line in root.iter("{*}TextLine")
    ]
    return blocks, lines


def exported_text(line: StoredLine) -> str:
    """The text of a line in an export with only accepted ones: also what somebody wrote into a changed shape."""
    return line.text if line.state is State.ACCEPTED or (line.state is State.READ and line.machine is None) else ""


def differences(day: Day, source: Path, out: Path) -> Iterator[str]:
    """What an export with only accepted texts lacks of the store, or changed in the source that nobody did."""
    with closing(CorrectionStore.open(day.corrections)) as store:
        for page in store.pages():
            name = Path(page.markup or "").name
            blocks_before, before = elements(next(source.rglob(name)))
            blocks, after = elements(next(out.rglob(name)))
            stored = store.lines(page.number)
            regions = {region.number: region for region in store.regions(page.number)}
            kinds = {id_: kind for id_, kind in blocks_before.items() if blocks.get(id_) != kind}
            retyped = {region.name for region in regions.values() if region.name and region.kind == TYPE}
            if unexpected := kinds.keys() - retyped:
                yield f"{name}: blocks {sorted(unexpected)} are gone or have another type"
            new_kinds = Counter(region.kind for region in regions.values() if region.element is None)
            if Counter(kind for id_, kind in blocks.items() if id_ not in blocks_before and "ungrouped" not in id_) != (
                new_kinds
            ):
                yield f"{name}: regions that were drawn are not {dict(new_kinds)}"
            texts = Counter(map(exported_text, stored))
            if Counter(line["text"] for line in after) != texts:
                yield f"{name}: other texts than in the workbench"
            wanted = Counter(tuple(chain(*line.outline.baseline)) for line in stored)
            if Counter(line["baseline"] for line in after) != wanted:
                yield f"{name}: other baselines than in the workbench"
            ids = {before[place]["id"]: line for line in stored for place in line.elements[:1]}
            found = {line["id"]: line for line in after}
            for line in before:
                now, of_store = found.get(line["id"]), ids.get(line["id"])
                if (now is None) is not (of_store is None):
                    yield f"{name}: {line['id']} is {'gone' if now is None else 'still there'}"
                elif now is not None and of_store is not None:
                    if now["tags"] != line["tags"]:
                        yield f"{name}: {line['id']} has other tags"
                    if now["text"] != exported_text(of_store):
                        yield f"{name}: {line['id']} has another text"
                    region = regions.get(of_store.region or 0)
                    if region is not None and region.element is not None and now["block"] != region.name:
                        yield f"{name}: {line['id']} is in another block"
            if len(found.keys() - {line["id"] for line in before}) != sum(not line.elements for line in stored):
                yield f"{name}: new lines are not those that were drawn"


def wait_for_lessons(day: Day, number: int) -> None:
    """Wait until the header has shown the results of as many trainings."""
    until = time.monotonic() + 60 * MINUTES
    while time.monotonic() < until:
        text = day.page.locator("[role=status]").filter(has_text="learnt from").all_inner_texts()
        found = re.search(r"learnt from .*?(?= · |$)", " ".join(text))
        if found and found[0] not in day.learnt:
            day.learnt.append(found[0])
        if len(day.learnt) >= number:
            return
        day.page.wait_for_timeout(1000)
    raise SystemExit(f"nothing was learnt within {MINUTES} minutes")


def work(day: Day, lines: int, shapes: int, out: Path) -> dict[str, Any]:
    """The day itself; returns what was seen."""
    page = day.page
    pages = day.select("COUNT(*) FROM page")[0][0]
    page.get_by_role("button", name="All pages").click()
    opened = []
    for place in range(pages):
        started = time.monotonic()
        day.open(place)
        opened.append(time.monotonic() - started)
    page.get_by_role("switch", name="Learn while I work").click()

    parts = [lines // 5, 2 * lines // 5, lines - lines // 5 - 2 * lines // 5]
    per_page = -(-lines // (pages * 5 // 6))  # a sixth of the pages stays as it is
    place = 0
    for part, count in enumerate(parts):
        while count:
            day.open(place)
            day.correct(min(per_page, count))
            count -= min(per_page, count)
            place += 1
        if part == 0:
            change_shapes(day, shapes)
        else:
            wait_for_lessons(day, part)
    found = [day.search(wanted) for wanted in ("que", "&", "Monsieur")]
    words = Counter(word for text in day.texts.values() for word in re.findall(r"[^\W\d_]{5,}", text))
    for word in (word for word, _ in words.most_common(2)):
        found.append(day.search(word, word.upper()))
        last = dict(day.texts)
        day.texts = {number: text.replace(word, word.upper()) for number, text in day.texts.items()}
    before = day.select("COUNT(*) FROM change WHERE undone")[0][0]
    page.get_by_label(FIELD).press("Alt+z")  # the last replacement
    while day.select("COUNT(*) FROM change WHERE undone")[0][0] == before:
        page.wait_for_timeout(20)
    day.texts = last
    for kind, accepted_only in (("ALTO", True), ("PAGE", False), ("Training dataset", True), ("Log of changes", True)):
        day.export(kind, out / kind.lower().replace(" ", "_"), accepted_only=accepted_only)
    return {
        "pages_opened": len(opened),
        "seconds_page": {"median": median(opened), "max": max(opened)},
        "lines_corrected": len(day.waits),
        "seconds_next_line": {"median": median(day.waits), "max": max(day.waits)},
        "shapes_changed": sum(day.edits.values()),
        "shapes": dict(day.edits),
        "searches": found,
        "learnt": day.learnt,
    }


def change_shapes(day: Day, shapes: int) -> None:
    """Change as many shapes, of each kind in turn, five on a page."""
    long_pages = [
        number for number, count in day.select("page, COUNT(*) FROM line GROUP BY page ORDER BY page") if count > 14
    ]
    for at in range(shapes):
        if at % 5 == 0:
            if at:
                day.page.keyboard.press("Alt+e")
            number = long_pages[at // 5]
            day.open(number - 1)
            day.page.keyboard.press("Alt+e")
            day.fit("f")
        day.change(KINDS[at % len(KINDS)], number)
    day.page.keyboard.press("Alt+e")


def run_day(source: Path, lines: int, shapes: int, work_folder: Path) -> dict[str, Any]:
    """Work through a day, and check what came out."""
    truth = read_truth(source, work_folder)
    blank = take_texts_out(source, work_folder / "box")
    corrections = work_folder / "work" / "corrections.sqlite"
    complaints: list[str] = []
    with (
        sync_playwright() as playwright,
        serving(blank, work_folder / "work", "--run", "small", output=work_folder / "server.log") as (address, _, _),
    ):
        page = open_chromium(playwright).new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(60_000)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on(
            "response",
            lambda answer: complaints.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None,
        )
        page.goto(address)
        page.wait_for_function(f"document.querySelector('input[aria-label=\"{FIELD}\"]')")
        started = time.monotonic()
        day = Day(page, corrections, truth)
        try:
            seen = work(day, lines, shapes, work_folder / "out")
        except (Exception, SystemExit):
            page.screenshot(path=work_folder / "failed.png")
            raise
        minutes = (time.monotonic() - started) / 60
    wrong = list(differences(day, blank, work_folder / "out" / "alto"))
    texts = dict(day.select("number, text FROM line WHERE state = 'accepted'"))
    if texts != day.texts:
        wrong.append(f"accepted texts are not those that were typed: {set(texts.items()) ^ set(day.texts.items())}")
    named = {number: Path(markup).name for number, markup in day.select("number, markup FROM page")}
    touched = {named[number] for (number,) in day.select("DISTINCT page FROM line WHERE state = 'accepted'")}
    same = [
        path.read_bytes() == next((work_folder / "out" / "alto").rglob(path.name)).read_bytes()
        for path in blank.rglob("*.xml")
        if path.name not in touched
    ]
    server = (work_folder / "server.log").read_text(encoding="utf-8")
    if "Traceback" in server:
        wrong.append("the server wrote a traceback")
    return seen | {
        "minutes": minutes,
        "console": complaints,
        "differences": wrong,
        "untouched_files": len(same),
        "untouched_files_same_bytes": sum(same),
    }


def main() -> None:
    """Work through a day, and print what was seen as JSON; exit code 1 if something was lost or complained of."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--shapes", type=int, default=40)
    parser.add_argument("--work", type=Path, help="keep everything in this folder, which must not exist")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work_folder = chosen.work or Path(folder)
        work_folder.mkdir(parents=True, exist_ok=chosen.work is None)
        result = run_day(chosen.source, chosen.lines, chosen.shapes, work_folder)
    print(json.dumps({"machine": machine(), **result}, indent=1, ensure_ascii=False))
    if result["console"] or result["differences"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
