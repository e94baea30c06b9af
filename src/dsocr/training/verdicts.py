"""What a preflight hands back: for each check its verdict, a sentence, and what to do."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["ok", "warning", "refused"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `details` are lines to look at, `fix` is empty where nothing is to be done."""

    name: str
    verdict: Verdict
    message: str
    fix: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Preflight:
    """All checks in their order; a check that a refusal made impossible is not among them."""

    checks: Sequence[Check]

    @property
    def refused(self) -> list[Check]:
        """Those because of which training would be in vain."""
        return [check for check in self.checks if check.verdict == "refused"]

    def as_dict(self) -> dict[str, Any]:
        """The checks for programs, and under `refused` the names of those that refuse."""
        return {"refused": [check.name for check in self.refused], "checks": [asdict(check) for check in self.checks]}
