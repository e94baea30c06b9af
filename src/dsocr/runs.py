"""The run folder: its files, how they are written, and the metrics recorded in it."""

import errno
import hashlib
import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, TypeAdapter, ValidationError

from dsocr.config import GenerationSection, problems_in
from dsocr.errors import FilesWarning, RunError, command, option, setting, typed
from dsocr.io.encodings import read_object
from dsocr.io.hub import fetch_model, is_hub_id, snapshot_name
from dsocr.io.kraken import as_checkpoint
from dsocr.io.work import MANIFEST, hash_file, list_damage, write_file
from dsocr.text import TextPolicy, percentage

READING = "reading.json"
"""File with the settings to read with, in an adapter folder."""
CALIBRATION = "calibration.json"
"""File with the calibration of confidences, in an adapter folder."""

_WHICH = "give the folder that `output:` names in the config"

SHIPPED_BASES = Path(__file__).parent / "models" / "bases"
"""A folder for each base that ships with the package, by its name."""

DETECTOR = "detector"
"""Name of the text detector that ships with the package, as a base to train."""
SHIPPED_DETECTOR = Path(__file__).parent / "models" / DETECTOR

_NETWORK = "config.json"
"""The file that describes the network of a checkpoint."""
_DETECTOR_TYPE = "pp_ocrv6_small_det"


