"""Count lines and tokens of source and tests, and fail above the numbers in `[tool.dsocr.size]` of pyproject.toml.

The numbers may only fall: a feature takes its lines from elsewhere. Tokens are those of Python's tokenizer without
comments and line ends, so packing lines saves nothing.

    python tools/size.py             # what `make check` runs
    python tools/size.py --lower     # write today's numbers where they are smaller
"""

import argparse
import re
import sys
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
_UNCOUNTED = {
    tokenize.ENCODING,
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def count(folder: Path) -> tuple[int, int]:
    """Return the lines and the tokens of the Python files below a folder."""
    lines = tokens = 0
    for path in folder.rglob("*.py"):
        lines += len(path.read_text(encoding="utf-8").splitlines())
        with path.open("rb") as file:
            tokens += sum(token.type not in _UNCOUNTED for token in tokenize.tokenize(file.readline))
    return lines, tokens


def compare(limits: dict[str, int], counts: dict[str, int]) -> list[str]:
    """Return a sentence for each count above its limit."""
    return [
        f"{name.replace('-', ' ')}: {counts[name]:,} are more than the {limit:,} allowed in pyproject.toml; "
        "take as many out elsewhere"
        for name, limit in limits.items()
        if counts[name] > limit
    ]


def main() -> None:
    """Print the counts; exit with 1 if one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", action="store_true", help="write smaller numbers into pyproject.toml")
    lower = parser.parse_args().lower
    counts = {}
    for folder in ("src", "tests"):
        counts[f"{folder}-lines"], counts[f"{folder}-tokens"] = count(ROOT / folder)
        print(f"{folder}: {counts[f'{folder}-lines']:,} lines, {counts[f'{folder}-tokens']:,} tokens")
    project = ROOT / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    limits = tomllib.loads(text)["tool"]["dsocr"]["size"]
    if lower:
        for name, limit in limits.items():
            text = re.sub(rf"^{name} = {limit}$", f"{name} = {min(limit, counts[name])}", text, flags=re.MULTILINE)
        project.write_text(text, encoding="utf-8")
    if faults := compare(limits, counts):
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
