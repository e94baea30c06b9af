"""Publish a run or a dataset on the Hugging Face Hub: its files and a card.

Only files that others need are sent, those of an export or the samples: no checkpoints, optimizer states or logs.
"""

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Literal

from dsocr import __version__
from dsocr.console import current_reporter
from dsocr.data.dataset import METADATA_FILE, Card, Dataset
from dsocr.document import PackedImage
from dsocr.errors import ConfigError, DataError, option
from dsocr.evaluation.run import export
from dsocr.html import render
from dsocr.io.files import CARD_FILE, is_dataset
from dsocr.io.hub import is_hub_id, upload
from dsocr.options import ExportForm, StrPath

_README = "README.md"
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]*")
_TEXTS = {".json", ".jsonl", ".md", ".yml", ".yaml", ".txt", ".jinja"}


@dataclass(frozen=True, slots=True)
class Publication:
    """The files to send and their place: the size of each in bytes by its name there. `notes` are for the user."""

    repo: str
    kind: Literal["model", "dataset"]
    license: str | None
    files: Mapping[str, int]
    notes: Sequence[str] = ()
    is_sent: bool = False

    @property
    def url(self) -> str:
        """Where it is on the Hub."""
        return f"https://huggingface.co/{'datasets/' if self.kind == 'dataset' else ''}{self.repo}"

    def __str__(self) -> str:
        lines = [f"{size:>14,}  {name}" for name, size in self.files.items()]
        lines.append(f"{sum(self.files.values()):>14,}  bytes in {len(self.files)} files")
        return "\n".join(lines + [f"note: {note}" for note in self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Return everything in JSON's types."""
        return {**asdict(self), "url": self.url}


Files = dict[str, Path | bytes]
"""Paths or contents of files by their names in the repository."""


def push(
    source: StrPath | Dataset,
    repo: str,
    *,
    form: ExportForm | None = None,
    license: str | None = None,
    private: bool = False,
    dry_run: bool = False,
    yes: bool = False,
) -> Publication:
    """Publish a run or a dataset on the Hugging Face Hub; nothing is sent without a licence and a yes.

    Args:
        source: Run folder, or dataset folder.
        repo: Its name on the Hugging Face Hub, as owner/name.
        form: The adapter for peft or vllm, or merged weights; peft, or merged if all weights were trained.
        license: Licence of the published files, as cc-by-4.0.
        private: Publish in a private repository.
        dry_run: List the files to publish, and send nothing.
        yes: Publish without asking.

    The token is that of `hf auth login` or `HF_TOKEN`.

    Raises:
        ConfigError: The name or the licence cannot be used, or nobody said yes.
        DataError: A file names a folder of this machine, or the dataset cannot be read.
        RunError: The run is missing, unfinished or damaged.
    """
    folder = source.folder if isinstance(source, Dataset) else Path(source)
    if not is_hub_id(repo):
        raise ConfigError(f"{repo!r} is no name on the Hub", code="repo-invalid", hint="give owner/name")
    if not _LICENSE.fullmatch(license or ("none" if dry_run else "")):
        hint = f"give {option('license', 'cc-by-4.0')}, or another in lower case that the sources and the base allow"
        message = f"nothing is published without the Hub's identifier of a licence, and {license!r} is none"
        raise ConfigError(message, code="license-missing", hint=hint)
    with tempfile.TemporaryDirectory(prefix="dsocr-push-") as work:
        kind: Literal["model", "dataset"] = "dataset" if is_dataset(folder) else "model"
        if kind == "dataset":
            files, notes = _dataset_files(folder, repo, license)
        else:
            files, notes = _model_files(folder, repo, license, form, Path(work)), []
        _require_no_paths(files, folder)
        sizes = {
            name: len(content) if isinstance(content, bytes) else content.stat().st_size
            for name, content in sorted(files.items())
        }
        publication = Publication(repo, kind, license, sizes, notes)
        if dry_run:
            return publication
        if not (yes or current_reporter().confirm(f"{publication}\nPublish these files at {publication.url}?")):
            hint = f"give {option('yes')}, after looking at {option('dry_run')}"
            raise ConfigError("nothing was sent", code="not-confirmed", hint=hint)
        upload(repo, kind, files, f"Upload with dsocr {__version__}", private=private)
    return replace(publication, is_sent=True)


def _model_files(run: Path, repo: str, license: str | None, form: ExportForm | None, folder: Path) -> Files:
    out = folder / repo.rpartition("/")[2]
    exported = export(run, out, form=form)
    if exported.form != "merged" and Path(exported.settings.base).is_dir():
        message = f"the adapter's base {exported.settings.base} is a folder of this machine"
        hint = f"publish merged weights: {option('form', 'merged')}"
        raise ConfigError(message, code="base-not-public", hint=hint)
    text = (out / _README).read_text(encoding="utf-8")
    (out / _README).write_text(_complete_card(text, license), encoding="utf-8", newline="\n")
    return {path.name: path for path in sorted(out.iterdir())}


def _complete_card(text: str, license: str | None) -> str:
    from huggingface_hub import ModelCard

    card = ModelCard(text)
    data: Any = card.data
    data.license = license
    if not is_hub_id(str(data.base_model or "")):
        data.base_model = None  # a base that ships with dsocr; the Hub knows none of that name
        del data.base_model_relation
    return f"{card}\n## License\n\n{license or 'none'}, for the weights; images and transcriptions are not included.\n"


def _dataset_files(folder: Path, repo: str, license: str | None) -> tuple[Files, list[str]]:
    """Return the samples of a dataset with a card, and a note on the terms of its sources."""
    dataset, files = Dataset.open(folder), Files({CARD_FILE: folder / CARD_FILE})
    for split in dataset.card.splits:
        files[f"{split}/{METADATA_FILE}"] = dataset.metadata(split)
        for sample in dataset.samples(split):
            image = sample.image.file if isinstance(sample.image, PackedImage) else sample.image
            files[image.relative_to(folder).as_posix()] = image
    files[_README] = _dataset_card(dataset.card, repo, license).encode()
    terms = {manifest["rights"] for manifest in dataset.card.manifests if "rights" in manifest}
    return files, [f"the sources' terms: {', '.join(sorted(terms))}"] if terms else []


def _dataset_card(card: Card, repo: str, license: str | None) -> str:
    from huggingface_hub import DatasetCardData

    title = repo.rpartition("/")[2]
    data = DatasetCardData(
        license=license,
        pretty_name=title,
        task_categories=["image-to-text"],
        tags=["ocr", "handwriting", "htr", "dsocr"],
    )
    return render(
        "dsocr", "dataset_card.md.jinja", card=card, repo=repo, title=title, license=license, head=data.to_yaml()
    )


def spellings(folder: PurePath) -> set[str]:
    """Return the ways to write a folder in a text: as the system does, with slashes, and as a string of JSON."""
    return {str(folder), folder.as_posix(), json.dumps(str(folder), ensure_ascii=False)[1:-1]}


def _require_no_paths(files: Files, source: Path) -> None:
    """Raise DataError if a text names a folder of this machine."""
    folders = {Path.home(), source.resolve().parent, Path.cwd()}
    names = [name for folder in folders if len(folder.parts) > 2 for name in spellings(folder)]
    for name, content in files.items():
        if Path(name).suffix in _TEXTS:
            text = (content if isinstance(content, bytes) else content.read_bytes()).decode("utf-8", "replace")
            if leak := next((folder for folder in names if folder in text), None):
                message = f"{name} names the folder {leak} of this machine"
                raise DataError(message, code="path-published", where=source, hint="remove it from the run or dataset")