class _Entry:
    """A file or folder of a run, as an attribute that returns its path."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: "RunFolder", owner: object) -> Path:
        return run.path / self._name


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of one run; asking for them opens and creates nothing."""

    path: Path

    config = _Entry("config.yaml")
    """Every setting of the run; `load_run_config` reads it."""
    provenance = _Entry("provenance.json")
    """Versions, commit, dataset hashes and machine of the run."""
    lock = _Entry(".lock")
    """File that is locked while a training runs here; it may exist without one."""
    checkpoints = _Entry("checkpoints")
    """Folder of checkpoints."""
    features = _Entry(".features.tmp")
    """Folder of the cached features of frozen vision towers, while a training runs here."""
    forecast = _Entry("forecast")
    """Folder of the runs on fewer samples and their forecast."""
    folds = _Entry("folds")
    """Folder of the runs that each leave a fold out, and their scores."""
    unlabelled = _Entry("unlabelled")
    """Folder of the readings of unlabelled scans, and of the two runs made with and without them."""
    metrics = _Entry("metrics.jsonl")
    """JSON lines, one for every logged step and every validation."""
    log = _Entry("train.log")
    """Messages of the training."""
    tensorboard = _Entry("tensorboard")
    """Folder of TensorBoard's event files."""
    scorecard = _Entry("scorecard.json")
    """Scores of the adapter and its base."""
    layout = _Entry("layout.json")
    """How many lines a detector finds."""
    lines = _Entry("lines.jsonl")
    """JSON lines, one for every scored line with its predictions."""
    confidence = _Entry("confidence.json")
    """Calibration of the confidences, and the gain of checking the least certain lines."""
    report = _Entry("report.html")
    """The report of the evaluation as a page."""

    @property
    def adapter(self) -> Path:
        """Folder of the best weights with reading.json: `adapter/`, or `model/` if all weights were trained.

        Of such a folder, and of a base, the folder itself.
        """
        if (self.path / READING).is_file() or self.is_base:
            return self.path
        whole = self.path / "model"
        return whole if whole.is_dir() else self.path / "adapter"

    @property
    def has_begun(self) -> bool:
        """Whether there is a checkpoint, or a first training of a run that learns from unlabelled scans too."""
        first = RunFolder(self.unlabelled / "first")
        folders = (self.checkpoints, first.checkpoints)
        return first.adapter.is_dir() or any(next(folder.glob("step-*"), None) for folder in folders)

    @property
    def is_base(self) -> bool:
        """Whether this is an untrained checkpoint without settings to read with."""
        return (self.path / _NETWORK).is_file() and not any(
            (self.path / name).exists() for name in (READING, MANIFEST, "config.yaml")
        )

    @property
    def reads_as_base(self) -> bool:
        """Whether nothing was trained here: a base, with or without settings to read with."""
        if self.is_base:
            return True
        base = Path(ReadingSettings.load(self.adapter).base)
        return not self.config.is_file() and self.path in (SHIPPED_BASES / base.name, base)

    @property
    def is_detector(self) -> bool:
        """Whether this run is a detector, which finds lines and reads none."""
        return read_object(self.adapter / _NETWORK).get("model_type") == _DETECTOR_TYPE

    @property
    def name(self) -> str:
        """The name of the folder, for `adapter/` that of its run; of a base from the Hub, that of its repository."""
        cached, path = snapshot_name(self.path), self.path.resolve()
        return cached[0].rpartition("/")[2] if cached else path.parent.name if path.name == "adapter" else path.name

    @property
    def resume_command(self) -> str:
        """The command that resumes this run."""
        return f"dsocr train {typed(self.config.as_posix())}"

    @classmethod
    def named(cls, path: Path) -> Self:
        """Return a run folder that exists, finished or not."""
        if not path.is_dir():
            if _shipped(path):
                raise _untrained(path)
            why = "is a file, not a run folder" if path.exists() else "no such run folder"
            raise RunError(why, code="run-not-found", where=path, hint=_WHICH)
        return cls(path)

    @classmethod
    def begun(cls, path: Path) -> Self:
        """Return the folder of a run that was started."""
        run = cls.named(path)
        if not run.config.is_file():
            if run.is_base:
                raise _untrained(path)
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
            raise RunError(
                "is not finished: it has no trained weights yet", code="run-unfinished", where=path, hint=resume
            )
        require_intact(run.adapter)
        return run

    @classmethod
    def open_reader(cls, path: Path) -> Self:
        """Return a finished run that reads. Raises RunError for a detector too."""
        run = cls.open(path)
        if run.is_detector:
            lines = option("segmenter", path.as_posix())
            hint = f"give a reader to read, and this run as {lines}; score it with {option('layout')} of evaluate"
            raise RunError("finds lines and reads none", code="run-is-detector", where=path, hint=hint)
        return run

    @classmethod
    def to_find_lines_with(cls, path: Path) -> Path:
        """Return the folder of a text detector's weights: of a finished run, or the shipped one by its name.

        Raises RunError for a run that is missing, unfinished or damaged, or reads lines instead of finding them.
        """
        if path.as_posix() == DETECTOR:
            return SHIPPED_DETECTOR
        run = cls.open(path)
        if not run.is_detector:
            hint = f"give a run that trained with {setting('base', DETECTOR)} on a dataset of layouts"
            raise RunError("is a reader, which finds no lines", code="run-is-reader", where=path, hint=hint)
        return run.adapter

    @staticmethod
    def may_read(path: Path) -> bool:
        """Whether a path may be a run, an adapter or a base rather than scans, as may a missing one but an address."""
        if not path.exists():
            return ":" not in str(path)
        return any((path / name).exists() for name in ("config.yaml", READING, _NETWORK)) or as_checkpoint(path) != path

    @classmethod
    def to_read_with(cls, path: Path, revision: str | None = None) -> Self:
        """Return a reader: a finished run, an adapter folder such as an export's, or a base.

        A base has a name, folder or Hub id with a `revision`. Raises RunError, or ModelError for an unknown Hub id.
        """
        if not path.exists():
            if _shipped(path):
                return cls(SHIPPED_BASES / path.name)
            if is_hub_id(path.as_posix()) and not _is_among_runs(path):
                path = fetch_model(path.as_posix(), revision)[0]
        elif not (path / "config.yaml").exists() and not (path / READING).exists():
            path = as_checkpoint(path)
        if cls(path).is_base:
            return cls(path)
        if not (path / READING).is_file():
            return cls.open_reader(path)
        if (path / MANIFEST).exists():
            require_intact(path)
        elif path.resolve().parent != SHIPPED_BASES.resolve():
            warnings.warn(
                f"{path} has no {MANIFEST}, so damage to its files would not be noticed", FilesWarning, stacklevel=2
            )
        return cls(path)


def is_detector_base(base: str) -> bool:
    """Whether a base finds lines: the shipped detector, or a run trained from it."""
    return base == DETECTOR or RunFolder(Path(base)).is_detector


def _shipped(path: Path) -> bool:
    return len(path.parts) == 1 and (SHIPPED_BASES / path.name / _NETWORK).is_file()


def _is_among_runs(path: Path) -> bool:
    """Whether `owner/name` is a run that is missing rather than a Hub id: others are beside it, or would be."""
    return path.parent.name == "runs" or any(path.parent.glob("*/config.yaml"))


def _untrained(path: Path) -> RunError:
    score = command("evaluate", path.as_posix(), dataset="DATASET")
    hint = f"give a run folder; {score} scores the base, into a folder that can be reported and compared"
    return RunError("is a base, on which nothing was trained", code="run-is-base", where=path, hint=hint)


def require_intact(adapter: Path) -> None:
    """Raise RunError unless the files of a folder are as its manifest says; the settings to read with may be edited."""
    for name, fault in list_damage(adapter):
        if name != READING:
            hint = f"copy {adapter.name}/ again from an intact copy, or train again with {option('overwrite')}"
            raise RunError(f"is damaged: {fault}", code="adapter-damaged", where=adapter, hint=hint)
        warnings.warn(
            f"{adapter / READING} was changed since training, so texts may differ", FilesWarning, stacklevel=3
        )


