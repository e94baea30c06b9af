"""Chat models: inputs are those of transformers, labels the text and its end, the loss is the class's own."""

import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText, Qwen3VLForConditionalGeneration
from transformers.quantizers.quantizers_utils import should_convert_module

from dsocr.config import RunConfig
from dsocr.document import Sample, Split
from dsocr.models.adapters import load_adapter, omitted_layers
from dsocr.models.base_folder import tensor_shapes
from dsocr.models.canvas import PAD_COLOUR
from dsocr.models.chat_inputs import ChatProcessor
from dsocr.models.export import export_merged
from dsocr.models.family import IGNORED
from dsocr.models.generation import Generation
from dsocr.models.loading import BaseModel, family_of, load_base, load_processor, recognize
from dsocr.models.token_batches import collate
from dsocr.training.feature_cache import vision_features
from dsocr.training.preflight import forward_backward
from tests.integration.calling import fail
from tests.making_models import make_run
from tests.models.chat_models import CHAT_MODELS, draw_text, write_chat_model
from tests.raising import raises_code
from tests.training.running import set_up

TEXTS = ["Мир, 25", "a", "ёж <|im_end|></s> x", " two  spaces ", "line\nbreak"]
TEMPLATE, WRITES = "chat_template.jinja", "{{ part['text'] }}"
TILED = ("smolvlm", "internvl", "qianfan_ocr")
"""Types whose image processors show the whole and parts of it."""
few_quick = pytest.mark.parametrize(
    "base",
    [
        name if name in ("qwen3_vl", "got_ocr2", "qwen3_5") else pytest.param(name, marks=pytest.mark.slow)
        for name in CHAT_MODELS
    ],
    indirect=True,
)
"""Types that differ in what is done with them here: features added in the decoder, none, and layers without LoRA.

The others try that transformers and PEFT do with them what they do with these: `make test-slow`, `make newest`.
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chat")


@pytest.fixture(scope="module", params=CHAT_MODELS)
def base(request: pytest.FixtureRequest, folder: Path) -> BaseModel:
    return load_base(str(write_chat_model(folder / request.param, request.param)))


def chat_processor(base: BaseModel, prompt: str = "free_ocr") -> ChatProcessor:
    processor = base.processor(None, prompt)
    assert isinstance(processor, ChatProcessor)
    return processor


def test_labels_are_the_text_and_its_end_and_the_loss_that_of_the_class(base: BaseModel) -> None:
    processor = chat_processor(base)
    encoded = [processor.encode(draw_text(text), text) for text in TEXTS]
    batch = collate(encoded, processor.pad_id, padding="right")
    end = processor.tokenizer.decode([processor.end_id])
    for ids, labels, text in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), TEXTS, strict=True):
        learnt = [place for place, label in enumerate(labels) if label != IGNORED]
        assert [ids[place] for place in learnt] == [labels[place] for place in learnt]
        assert learnt == list(range(learnt[0], learnt[-1] + 1))
        assert processor.tokenizer.decode(ids[learnt[0] : learnt[-1] + 1]) == processor.answer_start + text + end
        before = processor.tokenizer.decode(ids[: learnt[0]])
        assert before.endswith(processor.conversation.prompt[-12:])
    checks = base.family.check_inputs(base.network, processor, encoded, TEXTS)
    assert [check.verdict for check in checks] == ["ok"] * 3

    batch_of_labels, batch = batch, base.family.prepare_batch(processor.collate(encoded))
    with torch.no_grad():  # the loss is that of the class
        expected = base.network(**batch_of_labels).loss
        count = (batch_of_labels["labels"] != IGNORED).sum()
        assert float(base.family.loss(base.network, batch, count)) == pytest.approx(float(expected), rel=1e-6)
    each = base.family.sample_losses(base.network, batch)
    counts = [len(sample.answer_ids) for sample in encoded]
    mean = sum(loss * tokens for loss, tokens in zip(each, counts, strict=True)) / sum(counts)
    assert mean == pytest.approx(float(expected), rel=1e-5)
    assert base.family.uniform_loss(base.network, processor, encoded) > 5


def test_inputs_are_those_of_transformers(base: BaseModel) -> None:
    processor = chat_processor(base, "Read this.")
    images = [draw_text(text).convert("RGB") for text in TEXTS]
    theirs = processor.transformers(
        images=[[image] for image in images] if base.family.name == "smolvlm" else images,
        text=[processor.conversation.prompt] * len(images),
        padding=True,
        padding_side="left",
        return_tensors="np",
    )
    ours = processor.collate([processor.encode(image) for image in images], padding="left")
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, torch.from_numpy(theirs[name])), name

    messages = processor.instructions.messages()
    messages[-1]["content"][0]["image"] = images[0]
    if base.family.name not in ("smolvlm", "got_ocr2"):  # their methods need a video processor, or take no list
        whole = processor.transformers.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="np"
        )
        assert tuple(whole["input_ids"][0].tolist()) == processor.encode(images[0]).prompt_ids


@pytest.mark.parametrize("base", ["got_ocr2"], indirect=True)
def test_got_ocr_without_a_template_gets_its_authors_prompt(base: BaseModel) -> None:
    processor = chat_processor(base)
    theirs = processor.transformers(images=draw_text("a").convert("RGB"), return_tensors="pt")
    assert tuple(theirs["input_ids"][0].tolist()) == processor.encode(draw_text("a")).prompt_ids


def test_samples_are_measured_as_they_are_encoded(base: BaseModel) -> None:
    processor = chat_processor(base)
    large = Image.new("L", (3000, 900))
    assert processor.shrink(large).width < large.width
    assert processor.shrink(draw_text("a", (20, 20))).size == (20, 20)
    for size in ((306, 60), (40, 33), (700, 41), (56, 300)):
        encoded = processor.encode(draw_text("ab", size), "ab")
        length = processor.measure("ab", lambda size=size: size)  # type: ignore[misc]
        assert length.sequence == len(encoded.prompt_ids) + len(encoded.answer_ids)
        assert length.text == len(encoded.answer_ids)
        height, width = encoded.pixels().shape[:2]
        if base.family.name not in TILED:
            assert processor.distortion(*size) == pytest.approx((height / size[1]) / (width / size[0]))
    seen = processor.encode(image := draw_text("ab", (112, 56))).pixels()
    expected = image.convert("RGB").resize(seen.shape[1::-1], Image.Resampling.BICUBIC)
    assert base.family.name in TILED or np.abs(seen.astype(int) - np.asarray(expected, dtype=int)).max() <= 2


def test_samples_can_change_their_image_and_their_process(base: BaseModel) -> None:
    processor = chat_processor(base)
    one, other = processor.encode(draw_text("one"), "one"), processor.encode(draw_text("other line"), "other")
    assert one.has_input_of(processor.encode(draw_text("one")))
    assert not one.has_input_of(other)
    swapped = one.with_image_of(other)
    assert swapped.has_input_of(other)
    assert swapped.answer_ids == one.answer_ids
    assert not swapped.without_text().answer_ids
    again = pickle.loads(pickle.dumps(processor))
    assert again.encode(draw_text("one"), "one").has_input_of(one)
    assert processor.unknown_characters("aЖ") == ""


@few_quick
def test_trains_in_bf16_with_recomputed_activations(base: BaseModel, tmp_path: Path) -> None:
    draw_text("Ab").save(tmp_path / "line.png")
    samples = [Sample(id="line", image=tmp_path / "line.png", text="Ab", split=Split.TRAIN)]
    losses = []
    for training in ({}, {"gradient_checkpointing": True}, {"precision": "bf16"}):
        config = RunConfig.model_validate(
            {
                "base": base.name,
                "dataset": tmp_path,
                "output": tmp_path / "run",
                "adapter": {"target_modules": "decoder+vision"},
                "training": {"max_steps": 1, "learning_rate": 1e-3, **training},
            }
        )
        setup = set_up(config, samples)
        losses.append(forward_backward(setup.model, setup.processor, [setup.samples[0]], setup.dtype))
        gradients = [parameter.grad for parameter in setup.model.parameters() if parameter.requires_grad]
        assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
        line = setup.samples[0].without_text()
        (decoded,) = base.family.decode(setup.model, setup.processor, [line], Generation(max_new_tokens=2))
        assert decoded.tokens <= 2
    assert losses[1] == losses[0]
    assert losses[2] == pytest.approx(losses[0], rel=1e-2)


def test_named_sets_are_all_linear_layers_but_the_head(base: BaseModel) -> None:
    modules = dict(base.network.named_modules())
    found = {
        target: {name for name in modules if re.fullmatch(pattern, name)}
        for target, pattern in base.family.target_modules.items()
    }
    linear = {name for name, module in modules.items() if isinstance(module, torch.nn.Linear)}
    gates = {name for name in linear if name.endswith(("in_proj_a", "in_proj_b"))}  # a number for each head
    assert {*omitted_layers(base.network, "decoder+vision")} == {*omitted_layers(base.network, "decoder")} == gates
    assert not omitted_layers(base.network, "vision")
    assert bool(gates) == (base.family.name == "qwen3_5")
    assert found["decoder"] | found["vision"] == found["decoder+vision"] == linear - {"lm_head"} - gates
    assert found["decoder"].isdisjoint(found["vision"])
    assert {name for name in linear if base.family.is_vision(f"{name}.weight")} == found["vision"]


def test_sampling_as_authors_publish_it_is_not_how_lines_are_read(base: BaseModel) -> None:
    settings = base.network.generation_config
    published = json.loads((base.folder / "generation_config.json").read_text(encoding="utf-8"))
    assert published["do_sample"]
    assert (settings.do_sample or False, settings.repetition_penalty or 1.0) == (False, 1.0)
    assert settings.eos_token_id == published["eos_token_id"]


@pytest.mark.parametrize("model_type", ["idefics3", "lfm2_vl", "qwen3_vl_moe", "minicpm_ocr", "dots3_note"])
def test_named_sets_of_other_models(model_type: str) -> None:
    with torch.device("meta"):
        network = AutoModelForImageTextToText.from_config(AutoConfig.for_model(model_type))
    family = family_of(network)
    linear = {name for name, module in network.named_modules() if isinstance(module, torch.nn.Linear)}
    found = {name for name in linear if re.fullmatch(family.target_modules["decoder+vision"], name)}
    assert found == linear - {"lm_head"} - {*omitted_layers(network, "decoder+vision")}
    text = {name for name in found if re.match(r"model\.(language|text)_model\.", name)}
    assert {name for name in found if not family.is_vision(name)} == text


@pytest.mark.parametrize(
    ("model_type", "processor"), [("minicpm_ocr", "MiniCPMOcrProcessor"), ("lfm2_vl", "Lfm2VlProcessor")]
)
def test_models_whose_images_only_torchvision_prepares(model_type: str, processor: str, tmp_path: Path) -> None:
    for name, entry in (("config.json", "model_type"), ("processor_config.json", "processor_class")):
        value = model_type if entry == "model_type" else processor
        (tmp_path / name).write_text(json.dumps({entry: value}), encoding="utf-8")
    with raises_code("torchvision-only", tmp_path.name) as caught:
        recognize(tmp_path).processor(tmp_path, None, "")
    assert model_type in str(caught.value)
    assert caught.value.hint


@few_quick
def test_merged_weights_and_adapter_are_read_by_transformers_and_peft(base: BaseModel, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", base.name, "decoder+vision")
    processor = chat_processor(base)
    batch = collate([processor.encode(draw_text("ab"), "ab")], processor.pad_id, padding="right")

    def logits(network: Any) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = network.eval()(**batch).logits
            return found

    expected = logits(load_adapter(load_base(base.name).network, run.adapter))
    assert not torch.allclose(expected, logits(base.network), atol=1e-3)
    plain = type(base.network).from_pretrained(base.folder)
    assert torch.allclose(logits(PeftModel.from_pretrained(plain, run.adapter)), expected, atol=1e-4)
    export_merged(run, tmp_path / "out")
    assert tensor_shapes(tmp_path / "out") == tensor_shapes(base.folder)
    merged = type(base.network).from_pretrained(tmp_path / "out")
    assert torch.allclose(logits(merged), expected, atol=1e-4)


# Cached features


def test_features_replace_pixels(base: BaseModel) -> None:
    processor = chat_processor(base)
    if not base.family.caches_features:
        assert base.family.name == "smolvlm"
        return
    texts, images = TEXTS[:3], [draw_text(text) for text in TEXTS[:3]]
    encoded = [processor.encode(image, text) for image, text in zip(images, texts, strict=True)]
    features = vision_features(base.network, processor, encoded, None)
    cached = [processor.encode_features(found, text) for found, text in zip(features, texts, strict=True)]
    batches = []
    for samples in (encoded, cached):
        batch = base.family.prepare_batch(processor.collate(samples))
        batches.append(base.family.sample_losses(base.network, batch))
    assert batches[1] == pytest.approx(batches[0], rel=1e-6)
    for sample, again in zip(encoded, cached, strict=True):
        assert (sample.prompt_ids, sample.answer_ids, sample.marks) == (again.prompt_ids, again.answer_ids, again.marks)
    for found in features:
        assert found.tokens[0].numel() == processor.feature_width(base.network)
    with raises_code("batch-mixed"):
        processor.collate([encoded[0], cached[1]])
    if base.family.name == "qwen3_vl":  # what the decoder adds in its first layer matters
        assert features[0].tokens.shape[1] == 2
        for found in features:
            found.tokens[:, 1] = 0
        less = [processor.encode_features(found, text) for found, text in zip(features, texts, strict=True)]
        batch = base.family.prepare_batch(processor.collate(less))
        assert base.family.sample_losses(base.network, batch) != pytest.approx(batches[0], rel=1e-4)


# Resolutions, prompts and templates


@pytest.mark.parametrize(
    ("model_type", "resolution", "size"),
    [
        pytest.param("qwen3_vl", "pixels8192", (256, 32), id="fewer pixels"),
        pytest.param("qwen3_vl", "pixels40000-60000", (576, 96), id="at least so many pixels"),
        pytest.param("glm_ocr", "pixels12544", (224, 28), id="two frames count twice"),
        pytest.param("lighton_ocr", "edge112", (112, 28), id="a shorter edge"),
        pytest.param("got_ocr2", "pad", (64, 64), id="padded to a square"),
        pytest.param("got_ocr2", "wrap", (64, 64), id="wrapped into rows"),
    ],
)
def test_resolutions(model_type: str, resolution: str, size: tuple[int, int], tmp_path: Path) -> None:
    base = write_chat_model(tmp_path / "base", model_type)
    for foreign in ("tiny", "wrap" if resolution.startswith(("pixels", "edge")) else "pixels5000"):
        with raises_code("resolution-unknown"):
            load_processor(str(base), foreign, "free_ocr")
    processor = load_processor(str(base), resolution, "free_ocr")
    image = draw_text("ab", (480, 60))
    encoded = processor.encode(image)
    assert encoded.pixels().shape[1::-1] == size
    assert processor.measure("", lambda: image.size).vision == (
        encoded.prompt_ids.count(processor.image_token_id)  # type: ignore[attr-defined]
    )
    assert 0.4 < processor.distortion(*image.size) < 2.5
    assert processor.shrink(image).width <= image.width
    again = pickle.loads(pickle.dumps(processor))
    assert again.encode(image).has_input_of(encoded)


def rewrite(base: Path, name: str, old: str, new: str) -> None:
    path = base / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_thoughts_that_a_template_writes_belong_to_the_prompt(qwen: Path, tmp_path: Path) -> None:
    base = Path(shutil.copytree(qwen, tmp_path / "base"))
    answer = "{% if message['role'] == 'assistant' %}<think>\n\n</think>\n\n{% endif %}{% for part in"
    rewrite(base, TEMPLATE, "{% for part in", answer)
    processor = load_processor(str(base), None, "free_ocr")
    assert isinstance(processor, ChatProcessor)
    assert processor.conversation.prompt.endswith("</think>\n\n")
    assert processor.answer_ids("ab") == load_processor(str(qwen), None, "free_ocr").answer_ids("ab")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("code", "file", "old", "new"),
    [
        ("chat-template-invalid", TEMPLATE, "assistant\n{% endif %}", "reader\n{% endif %}"),
        ("chat-template-invalid", TEMPLATE, WRITES, "{% if message['role'] == 'assistant' %}" + WRITES + "{% endif %}"),
        ("chat-template-invalid", TEMPLATE, WRITES, "{{ part['text'] | replace('Q', 'q') }}"),
        ("chat-template-invalid", TEMPLATE, "{% for message", "{% fo message"),
        ("base-incomplete", TEMPLATE, "<|image_pad|>", ""),
        ("base-incomplete", "tokenizer.json", "<|image_pad|>", "<|picture|>"),
        ("base-incomplete", "preprocessor_config.json", "Qwen2VLImageProcessorFast", "OwnImageProcessor"),
        ("base-damaged", "preprocessor_config.json", '"patch_size": 16', '"patch_size": "x"'),
        ("base-damaged", "preprocessor_config.json", '"image_mean": [0.5, 0.5, 0.5]', '"image_mean": [0.5]'),
    ],
)
def test_files_that_cannot_be_used(code: str, file: str, old: str, new: str, qwen: Path, tmp_path: Path) -> None:
    base = Path(shutil.copytree(qwen, tmp_path / "base"))
    rewrite(base, file, old, new)
    with raises_code(code, "base"):
        load_processor(str(base), None, "free_ocr")


def test_a_processor_that_wants_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.models.smolvlm.processing_smolvlm.num2words", None)
    base = write_chat_model(tmp_path / "base", "smolvlm")
    with raises_code("base-incomplete", "base"):
        load_processor(str(base), None, "free_ocr")


def test_a_prompt_with_the_image(qwen: Path) -> None:
    for prompt in ("<image>\nRead.", "<|image_pad|>Read."):
        with raises_code("prompt-image"):
            load_processor(str(qwen), None, prompt)


@pytest.mark.parametrize("size", [(900, 2), (1, 5000)], ids=str)
def test_a_strip_that_its_image_processor_refuses_is_padded(
    qwen: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    processor: Any = load_processor(str(qwen), None, "free_ocr")
    with monkeypatch.context() as patch, raises_code("image-shape"):
        patch.setattr("dsocr.models.chat_inputs._MAX_ASPECT", 1000)  # as if another type refused shapes sooner
        processor.encode(Image.new("L", size))
    strip = Image.new("L", size)
    encoded = processor.encode(processor.shrink(strip))
    slots = encoded.prompt_ids.count(processor.image_token_id)
    assert processor.measure("", lambda: size).vision == slots > 0
    assert (encoded.pixels()[0, 0] == PAD_COLOUR).all()
    assert processor.distortion(*size) > 0


def test_checkpoints_that_cannot_be_loaded(qwen: Path, tmp_path: Path) -> None:
    base = Path(shutil.copytree(qwen, tmp_path / "base"))
    weights = load_file(base / "model.safetensors")
    weights.popitem()
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    with raises_code("checkpoint-mismatch", "base"):
        load_base(str(base))
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = {"quant_method": "awq"}
    (base / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with raises_code("weights-quantized", "base"):
        load_base(str(base))


# Four bits


@pytest.mark.parametrize(
    ("base_name", "installed", "code"),
    [
        pytest.param("chat", False, "package-missing", id="without bitsandbytes"),
        pytest.param("chat", True, "quantization-unavailable", id="without a GPU"),
        pytest.param("nano", True, "quantization-unsupported", id="of a family without it"),
    ],
)
def test_four_bits_where_they_cannot_be(
    base_name: str,
    installed: bool,
    code: str,
    qwen: Path,
    small_dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dsocr.models.loading.find_spec", lambda name: object() if installed else None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    base = str(qwen) if base_name == "chat" else base_name
    settings = {"base": base, "output": tmp_path / "run", "adapter.quantization": "nf4"}
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    error = fail("train", small_dataset, *options)
    assert error.code == code
    assert error.hint
    assert not (tmp_path / "run").exists()


def test_four_bits_are_for_the_text_model_only(qwen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    load = Qwen3VLForConditionalGeneration.from_pretrained

    def record(*args: Any, quantization_config: Any, **options: Any) -> Any:
        given.update(quantization_config)
        return load(*args, **options)

    monkeypatch.setattr("transformers.Qwen3VLForConditionalGeneration.from_pretrained", record)
    monkeypatch.setattr("transformers.BitsAndBytesConfig", dict)
    monkeypatch.setattr("dsocr.models.loading.require_quantization", lambda *args: None)
    base = load_base(str(qwen), dtype=torch.bfloat16, quantization="nf4")
    assert given["load_in_4bit"]
    assert given["bnb_4bit_quant_type"] == "nf4"
    assert given["bnb_4bit_compute_dtype"] == torch.bfloat16
    skipped = [
        name
        for name, module in base.network.named_modules()
        if isinstance(module, torch.nn.Linear) and not should_convert_module(name, given["llm_int8_skip_modules"])
    ]
    assert "lm_head" in skipped
    linear = [name for name, module in base.network.named_modules() if isinstance(module, torch.nn.Linear)]
    assert {name for name in linear if name not in skipped} == {name for name in linear if "language_model" in name}
