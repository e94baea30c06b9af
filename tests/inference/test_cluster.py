"""Reading on a cluster: the same bytes as without one, whoever dies; what an actor answers needs no Ray to be seen.

Ray is no part of the development extra, as it is 80 MB to fetch: with `pip install "dsocr-hw[ray]"` all is tested.
"""

import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dsocr.errors import RunError
from dsocr.inference.confidence import Prediction
from dsocr.inference.engines import TORCH, Actor, Attempts, RemoteEngine, choose_engine, plan_actors, rows_of
from dsocr.inference.inputs import InputPage, PagePreparer, find_pages
from dsocr.inference.pages import ImageReader, Rows, read_locally
from dsocr.inference.transcribe import TranscribeReport
from dsocr.runs import RunFolder
from tests.inference.reading_pages import Fails, Hashes, draw_job, files, find_bars, transcribe
from tests.making_models import make_run
from tests.raising import raises_code

PAGES = 13
FORMATS = ["alto", "jsonl", "pdf"]
OPENING = PagePreparer("line", find_bars)


class Dies(Hashes):
    """ImageReader like Hashes, but its process is gone when it sees a line of p07, until that was so `times`."""

    def __init__(self, deaths: Path, times: int) -> None:
        super().__init__()
        self.deaths, self.times = deaths, times

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        for prediction in super().read(images):
            if prediction.id.startswith("p07"):
                died = len(self.deaths.read_bytes()) if self.deaths.exists() else 0
                if died < self.times:
                    with self.deaths.open("ab") as file:
                        file.write(b"x")
                    time.sleep(2)  # until what was read before has arrived
                    os.kill(os.getpid(), signal.SIGTERM if os.name == "nt" else signal.SIGKILL)
            yield prediction


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    return draw_job(tmp_path, monkeypatch, PAGES)


@pytest.fixture
def pages(run: RunFolder, tmp_path: Path) -> list[InputPage]:
    with find_pages([tmp_path / "in"], tmp_path / "unpacked") as found:
        return found.pages


def make_actor(groups: list[list[InputPage]], open_reader: Callable[[], ImageReader], **settings: Any) -> Actor:
    attempts = Attempts()
    defaults = {"preparer": OPENING, "strict": False, "start": attempts.start, "finish": attempts.finish}
    return Actor(groups=groups, open_reader=open_reader, **{**defaults, **settings})


def answered(pages: list[InputPage], reader: ImageReader, **settings: Any) -> Rows:
    """What an actor makes of the pages, as the process that asked it sees it."""
    (answer,) = make_actor([[], pages], lambda: reader, **settings)({"group": [1]})["answer"]
    return rows_of(json.loads(answer))


def test_an_actor_gives_the_same_predictions_as_local_reading(pages: list[InputPage]) -> None:
    (here,) = read_locally([pages], OPENING, Hashes, strict=False)
    assert json.dumps(answered(pages, Hashes())) == json.dumps(here)
    assert sum("failed" in row for _, row in here) == 1


def test_an_actor_loads_its_model_once(pages: list[InputPage]) -> None:
    loaded: list[int] = []

    def open_reader() -> ImageReader:
        loaded.append(1)
        return Hashes()

    actor = make_actor([pages[:2], pages[2:4]], open_reader)
    assert loaded == []
    for place in (0, 1):
        rows_of(json.loads(actor({"group": [place]})["answer"][0]))
    assert loaded == [1]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(RunError("no", code="run-missing", where="here", hint="do this"), id="one of ours"),
        pytest.param(MemoryError(platform.node()), id="no memory"),
        pytest.param(RuntimeError("a bug"), id="a bug"),
    ],
)
def test_errors_keep_their_type_across_processes(pages: list[InputPage], error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        answered(pages, Fails(0, error))
    assert str(caught.value) == str(error)
    assert getattr(caught.value, "hint", None) == getattr(error, "hint", None)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        pytest.param({"version": "0.0.1"}, "cluster-failed", id="another version"),
        pytest.param({"start": lambda _: 4}, "cluster-failed", id="pages that kill"),
    ],
)
def test_a_machine_that_cannot_read_says_so(settings: dict[str, Any], code: str, pages: list[InputPage]) -> None:
    with raises_code(code):
        answered(pages, Hashes(), **settings)
    with raises_code("cluster-failed"):
        answered([replace(page, path=page.path.parent / "elsewhere" / page.path.name) for page in pages], Hashes())


def test_pages_that_were_read_are_not_to_blame_for_a_death() -> None:
    attempts = Attempts()
    assert [attempts.start(0), attempts.start(0), attempts.start(1)] == [1, 2, 1]
    attempts.finish(0)
    assert attempts.start(0) == 1


