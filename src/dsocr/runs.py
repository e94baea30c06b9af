"""The run folder: its files, and how they are written."""

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
"""File with the settings to read with, in an adapter folder."""
CALIBRATION = "calibration.json"
"""File with the calibration of confidences, in an adapter folder; not in the manifest, as it may be fitted again."""

_WHICH = "give the folder that `output:` names in the config"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of one run; asking for them opens and creates nothing."""

    path: Path

    @classmethod
    def named(cls, path: Path) -> Self:
        """Return a run folder that exists, finished or not."""
        if not path.is_dir():
            why = "is a file, not a run folder" if path.exists() else "no such run folder"
            raise RunError(why, code="run-not-found", where=path, hint=_WHICH)
        return cls(path)

    @classmethod
    def begun(cls, path: Path) -> Self:
        """Return a run folder in which a training was started."""
        run = cls.named(path)
        if not run.config.is_file():
            alone = (path / READING).is_file()
            hint = "it holds only an adapter; give the run folder around it" if alone else _WHICH
            raise RunError("is not a run folder: it has no config.yaml", code="not-a-run", where=path, hint=hint)
        return run

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return a finished run; `adapter/` is written atomically, so a run that has one is finished."""
        run = cls.begun(path)
        if not run.adapter.is_dir():
            resume = f"run `{run.resume_command}` again to resume"
            raise RunError("is not finished: it has no adapter/", code="run-unfinished", where=path, hint=resume)
        if (run.adapter / MANIFEST).exists() and (fault := find_damage(run.adapter)):
            hint = "copy adapter/ again from an intact copy, or train again with --overwrite"
            raise RunError(f"is damaged: {fault}", code="adapter-damaged", where=run.adapter, hint=hint)
        return run

    @classmethod
    def to_read_with(cls, path: Path) -> Self:
        """Return a finished run, or an adapter folder such as an export's: enough to transcribe."""
        return cls(path) if (path / READING).is_file() else cls.open(path)

    @property
    def resume_command(self) -> str:
        """The command that resumes this run."""
        return f"dsocr train {typed(self.config.as_posix())}"

    @property
    def config(self) -> Path:
        """Every setting of the run; `load_run_config` reads it."""
        return self.path / "config.yaml"

    @property
    def provenance(self) -> Path:
        """Versions, commit, dataset hashes and machine of the run."""
        return self.path / "provenance.json"

    @property
    def adapter(self) -> Path:
        """Folder of the best weights with reading.json; of an adapter folder, the folder itself."""
        return self.path if (self.path / READING).is_file() else self.path / "adapter"

    @property
    def lock(self) -> Path:
        """File that is locked while a training runs here; it may exist without one."""
        return self.path / ".lock"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def forecast(self) -> Path:
        """Folder of the trainings on fewer samples and the forecast made from them."""
        return self.path / "forecast"

    @property
    def metrics(self) -> Path:
        """JSON lines, one for every logged step and every validation."""
        return self.path / "metrics.jsonl"

    @property
    def log(self) -> Path:
        """Messages of the training."""
        return self.path / "train.log"

    @property
    def tensorboard(self) -> Path:
        """Folder of TensorBoard's event files."""
        return self.path / "tensorboard"

    @property
    def scorecard(self) -> Path:
        """Scores of the adapter and its base."""
        return self.path / "scorecard.json"

    @property
    def lines(self) -> Path:
        """JSON lines, one for every scored line with its predictions."""
        return self.path / "lines.jsonl"

    @property
    def confidence(self) -> Path:
        """Calibration of the confidences, and the gain of checking the least certain lines."""
        return self.path / "confidence.json"

    @property
    def confidence_page(self) -> Path:
        """The same as a page."""
        return self.path / "confidence.html"

    @property
    def report(self) -> Path:
        """The report of the evaluation as a page."""
        return self.path / "report.html"


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class ReadingSettings:
    """The settings to read with, kept beside an adapter's weights in `reading.json`.

    `prompt` is the prompt itself, not its name. `generation` holds the keys of the configuration's section.
    `unit` is what training images showed; earlier runs did not record it and learnt lines.
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
        """Read the settings in an adapter folder. Raises RunError for missing or unknown keys."""
        path = adapter / READING
        try:
            return cls.from_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            hint = "give the complete adapter/ folder of a run"
            raise RunError("no such file", code="reading-missing", where=path, hint=hint) from error
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"cannot be read: {error}", code="reading-unreadable", where=path) from error
        except RunError as error:
            raise RunError(error.message, code=error.code, where=path, hint=error.hint) from error

    def save(self, adapter: Path) -> None:
        """Write the settings into an adapter folder."""
        write_atomically(adapter / READING, self.to_json())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse what `to_json` returned."""
        try:
            return TypeAdapter(cls).validate_python(_migrated(json.loads(text)))
        except json.JSONDecodeError as error:
            raise RunError(f"is not JSON: {error}", code="reading-invalid") from error
        except ValidationError as error:
            raise RunError("; ".join(problems_in(error, _READING_KEYS)), code="reading-invalid") from error

    def to_json(self) -> str:
        """Return the settings as indented JSON."""
        return to_json(asdict(self))


def _migrated(settings: Any) -> Any:
    """Rename the keys of settings that an earlier version wrote."""
    if not isinstance(settings, dict):
        return settings
    if isinstance(settings.get("generation"), dict):
        migrate(settings["generation"], "generation")
    lines = settings.get("lines_per_sheet", 1)  # dialect: key of an old file
    if lines != 1:
        raise RunError(
            f"Adapters that read several lines on one canvas are no longer supported; this one reads {lines}.",
            code="reading-unsupported",
            hint="train again with this version, or read with the version that trained it",
        )
    return {key: value for key, value in settings.items() if key != "lines_per_sheet"}  # dialect: key of an old file


_READING_KEYS = [field.name for field in fields(ReadingSettings)]
_READING_KEYS += [f"text_policy.{field.name}" for field in fields(TextPolicy)]


def to_json(value: object) -> str:
    """Return indented JSON; letters stay letters. Raises ValueError for NaN or infinity."""
    return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


@contextmanager
def writing_whole(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 file that replaces `path` once it is complete; an error leaves no trace."""
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
    """Write a UTF-8 file atomically: a crash leaves the old content or the new."""
    with writing_whole(path) as file:
        file.write(text)


@contextmanager
def writing_folder(out: Path) -> Iterator[Path]:
    """Create a folder that replaces `out` once it is complete; an error leaves no trace."""
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
    """Append one object to a file of JSON lines, synced to disk, or nothing.

    Numbers that are not finite become null.
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
    """Whether a row is complete and not after the step."""
    try:
        return line.endswith(b"\n") and int(json.loads(line).get("step", 0)) <= step
    except (ValueError, TypeError, AttributeError):
        return False
