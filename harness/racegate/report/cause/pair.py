"""The two operations of a finding: the pair that nothing orders, or, of a defect of logic, who
wrote the wrong value and who takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from racegate.history.finding import Finding, FindingKind
from racegate.history.observe import Boundary
from racegate.history.run import Run
from racegate.history.trace import Access, Conflict, HostAccess, Misowned, OpRecord
from racegate.report.cause.row_assignment import RowAssignment, assignment_of

TraceStep = OpRecord | HostAccess
_ROWS_LOOKED_AT = 1 << 10
_ALL_ROWS = -1

# Where an observed field stands in memory, first choice first; `*` is the layer.
_BUFFERS: dict[str, tuple[str, ...]] = {
    "state": ("state.*",),
    "conv": ("conv.*",),
    "kv": ("kv.*",),
    "checkpoint": ("state.*",),
    "loaded_kv": ("kv.*",),
    "loaded_draft_kv": ("draft_kv",),
    "draft_kv": ("draft_kv",),
    "fresh_dirty": ("kv.*", "state.*", "draft_kv"),
    "block_table": ("block_table_cpu",),
    "state_table": ("state_table_cpu",),
    "rows": ("block_table_cpu",),
}
# What the host keeps for itself stands in no shared memory: it follows from what was read here.
_READ_BACK = ("sampled_cpu", "valid_count_cpu")
_KEPT_BY_HOST = ("delivered", "placeholders", "plan", "preempted")
_FORWARD = ("kernel:embed", "kernel:layer", "graph:")
_RELEASES = ("free:", "host:process")  # what they write is poison, for who reads too late


class Relation(StrEnum):
    """How a pair is ordered: by nothing, or so in every schedule."""

    UNORDERED = "unordered"
    ORDERED = "ordered"


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two accesses of common rows, the first issued first. rows: a bit mask"""

    relation: Relation
    buffer: str
    rows: int
    first: TraceStep
    second: TraceStep

    def verb_of(self, event: TraceStep) -> str:
        """What one of the two does with the rows."""
        mine = [a for a in event.accesses if a.buffer == self.buffer and a.rows & self.rows]
        kinds = {access.is_write for access in mine}
        if not kinds:
            return "goes on behind it"
        return "reads and writes" if len(kinds) == 2 else "writes" if True in kinds else "reads"


def pair_of_conflict(conflict: Conflict) -> Pair:
    """The pair that an oracle found unordered."""
    return Pair(
        relation=Relation.UNORDERED,
        buffer=conflict.buffer,
        rows=conflict.rows,
        first=conflict.first,
        second=conflict.second,
    )


def pair_of_finding(run: Run, finding: Finding) -> Pair | None:
    """Who wrote a wrong value and who takes it, as far as the run says."""
    steps = [event for event in run.trace.events if isinstance(event, OpRecord | HostAccess)]
    if finding.kind is FindingKind.OWNERSHIP:
        op, buffer = finding.op or "", finding.buffer or ""
        return _read_by(steps, op, buffer, _misowned_row(run, op, buffer))
    if finding.kind is FindingKind.PAGE:
        op, buffer = finding.op or "", finding.buffer or ""
        rows = _rows_of(assignment_of(run.observations), buffer, finding)
        return _read_by(steps, op, buffer, rows)
    if finding.kind is not FindingKind.DIVERGENCE or finding.step is None:
        return None
    if finding.rank is not None:
        steps = [event for event in steps if f".rank{finding.rank}@" in event.name]
    boundary, _, field = (finding.field or "").partition(".")
    end = _observed_at(steps, finding.step, boundary)
    if field in _KEPT_BY_HOST:
        return next(filter(None, (_read_back(steps[:end], name) for name in _READ_BACK)), None)
    assignment = assignment_of(run.observations)
    for name in _names(field, finding.layer):
        rows = _rows_of(assignment, name, finding)
        pair = _handed_on(steps, name, end, rows) or _handed_on(steps, name, end, _ALL_ROWS)
        if pair is not None:
            return pair
    return None


def _misowned_row(run: Run, op: str, buffer: str) -> int:
    """The row, as a mask, in which a reader met another's value."""
    met = (e for e in run.trace.events if isinstance(e, Misowned))
    row = next((e.row for e in met if e.name == op and e.buffer == buffer), None)
    return _ALL_ROWS if row is None else 1 << row


