"""What the texts of the larger test promise, and the plan of its drawing; the fonts are not needed to see it."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dsocr.document import Split
from render_more import MORE, more_pages
from render_sample import HANDS, TEXTS, read_pages, read_texts

ROOT = Path(__file__).parents[1]
NANO_TOKENIZER = ROOT / "src" / "dsocr" / "models" / "bases" / "nano" / "tokenizer.json"


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, ...]]:
    return [lines for _, lines in read_texts(MORE)]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def threes(lines: tuple[str, ...]) -> list[tuple[str, ...]]:
    run = words(" ".join(lines))
    return list(zip(run, run[1:], run[2:], strict=False))


def test_there_are_enough_words_to_tell_an_error_of_3_percent(texts: list[tuple[str, ...]]) -> None:
    """Perfect confidences of 918 words show 0.034 by chance, and of four times as many half of that."""
    assert sum(len(line.split()) for lines in texts for line in lines) >= 2000


def test_no_three_words_in_a_row_are_in_the_sample(texts: list[tuple[str, ...]]) -> None:
    """Not even where a sentence runs on from line to line; so no line of a split is a line of these."""
    known = {three for page in read_pages(TEXTS) for three in threes(page.lines)}
    assert len(known) > 1000
    assert [" ".join(three) for lines in texts for three in threes(lines) if three in known] == []


def test_no_line_of_the_sample_is_among_them(texts: list[tuple[str, ...]]) -> None:
    """Lines of two words have no three in a row."""
    known = {" ".join(words(line)) for page in read_pages(TEXTS) for line in page.lines}
    assert [line for lines in texts for line in lines if " ".join(words(line)) in known] == []


def test_no_line_is_repeated(texts: list[tuple[str, ...]]) -> None:
    lines = Counter(" ".join(words(line)) for lines in texts for line in lines)
    assert [line for line, count in lines.items() if count > 1] == []


def test_lines_are_as_long_as_those_of_the_sample(texts: list[tuple[str, ...]]) -> None:
    assert [line for lines in texts for line in lines if not 10 <= len(line) <= 44] == []


def test_nano_knows_every_character(texts: list[tuple[str, ...]]) -> None:
    vocabulary = json.loads(NANO_TOKENIZER.read_text(encoding="utf-8"))["model"]["vocab"]
    assert sorted(set("".join("".join(lines) for lines in texts)) - set(vocabulary)) == []


def test_every_hand_writes_every_text_and_no_page_is_named_twice(texts: list[tuple[str, ...]]) -> None:
    pages = list(more_pages(drawings=2))
    assert len({page.name for page in pages}) == len(pages) == 2 * len(HANDS) * len(texts)
    assert Counter((page.writer, page.lines) for page in pages) == {
        (writer, lines): 2 for writer in HANDS for lines in texts
    }
    assert {page.split for page in pages} == {Split.TEST}


def test_every_drawing_has_its_own_random_state(texts: list[tuple[str, ...]]) -> None:
    """Zeros at the end of a seed change nothing, which would give the sample's own lots again."""
    pages = [page for page in more_pages(drawings=3) if page.lines == texts[0]]
    seeds = [(), *(page.drawing for page in pages)]
    drawn = {tuple(np.random.default_rng((1, *seed)).integers(2**32, size=4)) for seed in seeds}
    assert len(drawn) == len(seeds) == 1 + 3 * len(HANDS)


@pytest.mark.parametrize("hands", [["gleb"], ["vera", "anna"]], ids=["one hand", "in another order"])
def test_the_plan_of_a_page_does_not_depend_on_other_pages(hands: list[str]) -> None:
    whole = {page.name: page for page in more_pages(drawings=2)}
    some = list(more_pages(hands))
    assert {page.writer for page in some} == set(hands)
    assert all(whole[page.name] == page for page in some)
