"""Synthesize datasets: draw the lines of a text file in the fonts of a folder."""

import hashlib
import heapq
import json
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from PIL import Image

from dsocr.config import read_augmentation
from dsocr.data.augment import Augmentation, augment, changes
from dsocr.data.dataset import Dataset, require_free_dataset
from dsocr.data.prepare import prepare
from dsocr.data.render import Face, FontFolder, find_fonts, random_style, render_line
from dsocr.data.splits import assign_groups, parse_fractions
from dsocr.document import Split
from dsocr.errors import ConfigError, DataError, option
from dsocr.io.files import UniqueStems
from dsocr.io.processes import ProgressCallback
from dsocr.options import Count, Range, StrPath
from dsocr.text import comparable

MIN_LENGTH, MAX_LENGTH = 20, 60
"""Characters of a line broken from running text; lines of the file that are no longer are drawn as they are."""
_FONT_SIZE = 0.56
"""Font size as a share of the line height; the rest is for ascenders, descenders and margins."""
_JPEG_QUALITY = 92
_NEIGHBOURS = 0.4
"""Share of lines with strokes of a neighbouring line."""
_CHUNK = 1 << 16
_MAX_LISTED = 5
"""Fonts listed in an error message."""
_FEWER_SPLITS = f"or use fewer splits, e.g. {option('split', '1/0/0')}"


@dataclass(frozen=True, slots=True)
class SynthesisReport:
    """The dataset written, and everything that was not drawn.

    `missing` has, for each font that lacks letters of the text, the number of lines it cannot draw and these letters;
    `unused` names the fonts that can draw no line. `undrawn` are lines that no font of their split can draw, `broken`
    gives the reason for each file that is not a font, `skipped` counts parts of the text that cannot be a line.
    """

    prepared: Dataset
    missing: dict[str, tuple[int, str]]
    unused: list[str]
    undrawn: list[str]
    broken: dict[str, str]
    skipped: Counter[str]


def synthesize(
    fonts: StrPath,
    text: StrPath,
    output: StrPath,
    *,
    count: Count = 1000,
    seed: Annotated[int, Range(0)] = 17,
    augmentation: str | float = "light",
    split: str = "0.8/0.1/0.1",
    height: Annotated[int, Range(16, 512)] = 64,
    strict: bool = False,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> SynthesisReport:
    """Draw the lines of a text in your fonts, as a dataset.

    A font family is a writer; families and texts are in one split only. If there are fewer texts than `count`, they are
    repeated in other fonts and styles.

    Args:
        fonts: Folder of fonts: ttf, otf, woff, woff2.
        text: UTF-8 text file: one line each, or running text.
        output: Folder to write.
        count: Number of lines to draw.
        seed: Seed of all random numbers.
        augmentation: Augmentation of the images: none, light, medium, strong or a number.
        split: Fractions of train/validation/test; a font is in one only.
        height: Approximate height of a line in pixels.
        strict: Stop at broken fonts, fonts that lack letters and skipped text instead of reporting them.
        overwrite: Replace what an earlier command wrote there.
        progress: Called with the lines done and in total, instead of a progress bar.

    Raises:
        ConfigError: There is no such augmentation.
        DataError: The fonts or the text cannot be used, or the dataset cannot be written.
    """
    fonts, text, out = Path(fonts), Path(text), Path(output)
    try:
        strength: Any = read_augmentation(augmentation)
    except ValueError as error:
        message = f"{option('augmentation', augmentation)} {error}"
        raise ConfigError(message, code="option-invalid") from error
    fractions = parse_fractions(split)
    require_free_dataset(out, fonts, text, overwrite=overwrite)
    folder = find_fonts(fonts)
    lines, skipped = choose_lines(text, count, seed)
    faces = folder.faces("".join(lines))
    missing = {face.name: lacks for face in faces if (lacks := _missing_letters(face, lines))}
    if strict and (folder.broken or missing):
        raise DataError(_describe_problems(folder, missing), where=fonts, code="fonts-incomplete")
    if strict and skipped:
        message = f"skipped: {', '.join(f'{number} {what}' for what, number in skipped.items())}"
        raise DataError(message, where=text, code="text-skipped")
    useful = [face for face in faces if missing.get(face.name, (0, ""))[0] < len(lines)]
    if not useful:
        hint = _describe_problems(folder, missing)
        raise DataError("no font can draw a line of the text", where=fonts, hint=hint, code="fonts-unusable")
    assigned, undrawn = _assign_fonts(useful, lines, fractions, count, seed)
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "synthesized")
        _draw_all(assigned, source, strength, height, seed, progress)
        # The table gives the splits; if all lines are in one split, the fractions say the same.
        prepared = prepare(source, out, format="table", split=split, strict=strict, overwrite=overwrite)
    unused = [face.name for face in faces if face not in useful]
    return SynthesisReport(prepared, missing, unused, undrawn, folder.broken, skipped)


