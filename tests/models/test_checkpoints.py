"""Published checkpoints are asked as their authors ask: by their own files, their names, or their type."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dsocr.models.checkpoints import find_instructions
from dsocr.models.loading import load_processor, recognize
from tests.models.chat_models import write_chat_model

GENERAL = "Transcribe the text in this image. Answer with the text only."
QWEN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
VISION = "<|vision_start|><|image_pad|><|vision_end|>"
NO_THOUGHTS = "<think>\n\n</think>\n\n"
HISTORICAL = "Transcribe the entirety of this historical document to XML format."
OLMOCR = (
    "Attached is one page of a document that you must process. Just return the plain text representation of this "
    "document as if you were reading it naturally."
)
NANONETS = "Extract the text from the above document as if you were reading it naturally."
HELPFUL = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"

# What is built, and why: the template of the type with what the authors ask, whose sources models/checkpoints.py names.
CHECKPOINTS = [
    ("lightonai/LightOnOCR-3-0.8B", "qwen3_5", QWEN.format(VISION) + NO_THOUGHTS),
    ("lightonai/LightOnOCR-2-1B", "lighton_ocr", "<|im_start|>system<|im_end|>\n" + QWEN.format(VISION)),
    ("datalab-to/chandra", "qwen3_vl", QWEN.format(VISION + "OCR this image to HTML.")),
    ("datalab-to/chandra-ocr-2", "qwen3_5", QWEN.format(VISION + "OCR this image to HTML.") + NO_THOUGHTS),
    ("allenai/olmOCR-2-7B-1025", "qwen2_5_vl", QWEN.format(OLMOCR + VISION)),
    ("nanonets/Nanonets-OCR2-3B", "qwen2_5_vl", HELPFUL + QWEN.format(VISION + NANONETS)),
    ("stanford-oval/churro-3B", "qwen2_5_vl", f"<|im_start|>system\n{HISTORICAL}<|im_end|>\n" + QWEN.format(VISION)),
    (
        "PaddlePaddle/PaddleOCR-VL",
        "paddleocr_vl",
        "<|begin_of_sentence|>User: <|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>OCR:\nAssistant: ",
    ),
    (
        "zai-org/GLM-OCR",
        "glm_ocr",
        "[gMASK]<sop>\n<|user|>\n<|begin_of_image|><|image|><|end_of_image|>Text Recognition:<|assistant|>\n",
    ),
    ("baidu/Qianfan-OCR", "qianfan_ocr", QWEN.format("<image>\nParse this document to Markdown.")),
    (
        "tencent/HunyuanOCR",
        "hunyuan_vl",
        "<hy_begin><hy_3><hy_100><hy_102><hy_101>Extract the text in the image.<hy_User>",
    ),
    ("Qwen/Qwen3-VL-2B-Instruct", "qwen3_vl", QWEN.format(VISION + GENERAL)),
]


@pytest.fixture(scope="module")
def types(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("types")
    return {kind: write_chat_model(folder / kind, kind) for kind in sorted({row[1] for row in CHECKPOINTS})}


def downloaded(hub: Path, name: str, files: Path) -> Path:
    """A checkpoint where the Hub's cache puts it."""
    folder = hub / f"models--{name.replace('/', '--')}" / "snapshots" / "0123abc"
    shutil.copytree(files, folder)
    return folder


@pytest.mark.parametrize(
    ("name", "kind", "expected"), CHECKPOINTS, ids=[row[0].rpartition("/")[2] for row in CHECKPOINTS]
)
def test_a_checkpoint_is_asked_as_its_authors_ask(
    name: str, kind: str, expected: str, types: dict[str, Path], tmp_path: Path
) -> None:
    folder = downloaded(tmp_path, name, types[kind])
    assert recognize(folder).name == kind
    processor: Any = load_processor(str(folder), None, "free_ocr")
    assert processor.conversation.prompt == expected
    # A run keeps the prompt as a text, and reads with it as it was trained.
    again: Any = load_processor(str(folder), None, processor.prompt)
    assert again.conversation == processor.conversation
    assert processor.instructions.source in processor.asked


def test_the_image_alone_and_an_own_prompt(types: dict[str, Path], tmp_path: Path) -> None:
    alone: Any = load_processor(str(types["qwen3_vl"]), None, "")
    assert alone.conversation.prompt == QWEN.format(VISION)
    assert "the image alone (input.prompt)" in alone.asked
    folder = downloaded(tmp_path, "stanford-oval/churro-3B", types["qwen2_5_vl"])
    own: Any = load_processor(str(folder), None, "Read.")  # also replaces what the system message asks
    assert own.conversation.prompt == "<|im_start|>system\n<|im_end|>\n" + QWEN.format(VISION + "Read.")


OTHER = {"prompt": "Lies das.", "base": "Qwen/Qwen3-VL-2B-Instruct"}


@pytest.mark.parametrize(
    ("files", "prompt"),
    [
        pytest.param({}, GENERAL, id="nothing says what it is"),
        pytest.param({"README.md": "---\nbase_model: lightonai/LightOnOCR-3-0.8B\n---\n"}, "", id="its card"),
        pytest.param(
            {"README.md": "---\nbase_model:\n- a/b\n- datalab-to/chandra\n---"}, "OCR this", id="a list there"
        ),
        pytest.param({"README.md": "---\n: [\n---\nlightonocr-3"}, GENERAL, id="a card that is no YAML"),
        pytest.param({"README.md": "no header"}, GENERAL, id="a card without a header"),
        pytest.param(
            {"config.json": {"_name_or_path": "lightonai/LightOnOCR-3-0.8B"}}, "", id="the base of its weights"
        ),
        pytest.param({"reading.json": OTHER}, "Lies das.", id="exported with a prompt of its own"),
        pytest.param({"reading.json": OTHER | {"prompt": GENERAL}}, GENERAL, id="exported with the usual prompt"),
        pytest.param({"reading.json": {"prompt": "", "base": "lightonai/LightOnOCR-3-0.8B"}}, "", id="exported"),
    ],
)
def test_a_folder_with_a_name_of_its_own(
    files: dict[str, Any], prompt: str, types: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    shutil.copy(types["qwen3_5"] / "config.json", folder)
    for name, content in files.items():
        if name == "config.json":
            content |= json.loads((folder / name).read_text(encoding="utf-8"))
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")
    found = find_instructions(folder).prompt
    assert found == prompt or (prompt == "OCR this" and found.startswith(prompt))
