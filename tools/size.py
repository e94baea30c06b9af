"""Print how large the project is: lines and modules of source and tests."""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def count(folder: str) -> tuple[int, int]:
    """Return the lines and the number of Python files below a folder of the project."""
    files = sorted((ROOT / folder).rglob("*.py"))
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files), len(files)


def main() -> None:
    """Print one line for the source and one for the tests."""
    for folder in ("src", "tests"):
        lines, files = count(folder)
        print(f"{folder}: {lines:,} lines in {files} modules")


if __name__ == "__main__":
    main()
