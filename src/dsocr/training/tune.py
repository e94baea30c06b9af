"""Choose settings: train with several, stop the worse ones early, and tell whether the best is better than chance.

Optuna proposes the settings of a trial from the trials before it, and stops one that is not among the best third after
a ninth or after a third of its validations (successive halving, Jamieson and Talwalkar 2016). The first trial has the
settings of the configuration. At the end these and the best are trained again with other seeds. Only the validation
split is read.

`trials.jsonl` in `tune/` of the run folder has a row for each finished trial. What Optuna proposes depends on these
rows and the number of the trial alone, and a trial is a run that resumes, so a search that was killed goes on to the
same result.
"""

import gc
import json
import math
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from dsocr.config import RunConfig, config_keys, expand_keys, load_config
from dsocr.data.dataset import Dataset, training_samples
from dsocr.document import Split
from dsocr.errors import ConfigError, DsocrError, RunError, command, option, setting
from dsocr.evaluation.report.result_pages import write_tuning
from dsocr.evaluation.tuning import Trial, TuneResult, Value
from dsocr.io.processes import available_cores, worker_processes
from dsocr.io.work import remove_drafts, write_file
from dsocr.models.family import Family, trains_all_weights
from dsocr.runs import RunFolder, append_jsonl, cut_back, elapsed_until, read_validations, to_json
from dsocr.training.callbacks import TrainingProgress
from dsocr.training.lifecycle import is_trained, pin_base
from dsocr.training.many_runs import ManyProgress, drop_weights, require_one_process
from dsocr.training.samples import total_steps
from dsocr.training.train import train

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study

Sampler = Literal["tpe", "random"]
BEST = "best.yaml"
_TRIALS, _ABOUT = "trials.jsonl", "tune.json"
_FIXED = ("base", "base_revision", "dataset", "fold", "output", "seed", "validation", "guard", "checkpoints")
"""Keys and sections that say what is trained, where, and how it is judged."""
_REDUCTION = 3
"""One in so many trials goes on after a rung."""
_TRIALS_AT_RANDOM = 6
"""Trials before the first whose settings are chosen by those before it."""
_LARGE_RANGE = 8
"""Ratio of its ends from which a range is searched by logarithms."""


@dataclass(frozen=True, slots=True)
class SearchRange:
    """What is tried for one key of the configuration: `choices`, or numbers from `low` to `high`."""

    key: str
    choices: tuple[Value, ...] = ()
    low: float = 0
    high: float = 0

    @classmethod
    def parse(cls, text: str) -> "SearchRange":
        """Read `KEY=LOW..HIGH` or `KEY=A,B,C`, where a key may be short, as `learning_rate`. Raises ConfigError."""
        name, _, values = (part.strip() for part in text.partition("="))
        try:
            (key,) = expand_keys({name: None})
            if key not in config_keys() or key.partition(".")[0] in _FIXED:
                raise ValueError(f"{name} is no setting that can be searched")
            if ".." in values:
                low, high = (_number(end) for end in values.split(".."))
                if low >= high:
                    raise ValueError("the first number must be lower than the second")
                return cls(key, low=low, high=high)
            choices = tuple(yaml.safe_load(f"[{values}]"))
            if len(choices) < 2 or any(isinstance(choice, list | dict) for choice in choices):
                raise ValueError("two values or more are needed")
            return cls(key, choices)
        except (ValueError, yaml.YAMLError) as error:
            hint = "give for example learning_rate=1e-4..2e-3, epochs=1..5 or r=8,16,32"
            raise ConfigError(f"Cannot search {text!r}: {error}", code="tune-range", hint=hint) from error

    def distribution(self) -> "BaseDistribution":
        """Return it as Optuna's; of whole numbers if both ends are."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.choices:
            return CategoricalDistribution(self.choices)
        by_logarithm = self.low > 0 and self.high / self.low >= _LARGE_RANGE
        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, log=by_logarithm)
        return FloatDistribution(self.low, self.high, log=by_logarithm)

    def contains(self, value: object) -> bool:
        """Whether a value could be tried."""
        if self.choices:
            return value in self.choices
        return isinstance(value, int | float) and self.low <= value <= self.high


def _number(text: str) -> float:
    """Return the number in a text, an int if it is one. Raises ValueError."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number")
    return number