@pytest.mark.parametrize(
    ("engine", "code"),
    [
        pytest.param("spark", "engine-address", id="unknown"),
        pytest.param("ray:0", "engine-address", id="nobody"),
        pytest.param("ray:4", "package-missing", id="no Ray"),
    ],
)
def test_engines_that_cannot_be(engine: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with raises_code(code):
        choose_engine(engine, "mine")
    assert choose_engine("http://here/v1", "mine") == RemoteEngine("http://here/v1", "mine")
    assert choose_engine(None, "mine") is None
    assert choose_engine("torch", "mine") == TORCH


@pytest.mark.parametrize(
    ("machines", "asked", "actors", "needs"),
    [
        pytest.param([(8, 0)], None, 1, {"num_cpus": 8}, id="one machine, all of its processors"),
        pytest.param([(8, 0)], 3, 3, {"num_cpus": 2}, id="shared by three"),
        pytest.param([(8, 0), (4, 0)], None, 2, {"num_cpus": 4}, id="what the smaller of two machines has"),
        pytest.param([(8, 2), (8, 0)], None, 2, {"num_cpus": 1, "num_gpus": 1}, id="one a graphics card"),
        pytest.param([(8, 2)], 3, 3, {"num_cpus": 1, "num_gpus": 0.5}, id="never more on a card than it has room for"),
        pytest.param([(8, 2)], 1, 1, {"num_cpus": 1, "num_gpus": 1}, id="fewer than cards"),
    ],
)
def test_actors_share_the_machines(
    machines: list[tuple[int, int]], asked: int | None, actors: int, needs: dict[str, float]
) -> None:
    resources = [{"CPU": float(cpus), "GPU": float(cards)} for cpus, cards in machines]
    assert plan_actors(resources, asked) == (actors, needs)
    with raises_code("cluster-actors"):
        plan_actors(resources, 99)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray on two processors; starting it takes seconds, so all tests share it."""
    pytest.importorskip("ray", reason='Ray is not installed: pip install "dsocr-hw[ray]"')
    choose_engine("ray", "")
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield ray
    ray.shutdown()


def read(run: RunFolder, out: str, reader: ImageReader, **options: Any) -> TranscribeReport:
    folder = run.path.parent
    return transcribe(run, [folder / "in"], folder / out, format=FORMATS, reader=reader, **options)


@pytest.mark.usefixtures("ray")
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_writes_the_same_bytes(run: RunFolder, tmp_path: Path) -> None:
    observed: list[tuple[int, int]] = []
    report = read(run, "out", Hashes(), engine="ray:2", progress=lambda *now: observed.append(now))
    calm = read(run, "calm", Hashes())
    assert files(tmp_path / "out") == files(tmp_path / "calm")
    assert replace(report, out=calm.out) == calm
    assert sorted(observed) == observed
    assert observed[-1] == (PAGES, PAGES)


@pytest.mark.usefixtures("ray")
@pytest.mark.filterwarnings("ignore")
def test_an_actor_that_dies_is_begun_anew_and_its_pages_with_it(run: RunFolder, tmp_path: Path) -> None:
    read(run, "out", Dies(tmp_path / "deaths", 1), engine="ray:2")
    read(run, "calm", Hashes())
    assert (tmp_path / "deaths").read_bytes() == b"x"
    assert files(tmp_path / "out") == files(tmp_path / "calm")


@pytest.mark.usefixtures("ray")
@pytest.mark.filterwarnings("ignore")
def test_pages_that_kill_every_actor_end_the_job_which_resumes_without_a_cluster(
    run: RunFolder, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=r"p05.png, p06.png, p07.png and 1 more: 3 processes died"):
        read(run, "out", Dies(tmp_path / "deaths", 9), engine="ray:1")
    report = read(run, "out", Hashes())
    assert report.resumed >= 4
    read(run, "calm", Hashes())
    assert files(tmp_path / "out") == files(tmp_path / "calm")


@pytest.mark.usefixtures("ray")
@pytest.mark.filterwarnings("ignore")
def test_each_actor_reads_with_the_run_s_own_model(run: RunFolder, tmp_path: Path) -> None:
    trained = make_run(tmp_path / "trained", "nano")
    for out, engine in (("out", "ray:2"), ("calm", None)):
        transcribe(trained, [tmp_path / "in"], tmp_path / out, format=["text", "page"], engine=engine)
    assert files(tmp_path / "out") == files(tmp_path / "calm")
    assert (tmp_path / "out" / "p00.txt").read_text(encoding="utf-8").strip()
