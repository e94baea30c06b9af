"""Measure how well `dsocr audit` finds mistakes: spoil lines in seven ways, and compare its list with two baselines.

    python benchmarks/audit.py spoil DATASET OUT --seed 1
    python benchmarks/audit.py measure FOLDS [--spoiled OUT] [--draws 20] [--small]

`spoil` writes a copy of a dataset in which 3 % of the lines have a wrong text, and `spoiled.json` with their kinds.
The kinds are written apart from those by which the audit learns to recognise mistakes (`dsocr.evaluation.audit`).
`measure` reads every line once with the models of an audit's work folder, keeps the log probabilities, and judges texts
by them. With `--spoiled` the dataset was spoiled before the folds were trained: one realistic draw. Without, texts are
spoiled only where they are judged: many draws, each a little too easy, because the models learnt from right texts
alone. With `--small` these draws also have smaller mistakes (a letter, a sign, an ending, a similar word).

Baselines: how unusual the length of the text is for the size of the image (as `dsocr check` warns), and the loss per
character under the model of the next fold, which was trained on the line.
"""

import json
import math
import random
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from dsocr.config import load_run_config
from dsocr.data.dataset import Dataset
from dsocr.document import Sample
from dsocr.evaluation.audit import ReadSample, judge, plant_mistakes, texts_to_score
from dsocr.images import open_image
from dsocr.inference.reader import LocalReader
from dsocr.io.files import link_or_copy
from dsocr.models.ctc import LineProcessor, score_texts
from dsocr.runs import RunFolder
from runner import Table, make_parser, parse, record

WAYS = ("word missing", "word added", "lines swapped", "lines shifted", "spelling", "other script", "other image")
SMALL_WAYS = ("letter", "sign", "ending", "similar word")
SHARE = 0.03
LIST = "spoiled.json"
_RUN = 3
"""Lines that are shifted together."""
_LOOK_ALIKES = dict(zip("aeopcyxABEKMHOPCTX", "аеорсухАВЕКМНОРСТХ", strict=True))
_LOOK_ALIKES |= {cyrillic: latin for latin, cyrillic in _LOOK_ALIKES.items()}
_MODERN = (("œ", "oe"), ("Œ", "Oe"), ("&", "et"), ("ё", "е"), ("Ё", "Е"), ("ъ", "ь"), ("ться", "тся"), ("—", "-"))
_DOUBLE = re.compile(r"([bcdfglmnprstбвгдзклмнпрст])\1")


def drop_word(text: str, other: str, draw: random.Random) -> str:
    """Leave out a word, as a copyist's eye does."""
    words = text.split(" ")
    place = draw.randrange(len(words))
    return " ".join(words[:place] + words[place + 1 :]) if len(words) > 1 else text


def add_word(text: str, other: str, draw: random.Random) -> str:
    """Write a word twice, or add one of another line."""
    words = text.split(" ")
    place = draw.randrange(len(words))
    added = words[place] if draw.random() < 0.5 else draw.choice(other.split(" "))
    return " ".join([*words[: place + 1], added, *words[place + 1 :]])


def modernise(text: str, other: str, draw: random.Random) -> str:
    """Write one place as somebody would today: an accent, a double consonant, an old sign or a capital is lost."""
    changed: list[str] = [text.replace(old, new, 1) for old, new in _MODERN if old in text]
    changed += [text[: found.start()] + found[1] + text[found.end() :] for found in _DOUBLE.finditer(text)]
    for place, letter in enumerate(text):
        plain = unicodedata.normalize("NFD", letter)[0]
        if plain != letter and letter not in "йЙ":
            changed.append(text[:place] + plain + text[place + 1 :])
        if place and letter.isupper() and text[place - 1] == " ":
            changed.append(text[:place] + letter.lower() + text[place + 1 :])
    return draw.choice(changed) if changed else text


def swap_script(text: str, other: str, draw: random.Random) -> str:
    """Type one letter on the other keyboard."""
    places = [place for place, letter in enumerate(text) if letter in _LOOK_ALIKES]
    if not places:
        return text
    place = draw.choice(places)
    return text[:place] + _LOOK_ALIKES[text[place]] + text[place + 1 :]


def change_letter(text: str, other: str, draw: random.Random) -> str:
    """Write another letter."""
    places = [place for place, letter in enumerate(text) if letter.isalpha()]
    letters = [letter for letter in other if letter.isalpha()]
    if not places or not letters:
        return text
    place = draw.choice(places)
    return text[:place] + draw.choice(letters) + text[place + 1 :]


