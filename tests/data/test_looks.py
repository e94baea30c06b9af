"""Images that cannot be read well, and images that stand twice in another guise, are told."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from dsocr.data.check import survey_dataset
from dsocr.data.check.findings import Checked, Finding, Findings, look_at
from dsocr.data.check.image_checks import check_looks, check_sizes
from dsocr.data.check.split_checks import check_near_duplicates
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.images import open_image

EXAMPLE = Path(__file__).parents[2] / "examples" / "handwriting"


@pytest.fixture(scope="module")
def line() -> Image.Image:
    """A line of the shipped handwriting."""
    return open_image(sorted((EXAMPLE / "train" / "images").iterdir())[0])


def checked(image: Image.Image, split: Split = Split.TRAIN, text: str = "одна строка", digest: str = "a") -> Checked:
    sample = Sample(f"{split}/{digest}.png", Path("a.png"), text, split)
    return Checked(f"{split}/metadata.jsonl:{digest}", sample, digest, image.size, look_at(image))


def found(*items: Checked) -> dict[str, Finding]:
    findings = Findings()
    for check in (check_looks, check_sizes, check_near_duplicates):
        check(list(items), findings)
    return {finding.code: finding for finding in findings.listed()}


def with_grey(image: Image.Image, low: int, high: int) -> Image.Image:
    """The picture with its greys squeezed into a range, cut off at 0 and 255."""
    values = np.asarray(image.convert("L"), dtype=np.float32) / 255
    return Image.fromarray(np.clip(low + values * (high - low), 0, 255).astype(np.uint8))


def noise(size: tuple[int, int]) -> Image.Image:
    """Empty paper with its grain."""
    grain = np.random.default_rng(1).normal(210, 3, size[::-1])
    return Image.fromarray(grain.astype(np.uint8))


def test_the_shipped_sample_has_no_new_findings() -> None:
    findings = survey_dataset(Dataset.open(EXAMPLE)).findings
    assert {finding.code for finding in findings if finding.severity != "note"} == set()


@pytest.mark.parametrize("image", [Image.new("L", (600, 60), 255), Image.new("RGB", (600, 60)), noise((600, 60))])
def test_blank_images(image: Image.Image) -> None:
    assert found(checked(image))["blank-image"].severity == "warning"


def test_ink_lost_to_the_light_or_the_dark(line: Image.Image) -> None:
    assert found(checked(line)) == {}
    assert set(found(checked(with_grey(line, 170, 330)))) == {"saturated-image"}
    assert set(found(checked(ImageOps.invert(with_grey(line, 170, 330))))) == {"saturated-image"}


def test_scans_in_black_and_white_are_let_be(line: Image.Image) -> None:
    assert found(checked(line.convert("1").convert("L"))) == {}


def test_images_too_small_to_read(line: Image.Image) -> None:
    finding = found(checked(line.resize((300, 19))))["low-resolution"]
    assert finding.examples[0].endswith("300 x 19 pixels")
    assert "low-resolution" not in found(checked(line.resize((300, 20))))


def test_lines_on_their_side(line: Image.Image) -> None:
    turned = checked(line.transpose(Image.Transpose.ROTATE_90), text="другая строка", digest="b")
    assert (
        found(checked(line), checked(line, text="третья"), turned)["turned-image"].examples[0].startswith(turned.where)
    )
    assert found(turned) == {}


def test_pages_and_single_letters_may_be_high(line: Image.Image) -> None:
    letter = checked(line.crop((0, 0, 20, line.height)), text="я", digest="b")
    assert "turned-image" not in found(checked(line), checked(line, text="третья"), letter)


@pytest.mark.parametrize("guise", ["smaller", "darker", "moved", "grain"])
@pytest.mark.parametrize(
    ("split", "code", "severity"),
    [
        pytest.param(Split.TRAIN, "near-duplicate-image", "warning", id="inside a split"),
        pytest.param(Split.TEST, "near-image-crosses", "error", id="across splits"),
    ],
)
def test_a_line_in_another_guise(guise: str, split: Split, code: str, severity: str, line: Image.Image) -> None:
    other = {
        "smaller": line.resize((line.width * 2 // 3, line.height * 2 // 3)),
        "darker": ImageEnhance.Brightness(line).enhance(0.7),
        "moved": line.crop((2, 1, line.width, line.height)),
        "grain": Image.fromarray(
            np.clip(np.asarray(line) + np.random.default_rng(1).normal(0, 6, np.asarray(line).shape), 0, 255).astype(
                np.uint8
            )
        ),
    }[guise]
    first, second = checked(line), checked(other, split, "Одна строка.", "b")
    finding = found(first, second)[code]
    assert (finding.severity, finding.count) == (severity, 1)
    assert finding.examples == (f"{second.where}: like {first.where}",)


def test_other_lines_with_the_same_text_are_let_be() -> None:
    images = [open_image(path) for path in sorted((EXAMPLE / "train" / "images").iterdir())]
    assert found(*(checked(image, digest=str(number)) for number, image in enumerate(images))) == {}
