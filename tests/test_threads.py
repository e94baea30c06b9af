"""Thread settings of the command line."""

import os
import subprocess
import sys

import pytest

from dsocr.cli.app import limit_spinning


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({}, "2000", id="by itself"),
        pytest.param({"GOMP_SPINCOUNT": "7"}, "7", id="the user said how often"),
        pytest.param({"OMP_WAIT_POLICY": "active"}, None, id="the user said how"),
    ],
)
def test_threads_wait_as_the_user_says_else_briefly(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str | None
) -> None:
    monkeypatch.setattr(os, "environ", {**environment})
    limit_spinning()
    assert os.environ.get("GOMP_SPINCOUNT") == expected


def test_it_is_said_before_torch_is_there_to_hear_it() -> None:
    code = "import sys, dsocr.cli; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
