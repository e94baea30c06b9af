"""Texts are changed as the policy says, and every change is counted; policies in files."""

from pathlib import Path
from typing import Any

import pytest

from dsocr.config import read_policy
from dsocr.data.dataset import SourceReport, read_card
from dsocr.data.prepare import normalise_texts, prepare
from dsocr.data.sources import UnitGrouper
from dsocr.document import Line, Page, SkipReason, Split
from dsocr.errors import ConfigError
from dsocr.formats.page import read_page
from dsocr.text import TextPolicy
from tests.data.making import SQUARE, page_line, page_xml, pair, picture, write
from tests.raising import raises_code

COPISTE = TextPolicy(struck="strip", unclear="drop-line", unclear_marks=("><",))


def revised(policy: TextPolicy, *texts: str) -> tuple[list[str], SourceReport]:
    lines = tuple(Line(text, f"p.xml:{number}") for number, text in enumerate(texts, start=1))
    notes = SourceReport(strict=True)
    return [line.text for line in normalise_texts(Page(Path("p"), "p", "p", lines), notes, policy).lines], notes


@pytest.mark.parametrize(
    ("text", "rule", "example"),
    [
        pytest.param("и\u0306од", "unicode", r"p.xml:1: 'и\u0306од' -> 'йод'", id="what joins a letter is shown"),
        pytest.param("а\u200bб", "invisible", r"p.xml:1: 'а\u200bб' -> 'аб'", id="what cannot be seen is shown"),
        pytest.param("а\u00a0б", "spaces", r"p.xml:1: 'а\xa0б' -> 'а б'", id="so is a space that is no plain one"),
        pytest.param("дом >стол< стоит", "struck", "p.xml:1: 'дом >стол< стоит' -> 'дом стоит'", id="struck"),
        pytest.param(
            f"{'а' * 50}  б{'в' * 90}",
            "spaces",
            f"p.xml:1: '…{'а' * 19}  б{'в' * 38}…' -> '…{'а' * 19} б{'в' * 39}…'",
            id="the place of a long text",
        ),
    ],
)
def test_a_change_is_counted_and_shown(text: str, rule: str, example: str) -> None:
    _, notes = revised(COPISTE, text, "слово", text)
    assert {rule: changes.count for rule, changes in notes.text_changes.items()} == {rule: 2}
    assert notes.text_changes[rule].examples[0] == example


def test_the_line_break_at_the_end_of_a_file_is_no_change() -> None:
    texts, notes = revised(COPISTE, "слово\r\n", "слово\n")
    assert (texts, dict(notes.text_changes)) == (["слово", "слово"], {})


@pytest.mark.parametrize(
    ("policy", "text", "reason"),
    [
        pytest.param(COPISTE, "слово ><", SkipReason.UNCLEAR, id="unclear"),
        pytest.param(TextPolicy(struck="drop-line"), "а >б<", SkipReason.STRUCK, id="struck"),
        pytest.param(COPISTE, ">все<", SkipReason.NO_TEXT, id="nothing is left"),
    ],
)
def test_dropped_lines_are_listed_even_with_strict(policy: TextPolicy, text: str, reason: SkipReason) -> None:
    texts, notes = revised(policy, text, "слово")
    assert texts == ["слово"]
    assert [(item.reason, item.where) for item in notes.skipped] == [(reason, "p.xml:1")]
    assert not notes.text_changes, "what is not stored was not changed"


def test_the_card_counts_every_change(tmp_path: Path) -> None:
    for number, text in enumerate(["а >б< в", "и\u0306од", "слово", "мир ><"]):
        pair(tmp_path / "s", str(number), text)
    prepare(tmp_path / "s", tmp_path / "out", split="1/0/0", text_policy=COPISTE)
    card = read_card(tmp_path / "out")
    assert {rule: (changes.count, changes.examples) for rule, changes in card.text_changes.items()} == {
        "struck": (1, ["0.txt: 'а >б< в' -> 'а в'"]),
        "unicode": (1, [r"1.txt: 'и\u0306од' -> 'йод'"]),
    }
    assert card.skipped["unclear text"].count == 1
    assert card.policy() == COPISTE


