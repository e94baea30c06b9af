"""Start a training from what an earlier run learnt: its adapter, or its network as the base.

`adapter.init_from` continues an adapter, `base` continues a network all of whose weights were trained. The provenance
of a run lists what it started from, and what that started from.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsocr.config import RunConfig, load_run_config
from dsocr.data.dataset import Dataset, image_hash, training_images
from dsocr.document import Split
from dsocr.errors import ConfigError, DsocrError, command, setting
from dsocr.io.work import hash_file
from dsocr.models.base_folder import INDEX, SINGLE, embedded_bases, find_base_metadata, weight_files
from dsocr.models.family import recognize, trains_all_weights
from dsocr.runs import ReadingSettings, RunFolder, read_provenance

_COMPARED = {"r": "r", "lora_alpha": "alpha", "use_dora": "variant", "use_rslora": "variant"}
"""Keys of a saved adapter's config that must be as configured, and the settings of the adapter section for them."""


def find_initial_adapter(config: RunConfig) -> Path | None:
    """Return the adapter folder to start from, None if there is none to start from.

    Raises ConfigError if it was trained on another base, has other layers, another rank or scaling, or is a whole
    network; RunError or ModelError if it is unfinished, damaged or not an adapter.
    """
    start = config.adapter.init_from
    if start is None:
        return None
    family = recognize(find_base_metadata(config.base, config.base_revision))
    run = RunFolder.to_read_with(start)
    if trains_all_weights(family, config.adapter.target) or (run.adapter / SINGLE).is_file():
        raise ConfigError(
            "adapter.init_from: all weights are trained or were trained, so there is no adapter to continue",
            code="init-from-network",
            where=start,
            hint=f"leave it out, and set `base: {start.as_posix()}` to continue from that run's network",
        )
    settings = ReadingSettings.load(run.adapter)
    merged = command("export", start.as_posix(), output="FOLDER", form="merged")
    merge = f"merge it with {merged}, and set `base: FOLDER`"
    if not _is_same_base(settings, config):
        revision = f" at {settings.base_revision}" if settings.base_revision else ""
        raise ConfigError(
            f"adapter.init_from: the adapter belongs to the base {settings.base}{revision}, not to {config.base}",
            code="init-from-base",
            where=start,
            hint=f"set `base: {settings.base}`, or leave init_from out, {merge}",
        )
    _require_same_shape(config, run.adapter, dict(family.target_modules), list(family.expert_parameters), merge)
    return run.adapter


def _require_same_shape(
    config: RunConfig, adapter: Path, named: dict[str, str], experts: list[str], merge: str
) -> None:
    from dsocr.models.adapters import WITH_EXPERTS, read_adapter_config, target_modules_of, variant_of

    wanted, saved = config.adapter, read_adapter_config(adapter)
    expected: dict[str, object] = {
        "r": wanted.r,
        "lora_alpha": wanted.alpha,
        "use_dora": wanted.variant == "dora",
        "use_rslora": wanted.variant == "rslora",
    }
    remedies = {}
    for key, value in expected.items():
        if (saved.get(key) or False) != value:
            remedies[_COMPARED[key]] = variant_of(saved) if key.startswith("use_") else f"{saved[key]:g}"
    targets = named.get(wanted.target, wanted.target), experts if wanted.target == WITH_EXPERTS else None
    if (saved["target_modules"], saved.get("target_parameters") or None) != targets:
        remedies["target_modules"] = target_modules_of(saved)
    if remedies:
        differences = ", ".join(f"{name} {value}, not {getattr(wanted, name)}" for name, value in remedies.items())
        settings = " ".join(setting(f"adapter.{name}", value) for name, value in remedies.items())
        raise ConfigError(
            f"adapter.init_from: the adapter has {differences}",
            code="init-from-shape",
            where=config.adapter.init_from,
            hint=f"set {settings}; or, for an adapter of another shape, leave init_from out, {merge}",
        )


def _is_same_base(settings: ReadingSettings, config: RunConfig) -> bool:
    """Whether an adapter belongs to the configured base: of the same name and commit, or with the same weights."""
    if settings.base == config.base:
        return config.base_revision in (None, settings.base_revision)
    if not (_is_local(settings.base) and _is_local(config.base)):
        return False
    theirs, ours = find_base_metadata(settings.base), find_base_metadata(config.base)
    return theirs.resolve() == ours.resolve() or _hashes(theirs) == _hashes(ours)


def _is_local(base: str) -> bool:
    return base in embedded_bases() or Path(base).is_dir()


def _hashes(folder: Path) -> dict[str, str]:
    """Return the hash of each file of weights in the folder of a network or an adapter."""
    whole = (folder / SINGLE).is_file() or (folder / INDEX).is_file()
    files = weight_files(folder) if whole else sorted(folder.glob("*.safetensors"))
    return {file.name: hash_file(file) for file in files}


def list_ancestors(config: RunConfig, dataset: Dataset) -> list[dict[str, Any]]:
    """Return what a training starts from besides a published base: the run, what it started from, and so on.

    An export counts as the run that it was made from. `known_lines` has the number of lines of the validation and the
    test split that the run was trained on, if the dataset of that run is still there: images are compared by bytes.
    """
    start = config.adapter.init_from
    if start is None:
        start = None if config.base in embedded_bases() or not Path(config.base).is_dir() else Path(config.base)
    if start is None:
        return []
    run = RunFolder(start)
    if start.name in {"adapter", "model"} and RunFolder(start.parent).config.is_file():
        run = RunFolder(start.parent)
    try:
        settings = ReadingSettings.load(run.adapter)
    except DsocrError:  # a base that no run made
        return []
    made = read_provenance(run)
    parent = {
        "run": run.path.as_posix(),
        "sha256": _hashes(run.adapter),
        "base": settings.base,
        "base_revision": settings.base_revision,
        **{name: made.get(name) for name in ("dataset", "dataset_source", "begun_at", "dsocr_version")},
    }
    ancestors = [parent, *made.get("started_from", [])]
    ours = {split: list(map(image_hash, dataset.samples(split))) for split in (Split.VALIDATION, Split.TEST)}
    return [{**ancestor, "known_lines": _count_known(ancestor["run"], ours)} for ancestor in ancestors]


def _count_known(run: str, ours: Mapping[Split, Sequence[str]]) -> dict[str, int] | None:
    """Count the images of each split on which a run was trained; None if its dataset is not found."""
    try:
        known = training_images(load_run_config(RunFolder(Path(run)).config))
    except DsocrError:
        return None
    return {split.value: sum(digest in known for digest in digests) for split, digests in ours.items()}
