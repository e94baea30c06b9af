"""From the start page to a corrected scan and its download, in Russian, with nothing typed but a correction."""

import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from dsocr.io.files import shipped_path
from tests.browser.test_workbench_accessibility import findings, require_accessible_dialog
from tests.browser.workbench import running


@pytest.mark.slow
def test_from_dropped_scans_to_a_download(browser: Browser, tmp_path: Path) -> None:
    scans = sorted(shipped_path("examples/copiste/jpg").iterdir())[:2]
    home = tmp_path / "home"
    home.mkdir()
    with running(tmp_path, HOME=str(home), USERPROFILE=str(home)) as address:
        context = browser.new_context(locale="ru-RU", base_url=address, reduced_motion="reduce")
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.goto("/")
        expect(page).to_have_url(f"{address}ru/start")
        assert list(findings(page)) == []
        page.get_by_role("button", name="Выбрать папку").click()
        expect(page.get_by_role("button", name="Открыть эту папку (в ней 0 сканов)")).to_be_visible()
        require_accessible_dialog(page)
        page.get_by_role("button", name="Отмена").click()
        page.locator("input[type=file]").set_input_files([*map(str, scans)])
        page.wait_for_url("**/ru")
        (folder,) = home.joinpath("dsocr").glob("сканы-*[0-9]")
        assert sorted(path.name for path in folder.iterdir()) == [path.name for path in scans]
        field = page.get_by_label("Текст строки")
        expect(field).not_to_have_value("")
        field.fill("принятая строка")
        field.press("Enter")
        expect(page.get_by_text("Проверено 1 из")).to_be_visible()
        page.get_by_role("button", name="Экспорт").click()
        expect(page.get_by_text("никто не принял")).to_be_visible()
        require_accessible_dialog(page)
        with page.expect_download() as downloading:
            page.get_by_role("button", name="Скачать").click()
        assert downloading.value.suggested_filename == f"{folder.name}-page.zip"
        with zipfile.ZipFile(downloading.value.path()) as archive:
            first, *_ = sorted(name for name in archive.namelist() if name.endswith(".xml"))
            assert "принятая строка" in archive.read(first).decode("utf-8")
        page.get_by_role("button", name="Меню").click()
        page.get_by_text("Другие сканы").click()
        page.get_by_role("button", name=folder.name).click()
        expect(page.get_by_text("Проверено 1 из")).to_be_visible()
        context.close()
