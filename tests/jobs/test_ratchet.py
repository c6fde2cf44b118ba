"""Baselines: what is known may disappear, and nothing may come. And what changed since a commit."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from racegate.check.selfcheck import SelfCheck
from racegate.cli.app import app
from racegate.faults.catalogue import find_fault
from racegate.history.finding import Benign, Verdict
from racegate.history.gates.known import KnownFinding, KnownMode, findings_of
from racegate.history.gates.results import gated
from racegate.history.outcome import Comparison, RunResult
from racegate.jobs.gate import GateResult, GateSpec, GateStats
from racegate.jobs.ratchet import BaselineError, compared, load_known, save_known, with_reason
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
        baseline=compared(results, known, benign=Benign.PASS, mode=mode, file="known.json"),
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
    new = findings_of(results) - known
    assert set(gate.baseline.new) == new
    assert gate.baseline.known == tuple(sorted(findings_of(results) & known)), "in one order"
    assert (gate.exit_code == 1) == bool(new)
    assert gate.exit_code in (0, 1)


@given(SEEN, KNOWN)
def test_a_baseline_only_gets_smaller(seen: dict[str, list[str]], known: set[KnownFinding]) -> None:
    ratchet = compared(runs(seen), known, benign=Benign.PASS)
    assert set(ratchet.left) <= known
    assert set(ratchet.left) | set(ratchet.gone) == known
    assert all(one.scenario in seen for one in ratchet.gone)


def test_what_is_known_hides_nothing_that_was_not_exercised() -> None:
    results = runs({"A": ["x"], "B": []})
    cut = msgspec.structs.replace(results[1], verdict=Verdict.INCONCLUSIVE)
    known = (KnownFinding(scenario="A", signature="x"),)
    assert gate_of([results[0], results[1]], known).exit_code == 0
    assert gate_of([results[0], cut], known).exit_code == 4
    assert gate_of(results, ()).exit_code == 1


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
    accepted = with_reason(known, "meant")
    for results in (runs(seen), differing(seen)):
        gate = gate_of(results, accepted, KnownMode.ACCEPTED)
        ratchet = gate.baseline
        assert ratchet is not None
        code = 1 if ratchet.new else 2 if ratchet.gone else 0
        whole = msgspec.structs.replace(gated(results), baseline=ratchet)
        assert whole.exit_code() == code
        if results[0].comparison is None:
            assert gate.exit_code == code
        stale = {one.signature for one in checked_gate(gate, {}).failing if one.kind == "stale"}
        assert stale == {one.signature for one in ratchet.gone}
        assert {one.reason for one in (*ratchet.known, *ratchet.gone)} <= {"meant"}


@given(SEEN, KNOWN)
def test_accepting_what_is_found_lets_the_same_pass(
    seen: dict[str, list[str]], known: set[KnownFinding]
) -> None:
    """And nothing is taken out of the file that was not run."""
    results = differing(seen)
    found = compared(results, known, benign=Benign.PASS, mode=KnownMode.ACCEPTED)
    written = (*found.left, *with_reason(found.new, "meant"))
    again = compared(results, written, benign=Benign.PASS, mode=KnownMode.ACCEPTED)
    assert not (again.new or again.gone)
    assert again.kept == found.kept
    assert msgspec.structs.replace(gated(results), baseline=again).exit_code() == 0


def test_what_is_accepted_hides_nothing_that_the_change_did_not_exercise() -> None:
    known = (KnownFinding(scenario="A", signature="x", reason="meant"),)
    for unmet, code in (((), 0), (("no row moved",), 4)):
        results = differing({"A": ["x"]}, unmet=unmet)
        ratchet = compared(results, known, benign=Benign.PASS, mode=KnownMode.ACCEPTED)
        assert msgspec.structs.replace(gated(results), baseline=ratchet).exit_code() == code


def test_a_file_is_strict(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    with pytest.raises(BaselineError, match="--update-baseline writes it"):
        load_known(path)
    known = (KnownFinding(scenario="A", signature="x"),)
    save_known(path, known)
    assert load_known(path) == known
    path.write_text(path.read_text().replace("racegate.baseline/1", "racegate.baseline/9"))
    with pytest.raises(BaselineError, match="this racegate reads"):
        load_known(path)
    path.write_text('{"schema": "racegate.baseline/1", "known": [{"scenario": "A"}]}')
    with pytest.raises(BaselineError, match="signature"):
        load_known(path)
    save_known(path, known)
    with pytest.raises(BaselineError, match="A: x has no reason"):
        load_known(path, KnownMode.ACCEPTED)
    save_known(path, (*known, *with_reason(known, "meant")))
    with pytest.raises(BaselineError, match="A: x stands there 2 times"):
        load_known(path)
    with pytest.raises(BaselineError, match="--reason TEXT writes it"):
        load_known(tmp_path / "none.json", KnownMode.ACCEPTED)


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
