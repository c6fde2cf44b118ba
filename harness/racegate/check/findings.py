"""Findings from what the oracles saw: one per signature, worded so that a runner developer can act
on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec
import numpy as np

from racegate.device.protocol import DeadlockError
from racegate.history.edge import Edge
from racegate.history.finding import Finding, FindingKind
from racegate.history.observe import Boundary
from racegate.history.run import Run
from racegate.history.trace import Misowned, rows_of
from racegate.oracles.invariants import Violation
from racegate.oracles.losslessness import Loss
from racegate.oracles.ordering import Conflict
from racegate.oracles.stepwise import Divergence


def from_conflicts(conflicts: Sequence[Conflict], run: Run) -> list[Finding]:
    """One finding per (buffer, operations), from the first conflict of its kind in a run."""
    rows = {o.step: o.values["rows"] for o in run.observations if o.boundary is Boundary.PREPARED}
    findings: dict[str, Finding] = {}
    for conflict in conflicts:
        signature = _signature(
            "conflict", conflict.buffer, _label(conflict.first.name), _label(conflict.second.name)
        )
        if signature not in findings:
            edge = _edge_for(conflict, run.edges)
            findings[signature] = _from_conflict(conflict, signature, edge, rows)
    return list(findings.values())


def _from_conflict(
    conflict: Conflict, signature: str, edge: Edge | None, rows: dict[int, tuple[str, ...]]
) -> Finding:
    first, second = conflict.first, conflict.second
    places = rows_of(conflict.rows)
    names = rows.get(first.step, ())
    request = names[places[0]] if places and places[0] < len(names) else None
    verbs = (
        "writes" if conflict.first_writes else "reads",
        "writes" if conflict.second_writes else "reads",
    )
    message = (
        f"{first.name} {verbs[0]} and {second.name} {verbs[1]} {conflict.buffer} rows "
        f"{_rows_text(places)}, and no path of edges orders them. "
    )
    if edge is None:
        message += (
            f"No declared edge covers {conflict.buffer}: record an event behind {first.name} and "
            f"let the lane of {second.name} wait for it before."
        )
    else:
        message += (
            f"Edge {edge.name} should put {edge.before} before {edge.after}; it is missing, or "
            f"stands behind {second.name}. Without it {edge.reason}."
        )
    return Finding(
        kind=FindingKind.CONFLICT,
        signature=signature,
        message=message,
        buffer=conflict.buffer,
        op=first.name,
        other=second.name,
        edge=None if edge is None else edge.name,
        step=second.step,
        request=request,
    )


def from_misowned(misowned: Sequence[Misowned]) -> list[Finding]:
    """One finding per (buffer, reader) that met another owner's value."""
    findings: dict[str, Finding] = {}
    for seen in misowned:
        signature = _signature("ownership", seen.buffer, _label(seen.name))
        if signature in findings:
            continue
        actual = "nobody's value" if seen.actual is None else f"the value of {_owner(seen.actual)}"
        findings[signature] = Finding(
            kind=FindingKind.OWNERSHIP,
            signature=signature,
            message=f"{seen.name} reads {seen.buffer} row {seen.row} for {_owner(seen.expected)} "
            f"and finds {actual}",
            buffer=seen.buffer,
            op=seen.name,
            step=seen.step,
            request=seen.expected[0],
            field="owner",
            expected=list(seen.expected),
            actual=None if seen.actual is None else list(seen.actual),
        )
    return list(findings.values())


def from_divergence(divergence: Divergence | None) -> list[Finding]:
    """The first place where a run leaves the reference, if it does."""
    if divergence is None:
        return []
    field = f"{divergence.boundary}.{divergence.field}"
    layer = "" if divergence.layer is None else f" of layer {divergence.layer}"
    where = "" if divergence.index is None else f" at {list(divergence.index)}"
    whom = "" if divergence.request is None else f" of request {divergence.request}"
    return [
        Finding(
            kind=FindingKind.DIVERGENCE,
            signature=_signature("divergence", field),
            message=f"step {divergence.step}: {field}{layer}{whom}{where} is {divergence.actual}, "
            f"the reference has {divergence.expected}",
            step=divergence.step,
            request=divergence.request,
            layer=divergence.layer,
            field=field,
            expected=divergence.expected,
            actual=divergence.actual,
        )
    ]


def from_violations(violations: Sequence[Violation]) -> list[Finding]:
    """One finding per invariant that does not hold, from the first place."""
    findings: dict[str, Finding] = {}
    for seen in violations:
        signature = _signature("invariant", seen.invariant)
        if signature in findings:
            continue
        whom = "" if seen.request is None else f" for request {seen.request}"
        findings[signature] = Finding(
            kind=FindingKind.INVARIANT,
            signature=signature,
            message=f"step {seen.step}, {seen.boundary}: {seen.invariant} does not hold{whom}: "
            f"{seen.message}",
            step=seen.step,
            request=seen.request,
            field=seen.invariant,
            actual=seen.message,
        )
    return list(findings.values())


def from_losses(losses: Sequence[Loss]) -> list[Finding]:
    """The first request whose tokens are not those of plain decoding, if there is one."""
    return [
        Finding(
            kind=FindingKind.LOSS,
            signature=_signature("loss", "delivered"),
            message=f"request {loss.request}: delivered token {loss.index} is {loss.actual}, "
            f"plain decoding gives {loss.expected}",
            request=loss.request,
            field="delivered",
            expected=loss.expected,
            actual=loss.actual,
        )
        for loss in losses[:1]
    ]


def from_stop(error: Exception | None) -> list[Finding]:
    """What stopped the engine, if anything did."""
    if error is None:
        return []
    kind = FindingKind.DEADLOCK if isinstance(error, DeadlockError) else FindingKind.CRASH
    return [
        Finding(
            kind=kind,
            signature=_signature(str(kind), type(error).__name__),
            message=f"the engine stopped: {type(error).__name__}: {error}",
            actual=str(error),
        )
    ]


def digest_of(run: Run, findings: Sequence[Finding]) -> str:
    """A hash of everything a run showed: observed values, and findings without their commands."""
    state = hashlib.sha256()
    for observation in run.observations:
        state.update(f"{observation.step}/{observation.boundary}".encode())
        for name in sorted(observation.values):
            value = observation.values[name]
            state.update(name.encode())
            is_array = isinstance(value, np.ndarray)
            state.update(
                value.tobytes() if is_array else msgspec.json.encode(value, order="sorted")
            )
    for finding in findings:
        state.update(msgspec.json.encode(msgspec.structs.replace(finding, replay="")))
    return state.hexdigest()


def _edge_for(conflict: Conflict, edges: Sequence[Edge]) -> Edge | None:
    """The edge that is meant to order the pair; failing that, one on the buffer."""
    covering = [edge for edge in edges if _matches(conflict.buffer, edge.buffers)]
    meant = [
        edge
        for edge in covering
        if _matches(_label(conflict.first.name), edge.first)
        and _matches(_label(conflict.second.name), edge.second)
    ]
    return next(iter((*meant, *covering)), None)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _label(name: str) -> str:
    """An operation's name without its step."""
    return name.partition("@")[0]


def _signature(*parts: str) -> str:
    return "/".join(parts)


def _owner(owner: tuple[str, int]) -> str:
    return f"request {owner[0]}, step {owner[1]}"


def _rows_text(rows: list[int]) -> str:
    shown = ", ".join(str(row) for row in rows[:8])
    return shown if len(rows) <= 8 else f"{shown}, ... ({len(rows)} rows)"
