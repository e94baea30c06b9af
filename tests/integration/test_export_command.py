"""`dsocr export` as users type it."""

from pathlib import Path

import pytest
from peft.tuners.lora import LoraLayer

from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.scorecard import make_scorecard
from dsocr.evaluation.scores import LineScore
from dsocr.inference.reader import LocalReader
from dsocr.models.adapters import read_adapter_config
from dsocr.runs import RunFolder, to_json
from tests.integration.calling import Call, Fail
from tests.making_models import make_run, write_first


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("export")
    return make_run(folder / "letters", str(write_first(folder / "base")))


def test_an_export_prints_its_result_and_the_next_command(run: RunFolder, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "merged"
    code, said, _ = call("export", run.path, "-o", out, "--form", "merged")
    assert code == 0
    assert f"merged model: {out}\n" in said
    assert f"next:    vllm serve {out} " in said
    assert (out / "model.safetensors").is_file()

    code, said, err = call("export", run.path, "-o", out, "--form", "merged")
    assert (code, said, "--overwrite" in err) == (2, "", True)
    code, said, err = call("export", run.path, "-o", out, "--form", "merged", "--overwrite", "--quiet")
    assert (code, said, err) == (0, f"merged model: {out}\n", "")


@pytest.mark.parametrize(("words", "form"), [([], "peft"), (["--form", "peft"], "peft"), (["--form", "vllm"], "vllm")])
def test_an_adapter_is_exported_for_peft_by_default(
    words: list[str], form: str, run: RunFolder, tmp_path: Path, call: Call
) -> None:
    code, said, _ = call("export", run.path, "-o", tmp_path / "out", *words)
    assert code == 0
    assert f"adapter: {tmp_path / 'out'}\n" in said
    assert ("--lora-modules letters=" in said) == (form == "vllm")


def test_the_model_card_shows_the_scorecard(run: RunFolder, tmp_path: Path, call: Call) -> None:
    base, adapter = (
        LineScore("a", "щука", "рука", ErrorRate(errors, 4), ErrorRate(1, 1), exact=False, empty=False)
        for errors in (2, 1)
    )
    run.scorecard.write_text(to_json(make_scorecard("test", [base], [adapter]).to_dict()), encoding="utf-8")
    code, _, err = call("export", run.path, "-o", tmp_path / "out")
    run.scorecard.unlink()
    assert code == 0, err
    assert "| CER | 50.00% | 25.00% |" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_an_adapter_at_a_part_of_its_strength_says_so_and_reads_on_its_own(
    run: RunFolder, tmp_path: Path, call: Call
) -> None:
    out, whole = tmp_path / "out", read_adapter_config(run.adapter)
    code, _, err = call("export", run.path, "-o", out, "--scale", "0.5")
    assert code == 0, err
    assert read_adapter_config(out)["lora_alpha"] == whole["lora_alpha"] / 2
    assert "0.5" in (out / "README.md").read_text(encoding="utf-8")
    assert RunFolder.to_read_with(out).adapter == out
    half = LocalReader.of_adapter(out)
    scalings = [layer.scaling["default"] for layer in half.network.modules() if isinstance(layer, LoraLayer)]
    assert set(scalings) == {whole["lora_alpha"] / 2 / whole["r"]}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param("RUN -o BASE --form merged", "output-occupied", id="the base"),
        pytest.param("RUN -o BASE/merged --form merged", "output-overlaps-source", id="inside the base"),
        pytest.param("RUN -o BASE/a", "output-overlaps-source", id="adapter inside the base"),
    ],
)
def test_nothing_is_written_over_the_base(
    words: str, code: str, run: RunFolder, tmp_path: Path, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = words.replace("RUN", run.path.as_posix()).replace("BASE", (run.path.parent / "base").as_posix())
    before = sorted(run.path.parent.rglob("*")), sorted(tmp_path.rglob("*"))
    assert fail("export", *words.split()).code == code
    assert (sorted(run.path.parent.rglob("*")), sorted(tmp_path.rglob("*"))) == before
