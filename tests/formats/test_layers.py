"""One file for each scan: normalised copies, layers of a program, and equal pictures."""

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import dsocr
from dsocr.data.convert import convert
from dsocr.data.prepare import prepare
from dsocr.document import Page, Skipped, SkipReason
from dsocr.formats.alto import read_alto
from dsocr.formats.page import read_page
from dsocr.formats.xml import preferred_layer
from dsocr.inference.inputs import find_pages
from tests.data.making import alto, alto_line, page_xml, picture, write, write_pages
from tests.raising import raises_code

OTHER = (255, 0, 0)


def page(folder: Path, name: str, *texts: str, image: str = "p.png") -> None:
    write(folder / name, alto("".join(map(alto_line, texts)), image=image))


def normalised_copy(folder: Path) -> None:
    picture(folder / "p.png")
    page(folder, "p.chocomufin.xml", "normalised", "normalised")
    page(folder, "p.xml", "original")


def layers_in_one_folder(folder: Path) -> None:
    picture(folder / "p.png")
    page(folder, "p_kraken.xml", "read by a program")
    page(folder, "p_manual.xml", "typed", "typed")


def layers_in_two_exports(folder: Path) -> None:
    for layer, texts in (("auto", [""]), ("manual", ["typed"])):
        picture(folder / layer / "p.png")
        page(folder / layer, "p.xml", *texts)


def layers_above_one_folder_of_images(folder: Path) -> None:
    picture(folder / "images" / "p.png")
    for layer in ("auto", "manual"):
        page(folder / layer, "p.xml", layer)


def another_scan_of_the_same_name(folder: Path) -> None:
    for part, colour in (("a", "white"), ("b", OTHER)):
        picture(folder / part / "p.png", colour=colour)
        page(folder / part, "p.xml", part)


def an_image_cannot_be_found(folder: Path) -> None:
    picture(folder / "p.png")
    page(folder, "p.xml", "text")
    page(folder, "q.xml", "text", image="q.png")


CASES = [
    pytest.param(normalised_copy, None, ["p.xml"], id="the file named as the image"),
    pytest.param(normalised_copy, "chocomufin", ["p.chocomufin.xml"], id="the layer that is asked for"),
    pytest.param(layers_in_one_folder, None, ["p_manual.xml"], id="most transcribed lines"),
    pytest.param(layers_in_one_folder, "KRAKEN", ["p_kraken.xml"], id="upper case is lower case"),
    pytest.param(layers_in_two_exports, None, ["manual/p.xml"], id="two exports with images"),
    pytest.param(layers_in_two_exports, "auto/", ["auto/p.xml"], id="a folder"),
    pytest.param(layers_above_one_folder_of_images, None, ["auto/p.xml"], id="the first of equal ones"),
    pytest.param(another_scan_of_the_same_name, None, ["a/p.xml", "b/p.xml"], id="another scan"),
    pytest.param(an_image_cannot_be_found, None, ["p.xml"], id="an image that is missing"),
]


@pytest.mark.parametrize(("make", "layer", "expected"), CASES)
def test_a_scan_is_read_once(
    make: Callable[[Path], None], layer: str | None, expected: list[str], tmp_path: Path
) -> None:
    make(tmp_path)
    with preferred_layer(layer):
        items = list(read_alto(tmp_path))
    assert [item.where for item in items if isinstance(item, Page)] == expected
    others = [item for item in items if isinstance(item, Skipped) and item.reason is SkipReason.OTHER_LAYER]
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.xml"))
    missing = [item.where for item in items if isinstance(item, Skipped) and item.reason is SkipReason.NO_IMAGE]
    assert sorted([*expected, *missing, *(item.where for item in others)]) == files
    for item in others:
        assert any(name in item.message for name in expected), "it is said which file describes the scan"


@pytest.mark.parametrize("make", [normalised_copy, layers_in_one_folder, layers_in_two_exports])
def test_the_option_that_is_named_takes_the_other_file(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path)
    (other,) = (item for item in read_alto(tmp_path) if isinstance(item, Skipped))
    with preferred_layer(other.message.split("--layer ")[1].split()[0]):
        assert other.where in [item.where for item in read_alto(tmp_path) if isinstance(item, Page)]


def test_page_xml_has_layers_too_and_mixed_formats_are_transcribed_once(tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    write(tmp_path / "p.xml", page_xml(""))
    write(tmp_path / "p.copy.xml", page_xml(""))
    assert [item.where for item in read_page(tmp_path) if isinstance(item, Page)] == ["p.xml"]
    page(tmp_path / "alto", "p.xml", "text")
    with find_pages([tmp_path], tmp_path / "unpacked") as found:
        assert [page.id for page in found.pages] == ["alto/p.xml"]  # which has the text
        assert len(found.omitted) == 2


def test_a_layer_that_no_file_has_is_an_error(tmp_path: Path) -> None:
    normalised_copy(tmp_path / "s")
    with raises_code("layer-unknown"):
        prepare(tmp_path / "s", tmp_path / "out", layer="manual")
    with raises_code("layer-unknown"):
        convert(tmp_path / "s", tmp_path / "out", to="page", layer="manual")
    convert(tmp_path / "s", tmp_path / "out", to="page", layer="choco")


def test_equal_pictures_under_two_names_are_in_one_split(tmp_path: Path) -> None:
    source = write_pages(tmp_path / "s", [str(number) for number in range(8)])
    for number in range(3):
        shutil.copy(source / f"{number}.png", source / f"copy of {number}.png")
        page(source, f"copy of {number}.xml", f"copy {number}", image=f"copy of {number}.png")
    for seed in range(2):
        dataset = prepare(source, tmp_path / f"out{seed}", seed=seed)
        splits = {sample.page: sample.split for sample in dataset}
        assert [splits[str(number)] for number in range(3)] == [splits[f"copy of {number}"] for number in range(3)]
        assert any("0 = copy of 0" in note or "copy of 0 = 0" in note for note in dataset.card.notes)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda box, out: dsocr.transcribe("small", box, out, layer="nothing"), id="transcribe"),
        pytest.param(
            lambda box, out: dsocr.open_workbench(box, work=out, run="none", layer="nothing", port=free_port()),
            id="workbench",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_whatever_reads_scans_asks_for_the_layer(read: Callable[[Path, Path], object], tmp_path: Path) -> None:
    normalised_copy(tmp_path / "box")
    with raises_code("layer-unknown"):
        read(tmp_path / "box", tmp_path / "out")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
