"""JSON can write half of a character, which UTF-8 cannot: such a text or name is left out, and the rest is read."""

from pathlib import Path

import pytest

from dsocr.data.prepare import prepare
from tests.data.making import picture, write

BOX = '"id": "\\udc00", "bbox": [0, 0, 50, 40]'

TEXT = '"type": "textarea", "value": {"text": ["да"]}'


@pytest.mark.parametrize(
    ("file", "bad", "good"),
    [
        pytest.param(
            "t.jsonl", '{"image": "p.png", "text": "a\\ud800"}\n', '{"image": "p.png", "text": "да"}', id="text"
        ),
        pytest.param(
            "t.jsonl", '{"image": "\\ud800.png", "text": "да"}\n', '{"image": "p.png", "text": "да"}', id="image"
        ),
        pytest.param(
            "a.json",
            f'{{"images": [{{"id": 1, "file_name": "\\ud800"}}, {{"id": 2, "file_name": "p.png"}}], "annotations": ['
            f'{{{BOX}, "image_id": 1, "text": "да"}}, {{{BOX}, "image_id": 2, "text": "да"}}',
            "]}",
            id="COCO image and id",
        ),
        pytest.param(
            "a.json",
            '[{"id": 1, "annotations": [], "data": {"image": "\\ud800.png"}},',
            f'{{"annotations": [{{"result": [{{"id": "\\udc00", {TEXT}}}]}}], "data": {{"image": "p.png"}}}}]',
            id="Label Studio image and id",
        ),
        pytest.param(
            "a.json",
            f'[{{"annotations": [{{"result": [{{"id": "a", "from_name": "\\ud800", {TEXT}}},'
            f'{{"id": "a", "from_name": "b", {TEXT}}}]}}], "data": {{"image": "p.png"}}}},',
            f'{{"annotations": [{{"result": [{{"id": "b", {TEXT}}}]}}], "data": {{"image": "p.png"}}}}]',
            id="Label Studio field",
        ),
    ],
)
def test_a_text_with_an_unpaired_surrogate_is_skipped(tmp_path: Path, file: str, bad: str, good: str) -> None:
    picture(tmp_path / "s" / "p.png")
    write(tmp_path / "s" / file, bad + good)
    card = prepare(tmp_path / "s", tmp_path / "out", split="1/0/0").card
    assert [part.samples for part in card.splits.values()] == [1]
    assert sum(part.count for part in card.skipped.values()) == 1
