"""What a run folder contains, and the ways files get into it; knows nothing about models, data or training."""

import errno
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal, Self, TextIO
from uuid import uuid4

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from dsocr.config import migrate, problems_in
from dsocr.errors import RunError, typed
from dsocr.io.atomic import MANIFEST, find_damage, sync_folder
from dsocr.text import TextPolicy

READING = "reading.json"
"""The file with the settings to read with, in an adapter's folder."""
CALIBRATION = "calibration.json"
"""The file with what makes confidences come true, in an adapter's folder; not sealed, as another may be fitted."""

_WHICH = "give the folder that `output:` names in the config"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where everything one training leaves behind lies; nothing is made or opened by asking."""

    path: Path

    @classmethod
    def named(cls, path: Path) -> Self:
        """A run folder that is there, finished or not."""
        if not path.is_dir():
            why = "is a file, not a run folder" if path.exists() else "no such run folder"
            raise RunError(why, where=path, hint=_WHICH)
        return cls(path)

    @classmethod
    def begun(cls, path: Path) -> Self:
        """A run folder in which a training was begun."""
        run = cls.named(path)
        if not run.config.is_file():
            alone = (path / READING).is_file()
            hint = "it holds an adapter alone; give the run folder that it lies in" if alone else _WHICH
            raise RunError("is not a run folder: it has no config.yaml", where=path, hint=hint)
        return run

    @classmethod
    def open(cls, path: Path) -> Self:
        """A finished run, one that can transcribe; `adapter/` is written whole, so its presence says so."""
        run = cls.begun(path)
        if not run.adapter.is_dir():
            resume = f"run `{run.resume_command}` again to resume"
            raise RunError("is not finished: it has no adapter/", where=path, hint=resume)
        if (run.adapter / MANIFEST).exists() and (fault := find_damage(run.adapter)):
            hint = "copy adapter/ again from where it is whole, or train again with --overwrite"
            raise RunError(f"is damaged: {fault}", where=run.adapter, hint=hint)
        return run

    @classmethod
    def to_read_with(cls, path: Path) -> Self:
        """A finished run, or the folder of an adapter alone, such as an export's: enough to transcribe."""
        return cls(path) if (path / READING).is_file() else cls.open(path)

    @property
    def resume_command(self) -> str:
        """The command that goes on with this run where it was interrupted."""
        return f"dsocr train {typed(self.config.as_posix())}"

    @property
    def config(self) -> Path:
        """Every setting of the run, as `load_config` reads it."""
        return self.path / "config.yaml"

    @property
    def provenance(self) -> Path:
        """What the run was made with: versions, commit, dataset hashes, machine."""
        return self.path / "provenance.json"

    @property
    def adapter(self) -> Path:
        """The folder with the best weights and, in reading.json, how to read with them; itself of an adapter alone."""
        return self.path if (self.path / READING).is_file() else self.path / "adapter"

    @property
    def lock(self) -> Path:
        """The file that the operating system keeps locked while a training works here; its presence says nothing."""
        return self.path / ".lock"

    @property
    def checkpoints(self) -> Path:
        """The folder with the states from which training can go on."""
        return self.path / "checkpoints"

    @property
    def forecast(self) -> Path:
        """The folder with the trainings on fewer samples, and what they say about more."""
        return self.path / "forecast"

    @property
    def metrics(self) -> Path:
        """One JSON object a line for every logged step and every reading of the validation split."""
        return self.path / "metrics.jsonl"

    @property
    def log(self) -> Path:
        """What training printed."""
        return self.path / "train.log"

    @property
    def tensorboard(self) -> Path:
        """The folder with TensorBoard's event files."""
        return self.path / "tensorboard"

    @property
    def scorecard(self) -> Path:
        """What the adapter is worth beside its base."""
        return self.path / "scorecard.json"

    @property
    def lines(self) -> Path:
        """Every scored line with its predictions, one JSON object each."""
        return self.path / "lines.jsonl"

    @property
    def confidence(self) -> Path:
        """How far the adapter's confidences come true, and what checking the most doubtful lines brings."""
        return self.path / "confidence.json"

    @property
    def confidence_page(self) -> Path:
        """The same, to look at in a browser."""
        return self.path / "confidence.html"

    @property
    def report(self) -> Path:
        """The scorecard, to look at in a browser."""
        return self.path / "report.html"


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class ReadingSettings:
    """How to read with an adapter: the settings that travel with its weights, in `reading.json` beside them.

    `prompt` is the prompt itself, not its name. `generation` holds the keys of the configuration's section.
    `unit` is what the images showed that were learnt from; runs from before it was written down are taken to have
    learnt lines.
    """

    base: str
    base_revision: str | None
    prompt: str
    resolution: str
    text_policy: TextPolicy
    generation: dict[str, Any]
    unit: Literal["line", "region", "page"] = "line"

    @classmethod
    def load(cls, adapter: Path) -> Self:
        """The settings that lie in an adapter's folder; a key too many or too few is an error."""
        path = adapter / READING
        try:
            return cls.from_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            hint = "give the adapter/ folder of a run, whole"
            raise RunError("no such file", where=path, hint=hint) from error
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"cannot be read: {error}", where=path) from error
        except RunError as error:
            raise RunError(error.message, where=path, hint=error.hint) from error

    def save(self, adapter: Path) -> None:
        """Lay the settings into an adapter's folder."""
        write_atomically(adapter / READING, self.to_json())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The settings that `to_json` wrote."""
        try:
            return TypeAdapter(cls).validate_python(_migrated(json.loads(text)))
        except json.JSONDecodeError as error:
            raise RunError(f"is not JSON: {error}") from error
        except ValidationError as error:
            raise RunError("; ".join(problems_in(error, _READING_KEYS))) from error

    def to_json(self) -> str:
        """The settings as an indented JSON object."""
        return to_json(asdict(self))


def _migrated(settings: Any) -> Any:
    """The settings with today's keys, where an earlier version wrote them."""
    if not isinstance(settings, dict):
        return settings
    if isinstance(settings.get("generation"), dict):
        migrate(settings["generation"], "generation")
    lines = settings.get("lines_per_sheet", 1)
    if lines != 1:
        raise RunError(
            f"lines_per_sheet is {lines}: adapters that read several lines on one canvas are not supported any more",
            hint="train again with this version, or read with the version that trained it",
        )
    return {key: value for key, value in settings.items() if key != "lines_per_sheet"}


