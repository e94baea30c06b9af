"""Make the detector of lines that ships with dsocr: gather the pages that taught it, and write its weights.

    python tools/draw_registers.py drawn --count 50 --seed 11001
    python tools/pretrain_detector.py gather COLLECTIONS drawn pages
    dsocr prepare pages -o data --unit layout --split 0.94/0.06/0 --split-by page --fixed pages.tsv
    dsocr train data --set base=detector --set training.max_steps=1600 --set output=RUN
    python tools/pretrain_detector.py write RUN src/dsocr/models/detector --share 0.75

COLLECTIONS holds clones of the repositories that `src/dsocr/models/detector/README.md` names; `detector_pages.txt`
lists their pages and those drawn, with their splits. The start of the training is what `tools/convert_detector.py`
makes, so put that in its place first.
"""

import argparse
import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import torch
from safetensors.torch import save

import dsocr
from dsocr.io.files import safe_stem
from dsocr.layout.detector_network import load_detector
from dsocr.models.base_folder import SINGLE
from dsocr.runs import RunFolder

PAGES = Path(__file__).with_name("detector_pages.txt")
IMAGE_NAMED = re.compile(r'imageFilename="([^"]+)"|<fileName>([^<]+)</fileName>')
CONVERTED = "page"
"""Folder of the pages that are PAGE XML in their repositories, and of those drawn."""
SUFFIXES = (".jpg", ".png", ".jpeg", ".JPG", ".tif")


def image_of(file: Path) -> Path:
    """The image of a transcription: of the same name, or the one that it names, beside it or in a folder near it."""
    named = IMAGE_NAMED.search(file.read_text(encoding="utf-8")[:5000])
    names = [file.stem + suffix for suffix in SUFFIXES]
    names += [Path(named[1] or named[2]).name] if named else []
    folders = (file.parent, file.parent.parent, file.parent.parent / "images", file.parent.parent / "img")
    return next(folder / name for folder in folders for name in names if (folder / name).is_file())


def gather(collections: Path, drawn: Path, out: Path) -> None:
    """Copy the listed pages, each repository into a folder of its own, all as ALTO, and write their splits beside."""
    splits: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as held:
        others = Path(held)
        for row in PAGES.read_text(encoding="utf-8").splitlines():
            split, name = row.split("\t")
            file = drawn / Path(name).name if name.startswith("drawn/") else collections / name
            is_alto = "<alto" in file.read_text(encoding="utf-8")[:5000]
            of = name.split("/")[0] if is_alto else CONVERTED
            folder = out / of if is_alto else others
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, folder)
            shutil.copy(image_of(file), folder)
            splits.append((of, file.stem if is_alto else safe_stem(file.stem), split))
        dsocr.convert(others, out / CONVERTED, to="alto")
    names = Counter(stem for _, stem, _ in splits)
    rows = (f"{of}/{stem}\t{split}\n" if names[stem] > 1 else f"{stem}\t{split}\n" for of, stem, split in splits)
    out.with_suffix(".tsv").write_text("".join(rows), encoding="utf-8")


def write(run: Path, folder: Path, share: float) -> None:
    """Blend what a run learnt, `share` of it, with the weights of a folder, and write them there as 16-bit numbers."""
    learnt, start = (load_detector(path).state_dict() for path in (RunFolder.to_find_lines_with(run), folder))
    tensors = {
        name: torch.lerp(start[name], tensor, share).to(torch.float16).contiguous()
        for name, tensor in learnt.items()
        if tensor.is_floating_point()
    }
    (folder / SINGLE).write_bytes(save(tensors, metadata={"format": "pt"}))


def main() -> None:
    """Gather pages or write weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    gathering = modes.add_parser("gather")
    for argument in ("collections", "drawn", "out"):
        gathering.add_argument(argument, type=Path)
    writing = modes.add_parser("write")
    writing.add_argument("run", type=Path)
    writing.add_argument("folder", type=Path)
    writing.add_argument("--share", type=float, default=1.0)
    options = parser.parse_args()
    if options.mode == "gather":
        gather(options.collections, options.drawn, options.out)
    else:
        write(options.run, options.folder, options.share)


if __name__ == "__main__":
    main()
