"""Why a hold was not realised: whether its names are wrong, its row, or only its order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from racegate.check.checker import Checker
from racegate.check.repro.operations import (
    OperationEntry,
    Operations,
    PointEntry,
    base_of,
    list_operations,
)
from racegate.faults.fault import Fault
from racegate.history.outcome import RunResult
from racegate.history.schedule import FORCED, Hold, parse_hold, step_alias, with_step
from racegate.history.verdict import unrealised_text
from racegate.scenario.untrusted.near import near_it
from racegate.scenario.untrusted.text import quoted


def with_reasons(checker: Checker, result: RunResult, fault: Fault | None) -> RunResult:
    """The result, with the reason why holds were not realised. Runs the scenario once more if
    there is such a hold.
    """
    texts = [hold.hold for hold in result.holds if not hold.realised]
    if not texts:
        return result
    operations = list_operations(checker.subject, fault)
    reasons = {
        unrealised_text(text): why_unrealised(parse_hold(text), operations) for text in texts
    }
    unmet = [f"{text}: {reasons[text]}" if text in reasons else text for text in result.unmet]
    return msgspec.structs.replace(result, unmet=tuple(unmet))


def why_unrealised(hold: Hold, operations: Operations) -> str:
    """The first thing that is wrong with a hold, in words."""
    named = _resolved(hold.op, operations)
    if named is None:
        return _unknown_alias(hold.op, operations)
    held = [entry for entry in operations.entries if _matches(entry, named)]
    if not held:
        return _no_operation(named, operations)
    if hold.row_first is not None and not any(_tears(entry, hold.row_first) for entry in held):
        return _no_row(hold.row_first, held)
    if hold.until == FORCED:
        return "nothing had to wait for it before it was complete"
    until = _resolved(hold.until, operations)
    if until is None:
        return _unknown_alias(hold.until, operations)
    ends = [point for point in operations.points if fnmatchcase(point.name, until)]
    if not ends:
        return _no_point(until, operations)
    return _too_early(held, ends)


def _resolved(name: str, operations: Operations) -> str | None:
    """The name with its step as a number; None if no step has the alias that it names."""
    alias = step_alias(name)
    if alias is None:
        return name
    step = operations.aliases.get(alias)
    return None if step is None else with_step(name, step)


def _unknown_alias(name: str, operations: Operations) -> str:
    alias = step_alias(name) or ""
    request = alias.rpartition(".")[0]
    requests = [known.rpartition(".")[0] for known in operations.aliases]
    count = requests.count(request)
    if not count:  # names of requests are short: like or not, some are told
        near = near_it(request, requests, share_min=0.0)
        return f"no request {quoted(request)} is ever scheduled{near}"
    return (
        f"request {request} is scheduled in {count} steps: {request}.0 to {request}.{count - 1}, "
        f"not {alias}"
    )


def _matches(entry: OperationEntry, named: str) -> bool:
    return fnmatchcase(f"{entry.lane}/{entry.name}", named if "/" in named else f"*/{named}")


def _no_operation(named: str, operations: Operations) -> str:
    base = base_of(named)
    same = [entry for entry in operations.entries if fnmatchcase(base_of(entry.name), base)]
    if not same:
        known = {base_of(entry.name) for entry in operations.entries}
        return f"there is no operation {quoted(base)} in this run{near_it(base, known)}"
    lane = named.rpartition("/")[0]
    lanes = dict.fromkeys(entry.lane for entry in same)
    if lane and not any(fnmatchcase(one, lane) for one in lanes):
        return f"{base} runs on {', '.join(lanes)}, not on {lane}"
    return f"{base} runs in steps {in_ranges(entry.step for entry in same)}, not as {named}"


def _tears(entry: OperationEntry, row: int) -> bool:
    return entry.rows is not None and 0 < row < entry.rows


def _no_row(row: int, held: Sequence[OperationEntry]) -> str:
    rows = max((entry.rows or 0 for entry in held), default=0)
    if not rows:
        return f"{held[0].name} has no rows that could land apart: leave [{row}:] out"
    if rows == 1:
        return f"{held[0].name} has one row, which cannot be torn: leave [{row}:] out"
    return f"row {row} is out of range: {held[0].name} can be torn from row 1 to {rows - 1}"


def _no_point(until: str, operations: Operations) -> str:
    base = base_of(until)
    same = [point for point in operations.points if fnmatchcase(base_of(point.name), base)]
    if not same:
        known = {base_of(point.name) for point in operations.points}
        return f"there is no operation or host action {quoted(base)}{near_it(base, known)}"
    steps = in_ranges(_step_of(point) for point in same)
    return f"{base} is a point in steps {steps}, and {until} is none"


def _step_of(point: PointEntry) -> int:
    step = point.name.partition("@")[2].partition("#")[0].partition("[")[0]
    return int(step)


def _too_early(held: Sequence[OperationEntry], ends: Sequence[PointEntry]) -> str:
    """Names are right, so it is the order: the point lies before the operation, or behind what
    waits for it.
    """
    entry, last = held[0], ends[-1]
    if all(end.place <= one.place for end in ends for one in held):
        return f"the point had passed: {last.name} comes before {entry.name} is issued"
    if not last.name.startswith("host:"):
        return f"{last.name} cannot be complete while {entry.name} is not"
    if entry.waited_at is None:
        return f"{entry.name} was needed before {last.name} came"
    return f"{entry.name} was needed before {last.name} came: the host waits for edge {entry.edge}"


def in_ranges(numbers: Iterable[int]) -> str:
    """Numbers in few words: `1-4, 7`."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
