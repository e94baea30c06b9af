"""Write the reference pages of the documentation: configuration keys, commands, Python API, codes of errors.

The pages are built from the code, so they are not committed; `make docs` writes them before it builds the site.
"""

import ast
import inspect
import io
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from rich.console import Console

import dsocr
from dsocr.cli.app import app
from dsocr.cli.commands import COMMANDS
from dsocr.config import RunConfig

FOLDER = Path(__file__).parents[1] / "docs" / "reference"


def config_page() -> str:
    """Every configuration key with its type, its default and what it does."""
    schema = RunConfig.model_json_schema()
    top, sections = [], []
    for key, field in schema["properties"].items():
        section = schema["$defs"].get(_referenced(field), {})
        if "properties" in section and _referenced(field).endswith("Section"):
            rows = [_config_row(f"{key}.{name}", part) for name, part in section["properties"].items()]
            sections.append(_config_table(f"## `{key}`", section.get("description", ""), rows))
        else:
            top.append(_config_row(key, field, required=key in schema.get("required", ())))
    intro = (
        "A run is described by one YAML file. Start from one in `configs/`; `--set section.key=value` changes a key on"
        " the command line. A key that does not exist is an error, and all problems are reported together."
    )
    return "\n\n".join(["# Configuration", intro, _config_table("## Top level", "", top), *sections]) + "\n"


def _config_table(heading: str, description: str, rows: list[str]) -> str:
    table = "\n".join(["| key | type | default | |", "|---|---|---|---|", *rows])
    return "\n\n".join(part for part in (heading, description, table) if part)


def _config_row(key: str, field: Mapping[str, Any], *, required: bool = False) -> str:
    default = "required" if required else _code(field.get("default"))
    cells = [f"`{key}`", _type(field), default, field.get("description", "")]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _referenced(field: Mapping[str, Any]) -> str:
    return str(field.get("$ref", "")).rpartition("/")[2]


def _code(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_code(part) for part in value)
    words = {None: "null", True: "true", False: "false", "": '""'}
    return f"`{words[value] if value is None or value == '' or isinstance(value, bool) else value}`"


def _type(field: Mapping[str, Any]) -> str:
    """The type in words, from its JSON Schema."""
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(choice) for choice in field["anyOf"]))
    if "enum" in field:
        return ", ".join(_code(value) for value in field["enum"])
    if "const" in field:
        return _code(field["const"])
    if "$ref" in field:
        return "name, or mapping of name and arguments"
    words = {"path": "path", "number": "number", "integer": "integer", "string": "text", "boolean": "true or false"}
    bounds = [
        f"{sign} {field[name]:.12g}"
        for name, sign in (("exclusiveMinimum", ">"), ("minimum", ">="), ("exclusiveMaximum", "<"), ("maximum", "<="))
        if name in field
    ]
    kind = field.get("format") if field.get("format") in words else field.get("type", "")
    if kind == "array":
        items = field.get("items", {})
        return f"list of {_type(items)}" if items else "list"
    return " ".join([words.get(str(kind), str(kind)), ", ".join(bounds)]).strip()


def cli_page() -> str:
    """The help of every command."""
    blocks = ["# Command line", "Every command answers `--help`.", _help()]
    for name in COMMANDS:
        blocks += [f"## dsocr {name}", _help(name)]
    return "\n\n".join(blocks) + "\n"


def _help(*words: str) -> str:
    console = Console(width=100, file=io.StringIO(), color_system=None)
    with console.capture() as printed:
        app.meta([*words, "--help"], console=console, result_action="return_value")
    text = re.sub(r"^╭─ (.+?) ─*╮$", r"\1:", printed.get(), flags=re.MULTILINE)  # boxes do not help on a page
    text = re.sub(r"^╰─*╯$", "", re.sub(r"^│(.*?) *│$", r" \1", text, flags=re.MULTILINE), flags=re.MULTILINE)
    return f"```text\n{text.strip()}\n```"


_TYPES: tuple[tuple[str, Any], ...] = (
    (r"\b(?:[a-z_]+\.)+(?=[A-Z])", ""),  # modules
    (r"Union\[((?:[^\[\]]|\[[^\[\]]*\])+)\]", lambda union: re.sub(r", (?![^\[]*\])", " | ", union[1])),
    (r"Optional\[((?:[^\[\]]|\[[^\]]*\])+)\]", r"\1 | None"),
    (r"NoneType", "None"),
    (r"str \| PathLike\[str\]", "StrPath"),
    (r"Callable\[\[int, int\], None\]", "ProgressCallback"),
    (r"\*<class '(\w+)'>", r"\1"),
)


def _plain(code: str) -> str:
    """Types as a reader writes them, without modules."""
    for pattern, replacement in 2 * _TYPES:  # what is inside first
        code = re.sub(pattern, replacement, code)
    return code


def api_page() -> str:
    """The signature and docstring of every public name, and of the public methods of classes."""
    values = {name: getattr(dsocr, name) for name in dsocr.__all__ if not name.startswith("_")}
    blocks = ["# Python API", _markdown(dsocr)]
    for name in sorted(values, key=lambda name: (_rank(values[name]), name)):
        value = values[name]
        if inspect.isclass(value):
            blocks += [f"## dsocr.{name}", _markdown(value), *_members(name, value)]
        elif inspect.isfunction(value):
            blocks += _described(f"## dsocr.{name}", f"dsocr.{name}", value)
        elif not isinstance(value, str):  # the name of a type
            aliases = {"StrPath": "str | PathLike[str]", "ProgressCallback": "Callable[[int, int], None]"}
            shown = aliases.get(name) or _plain(str(value))
            blocks += [f"## dsocr.{name}", f"```python\n{name} = {shown}\n```"]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _rank(value: object) -> int:
    """Functions come first, then classes, errors and names of types."""
    if inspect.isclass(value):
        return 1 + issubclass(value, Exception)
    return 0 if inspect.isfunction(value) else 3


