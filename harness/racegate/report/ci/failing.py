"""What of a job has to be looked at, as all forms of CI tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.finding import (
    Benign,
    Finding,
    FindingKind,
    Verdict,
    exit_code,
    one_per_cause,
    signature_of,
)
from racegate.history.gates.known import KnownFinding, KnownPlace, Ratchet
from racegate.history.outcome import Checked, CheckedCase, Comparison, Failing, RunResult
from racegate.jobs.gate import GateResult, MustFail
from racegate.scenario.untrusted.text import many

# Scenario -> the file that it comes from.
Files = Mapping[str, str]

KINDS = {
    FindingKind.CONFLICT: "Two accesses that nothing orders",
    FindingKind.DIVERGENCE: "A value that is not the reference's",
    FindingKind.OWNERSHIP: "A value of another request or step",
    FindingKind.PAGE: "A block of another owner, or a copy of it at a wrong time",
    FindingKind.INVARIANT: "A law of the runner that does not hold",
    FindingKind.LOSS: "Tokens that plain decoding does not give",
    FindingKind.DEADLOCK: "A wait that nothing can end",
    FindingKind.CRASH: "The engine stopped on an error",
    FindingKind.FOOTPRINT: "An operation wrote rows that it had not declared",
    FindingKind.CHANGE: "A value that the base does not have",
    FindingKind.MISMATCH: "Ranks that issue different collectives where one is meant",
    FindingKind.ORDER: "Ranks that use two communicators in opposite orders",
    "inconclusive": "Something was not exercised",
    "missed": "A witness that must fail did not",
    "stale": "Something was accepted that is not there any more",
    "broken": "The harness failed a check of its own",
}


def checked_gate(result: GateResult, files: Files) -> Checked:
    """A case for each scenario and for each witness, in the order of the gate, and its own."""
    scenarios = [_of_run(run, result, files) for run in result.scenarios]
    witnesses = [_of_witness(entry) for entry in result.must_fail]
    wrong = [_unexercised("gate", "", result.unmet)] if result.unmet else []
    said = [*(breakage.text for breakage in result.breakages), *result.selfcheck.problems]
    wrong += [_broken("gate", "", "\n".join(said))] if said else []
    itself = CheckedCase(group="self-check", name="gate", failing=tuple(wrong))
    cases = (*scenarios, *witnesses, itself)
    known = result.baseline
    return Checked(
        cases=cases if known is None else (*cases, *_stale_in(known)),
        exit_code=result.exit_code,
        has_baseline=known is not None,
    )


def _of_run(run: RunResult, result: GateResult, files: Files) -> CheckedCase:
    """What is wrong with it is known by all that is, or not at all."""
    wrong = failing_run(run, files, result.benign)
    known = result.baseline
    if wrong is not None and known is not None and known.lets_stand(run):
        wrong = _known(wrong, known)
    return _case(run, () if wrong is None else (wrong,))


def _case(run: RunResult, wrong: Sequence[Failing], skipped: str = "") -> CheckedCase:
    searched = f"verdict: {run.text}, schedules: {run.stats.schedules}"
    return CheckedCase(
        group="scenarios",
        name=run.scenario,
        seconds=run.stats.seconds,
        said="; ".join([searched, *(f"warning: {change.text}" for change in run.resolved)]),
        skipped=skipped,
        failing=tuple(wrong),
    )


def _of_witness(entry: MustFail) -> CheckedCase:
    name = entry.witness.rpartition("/")[2]
    missed = Failing(
        name=name,
        file=entry.witness,
        kind="missed",
        signature=entry.expected_signature,
        message=f"{entry.outcome}: expected {entry.expected_signature}, seen "
        f"{entry.signature or 'no finding'}",
        replay=f"racegate replay {entry.witness}",
    )
    return CheckedCase(group="witnesses", name=name, failing=(missed,) if entry.is_missed else ())


def checked_results(
    results: Sequence[RunResult],
    files: Files,
    *,
    code: int,
    benign: Benign = Benign.PASS,
    ratchet: Ratchet | None = None,
) -> Checked:
    """A case for each scenario on a target; what it does not run is skipped. benign: what BENIGN is
    code: what the job ends with; ratchet: beside the findings that are known
    """
    cases = [
        _case(result, () if result.refused else failing_in(result, files, benign), result.refused)
        for result in results
    ]
    checked = Checked(cases=tuple(cases), exit_code=code)
    return checked if ratchet is None else checked_beside(checked, ratchet)


def checked_beside(checked: Checked, ratchet: Ratchet) -> Checked:
    """A job with a file of known findings: what stands in it is known, and what was accepted and is
    not there any more is wrong.
    """
    cases = [
        msgspec.structs.replace(case, failing=tuple(_known(one, ratchet) for one in case.failing))
        for case in checked.cases
    ]
    return msgspec.structs.replace(checked, cases=(*cases, *_stale_in(ratchet)), has_baseline=True)


def _known(one: Failing, ratchet: Ratchet) -> Failing:
    """With why it is let stand, if all of its cause is."""
    names = (one.signature, *one.also)
    reason, *others = (ratchet.reason_of(one.name, signature) for signature in names)
    is_open = reason is None or None in others
    return one if is_open else msgspec.structs.replace(one, is_known=True, reason=reason)


def _stale_in(ratchet: Ratchet) -> Sequence[CheckedCase]:
    stale = tuple(_stale(one, ratchet.file) for one in ratchet.expired)
    return [CheckedCase(group="accepted", name=ratchet.file, failing=stale)] if stale else []


def _stale(one: KnownFinding | KnownPlace, file: str) -> Failing:
    message = (
        f"{one.name} was accepted ({one.reason}) and is not seen any more: "
        "--update-accepted drops it"
    )
    return Failing(name=file, file=file, kind="stale", signature=one.name, message=message)


def failing_in(run: RunResult, files: Files, benign: Benign) -> Sequence[Failing]:
    """What is wrong with a run, cause by cause where findings have verdicts of their own, as those
    of releases have. Beside a base, what it has not.
    """
    if run.comparison is not None:
        return _failing_beside(run, run.comparison, files.get(run.scenario, ""))
    whole = failing_run(run, files, benign)
    wrong = [
        found
        for found in run.findings
        if found.verdict is None or exit_code([found.verdict], benign=benign)
    ]
    if whole is None or all(found.verdict is None for found in wrong):
        return () if whole is None else (whole,)
    return _failing_causes(run, wrong, whole.file)


def _failing_beside(run: RunResult, beside: Comparison, file: str) -> Sequence[Failing]:
    found = _failing_causes(run, beside.findings, file)
    return [*found, *([_unexercised(run.scenario, file, beside.unmet)] if beside.unmet else [])]


def _failing_causes(run: RunResult, findings: Sequence[Finding], file: str) -> Sequence[Failing]:
    """One of each cause, that which a run shows if there is one, with the names of the others."""
    failing = []
    for cause in one_per_cause(findings):
        told = next((one for one in cause if one.holds), cause[0])
        also = tuple(one.signature for one in cause if one is not told)
        more = (
            f"\n{many(len(also), 'more conflict')} of this edge: {', '.join(also)}" if also else ""
        )
        one = _failing_of(run, told, file)
        failing.append(msgspec.structs.replace(one, message=f"{one.message}{more}", also=also))
    return failing


def _failing_of(run: RunResult, found: Finding, file: str) -> Failing:
    diverges = found.verdict is Verdict.DIVERGENT
    place = _place_in(found)
    return Failing(
        name=run.scenario,
        file=file if place is None else place[0],
        line=1 if place is None else place[1],
        kind=FindingKind.DIVERGENCE if diverges else found.kind,
        signature=found.signature,
        message=found.message,
        replay=found.replay,
    )


def _place_in(found: Finding) -> tuple[str, int] | None:
    """The file and line of its first access in this folder, by its path from here: of a checkout
    that is judged where it lies.
    """
    sides = () if found.race is None else (found.race.first, found.race.second)
    for file, line, _ in (frame for side in sides for frame in side.stack):
        path = Path(file)
        if line > 0 and path.is_absolute() and path.is_relative_to(Path.cwd()):
            return str(path.relative_to(Path.cwd())), line
    return None


def failing_run(run: RunResult, files: Files, benign: Benign = Benign.PASS) -> Failing | None:
    """What is wrong with a run; None if it passed."""
    file = files.get(run.scenario, "")
    code = exit_code([run.verdict], benign=benign)
    if code is ExitCode.CLEAN:
        return None
    if code is ExitCode.BROKEN_HARNESS:
        return _broken(run.scenario, file, "\n".join(one.text for one in run.breakages))
    if code is ExitCode.INCONCLUSIVE:
        return _unexercised(run.scenario, file, [*run.unmet, *filter(None, [run.message])])
    cause = run.findings[0]  # causes stand before effects
    return Failing(
        name=run.scenario,
        file=file,
        kind=cause.kind,
        signature=signature_of(run.findings) or cause.signature,
        message=cause.message,
        replay=cause.replay,
    )


def _unexercised(name: str, file: str, unmet: Sequence[str]) -> Failing:
    text = f"not exercised: {'; '.join(unmet)}"
    return Failing(name=name, file=file, kind="inconclusive", signature=text, message=text)


def _broken(name: str, file: str, text: str) -> Failing:
    return Failing(name=name, file=file, kind="broken", signature="broken harness", message=text)
