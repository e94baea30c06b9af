"""Project rules that no linter checks."""

import ast
import os
import pickle
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from dsocr.config import RunConfig, load_config
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.evaluation.scorecard import Scorecard, make_scorecard
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.text import TextPolicy
from tests.evaluation.making_runs import scored

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dsocr"
MODULES = sorted(SOURCE.rglob("*.py"))

DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
ORDER = re.search(r"```\n(errors \| .*?)\n```", DESIGN, re.DOTALL)[1]  # type: ignore[index]
RANKS = {part: rank for rank, parts in enumerate(ORDER.split("|")) for part in re.findall(r"\w+", parts)}


@cache
def nodes(module: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))


def part_of(module: Path) -> str:
    """The first name below dsocr: a module's own, or its package's."""
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(module: Path) -> Iterator[str]:
    """The parts that a module imports, inside functions too."""
    for node in nodes(module):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: write the whole name, not a relative import"
            names = [f"{node.module}.{name}" for name in names]
        for package, *rest in (name.split(".") for name in names):
            if package == "dsocr" and rest and not rest[0].startswith("__"):
                yield rest[0]


def test_imports_point_one_way() -> None:
    modules = [module for module in MODULES if part_of(module) != "__init__"]  # loads names when they are used
    assert {*map(part_of, modules)} <= RANKS.keys(), "docs/design.md has all parts in the order of imports"
    imports = [(module.name, part_of(module), other) for module in modules for other in {*imported_parts(module)}]
    assert [place for place in imports if place[1] != place[2] and RANKS[place[2]] >= RANKS[place[1]]] == []


def module_named(name: str) -> Path | None:
    path = SOURCE.parent.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def imported_modules(module: Path) -> set[Path]:
    """The modules that a module imports, inside functions and for type checkers too."""
    files: set[Path | None] = set()
    for node in nodes(module):
        if isinstance(node, ast.Import):
            files |= {module_named(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = module_named(node.module or "")
            files |= {module_named(f"{node.module}.{alias.name}") or package for alias in node.names}
    return {file for file in files if file and file != module}


def test_no_circle_of_modules() -> None:
    """Modules that import each other are one module in several files: peel off modules that import none of the rest."""
    rest = {module: imported_modules(module) for module in MODULES}
    while leaves := [module for module, imported in rest.items() if not imported & rest.keys()]:
        for module in leaves:
            del rest[module]
    above = {module for imported in rest.values() for module in imported}
    assert sorted(module.relative_to(SOURCE).as_posix() for module in rest if module in above) == []


def test_no_two_modules_and_no_two_classes_have_the_same_name() -> None:
    modules = Counter(module.stem for module in MODULES if not module.stem.startswith("__"))
    classes = Counter(node.name for module in MODULES for node in nodes(module) if isinstance(node, ast.ClassDef))
    assert {name for name, count in (modules + classes).items() if count > 1} == set()


def test_no_module_is_over_650_lines() -> None:
    lengths = {module.name: len(module.read_text(encoding="utf-8").splitlines()) for module in MODULES}
    assert {name: length for name, length in lengths.items() if length > 650} == {}


VAGUE = {"one", "some", "own", "found", "gone", "wanted", "told"}


def badly_named(module: Path) -> Iterator[str]:
    """Names that say nothing of their values, and starred tuples that press arguments onto a line."""
    for node in nodes(module):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                if name in VAGUE:
                    yield f"{module.name}:{node.lineno}: {name}"
            case ast.Starred(value=ast.Tuple() | ast.List() | ast.Set()):
                yield f"{module.name}:{node.lineno}: a starred tuple"


def test_names_say_what_their_values_are() -> None:
    assert [place for module in MODULES for place in badly_named(module)] == []


@pytest.mark.parametrize("name", ["transformers", "peft"])
def test_only_the_tested_minor_version_is_admitted(name: str) -> None:
    """Both change what dsocr relies on between minor versions; `make newest` tries the next ones."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]["train"]
    (admitted,) = (each.specifier for each in map(Requirement, dependencies) if each.name == name)
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    (tested,) = (Version(pin.partition("==")[2]) for pin in pins if pin.startswith(f"{name}=="))
    assert tested in admitted
    assert f"{tested.major}.{tested.minor + 1}" not in admitted


def forbidden(module: Path) -> Iterator[str]:
    """Ways to run code that comes from a file, and texts whose encoding depends on the machine."""
    for node in nodes(module):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
            yield from (f"{node.lineno}: {name}" for name in names & {"pickle", "dill", "joblib", "marshal", "shelve"})
        if isinstance(node, ast.Call):
            called, keywords = ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}
            if called in {"eval", "exec", "torch.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}:
                yield f"{node.lineno}: {called}"
            if "True" in {keywords.get("trust_remote_code"), keywords.get("allow_pickle")}:
                yield f"{node.lineno}: {called} of foreign code"
            if called.endswith((".read_text", ".write_text")) and "encoding" not in keywords:
                yield f"{node.lineno}: {called} without an encoding"


def test_nothing_runs_foreign_code_or_guesses_an_encoding() -> None:
    places = [(module.name, place) for module in MODULES for place in forbidden(module)]
    # It pickles calls to processes that it started, over their pipes, as multiprocessing does; nothing is from a file.
    assert [place for place in places if place[0] != "processes.py" or not place[1].endswith(": pickle")] == []


def texts_of_errors(module: Path) -> Iterator[tuple[int, str]]:
    """The texts in calls that make an error, and those of variables with such texts."""
    for node in nodes(module):
        targets = [ast.unparse(target).lower() for target in node.targets] if isinstance(node, ast.Assign) else []
        is_error = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error")
        if is_error or any("hint" in target or "message" in target for target in targets):
            parts = [part for part in ast.walk(node) if isinstance(part, ast.Constant)]
            yield from ((part.lineno, part.value) for part in parts if isinstance(part.value, str))


def test_errors_name_options_as_the_caller_gave_them() -> None:
    """Write `option("overwrite")`: a caller in Python has no --overwrite. Options of other programs are theirs."""
    of_others = re.compile(r"hf download|--local-dir|torchrun|accelerate launch|--nproc-per-node|--revision")
    modules = [module for module in MODULES if part_of(module) not in {"cli", "server"}]
    rows = [(module.name, *row) for module in modules for row in texts_of_errors(module)]
    flags = [row for row in rows if re.search(r"(?<![\w-])--[a-z]", row[2])]
    assert [row for row in flags if not of_others.search(row[2])] == []


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_every_recipe_loads_and_shows_its_command(path: Path) -> None:
    load_config(path)
    assert f"dsocr train {path.stem}" in path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_machine_without_utf8_reads_the_same() -> None:
    command = [sys.executable, "-m", "pytest", "--noconftest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    subprocess.run([*command, "tests/test_config.py", "tests/test_runs.py"], cwd=ROOT, env=environment, check=True)


def test_objects_passed_between_processes_survive_pickling() -> None:
    lines = scored(("йод", "йод"))
    card: Scorecard = make_scorecard("test", {"base": lines, "adapter": lines})
    things = [
        DataError("нельзя", where="a.xml"),
        Sample("a", Path("a.png"), "йод", Split.TEST, geometry={"bbox": [0, 0, 1, 1]}),
        RunConfig(dataset=Path("d"), output=Path("r")),
        RunFolder(Path("r")),
        ReadingSettings("nano", None, "Прочти", "tiny", TextPolicy(), {}),
        card,
    ]
    assert ascii(pickle.loads(pickle.dumps(things))) == ascii(things)