def _members(name: str, owner: type) -> Iterator[str]:
    for member, value in vars(owner).items():
        if member.startswith("_"):
            continue
        if isinstance(value, property):
            yield from (f"### {name}.{member}", _markdown(value))
        elif isinstance(value, staticmethod | classmethod) or inspect.isfunction(value):
            function = getattr(owner, member)
            if inspect.getdoc(function) == inspect.getdoc(getattr(dsocr, member, None)):
                yield from (f"### {name}.{member}", f"`dsocr.{member}` with this object as its first argument.")
                continue
            is_method = inspect.isfunction(value)
            yield from _described(f"### {name}.{member}", f"{name}.{member}", function, is_method=is_method)


def _described(heading: str, called: str, function: Any, *, is_method: bool = False) -> list[str]:
    signature = inspect.signature(function)
    lines = [f"{called}("]
    for parameter in list(signature.parameters.values())[is_method:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not any(line.startswith("    *") for line in lines):
            lines.append("    *,")
        if parameter.annotation is not parameter.empty and not isinstance(parameter.annotation, str):
            parameter = parameter.replace(annotation=without_options(parameter.annotation))
        lines.append(f"    {parameter},")
    result = signature.return_annotation
    named = isinstance(result, type)
    lines.append(")" if result is inspect.Signature.empty else f") -> {result.__name__ if named else result}")
    code = _plain("\n".join(lines))
    return [heading, f"```python\n{code}\n```", _markdown(function)]


def without_options(annotation: object) -> Any:
    """Return an annotation without what it says to the command line."""

    def annotated() -> None: ...

    annotated.__annotations__ = {"value": annotation}
    public = {name: getattr(dsocr, name) for name in dsocr.__all__}
    return get_type_hints(annotated, localns=public)["value"]


def _markdown(value: object) -> str:
    """The docstring, with its arguments as a list."""
    text, _, arguments = (inspect.getdoc(value) or "").partition("\nArgs:\n")
    listed = re.sub(r"^    (\w+):", r"- `\1`:", arguments, flags=re.MULTILINE).replace("\nRaises:\n", "\nRaises:\n\n")
    return f"{text}\n{listed}" if arguments else text


def codes_page() -> str:
    """Every code of an error with its class and its messages, as the source has them."""
    rows: dict[tuple[str, str], list[str]] = {}
    for module in sorted(Path(dsocr.__file__).parent.rglob("*.py")):
        for code, kind, message in coded_errors(ast.parse(module.read_text(encoding="utf-8"))):
            rows.setdefault((code, kind), []).append(message)
    intro = (
        "Each error has a `code` that stays the same when its wording improves. One fact has one code; the place and"
        " the message say of what it is true."
    )
    lines = ["| code | error | says |", "|---|---|---|"]
    for (code, kind), messages in sorted(rows.items()):
        says = next(filter(None, messages), "").replace("|", "\\|")
        lines.append(f"| `{code}` | `{kind}` | {says} |")
    return "\n\n".join(["# Codes of errors", intro, "\n".join(lines)]) + "\n"


def coded_errors(module: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield the code, the class and the message of each error that a module makes."""
    assigned: dict[str, ast.expr] = {}
    nodes = [node for node in ast.walk(module) if isinstance(node, ast.Assign | ast.Call | ast.ClassDef)]
    for node in sorted(nodes, key=lambda node: node.lineno):
        if isinstance(node, ast.Assign):
            assigned |= {ast.unparse(target): node.value for target in node.targets}
        elif isinstance(node, ast.ClassDef):  # the code of an error that a class method makes
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            for default in (default for method in methods for default in method.args.kw_defaults):
                if node.name.endswith("Error") and isinstance(default, ast.Constant) and default.value:
                    yield str(default.value), node.name, ""
        elif _budgeted(node):
            yield "too-large", "DataError", "too large: ..., and the limit is ..."
        else:
            code = next((word.value for word in node.keywords if word.arg == "code"), None)
            if isinstance(code, ast.Constant) and node.args and code.value:
                said = node.args[0]
                kind = ast.unparse(node.func).removesuffix(".listing")
                yield str(code.value), kind, _worded(assigned.get(ast.unparse(said), said))


def _budgeted(call: ast.Call) -> str:
    """What a call of `Budget` measures, which the code of its error begins with; empty for another call."""
    place = {"take": 0, "unpack": 0, "read": 1}.get(call.func.attr) if isinstance(call.func, ast.Attribute) else None
    what = call.args[place] if place is not None and len(call.args) > place else None
    return what.value if isinstance(what, ast.Constant) and isinstance(what.value, str) else ""


def _worded(message: ast.expr) -> str:
    """The text of a message, with `...` for what is filled in; empty if it is made elsewhere."""
    if isinstance(message, ast.Constant):
        return str(message.value)
    if isinstance(message, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "..." for part in message.values]
        return re.sub(r"\s+", " ", "".join(parts)).strip()
    return ""


PAGES = {"config.md": config_page, "cli.md": cli_page, "api.md": api_page, "codes.md": codes_page}


def write_reference(folder: Path) -> None:
    """Write all reference pages into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write_reference(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
