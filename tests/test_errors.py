"""Errors: their sentences, their copies from other processes, and words as they are typed."""

import pickle

import pytest

from dsocr.errors import ConfigError, DataError, DsocrError, ModelError, command, option, setting, typed


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


def test_worker_processes_send_errors_whole() -> None:
    error = ModelError("нельзя", code="no", where="письмо.xml", hint="почините")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), vars(back)) == (ModelError, "письмо.xml: нельзя", vars(error))


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


@pytest.mark.parametrize(
    ("named", "on_command_line", "in_python"),
    [
        pytest.param(option("overwrite"), "--overwrite", "overwrite=True", id="a switch"),
        pytest.param(option("base", False), "--no-base", "base=False", id="a switch turned off"),
        pytest.param(option("split_by", "writer"), "--split-by writer", 'split_by="writer"', id="a value"),
        pytest.param(option("segmenter", ...), "--segmenter", "segmenter=", id="no value"),
        pytest.param(option("workers", 1), "--workers 1", "workers=1", id="a number"),
        pytest.param(option("columns", {"a": "b"}), "--column a=b", 'columns={"a": "b"}', id="a mapping"),
        pytest.param(setting("adapter.r", 4), "--set adapter.r=4", 'adapter={"r": 4}', id="a key in a section"),
        pytest.param(setting("output", "..."), "--set output=...", 'output="..."', id="a key outside sections"),
        pytest.param(
            command("export", "run", output="a b", form="merged"),
            '`dsocr export run -o "a b" --form merged`',
            '`dsocr.export("run", output="a b", form="merged")`',
            id="a whole command",
        ),
    ],
)
def test_a_hint_names_what_the_caller_used(named: str, on_command_line: str, in_python: str) -> None:
    error = pickle.loads(pickle.dumps(DataError(f"lacks {named}", where="a.xml", hint=f"give {named}")))
    assert (str(error), error.hint) == (f"a.xml: lacks {in_python}", f"give {in_python}")
    assert error.render() == f"error: a.xml: lacks {on_command_line}\n  hint: give {on_command_line}"
