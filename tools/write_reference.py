"""Write the reference pages of the documentation: configuration keys, commands, Python API, codes of errors.

The pages are built from the code, so they are not committed; `make docs` writes them before it builds the site. An
option is described once: by its command, or in front of all if several commands have it.
"""

import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import dsocr
from dsocr.cli.app import app
from dsocr.cli.commands import COMMANDS
from dsocr.config import RunConfig

FOLDER = Path(__file__).parents[1] / "docs" / "reference"


def _page(blocks: Iterable[str]) -> str:
    return "\n\n".join(block for block in blocks if block) + "\n"


def _fenced(language: str, code: str) -> str:
    return f"```{language}\n{code}\n```"


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
    return _page(["# Configuration", intro, _config_table("## Top level", "", top), *sections])


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


class Option(NamedTuple):
    """An argument or option of a command."""

    names: str
    text: str
    notes: str
    is_rare: bool


def cli_page() -> str:
    """Every command with its examples, arguments and options."""
    commands = {name: list(options_of(name)) for name in COMMANDS}
    uses = Counter(option for options in commands.values() for option in options)
    intro = (
        "`dsocr COMMAND --help` shows the same in a terminal. Every command takes `--json`, which prints the result as"
        " JSON, and `--quiet` or `-q`, which prints results and errors only."
    )
    shared = [option for option, count in uses.items() if count > 1]
    blocks = ["# Command line", intro, "## Shared options", *_listed(shared)]
    for name, command in COMMANDS.items():
        options = commands[name]
        others = ", ".join(option.names for option in options if uses[option] > 1)
        blocks += [f"## dsocr {name}", command.summary, _fenced("sh", "\n".join(command.examples))]
        blocks += _listed([option for option in options if uses[option] == 1])
        blocks += [f"And [shared options](#shared-options): {others}." if others else ""]
    return _page(blocks)


def options_of(command: str) -> Iterator[Option]:
    """Yield the arguments and options of a command as the command line has them."""
    collection = app[command].assemble_argument_collection(
        default_parameter=app.default_parameter, parse_docstring=True
    )
    for argument in collection.filter_by(parse=True):
        if "." in argument.name:  # a field of an object that only Python gives
            continue
        default = argument.field_info.default
        notes = [", ".join(f"`{choice}`" for choice in argument.get_choices() or ())]
        if isinstance(default, str | int | float) and not isinstance(default, bool):
            notes.append(f"default `{default}`")
        notes.append("required" if argument.required and argument.name.startswith("-") else "")
        text = " ".join((argument.parameter.help or "").split())
        is_rare = "Rare" in str(argument.parameter.group)
        names = ", ".join(f"`{name}`" for name in argument.names)
        yield Option(names, text, "; ".join(filter(None, notes)), is_rare)


def _listed(options: Iterable[Option]) -> list[str]:
    """Return the options as a list, and rare ones as a second list."""
    lists: dict[bool, list[str]] = {False: [], True: []}
    for option in options:
        notes = f" ({option.notes})" if option.notes else ""
        lists[option.is_rare].append(f"- {option.names}: {option.text}{notes}")
    return ["\n".join(lists[False]), "Rare:" if lists[True] else "", "\n".join(lists[True])]


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


_CALLED = {"Callback", "Dataset", "Processor", "Reader", "Run", "Trainer"}
"""Classes whose methods users call or write; the others are results, which are shown with their fields."""
_OF_RESULTS = {"apply", "load", "of", "split_lines", "to_csv", "to_html", "to_yaml"}
"""Methods of results that guides name."""


def api_page() -> str:
    """The public names: functions with their signatures, then classes, errors and types."""
    intro = (
        "The command of a function, if it has one, describes its options: `--split-by` is `split_by`, `--set` is"
        " `changes` and `--column` is `columns`. `progress` is called with the work done and the work in total, instead"
        " of a progress bar. Keywords of a configuration are keys, such as `max_steps=200`, or sections, such as"
        ' `adapter={"r": 16}`. Results have `to_dict()`, which returns all of them in JSON\'s types.'
    )
    values = {name: getattr(dsocr, name) for name in dsocr.__all__ if not name.startswith("_")}
    blocks = ["# Python API", intro]
    for name in sorted(values, key=lambda name: (_rank(values[name]), name)):
        value = values[name]
        blocks.append(f"## dsocr.{name}")
        if inspect.isclass(value):
            blocks += [inspect.getdoc(value) or "", "\n".join(_members(name, value))]
        elif inspect.isfunction(value):
            blocks += [_fenced("python", _signature(f"dsocr.{name}", value)), _described(name, value)]
        else:  # the name of a type
            aliases = {"StrPath": "str | PathLike[str]", "ProgressCallback": "Callable[[int, int], None]"}
            blocks.append(f"`{aliases.get(name) or _plain(str(value))}`")
    return _page(blocks)


def _rank(value: object) -> int:
    """Functions come first, then classes, errors and names of types."""
    if inspect.isclass(value):
        return 1 + issubclass(value, Exception)
    return 0 if inspect.isfunction(value) else 3


