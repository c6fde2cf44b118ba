"""The verdict as text."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import zip_longest

from racegate.history.finding import FindingKind, Race, Side, Verdict
from racegate.history.outcome import Checked, CheckedCase, Failing
from racegate.interpose.outcome import Ending, Observation, Outcome
from racegate.targets.program.explore import Judged, Search
from racegate.targets.program.judge import Verdicts

_STACK_MAX = 4
COMMAND = "racegate torch run"


def render(verdicts: Verdicts, command: str) -> str:
    """What a person reads after a run: findings, what was not seen, one closing line.

    command: the script with its arguments
    """
    outcome = verdicts.outcome
    judged = {j.signature: j for j in verdicts.search.judged} if verdicts.search else {}
    reasons = {s.signature: s.reason for s in verdicts.suppressed}
    lines: list[str] = []
    for index, finding in enumerate(outcome.findings, 1):
        if finding.signature in reasons:
            lines += _suppressed(finding, reasons[finding.signature])
        else:
            lines += _finding(index, finding, judged.get(finding.signature), command)
    if verdicts.polls_matter:
        lines += _polls(verdicts)
    if verdicts.changes:
        lines += _changes(verdicts)
    if outcome.realised:
        lines += [f"hold kept {count} back: {hold}" for hold, count in outcome.realised.items()]
        lines += [f"observed {_shown(item)}" for item in outcome.observations]
    if verdicts.unheld is not None and not verdicts.changes:
        lines.append(verdicts.text)
    lines += _not_covered(verdicts)
    if verdicts.search is not None:
        lines += _search(verdicts.search, outcome)
    for stale in verdicts.stale:
        lines.append(
            f"stale suppression {stale.signature}: nothing in this run has this signature; remove "
            f"it, or its reason is no longer true: {stale.reason}"
        )
    return "\n".join([*lines, _closing(verdicts)])


def checked_program(verdicts: Verdicts, command: str) -> Checked:
    """One case, for a CI service: what is wrong with the program, finding by finding.

    command: as of `render`
    """
    judged = {j.signature: j for j in verdicts.search.judged} if verdicts.search else {}
    still_open = verdicts.open_findings
    known = {one.signature for one in verdicts.suppressed}
    failing = [
        _failing(
            finding, judged.get(finding.signature), command, is_known=finding not in still_open
        )
        for finding in verdicts.outcome.findings
        if finding in still_open or finding.signature in known
    ]
    outcome = verdicts.outcome
    if verdicts.polls_matter:
        failing.append(_said(command, "divergence", "answers to queries", _polls(verdicts)))
    if verdicts.changes:
        failing.append(_said(command, "divergence", "holds", _changes(verdicts)))
    elif outcome.ending is not Ending.FINISHED:
        failing.append(_said(command, "inconclusive", str(outcome.ending), [_closing(verdicts)]))
    for stale in verdicts.stale:
        failing.append(_said(command, "inconclusive", "stale suppression", [stale.signature]))
    case = CheckedCase(
        group="programs", name=command, said=_closing(verdicts), failing=tuple(failing)
    )
    return Checked(cases=(case,), exit_code=verdicts.exit_code, has_baseline=bool(known))


def _failing(finding: Race, judged: Judged | None, command: str, *, is_known: bool) -> Failing:
    stack = finding.first.stack
    diverges = judged is not None and judged.verdict is Verdict.DIVERGENT
    replay = "" if judged is None else replay_of(judged, command)
    told = [line for line in _finding(1, finding, judged, command) if line]
    return Failing(
        name=command,
        file=_from_here(stack[0][0]) if stack else "",
        line=max(1, stack[0][1]) if stack else 1,
        kind=FindingKind.DIVERGENCE if diverges else FindingKind.CONFLICT,
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


def render_findings(findings: Iterable[Race]) -> str:
    """Findings that no search was made for."""
    return "\n".join(
        line for index, one in enumerate(findings, 1) for line in _finding(index, one, None, "")
    )


def _not_covered(verdicts: Verdicts) -> list[str]:
    """What no run of these says anything about."""
    lines = [f"  {count} x {text}" for text, count in sorted(verdicts.outcome.not_seen.items())]
    polled = verdicts.polled
    if polled is not None and polled.ending is Ending.TIMED_OUT:
        lines.append('  a run in which queries are first answered "not ready": it did not end')
    if polled is not None and polled.ending is Ending.NOT_MODELLED:
        lines.append(
            f'  a run in which queries are first answered "not ready": not modelled: '
            f"{polled.message}"
        )
    return ["not covered by this verdict:", *lines] if lines else []


def _search(search: Search, outcome: Outcome) -> list[str]:
    """How it was searched, and what is left where something has not shown."""
    text = f"search: {search.runs} runs under {search.deferral} deferral"
    if search.is_interrupted:
        text += ", interrupted"
    if all(judged.verdict is Verdict.DIVERGENT for judged in search.judged):
        return [text]
    if search.is_complete:
        text += f", every landing tried: {search.tried.text}"
    elif search.left:
        text += f", not every landing tried: {search.left} combinations are left (--runs)"
    lines = [text, *(f"  {limit}" for limit in search.limits)]
    if not outcome.observations:
        lines.append("nothing was observed: mark values with racegate.observe(name, value)")
    return lines


def _suppressed(finding: Race, reason: str) -> list[str]:
    where = f"{finding.first.place} and {finding.second.place}"
    return [f"suppressed [{finding.signature}] {finding.buffer}, {where}: {reason}", ""]


def _finding(index: int, finding: Race, judged: Judged | None, command: str) -> list[str]:
    times = f", {finding.count} times" if finding.count > 1 else ""
    verdict = judged.verdict if judged is not None else Verdict.CONFLICT
    return [
        f"{verdict} {index} [{finding.signature}] {finding.buffer}: {finding.nbytes} bytes{times}",
        *_side("first ", finding.first),
        *_side("second", finding.second),
        f"  edge    {finding.edge}",
        *(_divergence(judged, command) if judged is not None and judged.hold else []),
        "",
    ]


def _divergence(judged: Judged, command: str) -> list[str]:
    lines = [f"  ended   {judged.ending}"] if judged.ending else []
    lines += difference(judged.expected, judged.actual, "with the hold")
    return [*lines, f"  replay  {replay_of(judged, command)}"]


def replay_of(judged: Judged, command: str) -> str:
    """What shows a finding again; empty if no hold does. command: as of `render`"""
    if not judged.hold:
        return ""
    holds = " ".join(f"--hold '{operation} until {until}'" for operation, until in judged.hold)
    polls = f"--not-ready {judged.polls} " if judged.polls else ""
    return f"{COMMAND} {polls}{holds} {command}"


def difference(
    expected: tuple[Observation, ...], actual: tuple[Observation, ...], how: str
) -> list[str]:
    """The first observation that differs."""
    for item, other in zip_longest(expected, actual):
        if item is None:
            return [f"  value   {_shown(other)} {how} alone"]
        if other is None or other != item:
            seen = other.preview if other is not None else "nothing"
            return [f"  value   {_shown(item)}; {how} {seen}"]
    return []


def _polls(verdicts: Verdicts) -> list[str]:
    assert verdicts.polled is not None
    head = 'DIVERGENT completion queries that are first answered "not ready" change: '
    how = "with these answers"
    return [
        head + ", ".join(verdicts.polls_matter),
        *difference(verdicts.outcome.observations, verdicts.polled.observations, how),
        "",
    ]


def _changes(verdicts: Verdicts) -> list[str]:
    assert verdicts.unheld is not None
    expected, actual = verdicts.unheld.observations, verdicts.outcome.observations
    return [
        "DIVERGENT the holds change: " + ", ".join(verdicts.changes),
        *difference(expected, actual, "with the hold"),
        "",
    ]


def _shown(item: Observation) -> str:
    return f"{item.name} = {item.preview}"


def _side(name: str, side: Side) -> list[str]:
    verb = "writes" if side.is_write else "reads"
    head = f"  {name}  {side.operation} {verb} it on {side.lane}"
    frames = [
        f"            {file}:{line} in {code}" for file, line, code in side.stack[:_STACK_MAX]
    ]
    return [head, *frames]


def _closing(verdicts: Verdicts) -> str:
    outcome = verdicts.outcome
    if outcome.ending is Ending.NOT_MODELLED:
        return f"racegate: not modelled: {outcome.message}"
    if outcome.ending in (Ending.LOST, Ending.TIMED_OUT):
        return f"racegate: {outcome.message}"
    text = (
        f"racegate: {_counted(verdicts)} in {outcome.events} events (torch {outcome.torch_version})"
    )
    if outcome.ending is Ending.FAILED:
        why = outcome.message or f"it ended with exit code {outcome.exit_code}"
        return f"{text}; the script failed by itself: {why}"
    if outcome.ending is Ending.INTERRUPTED:
        return f"{text}, as far as it came: interrupted"
    return text


def _counted(verdicts: Verdicts) -> str:
    count = len(verdicts.outcome.findings)
    found = f"{count} conflict{'s' if count != 1 else ''}" if count else "no conflict"
    hidden = len({s.signature for s in verdicts.suppressed})
    return f"{found}, {hidden} of them suppressed," if hidden else found
