"""Checks of images: unreadable files and duplicates."""

import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from dsocr.data.check import split_checks
from dsocr.data.check.findings import CheckedSample, Finding, Findings
from dsocr.data.check.image_checks import check_brightness, check_sizes, measure_image
from dsocr.data.check.split_checks import check_near_duplicates, similar_with_any_text, similar_with_same_text
from dsocr.document import Sample, Split
from dsocr.images import open_image
from tests.data.check_samples import sample, stats

EXAMPLE = Path(__file__).parents[2] / "examples" / "handwriting"


@pytest.fixture(scope="module")
def line() -> Image.Image:
    """A line of the shipped handwriting."""
    return open_image(sorted((EXAMPLE / "train" / "images").iterdir())[0])


def checked(
    image: Image.Image, split: Split = Split.TRAIN, text: str = "одна строка", digest: str = "a"
) -> CheckedSample:
    item = Sample(f"{split}/{digest}.png", Path("a.png"), text, split)
    return CheckedSample(f"{split}/metadata.jsonl:{digest}", item, digest, image.size, measure_image(image))


def found(*samples: CheckedSample) -> dict[str, Finding]:
    findings = Findings()
    for check_images in (check_brightness, check_sizes, check_near_duplicates):
        check_images(samples, findings)
    return {finding.code: finding for finding in findings}


def with_grey(image: Image.Image, low: int, high: int) -> Image.Image:
    """The image with its grey levels squeezed into a range, clipped at 0 and 255."""
    levels = np.asarray(image.convert("L"), dtype=np.float32) / 255
    return Image.fromarray(np.clip(low + levels * (high - low), 0, 255).astype(np.uint8))


def with_grain(image: Image.Image, deviation: float) -> Image.Image:
    pixels = np.asarray(image)
    grain = np.random.default_rng(1).normal(0, deviation, pixels.shape)
    return Image.fromarray(np.clip(pixels + grain, 0, 255).astype(np.uint8))


@pytest.mark.parametrize(
    "image",
    [
        Image.new("L", (600, 60), 255),
        Image.new("RGB", (600, 60)),
        with_grain(Image.new("L", (600, 60), 210), 3),
    ],
    ids=["white", "black", "empty paper"],
)
def test_blank_images(image: Image.Image) -> None:
    assert found(checked(image))["blank-image"].severity == "warning"


def test_over_and_underexposed_images(line: Image.Image) -> None:
    assert found(checked(line)) == {}
    assert found(checked(line.convert("1").convert("L"))) == {}, "black and white scans are fine"
    overexposed = with_grey(line, 170, 330)
    assert set(found(checked(overexposed))) == {"saturated-image"}
    assert set(found(checked(ImageOps.invert(overexposed)))) == {"saturated-image"}


def test_images_too_small_to_read(line: Image.Image) -> None:
    assert found(checked(line.resize((300, 19))))["low-resolution"].examples[0].detail == "300 x 19 pixels"
    assert "low-resolution" not in found(checked(line.resize((300, 20))))


def test_sideways_lines(line: Image.Image) -> None:
    turned = checked(line.transpose(Image.Transpose.ROTATE_90), text="другая строка", digest="b")
    letter = checked(line.crop((0, 0, 20, line.height)), text="я", digest="c")
    finding = found(checked(line), checked(line, text="третья"), turned, letter)["turned-image"]
    assert (finding.count, finding.where) == (1, turned.where)
    assert found(turned) == {}, "a dataset of pages"


@pytest.mark.parametrize("how", ["smaller", "darker", "moved", "grain"])
@pytest.mark.parametrize(
    ("split", "code", "severity"),
    [
        pytest.param(Split.TRAIN, "near-duplicate-image", "warning", id="inside a split"),
        pytest.param(Split.TEST, "near-image-crosses", "error", id="across splits"),
    ],
)
def test_line_scanned_twice(how: str, split: Split, code: str, severity: str, line: Image.Image) -> None:
    other = {
        "smaller": line.resize((line.width * 2 // 3, line.height * 2 // 3)),
        "darker": ImageEnhance.Brightness(line).enhance(0.7),
        "moved": line.crop((2, 1, line.width, line.height)),
        "grain": with_grain(line, 6),
    }[how]
    first, second = checked(line), checked(other, split, "Одна строка.", "b")
    finding = found(first, second)[code]
    assert (finding.severity, finding.count, finding.where) == (severity, 1, second.where)
    assert finding.examples[0].other == first.sample.id


def test_different_lines_with_the_same_text_are_no_duplicates() -> None:
    images = [open_image(path) for path in sorted((EXAMPLE / "train" / "images").iterdir())]
    assert found(*(checked(image, digest=str(number)) for number, image in enumerate(images))) == {}


ALL_BITS = (1 << 64) - 1


def thumbnail(seed: int) -> bytes:
    return random.Random(seed).randbytes(1024)


def hashed(number: int, dhash: int, thumbnail_: bytes) -> CheckedSample:
    return sample(number, "текст", image=stats(dhash=dhash, thumbnail=thumbnail_))


def random_samples(count: int) -> list[CheckedSample]:
    rng = random.Random(1)
    return [hashed(number, rng.getrandbits(64), thumbnail(number)) for number in range(count)]


def ids(pairs: object) -> list[tuple[str, list[str]]]:
    return [(item.sample.id, [other.sample.id for other in others]) for item, others in pairs]  # type: ignore[attr-defined]


def twin(of: CheckedSample, number: int, bits: int) -> CheckedSample:
    assert of.stats
    return hashed(number, of.stats.dhash ^ bits, of.stats.thumbnail)


def test_similar_images_are_found_among_many() -> None:
    samples = random_samples(2000)
    samples.append(twin(samples[700], 5000, 1 << 3 | 1 << 20 | 1 << 60))
    assert ids(similar_with_any_text(samples)) == [("train/5000.png", ["train/700.png"])]
    other_picture = [hashed(1, 5, thumbnail(1)), hashed(2, 5, thumbnail(2))]
    assert ids(similar_with_any_text(other_picture)) == []


def test_images_with_the_same_text_may_differ_more() -> None:
    first = hashed(1, ALL_BITS, thumbnail(1))
    second = twin(first, 2, 0b111_0000_0000_0111_0000_0000_0111_0000)
    assert ids(similar_with_same_text([first, second])) == [("train/2.png", ["train/1.png"])]
    assert ids(similar_with_any_text([first, twin(first, 2, 0x0001_0001_0001_0001)])) == []


def test_work_does_not_grow_with_the_square(monkeypatch: pytest.MonkeyPatch) -> None:
    equal = [hashed(number, 7, thumbnail(1)) for number in range(300)]
    assert max(len(others) for _, others in similar_with_any_text(equal)) <= 4 * split_checks.MAX_PER_BAND
    monkeypatch.setattr(split_checks, "MAX_SAME_TEXT", 10)
    assert max(len(others) for _, others in similar_with_same_text(equal)) == 10