def draw_line(text: str, face: Face, height: int, augmentation: Augmentation, rng: np.random.Generator) -> Image.Image:
    """Draw a line about `height` pixels high with a random pen on random paper; no letter is cut off."""
    style = random_style(rng)
    left, top, right, bottom = style.margins
    style = replace(
        style,
        size=max(8, round(_FONT_SIZE * height)),
        margins=(max(0.05, left), max(0.05, top), max(0.05, right), max(0.05, bottom)),
        tremble=float(rng.uniform(0, 0.035)),
        # Otherwise hairlines of thin fonts would vanish.
        stroke=max(0.15, style.stroke),
        pressure=float(rng.uniform(0, 0.25)),
        ink_fade=min(0.25, style.ink_fade),
    )
    return augment(render_line(text, face, style, rng).image, rng, augmentation)


def add_neighbour(image: Image.Image, other: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Add strokes of a neighbouring line at the upper or lower edge, cut off along an uneven outline.

    Lines cut from pages by their outlines have them: descenders of the line above, ascenders of the line below.
    """
    pixels, height = np.asarray(image, dtype=np.float32), image.height
    repeats = -(-image.width // other.width)
    beside = np.tile(np.asarray(other.convert("L"), dtype=np.float32), (1, repeats))[:, : image.width]
    beside = np.minimum(1, beside / max(1.0, float(np.median(beside))))
    shown = max(2, min(round(height * rng.uniform(0.06, 0.26)), other.height // 2))
    skipped = other.height // 12  # the margin of the other line
    xs = np.arange(0, image.width + height, height)
    cut = np.interp(np.arange(image.width), xs, rng.uniform(0, 0.6 * shown, len(xs)))
    if rng.random() < 0.5:  # from the edge inwards: the feet of the line above, or the heads of the line below
        edge, strokes = slice(None), beside[-shown - skipped : other.height - skipped]
    else:
        edge, strokes = slice(None, None, -1), beside[skipped : skipped + shown][::-1]
    shade = np.ones((height, image.width), dtype=np.float32)
    shade[edge][:shown] = np.where(np.arange(shown)[:, None] < cut, 1, strokes)
    return Image.fromarray(np.clip(pixels * shade[..., None], 0, 255).astype(np.uint8))


_AssignedLine = tuple[str, Face, Split]


def _draw_all(
    lines: Sequence[_AssignedLine],
    folder: Path,
    augmentation: Augmentation,
    height: int,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Draw the lines into `folder` with a table `lines.jsonl`; the style depends on a line's number and the seed."""
    (folder / "lines").mkdir(parents=True)
    stems = UniqueStems()
    with (folder / "lines.jsonl").open("w", encoding="utf-8", newline="\n") as table:
        for number, (text, face, split) in enumerate(lines):
            name = f"lines/{stems.take(f'{face.name}-{number + 1:05d}')}.jpg"
            rng = np.random.default_rng((seed, number))
            image = draw_line(text, face, height, augmentation, rng)
            if changes(augmentation) and rng.random() < _NEIGHBOURS:
                beside = lines[number - 1][0]  # whatever is written there, in this hand
                beside = beside if face.alphabet.issuperset(beside.replace(" ", "")) else text
                image = add_neighbour(image.convert("RGB"), draw_line(beside, face, height, 0.0, rng), rng)
            image.save(folder / name, quality=_JPEG_QUALITY)
            row = {"file_name": name, "text": text, "writer": face.family, "split": split}
            table.write(json.dumps(row, ensure_ascii=False) + "\n")
            if progress:
                progress(number + 1, len(lines))


def _missing_letters(face: Face, lines: Sequence[str]) -> tuple[int, str] | None:
    """The number of lines that a face cannot draw and the letters it lacks; None if it can draw all."""
    letters = set("".join(lines)) - face.alphabet - {" "}
    return (sum(not letters.isdisjoint(line) for line in lines), "".join(sorted(letters))) if letters else None


def _describe_problems(folder: FontFolder, missing: Mapping[str, tuple[int, str]]) -> str:
    problems = [f"{name}: {reason}" for name, reason in folder.broken.items()]
    problems += [f"{name} lacks {shorten_letters(letters)}" for name, (_, letters) in missing.items()]
    more = [f"and {len(problems) - _MAX_LISTED} more"] if len(problems) > _MAX_LISTED else []
    return "; ".join([*problems[:_MAX_LISTED], *more])


def shorten_letters(letters: str) -> str:
    """At most 40 letters, and their number if there are more."""
    return letters if len(letters) <= 40 else f"{letters[:40]}... ({len(letters)})"


def _assign_fonts(
    faces: Sequence[Face], texts: Sequence[str], fractions: Mapping[Split, float], count: int, seed: int
) -> tuple[list[_AssignedLine], list[str]]:
    """Assign `count` lines to splits and faces; also return the texts that no face of their split can draw.

    Expects the texts in random order. Raises DataError if a split with a fraction gets no line.
    """
    ends = [round(end * len(texts)) for end in accumulate(fractions.values(), initial=0.0)]
    parts = {split: texts[start:end] for split, (start, end) in zip(fractions, pairwise(ends), strict=True)}
    parts = {split: part for split, part in parts.items() if fractions[split] > 0}
    _require_enough(faces, texts, parts)
    split_of = _split_families(faces, texts, fractions, seed)
    assigned: list[_AssignedLine] = []
    undrawn: list[str] = []
    for split, own_texts in parts.items():
        own_faces = [face for face in faces if split_of[face.family] == split]
        able = {text: [face for face in own_faces if face.can_draw(text)] for text in own_texts}
        undrawn.extend(text for text, drawers in able.items() if not drawers)
        drawable = [(text, drawers) for text, drawers in able.items() if drawers]
        if not drawable:
            message = f"no font of the {split} split can draw any of its {len(own_texts)} lines of text"
            hint = f"add text, or fonts that have its letters, {_FEWER_SPLITS}"
            raise DataError(message, code="fonts-unusable", hint=hint)
        for turn in range(max(1, round(count * fractions[split]))):
            round_, place = divmod(turn, len(drawable))
            text, drawers = drawable[place]
            # One face after another, and another one each time a text is repeated.
            assigned.append((text, drawers[(round_ + place) % len(drawers)], split))
    return assigned, undrawn


def _require_enough(faces: Sequence[Face], texts: Sequence[str], parts: Mapping[Split, Sequence[str]]) -> None:
    """Raise an error if a split would have no text or no font family of its own."""
    if empty := [split for split, members in parts.items() if not members]:
        message = f"text has too few different lines ({len(texts)}) for a {' and a '.join(empty)} split of its own"
        raise DataError(message, code="text-too-short", hint=f"add text, {_FEWER_SPLITS}")
    families = sorted({face.family for face in faces})
    if len(families) < len(parts):
        message = f"{len(parts)} splits need as many font families, found {len(families)}: {', '.join(families)}"
        raise DataError(message, code="fonts-too-few", hint=f"add fonts of another family, {_FEWER_SPLITS}")


def _split_families(
    faces: Sequence[Face], texts: Sequence[str], fractions: Mapping[Split, float], seed: int
) -> dict[str, Split]:
    """Assign every font family to a split; families that lack letters of most texts go to the largest.

    Alone in a small split such a family would repeat the few texts it can draw.
    """
    capable = {face.family for face in faces if 2 * sum(map(face.can_draw, texts)) >= len(texts)}
    splits_used = sum(fraction > 0 for fraction in fractions.values())
    assigned = capable if len(capable) >= splits_used else {face.family for face in faces}
    largest = max(fractions, key=lambda split: fractions[split])
    splits = assign_groups(dict.fromkeys(assigned, 1), fractions, seed)
    return {face.family: splits.get(face.family, largest) for face in faces}


def choose_lines(path: Path, count: int, seed: int) -> tuple[list[str], Counter[str]]:
    """Choose at most `count` different lines of a UTF-8 text file at random, and count what was skipped by reason.

    The file is read once, and about `count` lines are kept in memory. Raises DataError if it cannot be read or has
    nothing to draw.
    """
    skipped: Counter[str] = Counter()
    # The lines with the smallest hashes are a fair sample, and a repeated line has the hash it had before.
    kept: set[tuple[int, str]] = set()
    for line in _read_lines(path, np.random.default_rng(seed), skipped):
        digest = hashlib.blake2b(f"{seed} {line}".encode(), digest_size=8).digest()
        kept.add((int.from_bytes(digest), line))
        if len(kept) > 2 * count:
            kept = set(heapq.nsmallest(count, kept))
    if not kept:
        hint = "write one line of text per line"
        raise DataError("text file has nothing to draw", where=path, hint=hint, code="text-empty")
    return [line for _, line in heapq.nsmallest(count, kept)], skipped


def _read_lines(path: Path, rng: np.random.Generator, skipped: Counter[str]) -> Iterator[str]:
    """Yield every line that can be drawn, in NFC and with single spaces only."""
    for chunk in _read_chunks(path):
        text = comparable(chunk)
        for line in [text] if len(text) <= MAX_LENGTH else _break_lines(text, rng, skipped):
            if any(unicodedata.category(character)[0] == "C" for character in line):
                skipped["lines with invisible characters"] += 1
            elif line:
                yield line


def _read_chunks(path: Path) -> Iterator[str]:
    """Yield the lines of a file; very long lines in chunks, cut at a space if they have one."""
    rest = ""
    try:
        with path.open(encoding="utf-8-sig") as file:
            while line := file.readline(_CHUNK):
                line, rest = rest + line, ""
                if not line.endswith("\n") and len(line) >= _CHUNK:
                    head, space, tail = line.rpartition(" ")
                    line, rest = (head, tail) if space else (line, "")
                yield line
    except UnicodeDecodeError as error:
        raise DataError("text is not UTF-8", where=path, hint="save it in UTF-8", code="not-utf8") from error
    except OSError as error:
        hint = "name a UTF-8 text file, such as existing transcriptions"
        raise DataError(f"cannot read text: {error.strerror}", where=path, hint=hint, code="file-unreadable") from error
    yield rest


def _break_lines(text: str, rng: np.random.Generator, skipped: Counter[str]) -> Iterator[str]:
    """Break running text into lines of MIN_LENGTH to MAX_LENGTH characters; the last may be shorter."""
    line, length = "", int(rng.integers(MIN_LENGTH, MAX_LENGTH + 1))
    for word in text.split(" "):
        if len(word) > MAX_LENGTH:
            skipped[f"words of more than {MAX_LENGTH} characters"] += 1
            # The text on either side of it no longer belongs together.
            word = ""
        if line and (not word or len(line) + 1 + len(word) > length):
            yield line
            line, length = "", int(rng.integers(MIN_LENGTH, MAX_LENGTH + 1))
        line = f"{line} {word}" if line else word
    if line:
        yield line
