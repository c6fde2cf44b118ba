"""The tests as judge of a mutant: those that execute its line, until one fails."""

from __future__ import annotations

import io
import os
from collections.abc import Generator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import msgspec
import pytest

from racegate.measure.evaluation.source.child import ChildLimits, Say, in_a_child, more_time
from racegate.measure.evaluation.source.reach import LineReach, LineRecorder
from racegate.scenario.errors import BrokenHarnessError

# To import and collect anew; then for each test.
LIMITS = ChildLimits(cpu_s=60, wall_s=1800)
TEST_CPU_S = 60.0
RECORDING = ChildLimits(cpu_s=3600, wall_s=7200)
# Of a test that fails in the child the others are recorded all the same.
RECORDED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.TESTS_FAILED)
# A failure is enough: nobody looks for the smallest one, and nothing is remembered of it.
OPTIONS = (
    "-x",
    "-q",
    "--hypothesis-profile=mutants",
    "--no-header",
    "--tb=no",
    "-p",
    "no:cacheprovider",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
)


class TestsLook:
    """Runs tests by their names of pytest. folders: where they are, from the root"""

    limits = LIMITS

    def __init__(self, root: Path, folders: Sequence[str]) -> None:
        self._root = root
        self._folders = folders

    def prepare(self) -> None:
        """What every child would do again: importing and collecting."""
        os.chdir(self._root)
        _run_pytest(["--collect-only", *self._folders])

    def judge(self, names: Sequence[str], say: Say) -> None:
        """In a child."""
        code = _run_pytest(names, _FirstFailure(say))
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            say(f"found {pytest.ExitCode(code).name}")


def _run_pytest(arguments: Sequence[str], *plugins: object) -> int:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return int(pytest.main([*OPTIONS, *arguments], plugins=list(plugins)))


class _FirstFailure:
    """A plugin that says which test is run, and which failed."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._say(f"at {nodeid}")
        more_time(TEST_CPU_S)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._say(f"found {report.when} failed")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._say(f"at {report.nodeid}")
            self._say("found collection failed")


class _Counting:
    """A plugin that counts lines for each test, those of its fixtures too."""

    def __init__(self, recorder: LineRecorder) -> None:
        self.failing: set[str] = set()
        self._recorder = recorder

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._recorder.turn_to(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._recorder.took(report.nodeid, report.duration)
        if report.failed:
            self.failing.add(report.nodeid)


class TestsRecording:
    """Says which lines each test of a file executes."""

    def __init__(self, look: TestsLook, root: Path, files: Sequence[Path]) -> None:
        self._look = look
        self._root = root
        self._files = files

    def prepare(self) -> None:
        """What every child would do again."""
        self._look.prepare()

    def record(self, part: str) -> LineReach:
        """In a child."""
        heard = in_a_child(lambda say: self._record(part, say), RECORDING)
        if not heard.lines or heard.status or not heard.lines[-1].startswith("{"):
            raise BrokenHarnessError(
                f"the tests in {part} cannot be recorded: {heard.lines or heard.status}"
            )
        return msgspec.json.decode(heard.lines[-1], type=LineReach)

    def _record(self, part: str, say: Say) -> None:
        recorder = LineRecorder(self._root, self._files)
        counting = _Counting(recorder)
        with recorder.counting():
            code = _run_pytest([part, "--maxfail=0"], counting)
        if code in RECORDED:
            failing = tuple(sorted(counting.failing))
            found = msgspec.structs.replace(recorder.reach(), failing=failing)
            say(msgspec.json.encode(found).decode())
        else:
            say(f"pytest ended with {code}")
