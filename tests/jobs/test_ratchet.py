"""Baselines: what is known may disappear, and nothing may come. And what changed since a commit."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from program_verdicts import finding as race
from racegate.check.selfcheck import SelfCheck
from racegate.cli.app import app
from racegate.faults.catalogue import find_fault
from racegate.history.finding import Benign, Side, Verdict, finding_of
from racegate.history.gates.known import (
    BaselineFile,
    KnownFinding,
    KnownMode,
    KnownPlace,
    baseline_of,
    findings_of,
)
from racegate.history.gates.results import gated
from racegate.history.outcome import Comparison, RunResult
from racegate.jobs.gate import GateResult, GateSpec, GateStats
from racegate.jobs.ratchet import (
    BaselineError,
    compared,
    first_baseline,
    load_baseline,
    save_baseline,
    with_reason,
)
from racegate.jobs.selection import SelectionError, changed_files
from racegate.report.ci.failing import checked_gate
from racegate.scenario.files import load_all, scenario_paths
from support import SCENARIOS, checker


@cache
def wrong_run() -> RunResult:
    fault = find_fault("accepted-copy-after-row-move")
    return checker("finish-and-condense").run(fault=fault)


def runs(seen: dict[str, list[str]]) -> list[RunResult]:
    """A run for each scenario, with races of these signatures."""
    (finding, *_), found = wrong_run().findings, []
    for name, signatures in seen.items():
        findings = tuple(
            msgspec.structs.replace(finding, signature=signature) for signature in signatures
        )
        verdict = Verdict.CONFLICT if findings else Verdict.PROVED
        found.append(
            msgspec.structs.replace(wrong_run(), scenario=name, findings=findings, verdict=verdict)
        )
    return found


def gate_of(
    results: list[RunResult],
    known: tuple[KnownFinding, ...],
    mode: KnownMode = KnownMode.BASELINE,
) -> GateResult:
    stats = GateStats(
        scenarios=1, steps=1, ops=1, conflicts=0, findings=0, schedules=1, seconds=0.0
    )
    verdicts = [result.verdict for result in results]
    return GateResult(
        schema="racegate/1",
        verdict=Verdict.CONFLICT if Verdict.CONFLICT in verdicts else Verdict.PROVED,
        scenarios=tuple(results),
        must_fail=(),
        selfcheck=SelfCheck(),
        unmet=(),
        stats=stats,
        baseline=compared(
            results, baseline_of(known), benign=Benign.PASS, mode=mode, file="known.json"
        ),
    )


SEEN = st.dictionaries(
    st.sampled_from("ABC"), st.lists(st.sampled_from("xyz"), unique=True, max_size=3), min_size=1
)
KNOWN = st.sets(
    st.builds(KnownFinding, scenario=st.sampled_from("ABCD"), signature=st.sampled_from("wxyz"))
)


@given(SEEN, KNOWN)
def test_new_findings_fail_and_known_ones_do_not(
    seen: dict[str, list[str]], known: set[KnownFinding]
) -> None:
    results = runs(seen)
    gate = gate_of(results, tuple(known))
    assert gate.baseline is not None
    seen_keys = findings_of(results).keys()
    new = seen_keys - known
    assert set(gate.baseline.new) == new
    assert gate.baseline.known == tuple(sorted(seen_keys & known)), "in one order"
    assert (gate.exit_code == 1) == bool(new)
    assert gate.exit_code in (0, 1)


@given(SEEN, KNOWN)
def test_a_baseline_only_gets_smaller(seen: dict[str, list[str]], known: set[KnownFinding]) -> None:
    ratchet = compared(runs(seen), baseline_of(known), benign=Benign.PASS)
    assert set(ratchet.left.known) <= known
    assert set(ratchet.left.known) | set(ratchet.gone) == known
    assert all(one.scenario in seen for one in ratchet.gone)


def test_what_is_known_hides_nothing_that_was_not_exercised() -> None:
    results = runs({"A": ["x"], "B": []})
    cut = msgspec.structs.replace(results[1], verdict=Verdict.INCONCLUSIVE)
    known = (KnownFinding(scenario="A", signature="x"),)
    assert gate_of([results[0], results[1]], known).exit_code == 0
    assert gate_of([results[0], cut], known).exit_code == 4
    assert gate_of(results, ()).exit_code == 1


def meant(known: Iterable[KnownFinding]) -> tuple[KnownFinding, ...]:
    return with_reason(baseline_of(known), "meant").known


def differing(seen: dict[str, list[str]], *, unmet: tuple[str, ...] = ()) -> list[RunResult]:
    """The same as on a change that differs from its base by these."""
    return [
        msgspec.structs.replace(
            one, comparison=Comparison(base="its base", new=one.findings, unmet=unmet)
        )
        for one in runs(seen)
    ]


@given(SEEN, KNOWN)
def test_what_is_accepted_passes_and_what_of_it_is_gone_is_an_error(
    seen: dict[str, list[str]], known: set[KnownFinding]
) -> None:
    accepted = meant(known)
    for results in (runs(seen), differing(seen)):
        gate = gate_of(results, accepted, KnownMode.ACCEPTED)
        ratchet = gate.baseline
        assert ratchet is not None
        code = 1 if ratchet.new else 2 if ratchet.gone else 0
        assert gated(results, ratchet).exit_code == code
        if results[0].comparison is None:
            assert gate.exit_code == code
        stale = {one.signature for one in checked_gate(gate, {}).failing if one.kind == "stale"}
        assert stale == {one.name for one in ratchet.gone}
        assert {one.reason for one in (*ratchet.known, *ratchet.gone)} <= {"meant"}


@given(SEEN, KNOWN)
def test_accepting_what_is_found_lets_the_same_pass(
    seen: dict[str, list[str]], known: set[KnownFinding]
) -> None:
    """And nothing is taken out of the file that was not run."""
    results, before = differing(seen), with_reason(baseline_of(known), "meant")
    found = compared(results, before, benign=Benign.PASS, mode=KnownMode.ACCEPTED)
    written = with_reason(baseline_of((*found.left.known, *found.new)), "meant")
    again = compared(results, written, benign=Benign.PASS, mode=KnownMode.ACCEPTED)
    assert not (again.new or again.gone)
    assert again.kept == found.kept
    assert gated(results, again).exit_code == 0


def test_what_is_accepted_hides_nothing_that_the_change_did_not_exercise() -> None:
    known = (KnownFinding(scenario="A", signature="x", reason="meant"),)
    for unmet, code in (((), 0), (("no row moved",), 4)):
        results = differing({"A": ["x"]}, unmet=unmet)
        ratchet = compared(results, baseline_of(known), benign=Benign.PASS, mode=KnownMode.ACCEPTED)
        assert gated(results, ratchet).exit_code == code


def test_a_file_is_strict(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    with pytest.raises(BaselineError, match="--update-baseline writes it"):
        load_baseline(path)
    known = (KnownFinding(scenario="A", signature="x"),)
    save_baseline(path, baseline_of(known))
    assert load_baseline(path) == baseline_of(known)
    path.write_text(path.read_text().replace("racegate.baseline/1", "racegate.baseline/9"))
    with pytest.raises(BaselineError, match="this racegate reads"):
        load_baseline(path)
    path.write_text('{"schema": "racegate.baseline/1", "known": [{"scenario": "A"}]}')
    with pytest.raises(BaselineError, match="signature"):
        load_baseline(path)
    save_baseline(path, baseline_of(known))
    with pytest.raises(BaselineError, match="A: x has no reason"):
        load_baseline(path, KnownMode.ACCEPTED)
    save_baseline(path, baseline_of((*known, *meant(known))))
    with pytest.raises(BaselineError, match="A: x stands there 2 times"):
        load_baseline(path)
    with pytest.raises(BaselineError, match="--reason TEXT writes it"):
        load_baseline(tmp_path / "none.json", KnownMode.ACCEPTED)


def races(seen: dict[str, list[tuple[str, str]]]) -> list[RunResult]:
    """A run for each program, with a race for each file and function, all of different causes."""
    results = []
    for program, places in seen.items():
        found = [
            msgspec.structs.replace(
                race(f"{place}:{function}", place),
                cause=f"wait in {place}:{function}",
                first=msgspec.structs.replace(side(place), stack=((place, 5, function),)),
            )
            for place, function in places
        ]
        verdict = Verdict.CONFLICT if found else Verdict.PROVED
        results.append(
            RunResult(
                scenario=program,
                device="virtual",
                verdict=verdict,
                findings=tuple(map(finding_of, found)),
            )
        )
    return results


def side(place: str) -> Side:
    return race("any", place).second


PLACES = st.tuples(
    st.sampled_from(["/w/a.py", "/w/lib/b.py", "/w/lib/c.py"]), st.sampled_from("fgh")
)
PROGRAMS = st.dictionaries(st.sampled_from("PQ"), st.lists(PLACES, unique=True), min_size=1)
NAMED = st.lists(
    st.builds(
        KnownPlace,
        file=st.sampled_from(["a.py", "lib/*", "*.py", "other.py"]),
        function=st.sampled_from(["*", "f", "[gh]"]),
    ),
    unique_by=lambda one: one.name,
    max_size=3,
)


@given(PROGRAMS, NAMED)
def test_a_first_baseline_lets_all_stand_that_there_is_and_only_gets_smaller(
    seen: dict[str, list[tuple[str, str]]], named: list[KnownPlace]
) -> None:
    results = races(seen)
    first = first_baseline(results, named, benign=Benign.PASS)
    ratchet = compared(results, first, benign=Benign.PASS)
    assert not ratchet.new
    assert not ratchet.is_smaller
    assert ratchet.left == first
    told = {one for placed in ratchet.placed for one in placed.findings}
    assert ratchet.standing == {*first.known, *told}, "what stands is known or told with its place"
    silent = compared(races({name: [] for name in seen}), first, benign=Benign.PASS)
    assert silent.left == BaselineFile(schema=first.schema, known=())
    assert silent.stale == first.places


@given(PROGRAMS, PROGRAMS, NAMED)
def test_a_place_hides_no_cause_that_it_was_not_written_for(
    before: dict[str, list[tuple[str, str]]],
    after: dict[str, list[tuple[str, str]]],
    named: list[KnownPlace],
) -> None:
    first = first_baseline(races(before), named, benign=Benign.PASS)
    ratchet = compared(races(after), first, benign=Benign.PASS)
    for placed in ratchet.placed:
        most = placed.place.causes_max
        assert most is not None
        if len(placed.causes) > most:
            assert placed.is_outgrown
    for one in ratchet.standing - set(ratchet.known):
        letting = [p for p in ratchet.placed if one in p.findings and not p.is_outgrown]
        assert letting, one
    assert set(ratchet.new) | ratchet.standing == findings_of(races(after)).keys()
    smaller = {place.name: place.causes_max or 0 for place in ratchet.left.places}
    assert all(smaller[place.name] <= (place.causes_max or 0) for place in ratchet.left.places)
    assert set(smaller) <= {place.name for place in first.places}


def test_a_place_that_is_outgrown_lets_nothing_stand() -> None:
    place = KnownPlace(file="lib/*", causes_max=1, reason="not ours")
    baseline = baseline_of((), [place])
    one = races({"P": [("/w/lib/b.py", "f")]})
    assert compared(one, baseline, benign=Benign.PASS).lets_stand(one[0])
    two = races({"P": [("/w/lib/b.py", "f"), ("/w/lib/b.py", "g")]})
    ratchet = compared(two, baseline, benign=Benign.PASS)
    assert not ratchet.lets_stand(two[0])
    assert len(ratchet.new) == 2
    other = races({"P": [("/w/lib/b.py", "f"), ("/w/a.py", "f")]})
    assert not compared(other, baseline, benign=Benign.PASS).lets_stand(other[0])


def test_a_place_without_scenarios_is_kept(tmp_path: Path) -> None:
    """Written by hand, it may be of a program that was not run."""
    path = tmp_path / "b.json"
    path.write_text('{"schema": "racegate.baseline/1", "known": [], "places": [{"file": "lib/*"}]}')
    ratchet = compared(races({"P": []}), load_baseline(path), benign=Benign.PASS)
    assert not ratchet.stale
    assert ratchet.left.places == (KnownPlace(file="lib/*"),)


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_what_changed_is_run_and_all_of_it_if_a_source_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("stop_token.toml", "length_limit.toml"):
        (scripts / name).write_text((SCENARIOS / name).read_text())
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    monkeypatch.chdir(tmp_path)
    whole = GateSpec(scenarios=tuple(load_all(scenario_paths(Path("scripts")))))
    gate = ["gate", "--scenarios", "scripts", "--changed", "HEAD"]
    none = CliRunner().invoke(app, gate)
    assert none.exit_code == 0
    assert "no scenario or witness differs from HEAD" in none.stderr
    (tmp_path / "notes.md").write_text("new")
    (scripts / "stop_token.toml").write_text((SCENARIOS / "stop_token.toml").read_text() + "\n")
    assert whole.among(changed_files("HEAD")).names == ("stop-token",)
    (tmp_path / "runner.py").write_text("new")
    assert whole.among(changed_files("HEAD")) == whole
    for ref in ("nowhere", "--output=x"):
        with pytest.raises(SelectionError, match="--changed"):
            changed_files(ref)
