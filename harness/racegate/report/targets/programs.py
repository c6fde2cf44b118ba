"""The verdict on a program as text, and for CI services."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from racegate.history.finding import FindingKind, Race, by_cause
from racegate.history.outcome import Checked, CheckedCase, Failing
from racegate.scenario.untrusted.text import many
from racegate.targets.program.judge import (
    ProgramRace,
    ProgramSearch,
    ProgramVerdict,
    unjudged,
)
from racegate.targets.program.words import (
    cause_lines,
    closing,
    difference,
    finding_lines,
    not_covered,
    rank_lines,
    replay_of,
    shown,
)


def render(
    verdicts: ProgramVerdict, command: str, written: Mapping[str, Sequence[str]] | None = None
) -> str:
    """What a person reads after a run: findings, what was not seen, one closing line.

    command: the script with its arguments; written: by signature, what was written of its cause
    """
    outcome = verdicts.shown
    judged = {one.race.signature: one for one in verdicts.judged}
    reasons = {s.signature: s.reason for s in verdicts.suppressed}
    lines: list[str] = []
    for index, disagreement in enumerate(verdicts.disagreements, 1):
        lines += rank_lines(index, disagreement)
    for finding in outcome.findings:
        if finding.signature in reasons:
            lines += _suppressed(finding, reasons[finding.signature])
    standing = by_cause(tuple(race for race in outcome.findings if race.signature not in reasons))
    for index, findings in enumerate(standing, 1):
        lines += cause_lines(index, findings, judged, command)[:-1]
        files = [(written or {}).get(race.signature, ()) for race in findings]
        lines += [f"  file    {text}" for text in next(filter(None, files), ())]
        lines.append("")
    if verdicts.polls_matter:
        lines += _polls(verdicts)
    if verdicts.changes:
        lines += _changes(verdicts)
    if outcome.realised:
        lines += [f"hold kept {count} back: {hold}" for hold, count in outcome.realised.items()]
        lines += [f"observed {shown(item)}" for item in outcome.observations]
    if verdicts.holds and not verdicts.changes:
        lines.append(verdicts.text)
    lines += [f"no pass: {reason}" for reason in unjudged(verdicts.shown)]
    lines += not_covered(verdicts)
    if verdicts.search is not None:
        lines += _search(verdicts.search, verdicts)
    for stale in verdicts.stale:
        lines.append(
            f"stale suppression {stale.signature}: nothing in this run has this signature; remove "
            f"it, or its reason is no longer true: {stale.reason}"
        )
    return "\n".join([*lines, closing(verdicts)])


def checked_program(verdicts: ProgramVerdict, command: str, code: int | None = None) -> Checked:
    """One case, for a CI service: what is wrong with the program, finding by finding.

    command: as of `render`; code: what the job ends with, if not as the verdict says
    """
    judged = {one.race.signature: one for one in verdicts.judged}
    still_open = verdicts.open_findings
    known = {one.signature for one in verdicts.suppressed}
    failing = [
        _failing(
            finding, judged.get(finding.signature), command, is_known=finding not in still_open
        )
        for finding in verdicts.shown.findings
        if finding in still_open or finding.signature in known
    ]
    outcome = verdicts.shown
    for one in verdicts.disagreements:
        failing.append(_said(command, one.kind, one.signature, rank_lines(1, one)))
    if verdicts.polls_matter:
        failing.append(_said(command, "divergence", "answers to queries", _polls(verdicts)))
    if verdicts.changes:
        failing.append(_said(command, "divergence", "holds", _changes(verdicts)))
    elif not verdicts.is_finished and not verdicts.disagreements:
        failing.append(_said(command, "inconclusive", str(outcome.ending), [closing(verdicts)]))
    for reason in unjudged(verdicts.shown):
        failing.append(_said(command, "inconclusive", "not judged", [reason]))
    for stale in verdicts.stale:
        failing.append(_said(command, "inconclusive", "stale suppression", [stale.signature]))
    case = CheckedCase(
        group="programs", name=command, said=closing(verdicts), failing=tuple(failing)
    )
    return Checked(
        cases=(case,),
        exit_code=verdicts.exit_code if code is None else code,
        has_baseline=bool(known),
    )


def _failing(finding: Race, judged: ProgramRace | None, command: str, *, is_known: bool) -> Failing:
    stack = finding.first.stack
    landing = None if judged is None else judged.landing
    replay = "" if landing is None else replay_of(landing, command)
    told = [line for line in finding_lines(1, finding, judged, command) if line]
    return Failing(
        name=command,
        file=_from_here(stack[0][0]) if stack else "",
        line=max(1, stack[0][1]) if stack else 1,
        kind=FindingKind.DIVERGENCE if replay else FindingKind.CONFLICT,
        signature=finding.signature,
        message="\n".join(told[:-1] if replay else told),
        replay=replay,
        is_known=is_known,
    )


def _said(command: str, kind: str, signature: str, lines: list[str]) -> Failing:
    text = "\n".join(filter(None, lines))
    return Failing(name=command, file="", kind=kind, signature=signature, message=text)


def _from_here(path: str) -> str:
    """A file below this folder by its path from here: so a CI service finds it."""
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here)


def _search(search: ProgramSearch, verdicts: ProgramVerdict) -> list[str]:
    """How it was searched, and what is left where something has not shown."""
    text = f"search: {many(search.runs, 'run')} under full deferral"
    if search.is_interrupted:
        text += ", interrupted"
    if all(one.landing is not None for one in search.races):
        return [text]
    if search.is_complete:
        text += f", every landing tried: {search.tried.text}"
    elif search.left:
        text += f", not every landing tried: {search.left} combinations are left (--runs)"
    lines = [text, *(f"  {limit}" for limit in search.limits)]
    if not verdicts.shown.observations:
        lines.append("nothing was observed: mark values with racegate.observe(name, value)")
    return lines


def _suppressed(finding: Race, reason: str) -> list[str]:
    where = f"{finding.first.place} and {finding.second.place}"
    return [f"suppressed [{finding.signature}] {finding.buffer}, {where}: {reason}", ""]


def _polls(verdicts: ProgramVerdict) -> list[str]:
    assert verdicts.polled is not None
    head = 'DIVERGENT completion queries that are first answered "not ready" change: '
    how = "with these answers"
    return [
        head + ", ".join(verdicts.polls_matter),
        *difference(verdicts.shown.observations, verdicts.polled.observations, how),
        "",
    ]


def _changes(verdicts: ProgramVerdict) -> list[str]:
    expected, actual = verdicts.base.observations, verdicts.shown.observations
    return [
        "DIVERGENT the holds change: " + ", ".join(verdicts.changes),
        *difference(expected, actual, "with the hold"),
        "",
    ]
