"""Lines of ALTO and PAGE files are read by the types of their regions."""

from functools import partial
from pathlib import Path

import pytest

from dsocr.document import Unit
from dsocr.formats import parse_xml_page
from tests.data.making import page_line, page_xml, write
from tests.inference.reading_pages import Fails, Hashes, draw_page, fake_run, transcribe
from tests.raising import raises_code

KINDS = ('type="heading"', 'type="marginalia"', "", 'type="heading"')


def typed_page(folder: Path, name: str) -> Path:
    """A page with a line in each of four regions, one of them untyped."""
    draw_page(folder / f"{name}.png", lines=len(KINDS))
    regions = []
    for number, kind in enumerate(KINDS):
        top = 60 + 90 * number
        points = f"40,{top} 560,{top} 560,{top + 50} 40,{top + 50}"
        line = page_line(f"old {number}", points=points)
        regions.append(f'<TextRegion id="r{number}" {kind}><Coords points="{points}"/>{line}</TextRegion>')
    return write(folder / f"{name}.xml", page_xml("".join(regions), image=f"{name}.png", size=(600, 800)))


@pytest.mark.parametrize("unit", ["line", "region"])
def test_lines_in_regions_of_other_types_keep_their_text(unit: Unit, tmp_path: Path) -> None:
    path = typed_page(tmp_path / "in", "p")
    report = transcribe(
        fake_run(tmp_path / "run", unit),
        [path],
        tmp_path / "out",
        format=["page"],
        regions=["Heading"],
        reader=Hashes(),
        replace=True,
    )
    (written,) = (tmp_path / "out").rglob("*.xml")
    assert [line.text.startswith("old") for line in parse_xml_page(written).lines] == [False, True, False, False]
    assert (report.lines, report.outside) == (4, 1)


@pytest.mark.parametrize(
    ("unit", "code"),
    [
        pytest.param("line", "regions-unknown", id="a scan states no types"),
        pytest.param("page", "regions-unknown", id="whole pages"),
    ],
)
def test_types_that_cannot_be_chosen_are_refused_before_reading(unit: Unit, code: str, tmp_path: Path) -> None:
    draw_page(tmp_path / "p.png")
    with raises_code(code):
        transcribe(fake_run(tmp_path / "run", unit), [tmp_path / "p.png"], tmp_path / "out", regions=["heading"])
    assert not (tmp_path / "out").exists()


def test_another_choice_of_regions_does_not_resume_an_interrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [typed_page(tmp_path / "in", name) for name in "pq"]
    monkeypatch.setattr("dsocr.io.work.MIN_SECONDS_KEPT", 0.0)
    again = partial(transcribe, fake_run(tmp_path / "run"), pages, tmp_path / "out.jsonl", replace=True)
    with pytest.raises(KeyboardInterrupt):
        again(regions=["heading"], reader=Fails(2, KeyboardInterrupt()))
    report = again(regions=["marginalia"], reader=Hashes())
    assert (report.resumed, report.lines, report.outside) == (0, 8, 4)
