"""Pages in a real browser: what is seen, by keyboard, in both schemes, on a phone, and by axe.

Skipped where there is no Chromium (Debian: apt-get install chromium chromium-driver).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from browsing import DESK, NEEDS_BROWSER, PHONE, opened
from pictured import material
from program_verdicts import finding, verdicts
from racegate.cli.app import app
from racegate.history.finding import Verdict
from racegate.report.timeline.page import finding_page
from racegate.report.timeline.program import program_page
from racegate.report.timeline.several import findings_page, pictured_replay
from small_engine import Wait
from small_release import SmallReleases

selenium = pytest.importorskip("selenium", reason="selenium is not installed")
axe_core = pytest.importorskip("axe_core_python.selenium", reason="axe is not installed")
pytestmark = NEEDS_BROWSER
RACE, LOGIC, SEVERAL = "accepted-copy-after-row-move", "slot-vs-row-index", "several"
PROGRAM, RELEASE = "program", "release"
SCREENS_MAX = 6
# What reaches over the right edge of the window, and lies in nothing that scrolls or cuts.
STICKING_OUT = """
const held = element => {
  for (let above = element.parentElement; above; above = above.parentElement)
    if (getComputedStyle(above).overflowX != "visible") return true;
  return false;
};
return [...document.querySelectorAll("body *")]
  .filter(one => one.getBoundingClientRect().right > innerWidth + 1 && !held(one))
  .map(one => one.outerHTML.slice(0, 120));
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {name: folder / f"{name}.html" for name in (RACE, LOGIC)}
    for name, path in found.items():
        path.write_text(finding_page(material(name, is_swept=name == RACE)))
    several = folder / f"{SEVERAL}.html"
    shown = [pictured_replay(name, "reproduced", material(name)) for name in (RACE, LOGIC)]
    several.write_text(findings_page("2 witnesses", shown))
    return found | {SEVERAL: several} | foreign_pages(folder)


def foreign_pages(folder: Path) -> dict[str, Path]:
    """Of a program with names as long as they come, and of a release."""
    long = "/".join(["a_folder_with_a_long_name"] * 6) + "/data_loader_with_staging.py"
    found = {name: folder / f"{name}.html" for name in (PROGRAM, RELEASE)}
    races = [finding(f"{number:012x}", long) for number in range(3)]
    page = program_page(verdicts(*races, verdict=Verdict.DIVERGENT), f"{long} --epochs 1")
    found[PROGRAM].write_text(page)
    script = 'schema = 1\nname = "small"\ntitle = "t"\n[[requests]]\nname = "A"\nprompt_len = 1\n'
    (folder / "small.toml").write_text(f"{script}max_tokens = 1\naccepts = [1]\n")
    with pytest.MonkeyPatch.context() as patch:
        small = SmallReleases(Wait.BEHIND)
        patch.setattr("racegate.cli.foreign.releases.open_release", small)
        words = ["--release", "1.0", "--log", str(folder / "log"), "--html", str(found[RELEASE])]
        CliRunner().invoke(app, ["vllm", "run", str(folder / "small.toml"), *words])
    return found


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        (RACE, "light"),
        (RACE, "dark"),
        (LOGIC, "light"),
        (SEVERAL, "dark"),
        (PROGRAM, "light"),
        (RELEASE, "dark"),
    ],
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(360, 740), (1280, 800)], ids=["phone", "desk"])
@pytest.mark.parametrize("name", [RACE, LOGIC, PROGRAM, RELEASE])
def test_nothing_runs_out_of_a_page_and_a_cause_is_few_screens(
    browser: Any, pages: dict[str, Path], name: str, size: tuple[int, int], scheme: str
) -> None:
    opened(browser, pages[name], size=size, prefers_color_scheme=scheme)
    assert browser.execute_script(STICKING_OUT) == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    # On a page of several, each has a line of the table that leads to it.
    causes = len(browser.find_elements("css selector", "tbody th a")) or 1
    height = browser.execute_script("return document.documentElement.scrollHeight")
    assert height / size[1] <= SCREENS_MAX * causes


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
