"""Conflicts of a program, and what holds change, in words."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from racegate.history.finding import Race, Side, Verdict
from racegate.interpose.outcome import Observation
from racegate.targets.program.explore import Judged

_STACK_MAX = 4
COMMAND = "racegate torch run"


def render_findings(findings: Iterable[Race]) -> str:
    """Findings that no search was made for."""
    return "\n".join(
        line
        for index, one in enumerate(findings, 1)
        for line in finding_lines(index, one, None, "")
    )


def finding_lines(index: int, finding: Race, judged: Judged | None, command: str) -> list[str]:
    """A conflict: its two places, what would order them, what a search came to.

    index: its number; command: the script with its arguments
    """
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
    """What shows a finding again; empty if no hold does. command: as of `finding_lines`"""
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
            return [f"  value   {shown(other)} {how} alone"]
        if other is None or other != item:
            seen = other.preview if other is not None else "nothing"
            return [f"  value   {shown(item)}; {how} {seen}"]
    return []


def shown(item: Observation) -> str:
    """An observed value."""
    return f"{item.name} = {item.preview}"


def _side(name: str, side: Side) -> list[str]:
    verb = "writes" if side.is_write else "reads"
    head = f"  {name}  {side.operation} {verb} it on {side.lane}"
    frames = [
        f"            {file}:{line} in {code}" for file, line, code in side.stack[:_STACK_MAX]
    ]
    return [head, *frames]
