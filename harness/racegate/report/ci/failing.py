"""What of a gate has to be looked at, as all forms of CI tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from racegate.history.exit_code import ExitCode
from racegate.history.finding import FindingKind, exit_code, signature_of
from racegate.history.outcome import RunResult
from racegate.jobs.gate import GateResult

# Scenario -> the file that it comes from.
Files = Mapping[str, str]


class Failing(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong.

    group: scenarios, witnesses or self-check; name: of a scenario or of a witness's file
    kind: of the finding, `inconclusive`, `missed` or `broken`; signature: what it is known by
    message: a paragraph; replay: the command that shows it again, empty if there is none
    is_known: it stands in the baseline
    """

    group: str
    name: str
    file: str
    kind: str
    signature: str
    message: str
    replay: str = ""
    is_known: bool = False


KINDS = {
    FindingKind.CONFLICT: "Two accesses that nothing orders",
    FindingKind.DIVERGENCE: "A value that is not the reference's",
    FindingKind.OWNERSHIP: "A value of another request or step",
    FindingKind.INVARIANT: "A law of the runner that does not hold",
    FindingKind.LOSS: "Tokens that plain decoding does not give",
    FindingKind.DEADLOCK: "A wait that nothing can end",
    FindingKind.CRASH: "The engine stopped on an error",
    "inconclusive": "Something was not exercised",
    "missed": "A witness that must fail did not",
    "broken": "The harness failed a check of its own",
}


def failing_of(result: GateResult, files: Files) -> list[Failing]:
    """In the order of the gate: one for each scenario or witness that did not pass."""
    found = [one for run in result.scenarios if (one := _of_run(run, result, files)) is not None]
    found += [
        Failing(
            group="witnesses",
            name=entry.witness.rpartition("/")[2],
            file=entry.witness,
            kind="missed",
            signature=entry.expected_signature,
            message=f"{entry.outcome}: expected {entry.expected_signature}, seen "
            f"{entry.signature or 'no finding'}",
            replay=f"racegate replay {entry.witness}",
        )
        for entry in result.must_fail
        if entry.is_missed
    ]
    if result.unmet:
        found.append(_unexercised("self-check", "gate", "", result.unmet))
    said = [*(breakage.text for breakage in result.breakages), *result.selfcheck.problems]
    return found + ([_broken("self-check", "gate", "", "\n".join(said))] if said else [])


def _of_run(run: RunResult, result: GateResult, files: Files) -> Failing | None:
    file = files.get(run.scenario, "")
    code = exit_code([run.verdict], benign=result.benign)
    if code is ExitCode.CLEAN:
        return None
    if code is ExitCode.BROKEN_HARNESS:
        return _broken(
            "scenarios", run.scenario, file, "\n".join(one.text for one in run.breakages)
        )
    if code is ExitCode.INCONCLUSIVE:
        return _unexercised("scenarios", run.scenario, file, run.unmet)
    cause = run.findings[0]  # causes stand before effects
    return Failing(
        group="scenarios",
        name=run.scenario,
        file=file,
        kind=cause.kind,
        signature=signature_of(run.findings) or cause.signature,
        message=cause.message,
        replay=cause.replay,
        is_known=result.baseline is not None and result.baseline.lets_stand(run),
    )


def _unexercised(group: str, name: str, file: str, unmet: Sequence[str]) -> Failing:
    text = f"not exercised: {'; '.join(unmet)}"
    return Failing(
        group=group, name=name, file=file, kind="inconclusive", signature=text, message=text
    )


def _broken(group: str, name: str, file: str, text: str) -> Failing:
    return Failing(
        group=group, name=name, file=file, kind="broken", signature="broken harness", message=text
    )