@dataclass(frozen=True, slots=True)
class ReadingSettings:
    """The settings to read with, kept beside an adapter's weights in `reading.json`.

    `prompt` is the prompt itself, not its name. `generation` holds the keys of the configuration's section.
    `resolution` None is the base's own, and `unit` what training images showed, of regions at most `lines_per_region`.
    `precision` is `training.precision`, in which the network is read where the device can.
    """

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}

    base: str
    base_revision: str | None
    prompt: str
    resolution: str | None
    text_policy: TextPolicy
    generation: dict[str, Any]
    unit: Literal["line", "region", "page"] = "line"
    lines_per_region: int | None = None
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto"

    @classmethod
    def load(cls, adapter: Path) -> Self:
        """Read the settings in an adapter folder, or the defaults of a base. RunError for missing or unknown keys."""
        if RunFolder(adapter).is_base:
            name = adapter.name if adapter.parent == SHIPPED_BASES else adapter.as_posix()
            base, revision = snapshot_name(adapter) or (name, None)
            return cls(base, revision, "free_ocr", None, TextPolicy(), {})
        path, known = adapter / READING, [field.name for field in fields(cls)]
        known += [f"text_policy.{key.name}" for key in fields(TextPolicy)]
        known += [f"generation.{key}" for key in GenerationSection.model_fields]
        try:
            loaded = TypeAdapter(cls).validate_json(path.read_bytes())
            generation = _GENERATION.validate_python({"generation": loaded.generation})["generation"]
        except OSError as error:
            hint = "give the complete adapter/ folder of a run"
            raise RunError(f"cannot be read: {error}", code="reading-invalid", where=path, hint=hint) from error
        except ValidationError as error:
            raise RunError("; ".join(problems_in(error, known)), code="reading-invalid", where=path) from error
        return replace(loaded, generation=generation.model_dump(mode="json", exclude_unset=True))

    def save(self, adapter: Path) -> None:
        """Write the settings into an adapter folder."""
        write_file(adapter / READING, self.to_json())

    def to_json(self) -> str:
        """Return the settings as indented JSON."""
        return to_json(asdict(self))


_GENERATION = TypeAdapter(dict[Literal["generation"], GenerationSection])