def default_ranges(config: RunConfig, family: Family) -> list[SearchRange]:
    """Return what is searched by default, around the settings of a configuration with a learning rate."""
    rate = config.training.learning_rate
    assert rate is not None, "pin_base gives every configuration a learning rate"
    ranges = [
        SearchRange("training.learning_rate", low=rate / 4, high=rate * 4),
        SearchRange("training.augmentation", ("none", "light", "medium")),
    ]
    if not trains_all_weights(family, config.adapter.target):
        ranges.append(SearchRange("adapter.r", tuple(sorted({8, 16, 32, config.adapter.r}))))
    return ranges


@dataclass(frozen=True, slots=True)
class _Job:
    """One trial to be trained, with what it needs to know of the search: it may run in another process.

    `earlier` are the trials that its settings are chosen by; `repeats` has those of another trial instead. `given` are
    the settings that a trial changes; what nobody gave follows them, as the trunk's rate the learning rate.
    """

    config: RunConfig
    given: Mapping[str, Any]
    ranges: tuple[SearchRange, ...]
    sampler: Sampler
    prune: bool
    number: int
    output: Path
    validations: int
    earlier: tuple[Trial, ...] = ()
    repeats: Trial | None = None
    threads: int | None = None


_OF_THE_MACHINE = frozenset({"disk-full", "write-failed", "path-too-long"})
"""Codes of errors that say nothing of a trial's settings: the search ends, and resumes when they are solved."""


class _Stopped(Exception):  # noqa: N818 - not an error
    """Ends a training that is not among the best."""


