"""How well `dsocr audit` finds mistakes: spoils lines in seven ways, and compares its list with two baselines.

`spoil DATASET OUT --seed N` writes a copy of a dataset in which 3 % of the lines have a wrong text, and `spoiled.json`,
which says how each was spoiled. The ways are written apart from those by which the audit learns what mistakes look
like (`dsocr.evaluation.mistakes`).
"""

import argparse
import json
import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from dsocr.io.files import link_or_copy

WAYS = ("word missing", "word added", "lines swapped", "lines shifted", "spelling", "other script", "other image")
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


def take_other(text: str, other: str, draw: random.Random) -> str:
    """Take the text of a line elsewhere."""
    return other


ALONE: dict[str, Callable[[str, str, random.Random], str]] = {
    "word missing": drop_word,
    "word added": add_word,
    "spelling": modernise,
    "other script": swap_script,
    "other image": take_other,
}


def spoil(rows: Sequence[dict[str, Any]], seed: int, share: float = SHARE) -> dict[int, tuple[str, str]]:
    """Return the places of the spoiled rows, each with its way and its wrong text; about as many of each way."""
    draw = random.Random(seed)
    pages: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        pages[row.get("document", ""), row["page"]].append(place)
    following = {one: other for own in pages.values() for one, other in pairwise(own)}
    wanted = max(len(WAYS), round(share * len(rows)))
    spoiled: dict[int, tuple[str, str]] = {}
    counts = dict.fromkeys(WAYS, 0)
    order = list(range(len(rows)))
    while len(spoiled) < wanted:
        way = min(WAYS, key=lambda name: (counts[name], draw.random()))
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
            texts = [ALONE[way](rows[place]["text"], other, draw)]
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


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("spoil")
    one.add_argument("dataset", type=Path)
    one.add_argument("out", type=Path)
    one.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    write_spoiled(options.dataset, options.out, options.seed)


if __name__ == "__main__":
    main()
