"""From fonts and a text to a dataset folder: choose the lines, give fonts and lines to splits, draw, prepare."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsocr.data.augment import Augmentation
from dsocr.data.prepare import PrepareReport, Progress, prepare
from dsocr.data.splits import parse_fractions
from dsocr.data.synthesis.drawing import draw_lines
from dsocr.data.synthesis.faces import Face, FoundFonts, find_fonts
from dsocr.data.synthesis.sharing import share_out
from dsocr.data.synthesis.texts import choose_lines
from dsocr.data.writing import refuse_output
from dsocr.errors import DataError

_TOLD = 5
"""Fonts that one sentence lists at most."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """How many of the lines a face cannot draw, and the letters it lacks for them."""

    lines: int
    letters: str

    def __str__(self) -> str:
        shown = self.letters if len(self.letters) <= 40 else f"{self.letters[:40]}... ({len(self.letters)})"
        return f"lacks {shown}"


@dataclass(frozen=True, slots=True)
class SynthesisReport:
    """What was drawn, and what was not.

    `lacking` tells of each face that cannot draw all lines; `useless` names those that can draw none. `undrawn` are
    lines that no font of their split can draw, `broken` says of files why they are no fonts, and `passed_over` counts
    what of the text is no line to draw.
    """

    prepared: PrepareReport
    lacking: dict[str, Lacking]
    useless: list[str]
    undrawn: list[str]
    broken: dict[str, str]
    passed_over: Counter[str]


def synthesize(
    fonts: Path,
    text: Path,
    out: Path,
    *,
    count: int = 1000,
    seed: int = 17,
    augmentation: Augmentation = "light",
    split: str = "0.8/0.1/0.1",
    height: int = 64,
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> SynthesisReport:
    """Writes about `count` lines of a text, drawn in the fonts of a folder, as the dataset folder `out`.

    A font's family is the writer and stands in one split only, and so does a text. Texts that are fewer than `count`
    come again in other fonts and styles. `height` is about that of a line, in pixels. With `strict` a broken font, a
    font that lacks a letter, or a text that is passed over is an error; without, they are counted.
    """
    fractions = parse_fractions(split)
    for source in (fonts, text):
        refuse_output(out, source, overwrite=overwrite)
    found = find_fonts(fonts)
    chosen = choose_lines(text, count, seed)
    faces = found.faces("".join(chosen.lines))
    lacking = {face.name: lacks for face in faces if (lacks := _lacking(face, chosen.lines)).lines}
    if strict:
        _refuse_faults(fonts, text, found, lacking, chosen.passed_over)
    useful = [face for face in faces if face.name not in lacking or lacking[face.name].lines < len(chosen.lines)]
    if not useful:
        raise DataError("no font can draw a line of the text", where=fonts, hint=_faults(found, lacking))
    shared = share_out(useful, chosen.lines, fractions, count, seed)
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "synthesized")
        draw_lines(shared.lines, source, augmentation, height, seed, progress)
        # The split is given by a column; where all lines are in one, which counts as none, the fractions say the same.
        prepared = prepare(source, out, format="table", split=split, strict=strict, overwrite=overwrite)
    useless = [face.name for face in faces if face not in useful]
    return SynthesisReport(prepared, lacking, useless, shared.undrawn, found.broken, chosen.passed_over)


def _lacking(face: Face, lines: Sequence[str]) -> Lacking:
    missing = set("".join(lines)) - face.alphabet - {" "}
    return Lacking(sum(not missing.isdisjoint(line) for line in lines), "".join(sorted(missing)))


def _refuse_faults(
    fonts: Path, text: Path, found: FoundFonts, lacking: dict[str, Lacking], passed_over: Counter[str]
) -> None:
    if found.broken or lacking:
        raise DataError(_faults(found, lacking), where=fonts)
    if passed_over:
        raise DataError(
            f"passed over: {', '.join(f'{count} {what}' for what, count in passed_over.items())}", where=text
        )


def _faults(found: FoundFonts, lacking: dict[str, Lacking]) -> str:
    told = [f"{name} is {fault}" for name, fault in found.broken.items()]
    told += [f"{name} {lacks}" for name, lacks in lacking.items()]
    more = [f"and {len(told) - _TOLD} more"] if len(told) > _TOLD else []
    return "; ".join([*told[:_TOLD], *more])