@dataclass(frozen=True, slots=True)
class UnlabelledReport:
    """Training on readings of unlabelled scans, as the provenance of a run keeps it.

    Numbers of lines: `read`, the most confident ones `shown` in a second run beside the `transcribed` lines, and
    `learnt` by the final run (all shown lines or none). Skipped were `held_out` pages and lines of the validation and
    test splits, `known` ones of the train split, and `failed` ones. `confidence` is the mean of its own readings.
    `teachers` counts the shown lines whose texts came with the scans, by source. `before` and `after` are the
    validation CERs without and with the readings; None without a second run, for the reason in `refused`.
    """

    read: int
    shown: int
    learnt: int
    transcribed: int
    held_out: int = 0
    known: int = 0
    failed: int = 0
    confidence: float | None = None
    before: float | None = None
    after: float | None = None
    refused: str = ""
    teachers: Mapping[str, int] = field(default_factory=dict)

    def describe(self) -> str:
        """Return the outcome in a sentence."""
        sources = {**self.teachers, "own": self.shown - sum(self.teachers.values())}
        counts = ", ".join(f"{source}: {count:,}" for source, count in sources.items() if count)
        readings = f"{self.shown:,} readings ({counts})" if self.teachers else f"{self.shown:,} own readings"
        read = f"{self.read:,} unlabelled lines were read"
        if self.held_out:
            read += f" ({self.held_out:,} images of the validation and the test split were skipped)"
        if self.learnt and not self.transcribed:
            sure = "" if self.confidence is None else f", with a mean confidence of {percentage(self.confidence, 0)}"
            return f"Learnt {readings} and no transcribed line, so nothing tells how well it reads: {read}{sure}."
        if self.before is None or self.after is None:
            return f"Nothing was learnt from the unlabelled scans: {self.refused}; {read}."
        rates = f"validation CER {percentage(self.after)} with them, {percentage(self.before)} without"
        shown = f"{readings} beside {self.transcribed:,} transcribed lines"
        if self.learnt:
            return f"Learnt {shown}: {rates}; {read}."
        return f"The readings did not help, so the run is the one without them: {rates} ({shown}); {read}."

    @classmethod
    def of(cls, provenance: Mapping[str, Any]) -> Self | None:
        """Return the report in the provenance of a run; None for a run without unlabelled scans."""
        known = provenance.get("unlabelled")
        return None if known is None else TypeAdapter(cls).validate_python(known)


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The result of a training run.

    `best_step` and `best_cer` are None without a validation split, `unlabelled` without unlabelled scans.
    `calibrated_on` validation lines calibrated the confidences. A detector has the F1 of its lines instead of a CER.
    """

    run: RunFolder
    steps: int
    best_step: int | None
    seconds: float
    excluded: int = 0
    resumed_from: int = 0
    best_cer: float | None = None
    best_f1: float | None = None
    calibrated_on: int = 0
    unlabelled: UnlabelledReport | None = None


class _Ancestor(BaseModel):
    run: str
    base: str
    sha256: dict[str, str]


class _Provenance(BaseModel):
    begun_at: str | None = None
    dsocr_version: str | None = None
    base: str | None = None
    base_revision: str | None = None
    started_from: list[_Ancestor] = []
    dataset: dict[str, str] = {}
    dataset_source: str | None = None
    unlabelled: UnlabelledReport | None = None
    packages: dict[str, str] = {}
    machine: str | None = None
    device: str | None = None


def read_provenance(run: RunFolder) -> dict[str, Any]:
    """Return the provenance of a run; empty if there is none. Raises RunError for a damaged file."""
    try:
        content: dict[str, Any] = TypeAdapter(dict[str, Any]).validate_json(run.provenance.read_bytes())
        _Provenance.model_validate(content)
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        hint = "restore it from a backup, or delete it: the run then has no known origin"
        raise RunError(
            "; ".join(problems_in(error)), code="provenance-unreadable", where=run.provenance, hint=hint
        ) from error
    return content


def adapter_digest(adapter: Path) -> str:
    """Hash the adapter; a manifest, if there is one, covers all files but settings that were edited."""
    digest = hashlib.sha256()
    files = sorted(path for path in adapter.iterdir() if path.is_file())
    if (adapter / MANIFEST).exists():
        files = [path for path in files if path.name in (READING, MANIFEST)]
    for path in files:
        digest.update(bytes.fromhex(hash_file(path)))
    return digest.hexdigest()[:16]


def to_json(value: object) -> str:
    """Return indented JSON; letters stay letters. Raises ValueError for NaN or infinity."""
    return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


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
        write_file(path, b"".join(kept).decode("utf-8"))
    return bool(lines) and not lines[-1].endswith(b"\n")


def _is_until(line: bytes, step: int) -> bool:
    """Whether a row is complete and not after the step."""
    try:
        return line.endswith(b"\n") and int(json.loads(line).get("step", 0)) <= step
    except (ValueError, TypeError, AttributeError):
        return False


Row = dict[str, float]


@dataclass(frozen=True, slots=True)
class History:
    """The recorded rows of training steps and of validations, each in the order of steps."""

    training: Sequence[Row]
    validation: Sequence[Row]

    @property
    def best(self) -> Row | None:
        """The validation with the lowest CER, the first of equal ones."""
        scored = [row for row in self.validation if row.get("cer") is not None]
        return min(scored, key=lambda row: row["cer"], default=None)


def read_history(folder: Path) -> History:
    """Read the metrics of a run folder.

    A resumed run has recorded some steps twice: the later row counts. An incomplete last line is ignored. Raises
    RunError for a missing or invalid file, or one without training steps.
    """
    path = RunFolder.named(folder).metrics
    if not path.is_file():
        hint = "give a run folder whose training has started"
        raise RunError("has no metrics.jsonl", code="metrics-missing", where=folder, hint=hint)
    training, validation = _read_rows(path)
    if not training:
        raise RunError("has no training steps", code="metrics-missing", where=path)
    return History(training, validation)


def elapsed_until(run: RunFolder, step: int) -> float:
    """Return the seconds that a run had trained at its last recorded step up to `step`, 0 without one."""
    if not step or not run.metrics.is_file():
        return 0.0
    training, _ = _read_rows(run.metrics)
    return max((row.get("elapsed_seconds") or 0.0 for row in training if row["step"] <= step), default=0.0)


def _read_rows(path: Path) -> tuple[list[Row], list[Row]]:
    rows: dict[tuple[str, int], Row] = {}
    content = path.read_text(encoding="utf-8", errors="replace")
    lines = content.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if any(not isinstance(value, int | float | None) for name, value in row.items() if name != "kind"):
                raise ValueError("a value is no number")
            rows[str(row["kind"]), int(row["step"])] = row
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number < len(lines) or content.endswith("\n"):
                raise RunError("not a row of metrics", code="metrics-invalid", where=f"{path}:{number}") from error
    training, validation = ([rows[key] for key in sorted(rows) if key[0] == kind] for kind in ("train", "validation"))
    return training, validation
