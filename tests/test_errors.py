"""Errors: their sentences, their copies from other processes, and words as they are typed."""

import pickle

import pytest

from dsocr.errors import ConfigError, DataError, DsocrError, ModelError, RunError, typed


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        pytest.param(DataError("is empty"), "is empty", id="no place"),
        pytest.param(
            DataError("is empty", where="a.jsonl:17", hint="drop it"), "a.jsonl:17: is empty", id="hint apart"
        ),
        pytest.param(ConfigError.listing(["x: y"], where="a.yaml"), "a.yaml: 1 problem\n  x: y", id="one problem"),
        pytest.param(ConfigError.listing(["x", "y"]), "2 problems\n  x\n  y", id="several problems"),
    ],
)
def test_an_error_is_a_sentence(error: DsocrError, sentence: str) -> None:
    assert str(error) == sentence


@pytest.mark.parametrize("kind", [ConfigError, DataError, ModelError, RunError])
def test_worker_processes_send_errors_whole(kind: type[DsocrError]) -> None:
    error = kind("нельзя", code="no", where="письмо.xml", hint="почините")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), vars(back)) == (kind, "письмо.xml: нельзя", vars(error))


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        pytest.param("runs/mine", "runs/mine", id="nothing to quote"),
        pytest.param("C:\\сканы\\письма", "C:\\сканы\\письма", id="a path of Windows in Russian"),
        pytest.param("мои данные", '"мои данные"', id="a space"),
        pytest.param("run (1)", '"run (1)"', id="brackets"),
        pytest.param("training.max_steps=6", "training.max_steps=6", id="a setting"),
        pytest.param("input.prompt=Free OCR.", '"input.prompt=Free OCR."', id="a setting with a space"),
    ],
)
def test_a_word_is_quoted_where_a_shell_needs_it(word: str, quoted: str) -> None:
    assert typed(word) == quoted
