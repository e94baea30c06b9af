"""The command line as two fixtures, and a training run of seconds."""

from functools import partial

import pytest

from tests.integration import calling
from tests.integration.calling import Call, Fail


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `dsocr ARGUMENTS` up to an exit code, 0 unless it is given; gives stdout and stderr."""
    return partial(calling.call, monkeypatch, capsys)


@pytest.fixture
def fail() -> Fail:
    """Runs `dsocr ARGUMENTS`; gives the error that the user sees."""
    return calling.fail


@pytest.fixture(scope="session")
def quick() -> list[str]:
    """Settings for a training run of seconds."""
    settings = {
        "base": "nano",
        "training.epochs": "null",
        "training.max_steps": 2,
        "training.batch_size": 4,
        "training.micro_batch_size": 4,
        "training.learning_rate": 2e-3,  # overfits at once
        "validation.every_steps": 2,
        "validation.max_samples": 2,
        "generation.max_new_tokens": 16,
    }
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
