"""A gate as a JUnit file: a test for each scenario and for each witness that must fail."""

from __future__ import annotations

from collections.abc import Iterable

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from racegate.jobs.gate import GateResult
from racegate.report.ci.failing import Failing, Files, failing_of
from racegate.scenario.outside.text import printable, printable_lines


def junit_of(result: GateResult, files: Files) -> str:
    """XML. What stands in the baseline is skipped, and what the harness did wrong an error."""
    wrong = {(one.group, one.name): one for one in failing_of(result, files)}
    scenarios = [_case("scenarios", run.scenario, wrong) for run in result.scenarios]
    for case, run in zip(scenarios, result.scenarios, strict=True):
        case.time = run.stats.seconds
        case.system_out = f"verdict: {run.verdict}, schedules: {run.stats.schedules}"
    names = [entry.witness.rpartition("/")[2] for entry in result.must_fail]
    checks = [_case("self-check", "gate", wrong)]
    page = JUnitXml("racegate")
    page.add_testsuite(_suite("scenarios", scenarios))
    if names:
        page.add_testsuite(_suite("witnesses", [_case("witnesses", name, wrong) for name in names]))
    page.add_testsuite(_suite("self-check", checks))
    text: bytes = page.tostring()
    return text.decode()


def _suite(name: str, cases: Iterable[TestCase]) -> TestSuite:
    suite = TestSuite(name)
    suite.add_testcases(list(cases))
    return suite


def _case(group: str, name: str, wrong: dict[tuple[str, str], Failing]) -> TestCase:
    case = TestCase(printable(name), classname=f"racegate.{group}")
    one = wrong.get((group, name))
    if one is None:
        return case
    message = printable(one.signature)
    if one.is_known:
        case.result = [Skipped(f"in the baseline: {message}")]
        return case
    kind = Error if one.kind == "broken" else Failure
    entry = kind(message, one.kind)
    entry.text = printable_lines("\n".join(filter(None, (one.message, _replay(one)))))
    case.result = [entry]
    return case


def _replay(one: Failing) -> str:
    return f"replay: {one.replay}" if one.replay else ""
