"""`dsocr export` as a person meets it."""

from pathlib import Path

import pytest
from peft.tuners.lora import LoraLayer

from dsocr.inference.reader import LocalReader
from dsocr.models.adapters import read_adapter_config
from dsocr.runs import RunFolder
from tests.integration import calling
from tests.making_models import make_run, write_first


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("export")
    return make_run(folder / "letters", str(write_first(folder / "base")))


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `dsocr export WORDS`."""
    return calling.call(monkeypatch, capsys, "export", *words)


def test_an_export_prints_its_result_and_the_next_command(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "merged"
    code, said, _ = call(monkeypatch, capsys, run.path, "--merged", out)
    assert code == 0
    assert f"merged model: {out}\n" in said
    assert f"next:    vllm serve {out} " in said
    assert (out / "model.safetensors").is_file()

    code, said, err = call(monkeypatch, capsys, run.path, "--merged", out)
    assert (code, said) == (2, "")
    assert "holds an export already" in err
    assert "--overwrite" in err

    code, said, err = call(monkeypatch, capsys, run.path, "--merged", out, "--overwrite", "--quiet")
    assert (code, said.splitlines(), err) == (0, [f"merged model: {out}"], "")


@pytest.mark.parametrize(("words", "form"), [([], "peft"), (["--for", "peft"], "peft"), (["--for", "vllm"], "vllm")])
def test_an_adapter_is_exported_for_peft_by_default(
    words: list[str],
    form: str,
    run: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, said, _ = call(monkeypatch, capsys, run.path, "--adapter", tmp_path / "out", *words)
    assert code == 0
    assert f"adapter: {tmp_path / 'out'}\n" in said
    assert ("--lora-modules letters=" in said) == (form == "vllm")


def test_the_model_card_shows_the_scorecard(
    small_run_scorecard: str,
    run: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run.scorecard.write_text(small_run_scorecard, encoding="utf-8")
    code, _, err = call(monkeypatch, capsys, run.path, "--adapter", tmp_path / "out")
    run.scorecard.unlink()
    assert code == 0, err
    assert "| CER | 50.00% | 25.00% |" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def small_run_scorecard() -> str:
    from dsocr.evaluation.metrics import ErrorRate
    from dsocr.evaluation.scorecard import make_scorecard
    from dsocr.evaluation.scores import LineScore
    from dsocr.runs import to_json

    def line(errors: int) -> LineScore:
        return LineScore("a", "щука", "рука", ErrorRate(errors, 4), ErrorRate(1, 1), exact=False, empty=False)

    return to_json(make_scorecard("test", [line(2)], [line(1)]).to_dict())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(["RUN"], "option-missing", id="neither"),
        pytest.param(["RUN", "--merged", "a", "--adapter", "b"], "option-missing", id="both"),
        pytest.param(["RUN", "--merged", "a", "--for", "vllm"], "option-invalid", id="for"),
        pytest.param(["RUN", "--adapter", "a", "--for", "ollama"], "option-invalid", id="for whom"),
        pytest.param(["nowhere", "--merged", "a"], "run-not-found", id="no run"),
        pytest.param([".", "--merged", "a"], "not-a-run", id="not a run"),
        pytest.param(["begun", "--merged", "a"], "run-unfinished", id="no adapter yet"),
        pytest.param(["RUN", "--merged", "."], "target-occupied", id="not empty"),
        pytest.param(["RUN", "--merged", "BASE"], "target-occupied", id="the base"),
        pytest.param(["RUN", "--merged", "BASE/merged"], "target-overlaps-source", id="inside the base"),
        pytest.param(["RUN", "--adapter", "BASE/a"], "target-overlaps-source", id="adapter inside the base"),
    ],
)
def test_a_mistake_is_an_error_and_writes_nothing(
    words: list[str], code: str, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.yaml").touch()
    places = {"RUN": run.path.as_posix(), "BASE": (run.path.parent / "base").as_posix()}
    words = [
        places.get(word.partition("/")[0], word.partition("/")[0]) + "".join(word.partition("/")[1:]) for word in words
    ]
    before = sorted(run.path.parent.rglob("*")), sorted(tmp_path.rglob("*"))
    assert calling.fail(monkeypatch, "export", *words).code == code
    assert (sorted(run.path.parent.rglob("*")), sorted(tmp_path.rglob("*"))) == before


def test_an_adapter_at_a_part_of_its_strength_says_so_and_reads_on_its_own(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, whole = tmp_path / "out", read_adapter_config(run.adapter)
    code, _, err = call(monkeypatch, capsys, run.path, "--adapter", out, "--scale", "0.5")
    assert code == 0, err
    assert read_adapter_config(out)["lora_alpha"] == whole["lora_alpha"] / 2
    assert "0.5" in (out / "README.md").read_text(encoding="utf-8")
    assert RunFolder.to_read_with(out).adapter == out
    half = LocalReader.of_adapter(out)
    scalings = [layer.scaling["default"] for layer in half.network.modules() if isinstance(layer, LoraLayer)]
    assert set(scalings) == {whole["lora_alpha"] / 2 / whole["r"]}

    code, _, err = call(monkeypatch, capsys, run.path, "--merged", tmp_path / "merged", "--scale", "1.5")
    assert code == 2
    assert "Invalid value for '--scale': must be less than or equal to 1, not '1.5'" in err
    assert not (tmp_path / "merged").exists()
