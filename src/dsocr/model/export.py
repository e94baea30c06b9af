"""The recipe of an export of merged weights: a run's base with its adapter in it, in the layout of the base's files.

What serves or converts the base takes the export in its place.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor

from dsocr.model.adapters import load_adapter
from dsocr.model.export_folder import write_beside
from dsocr.model.export_target import CARD, demand_apart, is_plain, refuse_target
from dsocr.model.exported import Exported
from dsocr.model.finding import find_base
from dsocr.model.loading import load_base
from dsocr.model.merging import (
    demand_same_tensors,
    merge,
    original_tensors,
    unused_tensors,
    weight_types,
    widest,
)
from dsocr.model.shards import write_shards
from dsocr.model.strength import at_strength
from dsocr.runs import RunFolder, writing_folder

Progress = Callable[[int, int], None]
"""Told after each tensor: how many are written, and how many there are."""

_OF_AN_EXPORT = {CARD, "reading.json"}


def export_merged(
    run: RunFolder,
    out: Path,
    *,
    scores: Mapping[str, Any] | None = None,
    strength: float = 1.0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write the run's base with its adapter merged in, with the names, types and other files that the base has.

    `scores` is the run's scorecard as its file holds it, for the card; of the adapter as much is merged in as
    `strength` says. Raises ConfigError where the folder `out` is not free, or the adapter cannot have this strength,
    ModelError where it does not fit or a tensor would not come out under the name it went in by.
    """
    refuse_target(out, overwrite=overwrite)
    demand_apart(out, [run.adapter])
    export = Exported.of_run("merged", run, scores, strength)
    settings = export.settings
    folder, _ = find_base(settings.base, settings.base_revision)
    demand_apart(out, [folder])
    types = weight_types(folder)
    base = load_base(settings.base, settings.base_revision, dtype=widest(types.values()))
    demand_same_tensors(base.network, folder)
    export = export.on(base.architecture, base.revision)
    model = load_adapter(base.network, run.adapter)
    with at_strength(model, strength):
        network = merge(model, where=run.adapter)
    unused = dict(unused_tensors(folder))
    with writing_folder(out) as draft:
        tensors = chain(original_tensors(network, types), unused.items())
        write_shards(draft, _told(tensors, len(types) + len(unused), progress))
        for file in _plain_files(folder):
            shutil.copyfile(file, draft / file.name)
        write_beside(draft, export, out)
    return export


def _told(tensors: Iterable[tuple[str, Tensor]], total: int, progress: Progress | None) -> Iterator[tuple[str, Tensor]]:
    for done, tensor in enumerate(tensors, start=1):
        yield tensor
        if progress is not None:
            progress(done, total)


def _plain_files(folder: Path) -> list[Path]:
    """What lies beside a base's weights and is no code, but for what the export has of its own."""
    own = set(folder.glob("*.index.json")) | {folder / name for name in _OF_AN_EXPORT}
    return sorted(path for path in folder.iterdir() if is_plain(path) and path not in own)
