"""Texts in English and in Russian: which language, the texts of `texts.yaml` by name, plural forms and numbers."""

import locale
import math
import os
import string
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

import yaml

Language = Literal["en", "ru"]


def system_language() -> Language:
    """The language of the system, English unless it is Russian."""
    name = os.environ.get("LC_ALL") or os.environ.get("LANG") or locale.getlocale()[0] or ""
    return "ru" if name.lower().startswith("ru") else "en"


def preferred_language(accepted: str) -> Language:
    """The language of an `Accept-Language` header (RFC 9110, 12.5.4) that is liked best; English if there is none."""
    weights: dict[Language, float] = {}
    for entry in accepted.lower().split(","):
        tag, _, weight = entry.replace(" ", "").partition(";q=")
        for language in get_args(Language):
            if tag.partition("-")[0] == language:
                weights[language] = max(weights.get(language, 0.0), float(weight) if _is_weight(weight) else 1.0)
    return max(weights, key=lambda language: weights[language], default="en")


def _is_weight(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


@cache
def catalogue() -> Mapping[str, Mapping[Language, str]]:
    """Every text by name."""
    texts: Mapping[str, Mapping[Language, str]] = yaml.safe_load(
        files("dsocr").joinpath("texts.yaml").read_text(encoding="utf-8")
    )
    return texts


def localized(language: Language, name: str, /, **values: object) -> str:
    """The text of a name with values filled in.

    `{lines:line|lines}` writes a count with the plural form that belongs to it, `{rate:.1%}` a rate in percent, and
    `{mean:.2f}` a decimal, each as the language writes it.
    """
    return _Localizer(language).vformat(catalogue()[name][language], (), values)


class _Localizer(string.Formatter):
    def __init__(self, language: Language) -> None:
        self._is_russian = language == "ru"

    def format_field(self, value: Any, format_spec: str) -> str:
        if "|" in format_spec:
            forms = format_spec.split("|")
            return f"{value} {forms[_plural(value) if self._is_russian else value != 1]}"
        if not isinstance(value, float):
            text: str = super().format_field(value, format_spec)
            return text
        text = f"{value:{format_spec}}".replace("%", "\N{NO-BREAK SPACE}%") if math.isfinite(value) else "-"
        return text.replace(".", ",") if self._is_russian else text


def _plural(count: int) -> int:
    """The form of a Russian noun after a whole number: one, few or many (CLDR 46, plural rules)."""
    if count % 10 == 1 and count % 100 != 11:
        return 0
    return 1 if count % 10 in {2, 3, 4} and count % 100 not in {12, 13, 14} else 2