def change_sign(text: str, other: str, draw: random.Random) -> str:
    """Leave out, add or exchange a sign."""
    changed = [text + ".", text + ",", text.rstrip(".,;:")]
    for place, letter in enumerate(text):
        if letter in ".,;:-'’()\"«»":
            changed += [text[:place] + new + text[place + 1 :] for new in ("", ".", ",", "-", " ")]
    return draw.choice(changed)


def change_ending(text: str, other: str, draw: random.Random) -> str:
    """Give a word of four letters or more the ending of another."""
    words = text.split(" ")
    places = [place for place, word in enumerate(words) if len(word) > 3 and word.isalpha()]
    endings = [word[-2:] for word in other.split(" ") if len(word) > 3 and word.isalpha()]
    if not places or not endings:
        return text
    place = draw.choice(places)
    cut = words[place][: -draw.choice((1, 2))]
    words[place] = draw.choice([cut, cut + draw.choice(endings), words[place] + draw.choice(endings)[-1]])
    return " ".join(words)


def take_similar(text: str, other: str, draw: random.Random, words: Sequence[str] = ()) -> str:
    """Write a word of the dataset that differs by one or two letters."""
    own = text.split(" ")
    for place in draw.sample(range(len(own)), len(own)):
        near = [one for one in words if 0 < Levenshtein.distance(one, own[place], score_cutoff=2) <= 2]
        if len(own[place]) > 3 and near:
            return " ".join([*own[:place], draw.choice(near), *own[place + 1 :]])
    return text


ALONE: dict[str, Callable[[str, str, random.Random], str]] = {
    "word missing": drop_word,
    "word added": add_word,
    "spelling": modernise,
    "other script": swap_script,
    "other image": lambda text, other, draw: other,
    "letter": change_letter,
    "sign": change_sign,
    "ending": change_ending,
}


