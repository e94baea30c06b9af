"""The frame of a page lets nothing in that is not in it."""

import base64
import hashlib
import re
from pathlib import Path

import pytest
from PIL import Image

from dsocr.images import Thumbnails
from dsocr.pages.frame import render_frame


def policy_of(page: str) -> str:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    return str(policy)


def test_the_policy_allows_the_pages_own_script_alone() -> None:
    script = "document.title = '1';"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy_of(render_frame("t", "<p>b</p>", script=script)).endswith(f"script-src 'sha256-{digest}'")


def test_a_page_without_a_script_allows_none() -> None:
    policy = policy_of(render_frame("t", ""))
    assert policy.startswith("default-src 'none';")
    assert "script" not in policy


def test_the_title_is_plain_text() -> None:
    assert "<title>&lt;b&gt;1 &amp; 2</title>" in render_frame("<b>1 & 2", "")


def test_a_thumbnail_is_small_and_told(tmp_path: Path) -> None:
    Image.new("L", (2000, 100), 200).save(tmp_path / "a.png")
    html = Thumbnails((500, 500), 10**6).of(tmp_path / "a.png", alt='a "line"')
    assert 'width="500" height="25"' in html
    assert 'alt="a &#34;line&#34;"' in html


@pytest.mark.parametrize(
    ("most_bytes", "shown"),
    [
        pytest.param(0, 1, id="room for none: the first one is let in"),
        pytest.param(10**6, 3, id="room for all"),
    ],
)
def test_thumbnails_end_where_the_room_ends(tmp_path: Path, most_bytes: int, shown: int) -> None:
    for name in "abc":
        Image.new("L", (20, 20), 200).save(tmp_path / f"{name}.png")
    thumbnails = Thumbnails((50, 50), most_bytes)
    pictures = [thumbnails.of(tmp_path / f"{name}.png") for name in "abc"]
    assert sum("<img" in html for html in pictures) == shown
    assert thumbnails.full == (shown < 3)


def test_what_cannot_be_opened_is_told_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    assert Thumbnails((50, 50), 100).of(tmp_path / "a.png", missing="<i>gone</i>") == "<i>gone</i>"
