"""vLLM on a CPU reads exports as dsocr does: the same prompt, log-probabilities and texts. `make engines` runs this.

The network has random weights, the published vision towers and two decoder layers. vLLM has its own environment,
because it needs other versions of torch and transformers; DSOCR_VLLM_PYTHON names its interpreter.
"""

import base64
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageDraw, ImageFont
from safetensors.torch import save_file

import dsocr
from dsocr.config import RunConfig
from dsocr.inference.reader import LocalReader
from dsocr.models.deepseek_ocr import SERVING
from dsocr.runs import RunFolder
from tests.training.running import train

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from random_checkpoint import Numbers, fill, is_integer, original_config_json, original_tensors, write_tokenizer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(3600)]

PYTHON = os.environ.get("DSOCR_VLLM_PYTHON", "")
NUMBERS = Numbers(layers=2, vocabulary=2000, dense_width=512, experts=8, experts_per_token=2, expert_width=128)
NEAR = 2e-3
LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
IMAGES = 20


def write_base(folder: Path) -> Path:
    """A checkpoint in fp32 whose attention is sharp enough for its texts to depend on the image."""
    folder.mkdir()
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for name, shape in original_tensors(NUMBERS).items():
        tensor = torch.arange(shape[-1])[None] if is_integer(name) else torch.empty(shape)
        if not is_integer(name):
            fill(name, tensor, generator)
            tensor *= {"lm_head.weight": 30.0, "model.embed_tokens.weight": 15.0}.get(name, 1.0)
            tensor *= (
                4.0
                if name.startswith("model.layers.") and name.split(".")[-2] in {"q_proj", "k_proj", "o_proj"}
                else 1.0
            )
        tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(original_config_json(NUMBERS)), encoding="utf-8")
    write_tokenizer(folder, NUMBERS)
    return folder


def draw_images(folder: Path) -> Path:
    """Images; every tenth is shown with tiles."""
    folder.mkdir()
    for number in range(IMAGES):
        size = (760, 380) if number % 10 == 9 else (300 + 12 * number, 60 + 7 * number)
        image = Image.new("RGB", size, (240, 235 - number, 225))
        for y in range(8, image.height - 20, 60):
            text, font = f"Привет {number * 37} {y}", ImageFont.load_default(28 + number % 3 * 6)
            ImageDraw.Draw(image).text((8, y), text, fill=(30, 20 + number, 60), font=font)
        image.save(folder / f"p{number:02d}.png")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, small_dataset: Path) -> Path:
    """A run of one step on a random base, its exports, and images with the texts that dsocr reads."""
    if not PYTHON:
        pytest.skip("vLLM is not installed: make engines")
    folder = tmp_path_factory.mktemp("engines")
    settings = {
        "base": write_base(folder / "base").as_posix(),
        "dataset": small_dataset,
        "output": folder / "run",
        "input": {"resolution": SERVING.resolution},
        "adapter": {"target_modules": "decoder", "r": 8, "alpha": 16},
        "training": {"max_steps": 1, "batch_size": 2, "micro_batch_size": 1, "learning_rate": 2e-2, "warmup_ratio": 0},
        "validation": {"max_samples": 1},
        "generation": {"max_new_tokens": 12, "batch_size": 2},
    }
    train(RunConfig.model_validate(settings))
    dsocr.export(folder / "run", folder / "merged", form="merged")
    dsocr.export(folder / "run", folder / "plain", form="merged", scale=0)
    dsocr.export(folder / "run", folder / "lora", form="vllm")
    dsocr.transcribe(folder / "run", draw_images(folder / "in"), folder / "here", format="text", images="line")
    return folder


