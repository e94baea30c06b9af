"""The lines to transcribe next: which are chosen, their files, and reading these back."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from dsocr.config import RunConfig
from dsocr.data.source_report import SourceReport
from dsocr.data.sources import UntranscribedSource
from dsocr.errors import DataError
from dsocr.inference.suggest import Candidate, Suggestions, TrainingContent, choose, suggest
from dsocr.io.work import write_file
from dsocr.runs import RunFolder
from tests.raising import raises_code

PAGE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"


def page_source(folder: Path, *, pages: int = 2, lines: int = 4, transcribed: int = 1) -> Path:
    """PAGE files whose first lines are transcribed."""
    folder.mkdir()
    for page in range(pages):
        image = Image.new("L", (400, 80 * lines), 240)
        marks = []
        for line in range(lines):
            top = 80 * line + 10
            ImageDraw.Draw(image).text((20, top), f"page {page} line {line}", fill=30)
            text = f"<TextEquiv><Unicode>line {line}</Unicode></TextEquiv>" if line < transcribed else ""
            points = f"10,{top} 390,{top} 390,{top + 60} 200,{top + 66} 10,{top + 60}"
            marks.append(f'<TextLine id="l{line}"><Coords points="{points}"/>{text}</TextLine>')
        image.save(folder / f"anna_{page}.png")
        region = f'<TextRegion id="r"><Coords points="0,0 399,0 399,319 0,319"/>{"".join(marks)}</TextRegion>'
        page_xml = f'<Page imageFilename="anna_{page}.png" imageWidth="400" imageHeight="{80 * lines}">{region}</Page>'
        xml = f'<?xml version="1.0" encoding="UTF-8"?><PcGts xmlns="{PAGE}">{page_xml}</PcGts>'
        (folder / f"anna_{page}.xml").write_text(xml, encoding="utf-8")
    return folder


@pytest.fixture
def run(small_config: RunConfig) -> RunFolder:
    """A run that knows its dataset; nothing reads with it here."""
    small_config.output.mkdir()
    write_file(RunFolder(small_config.output).config, small_config.to_yaml())
    return RunFolder(small_config.output)


def reading(images: Iterator[tuple[str, Image.Image]]) -> Iterator[Candidate]:
    """Reads each line as a different letter, with less confidence further down and on later pages."""
    for number, (name, image) in enumerate(images):
        assert image.width > 300
        yield Candidate(name, f"text\t{number}", 0.9 - 0.1 * number)


def queued(run: RunFolder, source: Path, out: Path, **options: object) -> Suggestions:
    return suggest(run, source, out, reader=reading, **options)  # type: ignore[arg-type]


def test_lines_without_a_text_are_ranked_and_written_with_their_outlines(run: RunFolder, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    source, out = page_source(tmp_path / "source"), tmp_path / "queue"
    queue = queued(run, source, out, count=4, writer="([a-z]+)_", progress=lambda done, all_: seen.append((done, all_)))
    assert (queue.untranscribed, len(queue.choices), queue.skipped) == (6, 4, [])
    assert seen[-1] == (6, 6)

    rows = json.loads((out / "suggestions.json").read_text(encoding="utf-8"))["lines"]
    assert [row["rank"] for row in rows] == [1, 2, 3, 4]
    assert {row["writer"] for row in rows} == {"anna"}
    assert rows[0]["confidence"] == pytest.approx(0.4)
    with (out / "suggestions.tsv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    assert [row["where"] for row in table] == [row["where"] for row in rows]
    assert "text 5" in {row["reading"] for row in table}
    assert (out / "suggestions.html").read_text(encoding="utf-8").count("<section>") == 4

    images = list(UntranscribedSource.open(out, "page", {}).pages(SourceReport(strict=True)))
    assert sum(len(image.lines) for image in images) == 4
    assert all(line.outline is not None and len(line.outline.polygon) == 5 for image in images for line in image.lines)
    written = {f"page/{image.name.rpartition('/')[2]}.xml" for image in images}
    assert {row["file"] for row in rows} == written
    for row in rows:
        assert f'<TextLine id="{row["line"]}"' in (out / row["file"]).read_text(encoding="utf-8")
    assert not (out / ".cut").exists()


def test_a_table_that_is_not_utf8_is_read_in_the_encoding_that_is_named(run: RunFolder, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("1.png", "2.png"):
        Image.new("L", (400, 60), 240).save(source / name)
    (source / "lines.tsv").write_text(
        "image\ttext\n1.png\tЯ пришёл домой в 5 часов вечера, и никого не было\n2.png\t\n", encoding="cp1251"
    )
    with pytest.raises(DataError, match="cp1251"):
        queued(run, source, tmp_path / "queue")
    assert queued(run, source, tmp_path / "queue", encoding="cp1251").untranscribed == 1


def test_the_same_source_gives_the_same_queue_and_only_a_queue_is_replaced(run: RunFolder, tmp_path: Path) -> None:
    source, out = page_source(tmp_path / "source"), tmp_path / "queue"

    def content() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}

    queued(run, source, out)
    first = content()
    with raises_code("output-exists"):
        queued(run, source, out)
    queued(run, source, out, overwrite=True)
    assert content() == first
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(DataError, match=r"notes\.txt"):
        queued(run, source, out, overwrite=True)
    with raises_code("output-overlaps-source"):
        queued(run, source, source / "queue")


def test_images_without_any_transcription_are_lines(run: RunFolder, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    for name in ("a/1.png", "a/2.png", "b/3.png"):
        (lines / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (320, 40), 200).save(lines / name)
    queue = queued(run, lines, tmp_path / "queue")
    assert [choice.candidate.page for choice in queue.choices] == ["b", "a", "a"]
    assert len(list((tmp_path / "queue" / "page").iterdir())) == 3

    (lines / "a" / "1.txt").write_text("transcribed", encoding="utf-8")
    assert queued(run, lines, tmp_path / "other").untranscribed == 2


def test_a_damaged_image_is_counted_and_with_strict_an_error(run: RunFolder, tmp_path: Path) -> None:
    source = page_source(tmp_path / "source", pages=3)
    (source / "anna_0.png").write_bytes(b"no image")
    queue = queued(run, source, tmp_path / "queue")
    assert [str(item.reason) for item in queue.skipped] == ["image cannot be read"]
    assert len(queue.choices) == 6
    with pytest.raises(DataError):
        queued(run, source, tmp_path / "strict", strict=True)
    assert not (tmp_path / "strict").exists()


def test_a_source_without_untranscribed_lines_is_an_error(run: RunFolder, tmp_path: Path) -> None:
    with raises_code("nothing-untranscribed"):
        queued(run, page_source(tmp_path / "source", transcribed=4), tmp_path / "queue")


def test_without_the_dataset_of_the_run_nothing_counts_as_new(
    run: RunFolder, small_config: RunConfig, tmp_path: Path
) -> None:
    moved = small_config.model_copy(update={"dataset": tmp_path / "gone"})
    write_file(run.config, moved.to_yaml())
    queue = queued(run, page_source(tmp_path / "source"), tmp_path / "queue", writer="([a-z]+)_")
    assert "dataset is missing" in queue.remarks[-1]
    assert all("new writer" not in choice.reason for choice in queue.choices)


KNOWN = TrainingContent.of([("anna", "аби" * 20)] * 3)


def line(name: str, confidence: float | None = 0.9, text: str = "аби" * 13, **facts: str | None) -> Candidate:
    return Candidate(name, text, confidence, **{"page": name, **facts})


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param(line("a", 0.6), line("b", 0.9), id="less sure"),
        pytest.param(line("a", writer="new"), line("b", writer="anna"), id="a new writer"),
        pytest.param(line("a", text="абъ" * 13), line("b"), id="a rare character"),
        pytest.param(line("a", 0.2), line("b", None, text=""), id="something was read, if unsurely"),
        pytest.param(line("a", None, text=""), line("b", 0.8), id="nothing was read where much should be"),
    ],
)
def test_order_of_the_ranking(better: Candidate, worse: Candidate) -> None:
    for given_order in ([better, worse], [worse, better]):
        assert [choice.candidate.id for choice in choose(given_order, KNOWN, 2)] == ["a", "b"]


def test_lines_of_one_page_do_not_come_all_together() -> None:
    bad = [line(f"bad{number}", 0.5, page="bad") for number in range(10)]
    others = [line(f"other{number}", 0.7) for number in range(5)]
    first = [choice.candidate.page for choice in choose([*bad, *others], KNOWN, 6)]
    assert first.count("bad") == 2


def test_a_rare_character_and_a_new_writer_count_for_less_once_they_are_taken() -> None:
    lines = [line(f"rare{number}", 0.9, text="ъ") for number in range(4)]
    worths = [choice.value for choice in choose(lines, KNOWN, 4)]
    assert worths == sorted(worths, reverse=True)
    assert worths[3] < worths[0] - 0.2
    new = [line(f"new{number}", 0.9, writer="new") for number in range(4)]
    assert choose(new, KNOWN, 4)[3].value < choose(new, KNOWN, 4)[0].value - 0.2


lines = st.builds(
    Candidate,
    id=st.integers(0, 10**6).map(str),
    text=st.text("абъ ", max_size=4),
    confidence=st.none() | st.floats(0, 1),
    page=st.none() | st.sampled_from("pq"),
    writer=st.sampled_from([None, "anna", "new", "newer"]),
)


@given(st.lists(lines, max_size=25), st.integers(0, 30))
def test_as_many_as_asked_each_once_and_always_the_same(candidates: list[Candidate], count: int) -> None:
    chosen = choose(candidates, KNOWN, count)
    assert len(chosen) == min(count, len(candidates))
    assert chosen == choose(candidates, KNOWN, count)
    worths = [choice.value for choice in chosen]
    assert worths == sorted(worths, reverse=True)
    assert chosen == choose(candidates, KNOWN, 99)[:count]
