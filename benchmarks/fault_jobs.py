"""The jobs of `faults.py`: small ones of every kind that resumes, on drawn pages, and processes that end by SIGKILL."""

import contextlib
import hashlib
import http.server
import importlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from PIL import Image, ImageDraw, ImageFont

from dsocr.config import load_config
from dsocr.errors import DsocrError

SETTLED = {"SOURCE_DATE_EPOCH": "0", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GOMP_SPINCOUNT": "2000"}
"""The environment of all processes: the same times and sums."""
FORKS = hasattr(os, "fork")
"""Whether processes are forked from this one."""
MARK = "DSOCR_FAULTS"
"""In the environment of every process of ours."""
_TIMES = {"samples_per_second", "seconds", "elapsed_seconds", "tokens_per_second", "memory_bytes", "made_of", "config"}
"""Keys of JSON that differ from run to run."""
_TIMED_SUFFIXES = {".html", ".png", ".log", ".yaml", ".lock"}
_TIMED_PARTS = {"tensorboard", "checkpoints", "provenance.json", "source.json", ".lock", ".lock.json"}
_TIMED_PARTS |= {"corrections.json", "conversion.json"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "sqlite3.connect"}
_STEP = "dsocr.training.trainer:Trainer._train_step"


@dataclass(frozen=True, slots=True)
class Job:
    """Something that writes the output it is given, and resumes.

    `unit` names a function; each of its calls is a piece of work, and a kill may cost `again` pieces. `is_timed`
    if its files hold times. `share` of the kills strike it: quick jobs are killed more often.
    """

    name: str
    run: Callable[[Path], None]
    unit: str = ""
    again: int = 0
    is_timed: bool = False
    share: int = 3


def draw_sources(folder: Path) -> None:
    """Draw what the jobs read, once."""
    draw_pages(folder / "pages", 6, 4)
    draw_pages(folder / "sheets", 8, 3)
    draw_letters(folder / "letters", 10, 4)
    invoke("prepare", folder / "sheets", "-o", folder / "lines", "--split", "0.5/0.25/0.25", "-q")
    settings = sets(
        {"base": "small", "training.max_steps": 2, "training.batch_size": 4, "training.micro_batch_size": 4}
    )
    invoke("train", folder / "lines", "--no-preflight", "-q", *settings, *sets({"output": folder / "reader"}))


def jobs(folder: Path) -> list[Job]:
    """The jobs, on sources that are drawn already."""
    pages, lines = folder / "pages", folder / "lines"
    batches = {"training.batch_size": 4, "training.micro_batch_size": 2, "validation.max_samples": 1}
    small = {"base": "small", **batches}
    saved = {"checkpoints.every_steps": 2, "validation.every_steps": 3}
    nano = {"base": "nano", "generation.max_new_tokens": 2}
    nano |= {"adapter.r": 4, "adapter.alpha": 8, "adapter.dropout": 0.1}

    def train(steps: int, **settings: Any) -> Callable[[Path], None]:
        chosen = {**small, **saved, "training.max_steps": steps, **settings}
        return lambda out: invoke("train", lines, "--no-preflight", "-q", *sets({**chosen, "output": out}))

    def audit(out: Path) -> None:
        steps = {"training.max_steps": 2, "checkpoints.every_steps": 1}
        invoke("audit", lines, "-o", out, "--folds", "3", "-q", *sets({**small, **steps}))

    def transcribe(out: Path) -> None:
        invoke("transcribe", folder / "reader", pages, "-o", out, "--replace", "--format", "alto", "-q")

    def align(out: Path) -> None:
        module: Any = importlib.import_module("dsocr.training.align")
        chosen = {"training.max_steps": 4, "checkpoints.every_steps": 2, **batches}
        module.load_config = partial(load_config, changes=chosen)
        invoke("align", folder / "letters", folder / "edition.txt", "-o", out, "--rounds", "2", "-q")

    def learn_unlabelled(out: Path) -> None:
        module: Any = importlib.import_module("dsocr.training.unlabelled")
        module._LEAST = 2  # own readings, of the sixteen lines that are read
        scans = ("--unlabelled", folder / "letters")
        settings = {**small, **saved, "training.max_steps": 4, "output": out}
        invoke("train", lines, "--no-preflight", "-q", *scans, *sets(settings))

    def learn_alone(out: Path) -> None:
        settings = {**small, **saved, "training.max_steps": 6, "output": out}
        invoke("train", "--no-preflight", "-q", "--unlabelled", folder / "letters", *sets(settings))

    def fetch(out: Path) -> None:
        url = (folder / "url.txt").read_text(encoding="utf-8")
        quick = ("--fetch", "private=true", "--fetch", "delay=0", "--images", "line", "--script", "any")
        invoke("transcribe", folder / "reader", url, "-o", out, "--format", "jsonl", "-q", *quick)

    def prepare(out: Path) -> None:
        module: Any = importlib.import_module("dsocr.data.prepare")
        module.COMMIT_SECONDS = 0  # as if each page took long
        invoke("prepare", pages, "-o", out, "--workers", "1", "-q")

    cached = {**nano, "training.augmentation": "0.0", "training.feature_cache": "on"}
    return [
        Job("prepare", prepare, "dsocr.data.crops:crop_page", 2),
        Job("convert", lambda out: invoke("convert", pages, "-o", out, "--to", "parquet", "-q")),
        Job("workbench", lambda out: correct(pages, out), "dsocr.workbench.store:CorrectionStore.review", 1, True),
        Job("transcribe", transcribe, "dsocr.inference.inputs:PagePreparer.prepare", 6),
        Job("align", align, "dsocr.training.align:_Round._align", 8, True),
        Job("fetch", fetch, again=1),
        Job("train", train(5, **nano, **{"training.augmentation": "1.0"}), _STEP, 3, True, 1),
        Job("train-cached", train(4, **cached), _STEP, 3, True, 1),
        Job("train-small", train(6), _STEP, 3, True, 2),
        Job("unlabelled", learn_unlabelled, _STEP, 3, True, 2),
        Job("unlabelled-alone", learn_alone, _STEP, 3, True, 2),
        Job("audit", audit, _STEP, 2, True, 1),
    ]


def correct(source: Path, out: Path) -> None:
    """Accept the lines of a source as the workbench does, each with another text, split some, and export them."""
    from dsocr.data.dataset import SourceReport
    from dsocr.workbench.archive import import_pages, open_archive
    from dsocr.workbench.page_export import export
    from dsocr.workbench.store import open_store
    from dsocr.workbench.stored_lines import State

    with open_store(out / "corrections.sqlite") as store, open_archive(store, source, out / "unpacked") as archive:
        import_pages(store, archive, SourceReport(strict=False))
        for line in store.lines():
            if line.state is not State.ACCEPTED:
                store.review(line, f"{line.text} corrected", State.ACCEPTED, who="faults")
        export(store, archive, out / "export", to="page", accepted_only=True, overwrite=True)


def serve_manifest(folder: Path, pages: int) -> None:
    """Serve a manifest of lines for ever; its address is in `url.txt`, and each request is a line of `units.txt`."""
    images = {f"/{number}.png": draw_line(f"letter {number} of 1905") for number in range(pages)}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = manifest if self.path == "/manifest.json" else images[self.path]
            with (folder / "units.txt").open("a", encoding="utf-8") as file:
                file.write(f"{self.path}\n")
            self.send_response(200)
            self.send_header("Content-Type", "image/png" if self.path in images else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Be silent."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_port}"
    canvases = []
    for number, path in enumerate(images):
        canvas, size = f"{url}/canvas/{number}", {"width": 500, "height": 60}
        body = {"id": url + path, "type": "Image", "format": "image/png", **size}
        painting = {"type": "Annotation", "motivation": "painting", "body": body, "target": canvas}
        items = [{"id": f"{canvas}/page", "type": "AnnotationPage", "items": [painting]}]
        canvases.append({"id": canvas, "type": "Canvas", "label": {"none": [f"f. {number}"]}, **size, "items": items})
    head = {"@context": "http://iiif.io/api/presentation/3/context.json", "id": f"{url}/manifest.json"}
    manifest = json.dumps({**head, "type": "Manifest", "label": {"en": ["Letters"]}, "items": canvases}).encode()
    (folder / "url.txt").write_text(f"{url}/manifest.json", encoding="utf-8")
    server.serve_forever()


def sets(settings: dict[str, Any]) -> list[str]:
    """The settings as options."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def invoke(*arguments: object) -> None:
    """Run a command in this process. Raises SystemExit unless it succeeds."""
    from dsocr.cli.app import main

    sys.argv = ["dsocr", *map(str, arguments)]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise


def draw_line(text: str) -> bytes:
    """A PNG of a printed line."""
    import io

    image = Image.new("L", (500, 60), 240)
    ImageDraw.Draw(image).text((10, 8), text, fill=30, font=ImageFont.load_default(36))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


_WORDS = """morning evening garden winter summer harbour letter station market village river bridge forest meadow
orchard kitchen window candle brother sister father mother teacher doctor sailor farmer miller baker tailor soldier
journey weather thunder silver copper paper ribbon basket blanket lantern hammer barrel saddle carriage"""


def draw_pages(folder: Path, pages: int, lines: int) -> None:
    """Pages of short printed lines with an ALTO file each."""
    draw_texts(folder, [[f"letter {page} of {1900 + line}" for line in range(lines)] for page in range(pages)])


def draw_letters(folder: Path, pages: int, lines: int) -> None:
    """Pages of words with an ALTO file each, which has no texts, and their text without lines."""
    rng = random.Random(5)
    texts = [[" ".join(rng.sample(_WORDS.split(), 3)) for _ in range(lines)] for _ in range(pages)]
    draw_texts(folder, texts, is_transcribed=False)
    folder.with_name("edition.txt").write_text("\f".join(" ".join(page) for page in texts), encoding="utf-8")


def draw_texts(folder: Path, texts: Sequence[Sequence[str]], *, is_transcribed: bool = True) -> None:
    """Pages of printed lines with an ALTO file each."""
    folder.mkdir()
    for number, page_texts in enumerate(texts):
        height = 60 * len(page_texts) + 40
        page = Image.effect_noise((500, height), 20)
        rows = []
        for line, text in enumerate(page_texts):
            top = 20 + 60 * line
            ImageDraw.Draw(page).text((30, top + 8), text, fill=20, font=ImageFont.load_default(30))
            box = f'HPOS="20" VPOS="{top}" WIDTH="460" HEIGHT="56"'
            written = f'<String CONTENT="{text}"/>' if is_transcribed else ""
            rows.append(f'<TextLine ID="l{line}" {box}>{written}</TextLine>')
        page.save(folder / f"p{number:03d}.png")
        alto = f"""<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description>
<MeasurementUnit>pixel</MeasurementUnit><sourceImageInformation><fileName>p{number:03d}.png</fileName>
</sourceImageInformation></Description><Layout><Page ID="p" PHYSICAL_IMG_NR="1" WIDTH="500" HEIGHT="{height}">
<PrintSpace><TextBlock ID="b">{"".join(rows)}</TextBlock></PrintSpace></Page></Layout></alto>"""
        (folder / f"p{number:03d}.xml").write_text(alto, encoding="utf-8")


# What a job made


def content(out: Path, *, is_timed: bool) -> dict[str, object]:
    """What a job made, by file: JSON without times, the lines of a store, a hash of everything else."""
    made: dict[str, object] = {}
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        name = path.relative_to(out)
        if is_timed and (path.suffix in _TIMED_SUFFIXES or _TIMED_PARTS & set(name.parts)):
            continue
        if path.name == "corrections.sqlite":
            made[path.name] = stored_lines(path)
            continue
        if name.parts[0] in {"copies", "unpacked"} or path.name.startswith("corrections"):
            continue
        raw = path.read_bytes().replace(out.as_posix().encode(), b"OUT")
        if is_timed and path.suffix in {".json", ".jsonl"}:
            rows = [raw] if path.suffix == ".json" else raw.splitlines()
            made[name.as_posix()] = [parsed(row) for row in rows]
        elif is_timed and path.suffix == ".xml":
            rows = [row for row in raw.splitlines() if b"LastChange" not in row and b"Created" not in row]
            made[name.as_posix()] = hashlib.sha256(b"\n".join(rows)).hexdigest()
        else:
            made[name.as_posix()] = hashlib.sha256(raw).hexdigest()
    return made


def stored_lines(path: Path) -> list[tuple[object, ...]]:
    """The lines of a store; of a copy, since whoever opens it may also mend it."""
    with tempfile.TemporaryDirectory() as folder:
        for file in path.parent.glob(f"{path.name}*"):
            shutil.copy(file, folder)
        with contextlib.closing(sqlite3.connect(Path(folder) / path.name)) as connection:
            try:
                return connection.execute("SELECT number, text, state FROM line ORDER BY 1").fetchall()
            except sqlite3.DatabaseError:  # no table yet, or damaged
                return []


def parsed(row: bytes) -> Any:
    """JSON without what differs from run to run; the bytes if it is damaged."""
    try:
        return without_times(json.loads(row))
    except ValueError:
        return row


def without_times(value: Any) -> Any:
    """A value of JSON without what differs from run to run."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in _TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


# Processes


@dataclass(frozen=True, slots=True)
class Strike:
    """When a process kills itself: at a change of a file below a folder, or after some seconds; 0 is never."""

    change: int = 0
    seconds: float = 0.0


def run_job(job: Job, out: Path, folder: Path, strike: Strike) -> int:
    """Run a job in this process, which may end by its own SIGKILL; return its exit code.

    `units.txt` gets a line for each piece of work, and `changes.txt` the number of changes of files.
    """
    root, changes = str(out.parent), 0

    def change() -> None:
        nonlocal changes
        changes += 1
        if changes == strike.change:
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            is_change = isinstance(arguments[2], int) and bool(arguments[2] & _WRITES)
        else:
            is_change = event in _CHANGES
        if is_change and isinstance(arguments[0], str | os.PathLike) and os.fspath(arguments[0]).startswith(root):
            change()

    flush = os.fsync

    def watched_flush(fd: Any) -> None:
        flush(fd)
        change()

    sys.addaudithook(watch)
    os.fsync = watched_flush
    if strike.seconds:
        timer = threading.Timer(strike.seconds, os.kill, (os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM)))
        timer.daemon = True
        timer.start()
    if job.unit:
        record_calls(job.unit, folder / "units.txt")
    code = 1
    try:
        job.run(out)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except DsocrError as error:  # of a job that is no command
        print(error.render(), file=sys.stderr)
        code = 2
    except BaseException:  # noqa: BLE001 - a forked process must not go on as its parent
        traceback.print_exc()
    (folder / "changes.txt").write_text(str(changes), encoding="utf-8")
    return code


def record_calls(target: str, record: Path) -> None:
    """Write a line for each call of a function, with a hash of tensors that it is given."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    inner = getattr(owner, name)

    def recorded(*arguments: Any, **options: Any) -> Any:
        label = ""
        if target == _STEP:
            trainer, batches = arguments
            label = f"{Path(trainer.output).name if hasattr(trainer, 'output') else ''} {trainer.state.step + 1} "
            label += digest(batches)
        with record.open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"{label}\n")
        return inner(*arguments, **options)

    setattr(owner, name, recorded)


def digest(batches: Sequence[dict[str, Any]]) -> str:
    """A hash of pixels, tokens and labels."""
    whole = hashlib.sha256()
    for batch in batches:
        for name in sorted(batch):
            for value in batch[name] if isinstance(batch[name], list | tuple) else [batch[name]]:
                raw = value.numpy().tobytes() if hasattr(value, "numpy") else repr(value).encode()
                whole.update(name.encode() + raw)
    return whole.hexdigest()


class Process:
    """A job in a process of its own: forked from this one, which has imported what takes long, or a new Python."""

    def __init__(self, job: Job, out: Path, folder: Path, strike: Strike = Strike()) -> None:
        self._log = folder / "log.txt"
        environment = {"DSOCR_CACHE": str(out.parent / "cache"), MARK: "1", **SETTLED}
        if FORKS:
            self._pid = os.fork()
            if not self._pid:
                self._fork(job, out, folder, strike, environment)
        else:
            self._pid = 0
            command = [sys.executable, __file__, job.name, out, folder, strike.change, strike.seconds]
            with self._log.open("wb") as stream:
                self._started = subprocess.Popen(
                    list(map(str, command)), stdout=stream, stderr=stream, env={**os.environ, **environment}
                )

    def _fork(self, job: Job, out: Path, folder: Path, strike: Strike, environment: dict[str, str]) -> NoReturn:
        os.environ.update(environment)
        with self._log.open("wb") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        code = run_job(job, out, folder, strike)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def wait(self) -> int:
        """The exit code, negative or 15 for a kill."""
        if self._pid:
            return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._started.wait()

    @property
    def output(self) -> str:
        """What it printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")


def was_killed(code: int) -> bool:
    """Whether a process ended by its own kill."""
    return code == (-signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)


@contextlib.contextmanager
def serving(folder: Path) -> Any:
    """A process that serves a manifest."""
    server = multiprocessing.get_context("spawn").Process(target=serve_manifest, args=(folder, 6), daemon=True)
    server.start()
    try:
        while not (folder / "url.txt").is_file():
            time.sleep(0.05)
        yield
    finally:
        server.kill()
        server.join()


def draw_strike(rng: random.Random, changes: int, seconds: float) -> Strike:
    """A moment in a job: three quarters at a change of a file, a quarter at any time."""
    if rng.random() < 0.75:
        return Strike(change=rng.randint(1, max(1, changes)))
    return Strike(seconds=rng.uniform(0.05, 1.0) * seconds)


if __name__ == "__main__":
    name, place, below, at, after = sys.argv[1:]
    (chosen,) = [job for job in jobs(Path(below)) if job.name == name]
    sys.exit(run_job(chosen, Path(place), Path(below), Strike(int(at), float(after))))
