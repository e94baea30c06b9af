"""What several programs read of the same lines, one after the other in one run: CER with its interval, time and memory.

    python benchmarks/peers.py data/copiste small nano runs/copiste
    python benchmarks/peers.py data/copiste small --kraken ~/kraken/bin --minutes 10 --tesseract rus+fra+eng

Readers are names of bases and run folders; `NAME@RESOLUTION` reads a base at another resolution. `--kraken` names the
folder with the commands `kraken` and `ketos`: a model is trained from nothing on the training lines for `--minutes`.
`--tesseract` needs the program and the languages. Each reads in a process of its own; seconds include its start.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.evaluation.scores import Score, score_lines
from dsocr.inference.prediction_files import MatchedText
from measuring import table_line, watch

WIDTHS = [28, 34, 8, 10, 8]


def read_with_dsocr(name: str, dataset: Path, split: str, output: Path) -> None:
    """Read the split with a base or a run, in this process."""
    from dataclasses import replace

    from dsocr.images import open_image
    from dsocr.inference.reader import LocalReader
    from dsocr.models.generation import Generation
    from dsocr.models.loading import load_base
    from dsocr.runs import RunFolder
    from dsocr.text import TextPolicy

    samples = Dataset.open(dataset).samples(Split(split))
    if Path(name).is_dir() and RunFolder(Path(name)).config.is_file():
        reader = LocalReader.of_run(RunFolder.open(Path(name)))
    else:
        base, _, resolution = name.partition("@")
        loaded = load_base(base)
        processor = loaded.processor(resolution or None, "free_ocr")
        reader = LocalReader(loaded.network, processor, replace(Generation(), batch_size=8), TextPolicy())
    read = reader.read((sample.id, open_image(sample.image)) for sample in samples)
    output.write_text(json.dumps({one.id: one.text for one in read}, ensure_ascii=False), encoding="utf-8")


def export_lines(samples: Sequence[Sample], folder: Path) -> dict[str, Path]:
    """Write each line as PNG with its text beside it, as kraken and tesseract read them; return the files by id."""
    folder.mkdir(parents=True)
    files = {}
    for number, sample in enumerate(samples):
        assert isinstance(sample.image, Path), "prepare the dataset with --store files"
        files[sample.id] = folder / f"{number:05}.png"
        with Image.open(sample.image) as image:
            image.convert("L").save(files[sample.id])
        (folder / f"{number:05}.gt.txt").write_text(sample.text, encoding="utf-8")
    return files


def run_for(command: Sequence[str], seconds: float, log: Path) -> None:
    """Run a command and end it politely after so many seconds."""
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # upon which kraken saves a checkpoint, unless a shell ignores it
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def train_kraken(
    commands: Path, train: Sequence[Sample], validation: Sequence[Sample], folder: Path, minutes: float
) -> Path:
    """Train a kraken model from nothing for some minutes; return its best weights."""
    export_lines(train, folder / "train")
    export_lines(validation, folder / "validation")
    for name in ("train", "validation"):
        listed = "\n".join(str(file) for file in sorted((folder / name).glob("*.png")))
        (folder / f"{name}.txt").write_text(listed, encoding="utf-8")
    files = ["-t", str(folder / "train.txt"), "-e", str(folder / "validation.txt"), "-o", str(folder / "model")]
    threads = str(os.cpu_count())
    command = [
        str(commands / "ketos"),
        "--workers",
        "0",
        "--threads",
        threads,
        "train",
        "-f",
        "path",
        "-B",
        "8",
        "--augment",
        "--freq",
        "0.25",
        *files,
    ]
    run_for(command, 60 * minutes, folder / "ketos.log")
    # The best of the checkpoints named by their accuracy, the last of equal ones, else what an interruption saved.
    accuracy = re.compile(r"checkpoint_\d+-([\d.]+)(?:-v\d+)?\.ckpt")
    ranked = [
        (float(match[1]), file.stat().st_mtime, file)
        for file in (folder / "model").iterdir()
        if (match := accuracy.fullmatch(file.name))
    ]
    named = [file for *_, file in sorted(ranked)]
    if not (found := [*(folder / "model").rglob("checkpoint_abort.ckpt"), *named]):
        sys.exit(f"kraken saved no checkpoint in {minutes} minutes: {folder / 'ketos.log'}")
    weights = folder / "weights.safetensors"
    subprocess.run([str(commands / "ketos"), "convert", "-o", str(weights), str(found[-1])], check=True)
    return next(iter(folder.glob("weights*.safetensors")))


def read_with_kraken(commands: Path, model: Path, files: Mapping[str, Path]) -> tuple[dict[str, str], dict[str, float]]:
    """Read exported lines with a kraken model."""
    pairs = [word for file in files.values() for word in ("-i", str(file), str(file.with_suffix(".out")))]
    _, used = watch([str(commands / "kraken"), *pairs, "ocr", "-s", "-m", str(model)])
    return {name: _text_of(file.with_suffix(".out")) for name, file in files.items()}, used


def read_with_tesseract(languages: str, files: Mapping[str, Path]) -> tuple[dict[str, str], dict[str, float]]:
    """Read exported lines with tesseract, as single lines."""
    listed = next(iter(files.values())).with_name("files.txt")
    listed.write_text("\n".join(map(str, files.values())), encoding="utf-8")
    command = ["tesseract", str(listed), str(listed.with_name("all")), "--psm", "7", "-l", languages]
    _, used = watch(command)
    pages = _text_of(listed.with_name("all.txt")).split("\f")
    return {name: page.strip() for name, page in zip(files, pages, strict=False)}, used


def _text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def main() -> None:
    """Read with each program and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("readers", nargs="*")
    parser.add_argument("--split", default="test")
    parser.add_argument("--kraken", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--tesseract", metavar="LANGUAGES")
    parser.add_argument("--read-one", nargs=2, metavar=("READER", "OUTPUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read_one:
        read_with_dsocr(options.read_one[0], options.dataset, options.split, Path(options.read_one[1]))
        return
    dataset = Dataset.open(options.dataset)
    samples = dataset.samples(Split(options.split))
    print(table_line(["reader", "CER (95 % interval)", "WER", "seconds", "GB"], WIDTHS))

    def show(name: str, texts: Mapping[str, str], used: Mapping[str, float]) -> None:
        lines = score_lines(samples, {one.id: MatchedText(texts.get(one.id, "")) for one in samples})
        score = Score.compute(lines, intervals=True)
        cells = [name, f"{score.cer.rate:.2%} {score.interval}", f"{score.wer.rate:.1%}"]
        print(table_line([*cells, f"{used['seconds']:.1f}", f"{used['uss'] / 1e9:.2f}"], WIDTHS), flush=True)

    with TemporaryDirectory() as place:
        folder = Path(place)
        for number, reader in enumerate(options.readers):
            output = folder / f"{number}.json"
            mine = [str(options.dataset), "--split", options.split, "--read-one", reader, str(output)]
            _, used = watch([sys.executable, __file__, *mine])
            show(reader, json.loads(output.read_text(encoding="utf-8")), used)
        if options.kraken or options.tesseract:
            files = export_lines(samples, folder / "lines")
        if options.kraken:
            train, validation = dataset.samples(Split.TRAIN), dataset.samples(Split.VALIDATION)
            model = train_kraken(options.kraken, train, validation, folder / "kraken", options.minutes)
            show(f"kraken, {options.minutes:g} minutes", *read_with_kraken(options.kraken, model, files))
        if options.tesseract and shutil.which("tesseract"):
            show("tesseract", *read_with_tesseract(options.tesseract, files))


if __name__ == "__main__":
    main()
