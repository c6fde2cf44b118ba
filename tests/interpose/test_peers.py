"""What is said of a test of PyTorch's own suite, from the run of it and pytest's report."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from peers import run
from peers.run import Judged, Kind, Row, Standing

from racegate.history.finding import Hazard, Race, Side
from racegate.interpose.outcome import Ending, Outcome

REPORT = """<testsuites><testsuite><testcase name="test_a">{}</testcase></testsuite></testsuites>"""
SIDE = Side(operation="h2d", label="h2d@a.py:f", lane="s", is_host=False, is_write=True, stack=())
RACE = Race(
    signature="0123456789ab",
    hazard=Hazard.READ_AFTER_WRITE,
    buffer="a",
    nbytes=4,
    count=1,
    first=SIDE,
    second=msgspec.structs.replace(SIDE, is_write=False),
    edge="wait",
    pairs=(),
)


@pytest.mark.parametrize(
    ("ending", "inside", "findings", "standing", "text"),
    [
        (Ending.FINISHED, "", (), Standing.PASSED, ""),
        (Ending.FINISHED, '<skipped message="no GPU"/>', (), Standing.SKIPPED, "no GPU"),
        (Ending.FAILED, '<failure message="1 != 2"/>', (), Standing.FAILED, "1 != 2"),
        (Ending.FAILED, '<error message="setup"/>', (), Standing.FAILED, "setup"),
        (Ending.FINISHED, "", (RACE,), Standing.CONFLICT, "no path of edges"),
        (Ending.FAILED, '<failure message="1 != 2"/>', (RACE,), Standing.CONFLICT, "no path"),
        (Ending.NOT_MODELLED, "", (), Standing.REFUSED, "of the run"),
        (Ending.TIMED_OUT, "", (), Standing.HUNG, "of the run"),
        (Ending.LOST, "", (), Standing.LOST, "of the run"),
    ],
)
def test_what_came_of_a_test(
    ending: Ending,
    inside: str,
    findings: tuple[Race, ...],
    standing: Standing,
    text: str,
    tmp_path: Path,
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT.format(inside))
    outcome = Outcome(ending=ending, message="of the run", findings=findings)
    said = run.standing_of(outcome, report)
    assert (said[0], text in said[1]) == (standing, True)


def test_a_run_without_a_report_is_lost(tmp_path: Path) -> None:
    outcome = Outcome(ending=Ending.FINISHED)
    assert run.standing_of(outcome, tmp_path / "none.xml")[0] is Standing.LOST


def test_the_last_line_of_a_test_counts(tmp_path: Path) -> None:
    rows = [Row(test="f.py::a", standing=s) for s in (Standing.FAILED, Standing.PASSED)]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, rows)))
    assert run.read_rows(path) == {"f.py::a": rows[1]}


def test_what_nobody_has_judged_is_wrong() -> None:
    rows = [
        Row(test="f.py::T::a", standing=Standing.PASSED),
        Row(test="f.py::T::b", standing=Standing.CONFLICT, text="one\nother"),
        Row(test="f.py::T::c", standing=Standing.FAILED),
        Row(test="f.py::T::d", standing=Standing.HUNG),
    ]
    known = {"T::b": Judged(Kind.RACE, "on purpose"), "T::c": Judged(Kind.OLDER, "renamed")}
    shown = run.table(rows, known, "pytorch")
    assert "| f.py | 4 | 1 | 0 | 1 | 0 | 1 | 1 | 0 |" in shown
    assert "- race: `f.py::T::b` (conflict: one): on purpose" in shown
    assert "- wrong: `f.py::T::d` (hung: ): nobody has judged it" in shown


def test_refusals_are_counted_by_call() -> None:
    texts = {"a": "cuB", "b": "cuA\n  f.py:1 in a", "c": "cuB"}
    rows = [Row(test=f"f.py::T::{n}", standing=Standing.REFUSED, text=t) for n, t in texts.items()]
    shown = run.table(rows, {}, "pytorch").splitlines()
    assert [line for line in shown if "cu" in line] == ["- 2: cuB (`a`, `c`)", "- 1: cuA (`b`)"]


@pytest.mark.parametrize("suite", run.SUITES)
def test_every_judgement_is_of_a_test_that_is_kept(suite: str) -> None:
    rows = run.read_rows(run.HERE / f"{suite}.jsonl")
    unused = [
        words
        for words in run.judgements(suite)
        if not any(words in test and run.judged(row, {}) for test, row in rows.items())
    ]
    assert (bool(rows), unused) == (True, [])


@pytest.mark.parametrize("suite", run.SUITES)
def test_nothing_that_is_kept_is_wrong(suite: str) -> None:
    rows = run.read_rows(run.HERE / f"{suite}.jsonl").values()
    found = {row.test: run.judged(row, run.judgements(suite)) for row in rows}
    assert [test for test, judged in found.items() if judged and judged.kind is Kind.WRONG] == []
