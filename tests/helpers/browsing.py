"""Chromium without a window, for tests of pages; skipped where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
NEEDS_BROWSER = [
    pytest.mark.skipif(
        BROWSER is None or DRIVER is None,
        reason="needs Chromium and its driver: apt-get install chromium chromium-driver",
    ),
    pytest.mark.xdist_group("browser"),
]
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE, DESK = (390, 844), (1360, 900)


def started(profile: Path) -> Iterator[Any]:
    """A browser until it is asked for again."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def opened(browser: Any, page: Path, *, size: tuple[int, int] = DESK, **media: str) -> Any:
    """The page in a window of a size, with media features as `prefers_color_scheme="dark"`."""
    return opened_at(browser, page.as_uri(), size=size, **media)


def opened_at(browser: Any, address: str, *, size: tuple[int, int] = DESK, **media: str) -> Any:
    """The same of a page that is served."""
    features = [{"name": k.replace("_", "-"), "value": v} for k, v in media.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(address)
    return browser
