"""Memory that is freed and kept."""

import subprocess
import sys

import pytest

from dsocr.training.allocation import keep_freed_memory

COUNT = """
import resource, sys
from dsocr.training.allocation import keep_freed_memory
if sys.argv[1] == "kept" and not keep_freed_memory():
    sys.exit("not glibc")
def touched():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        bytearray(40_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
touched()
print(touched())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems are left as they are")
def test_what_was_freed_is_not_asked_of_the_system_again() -> None:
    def pages(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=False)
        if "not glibc" in done.stderr:
            pytest.skip("the C library is not glibc")
        return int(done.stdout)

    assert pages("kept") * 100 < pages("given back")


def test_elsewhere_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False
