"""Pages in a real browser: what is seen, by keyboard, in both schemes, on a phone, and by axe.

Skipped where there is no Chromium (Debian: apt-get install chromium chromium-driver).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from browsing import DESK, NEEDS_BROWSER, PHONE, opened
from pictured import material
from racegate.report.timeline.page import finding_page
from racegate.report.timeline.several import findings_page, pictured_replay

selenium = pytest.importorskip("selenium", reason="selenium is not installed")
axe_core = pytest.importorskip("axe_core_python.selenium", reason="axe is not installed")
pytestmark = NEEDS_BROWSER
RACE, LOGIC, SEVERAL = "accepted-copy-after-row-move", "slot-vs-row-index", "several"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {name: folder / f"{name}.html" for name in (RACE, LOGIC)}
    for name, path in found.items():
        path.write_text(finding_page(material(name, is_swept=name == RACE)))
    several = folder / f"{SEVERAL}.html"
    shown = [pictured_replay(name, "reproduced", material(name)) for name in (RACE, LOGIC)]
    several.write_text(findings_page("2 witnesses", shown))
    return found | {SEVERAL: several}


@pytest.mark.parametrize(
    ("name", "scheme"), [(RACE, "light"), (RACE, "dark"), (LOGIC, "light"), (SEVERAL, "dark")]
)
def test_axe_finds_nothing(browser: Any, pages: dict[str, Path], name: str, scheme: str) -> None:
    """Contrast, names, order of headings, regions: with what is folded open too."""
    opened(browser, pages[name], prefers_color_scheme=scheme)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    violations = axe_core.Axe().run(browser)["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in violations] == []


def test_nothing_is_loaded(browser: Any, pages: dict[str, Path]) -> None:
    opened(browser, pages[RACE])
    loaded = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    assert browser.execute_script(loaded) == []
    assert [entry["message"] for entry in browser.get_log("browser")] == []


@pytest.mark.parametrize("name", [RACE, LOGIC, SEVERAL])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_a_page_is_as_wide_as_its_window(
    browser: Any, pages: dict[str, Path], name: str, size: tuple[int, int]
) -> None:
    opened(browser, pages[name], size=size)
    width = browser.execute_script("return document.documentElement.scrollWidth")
    assert width <= size[0]


@pytest.mark.parametrize("name", [RACE, LOGIC])
def test_the_first_screen_has_cause_and_replay(
    browser: Any, pages: dict[str, Path], name: str
) -> None:
    opened(browser, pages[name], size=(1360, 768))
    bottom = "return document.querySelector('.cause').getBoundingClientRect().bottom"
    assert browser.execute_script(bottom) <= 768


def shown_stops(browser: Any) -> list[str]:
    script = "return [...document.querySelectorAll('.stop:not([hidden])')].map(s => s.dataset.said)"
    shown: list[str] = browser.execute_script(script)
    return shown


def test_the_slider_goes_by_keyboard_from_failing_to_passing(
    browser: Any, pages: dict[str, Path]
) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    opened(browser, pages[RACE])
    hold = "d2h:accepted_counts@C.0 until"
    assert shown_stops(browser) == [f"goes wrong: {hold} host:condense@C.1"]
    slider = browser.find_element(By.ID, "landing")
    browser.execute_script("document.body.focus()")
    for _ in range(12):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        if browser.switch_to.active_element == slider:
            break
    assert browser.switch_to.active_element == slider, "the tab key comes to it"
    slider.send_keys(Keys.ARROW_LEFT)
    assert shown_stops(browser) == [f"passes: {hold} host:update_states@4"]
    assert slider.get_attribute("aria-valuetext") == shown_stops(browser)[0]
    slider.send_keys(Keys.HOME)
    assert shown_stops(browser) == ["passes: no hold"]
    figures = "return [...document.querySelectorAll('.pair figure')].map(f => f.clientHeight > 0)"
    assert sum(browser.execute_script(figures)) == 2, "one passes, beside the one that is chosen"


def test_the_missing_edge_is_red_and_dashed(browser: Any, pages: dict[str, Path]) -> None:
    opened(browser, pages[RACE], prefers_color_scheme="light")
    look = (
        "const s = getComputedStyle(document.querySelector('.stop:not([hidden]) path.missing'));"
        "return [s.stroke, s.strokeDasharray]"
    )
    assert browser.execute_script(look) == ["rgb(198, 40, 40)", "8px, 5px"]


def test_who_wants_no_motion_gets_none(browser: Any, pages: dict[str, Path]) -> None:
    script = "return getComputedStyle(document.querySelector('figure')).transitionDuration"
    opened(browser, pages[RACE], prefers_reduced_motion="no-preference")
    assert browser.execute_script(script) == "0.15s"
    opened(browser, pages[RACE], prefers_reduced_motion="reduce")
    assert browser.execute_script(script) == "0s"
