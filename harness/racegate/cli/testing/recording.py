"""The fixture `racegate_recording`: a test that fails with the conflicts of what it did.

Loaded by pytest in every session, so that it imports nothing but pytest. Tests that ask for the
fixture run under `racegate torch run -m pytest`; elsewhere they are skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from racegate.cli.testing.settings import SETTINGS, attached, report_file

if TYPE_CHECKING:
    from racegate.history.finding import Race
    from racegate.interpose.current import ProgramRun
    from racegate.interpose.surface import Recording

_KEY = pytest.StashKey["Recording"]()
_WHY_NOT = (
    "racegate_recording needs the virtual CUDA device: racegate torch run -m pytest ... (or "
    "racegate torch run -m pytest ...)"
)


@pytest.fixture
def racegate_recording(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """The conflicts from here to the end of the test, which fails if there are any but suppressed
    ones. Skips where there is no virtual device.
    """
    if _run() is None:
        pytest.skip(_WHY_NOT)
    from racegate.interpose.surface import recording

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
        if found := _conflicts(item):
            item.add_report_section("call", "racegate", _told(item, found))
        raise
    if found := _conflicts(item):
        pytest.fail(_told(item, found), pytrace=False)


def _run() -> ProgramRun | None:
    """The run that this process is part of. A device's process has long imported where it is."""
    module = sys.modules.get("racegate.interpose.current")
    found: ProgramRun | None = None if module is None else module.get_run()
    return found


def _conflicts(item: pytest.Item) -> Sequence[Race]:
    """Those of the test that nothing suppresses."""
    run, part = _run(), item.stash.get(_KEY, None)
    if run is None or part is None:
        return ()
    return [one for one in part.findings if one.signature not in run.suppressed]


def _told(item: pytest.Item, found: Sequence[Race]) -> str:
    """The conflicts as text, which a JUnit file has too, with a page of them if that is wanted."""
    from racegate.targets.program.words import render_findings

    text = "no edge of the program orders these accesses:\n\n" + render_findings(found)
    signatures = " ".join(one.signature for one in found)
    item.user_properties += [("racegate.verdict", "CONFLICT"), ("racegate.signature", signatures)]
    folder = item.config.stash[SETTINGS].report_dir
    pages = []
    if folder is not None:
        pages = [report_file(item, folder, ".html")]
        pages[0].write_text(_page(item, found), encoding="utf-8")
    return "\n".join([text, *attached(item, text, pages)])


def _page(item: pytest.Item, found: Sequence[Race]) -> str:
    from racegate.interpose.outcome import Ending, Outcome
    from racegate.report.finding.race import results_page
    from racegate.targets.program.judge import ProgramVerdict
    from racegate.targets.program.result import result_of_program

    seen = Outcome(ending=Ending.FINISHED, findings=tuple(found))
    judged = ProgramVerdict(base=seen, shown=seen)
    return results_page([result_of_program(judged, f"-m pytest {item.nodeid}")])
