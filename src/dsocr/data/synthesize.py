"""Lines drawn from fonts, as a hand might have written them: from texts to a dataset folder."""

import codecs
import hashlib
import heapq
import json
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from dsocr.data.augment import Augmentation, augment
from dsocr.data.dataset_writer import refuse_output
from dsocr.data.prepare import PrepareReport, Progress, prepare
from dsocr.data.render import Face, FoundFonts, find_fonts, random_style, render_line
from dsocr.data.splits import assign_groups, parse_fractions
from dsocr.document import Split
from dsocr.errors import DataError
from dsocr.io.files import UniqueStems
from dsocr.text import comparable

_FEWER_SPLITS = "or leave splits out, e.g. --split 1/0/0"


@dataclass(frozen=True, slots=True)
class LineToDraw:
    """A text, the face to draw it in, and its split."""

    text: str
    face: Face
    split: Split


@dataclass(frozen=True, slots=True)
class Shared:
    """The lines to draw, and the texts that no face of their split can draw."""

    lines: list[LineToDraw]
    undrawn: list[str]


def share_out(
    faces: Sequence[Face], texts: Sequence[str], fractions: Mapping[Split, float], count: int, seed: int
) -> Shared:
    """`count` lines, by their fractions in each split; texts that are fewer are taken again, each in another face.

    Expects the texts in random order. Raises DataError where a split that should have lines gets none.
    """
    parts = _parts(texts, fractions)
    _demand_enough(faces, texts, parts)
    families = _split_of_families(faces, texts, fractions, seed)
    shared = Shared([], [])
    for split, own_texts in parts.items():
        own = [face for face in faces if families[face.family] == split]
        able = {text: [face for face in own if face.can_draw(text)] for text in own_texts}
        shared.undrawn.extend(text for text, found in able.items() if not found)
        drawable = [(text, found) for text, found in able.items() if found]
        if not drawable:
            message = f"none of the {len(own_texts)} lines of text for {split} can be drawn in its fonts"
            raise DataError(message, hint=f"add text, or fonts that have its letters, {_FEWER_SPLITS}")
        for turn in range(max(1, round(count * fractions[split]))):
            round_, place = divmod(turn, len(drawable))
            text, found = drawable[place]
            # One face after another, and another one each time a text comes round again.
            shared.lines.append(LineToDraw(text, found[(round_ + place) % len(found)], split))
    return shared


def _demand_enough(faces: Sequence[Face], texts: Sequence[str], parts: Mapping[Split, Sequence[str]]) -> None:
    """An error where a split would have no text or no font family, none of which stands in two."""
    if bare := [split for split, own in parts.items() if not own]:
        different = "1 line of text leaves" if len(texts) == 1 else f"{len(texts)} different lines of text leave"
        message = f"{different} none for {' and '.join(bare)}, and no line is drawn in two splits"
        raise DataError(message, hint=f"add text, {_FEWER_SPLITS}")
    families = sorted({face.family for face in faces})
    if len(families) < len(parts):
        counted = f"1 font family ({families[0]})" if len(families) == 1 else f"{len(families)} font families"
        message = f"{counted} cannot fill {len(parts)} splits without standing in two of them"
        raise DataError(message, hint=f"add fonts of another family, {_FEWER_SPLITS}")


def _split_of_families(
    faces: Sequence[Face], texts: Sequence[str], fractions: Mapping[Split, float], seed: int
) -> dict[str, Split]:
    """Every font family's split; one that lacks letters of most texts goes to the largest split.

    Alone in a small one it would show the few texts it can draw over and over.
    """
    most = {face.family for face in faces if 2 * sum(map(face.can_draw, texts)) >= len(texts)}
    wanted = sum(fraction > 0 for fraction in fractions.values())
    assigned = most if len(most) >= wanted else {face.family for face in faces}
    largest = max(fractions, key=lambda split: fractions[split])
    splits = assign_groups(dict.fromkeys(assigned, 1), fractions, seed, unit="font family")
    return {face.family: splits.get(face.family, largest) for face in faces}


def _parts(texts: Sequence[str], fractions: Mapping[Split, float]) -> dict[Split, Sequence[str]]:
    """The texts of every split that has a fraction."""
    ends = [round(end * len(texts)) for end in accumulate(fractions.values(), initial=0.0)]
    parts = {split: texts[start:end] for split, (start, end) in zip(fractions, pairwise(ends), strict=True)}
    return {split: part for split, part in parts.items() if fractions[split] > 0}


_SIZE = 0.56
"""A font's size as a share of the height of lines: the rest are what sticks out, and the margins."""

_JPEG_QUALITY = 92