@pytest.mark.parametrize(
    ("stored", "policy"),
    [
        pytest.param({"unicode": "keep", "spaces": "collapse"}, TextPolicy(unicode="keep"), id="some rules"),
        pytest.param({"struck": "erase"}, None, id="unknown rule"),
        pytest.param({"struck_marks": [[" ", "]"]]}, None, id="invalid marks"),
    ],
)
def test_the_policy_of_a_card(stored: dict[str, Any], policy: TextPolicy | None, tmp_path: Path) -> None:
    pair(tmp_path / "s", "a", "а")
    card = prepare(tmp_path / "s", tmp_path / "out", split="1/0/0").card.model_copy(update={"text_policy": stored})
    if policy:
        assert card.policy() == policy
    else:
        with raises_code("bad-card"):
            card.policy()


def struck_page(folder: Path, custom: str, text: str = "они шли долго домой") -> Path:
    picture(folder / "p.png")
    lines = page_line(text, custom=custom) + page_line("и пришли")
    write(folder / "p.xml", page_xml(f'<TextRegion id="r">{lines}</TextRegion>'))
    return folder


STRUCK = "readingOrder {index:0;} textStyle {offset:8; length:5;strikethrough:true;}"


@pytest.mark.parametrize(
    ("policy", "custom", "expected"),
    [
        pytest.param("keep", STRUCK, "они шли долго домой", id="keep"),
        pytest.param("strip", STRUCK, "они шли домой", id="strip"),
        pytest.param("drop-line", STRUCK, None, id="drop the line"),
        pytest.param("strip", STRUCK.replace("true", "false"), "они шли долго домой", id="not struck"),
        pytest.param("strip", "textStyle {offset:8; length:5; bold:true;}", "они шли долго домой", id="another style"),
        pytest.param("strip", f"{STRUCK} textStyle {{offset:0; length:7; strikethrough:true;}}", "домой", id="two"),
        pytest.param("strip", "textStyle {offset:8; length:99; strikethrough:true;}", "они шли", id="beyond the end"),
        pytest.param(
            "drop-line", "textStyle {offset:40; length:2; strikethrough:true;}", "они шли долго домой", id="off"
        ),
    ],
)
def test_text_style_of_transkribus_is_struck_out(
    policy: Any, custom: str, expected: str | None, tmp_path: Path
) -> None:
    (page,) = read_page(struck_page(tmp_path, custom))
    assert isinstance(page, Page)
    report = SourceReport()
    lines = [line.text for line in normalise_texts(page, report, TextPolicy(struck=policy)).lines]
    assert lines == ([] if expected is None else [expected]) + ["и пришли"]
    assert [item.reason for item in report.skipped] == ([SkipReason.STRUCK] if expected is None else [])
    assert ("struck" in report.text_changes) == (policy == "strip" and expected != "они шли долго домой")


STYLE = '<Word><TextStyle strikethrough="true"/><TextEquiv><Unicode>долго</Unicode></TextEquiv></Word>'
OTHERS = ["<Word><TextEquiv><Unicode>" + word + "</Unicode></TextEquiv></Word>" for word in ("они", "шли", "домой")]
WORDS = "".join([*OTHERS[:2], STYLE, OTHERS[2]])


@pytest.mark.parametrize(
    ("tag", "stripped"),
    [
        pytest.param("unclear {offset:8; length:5;}", "они шли долго домой", id="an unclear word is on the page"),
        pytest.param("gap {offset:8; length:0;}", "они шли долго домой", id="a gap"),
        pytest.param("gap {offset:8; length:5; reason:illegible;}", "они шли домой", id="a sign for a gap"),
        pytest.param("supplied {offset:0; length:8;}", "долго домой", id="what an editor has supplied is not"),
        pytest.param("abbrev {offset:0; length:3; expansion:онии;}", None, id="an abbreviation is as written"),
    ],
)
def test_tags_of_transkribus_are_unclear(tag: str, stripped: str | None, tmp_path: Path) -> None:
    source, kept = struck_page(tmp_path / "s", tag), ["они шли долго домой", "и пришли"]
    for action, first in (("keep", kept[0]), ("strip", stripped or kept[0]), ("drop-line", stripped and None)):
        policy = TextPolicy(unclear=action)  # type: ignore[arg-type]
        dataset = prepare(source, tmp_path / action, split="1/0/0", text_policy=policy)
        expected = [text for text in (first or ("" if stripped else kept[0]), kept[1]) if text]
        assert [sample.text for sample in dataset.samples(Split.TRAIN)] == expected
        is_noted = any("unclear" in note for note in dataset.card.notes)
        acts = action != "keep" and (action == "drop-line" or stripped != kept[0])
        assert is_noted == (not acts if stripped else action != "keep"), dataset.card.notes