def _rows_of(assignment: RowAssignment, buffer: str, finding: Finding) -> int:
    """The rows of a buffer that are the request's of a finding."""
    assert finding.step is not None
    rows = range(_ROWS_LOOKED_AT)
    step, request = finding.step, finding.request
    return sum(1 << row for row in rows if assignment.request_at(buffer, row, step) == request)


def _read_back(steps: Sequence[TraceStep], buffer: str) -> Pair | None:
    """What the host read last, and who had written it."""
    hosts = (e for e in reversed(steps) if isinstance(e, HostAccess))
    reader = next((e for e in hosts if _mask(e, buffer, _is_read)), None)
    return None if reader is None else _read_by(steps, reader.name, buffer, _ALL_ROWS)


def _read_by(steps: Sequence[TraceStep], name: str, buffer: str, rows: int) -> Pair | None:
    """Who wrote last what a reader found in rows of a buffer."""
    named = (i for i, e in enumerate(steps) if e.name == name and _mask(e, buffer, _is_read))
    at = next(named, None)
    if at is None:
        return None
    wanted = _mask(steps[at], buffer, _is_read) & rows
    writer = next((e for e in reversed(steps[:at]) if _made(e, buffer) & wanted), None)
    return None if writer is None else _pair(buffer, writer, steps[at], wanted)


def _handed_on(steps: Sequence[TraceStep], buffer: str, end: int, rows: int) -> Pair | None:
    """Who wrote rows of a buffer last before they were observed, and who reads them next; where
    nobody does, who goes on with what that writer made.
    """
    written = [i for i, e in enumerate(steps[:end]) if _made(e, buffer) & rows]
    if not written:
        return None
    at = written[-1]
    writer, rows = steps[at], _made(steps[at], buffer) & rows
    behind = [e for e in steps[at + 1 :] if e.name != writer.name]
    earlier = [e for e in reversed(steps[:at]) if e.name != writer.name]
    reader = next((e for e in behind if _mask(e, buffer, _is_read) & rows), None)
    if reader is not None:
        return _pair(buffer, writer, reader, rows)
    before = next((e for e in earlier if _mask(e, buffer) & rows), None)
    if before is not None:
        return _pair(buffer, before, writer, rows)
    made = {access.storage for access in writer.accesses if access.is_write}
    taker = next((e for e in behind if made & {a.storage for a in e.accesses}), None)
    return None if taker is None else _pair(buffer, writer, taker, rows)


def _observed_at(steps: Sequence[TraceStep], step: int, boundary: str) -> int:
    """The place before which everything is that an observation can show."""
    for place, event in enumerate(steps):
        if event.step > step:
            return place
        is_here = event.step == step
        if is_here and boundary == Boundary.SCHEDULED:
            return place
        if is_here and boundary == Boundary.INPUTS and event.name.startswith(_FORWARD):
            return place
    return len(steps)


def _names(field: str, layer: int | None) -> tuple[str, ...]:
    patterns = _BUFFERS.get(field, (f"{field}_gpu", f"{field}_cpu"))
    return tuple(name.replace("*", str(0 if layer is None else layer)) for name in patterns)


def _pair(buffer: str, first: TraceStep, second: TraceStep, rows: int) -> Pair:
    common = _mask(first, buffer) & rows
    shared = common & _mask(second, buffer)
    return Pair(
        relation=Relation.ORDERED,
        buffer=buffer,
        rows=shared or common,
        first=first,
        second=second,
    )


def _is_read(access: Access) -> bool:
    return not access.is_write


def _is_write(access: Access) -> bool:
    return access.is_write


def _any(access: Access) -> bool:
    return True


def _mask(event: TraceStep, buffer: str, fits: Callable[[Access], bool] = _any) -> int:
    """The rows of a buffer that an event touches."""
    rows = 0
    for access in event.accesses:
        if access.buffer == buffer and fits(access):
            rows |= access.rows
    return rows


def _made(event: TraceStep, buffer: str) -> int:
    """The rows of a buffer that an event gives a value."""
    return 0 if event.name.startswith(_RELEASES) else _mask(event, buffer, _is_write)
