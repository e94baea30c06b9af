"""Follow the configuration of a training run, and the run that is evaluated, through the modules.

    python tools/trace_way.py DATASET RUN

A module is on the way if one of its functions is given the subject: the configuration or the job made of it, the run
or its folder. A climb is a call with the subject into a part that comes later in the order of imports in
docs/design.md than the caller's; the same pair of modules counts once.
"""

import re
import sys
from collections.abc import Callable
from inspect import getargvalues
from pathlib import Path
from types import FrameType
from typing import Any

import dsocr

_SOURCE = Path(dsocr.__file__).parent
_SUBJECTS = {"train": {"RunConfig", "Job"}, "evaluate": {"Run", "RunFolder", "EvaluateOptions"}}


def ranks() -> dict[str, int]:
    """Return the place of each part in the order of imports."""
    design = (Path(__file__).parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    order = re.search(r"```\n(errors \| .*?)\n```", design, re.DOTALL)
    assert order is not None
    return {part: rank for rank, parts in enumerate(order[1].split("|")) for part in re.findall(r"\w+", parts)}


def module_of(frame: FrameType | None) -> str | None:
    """Return the module of a call, or of the nearest caller that is ours; nothing while a module is imported."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_SOURCE):
            return None if frame.f_code.co_name == "<module>" else path.relative_to(_SOURCE).with_suffix("").as_posix()
        frame = frame.f_back
    return None


class Way:
    """The modules that were given a subject, in this order, and the pairs of modules between which it climbed."""

    def __init__(self, subjects: set[str]) -> None:
        self.modules: dict[str, None] = {}
        self.climbs: dict[tuple[str, str], None] = {}
        self._subjects = subjects
        self._ranks = ranks()

    def follow(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call with a subject; a function for `sys.setprofile`."""
        if event != "call" or not Path(frame.f_code.co_filename).is_relative_to(_SOURCE):
            return
        given = getargvalues(frame)
        if not any(type(given.locals[name]).__name__ in self._subjects for name in given.args if name in given.locals):
            return
        callee, caller = module_of(frame), module_of(frame.f_back)
        if callee is not None:
            self.modules[callee] = None
            if caller is not None and self._rank(callee) > self._rank(caller):
                self.climbs[caller, callee] = None

    def _rank(self, module: str) -> int:
        return self._ranks[module.split("/")[0].removesuffix("__init__") or "cli"]


def main(dataset: str, output: str) -> None:
    """Train for a step and evaluate, and print both ways."""
    jobs: dict[str, Callable[[], Any]] = {
        "train": lambda: dsocr.train(
            base="small", dataset=dataset, output=output, overwrite=True, preflight=False, max_steps=1, max_samples=16
        ),
        "evaluate": lambda: dsocr.evaluate(output, limit=4),
    }
    for name, job in jobs.items():
        way = Way(_SUBJECTS[name])
        sys.setprofile(way.follow)
        try:
            job()
        finally:
            sys.setprofile(None)
        print(f"{name}: {len(way.modules)} modules, {len(way.climbs)} climbs")
        print("  " + ", ".join(way.modules))
        print("  " + ", ".join(f"{caller} -> {callee}" for caller, callee in way.climbs))


if __name__ == "__main__":
    main(*sys.argv[1:])
