"""The window and its dialogs for people who do not see them, or not well: axe-core finds nothing serious."""

from collections.abc import Iterator
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.workbench import FIELD


def findings(window: Page, part: str | None = None) -> Iterator[str]:
    for found in Axe().run(window, context=part).response["violations"]:
        if found["impact"] in {"serious", "critical"}:
            yield f"{found['id']}: {found['nodes'][0]['html'][:200]} {found['nodes'][0]['failureSummary']}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_window_and_its_dialogs(window: Page, scheme: Literal["light", "dark"]) -> None:
    window.emulate_media(color_scheme=scheme)
    expect(window.locator(f"body.body--{scheme}")).to_have_count(1)
    assert list(findings(window)) == []
    for key in ("F1", "Alt+r", "Alt+n"):
        window.get_by_label(FIELD).press(key)
        dialog = window.get_by_role("dialog")
        expect(dialog).to_be_visible()
        # axe mixes the dialog's background with what is dimmed behind it; its colours are those of the window
        assert [found for found in findings(window, ".q-dialog") if "color-contrast" not in found] == []
        window.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