def tune(
    config: RunConfig,
    *,
    search: Sequence[str] = (),
    trials: int = 20,
    seeds: int = 3,
    minutes: float | None = None,
    sampler: Sampler = "tpe",
    prune: bool = True,
    workers: int = 1,
    overwrite: bool = False,
    progress: ManyProgress | None = None,
    on_trial: Callable[[Trial], None] | None = None,
) -> TuneResult:
    """Search settings by validation CER, then train the best and the configuration's with `seeds` other seeds each.

    `search` has texts such as `learning_rate=1e-4..2e-3` and `r=8,16,32`. By default the learning rate is searched
    between a quarter and four times the configuration's, with the augmentation and, of an adapter, the rank. No trial
    begins after `minutes` of training. `workers` trials are trained at once, each in a process of its own and knowing
    those that ended as many trials before, so the result does not depend on which is faster. Writes `trials.jsonl`,
    `tune.json`, `tune.html`, `tune.png` and `best.yaml` into `tune/` of the run folder, and keeps the weights of the
    best trial alone.

    Raises ConfigError for invalid ranges, without Optuna or a validation split, and if several processes were launched;
    RunError if the folder has another search or the first trial fails.
    """
    if find_spec("optuna") is None:
        message = "Searching settings needs Optuna"
        raise ConfigError(message, code="package-missing", hint="pip install 'dsocr-hw[tune]'")
    require_one_process(f"start {command('tune')} itself; {option('workers', ...)} trains several trials at once")
    dataset = Dataset.open(config.dataset, fold=config.fold)
    if not dataset.samples(Split.VALIDATION):
        message = "Settings are chosen on the validation split, which this dataset lacks"
        hint = "prepare it with more writers, documents or pages"
        raise ConfigError(message, code="tune-without-validation", where=config.dataset, hint=hint)
    asked, (config, base) = config, pin_base(config, None)
    given = {**asked.given(), "base_revision": config.base_revision}
    ranges = tuple(SearchRange.parse(text) for text in search) or tuple(default_ranges(config, base.family))
    if len({setting.key for setting in ranges}) < len(ranges):
        raise ConfigError(
            "A setting is searched twice", code="tune-range", hint=f"give {option('search', ...)} once for each"
        )
    folder = RunFolder(config.output).tune
    about = {
        "config": config.model_dump(mode="json"),
        "search": [asdict(setting) for setting in ranges],
        "sampler": sampler,
        "prune": prune,
        "workers": workers,
        "dataset": dataset.card.hashes,
    }
    done = _open_folder(folder, config, about, overwrite=overwrite)
    steps = total_steps(config, len(training_samples(dataset, config)))
    first = _Job(
        config,
        given,
        ranges,
        sampler,
        prune,
        0,
        folder / "trials" / "0000",
        validations=max(1, steps // config.validation.every_steps),
        threads=max(1, available_cores() // workers) if workers > 1 else None,
    )
    total = steps * (trials + 2 * seeds)

    def run_all(jobs: Sequence[_Job]) -> None:
        for trial in _results(jobs, done, workers, minutes, watch):
            if trial.state == "failed" and trial.number == 0:
                raise RunError(f"The first trial failed: {trial.error}", code="tune-failed", where=folder)
            append_jsonl(folder / _TRIALS, asdict(trial))
            done.append(trial)
            _drop_weights(folder, done)
            if on_trial is not None:
                on_trial(trial)
            if progress is not None:
                progress(steps * len(done), total, f"{len(done)} trainings done")

    def watch(current: TrainingProgress) -> None:
        best = TuneResult([trial for trial in done if trial.repeats is None]).best
        note = f"training {len(done) + 1}" + ("" if best is None else f", best CER {100 * (best.cer or 0):.2f} %")
        if progress is not None:
            progress(steps * len(done) + current.step, total, note)

    run_all([replace(first, number=n, output=first.output.with_name(_folder_name(n))) for n in range(trials)])
    searched = [trial for trial in done if trial.repeats is None][:trials]
    best = TuneResult(searched).best
    repeat_seeds = range(config.seed + 1, config.seed + seeds + 1)
    if best is not None and best.number:
        pairs = [(trial, seed) for seed in repeat_seeds for trial in (searched[0], best)]
        run_all([_repeat(first, trial, seed, len(searched) + place) for place, (trial, seed) in enumerate(pairs)])
    repeats = [trial for trial in done if trial.repeats is not None and trial.seed in repeat_seeds]
    result = TuneResult(searched, repeats)
    if best is not None:
        chosen, _ = pin_base(load_config(given, changes=best.settings), None)
        write_file(folder / BEST, chosen.to_yaml())
    write_file(folder / _ABOUT, to_json({**about, **result.to_dict()}))
    write_tuning(result, config.output.name, folder)
    return result


def _repeat(first: _Job, trial: Trial, seed: int, number: int) -> _Job:
    """Return the job that trains a trial's settings with another seed."""
    output = first.output.with_name(_folder_name(trial.number, seed))
    config = first.config.model_copy(update={"seed": seed})
    return replace(first, config=config, number=number, output=output, repeats=trial, prune=False)


def _open_folder(folder: Path, config: RunConfig, about: dict[str, Any], *, overwrite: bool) -> list[Trial]:
    """Create the folder or resume the same search in it; return its finished trials. Raises RunError."""
    about = json.loads(to_json(about))
    if overwrite and (folder / _ABOUT).is_file():
        shutil.rmtree(folder)
    if (folder / _ABOUT).is_file():
        with _explain_damage(folder / _ABOUT):
            known = dict(json.loads((folder / _ABOUT).read_text(encoding="utf-8")))
        if other := [name for name, value in about.items() if known.get(name) != value]:
            message = f"Folder has a search with another {', another '.join(other)}"
            hint = f"give {option('overwrite')}, or another output with {setting('output', '...')}"
            raise RunError(message, code="tune-other-search", where=folder, hint=hint)
    folder.mkdir(parents=True, exist_ok=True)
    remove_drafts(folder)
    if not (folder / _ABOUT).is_file():
        write_file(folder / _ABOUT, to_json(about))
    path = folder / _TRIALS
    cut_back(path, 0)  # drops an incomplete last line
    with _explain_damage(path):
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        done = [Trial.from_row(json.loads(line)) for line in lines]
        for trial in done:
            load_config(config.model_dump(), changes=trial.settings)
    return done


@contextmanager
def _explain_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        message, hint = "is damaged, so the search cannot be resumed", f"give {option('overwrite')} to search again"
        raise RunError(message, code="tune-damaged", where=path, hint=hint) from error


def _results(
    jobs: Sequence[_Job],
    done: Sequence[Trial],
    workers: int,
    minutes: float | None,
    watch: Callable[[TrainingProgress], None],
) -> Iterator[Trial]:
    """Train the trials that are not in `done`, where the caller puts each when it is yielded, in their order."""
    known = set(map(_folder_of, done))
    with worker_processes(workers, at_once=True) as crew:
        pending: deque[Future[Trial]] = deque()
        for job in jobs:
            if job.output.name in known:
                continue
            if len(pending) == workers:
                yield crew.result(pending.popleft())
            if minutes is not None and job.repeats is None and sum(trial.seconds for trial in done) >= 60 * minutes:
                break
            if job.repeats is None:
                searched = [trial for trial in done if trial.repeats is None]
                job = replace(job, earlier=tuple(searched[: max(0, job.number - workers + 1)]))
            pending.append(crew.submit(_run, job, watch if workers == 1 else None))
        while pending:
            yield crew.result(pending.popleft())


def _run(job: _Job, watch: Callable[[TrainingProgress], None] | None) -> Trial:
    """Train one trial, or go on with it; errors of its settings are part of the result."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if job.threads is not None:
        import torch

        torch.set_num_threads(job.threads)
    study = _study(job)
    dumped = job.config.model_dump()
    settings: dict[str, Value] = {setting.key: _value_of(dumped, setting.key) for setting in job.ranges}
    live = study.ask(
        {setting.key: setting.distribution() for setting in job.ranges} if job.number and not job.repeats else {}
    )
    if job.number:
        settings = dict(job.repeats.settings if job.repeats else live.params)
    run = RunFolder(job.output)
    reports: dict[int, float] = {}

    def report() -> None:
        """Report new validations to Optuna; raises _Stopped if the trial is to end."""
        for row in read_validations(run):
            step, cer = int(row["step"]), row.get("cer")
            if step == 0 or step in reports or cer is None:
                continue
            reports[step] = cer
            live.report(cer, len(reports))
            if job.prune and len(reports) < job.validations and live.should_prune():
                raise _Stopped

    def on_progress(current: TrainingProgress) -> None:
        if watch is not None:
            watch(current)
        if current.validation is not None and current.validation.step not in reports:
            report()

    state: Literal["complete", "stopped", "failed"] = "complete"
    error = ""
    try:
        config = load_config({**job.given, "output": job.output}, changes=settings)
        if not is_trained(config):
            train(config, on_progress=on_progress)
        report()
    except _Stopped:
        state = "stopped"
    except DsocrError as problem:
        if problem.code in _OF_THE_MACHINE:
            raise
        state, error = "failed", str(problem)
    gc.collect()  # there may be no memory for this network and the next
    cers = list(reports.values())
    cer = None if not cers or state == "failed" else min(cers) if state == "complete" else cers[-1]
    return Trial(
        number=job.number,
        seed=job.config.seed,
        settings=settings,
        state=state,
        cer=cer,
        reports=reports,
        rungs={key: value for key, value in study.trials[-1].system_attrs.items() if key.startswith("completed_rung")},
        seconds=elapsed_until(run, max(reports, default=0)),
        error=error,
        repeats=None if job.repeats is None else job.repeats.number,
    )


def _study(job: _Job) -> "Study":
    """Return a study in memory that knows the earlier trials; its choice depends on them and on the number alone."""
    import optuna
    from optuna.trial import TrialState, create_trial

    seed = job.config.seed + job.number
    sampler: Any = optuna.samplers.RandomSampler(seed=seed)
    if job.sampler == "tpe":
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=_TRIALS_AT_RANDOM)
    rung = max(1, job.validations // _REDUCTION**2)
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=rung, reduction_factor=_REDUCTION)
    study = optuna.create_study(sampler=sampler, pruner=pruner)
    states = {"complete": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "failed": TrialState.FAIL}
    for trial in job.earlier:
        inside = all(each.contains(trial.settings[each.key]) for each in job.ranges)
        study.add_trial(
            create_trial(
                state=states[trial.state],
                value=trial.cer if trial.state == "complete" else None,
                params=dict(trial.settings) if inside else {},
                distributions={each.key: each.distribution() for each in job.ranges} if inside else {},
                intermediate_values=dict(enumerate(trial.reports.values(), 1)),
                system_attrs=dict(trial.rungs),
            )
        )
    return study


def _value_of(settings: dict[str, Any], key: str) -> Value:
    """Return the value of a dotted key."""
    section, _, name = key.rpartition(".")
    value: Value = settings[section][name] if section else settings[name]
    return value


def _drop_weights(folder: Path, done: Sequence[Trial]) -> None:
    """Remove the weights of every finished trial but the best; its records stay."""
    best = TuneResult([trial for trial in done if trial.repeats is None]).best
    for trial in done:
        if trial is not best:
            drop_weights(RunFolder(folder / "trials" / _folder_of(trial)))


def _folder_of(trial: Trial) -> str:
    """Return the name of the folder of a finished trial."""
    return _folder_name(trial.number) if trial.repeats is None else _folder_name(trial.repeats, trial.seed)


def _folder_name(number: int, seed: int | None = None) -> str:
    """Return the name of a trial's folder; with `seed`, of the one where its settings are trained again."""
    return f"{number:04}" if seed is None else f"{number:04}-seed{seed}"
