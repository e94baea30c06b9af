"""Lines are read and written by the types of their regions, as a detector or a file names them."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from dsocr.data.region_types import TYPES_FILE, RegionTypes
from dsocr.document import Line, Outline, Page, Region, Unit
from dsocr.formats import parse_xml_page
from dsocr.inference import transcribe as transcribing
from dsocr.inference.confidence import Prediction
from dsocr.inference.inputs import FindLines
from dsocr.inference.transcribe import TranscribeReport, transcribe
from tests.data.making import page_line, page_xml, write
from tests.inference.reading_pages import Hashes, draw_page, fake_run, find_bars
from tests.raising import raises_code

LINES = 4


def typed_pages() -> list[Page]:
    """Pages with bars as `find_bars` finds them, the first of which are headings."""
    boxes = [(45, 67 + 90 * number, 305 + 40 * number, 96 + 90 * number) for number in range(LINES)]
    kinds = ["heading", "heading", "paragraph:first", "paragraph"]
    lines = [Line("", "p", Outline(box), Region(kind, kind=kind)) for box, kind in zip(boxes, kinds, strict=True)]
    return [Page(Path("p"), "p", "p", tuple(lines), (600, 800))] * 3


@pytest.fixture
def detector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a detector that has learnt two types, whose lines are found in no time."""
    folder = tmp_path / "detector"
    folder.mkdir()
    known = RegionTypes.learn(typed_pages())
    assert known is not None
    (folder / TYPES_FILE).write_bytes(known.to_bytes())

    def choose(name: str, *, tables: bool, types: bool) -> FindLines:
        return find_typed if types else find_bars

    def find_typed(content: bytes, where: str) -> Sequence[Line]:
        kinds = ["paragraph", "paragraph", "heading", "heading"]  # not as they would be told after reading
        regions = [Region(f"r-{kind}", kind=kind) for kind in kinds]
        return [
            Line("", line.where, line.outline, region, line.index)
            for line, region in zip(find_bars(content, where), regions, strict=True)
        ]

    monkeypatch.setattr(transcribing, "choose_segmenter", choose)
    monkeypatch.setattr(transcribing, "types_of_segmenter", lambda name: folder if name == "taught" else None)
    monkeypatch.setattr(transcribing, "identify_segmenter", lambda name: name)
    return folder


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    draw_page(tmp_path / "in" / "p.png", lines=LINES)
    return tmp_path / "in" / "p.png"


def read(
    scan: Path, tmp_path: Path, *regions: str, unit: Unit = "line", segmenter: str = "taught"
) -> tuple[TranscribeReport, list[Line]]:
    run = fake_run(tmp_path / "run", unit)
    report = transcribe(
        run,
        [scan],
        tmp_path / "out",
        formats=["page"],
        segmenter=segmenter,
        regions=regions,
        reader=Hashes(2 if unit == "region" else 1),
        replace_texts=True,
    )
    (path,) = (tmp_path / "out").rglob("*.xml")
    return report, list(parse_xml_page(path).lines)


def kinds_of(lines: list[Line]) -> list[str]:
    return [line.region.kind if line.region else "" for line in lines]


def test_lines_that_are_found_are_written_in_regions_with_types(detector: Path, scan: Path, tmp_path: Path) -> None:
    report, lines = read(scan, tmp_path)
    assert kinds_of(lines) == ["heading", "heading", "paragraph", "paragraph"]
    assert report.outside == 0


@pytest.mark.parametrize("unit", ["line", "region"])
def test_only_lines_of_the_types_asked_for_are_written(unit: Unit, detector: Path, scan: Path, tmp_path: Path) -> None:
    report, lines = read(scan, tmp_path, "Paragraph", unit=unit)
    assert kinds_of(lines) == ["paragraph", "paragraph"]
    assert [line.outline.box[1] for line in lines if line.outline] == ([66, 156] if unit == "region" else [246, 336])
    assert all(line.text for line in lines)
    assert (report.lines, report.outside) == (2, 2)


def test_without_learnt_types_regions_have_none(detector: Path, scan: Path, tmp_path: Path) -> None:
    _, lines = read(scan, tmp_path, segmenter="ppocr")
    assert kinds_of(lines) == [""] * LINES


def test_lines_of_a_file_keep_their_text_unless_their_type_is_asked_for(
    detector: Path, scan: Path, tmp_path: Path
) -> None:
    def region(number: int, kind: str) -> str:
        top = 60 + 90 * number
        points = f"40,{top} 560,{top} 560,{top + 50} 40,{top + 50}"
        line = page_line(f"old {number}", points=points)
        return f'<TextRegion id="r{number}" {kind}><Coords points="{points}"/>{line}</TextRegion>'

    kinds = ['type="heading"', 'type="marginalia"', "", 'type="heading"']
    regions = "".join(region(number, kind) for number, kind in enumerate(kinds))
    path = write(scan.with_suffix(".xml"), page_xml(regions, size=(600, 800)))
    report, lines = read(path, tmp_path, "heading", segmenter="ppocr")
    assert [line.text.startswith("old") for line in lines] == [False, True, False, False]
    assert (report.lines, report.outside) == (4, 1)


@pytest.mark.parametrize(
    ("regions", "unit", "segmenter", "code"),
    [
        pytest.param(["heading"], "line", "ppocr", "regions-unknown", id="no types learnt"),
        pytest.param(["heading", "marginalia"], "line", "taught", "region-type-unknown", id="another type"),
        pytest.param(["heading"], "page", "taught", "regions-need-lines", id="whole pages"),
    ],
)
def test_types_that_cannot_be_chosen_are_refused_before_anything_is_read(
    regions: list[str], unit: Unit, segmenter: str, code: str, detector: Path, scan: Path, tmp_path: Path
) -> None:
    with raises_code(code):
        read(scan, tmp_path, *regions, unit=unit, segmenter=segmenter)
    assert not (tmp_path / "out").exists()


def test_another_choice_of_regions_does_not_resume_an_interrupted_one(
    detector: Path, scan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stops(Hashes):
        def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
            if self.read_ids:
                raise KeyboardInterrupt
            return super().read(images)

    run, scans = fake_run(tmp_path / "run"), scan.parent
    draw_page(scans / "q.png", lines=LINES)
    monkeypatch.setattr("dsocr.io.work.MIN_SECONDS_KEPT", 0.0)
    read_again = partial(transcribe, run, [scans], tmp_path / "out.jsonl", segmenter="taught")
    with pytest.raises(KeyboardInterrupt):
        read_again(regions=["heading"], reader=Stops())
    report = read_again(regions=["paragraph"], reader=Hashes())
    assert (report.resumed, report.lines, report.outside) == (0, 4, 4)
