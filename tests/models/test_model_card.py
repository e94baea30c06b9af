"""The card of an export: a YAML head that can be read, and all that a reader must know."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsocr import __version__
from dsocr.models.deepseek_ocr import DeepseekOcr
from dsocr.models.export import Export, model_card
from dsocr.runs import ReadingSettings, RunFolder, to_json
from dsocr.text import TextPolicy
from tests.raising import raises_code

FIRST, SECOND = DeepseekOcr("deepseek_ocr", original=True), DeepseekOcr("deepseek_ocr_2", original=True)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SCORES = {
    "split": "test",
    "base": {"cer": {"rate": 0.45674}, "wer": {"rate": 0.9014}, "lines": 150},
    "adapter": {"cer": {"rate": 0.3426}, "wer": {"rate": None}, "lines": 150},
    "created_at": "2026-11-20T14:00:00+00:00",
    "definition": "0 is perfect.",
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


def card(export: Export) -> tuple[dict[str, Any], str]:
    """The YAML head and the text."""
    _, head, body = model_card(export, Path("out")).split("---\n", 2)
    return yaml.safe_load(head), body


def test_the_metadata_names_the_base_and_omits_an_unknown_licence(run: RunFolder) -> None:
    merged, _ = card(replace(Export.of_run("merged", run, None), family=FIRST, revision=COMMIT))
    assert merged["base_model"] == "some/base"
    assert (merged["base_model_relation"], merged["library_name"]) == ("finetune", "transformers")
    adapter, _ = card(Export.of_run("peft", run, None))
    assert (adapter["base_model_relation"], adapter["library_name"]) == ("adapter", "peft")
    assert "lora" in adapter["tags"]
    assert "license" not in merged | adapter


def test_the_card_shows_usage_and_provenance(run: RunFolder) -> None:
    _, text = card(replace(Export.of_run("merged", run, SCORES), family=FIRST, revision=COMMIT))
    for part in [
        r'`"<image>\n<\|grounding\|>Прочти."`',
        "| resolution | `base` |",
        "greedy, at most 64 tokens, no 20 tokens repeated within 90",
        f"| base | `some/base` at revision `{COMMIT}` |",
        r"| adapter | target modules `^model\.(a\|b)$`, r 8, alpha 16, rslora |",
        f"| dsocr | trained with 0.0.1, exported with {__version__} |",
        "| dataset | box 7 |",
        "| train split | sha256 `abc` |",
        "| CER | 45.67 % | 34.26 % |",
        "| WER | 90.14 % | - |",
        "150 lines of the test split",
        "vllm serve out --logits-processors",
        '"vllm_xargs": {"ngram_size": 20, "window_size": 90}',
    ]:
        assert part in text


def test_a_run_without_provenance_has_a_card_all_the_same(run: RunFolder) -> None:
    run.provenance.unlink()
    assert "trained with ?" in card(replace(Export.of_run("merged", run, None), family=FIRST, revision=None))[1]
    run.provenance.write_text("{", encoding="utf-8")
    with raises_code("provenance-unreadable"):
        Export.of_run("merged", run, None)


@pytest.mark.parametrize(
    ("family", "resolution", "same"),
    [
        pytest.param(FIRST, "gundam_vllm", True, id="DeepSeek-OCR as vLLM shows it"),
        pytest.param(FIRST, "gundam", False, id="DeepSeek-OCR with up to nine tiles"),
        pytest.param(FIRST, "base", False, id="DeepSeek-OCR whole"),
        pytest.param(SECOND, "gundam", True, id="DeepSeek-OCR-2 as vLLM shows it"),
        pytest.param(None, "gundam_vllm", True, id="a base that is not at hand"),
    ],
)
def test_the_card_warns_if_a_server_shows_images_differently(
    family: DeepseekOcr | None, resolution: str, same: bool, run: RunFolder
) -> None:
    settings = json.loads((run.adapter / "reading.json").read_text(encoding="utf-8"))
    (run.adapter / "reading.json").write_text(to_json({**settings, "resolution": resolution}), encoding="utf-8")
    export = Export.of_run("vllm", run, None)
    _, text = card(export if family is None else replace(export, family=family, revision=None))
    assert ("score it there first" in text) != same
