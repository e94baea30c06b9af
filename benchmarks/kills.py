"""Kills `dsocr prepare` with SIGKILL while it works, runs it again, and compares what comes out byte by byte.

    python benchmarks/kills.py [KILLS]

A third of the kills are on a fresh folder, a third on one that is being overwritten, and a third on one whose images
are taken over as they were cut. DSOCR_REAL_DATA may name pages to work on in place of drawn ones. Every process that is
left over is counted as a fault.
"""

import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from PIL import Image, ImageDraw

PAGES, LINES = 160, 20
SEED = 17


def draw_pages(folder: Path) -> Path:
    """Pages of grain and bars with an ALTO file each."""
    noise = Image.effect_noise((1200, 1600), 30)
    folder.mkdir()
    for number in range(PAGES):
        page = noise.copy()
        drawing = ImageDraw.Draw(page)
        lines = []
        for line in range(LINES):
            top = 20 + 78 * line
            drawing.rectangle((40, top + 20, 300 + 20 * line + number, top + 45), fill=30)
            box = f'HPOS="20" VPOS="{top}" WIDTH="1100" HEIGHT="70"'
            lines.append(f'<TextLine {box}><String CONTENT="{number} {line}"/></TextLine>')
        page.save(folder / f"w{number % 10}_{number}.jpg", quality=85)
        text = f"""<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description>
<MeasurementUnit>pixel</MeasurementUnit><sourceImageInformation><fileName>w{number % 10}_{number}.jpg</fileName>
</sourceImageInformation></Description><Layout><Page WIDTH="1200" HEIGHT="1600"><PrintSpace><TextBlock>
{"".join(lines)}</TextBlock></PrintSpace></Page></Layout></alto>"""
        (folder / f"w{number % 10}_{number}.xml").write_text(text, encoding="utf-8")
    return folder


def content(folder: Path) -> str:
    """A hash over all names and bytes below a folder."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def command(source: Path, out: Path, *options: str) -> list[str]:
    """`dsocr prepare` in two processes."""
    prepare = [sys.executable, "-m", "dsocr", "prepare", str(source), "-o", str(out), "--workers", "2", "-q"]
    return [*prepare, "--writer", r"^((?:imp_)?[a-z]+_?\d+?)_", *options]


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(arguments, capture_output=True, text=True, check=False)


def left_over() -> int:
    """Worker processes that still live some seconds after their parent was killed."""
    deadline = time.monotonic() + 10
    count = 0
    while time.monotonic() < deadline:
        count = sum(
            "spawn_main" in " ".join(process.info["cmdline"] or ()) and process.ppid() == 1
            for process in psutil.process_iter(["cmdline"])
        )
        if not count:
            return 0
        time.sleep(0.2)
    return count


def kill_once(source: Path, out: Path, wait: float, options: list[str]) -> str:
    """Where the kill struck: before the end or after it."""
    process = subprocess.Popen(command(source, out, *options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(wait)
    struck = process.poll() is None
    process.kill()
    process.wait()
    return "killed" if struck else "too late"


def main() -> None:
    """Prints a line for each kill and the sums."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    os.environ["SOURCE_DATE_EPOCH"] = "0"
    rng = random.Random(SEED)
    faults = struck = stray = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        real = os.environ.get("DSOCR_REAL_DATA")
        source = Path(real) if real else draw_pages(folder / "pages")
        start = time.perf_counter()
        done = run(command(source, folder / "whole"))
        seconds = time.perf_counter() - start
        assert done.returncode == 0, done.stderr
        out = folder / "out"
        shutil.copytree(folder / "whole", out)
        assert run(command(source, out, "--overwrite")).returncode == 0
        # The card of a dataset that replaced another names it.
        wanted = {False: content(folder / "whole"), True: content(out)}
        shutil.rmtree(out)
        number = -1
        while struck < kills:
            number += 1
            overwrite = ["--overwrite"] if number % 3 else []
            if overwrite:
                shutil.copytree(folder / "whole", out)
            if number % 3 == 1:
                (out / "sources.jsonl").unlink()  # so that all is cut again
            wait = rng.uniform(0.1, seconds)
            outcome = kill_once(source, out, wait, overwrite)
            struck += outcome == "killed"
            stray += left_over()
            again = run(command(source, out, *overwrite))
            # A kill after the last rename leaves the dataset whole, and a second run without --overwrite says so.
            refused = again.returncode == 2 and "there is a dataset already" in again.stderr
            same = (again.returncode == 0 or refused) and content(out) == wanted[bool(overwrite)]
            others = sorted(path.name for path in folder.iterdir() if path.name not in {"pages", "whole", "out"})
            faults += not same or bool(others)
            outcome_of_retry = "same" if same else again.stderr.strip() or "other bytes"
            print(f"{number + 1:3} {wait:5.2f} s {outcome:9} {outcome_of_retry} {others or ''}", flush=True)
            shutil.rmtree(out, ignore_errors=True)
    late = number + 1 - struck
    print(f"{struck} kills of a run of {seconds:.1f} s, {late} more too late; {faults} faults, {stray} strays")
    sys.exit(1 if faults or stray else 0)


if __name__ == "__main__":
    main()
