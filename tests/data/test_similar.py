"""Images are known again in another guise without comparing all with all."""

import random

from dsocr.data.check import image_checks as similar
from dsocr.data.check.findings import Checked
from dsocr.data.check.image_checks import alike_anywhere, with_text_alike
from tests.data.checking_samples import look, sample

ALL = (1 << 64) - 1


def picture(seed: int) -> bytes:
    return random.Random(seed).randbytes(1024)


def seen(number: int, hash_: int, small: bytes) -> Checked:
    return sample(number, "текст", seen=look(hash_=hash_, small=small))


def many(count: int) -> list[Checked]:
    rng = random.Random(1)
    return [seen(number, rng.getrandbits(64), picture(number)) for number in range(count)]


def told(pairs: object) -> list[tuple[str, list[str]]]:
    return [(item.sample.id, [other.sample.id for other in others]) for item, others in pairs]  # type: ignore[attr-defined]


def test_images_that_differ_in_three_bits_are_found_among_many() -> None:
    items = many(2000)
    first = items[700]
    assert first.look is not None
    twin = seen(5000, first.look.hash ^ (1 << 3 | 1 << 20 | 1 << 60), first.look.small)
    assert told(alike_anywhere([*items, twin])) == [("train/5000.png", ["train/700.png"])]


def test_other_pictures_with_a_like_hash_are_let_be() -> None:
    assert told(alike_anywhere([seen(1, 5, picture(1)), seen(2, 5, picture(2))])) == []


def test_images_of_one_text_may_differ_in_more_bits() -> None:
    pair = [seen(1, ALL, picture(1)), seen(2, ALL ^ 0b111_0000_0000_0111_0000_0000_0111_0000, picture(1))]
    assert told(with_text_alike(pair)) == [("train/2.png", ["train/1.png"])]
    assert told(alike_anywhere([pair[0], seen(2, ALL ^ 0x0001_0001_0001_0001, picture(1))])) == []


def test_many_images_of_one_text_are_compared_by_bands(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(similar, "FEW", 10)
    items = many(20)
    first = items[3]
    assert first.look is not None
    assert told(with_text_alike([*items, seen(99, first.look.hash ^ 1, first.look.small)])) == [
        ("train/99.png", ["train/3.png"])
    ]


def test_the_work_does_not_grow_with_the_square() -> None:
    """Images that all look alike are compared with a few of their kind, and each is told."""
    items = [seen(number, 7, picture(1)) for number in range(1000)]
    pairs = list(alike_anywhere(items))
    assert len(pairs) == 999
    assert max(len(others) for _, others in pairs) <= 4 * similar.MOST_IN_A_BAND
