"""The formats that transcriptions can be written in, one file each (three conventions of conversations share one)."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsocr.data.targets import messages, parquet, tsv
from dsocr.data.targets.alto import write_alto
from dsocr.data.targets.layout import NOT_UTF8, Writer
from dsocr.data.targets.markup import FORBIDDEN as NOT_XML
from dsocr.data.targets.messages import LLAMA_FACTORY, MS_SWIFT, UNSLOTH, Convention, MessagesWriter
from dsocr.data.targets.page import TRANSKRIBUS, write_page
from dsocr.data.targets.parquet import ParquetWriter
from dsocr.data.targets.tsv import TsvWriter
from dsocr.errors import DataError


@dataclass(frozen=True, slots=True)
class TargetFormat:
    """A way to keep transcriptions: `open` begins to write into a folder, with the source's own columns by name.

    `forbidden` is what no text of this format can hold. `whole` formats have the images as they are, with outlines on
    them, and keep lines that are not transcribed yet; the others have line images. `columns` are the names this format
    uses itself, None where it has no place for other columns; those in `origin` it takes from a source of line images.
    Without `names` there is no place for writers, and none for pages but the file names; `regions` have one where it
    says so. `next` is what to do with it.
    """

    name: str
    title: str
    open: Callable[[Path, Sequence[str]], Writer]
    forbidden: re.Pattern[str]
    next: str
    whole: bool = False
    names: bool = True
    regions: bool = False
    columns: tuple[str, ...] | None = None
    origin: frozenset[str] = frozenset()


def _conversations(name: str, title: str, convention: Convention, next_: str) -> TargetFormat:
    def open_(folder: Path, _: Sequence[str]) -> Writer:
        return MessagesWriter(folder, convention)

    return TargetFormat(name, title, open_, messages.FORBIDDEN, next_)


TARGETS = {
    target.name: target
    for target in (
        TargetFormat(
            "page",
            "PAGE XML of 2019 beside the images",
            lambda folder, _: write_page(folder),
            NOT_XML,
            "import {out} into eScriptorium, images and page/ together (for Transkribus there is page-2013)",
            whole=True,
            names=False,
            regions=True,
        ),
        TargetFormat(
            "page-2013",
            "PAGE XML of 2013, as Transkribus writes it",
            lambda folder, _: write_page(folder, TRANSKRIBUS),
            NOT_XML,
            "import {out} into Transkribus, images and page/ together",
            whole=True,
            names=False,
            regions=True,
        ),
        TargetFormat(
            "alto",
            "ALTO XML beside the images",
            lambda folder, _: write_alto(folder),
            NOT_XML,
            "import {out} into eScriptorium, images and alto/ together",
            whole=True,
            names=False,
            regions=True,
        ),
        TargetFormat(
            "tsv",
            "a table of lines with outlines",
            TsvWriter,
            tsv.FORBIDDEN,
            "open {out}/lines.tsv as UTF-8, or dsocr prepare {out} -o data/mine",
            whole=True,
            columns=tsv.COLUMNS,
        ),
        TargetFormat(
            "parquet",
            "Parquet files with line images inside",
            ParquetWriter,
            NOT_UTF8,
            "datasets.load_dataset({out!r}), or hf upload NAME {out} --repo-type dataset",
            columns=parquet.COLUMNS,
            origin=parquet.ORIGIN,
        ),
        _conversations(
            "ms-swift",
            "conversations for ms-swift, line images beside",
            MS_SWIFT,
            "in {out}: swift sft --dataset FILE.jsonl ... (images are named as seen from there)",
        ),
        _conversations(
            "llama-factory",
            "conversations for LLaMA-Factory, line images beside",
            LLAMA_FACTORY,
            "in a LLaMA-Factory recipe: dataset_dir and media_dir {out}, dataset as in its dataset_info.json",
        ),
        _conversations(
            "unsloth",
            "conversations for Unsloth, line images beside",
            UNSLOTH,
            "in {out}: datasets.load_dataset('json', data_files='FILE.jsonl') for Unsloth's trainer",
        ),
    )
}


def choose_target(name: str) -> TargetFormat:
    """The target format of this name."""
    if name not in TARGETS:
        raise DataError(f"unknown target format {name!r}; the formats are: {', '.join(TARGETS)}")
    return TARGETS[name]
