"""A red gate: causes, not scenarios, on one screen, with the smallest hold and what a user sees."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from pictured import judged
from program_verdicts import finding as race
from racegate.cli.app import app
from racegate.history.finding import Benign, Verdict, finding_of, is_seen
from racegate.history.gates.known import KnownFinding, baseline_of
from racegate.history.outcome import RunResult, SharedFinding, shared_findings
from racegate.jobs.ratchet import compared
from racegate.report.causes import BLOCKS_MAX, last_line, print_causes, told_plainly
from racegate.report.ci.failing import checked_results, failing_in
from racegate.report.text import STYLE

FAULT = "accepted-copy-after-row-move"
SIGNATURE = "ownership/accepted_counts_cpu/host:prepare_inputs"
# Of the first a user sees nothing, whatever the order; of the others some do.
WORDS = "abort-in-flight or finish-and-condense or align-second or all-evicted or all-steady"
SCREEN_LINES = 50


def gate(*words: str) -> tuple[int, str]:
    call = ["gate", "--fault", FAULT, "--workers", "1", *words]
    done = CliRunner().invoke(app, call)
    return done.exit_code, done.stdout


def test_a_cause_of_many_scenarios_is_told_once_and_whole(tmp_path: Path) -> None:
    code, output = gate("-k", WORDS, "--out", str(tmp_path))
    lines = output.splitlines()
    assert code == 1
    assert len(lines) < SCREEN_LINES
    assert lines[-1].startswith("DIVERGENT: 1 cause in ") and lines[-1].endswith(f": {SIGNATURE}")
    assert output.count(SIGNATURE) == 2
    assert "The user sees it: request " in output
    holds = re.findall(r"^ +hold +(\S+ until \S+)", output, re.M)
    assert len(holds) == 1 and "*" not in holds[0] and "forced" not in holds[0]
    (replay,) = [line for line in lines if line.startswith("  racegate run ")]
    assert replay.endswith(f'--hold "{holds[0]}"')
    (witness,) = tmp_path.glob("*.witness.json")
    assert f"  racegate replay {witness}" in lines
    assert CliRunner().invoke(app, ["replay", str(witness)]).exit_code == 1
    (page,) = tmp_path.glob("*.html")
    assert "accepted_counts_cpu" in page.read_text()


def test_where_no_run_shows_it_to_a_user_it_is_said_how_far_was_looked() -> None:
    code, output = gate("-k", "abort-in-flight")
    said = " ".join(output.split())
    assert code == 1
    assert "which is equal to its own by luck: no value that was compared is wrong." in said
    assert re.search(r"further no run in which a token is wrong was found \(\d+ schedules", said)
    assert "text is wrong" not in said


def test_a_search_goes_on_to_a_run_that_a_user_sees() -> None:
    """Everything late comes to a value that is right by luck; another order does not."""
    call = ["run", "finish-and-condense", "--fault", FAULT, "--explore", "ladder", "--json", "-"]
    found = json.loads(CliRunner().invoke(app, call).stdout)
    assert found["schedule"] == ["d2h:accepted_counts@3 until host:condense@4"]
    assert "loss" in {one["kind"] for one in found["findings"]}


def test_all_scenarios_are_for_the_asking() -> None:
    assert "seconds" not in gate("-k", "abort-in-flight")[1]
    code, output = gate("-k", "abort-in-flight", "-v")
    assert code == 1
    assert "seconds" in output
    assert "in the same run, " in output


def with_signature(run: RunResult, signature: str, **changes: object) -> RunResult:
    finding = msgspec.structs.replace(run.findings[0], signature=signature)
    return msgspec.structs.replace(run, findings=(finding,), **changes)


def test_a_signature_and_a_command_are_never_cut() -> None:
    run = judged("accepted-read-before-copy").result
    long = "conflict/" + "x" * 300
    replay = "racegate run " + "y" * 300
    finding = msgspec.structs.replace(run.findings[0], signature=long, replay=replay)
    told = [
        told_plainly(one)
        for one in shared_findings([msgspec.structs.replace(run, findings=(finding,))])
    ]
    console = Console(file=StringIO(), width=40)
    print_causes(console, told, STYLE)
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    assert f"1 {run.verdict} {long}" in lines
    assert f"  {replay}" in lines


def test_the_run_that_tells_most_comes_first() -> None:
    lost = judged("dummy-step-unguarded").result
    assert is_seen(lost.findings)
    unordered = judged("accepted-read-before-copy").result
    assert not is_seen(unordered.findings)
    quiet = with_signature(unordered, "a", scenario="quiet", verdict=Verdict.CONFLICT)
    plain = with_signature(unordered, "a", scenario="plain", verdict=Verdict.DIVERGENT)
    kept = [msgspec.structs.replace(one, signature="a") for one in lost.findings]
    seen = msgspec.structs.replace(lost, findings=tuple(kept), scenario="seen")
    passed = with_signature(unordered, "b", scenario="passed", verdict=Verdict.PROVED)
    (one,) = shared_findings([quiet, passed, plain, seen])
    assert one.scenarios == ("seen", "plain", "quiet")


def test_a_signature_is_told_once_by_the_run_that_tells_most() -> None:
    run = judged("accepted-read-before-copy").result
    told = [with_signature(run, name, scenario=where) for name, where in ("ax", "by", "az")]
    shared = SharedFinding(signature="a", seen=tuple((one, one.findings[0]) for one in told))
    assert list(map(id, shared.findings)) == [id(one.findings[0]) for one in told[:2]]


@pytest.mark.parametrize("count", [1, BLOCKS_MAX + 2])
def test_the_last_line_names_causes(count: int) -> None:
    run = judged("accepted-read-before-copy").result
    runs = [with_signature(run, f"s{n}", scenario=f"n{n}") for n in range(count)]
    told = [told_plainly(one) for one in shared_findings(runs)]
    said = last_line(told, scenarios=99)
    causes = "1 cause" if count == 1 else f"{count} causes"
    assert said.startswith(f"{causes} in {count} of 99 scenarios: s0")
    assert said.endswith(", ...") == (count > BLOCKS_MAX)


def raced(scenario: str, *edges: tuple[str, str], holds: tuple[str, ...] = ()) -> RunResult:
    """Races by signature and missing edge, of which a landing shows the last."""
    found = [
        msgspec.structs.replace(
            finding_of(msgspec.structs.replace(race(signature, "/w/pkg/a.py"), edge=edge)),
            verdict=Verdict.DIVERGENT,
            replay="racegate vllm run",
            holds=holds if signature == edges[-1][0] else (),
        )
        for signature, edge in edges
    ]
    return RunResult(
        scenario=scenario, device="virtual", verdict=Verdict.DIVERGENT, findings=tuple(found)
    )


SEEN = st.lists(
    st.tuples(st.sampled_from("pqrs"), st.sampled_from(["before a", "before b"])),
    unique_by=lambda one: one[0],
    min_size=1,
)


@given(SEEN, SEEN)
def test_conflicts_that_lack_one_edge_are_one_cause_in_every_form(
    one: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    runs = [raced("one", *one, holds=("x until y",)), raced("other", *other)]
    causes = shared_findings(runs)
    assert len(causes) == len({edge for _, edge in (*one, *other)})
    told = {finding.signature for cause in causes for finding in cause.findings}
    assert told == {signature for signature, _ in (*one, *other)}
    failing = [failing_in(run, {}, Benign.PASS) for run in runs]
    for seen, forms in zip((one, other), failing, strict=True):
        assert len(forms) == len({edge for _, edge in seen})
        assert {name for each in forms for name in (each.signature, *each.also)} == {
            signature for signature, _ in seen
        }
    shown = next(each for each in failing[0] if one[-1][0] in (each.signature, *each.also))
    assert shown.signature == one[-1][0], "the conflict that a run shows stands for its cause"


@given(SEEN, st.sets(st.sampled_from("pqrs")))
def test_a_cause_is_known_if_all_of_its_conflicts_are(
    seen: list[tuple[str, str]], known: set[str]
) -> None:
    run = raced("one", *seen)
    baseline = baseline_of(KnownFinding(scenario="one", signature=name) for name in known)
    ratchet = compared([run], baseline, benign=Benign.PASS)
    checked = checked_results([run], {}, code=1, ratchet=ratchet)
    assert checked.failing
    for each in checked.failing:
        assert each.is_known == ({each.signature, *each.also} <= known)


def test_a_cause_names_the_function_that_does_not_wait() -> None:
    (cause,) = shared_findings([raced("one", ("p", "wait"), ("q", "wait"))])
    facts = dict(told_plainly(cause).facts)
    assert facts["edge"] == "wait"
    assert facts["lacks it"] == "/w/pkg/a.py:5 in step, for /w/pkg/a.py:5 in step"
    assert facts["also"] == "1 more conflict of this edge: host (step)"
