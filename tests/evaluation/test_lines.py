"""The file of scored lines comes back as it was, or is refused in a sentence."""

import json
from pathlib import Path

import pytest

from dsocr.errors import RunError
from dsocr.evaluation.scores import load_lines, score_lines, write_lines
from tests.evaluation.test_scores import LINES, READ

SCORED = score_lines(LINES, READ)
ROW = {"model": "base", **SCORED[0].as_dict()}


@pytest.mark.parametrize("models", [("base", "adapter"), ("adapter",)])
def test_lines_come_back_by_model(tmp_path: Path, models: tuple[str, ...]) -> None:
    path = tmp_path / "lines.jsonl"
    write_lines(path, dict.fromkeys(models, SCORED))
    assert load_lines(path) == dict.fromkeys(models, SCORED)


def without(*names: str) -> dict[str, object]:
    return {name: value for name, value in ROW.items() if name not in names}


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        pytest.param([], "holds no scored line", id="an empty file"),
        pytest.param(["{"], "lines.jsonl:1: is no scored line that this version can read", id="not JSON"),
        pytest.param(["7"], "lines.jsonl:1: is no scored line", id="not an object"),
        pytest.param([ROW, without("looping", "over_long") | {"runaway": False}], ":2: is no scored line", id="old"),
        pytest.param([ROW | {"confidence": 1}], ":1: is no scored line", id="newer"),
        pytest.param([without("model")], ":1: is no scored line", id="by nobody"),
        pytest.param([ROW | {"model": "gpt"}], "model: must be base or adapter, not 'gpt'", id="by another"),
        pytest.param([ROW | {"prediction": None}], ":1: is no scored line", id="no prediction"),
        pytest.param([ROW | {"cer": {"errors": "1", "length": 4}}], ":1: is no scored line", id="no count"),
        pytest.param([ROW | {"writer": 5}], ":1: is no scored line", id="a writer without a name"),
        pytest.param([ROW | {"exact": "no"}], ":1: is no scored line", id="neither exact nor not"),
        pytest.param([ROW | {"hand": ["new"]}], ":1: is no scored line", id="no hand"),
        pytest.param([ROW, ROW], ":2: 'a' is there twice as read by base", id="twice"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, rows: list[object], sentence: str) -> None:
    path = tmp_path / "lines.jsonl"
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(texts), encoding="utf-8")
    with pytest.raises(RunError) as caught:
        load_lines(path)
    assert sentence in str(caught.value)


def test_what_is_not_there_or_no_text_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such file"):
        load_lines(tmp_path / "lines.jsonl")
    (tmp_path / "lines.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(RunError, match="cannot be read"):
        load_lines(tmp_path / "lines.jsonl")
