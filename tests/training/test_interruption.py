import signal
import threading

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from dsocr.training.trainer import Interruption
from tests.conftest import PATIENCE

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]


def ended(interruption: Interruption) -> bool:
    """True where a training would save and stop after its step."""
    control = TrainerControl()
    interruption.on_step_end(TrainingArguments(), TrainerState(), control)
    assert control.should_save == control.should_training_stop
    return bool(control.should_save)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_answered_after_the_step_and_a_second_one_by_the_system(number: signal.Signals) -> None:
    said = threading.Event()
    former = {other: signal.getsignal(other) for other in SIGNALS}
    interruption = Interruption(lambda sentence: said.set() if "once more" in sentence else None)
    with interruption.watching():
        assert not ended(interruption)
        signal.raise_signal(number)
        assert interruption.signal == number
        assert ended(interruption)
        assert {signal.getsignal(other) for other in SIGNALS} == {signal.SIG_DFL}
    assert said.wait(PATIENCE)
    assert {other: signal.getsignal(other) for other in SIGNALS} == former


def test_outside_the_main_thread_signals_stay_as_they_are() -> None:
    former, inside = signal.getsignal(signal.SIGINT), []

    def watch() -> None:
        with Interruption(print).watching():
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert inside == [former]
