"""Signals and trackers."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import dsocr
from dsocr.config import RunConfig
from dsocr.io.processes import SIGNALS
from dsocr.job import require_trackers
from dsocr.runs import RunFolder
from dsocr.training.callbacks import SignalHandler, Tracker
from dsocr.training.distributed import ALONE
from dsocr.training.trainer import Trainer
from tests.conftest import PATIENCE
from tests.raising import raises_code
from tests.training.running import train
from tests.training.test_train import changed, metrics

CURVES = {"loss", "learning_rate", "gradient_norm", "samples_per_second", "tokens_per_second", "memory_bytes"}


def stops(handler: SignalHandler) -> bool:
    """True if training would save and stop after its step."""
    stopped: list[bool] = []
    trainer: Any = SimpleNamespace(stop=lambda *, save: stopped.append(save))
    handler.on_step_end(trainer)
    return stopped == [True]


class StopAfter(dsocr.Callback):
    """Stops training after a step, and records its calls."""

    def __init__(self, step: int) -> None:
        self.step, self.steps, self.ended = step, list[int](), 0

    def on_step_end(self, trainer: Trainer) -> None:
        self.steps.append(trainer.state.step)
        if trainer.state.step == self.step:
            trainer.stop(save=True)

    def on_train_end(self, trainer: Trainer) -> None:
        self.ended += 1


def test_a_hook_of_ones_own_may_end_a_training(toy_config: RunConfig) -> None:
    config = changed(toy_config, training={"max_steps": 4}, validation={"every_steps": 1})
    hook = StopAfter(2)
    run = dsocr.train(config, preflight=False, callbacks=[hook])
    assert (hook.steps, hook.ended) == ([1, 2], 1)
    assert RunFolder(run.path).adapter.is_dir(), "the run is finished with its best weights"


@pytest.fixture
def _heeded_signals() -> Iterator[None]:
    """Heed every signal, also where the tests were started with nohup or in the background of a shell."""
    former = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_heeded_signals")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_stops_after_the_step_and_a_second_one_at_once(number: signal.Signals) -> None:
    heard = threading.Event()
    former = {other: signal.getsignal(other) for other in SIGNALS}
    handler = SignalHandler(lambda message: heard.set(), ALONE)
    with handler.installed():
        assert not stops(handler)
        signal.raise_signal(number)
        assert handler.signal == number
        assert stops(handler)
        # A closed terminal often sends two signals.
        default = [other for other in SIGNALS if number.name != "SIGHUP" or other != number]
        assert {signal.getsignal(other) for other in default} == {signal.SIG_DFL}
    assert heard.wait(PATIENCE)
    assert {other: signal.getsignal(other) for other in SIGNALS} == former


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no such signal")
def test_a_run_that_was_started_with_nohup_ignores_the_end_of_the_terminal() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        handler = SignalHandler(print, ALONE)
        with handler.installed():
            signal.raise_signal(signal.SIGHUP)
            assert not stops(handler)
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)


def test_outside_the_main_thread_signals_stay_as_they_are() -> None:
    former, inside = signal.getsignal(signal.SIGINT), []

    def watch() -> None:
        with SignalHandler(print, ALONE).installed():
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert inside == [former]


def events(folder: Path) -> Any:
    return EventAccumulator(str(folder), size_guidance={"images": 0, "tensors": 0, "scalars": 0}).Reload()


def test_tensorboard_has_the_curves_of_the_metrics_and_the_same_lines_at_every_validation(small_run: RunFolder) -> None:
    board = events(small_run.tensorboard)
    assert {f"train/{name}" for name in CURVES} <= set(board.Tags()["scalars"])
    assert {"validation/cer", "validation/loss", "validation/runaway_rate"} <= set(board.Tags()["scalars"])
    rows = metrics(small_run.path, "train")
    for name in CURVES:
        drawn = [event.value for event in board.Scalars(f"train/{name}")]
        assert drawn == pytest.approx([row[name] for row in rows], rel=1e-5)
        assert all(value > 0 for value in drawn[1:-1])
    assert [text.step for text in board.Tensors("validation/lines/text_summary")] == [4, 8]
    assert [image.step for image in board.Images("validation_lines/01")] == [4, 8]


def test_values_that_are_not_finite_are_no_points(small_config: RunConfig, tmp_path: Path) -> None:
    tracker = Tracker("tensorboard", RunFolder(tmp_path), small_config, 0)
    tracker.log("validation", {"cer": 0.1}, 1)
    tracker.log("train", {"loss": float("nan"), "learning_rate": None}, 2)
    tracker.finish()
    assert events(tmp_path / "tensorboard").Tags()["scalars"] == ["validation/cer"]


def test_other_trackers_get_the_curves_through_accelerate(
    toy_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate import tracking

    logged: list[tuple[int, set[str]]] = []

    class Fake:
        def __init__(self, run_name: str, *, name: str) -> None:
            assert (run_name, name) == ("dsocr", toy_config.output.name)
            assert os.environ["WANDB_MODE"] == "offline"

        def start(self) -> None:
            pass

        def store_init_configuration(self, values: dict[str, Any]) -> None:
            assert values["base"] == toy_config.base

        def log(self, values: dict[str, float], step: int) -> None:
            logged.append((step, set(values)))

        def finish(self) -> None:
            logged.append((-1, set()))

    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "wandb", Fake)
    package = ModuleType("wandb")
    package.__spec__ = SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "wandb", package)
    train(changed(toy_config, training={"max_steps": 2, "report_to": ["wandb"]}, validation={"every_steps": 2}))
    assert [step for step, _ in logged] == [0, 1, 2, 2, -1]
    assert {"train/loss", "validation/cer"} <= set().union(*(names for _, names in logged))
    assert not RunFolder(toy_config.output).tensorboard.exists()


def test_a_tracker_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with raises_code("package-missing"):
        require_trackers(["trackio"])
