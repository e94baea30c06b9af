"""Build the wheel and write `dist/dsocr-hw-VERSION.zip`, which people unpack and start without a terminal.

python tools/release.py
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FILES = ("LICENSE", "Start.cmd", "constraints.txt", "start.sh")
_TIME = (2020, 2, 2, 0, 0, 0)
"""The time that hatchling gives to the files of a wheel."""


def pack(wheel: Path, out: Path) -> Path:
    """Write the archive of a wheel into a folder; the same files give the same bytes."""
    folder = "-".join(wheel.name.split("-")[:2]).replace("_", "-")
    contents = {path.name: path.read_bytes() for path in (wheel, *(ROOT / name for name in _FILES))}
    for path in (ROOT / "tools" / "release_texts").glob("*.txt"):
        # Notepad of older Windows needs the mark and CRLF.
        contents[path.name] = path.read_text(encoding="utf-8").replace("\n", "\r\n").encode("utf-8-sig")
    archive_path = out / f"{folder}.zip"
    with zipfile.ZipFile(archive_path, "w") as archive:  # stored: another zlib would give other bytes
        for name, data in sorted(contents.items()):
            entry = zipfile.ZipInfo(f"{folder}/{name}", _TIME)
            entry.create_system = 3  # Unix, whose modes are kept
            entry.external_attr = (0o100755 if name == "start.sh" else 0o100644) << 16
            archive.writestr(entry, data)
    return archive_path


def main() -> None:
    """Build the wheel and pack it."""
    out = ROOT / "dist"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603
        (wheel,) = Path(folder).iterdir()
        print(pack(wheel, out))


if __name__ == "__main__":
    main()
