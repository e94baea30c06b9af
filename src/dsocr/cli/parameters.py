"""Make the parameters of a command from the signature and the docstring of the public function that it calls."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import typer

from dsocr.errors import ConfigError, flag, option
from dsocr.io.web import FetchOptions
from dsocr.options import StrPath

IN_PYTHON_ONLY = frozenset({"progress", "callbacks", "confirm"})
"""Parameters that a command line cannot give."""
_PATHS = frozenset(get_args(StrPath))


def parameters_of(function: Callable[..., Any], *, as_options: Sequence[str] = ()) -> list[inspect.Parameter]:
    """Return a parameter for Typer for each option of a function; positional ones become arguments.

    `output`, and what `as_options` names, are options wherever they stand. A function that takes a configuration finds
    its dataset there, and needs one unless unlabelled scans will do.
    """
    signature, helps = inspect.signature(function), explanations(function)
    names = [name for name in signature.parameters if name not in IN_PYTHON_ONLY]
    if "config" in names and "changes" in names:
        names.remove("dataset")
    made = []
    for name in names:
        parameter = signature.parameters[name]
        if parameter.kind is not parameter.VAR_KEYWORD:
            is_option = parameter.kind is parameter.KEYWORD_ONLY or name in {"output", *as_options}
            needs_config = name == "config" and not is_option and "unlabelled" not in names
            is_required = parameter.default is parameter.empty or needs_config
            made.append(_parameter(parameter, helps[name], is_option=is_option, is_required=is_required))
    return made


@cache
def explanations(function: Callable[..., Any]) -> Mapping[str, str]:
    """Return what the docstring says of each parameter; names of options are written as they are typed."""
    _, _, section = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section.partition("\nRaises:")[0], re.MULTILINE)
    names = set(inspect.signature(function).parameters)
    typed = {name: re.sub(r"\s+", " ", text).partition(" In Python ")[0] for name, text in entries}
    return {
        name: re.sub(r"`(\w+)`", lambda match: flag(match[1]) if match[1] in names else match[0], text)
        for name, text in typed.items()
    }


def _parameter(parameter: inspect.Parameter, help: str, *, is_option: bool, is_required: bool) -> inspect.Parameter:
    kind, several = _typed_kind(parameter)
    default = None if several or not isinstance(parameter.default, str | int | float) else parameter.default
    if not is_option:
        information: Any = typer.Argument(help=help, metavar=parameter.name.upper())
    else:
        information = typer.Option(*_declarations(parameter, kind), help=help, metavar=_METAVARS.get(_item(kind)))
    optional = not is_required and default is None
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=parameter.empty if is_required else default,
        annotation=Annotated[kind | None if optional else kind, information],
    )


_METAVARS = {Path: "PATH", str: "TEXT", int: "NUMBER", float: "NUMBER"}
"""What help calls the value of an option; choices are listed."""


def _item(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is list else kind


def _declarations(parameter: inspect.Parameter, kind: object) -> list[str]:
    """Return the names of an option; a switch that is off has no form that turns it off."""
    if parameter.name == "output":
        return ["--output", "-o"]
    name = "--set" if parameter.name == "changes" else flag(parameter.name)
    return [f"{name}/{name.replace('--', '--no-', 1)}" if kind is bool and parameter.default else name]


def _typed_kind(parameter: inspect.Parameter) -> tuple[Any, bool]:
    """Return the type of a parameter on the command line, and whether it may be given several times."""
    parts = _alternatives(parameter.annotation)
    kinds = (Sequence,) if set(parts) >= _PATHS else (Sequence, Mapping)
    lists = [part for part in parts if get_origin(part) in kinds or part is FetchOptions]
    if lists or parameter.kind is parameter.VAR_POSITIONAL:
        inner = get_args(lists[0])[0] if lists and get_origin(lists[0]) is Sequence else str
        return list[_single(_alternatives(inner))], True  # type: ignore[misc]
    return _single(parts), False


def _alternatives(annotation: object) -> list[object]:
    """Return the members of a union, without None; a text stands for a path or a class that is not loaded yet."""
    if isinstance(annotation, str):
        return list(_PATHS)
    if get_origin(annotation) in (Union, UnionType):
        return [part for member in get_args(annotation) for part in _alternatives(member) if part is not NoneType]
    return [annotation]


def _single(parts: Sequence[object]) -> Any:
    if set(parts) >= _PATHS:
        return Path
    return get_args(parts[0])[0] if get_origin(parts[0]) is Annotated else parts[0]


def values_for(function: Callable[..., Any], given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments for a call, from the values of a command's parameters."""
    positional: list[Any] = []
    options: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in given or parameter.kind is parameter.VAR_KEYWORD:
            continue
        value = _value(name, parameter.annotation, given[name])
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += value
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            positional.append(value)
        elif value is not None or parameter.default is None:
            options[name] = value
    return positional, options


def _value(name: str, annotation: object, value: Any) -> Any:
    parts = _alternatives(annotation)
    if FetchOptions in parts:
        return FetchOptions.parse(value) if value else None
    if not isinstance(value, list):
        return value
    if any(get_origin(part) is Mapping for part in parts) and name != "changes":
        return _parse_pairs(name, value)
    return value


def _parse_pairs(name: str, pairs: Sequence[str]) -> dict[str, str]:
    """Parse options of the form name=value."""
    if bad := [pair for pair in pairs if not pair.partition("=")[2]]:
        message = f"{option(name, ...)} {bad[0]!r} has no ="
        raise ConfigError(message, hint="write name=value, for example text=label", code="option-invalid")
    return dict(pair.split("=", 1) for pair in pairs)
