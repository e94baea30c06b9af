"""What the command line prints, and how progress looks where no bar can be drawn."""

import pytest

from dsocr.console import Printer, format_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (61, "1 min 01 s"), (3 * 3600 + 300, "3 h 05 min"), (-2, "0 s")],
)
def test_durations_are_formatted_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_progress_without_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates count neither the loading before the first report nor what was done before it."""
    clock = iter([600.0, 605.0, 610.0, 620.0])
    monkeypatch.setattr("dsocr.console.time.monotonic", lambda: next(clock))
    with Printer(command_line=True).progress("reading", "lines") as progress:
        progress(1001, 1100)  # after ten minutes of loading; a thousand lines were read yesterday
        progress(1004, 1100)
        progress(1021, 1100, "CER 5.0%")
        progress(1031, 1100)
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "reading: 1021 of 1100, 2.0 lines/s, 40 s left  CER 5.0%",
        "reading: 1031 of 1100, 1.5 lines/s, 46 s left",
    ]
    assert err == ""


def test_quiet_leaves_results_and_complaints(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer(quiet=True)
    printer.message("on the way")
    printer.result("dataset: [bold]письма[/bold]")
    printer.complain("error: nothing there")
    with printer.progress("reading", "lines") as progress:
        progress(1, 2)
    out, err = capsys.readouterr()
    assert out == "dataset: [bold]письма[/bold]\n"
    assert err == "error: nothing there\n"
