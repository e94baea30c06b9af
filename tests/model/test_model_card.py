"""The card of an export: a YAML head that can be read, and all that a reader must know."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsocr import __version__
from dsocr.errors import RunError
from dsocr.models.deepseek_ocr import Architecture
from dsocr.models.model_card import Exported, model_card
from dsocr.runs import ReadingSettings, RunFolder, to_json
from dsocr.text import TextPolicy

FIRST, SECOND = Architecture("deepseek_ocr", original=True), Architecture("deepseek_ocr_2", original=True)
NANO = Architecture("nano", original=False)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SCORES = {
    "split": "test",
    "base": {"cer": 0.45674, "wer": 0.9014, "lines": 150},
    "adapter": {"cer": 0.3426, "wer": None, "lines": 150},
    "made_at": "2026-11-20T14:00:00+00:00",
    "meaning": "0 is perfect.",
}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "letters")
    run.adapter.mkdir(parents=True)
    generation = {"max_new_tokens": 64, "no_repeat_ngram_size": 20, "no_repeat_ngram_window": 90}
    prompt = "<image>\n<|grounding|>Прочти."
    ReadingSettings("some/base", COMMIT, prompt, "base", TextPolicy(), generation).save(run.adapter)
    config = {"r": 8, "lora_alpha": 16, "target_modules": r"^model\.(a|b)$", "use_rslora": True}
    (run.adapter / "adapter_config.json").write_text(to_json(config), encoding="utf-8")
    provenance = {"dsocr_version": "0.0.1", "begun_at": "2026-11-19", "dataset_source": "box 7", "device": "cuda"}
    run.provenance.write_text(to_json({**provenance, "dataset": {"train": "abc"}}), encoding="utf-8")
    return run


def card(export: Exported) -> tuple[dict[str, Any], str]:
    """The YAML head and the text."""
    _, head, body = model_card(export, Path("out")).split("---\n", 2)
    return yaml.safe_load(head), body


def test_the_head_tells_the_base_and_no_licence_that_nobody_knows(run: RunFolder) -> None:
    merged, _ = card(Exported.of_run("merged", run, None).on(FIRST, COMMIT))
    assert merged["base_model"] == "some/base"
    assert (merged["base_model_relation"], merged["library_name"]) == ("finetune", "transformers")
    adapter, _ = card(Exported.of_run("peft", run, None))
    assert (adapter["base_model_relation"], adapter["library_name"]) == ("adapter", "peft")
    assert "lora" in adapter["tags"]
    assert "license" not in merged | adapter


def test_the_card_tells_how_to_read_and_where_it_comes_from(run: RunFolder) -> None:
    _, text = card(Exported.of_run("merged", run, SCORES).on(FIRST, COMMIT))
    for told in [
        r'`"<image>\n<\|grounding\|>Прочти."`',
        "| resolution | `base` |",
        "greedy, at most 64 tokens, no 20 tokens in a row again within 90",
        f"| base | `some/base` at revision `{COMMIT}` |",
        r"| adapter | scope `^model\.(a\|b)$`, rank 8, alpha 16, rslora |",
        f"| dsocr | trained with 0.0.1, exported with {__version__} |",
        "| dataset | box 7 |",
        "| train split | sha256 `abc` |",
        "| CER | 45.67% | 34.26% |",
        "| WER | 90.14% | - |",
        "150 lines of the test split",
        "vllm serve out --logits-processors",
        '"vllm_xargs": {"ngram_size": 20, "window_size": 90}',
        "No server was run",
        "No code lies here",
    ]:
        assert told in text


def test_a_run_that_was_not_scored_says_so(run: RunFolder) -> None:
    assert "had not been scored" in card(Exported.of_run("merged", run, None).on(FIRST, None))[1]


def test_a_run_without_provenance_has_a_card_all_the_same(run: RunFolder) -> None:
    run.provenance.unlink()
    assert "trained with ?" in card(Exported.of_run("merged", run, None).on(FIRST, None))[1]
    run.provenance.write_text("{", encoding="utf-8")
    with pytest.raises(RunError, match=r"provenance\.json: cannot be read"):
        Exported.of_run("merged", run, None)


@pytest.mark.parametrize(
    ("architecture", "resolution", "same"),
    [
        pytest.param(FIRST, "gundam_vllm", True, id="DeepSeek-OCR as vLLM shows it"),
        pytest.param(FIRST, "gundam", False, id="DeepSeek-OCR with up to nine tiles"),
        pytest.param(FIRST, "base", False, id="DeepSeek-OCR whole"),
        pytest.param(SECOND, "gundam", True, id="DeepSeek-OCR-2 as vLLM shows it"),
        pytest.param(None, "gundam_vllm", True, id="a base that is not at hand"),
    ],
)
def test_the_card_warns_where_a_server_shows_other_pictures(
    architecture: Architecture | None, resolution: str, same: bool, run: RunFolder
) -> None:
    settings = json.loads((run.adapter / "reading.json").read_text(encoding="utf-8"))
    (run.adapter / "reading.json").write_text(to_json({**settings, "resolution": resolution}), encoding="utf-8")
    export = Exported.of_run("vllm", run, None)
    _, text = card(export if architecture is None else export.on(architecture, None))
    assert ("So it was trained." in text) == same
    assert ("it sees other pictures" in text) != same


@pytest.mark.parametrize("form", ["merged", "vllm", "peft"])
def test_no_server_is_promised_for_nano(form: Any, run: RunFolder) -> None:
    export = Exported.of_run(form, run, None).on(NANO, None)
    assert export.serve_command(Path("out")) is None
    assert "vllm serve" not in card(export)[1]