@contextmanager
def serve(model: Path, *options: str) -> Iterator[str]:
    """Run vLLM with the options of an export's card and those of a test; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # vLLM 0.32 sets up one process a core, and asks for memory by itself: small numbers for a small machine.
    sizes = ["--dtype", "float32", "--max-model-len", "2048", "--max-num-seqs", "2", "--enforce-eager"]
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port), *sizes]
    environment = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "3600",  # a busy machine needs minutes for an image
        "VLLM_NO_USAGE_STATS": "1",
    }
    environment["PYTHONPATH"] = str(Path(__file__).parent / "on_cpu")
    log = model.with_name(f"{port}.log")
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [*command, "--host", "127.0.0.1", *options], stdout=output, stderr=output, env=environment
        ) as process,
    ):
        try:
            while not answers(f"http://127.0.0.1:{port}/health"):
                assert process.poll() is None, log.read_text(encoding="utf-8", errors="replace")[-3000:]
                time.sleep(1)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def ask(address: str, model: str, image: Path, prompt: str = "Free OCR.") -> dict[str, Any]:
    """The first four tokens with the twenty best log-probabilities of each, and the ids of the prompt."""
    url = "data:image/png;base64," + base64.b64encode(image.read_bytes()).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": prompt}]
    body = {"model": model, "messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 4}
    body |= {"logprobs": True, "top_logprobs": 20, "return_tokens_as_token_ids": True, "return_token_ids": True}
    body |= {"skip_special_tokens": False}
    request = urllib.request.Request(
        f"{address}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def log_probabilities(reader: LocalReader, image: Path, tokens: list[int]) -> tuple[list[int], torch.Tensor]:
    """Our ids of the prompt, and our log-probabilities at its end and after each of the tokens, (n, vocabulary)."""
    processor: Any = reader.processor
    sample = processor.encode(Image.open(image))
    batch = processor.collate([sample], padding="right")
    length = batch["input_ids"].shape[1]
    more = torch.tensor([tokens])
    for name, added in (("input_ids", more), ("attention_mask", more**0), ("mm_token_type_ids", 0 * more)):
        if name in batch:
            batch[name] = torch.cat([batch[name], added.to(batch[name].dtype)], dim=1)
    with torch.inference_mode():
        logits = reader.network(**processor.family.prepare_batch(batch)).logits
    return list(sample.prompt_ids), logits[0, length - 1 : -1].log_softmax(-1)


def compare(reader: LocalReader, image: Path, answer: dict[str, Any]) -> tuple[float, torch.Tensor]:
    """The largest difference of a log-probability from ours, and ours at the end of the prompt, which is the same."""
    steps = answer["choices"][0]["logprobs"]["content"]
    tokens = [int(step["token"].split(":")[1]) for step in steps]
    prompt, ours = log_probabilities(reader, image, tokens)
    assert answer["prompt_token_ids"] == prompt
    differences = []
    for step, own in zip(steps, ours, strict=True):
        theirs = {int(one["token"].split(":")[1]): one["logprob"] for one in step["top_logprobs"]}
        assert len(theirs) >= 20
        differences += [abs(own[token].item() - value) for token, value in theirs.items()]
    return max(differences), ours[0]


@pytest.mark.parametrize("form", ["merged", "adapter"])
def test_vllm_reads_an_export_as_dsocr_does(form: str, folder: Path) -> None:
    model, options = folder / "merged", ["--served-model-name", "mine"]
    if form == "adapter":  # without the last option vLLM 0.32 also wraps routed experts, for which no CPU has code
        adapter = ["--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"mine={folder / 'lora'}"]
        model, options = folder / "plain", [*adapter, "--lora-target-modules", *LAYERS]
    reader = LocalReader.of_run(RunFolder(folder / "run"))
    with serve(model, *SERVING.options, *options) as address:
        spread = []
        for name in ("p00", "p09"):  # without tiles, and with
            image = folder / "in" / f"{name}.png"
            largest, first = compare(reader, image, ask(address, "mine", image))
            assert largest < NEAR
            spread.append(first)
        assert (spread[0] - spread[1]).abs().max() > 50 * NEAR, "the image must matter"
        dsocr.transcribe(
            folder / "run",
            folder / "in",
            folder / f"texts-{form}",
            format="text",
            images="line",
            engine=address,
            engine_model="mine",
        )
    here, there = (
        {path.name: path.read_bytes() for path in (folder / out).glob("*.txt")} for out in ("here", f"texts-{form}")
    )
    assert len(here) == IMAGES
    assert len(set(here.values())) > IMAGES / 4, "the texts must differ"
    assert there == here
