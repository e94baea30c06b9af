"""A leak report in words: the paragraph to quote beside a score, and the tables that a page of Markdown holds."""

from collections.abc import Iterator, Sequence

from dsocr.data.leak_report import LeakReport, Seen, SplitFacts
from dsocr.samples import Split

_DONE = {Split.TRAIN: "train", Split.VALIDATION: "validate", Split.TEST: "test"}


def to_quote(report: LeakReport) -> str:
    """Plain English with the numbers: how it was split, what crosses, what of the test has been seen."""
    return " ".join(_sentences(report))


def _sentences(report: LeakReport) -> Iterator[str]:
    total = sum(facts.samples for facts in report.splits.values())
    yield f"The {total:,} samples of {report.dataset} {_how(report)}: {_sizes(report)}."
    yield _crosses(report)
    for split in (Split.TEST, Split.VALIDATION):
        if split in report.seen and Split.TRAIN in report.splits:
            yield _seen(split, report.seen[split], by_hand=_known(report, "writers"))
            break


def _how(report: LeakReport) -> str:
    if report.split_by == "given":
        return "are split as their source gives it"
    drawn = ", drawn alike in lengths and scripts" if report.stratified else ""
    folds = f" into {report.folds} folds, of which fold {report.fold or 1} tests" if report.folds else ""
    return f"were split by {report.split_by.replace('+', ' and ')}{folds} (seed {report.seed}{drawn})"


def _sizes(report: LeakReport) -> str:
    return ", ".join(
        f"{facts.samples:,} ({facts.share:.1%}{_asked(facts)}{_by(facts)}) {_DONE[split]}"
        for split, facts in report.splits.items()
    )


def _asked(facts: SplitFacts) -> str:
    return "" if facts.asked is None else f", {facts.asked:.1%} asked"


def _by(facts: SplitFacts) -> str:
    if facts.writers:
        return f", {counted(facts.writers, 'writer')}"
    return f", {counted(facts.pages, 'page')}" if facts.pages else ""


def _crosses(report: LeakReport) -> str:
    kinds = [kind for kind in ("writers", "documents", "pages") if _known(report, kind)]
    told = [
        f"{_number(report.crossing[kind].count)} {kind if report.crossing[kind].count != 1 else kind[:-1]}"
        for kind in [*kinds, "texts"]
    ]
    stand = "stands" if len(told) == 1 and told[0].startswith("1 ") else "stand"
    listed = " and ".join(told) if len(told) < 3 else f"{', '.join(told[:-1])} and {told[-1]}"
    missing = [kind for kind in ("writers", "pages") if kind not in kinds]
    unknown = f"; {' and '.join(missing)} are not known" if missing else ""
    return f"{listed[0].upper()}{listed[1:]} {stand} in more than one split{unknown}."


def _known(report: LeakReport, kind: str) -> bool:
    return any(getattr(facts, kind) for facts in report.splits.values())


def _number(count: int) -> str:
    return f"{count:,}" if count else "no"


def _seen(split: Split, seen: Seen, *, by_hand: bool) -> str:
    hands = f", {share(seen.known_hands, seen.samples)} are by a writer of train" if by_hand else ""
    return (
        f"Of the {seen.samples:,} {split} samples {share(seen.same_texts, seen.samples)} have a text that stands in "
        f"train too, {share(seen.near_texts, seen.samples)} but for case and punctuation{hands}; of their words "
        f"{share(seen.unknown_words, seen.words)} are not in train, of their different words "
        f"{share(seen.unknown_forms, seen.forms)}; of their sequences of three words "
        f"{share(seen.known_ngrams, seen.ngrams)} are in train."
    )


def share(part: int, whole: int) -> str:
    """`12 (9.1%)`; of nothing there is no share."""
    return f"{part:,} ({part / whole:.1%})" if whole else "none"


def counted(count: int, noun: str) -> str:
    """`1 writer`, `2 writers`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


Rows = list[list[str]]


def tables(report: LeakReport) -> list[tuple[str, list[str], Rows]]:
    """Title, header and rows of each table: the splits, their texts, what crosses, what has been seen in train."""
    names = list(report.splits)
    facts = [report.splits[split] for split in names]
    counts: Rows = [
        [str(split), f"{of.samples:,}", f"{of.share:.1%}", "" if of.asked is None else f"{of.asked:.1%}"]
        + [f"{count:,}" for count in (of.writers, of.documents, of.pages, of.texts, of.characters)]
        for split, of in zip(names, facts, strict=True)
    ]
    scripts = list(dict.fromkeys(name for of in facts for name in of.scripts))
    texts: Rows = [
        [str(split), *map(str, of.lengths), *(f"{of.scripts.get(script, 0) / of.samples:.1%}" for script in scripts)]
        for split, of in zip(names, facts, strict=True)
    ]
    crosses: Rows = [
        [kind, f"{crossed.count:,}", ", ".join(map(_short, crossed.examples))]
        for kind, crossed in report.crossing.items()
    ]
    lengths = ["shortest", "quarter", "median", "three quarters", "longest"]
    found = [
        (
            "splits",
            ["split", "samples", "share", "asked", "writers", "documents", "pages", "texts", "characters"],
            counts,
        ),
        ("lengths in characters, and scripts", ["split", *lengths, *scripts], texts),
        ("in more than one split", ["kind", "count", "the first"], crosses),
    ]
    if report.seen and Split.TRAIN in report.splits:
        found.append(("seen in train", ["", *map(str, report.seen)], _seen_rows(list(report.seen.values()))))
    return found


def _seen_rows(seen: Sequence[Seen]) -> Rows:
    return [
        ["samples whose text is in train", *(share(of.same_texts, of.samples) for of in seen)],
        ["the same but for case and punctuation", *(share(of.near_texts, of.samples) for of in seen)],
        ["samples by a writer of train", *(share(of.known_hands, of.samples) for of in seen)],
        ["words not in train", *(share(of.unknown_words, of.words) for of in seen)],
        ["different words not in train", *(share(of.unknown_forms, of.forms) for of in seen)],
        ["sequences of three words that are in train", *(share(of.known_ngrams, of.ngrams) for of in seen)],
    ]


def _short(text: str, most: int = 40) -> str:
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def to_markdown(report: LeakReport) -> str:
    """The paragraph and the tables as a page of Markdown, with the hashes of what was counted."""
    parts = [f"# The splits of {report.dataset}", to_quote(report)]
    for title, header, rows in tables(report):
        cells = [header, ["---"] * len(header), *rows]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n{table}")
    hashes = [f"- {split}: `{facts.sha256}`" for split, facts in report.splits.items() if facts.sha256]
    if hashes:
        parts.append("## SHA-256 of metadata and images\n\n" + "\n".join(hashes))
    return "\n\n".join(parts) + "\n"
