"""The script that is decided for texts and pages, and what decoding leaves out then."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from convert_recogniser import save_network
from dsocr.config import RunConfig
from dsocr.document import Sample, Split
from dsocr.inference.reader import LocalReader
from dsocr.models.generation import Generation
from dsocr.models.language_model import LanguageModel
from dsocr.models.loading import load_base, load_processor
from dsocr.models.scripts import MIN_LINES, best_path, decide_script, model_share, restrict, script_of_texts, text_of
from dsocr.text import TextPolicy
from dsocr.training.validation import decided_generation
from tests.models.test_ctc_network import small_network
from tests.raising import raises_code

CHARACTERS = (*"aeopn", *"аеорп", " ", ".")


@pytest.mark.parametrize(
    ("texts", "script"),
    [
        (["отлучке на", "в 1858 г."], "cyrillic"),
        (["l'été 1858", "naïve"], "latin"),
        (["отлучке", "letter"], "any"),
        (["и" * 97 + "abc"], "cyrillic"),
        (["1858."], "any"),
    ],
)
def test_texts_nearly_all_in_one_script_decide_it(texts: list[str], script: str) -> None:
    assert script_of_texts(texts) == script


def line(*steps: tuple[str, float, str]) -> NDArray[np.float32]:
    """Probabilities of a line: each step has a likely character with its probability, and another one for the rest."""
    rows = np.zeros((2 * len(steps), len(CHARACTERS) + 1), dtype=np.float32)
    rows[1::2, 0] = 1
    for row, (likely, probability, other) in zip(rows[::2], steps, strict=True):
        row[1 + CHARACTERS.index(likely)] = probability
        row[1 + CHARACTERS.index(other)] = 1 - probability
    return rows


UNSURE = line(*((latin, 0.6, cyrillic) for latin, cyrillic in zip("aeopn", "аеорп", strict=True)))
CLEAR = line(*((latin, 0.97, cyrillic) for latin, cyrillic in zip("aeopn", "аеорп", strict=True)))
CLEAR_CYRILLIC = line(*((cyrillic, 0.97, latin) for latin, cyrillic in zip("aeopn", "аеорп", strict=True)))


@pytest.mark.parametrize(
    ("probabilities", "script", "text"),
    [
        (UNSURE, "any", "aeopn"),
        (UNSURE, "latin", "aeopn"),
        (UNSURE, "cyrillic", "аеорп"),
        (CLEAR, "cyrillic", "aeopn"),  # a word that is clearly Latin
        (np.concatenate([UNSURE, line((" ", 0.9, ".")), CLEAR]), "cyrillic", "аеорп aeopn"),
        (line(("a", 0.97, "а")), "cyrillic", "а"),  # a single letter is no word
        (line(("a", 0.97, "а"), ("п", 0.97, "n")), "cyrillic", "ап"),
    ],
)
def test_letters_of_the_other_script_are_omitted(probabilities: Any, script: str, text: str) -> None:
    allowed = restrict(probabilities, CHARACTERS, script)
    assert text_of(best_path(allowed), CHARACTERS) == text
    assert allowed.sum(1) == pytest.approx(np.ones(len(allowed)), abs=1e-6)


def test_a_step_with_nothing_left_is_blank() -> None:
    allowed = restrict(line(("a", 0.97, "e")), CHARACTERS, "cyrillic")
    assert allowed[0, 0] == 1


@pytest.mark.parametrize(("learned", "script"), [("аеорп п роп.", "cyrillic"), ("aeopn n pon.", "latin")])
def test_the_script_of_a_page_is_the_likelier_one_with_its_language_model(learned: str, script: str) -> None:
    doubtful = line(*((latin, 0.5, cyrillic) for latin, cyrillic in zip("aeopn", "аеорп", strict=True)))
    model = LanguageModel.fit([learned] * 9)
    assert decide_script([doubtful] * MIN_LINES, CHARACTERS, model) == script
    assert decide_script([doubtful] * (MIN_LINES - 1), CHARACTERS, model) is None, "few lines leave it open"
    long, known = np.concatenate([doubtful] * 40), LanguageModel.fit([40 * learned[:5]] * 9)
    assert decide_script([long], CHARACTERS, known) == script, "unless it is much likelier"
    both = [CLEAR, CLEAR, CLEAR_CYRILLIC, CLEAR_CYRILLIC]
    assert decide_script([doubtful] * MIN_LINES + both, CHARACTERS, model) == "any", "a mixed page"
    assert decide_script([doubtful] * MIN_LINES, ("a", "e", *CHARACTERS[10:]), model) == "any"


def test_letters_that_the_network_sees_outweigh_a_text_that_the_language_model_does_not_foresee() -> None:
    model = LanguageModel.fit(["aeopn"] * 9)
    assert decide_script([CLEAR_CYRILLIC] * MIN_LINES, CHARACTERS, model) == "cyrillic"


def write_both_scripts(folder: Path) -> Path:
    """Write a network that reads letters of both scripts at random."""
    network = small_network(list(CHARACTERS))
    with torch.no_grad():  # letters rather than blanks and signs
        network.head.head.bias[[0, *(1 + CHARACTERS.index(sign) for sign in " .")]] -= 20
    save_network(network, list(CHARACTERS), folder)
    return folder


@pytest.fixture
def reader(tmp_path: Path) -> LocalReader:
    base = load_base(str(write_both_scripts(tmp_path / "base")))
    return LocalReader(base.network, base.processor(None, ""), Generation(), TextPolicy())


def images(page: str, count: int) -> list[tuple[str, Image.Image]]:
    drawn = np.random.default_rng(count)
    sizes = drawn.integers(100, 400, count).tolist()
    pixels = [drawn.integers(0, 255, (40, width, 3), dtype=np.uint8) for width in sizes]
    return [(f"{page}#{number}", Image.fromarray(array)) for number, array in enumerate(pixels)]


def test_each_page_has_its_script_whatever_is_read_with_it(reader: LocalReader) -> None:
    first, second, short = images("a.xml", 8), images("b.xml", 7), images("c.xml", 3)
    by_page = reader.for_pages()
    alone = {page[0][0]: [p.text for p in by_page.read(page)] for page in (first, second, short)}
    together = list(by_page.read([*first, *second, *short]))
    assert [p.text for p in together] == [text for texts in alone.values() for text in texts]
    assert {p.script for p in together[:15]} <= {"latin", "cyrillic"}
    assert {(p.script, p.flags) for p in together[15:]} == {("unsure", ("script",))}
    assert {p.script for p in reader.read(first)} == {None}, "only lines of pages"


def test_lines_of_a_page_in_another_script_than_that_of_the_reader_say_so(reader: LocalReader) -> None:
    """They are read as before."""
    lines = images("a", 30)
    for script, (decided, flags) in {
        "cyrillic": ("not cyrillic", ("script",)),
        "latin": (None, ()),
        "any": (None, ()),
    }.items():
        chosen = reader.with_script(script)
        read = list(chosen.for_pages().read(lines))
        assert {(p.script, p.flags) for p in read} == {(decided, flags)}, "its likeliest letters are Latin"
        assert [p.text for p in read] == [p.text for p in chosen.read(lines)]
    few = reader.with_script("cyrillic").for_pages().read(lines[:1])
    assert {p.script for p in few} == {None}, "a line is too short to be sure"


def test_a_page_is_decided_as_a_whole_however_many_lines_are_read_at_once(reader: LocalReader) -> None:
    first, second = images("a.xml", 8), images("b.xml", 9)
    few = replace(reader, generation=replace(reader.generation, batch_size=1, prefetch_batches=3)).for_pages()
    expected = [(p.text, p.script) for page in (first, second) for p in reader.for_pages().read(page)]
    assert [(p.text, p.script) for p in few.read([*first, *second])] == expected


def test_the_lines_of_a_job_decide_for_its_short_pages_and_its_images_of_lines(reader: LocalReader) -> None:
    job = [image for _, image in images("job", 12)]
    decided = reader.decide_script(job).generation.script
    assert decided in {"latin", "cyrillic"}
    short, alone = images("c.xml", 3), [("line.png", images("d", 1)[0][1])]
    assert {p.script for p in reader.for_pages(job).read([*short, *alone])} == {decided}
    chosen = reader.with_script("latin")
    assert chosen.decide_script(iter([])) is chosen, "opened only where a script is to be decided"


def test_a_given_script_is_kept(reader: LocalReader) -> None:
    def letters(script: str) -> set[str]:
        return set("".join(p.text for p in reader.with_script(script).read(images("a", 8)))) - set(" .")

    assert letters("any") <= set("aeopn"), "the script of every likeliest letter"
    assert letters("latin") == letters("any")
    assert letters("cyrillic")
    assert letters("cyrillic") <= set("аеорп")


def test_other_families_take_no_script() -> None:
    base = load_base("nano")
    nano = LocalReader(base.network, base.processor(None, "free_ocr"), Generation(), TextPolicy())
    assert nano.with_script("any").for_pages().by_page
    assert nano.decide_script([]) is nano
    with raises_code("script-unsupported"):
        nano.with_script("cyrillic")


@pytest.mark.parametrize(("given", "texts", "kept"), [("auto", "été 1858", "latin"), ("any", "été", "any")])
def test_a_run_keeps_the_script_of_its_training_texts(given: str, texts: str, kept: str, tmp_path: Path) -> None:
    config = RunConfig.model_validate({"dataset": tmp_path, "output": tmp_path, "generation": {"script": given}})
    samples = [Sample("1", Path("1.png"), texts, Split.TRAIN)]
    for base, expected in (("small", kept), ("nano", given)):
        assert decided_generation(config, load_processor(base, None, "free_ocr"), samples)["script"] == expected


def test_a_language_model_is_asked_as_far_as_it_foresees_what_is_clear() -> None:
    texts = ["un ami de la maison", "le chat noir de la rue", "la maison du chat"]
    letters = tuple(sorted(set("".join(texts)) | set("kwxz")))
    model = LanguageModel.fit(texts * 20)

    def lines(text: str, *probabilities: float) -> list[NDArray[np.float32]]:
        likely = np.resize(np.array(probabilities, dtype=np.float32), len(text))
        rows = np.repeat((1 - likely[:, None]) / len(letters), len(letters) + 1, axis=1)
        rows[range(len(text)), [letters.index(letter) + 1 for letter in text]] = likely
        blanks = np.eye(1, len(letters) + 1, dtype=np.float32).repeat(len(text), axis=0)
        return [np.stack([rows, blanks], axis=1).reshape(-1, len(letters) + 1)] * MIN_LINES

    known, foreign = "la rue du chat noir", "kann nicht walzx cund"
    foreign = "".join(letter for letter in foreign if letter in letters)
    assert model_share(lines(known, 0.97), letters, model) == 1
    assert model_share(lines(foreign, 0.97), letters, model) == 0
    assert model_share(lines(foreign, 0.6), letters, model) == 1, "nothing is clear"
    assert model_share(lines(foreign, 0.6, 0.97), letters, model) == 1, "nothing is clear before what is"
    assert model_share([], letters, model) == 1


def test_pages_and_jobs_weigh_the_language_model(reader: LocalReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is read alone has no page to tell its language, and a few lines tell too little."""
    family: Any = reader.processor.family
    weights: list[float] = []
    monkeypatch.setattr("dsocr.models.ctc.model_share", lambda *arguments: 0.25)

    def search(*arguments: Any) -> str:
        weights.append(arguments[-1])
        return ""

    monkeypatch.setattr("dsocr.models.ctc.search", search)
    model = LanguageModel.fit(["aeo"] * 9)
    model.weight = 0.4
    processor: Any = replace(cast("Any", reader.processor), language_model_source=model)
    inputs = [processor.encode(Image.new("L", (80, 48), 255))] * MIN_LINES
    plain = Generation()
    family.decode_pages(reader.network, processor, [inputs, inputs[:1]], plain, Generation(script="any"))
    family.decode(reader.network, processor, inputs[:1], plain)
    job = family.decide_reading(reader.network, processor, inputs, plain)
    family.decode(reader.network, processor, inputs[:1], job)
    family.decode_pages(reader.network, processor, [inputs[:1]], plain, job)
    assert weights == pytest.approx([*[0.1] * MIN_LINES, 0.4, 0.4, 0.1, 0.1])
