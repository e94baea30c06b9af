"""What a second reader brings: every two readers combined, either as the first, by a vote fitted on validation lines.

python benchmarks/combine.py data/copiste runs/mine runs/wider ppocr=runs/ppocr small nano -o readings
python benchmarks/combine.py examples/handwriting small demo=runs/demo nano

Each reader reads the validation and the test split once. `checked` is the share of the test split's errors in the tenth
of its lines with the lowest confidence, for the first reader's own confidences and for the combined ones.
"""

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.evaluation.metrics import character_errors, pool
from dsocr.evaluation.second_reader import Second, fit_vote
from dsocr.evaluation.statistics import clusters_of
from dsocr.images import open_image
from dsocr.inference.combine import combine
from dsocr.inference.confidence import Prediction
from dsocr.inference.reader import LocalReader
from measuring import append_json, table_line

WIDTHS = (26, 9, 9, 9, 9, 9, 9, 9, 9)
MARGIN = 0.002
_PREDICTIONS = TypeAdapter(list[Prediction])


def main() -> None:
    """Print a line for each pair of readers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("readers", nargs="+", help="runs and bases; NAME=PLACE names one")
    parser.add_argument("--threes", action="store_true", help="also combine every three readers")
    parser.add_argument("-o", "--output", type=Path, help="folder to keep readings in, which are not read again")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    dataset = Dataset.open(options.dataset)
    samples = {split: dataset.samples(split) for split in (Split.VALIDATION, Split.TEST)}
    readings = {}
    for text in options.readers:
        name, _, place = text.rpartition("=")
        name = name or Path(place).name
        readings[name] = {
            split: read(text, some, options.output and options.output / f"{name}_{split.value}.json")
            for split, some in samples.items()
        }
    clusters = clusters_of(samples[Split.VALIDATION])
    references = {split: [sample.text for sample in some] for split, some in samples.items()}
    rows = []
    losses: dict[str, list[tuple[float, str]]] = {"first": [], "better": []}
    head = ("readers", "first", "second", "third", "vote, cv", "kept", "combined", "own", "checked")
    print(table_line(head, WIDTHS))
    groups: list[tuple[str, ...]] = list(itertools.permutations(readings, 2))
    if options.threes:
        groups.extend(itertools.combinations(readings, 3))
    for names in groups:
        lines = list(zip(*(readings[name][Split.VALIDATION] for name in names), strict=True))
        vote = fit_vote(names, lines, references[Split.VALIDATION], clusters)
        test = [combine(line, vote) for line in zip(*(readings[name][Split.TEST] for name in names), strict=True)]
        cers = [cer(readings[name][Split.TEST], references[Split.TEST]) for name in names]
        combined = cer(test, references[Split.TEST])
        kept = "vote" if vote.kept is None else names[vote.kept]
        shares = [found(one, references[Split.TEST]) for one in (readings[names[0]][Split.TEST], test)]
        rates = [f"{one:.2%}" for one in cers] + [""] * (3 - len(names))
        shown = [*rates, f"{vote.cers[-1]:.2%}", kept, f"{combined:.2%}", *(f"{one:.0%}" for one in shares)]
        print(table_line((" + ".join(names), *shown), WIDTHS), flush=True)
        losses["first"].append((combined - cers[0], " + ".join(names)))
        losses["better"].append((combined - min(cers), " + ".join(names)))
        row = {"readers": names, "validation": vote.cers, "unit": vote.unit, "kept": kept, "test": cers}
        rows.append(row | {"combined": combined, "found": shares})
    for name, own in losses.items():
        most, readers = max(own)
        count = sum(loss > MARGIN for loss, _ in own)
        print(f"over {MARGIN:.1%} worse than the {name} reader: {count} of {len(own)}; most {most:.2%}, {readers}")
    append_json(options.json, "combine", vars(options), rows)


def read(text: str, samples: Sequence[Sample], file: Path | None) -> list[Prediction]:
    """Read samples, or take what was read before."""
    if file is not None and file.is_file():
        return _PREDICTIONS.validate_json(file.read_bytes())
    reader = Second.open(text).source
    assert isinstance(reader, LocalReader)
    found = list(reader.read((sample.id, open_image(sample.image)) for sample in samples))
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_PREDICTIONS.dump_json(found))
    return found


def cer(predictions: Sequence[Prediction], references: Sequence[str]) -> float:
    """The CER of all lines together."""
    pairs = zip(references, predictions, strict=True)
    return pool(character_errors(text, one.text) for text, one in pairs).rate


def found(predictions: Sequence[Prediction], references: Sequence[str]) -> float:
    """The share of all errors in the tenth of the lines with the lowest confidence."""
    pairs = zip(references, predictions, strict=True)
    errors = sorted((one.confidence or 0.0, character_errors(text, one.text).errors) for text, one in pairs)
    counts = [count for _, count in errors]
    return sum(counts[: round(len(counts) / 10)]) / max(sum(counts), 1)


if __name__ == "__main__":
    main()
