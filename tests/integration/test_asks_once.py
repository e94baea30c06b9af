"""A training run and an evaluation open their dataset, look up their base and ask the Hub once."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dsocr
from dsocr.data.dataset import Dataset
from dsocr.models import base_folder, loading
from dsocr.runs import RunFolder
from tests.conftest import eight_steps
from tests.training.test_train import changed

COMMIT = "0" * 40


@pytest.fixture
def asked(shallow: str, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **options)

        return called

    monkeypatch.setattr(Dataset, "open", counted("dataset", Dataset.open))
    monkeypatch.setattr(loading, "find_base", counted("base", base_folder.find_base))
    fetch = counted("hub", lambda name, revision: (Path(shallow), COMMIT))
    monkeypatch.setattr(base_folder, "fetch_model", fetch)
    return counts


def test_a_training_and_an_evaluation_ask_once(small_dataset: Path, tmp_path: Path, asked: Counter[str]) -> None:
    config = changed(eight_steps(small_dataset, tmp_path / "run", "someone/shallow"), training={"max_steps": 1})
    run = dsocr.train(config, preflight=False)
    assert asked == {"dataset": 1, "base": 1, "hub": 1}
    asked.clear()
    run.evaluate(limit=1)
    assert RunFolder(run.path).report.is_file()
    assert asked == {"dataset": 1, "base": 1, "hub": 1}
