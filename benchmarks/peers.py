"""Compare programs on the same lines in one run: CER with its interval, time and memory.

    python benchmarks/peers.py data/copiste small nano runs/copiste
    python benchmarks/peers.py data/copiste small --kraken ~/kraken/bin --minutes 10

Readers are names of bases and run folders; `NAME@RESOLUTION` reads a base at another resolution. `--kraken` names the
folder with the commands `kraken` and `ketos`: a model is trained from nothing on the training lines for `--minutes`.
Each reads in a process of its own; seconds include its start.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.evaluation.scores import ReadText, Score, score_lines
from runner import Table, make_parser, parse, record, watch


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
    """Write each line as PNG with its text beside it, as kraken reads them; return the files by id."""
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
    options = f"--workers 0 --threads {os.cpu_count()} train -f path -B 8 --augment --freq 0.25"
    command = [str(commands / "ketos"), *options.split(), *files]
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
    used = watch([str(commands / "kraken"), *pairs, "ocr", "-s", "-m", str(model)])
    outputs = {name: file.with_suffix(".out") for name, file in files.items()}
    return {name: out.read_text("utf-8").strip() if out.is_file() else "" for name, out in outputs.items()}, used


def main() -> None:
    """Read with each program and print a row for each."""
    parser = make_parser(__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("readers", nargs="*")
    parser.add_argument("--split", default="test")
    parser.add_argument("--kraken", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--read-one", nargs=2, metavar=("READER", "OUTPUT"), help=argparse.SUPPRESS)
    options = parse(parser)
    if options.read_one:
        read_with_dsocr(options.read_one[0], options.dataset, options.split, Path(options.read_one[1]))
        return
    dataset = Dataset.open(options.dataset)
    samples = dataset.samples(Split(options.split))
    table = Table("reader", "CER (95 % interval)", "WER", "seconds", "GB")

    def show(name: str, texts: Mapping[str, str], used: Mapping[str, float]) -> None:
        lines = score_lines(samples, {sample.id: ReadText(texts.get(sample.id, "")) for sample in samples})
        score = Score.compute(lines, intervals=True)
        cer = f"{score.cer.rate:.2%} {score.interval}"
        table.row(name, cer, f"{score.wer.rate:.1%}", f"{used['seconds']:.1f}", f"{used['uss'] / 1e9:.2f}")

    with TemporaryDirectory() as place:
        folder = Path(place)
        for number, reader in enumerate(options.readers):
            output = folder / f"{number}.json"
            mine = [str(options.dataset), "--split", options.split, "--read-one", reader, str(output)]
            used = watch([sys.executable, __file__, *mine])
            show(reader, json.loads(output.read_text(encoding="utf-8")), used)
        if options.kraken:
            files = export_lines(samples, folder / "lines")
            train, validation = dataset.samples(Split.TRAIN), dataset.samples(Split.VALIDATION)
            model = train_kraken(options.kraken, train, validation, folder / "kraken", options.minutes)
            show(f"kraken, {options.minutes:g} minutes", *read_with_kraken(options.kraken, model, files))
    record(options, table.rows)


if __name__ == "__main__":
    main()