def draw_lines(
    lines: Sequence[LineToDraw],
    folder: Path,
    augmentation: Augmentation,
    height: int,
    seed: int,
    progress: Progress | None = None,
) -> None:
    """Draws each line into `folder`, and `lines.jsonl` beside them; style depends on the line's place and the seed."""
    (folder / "lines").mkdir(parents=True)
    stems = UniqueStems()
    with (folder / "lines.jsonl").open("w", encoding="utf-8", newline="\n") as table:
        for number, line in enumerate(lines):
            name = f"lines/{stems.take(f'{line.face.name}-{number + 1:05d}')}.jpg"
            image = draw_line(line.text, line.face, height, augmentation, np.random.default_rng((seed, number)))
            image.save(folder / name, quality=_JPEG_QUALITY)
            row = {"file_name": name, "text": line.text, "writer": line.face.family, "split": line.split}
            table.write(json.dumps(row, ensure_ascii=False) + "\n")
            if progress:
                progress(number + 1, len(lines))


def draw_line(text: str, face: Face, height: int, augmentation: Augmentation, rng: np.random.Generator) -> Image.Image:
    """One line about `height` pixels high, in a random pen on random paper; all of its letters are on the image."""
    style = random_style(rng)
    left, top, right, bottom = style.margins
    style = replace(
        style,
        size=max(8, round(_SIZE * height)),
        margins=(max(0.05, left), max(0.05, top), max(0.05, right), max(0.05, bottom)),
        tremble=float(rng.uniform(0, 0.035)),
        # Hairlines of thin fonts would vanish otherwise.
        stroke=max(0.15, style.stroke),
        pressure=float(rng.uniform(0, 0.25)),
        ink_fade=min(0.25, style.ink_fade),
    )
    return augment(render_line(text, face, style, rng).image, rng, augmentation)


SHORTEST, LONGEST = 20, 60
"""Characters of a line that is broken from running text; a line of the file that is no longer is drawn as it stands."""

_PIECE = 1 << 16
_LONG_WORD = f"words of more than {LONGEST} characters"
_UNSEEN = "lines with characters that nobody can see"


@dataclass(frozen=True, slots=True)
class ChosenLines:
    """Lines in random order, no two alike, and what was passed over, counted by reason."""

    lines: list[str]
    passed_over: Counter[str]


def choose_lines(path: Path, count: int, seed: int) -> ChosenLines:
    """At most `count` different lines of a text file in UTF-8, each with the same chance.

    The file is read once, in pieces, and no more than `count` lines are held. Raises DataError where it cannot be read
    or holds nothing to draw.
    """
    passed_over: Counter[str] = Counter()
    # The lines with the smallest hashes are a fair draw, and a line that comes again has the hash it had before.
    largest_first: list[tuple[int, str]] = []
    kept: set[str] = set()
    for line in _lines(path, np.random.default_rng(seed), passed_over):
        rank = _rank(line, seed)
        if line in kept or (len(kept) == count and rank >= -largest_first[0][0]):
            continue
        kept.add(line)
        heapq.heappush(largest_first, (-rank, line))
        if len(kept) > count:
            kept.remove(heapq.heappop(largest_first)[1])
    if not kept:
        raise DataError("the text file holds nothing to draw", where=path, hint="give it a line for each to draw")
    return ChosenLines([line for _, line in sorted(largest_first, reverse=True)], passed_over)


def _rank(line: str, seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed} {line}".encode(), digest_size=8).digest())


def _lines(path: Path, rng: np.random.Generator, passed_over: Counter[str]) -> Iterator[str]:
    """Every line that can be drawn, as it is stored: NFC, no white space but single spaces."""
    for piece in _pieces(path):
        text = comparable(piece)
        for line in [text] if len(text) <= LONGEST else _broken(text, rng, passed_over):
            if any(unicodedata.category(character)[0] == "C" for character in line):
                passed_over[_UNSEEN] += 1
            elif line:
                yield line


def _pieces(path: Path) -> Iterator[str]:
    """The lines of a file; one that is longer than a piece comes in several, cut at a space where it has one."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    rest, done = "", False
    try:
        with path.open("rb") as file:
            while not done:
                data = file.read(_PIECE)
                done = not data
                *lines, rest = (rest + decoder.decode(data, done)).replace("\r", "\n").split("\n")
                yield from lines
                if len(rest) > _PIECE:
                    head, _, rest = rest.rpartition(" ")
                    yield head or rest
                    rest = rest if head else ""
    except UnicodeDecodeError as error:
        raise DataError("is not UTF-8 text", where=path, hint="save it with the encoding UTF-8") from error
    except OSError as error:
        hint = "name a text file in UTF-8, such as what was transcribed already"
        raise DataError(f"the text cannot be read: {error.strerror}", where=path, hint=hint) from error
    yield rest


def _broken(text: str, rng: np.random.Generator, passed_over: Counter[str]) -> Iterator[str]:
    """Running text in lines of SHORTEST to LONGEST characters, the last of them maybe shorter."""
    line, length = "", int(rng.integers(SHORTEST, LONGEST + 1))
    for word in text.split(" "):
        if len(word) > LONGEST:
            passed_over[_LONG_WORD] += 1
            # What stands on either side of it belongs together no longer.
            word = ""
        if line and (not word or len(line) + 1 + len(word) > length):
            yield line
            line, length = "", int(rng.integers(SHORTEST, LONGEST + 1))
        line = f"{line} {word}" if line else word
    if line:
        yield line


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
