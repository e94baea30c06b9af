"""Conversations of other programs: one image and what the assistant says to it."""

import json
from pathlib import Path
from typing import Any

import pytest

from dsocr.document import Page, Skipped, SkipReason, Split
from dsocr.formats.messages import find_messages, read_messages
from dsocr.formats.tables import find_tables
from tests.data.making import picture, write

ASKED = {"role": "user", "content": "<image>Free OCR."}
SAID = {"role": "assistant", "content": "да"}
ROW = {"messages": [ASKED, SAID], "images": ["scans/a.png"]}
PARTS = [{"type": "image", "image": "scans/a.png"}, {"type": "text", "text": "Free OCR."}]


def read(folder: Path, *rows: Any, name: str = "m.jsonl") -> list[Page | Skipped]:
    picture(folder / "scans" / "a.png")
    whole = name.endswith(".json")
    write(folder / name, json.dumps(rows) if whole else "\n".join(map(json.dumps, rows)) + "\n\n")
    return list(read_messages(folder))


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(ROW, id="ms-swift and LLaMA-Factory"),
        pytest.param(
            {"messages": [{"role": "system", "content": "x"}, ASKED, SAID], "images": "scans/a.png"}, id="one"
        ),
        pytest.param(
            {
                "conversations": [{"from": "human", "value": "?"}, {"from": "gpt", "value": "да"}],
                "image": "scans/a.png",
            },
            id="LLaMA-Factory's older form",
        ),
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
    (item,) = read(tmp_path, row, name=name)
    assert isinstance(item, Page)
    assert (item.name, item.lines[0].text, item.where) == ("scans/a", "да", where)


@pytest.mark.parametrize(
    ("row", "reason", "message"),
    [
        pytest.param({**ROW, "images": ["gone.png"]}, SkipReason.NO_IMAGE, "no image 'gone.png'", id="no such image"),
        pytest.param({**ROW, "images": ["../a.png"]}, SkipReason.NO_IMAGE, "leaves the folder", id="one level up"),
        pytest.param({**ROW, "images": ["/etc/gone.png"]}, SkipReason.NO_IMAGE, "no image", id="absolute"),
        pytest.param({**ROW, "images": []}, SkipReason.BAD_SOURCE, "0 images in one conversation", id="no image"),
        pytest.param({**ROW, "images": ["a", "b"]}, SkipReason.BAD_SOURCE, "2 images", id="two images"),
        pytest.param({**ROW, "images": [7]}, SkipReason.BAD_SOURCE, "not named by its path", id="a number"),
        pytest.param({**ROW, "messages": [ASKED]}, SkipReason.BAD_SOURCE, "speaks 0 times", id="no answer"),
        pytest.param({**ROW, "messages": [SAID, SAID]}, SkipReason.BAD_SOURCE, "speaks 2 times", id="two answers"),
        pytest.param({**ROW, "messages": ["да"]}, SkipReason.BAD_SOURCE, "a message is not", id="a word for a message"),
        pytest.param({"images": []}, SkipReason.BAD_SOURCE, "no list of messages", id="no messages"),
        pytest.param([1], SkipReason.BAD_SOURCE, "no list of messages", id="a list"),
    ],
)
def test_unusable_entries_are_skipped(tmp_path: Path, row: Any, reason: SkipReason, message: str) -> None:
    good, item = read(tmp_path, ROW, row)
    assert isinstance(good, Page)
    assert isinstance(item, Skipped)
    assert (item.reason, item.where) == (reason, "m.jsonl:2")
    assert message in item.message


def test_a_broken_line_is_skipped_and_the_rest_read(tmp_path: Path) -> None:
    picture(tmp_path / "scans" / "a.png")
    write(tmp_path / "m.jsonl", f"{json.dumps(ROW)}\n{{broken\n{json.dumps(ROW)}\n")
    found = [(type(item), item.where) for item in read_messages(tmp_path)]
    assert found == [(Page, "m.jsonl:1"), (Skipped, "m.jsonl:2"), (Page, "m.jsonl:3")]
    assert find_tables(tmp_path, {}) == []


def test_a_broken_list_is_skipped(tmp_path: Path) -> None:
    write(tmp_path / "m.json", '[{"messages": [')
    (item,) = read_messages(tmp_path)
    assert isinstance(item, Skipped)
    assert "JSON is invalid" in item.message


def test_a_file_named_after_a_split_gives_it(tmp_path: Path) -> None:
    (item,) = read(tmp_path, {**ROW, "writer": "anna"}, name="my_val.jsonl")
    assert isinstance(item, Page)
    assert (item.split, item.columns["writer"]) == (Split.VALIDATION, "anna")


def test_tables_are_no_conversations(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl", '{"image": "a.png", "text": "да"}\n{"messages": []}\n')
    assert find_messages(tmp_path) == []
