"""The dashboard of a real campaign in a real browser."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from test_dashboard import HOSTS, serving
from typer.testing import CliRunner

from browsing import NEEDS_BROWSER, opened_at
from racegate.cli.app import app
from racegate.cli.look.serve import drawn
from racegate.jobs.stores.choice import store_of
from racegate.jobs.stores.store import Store
from racegate.report.dashboard import page, server
from stored import finding

selenium = pytest.importorskip("selenium", reason="selenium is not installed")
axe_core = pytest.importorskip("axe_core_python.selenium", reason="axe is not installed")
pytestmark = NEEDS_BROWSER
FAULT = "correction-partial-fields"
PHONE = (390, 844)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """What a campaign of one scenario left, whose first scenario shows something."""
    folder = tmp_path_factory.mktemp("campaign")
    words = ["fuzz", "--out", str(folder / "out"), "--store", str(folder / "store")]
    words += ["--fault", FAULT, "--scenarios", "1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1, done.output
    return store_of(str(folder / "store"), FAULT)


@pytest.fixture(autouse=True)
def _left(browser: Any) -> Iterator[None]:
    """An open page asks again and again, also for one that has gone."""
    yield
    browser.get("about:blank")
    browser.get_log("browser")


@pytest.fixture
def url(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(page, "REFRESH_S", 0.2)
    monkeypatch.setattr(server, "ASKED_EVERY_S", 0.0)
    with serving(server.dashboard(store, drawn, hosts=HOSTS)) as address:
        yield address


def wait(browser: Any, script: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 30).until(lambda driver: driver.execute_script(f"return {script}"))


def test_it_says_when_the_finding_was_seen_and_what_became_of_the_worker(
    browser: Any, url: str
) -> None:
    opened_at(browser, url)
    text = browser.execute_script("return document.getElementById('live').textContent")
    assert "0 working, 0 lost, 1 ended" in text
    assert "its end" in text and f"process {os.getpid()}" in text
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", text)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Any, url: str, scheme: str) -> None:
    opened_at(browser, url, prefers_color_scheme=scheme)
    violations = axe_core.Axe().run(browser)["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in violations] == []


def test_it_fits_on_a_phone(browser: Any, url: str) -> None:
    opened_at(browser, url, size=PHONE)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= PHONE[0]


def test_from_the_list_to_the_picture_and_back(browser: Any, url: str) -> None:
    from selenium.webdriver.common.by import By

    opened_at(browser, url)
    # In one go: the list is made anew while it is looked at, and a link that was found may be gone.
    browser.execute_script("document.querySelector('tbody th a').click()")
    wait(browser, "document.querySelector('svg') !== null")
    browser.find_element(By.LINK_TEXT, "All findings").click()
    wait(browser, "document.getElementById('live') !== null")
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def test_an_open_page_shows_what_is_found_meanwhile_and_loses_no_place(
    browser: Any, url: str, store: Store
) -> None:
    opened_at(browser, url)
    browser.execute_script("document.querySelector('tbody th a').focus()")
    rows = browser.execute_script("return document.querySelectorAll('tbody th a').length")
    late = finding("zzz/found/later")
    store.offer(msgspec.structs.replace(late, is_minimal=False))
    wait(browser, f"document.querySelectorAll('tbody th a').length === {rows + 1}")
    assert browser.execute_script("return document.activeElement.tagName") == "A"
    assert "not minimised yet" in browser.execute_script("return document.body.innerText")


def test_a_page_that_is_paused_stays_as_it_is(browser: Any, url: str, store: Store) -> None:
    from selenium.webdriver.common.by import By

    opened_at(browser, url)
    browser.find_element(By.ID, "pause").click()
    before = browser.execute_script("return document.getElementById('live').innerHTML")
    store.offer(finding("zzz/found/while/paused"))
    browser.execute_async_script("setTimeout(arguments[0], 800)")
    assert browser.execute_script("return document.getElementById('live').innerHTML") == before


def test_a_page_without_its_server_says_so(browser: Any, store: Store, monkeypatch: Any) -> None:
    monkeypatch.setattr(page, "REFRESH_S", 0.2)
    with serving(server.dashboard(store, drawn, hosts=HOSTS)) as address:
        opened_at(browser, address)
    wait(browser, "document.getElementById('said').textContent.includes('does not answer')")