_READING_KEYS = [field.name for field in fields(ReadingSettings)]
_READING_KEYS += [f"text_policy.{field.name}" for field in fields(TextPolicy)]


def to_json(value: object) -> str:
    """Indented JSON for people and programs: letters stay letters, and NaN or infinity is a bug of ours."""
    return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


@contextmanager
def writing_whole(path: Path) -> Iterator[TextIO]:
    """A UTF-8 file to write to, which takes its place when all of it is written, and leaves no trace if not."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a UTF-8 file that is either the old one or, whole, the new one, whatever happens meanwhile."""
    with writing_whole(path) as file:
        file.write(text)


@contextmanager
def writing_folder(out: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of `out` when all of it is written, and leaves no trace if not."""
    out, token = out.resolve(), uuid4().hex[:8]
    draft, former = (out.with_name(f".{out.name}.{what}-{token}") for what in ("draft", "former"))
    draft.mkdir(parents=True)
    try:
        yield draft
        if out.exists():
            out.rename(former)
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if former.exists() and not out.exists():
            former.rename(out)
    shutil.rmtree(former, ignore_errors=True)


def append_jsonl(path: Path, row: Mapping[str, object]) -> None:
    """Add one object to a file of JSON lines, whole and forced to the disk, or nothing of it.

    A number that is not finite, such as a lost loss, becomes null.
    """
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()
    }
    line = (json.dumps(finite, ensure_ascii=False, allow_nan=False) + "\n").encode()
    with path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            if file.write(line) < len(line):  # what fits is written, and the next call would say why
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(file.fileno())
        except OSError:
            file.truncate(before)
            raise


def cut_back(path: Path, step: int) -> bool:
    """Drop rows after a step, and an incomplete last line, from a file of JSON lines; True for an incomplete one."""
    if not path.is_file():
        return False
    lines = path.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if _is_until(line, step)]
    if kept != lines:
        write_atomically(path, b"".join(kept).decode("utf-8"))
    return bool(lines) and not lines[-1].endswith(b"\n")


def _is_until(line: bytes, step: int) -> bool:
    """True of a whole row that is of this step, of an earlier one, or of none."""
    try:
        return line.endswith(b"\n") and int(json.loads(line).get("step", 0)) <= step
    except (ValueError, TypeError, AttributeError):
        return False