def _members(name: str, owner: type) -> Iterator[str]:
    for member, value in vars(owner).items():
        is_method = isinstance(value, staticmethod | classmethod) or inspect.isfunction(value)
        if member.startswith("_") or not (is_method or isinstance(value, property)):
            continue
        if isinstance(value, property):
            yield f"- `{name}.{member}`: {_in_a_line(value)}"
        elif (name in _CALLED and member != "to_dict") or member in _OF_RESULTS:
            function = getattr(owner, member)
            if inspect.getdoc(function) == inspect.getdoc(getattr(dsocr, member, None)):
                yield f"- `{name}.{member}(...)`: [`dsocr.{member}`](#dsocr{member}) with this object."
                continue
            parameters = list(inspect.signature(function).parameters.values())[inspect.isfunction(value) :]
            bare = inspect.Signature([parameter.replace(annotation=parameter.empty) for parameter in parameters])
            yield f"- `{name}.{member}{bare}`: {_in_a_line(function)}"


def _in_a_line(value: object) -> str:
    return " ".join((inspect.getdoc(value) or "").split())


def _signature(called: str, function: Any) -> str:
    """The signature with an argument a line, types and defaults as a reader writes them."""
    signature, lines = inspect.signature(function), list[str]()
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not any(line.startswith("    *") for line in lines):
            lines.append("    *,")
        if parameter.annotation is not parameter.empty and not isinstance(parameter.annotation, str):
            parameter = parameter.replace(annotation=without_options(parameter.annotation))
        text = str(parameter)
        if len(text) > 200:  # an object with all its defaults
            text = re.sub(r"= (\w+)\(.*", r"= \1()", text, flags=re.DOTALL)
        lines.append(f"    {text},")
    result = signature.return_annotation
    returned = f" -> {result.__name__ if isinstance(result, type) else result}"
    body = "\n".join(["(", *lines, ")"]) if lines else "()"
    return _plain(f"{called}{body}{'' if result is inspect.Signature.empty else returned}")


def _described(name: str, function: Any) -> str:
    """The docstring of a function, without the arguments that its command describes in the same words."""
    text, _, rest = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    arguments, _, after = rest.partition("\n\n")
    command = next((command for command, called in _FUNCTIONS.items() if f"dsocr:{name}" in called), "")
    known = {option.text for option in options_of(command)} if command else set()
    listed = [
        f"- `{argument}`: {' '.join(words.split())}"
        for argument, words in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE)
        if argument not in {"progress", "keys"} and " ".join(words.split()) not in known
    ]
    link = f"Options: [dsocr {command}](cli.md#dsocr-{command})." if command else ""
    after = re.sub(r"^    (\w+):", r"- `\1`:", after, flags=re.MULTILINE).replace("Raises:\n", "Raises:\n\n")
    return "\n\n".join(part.strip() for part in (text, link, "\n".join(listed), after) if part.strip())


_FUNCTIONS = {
    name: {command.function, *(switch.function for switch in command.switches)} for name, command in COMMANDS.items()
}
"""The functions that each command calls."""


def without_options(annotation: object) -> Any:
    """Return an annotation without what it says to the command line."""

    def annotated() -> None: ...

    annotated.__annotations__ = {"value": annotation}
    public = {name: getattr(dsocr, name) for name in dsocr.__all__}
    return get_type_hints(annotated, localns=public)["value"]


def codes_page() -> str:
    """Every code of an error by its class, with the first of its messages that the source has."""
    messages: dict[str, dict[str, str]] = {}
    for module in sorted(Path(dsocr.__file__).parent.rglob("*.py")):
        for code, kind, message in coded_errors(ast.parse(module.read_text(encoding="utf-8"))):
            listed = messages.setdefault(kind, {})
            listed[code] = listed.get(code) or message
    intro = (
        "Each error has a `code` that stays the same when its wording improves. One fact has one code; the place and"
        " the message say of what it is true. `...` stands for what is filled in."
    )
    blocks = ["# Codes of errors", intro]
    for kind, listed in sorted(messages.items()):
        rows = [f"- `{code}`: {message}" if message else f"- `{code}`" for code, message in sorted(listed.items())]
        blocks += [f"## {kind}", "\n".join(rows)]
    return _page(blocks)


def coded_errors(module: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield the code, the class and the message of each error that a module makes."""
    assigned: dict[str, ast.expr] = {}
    owner = ""
    nodes = [node for node in ast.walk(module) if isinstance(node, ast.Assign | ast.Call | ast.ClassDef)]
    for node in sorted(nodes, key=lambda node: node.lineno):
        if isinstance(node, ast.Assign):
            assigned |= {ast.unparse(target): node.value for target in node.targets}
        elif isinstance(node, ast.ClassDef):  # the code of an error that a class method makes
            owner = node.name
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            for default in (default for method in methods for default in method.args.kw_defaults):
                if node.name.endswith("Error") and isinstance(default, ast.Constant) and default.value:
                    yield str(default.value), node.name, ""
        else:
            code = next((word.value for word in node.keywords if word.arg == "code"), None)
            if isinstance(code, ast.Constant) and node.args and code.value:
                said = node.args[0]
                kind = ast.unparse(node.func).removesuffix(".listing").replace("super().__init__", owner)
                yield str(code.value), kind, _worded(assigned.get(ast.unparse(said), said))


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