@pytest.mark.parametrize("text", ["", "<TextEquiv><Unicode>они шли долго домой</Unicode></TextEquiv>"])
def test_the_style_of_a_word_is_struck_out(text: str, tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    line = f'<TextLine><Coords points="{SQUARE}"/>{WORDS}{text}</TextLine>'
    write(tmp_path / "p.xml", page_xml(f'<TextRegion id="r">{line}</TextRegion>'))
    (page,) = read_page(tmp_path)
    assert isinstance(page, Page)
    assert [line.struck for line in page.lines] == [((8, 13),)]


def test_struck_out_places_count_from_the_text_of_the_file(tmp_path: Path) -> None:
    custom = "textStyle {offset:2; length:3; strikethrough:true;}"
    (page,) = read_page(struck_page(tmp_path, custom, text="  они шли"))
    assert isinstance(page, Page)
    assert page.lines[0].struck == ((0, 3),)


def test_struck_out_places_stay_when_lines_become_a_region(tmp_path: Path) -> None:
    picture(tmp_path / "p.png")
    lines = page_line("и пришли") + page_line("они шли долго домой", custom=STRUCK.partition("} ")[2])
    write(tmp_path / "p.xml", page_xml(f'<TextRegion id="r">{lines}</TextRegion>'))
    (page,) = read_page(tmp_path)
    assert isinstance(page, Page)
    report = SourceReport()
    region = UnitGrouper("region").apply(page, report)
    (line,) = normalise_texts(region, report, TextPolicy(struck="strip")).lines
    assert line.text == "и пришли\nони шли домой"


ARCHIVE = """
struck: strip
struck_marks: [["{", "}"], ["<s>", "</s>"]]
unclear: drop-line
unclear_marks: ["[...]"]
line_end_hyphens: join
"""


def test_options_overrule_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "archive.yaml", ARCHIVE)
    marks = {"struck_marks": (("{", "}"), ("<s>", "</s>")), "unclear_marks": ("[...]",)}
    file = TextPolicy(struck="strip", unclear="drop-line", line_end_hyphens="join", **marks)  # type: ignore[arg-type]
    assert read_policy(path) == file
    policy = read_policy([str(path), "struck=keep", "mojibake=repair"])
    assert (policy.struck, policy.unclear, policy.mojibake) == ("keep", "drop-line", "repair")


def test_every_problem_is_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "archive.yaml", "struk: strip\nunclear: sometimes\nspaces: no\nstruck_marks: ['<s>']\n")
    with pytest.raises(ConfigError) as error:
        read_policy(path)
    message = str(error.value)
    assert message.startswith(f"{path}: 4 problems\n")
    assert "did you mean 'struck'?" in message
    assert all(f"\n  {key}: " in message for key in ("struk", "unclear", "spaces", "struck_marks.0"))


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param("unclear_marks: ['']\n", "config-invalid", id="an empty mark"),
        pytest.param(None, "input-missing", id="no file"),
        pytest.param("", "config-unreadable", id="empty"),
        pytest.param("struck, strip", "config-unreadable", id="no keys"),
    ],
)
def test_a_file_that_is_not_a_policy_is_an_error(tmp_path: Path, content: str | None, code: str) -> None:
    path = tmp_path / "archive.yaml"
    if content is not None:
        write(path, content)
    with raises_code(code, str(path)):
        read_policy(path)


def test_a_folder_or_a_wrong_option_is_an_error(tmp_path: Path) -> None:
    with raises_code("config-unreadable") as error:
        read_policy(tmp_path)
    assert "struck: strip" in str(error.value.hint)
    with raises_code("config-invalid", "the text policy"):
        read_policy("struck=erase")
