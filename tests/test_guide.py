"""The documentation against the code: commands parse, settings exist, links and named files are there."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import yaml

import dsocr
import write_reference
from dsocr.cli.app import app
from dsocr.cli.commands import COMMANDS
from dsocr.config import config_keys

ROOT = Path(__file__).parents[1]
READMES = [ROOT / "README.md", ROOT / "README.ru.md"]
VERDICTS = ROOT / "lab" / "verdicts.md"
PAGES = [
    *READMES,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
GENERATED = {write_reference.FOLDER / name for name in write_reference.PAGES}
COMMITTED = [page for page in PAGES if page not in GENERATED]
SECTIONS = {key.partition(".")[0] for key in config_keys() if "." in key}


REFERENCE = cache(lambda: [page() for page in write_reference.PAGES.values()])
"""Its pages on the configuration, the command line, Python, and codes."""


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """Yield the fenced blocks of these languages, also those indented in a list."""
    pattern = rf"^( *)```(?:{'|'.join(languages)})\n(.*?)^\1```"
    yield from (match[2] for match in re.finditer(pattern, text_of(page), re.DOTALL | re.MULTILINE))


def commands(page: Path) -> list[list[str]]:
    """Return the `dsocr` commands of a page's shell blocks, without comments."""
    found = []
    for block in blocks(page, "sh", "powershell"):
        for line in re.sub(r"\\\n", " ", block).replace("Scripts\\dsocr", "Scripts/dsocr").splitlines():
            words = [word for word in re.split(r"(?:^|\s)(?:\S*/|-m )?dsocr ", line, maxsplit=1) if word]
            if re.search(r"(?:^|[\s/])dsocr ", line):
                found.append(shlex.split(words[-1].partition(" && ")[0], comments=True))
    return found


def test_commands_parse() -> None:
    for words in {tuple(words) for page in COMMITTED for words in commands(page)}:
        app.parse_args([word for word in words if word not in {"--json", "--quiet", "-q"}])


def test_both_readmes_show_the_same_commands() -> None:
    assert commands(READMES[0]) == commands(READMES[1])
    assert max(len(text_of(readme).splitlines()) for readme in READMES) <= 90


def settings(page: Path) -> Iterator[str]:
    """Yield every `section.key` in inline code, after --set and in YAML blocks."""
    text = text_of(page)
    yield from re.findall(rf"`((?:{'|'.join(SECTIONS)})\.[a-z_]+)\b", text)
    for command in commands(page):
        yield from (value.partition("=")[0] for option, value in pairwise(command) if option == "--set")
    for block in blocks(page, "yaml"):
        for key, value in yaml.safe_load(block).items():
            if key in SECTIONS:
                yield from (f"{key}.{inner}" for inner in value)


def test_settings_exist() -> None:
    pages, known = [page for page in COMMITTED if page.name != "CHANGELOG.md"], config_keys()
    assert [(page.name, key) for page in pages for key in settings(page) if key not in known] == []


@cache
def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" in link or target in GENERATED:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield f"{page.name}: {link}"


def test_links_resolve() -> None:
    assert [link for page in COMMITTED for link in broken_links(page)] == []


def test_named_files_are_there() -> None:
    pattern = r"`((?:src|tests|tools|benchmarks|configs|examples)/[\w./-]+)`"
    named = [(page.name, name) for page in COMMITTED for name in re.findall(pattern, text_of(page))]
    assert [place for place in named if not (ROOT / place[1]).exists() and "NAME" not in place[1]] == []


def test_named_verdicts_are_there() -> None:
    files = [*COMMITTED, *(file for kind in ("py", "md") for file in sorted((ROOT / "src").rglob(f"*.{kind}")))]
    named = {heading for file in files for heading in re.findall(r'lab/verdicts\.md`?,\s+"([^"]+)"', text_of(file))}
    assert len(named) >= 5
    assert named <= set(re.findall(r"^## (.+)$", text_of(VERDICTS), re.MULTILINE))


def test_design_names_a_file_for_each_of_twenty_tasks_and_more() -> None:
    table = text_of(ROOT / "docs" / "design.md").partition("| task | file |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()]
    assert len(rows) >= 20
    for _, cell in rows:
        files = re.findall(r"`(src/dsocr/[\w./-]+)`", cell)
        assert 1 <= len(files) <= 2
        assert all((ROOT / file).exists() for file in files)


def test_reference_has_every_setting_command_and_public_name() -> None:
    config, cli, api, _ = REFERENCE()
    assert [key for key in config_keys() if key not in SECTIONS and f"| `{key}` |" not in config] == []
    assert [name for name in COMMANDS if f"\n## dsocr {name}\n" not in cli] == []
    public = [name for name in dsocr.__all__ if not name.startswith("_")]
    assert [name for name in public if f"\n## dsocr.{name}\n" not in api] == []


# Families in which a fact once had several codes: the one that is left, and words of the others.
ONE_CODE_A_FACT = {
    "output-occupied": r"(target|output)-(foreign|occupied|not-empty|is-dataset|holds)",
    "output-exists": r"(target|output|run)-(exists|finished|is-file)",
    "input-missing": r"(source|input|file|config)-missing|no-such-file",
    "output-folder-missing": r"(output-)?folder-missing",
    "formats-mixed": r"mixed-formats|formats-mixed",
    "format-unknown": r"unknown-format|format-unknown",
    "unit-unknown": r"unknown-unit|unit-(un|not-)known",
    "encoding-unknown": r"unknown-encoding|encoding-unknown",
    "column-role-unknown": r"(unknown-)?column-role(-unknown)?",
    "package-missing": r"(ray|package)-missing|.*-not-installed",
    "write-failed": r"write-failed|(report-)?not-writ(ten|able)",
    "dataset-missing": r"no-dataset|dataset-missing",
    "not-json": r"not-json|json-invalid",
}
SAME_WORDS = {"base-incomplete"}
"""Of a model's config.json, which is another fact."""


def test_a_fact_has_one_code_and_the_reference_lists_all() -> None:
    listed = set(re.findall(r"^- `([a-z0-9-]+)`", REFERENCE()[3], re.MULTILINE))
    written = {
        code
        for module in (ROOT / "src" / "dsocr").rglob("*.py")
        for code in re.findall(r'\bcode="([a-z0-9-]+)"', module.read_text(encoding="utf-8"))
    }
    assert written - listed == set()
    assert "too-large" in listed
    for code, family in ONE_CODE_A_FACT.items():
        assert {other for other in written - SAME_WORDS if re.fullmatch(family, other)} == {code}
