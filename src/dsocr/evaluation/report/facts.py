"""What a report says was measured with what, and the commands that measure it again."""

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from dsocr.errors import typed
from dsocr.evaluation.report.marks import visible
from dsocr.evaluation.report.material import Material
from dsocr.evaluation.report.sections import details


def render_facts(material: Material) -> dict[str, str]:
    """Provenance and settings as a table, then the commands, each as HTML under the name of its place in the page."""
    script = escape("\n".join(commands(material)))
    return {
        "provenance": f'<p class="quiet">{escape(material.card.meaning)}</p>{table(facts(material))}'
        + details("All settings and versions", table(settings(material))),
        "again": "<p>With the same version of dsocr, and with the dataset and the base that have the hashes above:</p>"
        f"<pre>{script}</pre>",
    }


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Names and what they stand for."""
    drawn = "".join(f"<tr><th>{visible(name)}</th><td>{visible(value)}</td></tr>" for name, value in rows)
    return f'<div class="wide"><table class="facts"><tbody>{drawn}</tbody></table></div>'


def facts(material: Material) -> Iterator[tuple[str, str]]:
    """What was scored, when, and how one knows it again."""
    card, made = material.card, material.provenance or {}
    yield "run", material.run.path.resolve().name
    yield "base", _base(card.settings if "base" in card.settings else made)
    if digest := card.settings.get("adapter_sha256"):
        yield "adapter", f"sha256 {digest}"
    yield "scored", f"{card.made_at} with dsocr {card.dsocr_version}"
    if "begun_at" in made:
        device = f" on {made['device']}" if made.get("device") else ""
        yield "trained", f"{made['begun_at']} with dsocr {made.get('dsocr_version', 'of unknown version')}{device}"
    for split, digest in card.dataset.items():
        yield f"{split} split", f"sha256 {digest}"


def settings(material: Material) -> Iterator[tuple[str, str]]:
    """Everything that the lines were read with, each setting with its name."""
    made = material.provenance or {}
    told = {"base", "base_revision", "adapter_sha256"}
    yield from flat({name: value for name, value in material.card.settings.items() if name not in told})
    for name in ("packages", "machine", "python"):
        if name in made:
            yield from flat({name: made[name]})


def _base(made: Mapping[str, Any]) -> str:
    revision = made.get("base_revision")
    return f"{made.get('base', 'unknown')}{f' at {revision}' if revision else ''}"


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each setting on a line of its own; those that are not set are left out."""
    for name, value in values.items():
        told = f"{prefix}{name.replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{told}: ")
        elif isinstance(value, list | tuple):
            yield told, ", ".join(map(_word, value))
        elif value is not None:
            yield told, _word(value)


def _word(value: object) -> str:
    """A value on one line: a newline in a prompt is shown as it is written in a string."""
    if isinstance(value, list | tuple):
        return " ".join(map(_word, value))
    return "yes" if value is True else "no" if value is False else str(value).replace("\n", "\\n")


def commands(material: Material) -> list[str]:
    """The commands that train, score and report again, quoted where a path has spaces."""
    run, card = material.run, material.card
    path = typed(run.path.as_posix())
    limit, dataset = card.settings.get("limit"), card.settings.get("dataset")
    options = f" --dataset {typed(dataset)}" if dataset else ""
    options += f" --split {card.split}" + (f" --limit {limit}" if limit else "") + ("" if card.base else " --no-base")
    return [
        f"dsocr train {typed(run.config.as_posix())} --set run=runs/again",
        f"dsocr evaluate runs/again{options}",
        f"dsocr report {path}",
    ]
