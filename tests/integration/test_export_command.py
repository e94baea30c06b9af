"""`dsocr export` as users type it."""

from pathlib import Path

import pytest
from peft.tuners.lora import LoraLayer

from dsocr.inference.reader import LocalReader
from dsocr.models.adapters import read_adapter_config
from dsocr.runs import RunFolder
from tests.integration.calling import Call
from tests.making_models import make_run, write_first


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("export")
    return make_run(folder / "letters", str(write_first(folder / "base")))


def test_an_export_prints_its_result_and_the_next_command(run: RunFolder, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "merged"
    said, _ = call("export", run.path, "-o", out, "--form", "merged")
    assert f"merged model: {out}\n" in said
    assert f"next:    vllm serve {out} " in said
    assert (out / "model.safetensors").is_file()

    said, err = call("export", run.path, "-o", out, "--form", "merged", code=2)
    assert (said, "--overwrite" in err) == ("", True)
    printed = call("export", run.path, "-o", out, "--form", "merged", "--overwrite", "--quiet")
    assert printed == (f"merged model: {out}\n", "")


def test_an_adapter_at_a_part_of_its_strength_says_so_and_reads_on_its_own(
    run: RunFolder, tmp_path: Path, call: Call
) -> None:
    out, whole = tmp_path / "out", read_adapter_config(run.adapter)
    call("export", run.path, "-o", out, "--scale", "0.5")
    assert read_adapter_config(out)["lora_alpha"] == whole["lora_alpha"] / 2
    assert "0.5" in (out / "README.md").read_text(encoding="utf-8")
    assert RunFolder.to_read_with(out).adapter == out
    half = LocalReader.of_run(RunFolder(out), merged=False)
    scalings = [layer.scaling["default"] for layer in half.network.modules() if isinstance(layer, LoraLayer)]
    assert set(scalings) == {whole["lora_alpha"] / 2 / whole["r"]}
