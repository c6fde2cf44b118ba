"""The fixture `racegate_recording`: a test that fails with the conflicts of what it did.

Loaded by pytest in every session, so that it imports no torch. Tests that ask for the fixture run
under `racegate torch run -m pytest`; elsewhere they are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from racegate.interpose.current import get_run
from racegate.interpose.surface import Recording, recording

_KEY = pytest.StashKey[Recording]()
_WHY_NOT = (
    "racegate_recording needs the virtual CUDA device: racegate torch run -m pytest ... (or "
    "racegate torch run -m pytest ...)"
)


@pytest.fixture
def racegate_recording(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """The conflicts from here to the end of the test, which fails if there are any but suppressed
    ones. Skips where there is no virtual device.
    """
    if get_run() is None:
        pytest.skip(_WHY_NOT)
    with recording() as part:
        request.node.stash[_KEY] = part
        yield part


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """After the test's own body, while it can still fail. A test that failed by itself keeps its
    error, and gets the conflicts as a section of its report.
    """
    try:
        yield
    except BaseException:
        if text := _conflicts(item):
            item.add_report_section("call", "racegate", text)
        raise
    if text := _conflicts(item):
        pytest.fail(text, pytrace=False)


def _conflicts(item: pytest.Item) -> str:
    """Those of the test that nothing suppresses, as text; empty if there are none."""
    run, part = get_run(), item.stash.get(_KEY, None)
    if run is None or part is None:
        return ""
    from racegate.targets.program.words import render_findings

    found = [one for one in part.findings if one.signature not in run.suppressed]
    head = "no edge of the program orders these accesses:\n\n"
    return head + render_findings(found) if found else ""
