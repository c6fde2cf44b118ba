"""The verdict as text."""

from __future__ import annotations

from racegate.interpose.order.findings import Finding, Side
from racegate.interpose.outcome import Ending, Outcome

_STACK_MAX = 4


def render(outcome: Outcome) -> str:
    """What a person reads after a run: findings, what was not seen, one closing line."""
    lines: list[str] = []
    for index, finding in enumerate(outcome.findings, 1):
        lines += _finding(index, finding)
    if outcome.not_seen:
        lines.append("not covered by this verdict:")
        lines += [f"  {count} x {text}" for text, count in sorted(outcome.not_seen.items())]
    return "\n".join([*lines, _closing(outcome)])


def _finding(index: int, finding: Finding) -> list[str]:
    times = f", {finding.count} times" if finding.count > 1 else ""
    return [
        f"CONFLICT {index} [{finding.signature}] {finding.buffer}: {finding.nbytes} bytes{times}",
        *_side("first ", finding.first),
        *_side("second", finding.second),
        f"  edge    {finding.edge}",
        "",
    ]


def _side(name: str, side: Side) -> list[str]:
    verb = "writes" if side.is_write else "reads"
    head = f"  {name}  {side.operation} {verb} it on {side.lane}"
    frames = [f"            {file}:{line} in {code}" for file, line, code in side.stack[:_STACK_MAX]]
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