def spoil(
    rows: Sequence[dict[str, Any]], seed: int, names: Sequence[str] = WAYS, share: float = SHARE
) -> dict[int, tuple[str, str]]:
    """Return the places of the spoiled rows, each with its way and its wrong text; about as many of each way.

    `share` is that of the seven ways; more ways spoil more.
    """
    draw = random.Random(seed)
    pages: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        pages[row.get("document", ""), row["page"]].append(place)
    following = {one: other for own in pages.values() for one, other in pairwise(own)}
    wanted = max(len(names), round(share * len(names) / len(WAYS) * len(rows)))
    words = sorted({word for row in rows for word in row["text"].split(" ") if len(word) > 3 and word.isalpha()})
    alone: dict[str, Callable[[str, str, random.Random], str]]
    alone = {**ALONE, "similar word": partial(take_similar, words=words)}
    spoiled: dict[int, tuple[str, str]] = {}
    counts = dict.fromkeys(names, 0)
    order = list(range(len(rows)))
    while len(spoiled) < wanted:
        way = min(names, key=lambda name: (counts[name], draw.random()))
        place = draw.choice(order)
        length = {"lines swapped": 2, "lines shifted": _RUN}.get(way, 1)
        run = [place]
        while len(run) < length and run[-1] in following:
            run.append(following[run[-1]])
        after = following.get(run[-1])
        if len(run) < length or (way == "lines shifted" and after is None):
            continue
        if way == "lines swapped":
            texts = [rows[run[1]]["text"], rows[run[0]]["text"]]
        elif way == "lines shifted":
            texts = [rows[one]["text"] for one in [*run[1:], after]]  # type: ignore[index]
        else:
            other = rows[draw.choice(order)]["text"]
            texts = [alone[way](rows[place]["text"], other, draw)]
        if any(one in spoiled for one in run) or any(
            not text.strip() or text == rows[one]["text"] for one, text in zip(run, texts, strict=True)
        ):
            continue
        spoiled |= {one: (way, text) for one, text in zip(run, texts, strict=True)}
        counts[way] += len(run)
    return spoiled


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a dataset's metadata, each with its `id`, sorted by it so that pages stay together."""
    rows = []
    for file in sorted(folder.glob("*/metadata.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            rows.append({**row, "id": f"{file.parent.name}/{row['file_name']}"})
    return sorted(rows, key=lambda row: (row.get("document", ""), row["page"], row["file_name"]))


def write_spoiled(folder: Path, out: Path, seed: int) -> None:
    """Write a spoiled copy of a dataset."""
    rows = read_rows(folder)
    wrong = {rows[place]["id"]: found for place, found in spoil(rows, seed).items()}
    for path in sorted(folder.rglob("*")):
        target = out / path.relative_to(folder)
        if path.name == "metadata.jsonl":
            lines = []
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                found = wrong.get(f"{path.parent.name}/{row['file_name']}")
                lines.append(json.dumps({**row, **({"text": found[1]} if found else {})}, ensure_ascii=False) + "\n")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("".join(lines), encoding="utf-8", newline="\n")
        elif path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(path, target)
    listed = {one: {"way": way, "text": text} for one, (way, text) in wrong.items()}
    (out / LIST).write_text(json.dumps(listed, ensure_ascii=False, indent=1), encoding="utf-8")


class Line(NamedTuple):
    """A line as a fold's model sees it: logits (T, classes) and their classes, image size, reading, fold."""

    sample: Sample
    logits: np.ndarray
    classes: dict[str, int]
    size: tuple[int, int]
    read: str
    plain: str
    language: Callable[[str], float] | None


def load_steps(
    run: RunFolder, samples: Sequence[Sample], name: str, *, read: bool
) -> tuple[LineProcessor, dict[str, Any]]:
    """Return the log probabilities of each line, (T, classes), as `line-N`; what was computed is kept in a file.

    With `read` also the sizes of the images, and the readings with the language model and without.
    """
    reader, kept = LocalReader.of_run(run), run.path / name
    processor = reader.processor
    if not isinstance(processor, LineProcessor):
        sys.exit(f"{run.path}: this benchmark scores texts by the logits of line recognisers")
    if not kept.is_file():
        images = [open_image(one.image) for one in samples]
        found: dict[str, Any] = {"sizes": np.array([image.size for image in images])}
        encoded = [processor.encode(image) for image in images]
        family: Any = processor.family
        steps = family.map_logits(lambda rows: rows.log_softmax(-1).numpy(), reader.network, processor, encoded)
        found |= {f"line-{place}": rows.astype(np.float16) for place, rows in enumerate(steps)}
        if read:
            texts = list(reader.read(zip([one.id for one in samples], images, strict=True)))
            found["read"] = np.array([one.text for one in texts])
            found["plain"] = np.array([one.text if one.plain is None else one.plain for one in texts])
        np.savez(kept, **found)
    return processor, dict(np.load(kept))


def folds_of(work: Path) -> list[tuple[RunFolder, list[Sample]]]:
    """Return the run of each fold with the lines that it did not see."""
    folds = []
    for number in range(1, len(list(work.glob("fold-*"))) + 1):
        run = RunFolder(work / f"fold-{number}")
        folds.append((run, Dataset.open(load_run_config(run.config).dataset, fold=number).samples("test")))
    return folds


def read_lines(work: Path) -> list[Line]:
    """Read every line with the model of its fold."""
    lines = []
    for run, samples in folds_of(work):
        processor, loaded = load_steps(run, samples, "logits.npz", read=True)
        score = processor.language_model.score if processor.language_model else None
        for place, one in enumerate(samples):
            logits = loaded[f"line-{place}"].astype(np.float32)
            size = tuple(loaded["sizes"][place].tolist())
            texts = str(loaded["read"][place]), str(loaded["plain"][place])
            lines.append(Line(one, logits, dict(processor.classes), size, *texts, score))
    return sorted(lines, key=lambda line: (line.sample.document or "", line.sample.page or "", line.sample.id))


def judge_lines(lines: Sequence[Line], texts: Mapping[str, str], seed: int) -> list[ReadSample]:
    """Return the lines with these texts, as the audit reads them."""
    samples = [replace(line.sample, text=texts.get(line.sample.id, line.sample.text)) for line in lines]
    found = []
    for line, sample, planted in zip(lines, samples, plant_mistakes(samples, seed), strict=True):
        wanted = texts_to_score(line.read, line.plain, [sample.text, *planted])
        likelihoods = dict(zip(wanted, score_texts(line.logits, line.classes, wanted), strict=True))
        language = {text: line.language(text) for text in wanted} if line.language else {}
        found.append(ReadSample(sample, line.read, line.plain, planted, likelihoods, language))
    return found


def length_ratios(lines: Sequence[Line], samples: Sequence[Sample]) -> np.ndarray:
    """Return how far each text's length is from what fits its image, as `dsocr check` measures it."""
    density = np.array(
        [
            math.log(len(sample.text)) - math.log(line.size[0] / line.size[1])
            for line, sample in zip(lines, samples, strict=True)
        ]
    )
    off = np.zeros(len(lines))
    for place, line in enumerate(lines):
        own = [at for at, other in enumerate(lines) if other.sample.writer == line.sample.writer]
        off[place] = abs(density[place] - np.median(density[own] if len(own) >= 20 else density))
    return off


def seen_lines(work: Path) -> dict[str, tuple[np.ndarray, dict[str, int]]]:
    """Return each line's logits and classes by id, under the model of the next fold, which was trained on it."""
    found: dict[str, tuple[np.ndarray, dict[str, int]]] = {}
    folds = folds_of(work)
    for number, (own, samples) in enumerate(folds):
        run = folds[(number + 1) % len(folds)][0]
        processor, loaded = load_steps(run, samples, f"logits-of-{own.path.name}.npz", read=False)
        for place, sample in enumerate(samples):
            found[sample.id] = loaded[f"line-{place}"].astype(np.float32), dict(processor.classes)
    return found


RANKS = (0.5, 1, 2, 3)


def recalls(scores: np.ndarray, wrong: Sequence[bool]) -> list[float]:
    """Return recall at several multiples of n, the number of spoiled lines, and the rank of 80 % of them over n."""
    order = np.argsort(-scores, kind="stable")
    hits, count = np.cumsum(np.array(wrong)[order]), sum(wrong)
    eighty = int(np.searchsorted(hits, math.ceil(0.8 * count))) + 1
    return [*(float(hits[round(times * count) - 1] / count) for times in RANKS), eighty / count]


def means(draws: Sequence[Sequence[float]]) -> list[str]:
    """Return means over draws, the recall at 2 n and the rank of 80 % with their extremes."""
    values = np.array(draws)
    cells = [f"{value:.2f}" for value in values.mean(0)]
    for column in (2, 4) if len(draws) > 1 else ():
        cells[column] += f" ({values[:, column].min():.2f} to {values[:, column].max():.2f})"
    return cells


def measure(work: Path, spoiled: Path | None, draws: int, *, small: bool) -> Table:
    """Print the recall of the audit and of the baselines."""
    lines, seen = read_lines(work), seen_lines(work)
    rows = [
        {
            "id": line.sample.id,
            "page": line.sample.page,
            "document": line.sample.document or "",
            "text": line.sample.text,
        }
        for line in lines
    ]
    found: dict[str, list[list[float]]] = defaultdict(list)
    missed, made = Counter[str](), Counter[str]()
    known = json.loads((spoiled / LIST).read_text(encoding="utf-8")) if spoiled else {}
    for seed in [0] if spoiled else range(1, draws + 1):
        drawn = {} if spoiled else spoil(rows, seed, WAYS + SMALL_WAYS if small else WAYS)
        ways = {rows[place]["id"]: way for place, (way, _) in drawn.items()}
        ways |= {row["id"]: known[row["id"]]["way"] for row in rows if row["id"] in known}
        read = judge_lines(lines, {str(rows[place]["id"]): text for place, (_, text) in drawn.items()}, 17)
        scores = judge(read)
        samples, wrong = [line.sample for line in read], [line.sample.id in ways for line in read]
        losses = [-score_texts(*seen[sample.id], [sample.text])[0] / len(sample.text) for sample in samples]
        found["audit"].append(recalls(scores, wrong))
        found["loss, trained on it"].append(recalls(np.array(losses), wrong))
        found["length ratio"].append(recalls(length_ratios(lines, samples), wrong))
        first = {read[place].sample.id for place in np.argsort(-scores, kind="stable")[: 2 * sum(wrong)]}
        missed.update(way for id_, way in ways.items() if id_ not in first)
        made.update(ways.values())
    table = Table("recall at", *(f"{times:g} n" for times in RANKS), "rank of 80 % over n")
    for name, values in found.items():
        table.row(name, *means(values))
    print("found in the first 2 n:", {way: f"{total - missed[way]} of {total}" for way, total in made.items()})
    return table


def main() -> None:
    """Spoil a dataset, or measure."""
    parser = make_parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    spoiling = commands.add_parser("spoil")
    spoiling.add_argument("dataset", type=Path)
    spoiling.add_argument("out", type=Path)
    spoiling.add_argument("--seed", type=int, default=1)
    measuring = commands.add_parser("measure")
    measuring.add_argument("work", type=Path)
    measuring.add_argument("--spoiled", type=Path)
    measuring.add_argument("--draws", type=int, default=20)
    measuring.add_argument("--small", action="store_true")
    options = parse(parser)
    if options.command == "spoil":
        write_spoiled(options.dataset, options.out, options.seed)
    else:
        record(options, measure(options.work, options.spoiled, options.draws, small=options.small).rows)


if __name__ == "__main__":
    main()
