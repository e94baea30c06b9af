"""Samples as the checks see them, made without files."""

from collections.abc import Callable, Sequence
from pathlib import Path

from dsocr.data.check.findings import Checked, Finding, Findings, Look
from dsocr.document import Sample, Split

Check = Callable[[Sequence[Checked], Findings], None]


def look(ink: int = 300, hash_: int = 0, small: bytes = bytes(1024)) -> Look:
    """Dark ink on light paper, so many pixels wide."""
    return Look(40, 230, 240, black=0.0, white=0.0, ink=ink, hash=hash_, small=small)


def sample(
    number: int,
    text: str,
    *,
    split: Split = Split.TRAIN,
    writer: str | None = "anna",
    page: str | None = "1",
    digest: str | None = None,
    seen: Look | None = None,
    size: tuple[int, int] = (300, 60),
) -> Checked:
    """The sample of line `number` of its split's metadata."""
    name = f"{number}.png"
    item = Sample(f"{split}/{name}", Path(name), text, split, writer, page)
    return Checked(f"{split}/metadata.jsonl:{number}", item, digest or f"{split} {number}", size, seen or look(size[0]))


def found(check: Check, items: Sequence[Checked]) -> dict[str, Finding]:
    """What a check finds, by code."""
    findings = Findings()
    check(items, findings)
    return {finding.code: finding for finding in findings.listed()}
