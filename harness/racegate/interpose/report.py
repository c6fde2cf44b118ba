"""The verdict as text."""

from __future__ import annotations

from racegate.interpose.explore import Judged, Search, Verdict
from racegate.interpose.judge import Verdicts
from racegate.interpose.order.findings import Finding, Side
from racegate.interpose.outcome import Ending, Observation, Outcome

_STACK_MAX = 4


def render(verdicts: Verdicts, command: str) -> str:
    """What a person reads after a run: findings, what was not seen, one closing line.

    command: the script with its arguments
    """
    outcome = verdicts.outcome
    judged = {j.signature: j for j in verdicts.search.judged} if verdicts.search else {}
    lines: list[str] = []
    for index, finding in enumerate(outcome.findings, 1):
        lines += _finding(index, finding, judged.get(finding.signature), command)
    if outcome.realised:
        lines += [f"hold kept {count} back: {hold}" for hold, count in outcome.realised.items()]
        lines += [f"observed {_shown(item)}" for item in outcome.observations]
    if outcome.not_seen:
        lines.append("not covered by this verdict:")
        lines += [f"  {count} x {text}" for text, count in sorted(outcome.not_seen.items())]
    if verdicts.search is not None:
        lines.append(f"search: {verdicts.search.runs} runs{_coverage(verdicts.search)}")
        if not outcome.observations:
            lines.append("nothing was observed: mark values with racegate.interpose.observe")
    return "\n".join([*lines, _closing(outcome)])


def _coverage(search: Search) -> str:
    """Whether the findings that nothing showed were tried in every way."""
    if all(judged.verdict is Verdict.DIVERGENT for judged in search.judged):
        return ""
    return ", every landing tried" if search.is_complete else ", not every landing tried"


def _finding(index: int, finding: Finding, judged: Judged | None, command: str) -> list[str]:
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
    actual = {item.name: item for item in judged.actual}
    for item in judged.expected:
        other = actual.get(item.name)
        if other is None or other.digest != item.digest:
            seen = other.preview if other is not None else "nothing"
            lines.append(f"  value   {_shown(item)}; with the hold {seen}")
            break
    holds = " ".join(f"--hold '{operation} until {until}'" for operation, until in judged.hold)
    return [*lines, f"  replay  python -m racegate.interpose {holds} {command}"]


def _shown(item: Observation) -> str:
    return f"{item.name} = {item.preview}"


def _side(name: str, side: Side) -> list[str]:
    verb = "writes" if side.is_write else "reads"
    head = f"  {name}  {side.operation} {verb} it on {side.lane}"
    frames = [
        f"            {file}:{line} in {code}" for file, line, code in side.stack[:_STACK_MAX]
    ]
    return [head, *frames]


def _closing(outcome: Outcome) -> str:
    count = len(outcome.findings)
    found = f"{count} conflict{'s' if count != 1 else ''}" if count else "no conflict"
    text = f"racegate: {found} in {outcome.events} events (torch {outcome.torch_version})"
    if outcome.ending is Ending.FINISHED:
        return text
    if outcome.ending is Ending.FAILED:
        why = outcome.message or f"it ended with exit code {outcome.exit_code}"
        return f"{text}; the script failed by itself: {why}"
    if outcome.ending is Ending.NOT_MODELLED:
        return f"racegate: not modelled: {outcome.message}"
    return f"racegate: {outcome.message}"
