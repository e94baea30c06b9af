"""What `dsocr transcribe` takes on pages with ALTO beside what onnxruntime alone takes to read the same lines.

    python benchmarks/onnx_reading.py data/copiste PP-OCRv6_rec_small.onnx --rounds 3

The folder has `alto/` and `jpg/`; the ONNX file is PP-OCRv6 small as published. Both start anew in every round, in
turn, with the same number of threads, so ratios count: medians over rounds. The script with onnxruntime cuts each line
by its box, draws it `--stretch` times as wide as it is, as `small` does, and takes the likeliest classes; it has no
journal, no confidences, no language model and writes nothing.
"""

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from measuring import table_line, watch

WIDTHS = [26, 10, 12, 8]


def read_with_onnx(pages: Path, weights: Path, stretch: float, threads: int) -> None:
    """Read all lines of the pages, one at a time; print how many."""
    import numpy as np

    onnxruntime = import_module("onnxruntime")
    from PIL import Image

    from dsocr.formats.xml import parse_xml

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
    (name,) = (each.name for each in session.get_inputs())
    lines = 0
    for file in sorted((pages / "alto").glob("*.xml")):
        with Image.open(next((pages / "jpg").glob(f"{file.stem}.*"))) as image:
            page = image.convert("RGB")
        for line in parse_xml(file).iterfind(".//{*}TextLine"):
            left, top, width, height = (int(float(line.get(key, "0"))) for key in ("HPOS", "VPOS", "WIDTH", "HEIGHT"))
            if width < 2 or height < 2:
                continue
            size = max(8, round(width * 48 / height * stretch)), 48
            drawn = page.crop((left, top, left + width, top + height)).resize(size, Image.Resampling.BILINEAR)
            pixels = np.asarray(drawn)[:, :, ::-1].transpose(2, 0, 1)[None].astype(np.float32) / 127.5 - 1
            session.run(None, {name: pixels})[0].argmax(-1)
            lines += 1
    print(lines)


def main() -> None:
    """Read in turn and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--reader", default="small")
    parser.add_argument("--stretch", type=float, default=1.4)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only-onnx", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only_onnx:
        read_with_onnx(options.pages, options.weights, options.stretch, options.threads)
        return
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    onnx = [sys.executable, __file__, "--only-onnx", "--stretch", str(options.stretch)]
    onnx += ["--threads", str(options.threads), str(options.pages), str(options.weights)]
    rounds: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(options.rounds):
        with TemporaryDirectory() as place:
            output = str(Path(place) / "out")
            ours = [sys.executable, "-m", "dsocr", "transcribe", options.reader, str(options.pages), "--replace"]
            _, mine = watch([*ours, "-o", output, "--json"])
        printed, theirs = watch(onnx)
        rounds.append((mine, theirs))
        print(
            f"round {number + 1}: {printed.strip()} lines, clock {mine['seconds'] / theirs['seconds']:.2f}", flush=True
        )
    print(table_line(["reading", "seconds", "CPU seconds", "GB"], WIDTHS))
    for name, column in (("dsocr transcribe", 0), ("onnxruntime", 1)):
        seconds, cpu, memory = (median(pair[column][key] for pair in rounds) for key in ("seconds", "cpu", "uss"))
        print(table_line([name, f"{seconds:.1f}", f"{cpu:.1f}", f"{memory / 1e9:.2f}"], WIDTHS))
    for key, name in (("seconds", "clock"), ("cpu", "processor time")):
        ratios = [mine[key] / theirs[key] for mine, theirs in rounds]
        print(f"{name}: {median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
