"""A text policy as an archive writes it down: a YAML file, with settings of the command line on top."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from dsocr.errors import ConfigError
from dsocr.settings import problems_in, read_yaml
from dsocr.text import TextPolicy


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class _Settings:
    policy: TextPolicy


_SECTION = "policy."
_EXAMPLE = "struck: strip"
_HINT = f"a text policy is a YAML file of lines such as `{_EXAMPLE}`; docs/guide/texts.md lists its keys"
_KEYS = [_SECTION + field.name for field in fields(TextPolicy)]


def read_policy(path: Path | None, settings: Mapping[str, str | None]) -> TextPolicy:
    """The policy of a file, if there is one, with the settings that are not None; all problems in one error."""
    given = {name: value for name, value in settings.items() if value is not None}
    stated = read_yaml(path, example=_EXAMPLE, hint=_HINT) if path else {}
    try:
        return TypeAdapter(_Settings).validate_python({"policy": {**stated, **given}}).policy
    except ValidationError as error:
        problems = [problem.removeprefix(_SECTION).removeprefix("policy: ") for problem in problems_in(error, _KEYS)]
        raise ConfigError.listing(problems, where=path or "the text policy") from error
