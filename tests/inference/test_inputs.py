"""Inputs of a transcription, and the pages they yield."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from dsocr.data.prepare import prepare
from dsocr.document import Split
from dsocr.formats.format import ImageFinder
from dsocr.images import open_image
from dsocr.inference import inputs as finding
from dsocr.inference.confidence import Prediction
from dsocr.inference.inputs import unique_name
from dsocr.io.files import UniqueStems
from dsocr.runs import RunFolder
from tests.data.making import alto, alto_line, page_line, page_xml, write
from tests.formats.making_pdf import image_object, scan, write_pdf
from tests.inference.reading_pages import Hashes, draw_page, fake_run, rows_of, text_of, transcribe


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return fake_run(tmp_path / "run")


def alto_page(folder: Path, name: str, texts: list[str]) -> Path:
    """An ALTO page of bars, beside its image, with these texts."""
    boxes = draw_page(folder / f"{name}.png", len(texts))
    lines = ""
    for number, (text, (left, top, right, bottom)) in enumerate(zip(texts, boxes, strict=True)):
        polygon = f"{left} {top} {right} {top + 4} {right} {bottom} {left} {bottom}"
        string = f'<String CONTENT="{text}"/>' if text else ""
        place = f'HPOS="{left}" VPOS="{top}" WIDTH="{right - left}" HEIGHT="{bottom - top}"'
        lines += f'<TextLine ID="l{number}" {place}><Shape><Polygon POINTS="{polygon}"/></Shape>{string}</TextLine>\n'
    return write(folder / f"{name}.xml", alto(lines, image=f"{name}.png", size=(600, 800)))


def test_the_model_sees_the_pixels_that_it_was_trained_on(run: RunFolder, tmp_path: Path) -> None:
    with_texts = tmp_path / "with"
    alto_page(with_texts, "w1", ["раз", "два", "три"])
    Image.open(with_texts / "w1.png").convert("RGB").save(with_texts / "w1.jpg", quality=80)
    (with_texts / "w1.png").unlink()
    dataset = prepare(with_texts, tmp_path / "data", split="1/0/0")
    trained = [text_of(open_image(sample.image)) for sample in dataset.samples(Split.TRAIN)]
    without = tmp_path / "without"
    alto_page(without, "w1", ["", "", ""])
    (with_texts / "w1.jpg").rename(without / "w1.jpg")
    (without / "w1.png").unlink()
    transcribe(run, [without], tmp_path / "texts.jsonl", reader=Hashes())
    assert [row["text"] for row in rows_of(tmp_path / "texts.jsonl")] == trained


def test_drawn_lines_are_filled_and_texts_that_are_there_stay(run: RunFolder, tmp_path: Path) -> None:
    raw = alto_page(tmp_path / "in", "w1", ["", "уже есть", ""]).read_bytes()
    report = transcribe(run, [tmp_path / "in"], tmp_path / "out", reader=Hashes())
    filled = (tmp_path / "out" / "w1.xml").read_bytes()
    assert (report.images, report.lines, report.kept, report.failed) == (1, 3, 1, [])
    assert filled.count("слово".encode()) == 2
    assert '<String CONTENT="уже есть"/>'.encode() in filled
    assert len(filled) > len(raw)
    again = transcribe(run, [tmp_path / "in"], tmp_path / "new", replace=True, reader=Hashes())
    assert again.kept == 0
    assert "уже" not in (tmp_path / "new" / "w1.xml").read_text(encoding="utf-8")


def test_a_line_that_only_a_program_has_read_is_read_again(run: RunFolder, tmp_path: Path) -> None:
    """As `prepare` has no transcription of it: other lines of the source are typed, on another page."""
    for name, texts in {"a": 'index="0"', "b": 'index="1"'}.items():
        ((left, top, right, bottom),) = draw_page(tmp_path / "in" / f"{name}.png", 1)
        line = page_line("есть", points=f"{left},{top} {right},{top} {right},{bottom} {left},{bottom}")
        document = page_xml(f'<TextRegion id="r">{line}</TextRegion>', image=f"{name}.png", size=(600, 800))
        write(tmp_path / "in" / f"{name}.xml", document.replace("<TextEquiv", f"<TextEquiv {texts}"))
    report = transcribe(run, [tmp_path / "in"], tmp_path / "out", reader=Hashes())
    assert (report.kept, report.lines) == (1, 2)
    assert ["есть" in (tmp_path / "out" / f"{name}.xml").read_text("utf-8") for name in "ab"] == [True, False]


def test_a_folder_of_everything_keeps_its_names_and_its_order(run: RunFolder, tmp_path: Path) -> None:
    place = tmp_path / "in"
    draw_page(place / "b" / "scan.png")
    draw_page(place / "b" / "scan.jpg")
    alto_page(place / "b", "w1", ["", ""])
    write_pdf(place / "box.pdf", [image_object(scan()), image_object(scan(place=9))])
    report = transcribe(run, [place], tmp_path / "out", format=["text"], unit="page", reader=Hashes())
    names = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.txt"))
    assert names == ["b/scan.txt", "b/scan_png.txt", "b/w1.txt", "box_0001.txt", "box_0002.txt"]
    assert report.images == 5


def test_every_page_of_a_tiff_is_read_and_every_image_that_cannot_be_opened_is_named(
    run: RunFolder, tmp_path: Path
) -> None:
    place = tmp_path / "in"
    draw_page(place / "one.png")
    draw_page(place / "two.png")
    pages = [Image.open(place / f"{name}.png") for name in ("one", "two")]
    pages[0].save(place / "book.tif", save_all=True, append_images=pages[1:])
    pages[0].save(place / "one.jp2", irreversible=False)
    for name in ("one.png", "two.png"):
        (place / name).unlink()
    write(place / "layers.psd", "")
    report = transcribe(run, [place], tmp_path / "out", format=["page", "pdf"], unit="page", reader=Hashes())
    assert (report.images, [line.partition(":")[0] for line in report.failed]) == (3, ["layers.psd"])
    names = sorted(path.name for path in (tmp_path / "out").rglob("*.*") if path.suffix in {".xml", ".png", ".pdf"})
    assert names == [
        "book.pdf",
        "book_0001.png",
        "book_0001.xml",
        "book_0002.png",
        "book_0002.xml",
        "one.pdf",
        "one.xml",
    ]


def test_a_folder_is_looked_through_once_for_all_its_files_that_are_named(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [alto_page(tmp_path / "in", name, [""]) for name in ("a", "b", "c")]
    looked: list[Path] = []

    def counted(source: Path) -> ImageFinder:
        looked.append(source)
        return ImageFinder(source)

    monkeypatch.setattr(finding, "ImageFinder", counted)
    assert transcribe(run, files, tmp_path / "out", reader=Hashes()).images == 3
    assert looked == [tmp_path / "in"]


def test_every_bad_input_is_one_sentence_and_the_rest_is_read(run: RunFolder, tmp_path: Path) -> None:
    place = tmp_path / "in"
    alto_page(place, "good", [""])
    write(place / "lost.xml", page_xml(page_line(""), image="nowhere.png"))
    write(place / "cut.xml", '<alto xmlns="x"><Layout>')
    write(place / "void.pdf", "%PDF-1.4 and nothing else")
    (place / "broken.png").write_bytes(b"\x89PNG\r\n")
    Image.new("1", (16000, 16000)).save(place / "huge.png")
    outside = alto_line("", "5000 5000 5100 5000 5100 5050")
    draw_page(place / "far.png")
    write(place / "far.xml", alto(outside, image="far.png", size=(600, 800)))
    report = transcribe(run, [place], tmp_path / "texts.jsonl", reader=Hashes())
    failed = {message.split(":")[0].split("#")[0]: message for message in report.failed}
    assert sorted(failed) == ["broken.png", "cut.xml", "far.xml", "huge.png", "lost.xml", "void.pdf"]
    assert "nowhere.png" in failed["lost.xml"]
    assert "outside the image" in failed["far.xml"]
    assert all("\n" not in sentence for sentence in report.failed)
    assert "good.xml#l0" in [row["id"] for row in rows_of(tmp_path / "texts.jsonl")]


@pytest.mark.parametrize("unit", ["region", "page"])
def test_an_answer_with_as_many_lines_as_are_drawn_fills_them(unit: str, tmp_path: Path) -> None:
    alto_page(tmp_path / "in", "w1", ["", "", ""])
    run = fake_run(tmp_path / "run", unit)
    report = transcribe(run, [tmp_path / "in"], tmp_path / "out", reader=Hashes(lines=3))
    assert (report.unmatched, report.lines) == (0, 3)
    assert 'CONTENT="строка 2"' in (tmp_path / "out" / "w1.xml").read_text(encoding="utf-8")
    report = transcribe(run, [tmp_path / "in"], tmp_path / "other.txt", reader=Hashes(lines=2))
    assert report.unmatched == 1
    assert (tmp_path / "other.txt").read_text(encoding="utf-8").splitlines()[1] == "строка 1"


class Miscounts(Hashes):
    """Reads a line as Hashes does, and of a block always as many lines."""

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        for name, image in images:
            lines, self.lines = self.lines, self.lines if image.height > 100 else 1
            yield from super().read([(name, image)])
            self.lines = lines


@pytest.mark.parametrize("lines", [3, 5], ids=["a lost break", "an added break"])
def test_lines_of_a_block_with_another_number_of_breaks_are_read_alone(lines: int, tmp_path: Path) -> None:
    alto_page(tmp_path / "in", "w1", [""] * 4)
    transcribe(fake_run(tmp_path / "lines"), [tmp_path / "in"], tmp_path / "alone", reader=Hashes())
    reader = Miscounts(lines)
    run = fake_run(tmp_path / "run", "region", most=4)
    report = transcribe(run, [tmp_path / "in"], tmp_path / "blocks", reader=reader)
    assert (report.unmatched, report.lines, len(reader.read_ids)) == (0, 4, 5)
    alone, blocks = ((tmp_path / name / "w1.xml").read_text("utf-8") for name in ("alone", "blocks"))
    assert alone.partition("<Layout")[2] == blocks.partition("<Layout")[2] != ""


@pytest.mark.parametrize(
    ("names", "given"),
    [
        pytest.param([("a", ".png"), ("a", ".jpg"), ("a", ".jpg")], ["a", "a_jpg", "a_jpg-2"], id="other suffixes"),
        pytest.param([("b/A", ".png"), ("b/a", ".png")], ["b/A", "b/a_png"], id="Windows sees one name"),
        pytest.param([("con", ".png"), ("x:y", ".png")], ["con_", "x_y"], id="names that Windows cannot hold"),
    ],
)
def test_names_never_collide(names: list[tuple[str, str]], given: list[str]) -> None:
    taken = UniqueStems()
    assert [unique_name(taken, *name) for name in names] == given
