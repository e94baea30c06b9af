"""Settings as people write them: read from YAML, changed by overrides, every problem told in a sentence.

Knows nothing about what the settings mean.
"""

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from dsocr.errors import ConfigError


def read_yaml(path: Path, *, example: str, hint: str) -> dict[Any, Any]:
    """The keys and values of a YAML file; a key that is given twice is an error.

    Errors show what such a file holds by an `example` and the `hint`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        twice = list(_keys_given_twice(yaml.compose(text, Loader=yaml.SafeLoader)))
        settings = yaml.safe_load(text)
    except FileNotFoundError as error:
        raise ConfigError("no such file", where=path, hint=hint) from error
    except OSError as error:  # of a folder Windows says that access is denied
        why = "is a folder, not a YAML file" if path.is_dir() else f"cannot be read: {error.strerror}"
        raise ConfigError(why, where=path, hint=hint) from error
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8 text", where=path, hint="save it with the encoding UTF-8") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"is not YAML: {_reason(error)}", where=_place(path, error), hint=_mend(error)) from error
    if twice:
        raise ConfigError.listing(twice, where=path)
    if not isinstance(settings, dict):
        raise ConfigError(f"must hold keys and values, such as `{example}`", where=path, hint=hint)
    return settings


def override(settings: dict[Any, Any], text: str) -> list[str]:
    """Put one `section.key=value` into the settings; the problems with it, if there are any."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        return [f"{text!r}: an override reads section.key=value"]
    *sections, key = name.split(".")
    for section in sections:
        if settings.get(section) is None:
            settings[section] = {}
        settings = settings[section]
        if not isinstance(settings, dict):
            return [f"{name}: {section!r} has no keys"]
    try:
        settings[key] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        return [f"{name}: {value!r} is not YAML: {_reason(error)}"]
    return []


def problems_in(error: ValidationError, keys: Sequence[str] = ()) -> list[str]:
    """One sentence per problem that pydantic found, e.g. `adapter.rnak: unknown key; did you mean 'rank'?`.

    `keys` are the dotted keys that are known, for the suggestions.
    """
    return [_sentence(".".join(map(str, problem["loc"])), problem, keys) for problem in error.errors()]


def _sentence(name: str, problem: Mapping[str, Any], keys: Sequence[str]) -> str:
    claim = _claim(name, problem, keys)
    return f"{name}: {claim}" if name else claim


def _claim(name: str, problem: Mapping[str, Any], keys: Sequence[str]) -> str:
    match problem["type"]:
        case "missing":
            return "field required"
        case "extra_forbidden" | "unexpected_keyword_argument" | "invalid_key":
            return f"unknown key; {_suggestion(name, keys)}"
        case "value_error":
            return str(problem["ctx"]["error"])
        case "json_invalid":
            return f"is not JSON: {problem['ctx']['error']}"
        case "model_type" | "dataclass_type" | "dict_type":
            claim = "must hold keys and values"
        case "path_type":
            claim = "must be a path"
        case _:
            claim = re.sub(r", (got|unable) .*", "", problem["msg"].replace("Input should", "must"))
    value = problem["input"]
    return f"{claim}, not {'null' if value is None else reprlib.repr(value)}"


def _suggestion(name: str, keys: Sequence[str]) -> str:
    section, _, key = name.rpartition(".")
    siblings = [known.rpartition(".")[2] for known in keys if known.rpartition(".")[0] == section]
    elsewhere = [known for known in keys if known.rpartition(".")[2] == key]
    likely = get_close_matches(key, siblings, n=1) or elsewhere
    return f"did you mean {' or '.join(map(repr, likely))}?" if likely else f"the keys are {', '.join(siblings)}"


def _keys_given_twice(node: yaml.Node | None, section: str = "") -> Iterator[str]:
    """A sentence for each such key of the file and of its sections; YAML itself would silently take the last."""
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        name, line = f"{section}{key.value}", key.start_mark.line + 1
        if name in lines:
            yield f"{name}: given twice, in lines {lines[name]} and {line}"
        lines[name] = line
        if not section:
            yield from _keys_given_twice(value, f"{name}.")


def _reason(error: yaml.YAMLError) -> str:
    return getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)


def _mend(error: yaml.YAMLError) -> str | None:
    """What to do about the two faults that editors and Windows' paths bring in."""
    reason = _reason(error)
    if "escape" in reason:
        return "write paths with / , as C:/scans, or without the double quotes"
    return "indent with spaces, not with tabs" if r"'\t'" in reason else None


def _place(path: Path, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return str(path) if mark is None else f"{path}:{mark.line + 1}"
