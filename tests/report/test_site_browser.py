"""The site in a real browser: by axe, on a phone, by keyboard, without motion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from browsing import NEEDS_BROWSER, opened

selenium = pytest.importorskip("selenium", reason="selenium is not installed")
axe_core = pytest.importorskip("axe_core_python.selenium", reason="axe is not installed")
pytestmark = NEEDS_BROWSER
SMALL = (360, 740)
# Figures, charts and coloured cells in both schemes; Markdown and files.
KINDS = [("index.html", "light"), ("index.html", "dark"), ("sglang/index.html", "light")]


@pytest.mark.parametrize(("page", "scheme"), KINDS)
def test_axe_finds_nothing_in_the_site(browser: Any, site: Path, page: str, scheme: str) -> None:
    opened(browser, site / page, prefers_color_scheme=scheme)
    violations = axe_core.Axe().run(browser)["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in violations] == []


def test_no_page_is_wider_than_a_phone(browser: Any, site: Path) -> None:
    wide = {}
    for page in sorted(site.rglob("*.html")):
        opened(browser, page, size=SMALL)
        width = browser.execute_script("return document.documentElement.scrollWidth")
        if width > SMALL[0]:
            wide[page.name] = width
    assert wide == {}


def test_the_first_screen_has_what_is_proved_found_and_how_fast(browser: Any, site: Path) -> None:
    opened(browser, site / "index.html", size=(1360, 900))
    bottoms = (
        "return [...document.querySelectorAll('.board .value')].map("
        "v => v.getBoundingClientRect().bottom)"
    )
    found = browser.execute_script(bottoms)
    assert len(found) >= 12
    assert max(found) <= 900


def test_the_keyboard_comes_to_links_and_to_boxes_that_scroll(browser: Any, site: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, site / "vllm" / "index.html", size=SMALL)
    reached = []
    for _ in range(40):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        now = browser.switch_to.active_element
        reached.append(now.get_attribute("class") or now.text)
    assert reached[0] == "skip"
    assert {"Overview", "Witnesses", "scroll grid"} <= set(reached)
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def test_the_site_does_without_motion_where_none_is_wanted(browser: Any, site: Path) -> None:
    script = "return getComputedStyle(document.querySelector('.board a')).transitionDuration"
    opened(browser, site / "index.html", prefers_reduced_motion="reduce")
    assert set(browser.execute_script(script).split(", ")) == {"0s"}
