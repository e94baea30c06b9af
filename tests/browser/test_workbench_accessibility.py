"""The window and its dialogs for people who do not see them, or not well: axe-core finds nothing serious."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.workbench import FIELD


def findings(window: Page, part: str | None = None) -> Iterator[str]:
    for found in Axe().run(window, context=part).response["violations"]:
        if found["impact"] in {"serious", "critical"}:
            yield f"{found['id']}: {found['nodes'][0]['html'][:200]} {found['nodes'][0]['failureSummary']}"


def require_accessible_dialog(window: Page) -> None:
    dialog = window.get_by_role("dialog")
    expect(dialog).to_be_visible()
    # axe mixes the dialog's background with what is dimmed behind it
    assert [found for found in findings(window, ".q-dialog") if "color-contrast" not in found] == []
    contrasts = dialog.evaluate(CONTRASTS)
    assert contrasts
    assert [text for text, contrast in contrasts if contrast < 4.5] == []


CONTRASTS = """dialog => {
    // WCAG 2.2, contrast ratio: of each text on the backgrounds that it lies on, painted one over another
    const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const luminance = (colours) => {
        for (const colour of colours) {
            paint.fillStyle = colour;
            paint.fillRect(0, 0, 1, 1);
        }
        const [r, g, b] = [...paint.getImageData(0, 0, 1, 1).data].map((value) => value / 255)
            .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const hasText = (element) => element.value
        || [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const isJudged = (element) => element.checkVisibility() && !element.closest(".disabled, i") && hasText(element);
    const texts = [...dialog.querySelectorAll("*")].filter(isJudged);
    return texts.map((element) => {
        const colours = [];
        for (let one = element; one; one = one.parentElement) colours.unshift(getComputedStyle(one).backgroundColor);
        const below = luminance(colours);
        const above = luminance([getComputedStyle(element).color]);
        return [element.outerHTML, (Math.max(above, below) + 0.05) / (Math.min(above, below) + 0.05)];
    });
}"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_window_and_its_dialogs(window: Page, scheme: Literal["light", "dark"]) -> None:
    window.emulate_media(color_scheme=scheme)
    expect(window.locator(f"body.body--{scheme}")).to_have_count(1)
    assert list(findings(window)) == []
    menu = window.get_by_role("button", name="Menu")
    for part, opener in ((".q-menu", menu), (".page-view-sliders", window.get_by_role("button", name="Contrast"))):
        opener.click()
        opened = window.locator(part)
        expect(opened).to_be_visible()
        assert [text for text, contrast in opened.evaluate(CONTRASTS) if contrast < 4.5] == []
        assert list(findings(window, part)) == []
        window.keyboard.press("Escape")
        expect(opened).to_have_count(0)

    def name() -> None:
        menu.click()
        window.get_by_role("menu").get_by_text("Your name").click()

    field = window.get_by_label(FIELD)
    openers: list[Callable[[], None]] = [partial(field.press, key) for key in ("F1", "Alt+r", "Alt+n")]
    for open_dialog in (*openers, window.get_by_role("button", name="Export").click, name):
        open_dialog()
        require_accessible_dialog(window)
        window.keyboard.press("Escape")
        expect(window.get_by_role("dialog")).to_have_count(0)
