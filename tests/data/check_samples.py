"""Samples and a processor for the checks, made without files."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dsocr.data.check import Findings
from dsocr.data.check.findings import CheckedSample, Finding, ImageStats, Problem
from dsocr.document import Sample, Split


def stats(ink_width: int = 300, dhash: int = 0, thumbnail: bytes = bytes(1024)) -> ImageStats:
    """Dark ink on light paper."""
    return ImageStats(40, 230, 240, black=0.0, white=0.0, ink_width=ink_width, dhash=dhash, thumbnail=thumbnail)


def sample(
    number: int,
    text: str,
    *,
    split: Split = Split.TRAIN,
    writer: str | None = "anna",
    page: str | None = "1",
    digest: str | None = None,
    image: ImageStats | None = None,
    size: tuple[int, int] = (300, 60),
) -> CheckedSample:
    """The sample in line `number` of its split's metadata."""
    name = f"{number}.png"
    item = Sample(f"{split}/{name}", Path(name), text, split, writer, page)
    where, digest = f"{split}/metadata.jsonl:{number}", digest or f"{split} {number}"
    return CheckedSample(where, item, digest, size, image or stats(size[0]))


def processor(
    unknown: str = "",
    count_tokens: Callable[[str], int] = len,
    distortion: Callable[[int, int], float] = lambda width, height: 1.0,
) -> Any:
    """A base that cannot write the `unknown` characters."""
    return SimpleNamespace(
        unknown_characters=lambda text: "".join(set(text) & set(unknown)),
        text_ids=lambda text: range(count_tokens(text)),
        distortion=distortion,
    )


def run_check(
    check: Callable[[Sequence[CheckedSample]], Iterable[Problem]], samples: Sequence[CheckedSample]
) -> dict[str, Finding]:
    """The findings of one check, by code."""
    return by_code(check(samples))


def by_code(problems: Iterable[Problem]) -> dict[str, Finding]:
    """The findings of problems, by code."""
    findings = Findings()
    findings.extend(problems)
    return {finding.code: finding for finding in findings}


def details(finding: Finding) -> list[str]:
    """Line and detail of every example."""
    return [f"{example.where.rpartition(':')[2]}: {example.detail}" for example in finding.examples]
