"""Pages in a real browser: what is seen, by keyboard, in both schemes, on a phone, and by axe.

Skipped where there is no Chromium (Debian: apt-get install chromium chromium-driver).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from browsing import DESK, NEEDS_BROWSER, PHONE, opened
from pictured import material
from program_verdicts import finding
from racegate.report.finding.page import finding_page, findings_page
from racegate.report.finding.pictured import PicturedFinding
from racegate.report.finding.race import pictured_results
from racegate.report.finding.sources import source_of
from real_findings import PROGRAMS, adapted, changed_source, released, surveyed

selenium = pytest.importorskip("selenium", reason="selenium is not installed")
axe_core = pytest.importorskip("axe_core_python.selenium", reason="axe is not installed")
pytestmark = NEEDS_BROWSER
RACE, LOGIC, SEVERAL = "accepted-copy-after-row-move", "slot-vs-row-index", "several"
LONGEST = "slot-parameters-in-place"  # of all witnesses, the page that is longest on a phone
PROGRAM, RELEASE, ADAPTER = PROGRAMS[0], "release", "adapter"
OWN, FOREIGN = (RACE, LOGIC, LONGEST), (*PROGRAMS, RELEASE, ADAPTER)
RACED = finding("a" * 12)
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
# What is wider than its own box, which does not scroll; texts of a picture beyond their box or it.
RUNNING_OUT = """
const wide = [...document.querySelectorAll("body *")]
  .filter(one => one.clientWidth && !one.closest("svg"))
  .filter(one => getComputedStyle(one).overflowX == "visible")
  .filter(one => one.scrollWidth > one.clientWidth + 1);
const right = element => element.getBoundingClientRect().right;
const boxed = [...document.querySelectorAll("svg g")].filter(one => one.querySelector(".box"))
  .flatMap(one => [...one.querySelectorAll("text")]
    .filter(text => right(text) > right(one.querySelector(".box")) + 1));
const drawn = [...document.querySelectorAll("figure svg")]
  .flatMap(one => [...one.querySelectorAll("text")].filter(text => right(text) > right(one) + 1));
return [...wide, ...boxed, ...drawn].map(one => one.outerHTML.slice(0, 160));
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {name: finding_page(material(name, is_swept=name != LOGIC)) for name in OWN}
    made[SEVERAL] = findings_page("2 witnesses", [material(RACE), material(LOGIC)])
    results = {name: surveyed(name) for name in PROGRAMS} | {RELEASE: released()}
    for name, result in results.items():
        found = [with_source(one) for one in pictured_results([result])]
        made[name] = findings_page(f"Findings in {result.target}", found)
    made[ADAPTER] = finding_page(adapted(folder))
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text)
    return {name: folder / f"{name}.html" for name in made}


def with_source(found: PicturedFinding) -> PicturedFinding:
    """As where the sources can be read: with a change of as many lines as are shown."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("racegate.report.finding.sources.repair_of", lambda _: changed_source(60))
        return msgspec.structs.replace(found, source=source_of(RACED))


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        (RACE, "light"),
        (RACE, "dark"),
        (LOGIC, "light"),
        (SEVERAL, "dark"),
        (PROGRAM, "light"),
        (RELEASE, "light"),
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


@pytest.mark.parametrize("name", [RACE, LOGIC, SEVERAL, RELEASE])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_a_page_is_as_wide_as_its_window(
    browser: Any, pages: dict[str, Path], name: str, size: tuple[int, int]
) -> None:
    opened(browser, pages[name], size=size)
    width = browser.execute_script("return document.documentElement.scrollWidth")
    assert width <= size[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(360, 740), (1280, 800)], ids=["phone", "desk"])
@pytest.mark.parametrize("name", [*OWN, *FOREIGN])
def test_nothing_runs_out_of_a_page_and_a_cause_is_few_screens(
    browser: Any, pages: dict[str, Path], name: str, size: tuple[int, int], scheme: str
) -> None:
    """The longest real findings of each target, in both schemes."""
    opened(browser, pages[name], size=size, prefers_color_scheme=scheme)
    assert browser.execute_script(STICKING_OUT) == []
    assert browser.execute_script(RUNNING_OUT) == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    heights = "return [...document.querySelectorAll('article')].map(one => one.offsetHeight)"
    found = browser.execute_script(heights)
    if not found:
        found = [browser.execute_script("return document.documentElement.scrollHeight")]
    assert max(found) / size[1] <= SCREENS_MAX


@pytest.mark.parametrize("name", [RACE, PROGRAMS[1], RELEASE])
def test_on_a_phone_lanes_are_one_column(browser: Any, pages: dict[str, Path], name: str) -> None:
    """Every figure has one picture to be seen: side by side on a desk, one below another here, and
    each box says its lane.
    """
    shown = """
    return [...document.querySelectorAll("figure:not(.whole)")].filter(one => one.offsetHeight)
      .map(one => [...one.querySelectorAll("svg")].filter(svg => svg.clientHeight)
        .map(svg => [svg.getAttribute("class"), svg.clientWidth <= one.clientWidth]));
    """
    opened(browser, pages[name], size=(1280, 800))
    wide = browser.execute_script(shown)
    opened(browser, pages[name], size=(360, 740))
    narrow = browser.execute_script(shown)
    assert {tuple(map(tuple, pictures)) for pictures in wide} == {(("columns", True),)}
    assert {tuple(map(tuple, pictures)) for pictures in narrow} == {(("column", True),)}
    lanes = "return document.querySelector('svg.column .first').querySelector('text').textContent"
    assert browser.execute_script(lanes) in ("compute", "stream 1", "the default stream")


def test_what_is_cut_says_so(browser: Any, pages: dict[str, Path]) -> None:
    """A stack of more frames than are shown, a change of more lines, a name longer than its box."""
    opened(browser, pages[RELEASE])
    body = browser.find_element("css selector", "article").text
    assert "... called from 3 more" in body
    assert "... 40 more lines" in body
    cut = "return [...document.querySelectorAll('svg.columns .name')].map(one => one.textContent)"
    names = browser.execute_script(cut)
    assert any(name.endswith("…") for name in names)
    whole = "return document.querySelector('svg.columns .first title').textContent"
    assert "input_batch.num_accepted_tokens_cpu_tensor" in browser.execute_script(whole)


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
