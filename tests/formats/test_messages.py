"""Conversations of other programs: one image and what the assistant says to it."""

import json
from pathlib import Path
from typing import Any

import pytest

from dsocr.document import Item, Page, SkipReason, Split
from dsocr.formats.tables import find_tables
from tests.data.making import picture, write
from tests.formats.reading import pages, read, skipped, texts

ASKED = {"role": "user", "content": "<image>Free OCR."}
SAID = {"role": "assistant", "content": "да"}
ROW = {"messages": [ASKED, SAID], "images": ["scans/a.png"]}
PARTS = [{"type": "image", "image": "scans/a.png"}, {"type": "text", "text": "Free OCR."}]
OLD = [{"from": "human", "value": "?"}, {"from": "gpt", "value": "да"}]


def read_messages(folder: Path, *rows: Any, name: str = "m.jsonl") -> list[Item]:
    picture(folder / "scans" / "a.png")
    whole = name.endswith(".json")
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    write(folder / name, json.dumps(rows) if whole else "\n".join(lines) + "\n\n")
    return read("messages", folder)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(ROW, id="ms-swift and LLaMA-Factory"),
        pytest.param({"messages": [{"role": "system", "content": ""}, ASKED, SAID], "images": "scans/a.png"}, id="one"),
        pytest.param({"conversations": OLD, "image": "scans/a.png"}, id="LLaMA-Factory's older form"),
        pytest.param(
            {"messages": [{"role": "<|User|>", "content": "?", "images": ["scans/a.png"]}, SAID]}, id="in the message"
        ),
        pytest.param(
            {
                "messages": [
                    {"role": "user", "content": PARTS},
                    {"role": "<|Assistant|>", "content": [{"type": "text", "text": "да"}]},
                ]
            },
            id="contents in parts",
        ),
        pytest.param({**ROW, "images": [{"bytes": None, "path": "scans/a.png"}]}, id="a path beside bytes"),
    ],
)
@pytest.mark.parametrize(("name", "where"), [("m.jsonl", "m.jsonl:1"), ("m.json", "m.json#1")])
def test_a_conversation_is_read(tmp_path: Path, row: dict[str, Any], name: str, where: str) -> None:
    (item,) = read_messages(tmp_path, row, name=name)
    assert isinstance(item, Page)
    assert (item.name, item.lines[0].text, item.where) == ("scans/a", "да", where)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        pytest.param({**ROW, "images": ["gone.png"]}, SkipReason.NO_IMAGE, id="no such image"),
        pytest.param({**ROW, "images": ["../a.png"]}, SkipReason.NO_IMAGE, id="one level up"),
        pytest.param({**ROW, "images": ["/etc/gone.png"]}, SkipReason.NO_IMAGE, id="absolute"),
        pytest.param({**ROW, "images": []}, SkipReason.BAD_SOURCE, id="no image"),
        pytest.param({**ROW, "images": ["a", "b"]}, SkipReason.BAD_SOURCE, id="two images"),
        pytest.param({**ROW, "images": [7]}, SkipReason.BAD_SOURCE, id="a number"),
        pytest.param({**ROW, "messages": [ASKED]}, SkipReason.BAD_SOURCE, id="no answer"),
        pytest.param({**ROW, "messages": [SAID, SAID]}, SkipReason.BAD_SOURCE, id="two answers"),
        pytest.param({**ROW, "messages": ["да"]}, SkipReason.BAD_SOURCE, id="a word for a message"),
        pytest.param({"images": []}, SkipReason.BAD_SOURCE, id="no messages"),
        pytest.param([1], SkipReason.BAD_SOURCE, id="a list"),
        pytest.param("{broken", SkipReason.BAD_SOURCE, id="a broken line"),
    ],
)
def test_unusable_entries_are_skipped(tmp_path: Path, row: Any, reason: SkipReason) -> None:
    items = read_messages(tmp_path, ROW, row, ROW)
    assert (skipped(items), texts(items)) == ([(reason, "m.jsonl:2")], ["да", "да"])
    assert find_tables(tmp_path, {}) == []


def test_a_broken_list_is_skipped(tmp_path: Path) -> None:
    write(tmp_path / "m.json", '[{"messages": [')
    assert skipped(read("messages", tmp_path)) == [(SkipReason.BAD_SOURCE, "m.json")]


def test_a_file_named_after_a_split_gives_it(tmp_path: Path) -> None:
    (page,) = pages(read_messages(tmp_path, {**ROW, "writer": "anna"}, name="my_val.jsonl"))
    assert (page.split, page.columns["writer"]) == (Split.VALIDATION, "anna")
