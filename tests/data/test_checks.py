"""Checks of images, pairs, splits and texts, each alone: what is wrong is found, what is ordinary passes."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from dsocr.data.check import check_dataset, split_checks
from dsocr.data.check.findings import CheckedSample, Finding
from dsocr.data.check.image_checks import (
    check_brightness,
    check_densities,
    check_distortion,
    check_lines,
    check_neighbours,
    check_sizes,
    measure_image,
)
from dsocr.data.check.split_checks import (
    check_balance,
    check_crossing,
    check_near_duplicates,
    similar_with_any_text,
    similar_with_same_text,
)
from dsocr.data.check.text_checks import (
    check_habits,
    check_letters,
    check_repeats,
    check_tokens,
    check_unknown_characters,
    count_marks,
)
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.document import Sample, Split
from dsocr.images import open_image
from tests.data.check_samples import by_code, details, processor, run_check, sample, stats
from tests.data.making import picture, write
from tests.raising import raises_code

EXAMPLE = Path(__file__).parents[2] / "examples" / "handwriting"


@pytest.fixture(scope="module")
def line() -> Image.Image:
    """A line of the shipped handwriting."""
    return open_image(sorted((EXAMPLE / "train" / "images").iterdir())[0])


def checked(
    image: Image.Image, split: Split = Split.TRAIN, text: str = "одна строка", digest: str = "a"
) -> CheckedSample:
    item = Sample(f"{split}/{digest}.png", Path("a.png"), text, split)
    return CheckedSample(f"{split}/metadata.jsonl:{digest}", item, digest, image.size, measure_image(image))


def found(*samples: CheckedSample) -> dict[str, Finding]:
    checks = (check_brightness, check_sizes, check_near_duplicates)
    return by_code(problem for check_images in checks for problem in check_images(samples))


def with_grain(image: Image.Image, deviation: float) -> Image.Image:
    pixels = np.asarray(image)
    grain = np.random.default_rng(1).normal(0, deviation, pixels.shape)
    return Image.fromarray(np.clip(pixels + grain, 0, 255).astype(np.uint8))


def test_images_too_small_to_read(line: Image.Image) -> None:
    assert found(checked(line.resize((300, 19))))["low-resolution"].examples[0].detail == "300 x 19 pixels"
    assert "low-resolution" not in found(checked(line.resize((300, 20))))


LINE, PAGE = "Козлов Никифор, ратник", (80, 92)


@pytest.mark.parametrize(
    ("text", "size", "odd", "severity"),
    [
        pytest.param("\n".join([LINE] * 10), PAGE, 6, "error", id="pages"),
        pytest.param(" ".join([LINE] * 10), PAGE, 4, "error", id="pages without breaks"),
        pytest.param(f"{LINE}\n{LINE}", (220, 40), 4, "error", id="two lines at most images"),
        pytest.param("\n".join([LINE] * 3), (220, 40), 3, "note", id="as many pages as lines"),
        pytest.param(" ".join([LINE] * 4), PAGE, 1, "note", id="a page among lines"),
        pytest.param(f"во\n{LINE}", (220, 60), 3, None, id="words above the line"),
        pytest.param(LINE, (20, 220), 6, None, id="tall and narrow"),
        pytest.param("Ѣ", (20, 90), 6, None, id="a letter"),
        pytest.param(f"{LINE}\r\n\n", (220, 40), 6, None, id="breaks at the end"),
        pytest.param(" ".join([LINE] * 4), (500, 50), 6, None, id="dense"),
    ],
)
def test_pages_are_found_among_lines(
    text: str, size: tuple[int, int], odd: int, severity: str | None, tmp_path: Path
) -> None:
    rows = [(text, size)] * odd + [(LINE, (220, 40))] * (6 - odd)
    findings = run_check(check_lines, [sample(number, text, size=size) for number, (text, size) in enumerate(rows)])
    found = findings.get("several-lines")
    assert (found and found.severity, found and found.count) == (severity, severity and odd)
    for number, (text, size) in enumerate(rows):
        picture(tmp_path / f"s/{number}.png", size, colour=(number, 0, 0))
        write(tmp_path / f"s/{number}.txt", text)
    if severity == "error":
        with raises_code("unit-unsupported"):
            prepare(tmp_path / "s", tmp_path / "d", split="1/0/0")
    dataset = prepare(tmp_path / "s", tmp_path / "d", split="1/0/0", unit="page" if severity == "error" else None)
    assert [f"{odd} of 6 texts" in note for note in dataset.card.notes if "too long" in note] == [True] * (
        severity == "note"
    )
    assert [finding.severity for finding in check_dataset(dataset) if finding.code == "several-lines"] == (
        ["note"] if severity == "note" else []
    )


@pytest.mark.parametrize("how", ["smaller", "darker", "moved", "grain"])
@pytest.mark.parametrize(
    ("split", "code", "severity"),
    [
        pytest.param(Split.TRAIN, "near-duplicate-image", "warning", id="inside a split"),
        pytest.param(Split.TEST, "near-image-crosses", "error", id="across splits"),
    ],
)
def test_line_scanned_twice(how: str, split: Split, code: str, severity: str, line: Image.Image) -> None:
    other = {
        "smaller": line.resize((line.width * 2 // 3, line.height * 2 // 3)),
        "darker": ImageEnhance.Brightness(line).enhance(0.7),
        "moved": line.crop((2, 1, line.width, line.height)),
        "grain": with_grain(line, 6),
    }[how]
    first, second = checked(line), checked(other, split, "Одна строка.", "b")
    finding = found(first, second)[code]
    assert (finding.severity, finding.count, finding.where) == (severity, 1, second.where)
    assert finding.examples[0].other == first.sample.id
    assert found(with_text(first, "THE CAMP."), with_text(second, "THE CAMP.")) == {}, "heads of two letters"


def test_different_lines_with_the_same_text_are_no_duplicates() -> None:
    images = [open_image(path) for path in sorted((EXAMPLE / "train" / "images").iterdir())[:40]]
    assert found(*(checked(image, digest=str(number)) for number, image in enumerate(images))) == {}


ALL_BITS = (1 << 64) - 1


def thumbnail(seed: int) -> bytes:
    return random.Random(seed).randbytes(1024)


def hashed(number: int, dhash: int, thumbnail_: bytes) -> CheckedSample:
    return sample(number, "одна строка", image=stats(dhash=dhash, thumbnail=thumbnail_))


def random_samples(count: int) -> list[CheckedSample]:
    rng = random.Random(1)
    return [hashed(number, rng.getrandbits(64), thumbnail(number)) for number in range(count)]


def ids(pairs: object) -> list[tuple[str, list[str]]]:
    return [(item.sample.id, [other.sample.id for other in others]) for item, others in pairs]  # type: ignore[attr-defined]


def twin(of: CheckedSample, number: int, bits: int) -> CheckedSample:
    assert of.stats
    return hashed(number, of.stats.dhash ^ bits, of.stats.thumbnail)


def test_similar_images_are_found_among_many() -> None:
    samples = random_samples(500)
    samples.append(twin(samples[200], 5000, 1 << 3 | 1 << 20 | 1 << 60))
    assert ids(similar_with_any_text(samples)) == [("train/5000.png", ["train/200.png"])]
    other_picture = [hashed(1, 5, thumbnail(1)), hashed(2, 5, thumbnail(2))]
    assert ids(similar_with_any_text(other_picture)) == []


def test_images_with_the_same_text_may_differ_more() -> None:
    first = hashed(1, ALL_BITS, thumbnail(1))
    second = twin(first, 2, 0b111_0000_0000_0111_0000_0000_0111_0000)
    assert ids(similar_with_same_text([first, second])) == [("train/2.png", ["train/1.png"])]
    assert ids(similar_with_any_text([first, twin(first, 2, 0x0001_0001_0001_0001)])) == []


def test_work_does_not_grow_with_the_square(monkeypatch: pytest.MonkeyPatch) -> None:
    equal = [hashed(number, 7, thumbnail(1)) for number in range(30)]
    for limit, find in (("MAX_NEAR", similar_with_any_text), ("MAX_EARLIER", similar_with_same_text)):
        monkeypatch.setattr(split_checks, limit, 10)
        assert max(len(others) for _, others in find(equal)) == 10
        monkeypatch.undo()


def written(count: int, density: float, writer: str | None, seed: int = 1) -> list[CheckedSample]:
    """Lines of 10 to 60 characters, each about as wide as a writer of that density needs."""
    rng = random.Random(seed)
    lines = []
    for number in range(1, count + 1):
        length = rng.randint(10, 60)
        width = round(60 * length / density * rng.uniform(0.8, 1.25))
        lines.append(sample(number, "д" * length, writer=writer, page=None, size=(width, 60)))
    return lines


def with_text(item: CheckedSample, text: str) -> CheckedSample:
    return replace(item, sample=replace(item.sample, text=text))


def test_writer_of_few_lines_is_compared_with_the_whole_dataset() -> None:
    rare = with_text(written(1, 3.0, "vera", seed=5)[0], "д" * 900)
    assert run_check(check_densities, [*written(60, 3.0, "anna"), rare])["text-too-long"].count == 1


def test_few_samples_and_pages_are_not_judged() -> None:
    lines = written(60, 3.0, "anna")
    assert run_check(check_densities, [with_text(lines[0], "д" * 900), *lines[1:19]]) == {}
    assert run_check(check_densities, [*lines[1:], with_text(lines[0], "строка\n" * 100)]) == {}


@pytest.mark.parametrize("by", [1, -1])
def test_shifted_pairs_of_the_shipped_sample(by: int) -> None:
    """Consecutive lines have similar lengths, so that even shifted pairs correlate a little."""
    rows = list(Dataset.open(EXAMPLE).numbered(Split.TRAIN))
    lines = [CheckedSample(where, item, None, open_image(item.image).size) for where, item in rows]
    assert run_check(check_densities, lines) == {}
    texts = [item.text for item in lines]
    shifted = [with_text(item, text) for item, text in zip(lines, texts[by:] + texts[:by], strict=True)]
    finding = run_check(check_densities, shifted)["pairs-disagree"]
    assert (finding.severity, finding.where) == ("warning", lines[0].where)


def page(texts: list[str], true_texts: list[str] | None = None, name: str = "1", start: int = 1) -> list[CheckedSample]:
    """Lines of a page with images as wide as `true_texts` need, give or take a few per cent."""
    rng = random.Random(name)
    widths = [round(len(text) * 12 * rng.gauss(1, 0.03)) for text in true_texts or texts]
    return [
        sample(start + place, text, page=name, image=stats(width), size=(width, 60))
        for place, (text, width) in enumerate(zip(texts, widths, strict=True))
    ]


def random_texts(count: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return ["д" * rng.randint(20, 60) for _ in range(count)]


USUAL = page(random_texts(30, seed=9), name="usual", start=1001)


@pytest.mark.parametrize(
    ("lengths", "swapped"),
    [pytest.param((55, 25), True, id="different lengths"), pytest.param((38, 30), False, id="similar lengths")],
)
def test_swapped_texts(lengths: tuple[int, int], swapped: bool) -> None:
    true_texts = random_texts(12)
    true_texts[4:6] = ["д" * length for length in lengths]
    texts = [*true_texts[:4], true_texts[5], true_texts[4], *true_texts[6:]]
    findings = run_check(check_neighbours, [*USUAL, *page(texts, true_texts)])
    assert set(findings) == ({"neighbours-swapped"} if swapped else set())
    if swapped:
        finding = findings["neighbours-swapped"]
        assert (finding.count, finding.where) == (1, "train/metadata.jsonl:5")
        assert finding.examples[0].other == "train/6.png"


@pytest.mark.parametrize(
    ("shift", "where", "which"),
    [
        pytest.param(lambda own: [*own[1:], own[0]], 2, "before", id="the first text is missing"),
        pytest.param(lambda own: [own[-1], *own[:-1]], 1, "after", id="one text too many at the top"),
        pytest.param(lambda own: [*own[:8], *own[9:], own[8]], 10, "before", id="a text is missing in the middle"),
    ],
)
def test_run_shifted_by_one(shift, where: int, which: str) -> None:  # type: ignore[no-untyped-def]
    true_texts = random_texts(20, seed=4)
    finding = run_check(check_neighbours, [*USUAL, *page(shift(true_texts), true_texts)])["lines-shifted"]
    assert finding.count == 1
    assert int(finding.where.rpartition(":")[2]) == pytest.approx(where, abs=2)
    assert f"the line {which}" in finding.examples[0].detail


def test_small_writing_in_the_margin_passes() -> None:
    texts = random_texts(16, seed=20)
    narrow = [text[: len(text) * 3 // 4] for text in texts[10:]]
    assert run_check(check_neighbours, [*USUAL, *page(texts, texts[:10] + narrow)]) == {}


def test_correct_pages_and_pages_of_a_few_lines_pass() -> None:
    pages = [item for name in range(50) for item in page(random_texts(20, seed=name), name=str(name))]
    assert run_check(check_neighbours, pages) == {}
    texts = {name: random_texts(4, seed=name) for name in range(30)}
    short = [item for name, text in texts.items() for item in page(text[::-1], text, name=str(name))]
    assert run_check(check_neighbours, short) == {}


def split_findings(*samples: CheckedSample, split_by: str = "page") -> dict[str, Finding]:
    dataset = cast(Dataset, SimpleNamespace(card=SimpleNamespace(split_by=split_by)))
    return by_code(check_balance(dataset, samples))


@pytest.mark.parametrize(
    ("kind", "split_by", "severity"),
    [
        ("writer", "writer", "error"),
        ("writer", "page", "note"),
        ("page", "page", "error"),
        ("page", "writer", "warning"),
        ("page", "given", "warning"),
        ("page", "text", "note"),
        ("text", "text", "error"),
        ("text", "writer", "note"),
    ],
)
def test_in_several_splits(kind: str, split_by: str, severity: str) -> None:
    """An error where the card promises otherwise, and a warning where a page leaks although nobody chose that."""
    dataset = cast(Dataset, SimpleNamespace(card=SimpleNamespace(split_by=split_by)))
    samples = []
    for number, split in enumerate((Split.TRAIN, Split.TRAIN, Split.TEST), start=1):
        text, writer, page_ = (
            "один" if name == kind and number > 1 else str(number) for name in ("text", "writer", "page")
        )
        samples.append(sample(number, text, split=split, writer=writer, page=page_))
    ((code, finding),) = by_code(check_crossing(dataset, samples)).items()
    assert (code, finding.severity, finding.count) == (f"{kind}-crosses", severity, 1)
    assert finding.where == "train/metadata.jsonl:2"


def test_texts_may_be_as_long_as_max_text_tokens() -> None:
    assert "long-text" in by_code(check_tokens([sample(1, "д" * 50)], range_of(1), 49))
    assert by_code(check_tokens([sample(1, "д" * 50)], range_of(1), 50)) == {}


def range_of(tokens: int) -> Callable[[str], Sequence[int]]:
    """A tokenizer that needs so many tokens for a character."""
    return lambda text: range(tokens * len(text))


def test_a_script_that_costs_many_tokens_is_reported_once() -> None:
    finding = by_code(check_tokens([sample(1, "да"), sample(2, "нет")], range_of(2), None))["many-tokens"]
    assert (finding.severity, finding.count) == ("note", 1)
    assert "2.0 tokens per character" in finding.message


def test_unknown_characters_are_counted() -> None:
    samples = [sample(1, "ѣѣ\u00ad"), sample(2, "да"), sample(3, "ѣ")]
    finding = by_code(check_unknown_characters(samples, processor("ѣ\u00ad").unknown_characters))["unknown-characters"]
    assert finding.message.endswith(": ѣ 3x, U+00AD 1x")
    assert (finding.severity, details(finding)) == ("error", ["1: ѣ\u00ad", "3: ѣ"])
    samples.append(sample(4, "нет"))
    assert (
        by_code(check_unknown_characters(samples, processor("ѣ").unknown_characters))["unknown-characters"].severity
        == "warning"
    )


@pytest.mark.parametrize(
    ("factor", "amount"),
    [(1.4, None), (0.7, None), (2.25, "2.2 times too tall"), (0.5, "2.0 times too wide")],
)
def test_distorted_letters(factor: float, amount: str | None) -> None:
    findings = by_code(check_distortion([sample(1, "а"), sample(2, "б")], lambda width, height: factor))
    assert set(findings) == ({"distorted-image"} if amount else set())
    for finding in findings.values():
        assert (finding.severity, finding.count, str(amount) in finding.message) == ("warning", 2, True)


def several(count: int, text: str, split: Split, **options: Any) -> list[CheckedSample]:
    return [sample(number, text, split=split, **options) for number in range(1, count + 1)]


TRAIN = several(60, "обычный текст", Split.TRAIN)
TEST = several(60, "обычный текст", Split.TEST)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param([], {}, id="balanced"),
        pytest.param(
            [sample(61, "вѣкъ и вѣра", split=Split.TEST)], {"unseen-in-train": ["в, 2x", "ѣ, 2x"]}, id="unseen"
        ),
        pytest.param([sample(61, "ω\u00ad\u00ad", split=Split.TEST)], {}, id="single and invisible characters"),
        pytest.param(
            [sample(61, "щщ эээээ"), sample(61, "щщщщщ эээээээ", split=Split.TEST)],
            {"rare-characters": ["щ, 5x there, 2x in training"]},
            id="the rarest that matter",
        ),
    ],
)
def test_characters_that_training_lacks(samples: list[CheckedSample], expected: dict[str, list[str]]) -> None:
    findings = split_findings(*TRAIN, *TEST, *samples)
    assert {code: [example.detail for example in each.examples] for code, each in findings.items()} == expected


def test_test_split_of_a_few_lines() -> None:
    finding = split_findings(*TRAIN, *several(12, "ровно 20 букв и цифр", Split.TEST))["few-samples"]
    assert (finding.severity, finding.where) == ("note", "test/metadata.jsonl")
    # 1.96 * sqrt(0.1 * 0.9 / 240)
    assert "3.8 points" in finding.message


def test_test_split_of_a_few_writers() -> None:
    assert "few-writers" not in split_findings(*TRAIN, *TEST)
    assert "few-writers" in split_findings(*TRAIN, *TEST, split_by="writer")
    writers = [item for writer in "абв" for item in several(20, "обычный текст", Split.TEST, writer=writer)]
    assert split_findings(*TRAIN, *writers, split_by="writer") == {}


def letters(*texts: str) -> dict[str, Finding]:
    return run_check(check_letters, [sample(number, text) for number, text in enumerate(texts, start=1)])


CLEAN = [
    "Милая Соня! Письмо твоё пришло в четверг,",
    "«СССР», «Ёлка» — № 7 (1905 г.); «Р»",
    "Déjà vu à l'école créée, naïve Œuvre «CAFÉ»",
    "Größe, Straße, Übermut; Ångström, façade",
    "USB-кабель, Wi-Fi и Windows XP в Москве, том IV, век XX",
    "Київ і Їжак, қазақ тілі",
    "Γειά σου, κόσμε",
    "строка\nстрока",
    "می\u200cخواهم",
]


@pytest.mark.parametrize("text", CLEAN)
def test_ordinary_texts_pass(text: str) -> None:
    assert letters(text, text) == {}


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        pytest.param("мaма", "'мaма' has Latin a", id="a Latin letter in a Cyrillic word"),
        pytest.param("Hаука и cтол", "'Hаука' has Latin H, 'cтол' has Latin c", id="two words"),
        pytest.param("Lоndоn", "'Lоndоn' has Cyrillic о", id="Cyrillic letters in a Latin word"),
        pytest.param("исторiя", "'исторiя' has Latin i", id="a Latin i for the old letter"),
        pytest.param("он a она", "'a' between Cyrillic words is Latin", id="a word of one letter"),
        pytest.param("точка a на прямой AB", None, id="Latin words beside it"),
        pytest.param("DVDшка", None, id="letters that do not look alike"),
    ],
)
def test_look_alikes(text: str, detail: str | None) -> None:
    findings = letters(text, text)
    assert (details(findings["look-alikes"]) if detail else findings) == (
        [f"1: {detail}", f"2: {detail}"] if detail else {}
    )


def test_signs_that_were_escaped_twice_are_named() -> None:
    (example,) = letters("Hodan &amp; fils &amp; Cie, n&#176; 5")["mojibake"].examples
    assert "'Hodan & fils & Cie, n° 5'" in example.detail
    assert "mojibake" not in letters("Hodan & fils; AT&T;")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("utf-8", "cp1252"), ("utf-8", "latin-1"), ("utf-8", "cp1251"), ("cp1251", "latin-1")],
)
@pytest.mark.parametrize("text", ["Привет, мир", "Эхо съезда", "ёжик и щука"])
def test_wrong_encoding_is_named_with_the_intended_text(text: str, wrong: str, right: str) -> None:
    data = text.encode(wrong)
    broken = "".join(bytes([byte]).decode(right, errors="ignore") or bytes([byte]).decode("latin-1") for byte in data)
    detail = letters(broken)["mojibake"].examples[0].detail
    assert any(word in detail for word in text.replace(",", "").split() if len(word) > 3)


@pytest.mark.parametrize(
    "text",
    [
        "Милая Соня! Письмо твоё пришло в четверг, в 3-м часу?",
        "№ 7 (1905–1907 гг.), м. б. и позже; том IV — стр. 12",
        "Пиши мне: sonya@example.org, или #7, кв. 5",
        "5 < 7 и 7 > 5; a_b; век XX; (да?)",
        "Что?! Как??",
    ],
)
def test_ordinary_texts_have_no_marks(text: str) -> None:
    assert count_marks(text) == {}


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("><", ["><"]),
        (">struck out<", [">не пришёл<"]),
        ("<tag>", ["<unclear>шёл</unclear>"]),
        ("[words]", ["[неразб.]"]),
        ("[...]", ["[...]", "[…]"]),
        ("[?] or (?)", ["[?]", "(?)"]),
        ("???", ["???"]),
        ("xxx", ["ххх"]),
        ("¬", ["при¬"]),
        ("{}", ["{при}шёл"]),
        ("@", ["@"]),
        ("#", ["#"]),
        ("^ or _ or ~", ["~"]),
    ],
)
def test_transcribers_marks(name: str, marks: list[str]) -> None:
    assert all(name in count_marks(f"он {mark} пришёл") for mark in marks)


@pytest.mark.parametrize(
    ("usual", "other", "counts"),
    [
        pytest.param("«да»", '"да"', 'quotes « » 5x, " " 1x', id="quotes"),
        pytest.param("да — нет", "да - нет", "dashes — 5x, - 1x", id="a hyphen for a dash"),
        pytest.param("да — нет", "да – нет", "dashes — 5x, – 1x", id="a short dash"),
        pytest.param("да…", "да...", "dots … 5x, ... 1x", id="dots"),
        pytest.param("d'or", "d’or", "apostrophes ' 5x, ’ 1x", id="apostrophes"),
        pytest.param("при-", "при¬", "hyphens at line ends - 5x, ¬ 1x", id="hyphens at line ends"),
    ],
)
def test_mixed_signs(usual: str, other: str, counts: str) -> None:
    finding = run_check(check_habits, [*(sample(number, usual) for number in range(1, 6)), sample(6, other)])[
        "mixed-punctuation"
    ]
    assert finding.message.endswith(counts)
    assert (finding.count, finding.where) == (1, "train/metadata.jsonl:6")


def test_no_sign_is_established_by_few_uses() -> None:
    assert run_check(check_habits, [sample(1, "«да»"), sample(2, '"да"')]) == {}
    assert run_check(check_habits, [sample(number, "да — нет, 1905–1907") for number in range(9)]) == {}


TEXT = "Милая Соня, письмо пришло"


@pytest.mark.parametrize(
    ("text", "second", "is_reported"),
    [
        pytest.param(TEXT, sample(2, TEXT), True, id="on the next line"),
        pytest.param(TEXT, sample(2, TEXT, page="2"), False, id="on another page"),
        pytest.param(TEXT, sample(2, TEXT, writer="boris"), False, id="by another writer"),
        pytest.param(TEXT, sample(2, TEXT, digest="train 1"), False, id="the same image, which is another finding"),
        pytest.param("да, да", sample(2, "да, да"), False, id="a short text"),
    ],
)
def test_text_copied_to_the_next_line(text: str, second: CheckedSample, is_reported: bool) -> None:
    findings = run_check(check_repeats, [sample(1, text), second, sample(3, "иначе")])
    assert set(findings) == ({"text-repeats"} if is_reported else set())
    if is_reported:
        assert details(findings["text-repeats"]) == ["2: as train/metadata.jsonl:1"]
        assert findings["text-repeats"].examples[0].other == "train/1.png"


def test_most_images_with_the_same_text() -> None:
    samples = [sample(number, TEXT if number % 3 else str(number), page=None) for number in range(30)]
    assert details(run_check(check_repeats, samples)["all-same-text"]) == ["1: 20 of 30 in train"]
    assert run_check(check_repeats, samples[:19]) == {}
