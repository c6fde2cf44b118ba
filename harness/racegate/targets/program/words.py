"""Conflicts of a program, and what holds change, in words."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from racegate.history.finding import Race, Side, Verdict
from racegate.history.schedule import texts_of
from racegate.interpose.outcome import Ending, Observation
from racegate.targets.program.explore import Judged
from racegate.targets.program.judge import Verdicts

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
        *(_divergence(judged, command) if judged is not None and judged.holds else []),
        "",
    ]


def _divergence(judged: Judged, command: str) -> list[str]:
    lines = [f"  ended   {judged.ending}"] if judged.ending else []
    lines += difference(judged.expected, judged.actual, "with the hold")
    return [*lines, f"  replay  {replay_of(judged, command)}"]


def replay_of(judged: Judged, command: str) -> str:
    """What shows a finding again; empty if no hold does. command: as of `finding_lines`"""
    if not judged.holds:
        return ""
    holds = " ".join(f"--hold '{text}'" for text in texts_of(judged.holds))
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


def not_covered(verdicts: Verdicts) -> list[str]:
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


def closing(verdicts: Verdicts) -> str:
    """The last line: how many conflicts there are, or why nothing was judged."""
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
