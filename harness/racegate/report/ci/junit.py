"""A job as a JUnit file: a test for each of its cases."""

from __future__ import annotations

from itertools import groupby

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from racegate.history.outcome import Checked, CheckedCase, Failing
from racegate.scenario.untrusted.text import printable, printable_lines


def junit_of(checked: Checked) -> str:
    """XML. What is known is skipped, and what the harness did wrong an error."""
    page = JUnitXml("racegate")
    for group, cases in groupby(checked.cases, key=lambda case: case.group):
        suite = TestSuite(group)
        suite.add_testcases([_case(case) for case in cases])
        page.add_testsuite(suite)
    text: bytes = page.tostring()
    return text.decode()


def _case(case: CheckedCase) -> TestCase:
    test = TestCase(printable(case.name), classname=f"racegate.{case.group}")
    if case.group == "scenarios":
        test.time = case.seconds
    test.result = _results(case)
    if case.said:  # behind the results, as the format has it
        test.system_out = printable_lines(case.said)
    return test


def _results(case: CheckedCase) -> list[Skipped | Error | Failure]:
    """Errors before failures, as the format has it; a case of which nothing else is wrong than what
    is known is skipped.
    """
    wrong = [_wrong(one) for one in case.failing if not one.is_known]
    known = [_known(one) for one in case.failing if one.is_known]
    why = "; ".join([case.skipped] if case.skipped else known)
    if why and not wrong:
        skipped = Skipped()
        skipped.text = printable(why)  # the format has no attribute for it
        return [skipped]
    return sorted(wrong, key=lambda one: not isinstance(one, Error))


def _known(one: Failing) -> str:
    return (
        f"accepted: {one.signature}: {one.reason}"
        if one.reason
        else f"in the baseline: {one.signature}"
    )


def _wrong(one: Failing) -> Error | Failure:
    kind = Error if one.kind == "broken" else Failure
    entry = kind(printable(one.signature), one.kind)
    entry.text = printable_lines("\n".join(filter(None, (one.message, _replay(one)))))
    return entry


def _replay(one: Failing) -> str:
    return f"replay: {one.replay}" if one.replay else ""
