"""A project that uses dsocr as a typed library; `make check` type-checks it, and nothing runs it."""

from pathlib import Path

import dsocr


def read_archive(scans: str, work: Path) -> float:
    """Use every function as a reader of the docs would."""
    dataset: dsocr.Dataset = dsocr.prepare(scans, work / "data", writer=r"(\w+?)_\d+", split_by="writer")
    findings: dsocr.Findings = dsocr.check(work / "data").findings
    if findings:
        findings.to_html(work / "findings.html")
    recipe: dsocr.RunConfigKeys = {"base": "nano", "max_steps": 100, "adapter": {"r": 16}, "output": work / "run"}
    run: dsocr.Run = dsocr.train(dataset=dataset, **recipe)
    card: dsocr.Scorecard = run.evaluate(split="test")
    low, high = card.interval or (0.0, 1.0)
    reader: dsocr.Reader = dsocr.load(work / "run")
    text: str = reader.read("line.png").text
    texts: list[str] = [prediction.text for prediction in reader.read([work / "a.png", "b.png"])]
    lines: int = reader.transcribe([work / "scans"], work / "out", format="page").lines
    dsocr.export(run, work / "export", form="vllm")
    best = dsocr.compare(run, "other=predictions.tsv", split="test").to_dict()
    config: dsocr.RunConfig = dsocr.load_config(work / "mine.yaml", changes={"training.max_steps": 5})
    dsocr.train(config, overwrite=True, changes={"training.batch_size": 8})
    try:
        dsocr.transcribe(run, work / "scans", work / "texts.txt", overwrite=True)
    except dsocr.DataError as error:
        raise SystemExit(f"{error.code}: {error.hint}, {best}, {lines}") from error
    return card.cer + dsocr.cer(texts, [text]) + dsocr.wer(["a b"], ["a c"]) + high - low


def misspell(run: dsocr.Run) -> None:
    """Make typos; strict mypy reports an `ignore` that hides no error, so each of them must be found."""
    dsocr.trian(dataset="data")  # type: ignore[attr-defined]
    dsocr.train(dataset="data", max_stpes=100)  # type: ignore[call-arg]
    dsocr.transcribe(run, "scans", "out", formt="page")  # type: ignore[call-arg]
    run.evaluate(split="tset")  # type: ignore[arg-type]
    run.reader().transcribe("scans", "out", over_write=True)  # type: ignore[call-arg]
