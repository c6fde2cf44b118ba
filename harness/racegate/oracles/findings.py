"""Findings from what the oracles of traces and outputs saw: one per signature, worded so that a
runner developer can act on it. They know no engine: a run brings its edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from racegate.history.edge import Edge
from racegate.history.finding import Finding, FindingKind, Hazard, hazard_of
from racegate.history.observe import Boundary
from racegate.history.run import Run
from racegate.history.trace import Conflict, Misowned
from racegate.oracles.losslessness import Loss
from racegate.oracles.missing_edge import edge_finder, label
from racegate.oracles.ownership import PageMistake, WrongPage


def from_conflicts(conflicts: Sequence[Conflict], run: Run) -> list[Finding]:
    """One finding per (buffer, operations), from the first conflict of its kind in a run."""
    rows = {
        o.step: o.values["rows"]
        for o in run.observations
        if o.boundary is Boundary.PREPARED and "rows" in o.values
    }
    find_edge = edge_finder(run.trace, run.edges)
    findings: dict[str, Finding] = {}
    for conflict in conflicts:
        found = signature(
            "conflict", conflict.buffer, label(conflict.first.name), label(conflict.second.name)
        )
        if found not in findings:
            findings[found] = _from_conflict(conflict, found, find_edge(conflict), rows)
    return list(findings.values())


def _from_conflict(
    conflict: Conflict, found: str, meant: Sequence[Edge], rows: Mapping[int, Sequence[str]]
) -> Finding:
    edge = meant[0] if len(meant) == 1 else None
    first, second = conflict.first, conflict.second
    places = [row for row in range(conflict.rows.bit_length()) if conflict.rows >> row & 1]
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
            f"{_none_named(meant)} record an event behind {first.name} and let the lane of "
            f"{second.name} wait for it before."
        )
    else:
        message += (
            f"Edge {edge.name} should put {edge.before} before {edge.after}; it is missing, or "
            f"stands behind {second.name}. Without it {edge.reason}."
        )
    return Finding(
        kind=FindingKind.CONFLICT,
        signature=found,
        message=message,
        hazard=hazard_of(first_writes=conflict.first_writes, second_writes=conflict.second_writes),
        buffer=conflict.buffer,
        op=first.name,
        other=second.name,
        edge=None if edge is None else edge.name,
        step=second.step,
        request=request,
    )


def _none_named(meant: Sequence[Edge]) -> str:
    """Why no edge is named for a pair."""
    if not meant:
        return "No declared edge is for this pair:"
    names = ", ".join(edge.name for edge in meant)
    return f"Which of the edges {names} is for this pair their `first` and `second` do not say:"


def from_misowned(misowned: Sequence[Misowned]) -> list[Finding]:
    """One finding per (buffer, reader) that met another owner's value."""
    findings: dict[str, Finding] = {}
    for seen in misowned:
        found = signature("ownership", seen.buffer, label(seen.name))
        if found in findings:
            continue
        actual = "nobody's value" if seen.actual is None else f"the value of {_owner(seen.actual)}"
        findings[found] = Finding(
            kind=FindingKind.OWNERSHIP,
            signature=found,
            hazard=Hazard.VALUE_OF_ANOTHER,
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


# What an operation does to a page, and what to do about it.
_PAGES = {
    PageMistake.ANOTHERS: "means a page of request {request} in {buffer} block {block}, and meets "
    "{found}: copy what the plan of the step gives the request",
    PageMistake.GIVEN_BACK: "comes to {buffer} block {block} for request {request}, which has "
    "given it back before{to}: let a page go on when its copy is done",
    PageMistake.ZEROED: "zeroes {buffer} block {block}, which holds what request {request} "
    "has there by now: zero it before",
    PageMistake.EARLY: "reads {buffer} block {block} for request {request} before {other} "
    "writes it: copy behind the kernels of the step",
    PageMistake.UNFILLED: "reads {buffer} block {block} for request {request}, and no copy has "
    "brought there what the step goes on from: load it before",
}
_PAGE_HAZARDS = {
    PageMistake.ANOTHERS: Hazard.VALUE_OF_ANOTHER,
    PageMistake.GIVEN_BACK: Hazard.REUSE,
}


def from_wrong_pages(wrong: Sequence[WrongPage]) -> list[Finding]:
    """One finding per (mistake, kind of operation): all pools of a request share it."""
    findings: dict[str, Finding] = {}
    for seen in wrong:
        kind = label(seen.op).partition(":" if seen.mistake is PageMistake.UNFILLED else ".")[0]
        found = signature("page", seen.mistake, kind)
        if found not in findings:
            findings[found] = _from_page(seen, found)
    return list(findings.values())


def _from_page(seen: WrongPage, found: str) -> Finding:
    tag = seen.found
    owner = None if tag is None else (tag.request, tag.step)
    message = _PAGES[seen.mistake].format(
        request=seen.request,
        buffer=seen.buffer,
        block=seen.block,
        other=seen.other or "a kernel of the step",
        found="nobody's" if owner is None else f"that of {_owner(owner)}",
        to="" if owner is None else f" to {_owner(owner)}",
    )
    return Finding(
        kind=FindingKind.PAGE,
        signature=found,
        hazard=_PAGE_HAZARDS.get(seen.mistake, Hazard.WRONG_VALUE),
        message=f"{seen.op} {message}, whoever waits for it",
        buffer=seen.buffer,
        op=seen.op,
        other=seen.other,
        step=seen.step,
        request=seen.request,
        field="owner",
        expected=[seen.request, seen.step],
        actual=None if owner is None else list(owner),
    )


def from_losses(losses: Sequence[Loss]) -> list[Finding]:
    """The first request whose tokens are not those of plain decoding, if there is one."""
    return [
        Finding(
            kind=FindingKind.LOSS,
            signature=signature("loss", "delivered"),
            message=f"request {loss.request}: delivered token {loss.index} is {loss.actual}, "
            f"plain decoding gives {loss.expected}",
            request=loss.request,
            field="delivered",
            expected=loss.expected,
            actual=loss.actual,
        )
        for loss in losses[:1]
    ]


def signature(*parts: str) -> str:
    """What a finding is known by."""
    return "/".join(parts)


def _owner(owner: tuple[str, int]) -> str:
    return f"request {owner[0]}, step {owner[1]}"


def _rows_text(rows: list[int]) -> str:
    shown = ", ".join(str(row) for row in rows[:8])
    return shown if len(rows) <= 8 else f"{shown}, ... ({len(rows)} rows)"
