"""One export and all that is known of it without its weights, from the run folder it is made from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from dsocr.errors import RunError
from dsocr.model.adapters import read_adapter_config
from dsocr.model.architectures import Architecture
from dsocr.model.serving import is_served, serve_adapter, serve_merged
from dsocr.model.strength import config_at_strength
from dsocr.runs import ReadingSettings, RunFolder

Form = Literal["merged", "peft", "vllm"]
"""Weights with the adapter in them, the adapter as PEFT reads it, or the adapter as vLLM reads it."""


@dataclass(frozen=True, slots=True)
class Exported:
    """One export and what is known of the run it is made from.

    `architecture` is None where the base is not at hand, `revision` where its commit is not known. `adapter` is what
    stands in the adapter's config, at the export's `strength`; `provenance` is that of provenance.json, `scores` of
    scorecard.json, None if not scored.
    """

    form: Form
    name: str
    settings: ReadingSettings
    adapter: Mapping[str, Any]
    provenance: Mapping[str, Any]
    scores: Mapping[str, Any] | None
    architecture: Architecture | None = None
    revision: str | None = None
    strength: float = 1.0

    @classmethod
    def of_run(cls, form: Form, run: RunFolder, scores: Mapping[str, Any] | None, strength: float = 1.0) -> Self:
        """What the run's own files tell. Raises ConfigError for a strength that its adapter cannot have."""
        settings = ReadingSettings.load(run.adapter)
        return cls(
            form=form,
            name=run.path.resolve().name,
            settings=settings,
            adapter=config_at_strength(read_adapter_config(run.adapter), strength),
            provenance=_provenance(run),
            scores=scores,
            revision=settings.base_revision,
            strength=strength,
        )

    def on(self, architecture: Architecture, revision: str | None) -> Self:
        """The same with what its base turned out to be."""
        return replace(self, architecture=architecture, revision=revision)

    def serve_command(self, folder: Path) -> str | None:
        """How vLLM serves the export in a folder; None where it is not for vLLM, or vLLM has no class for its base."""
        if self.form == "peft" or not is_served(self.architecture):
            return None
        if self.form == "merged":
            return serve_merged(folder)
        return serve_adapter(self.settings.base, self.revision, folder, self.name, self.adapter["r"])


def _provenance(run: RunFolder) -> Mapping[str, Any]:
    try:
        provenance = json.loads(run.provenance.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RunError(f"cannot be read: {error}", where=run.provenance) from error
    return provenance if isinstance(provenance, dict) else {}
