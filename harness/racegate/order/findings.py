"""A conflict in words: which bytes, which two places, and the edge that is missing or too late."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from racegate.history.finding import Race, Side, Stack, hazard_of, place_name
from racegate.order.lanes import Lanes
from racegate.order.memory import Access
from racegate.order.recorder import Conflict, place_of
from racegate.order.remedies import LateWait

PARTS_MAX = 6  # of a graph, named for the search


def race_of(
    conflict: Conflict,
    lanes: Lanes,
    *,
    buffer: str,
    parts: Mapping[str, Sequence[str]] | None = None,
    reused_at: Stack | None = None,
) -> Race:
    """reused_at: where the memory was handed out again between the two, if it was.
    parts: by the label of a graph's replay its operations, which can be held one by one
    """
    inner = [
        (part, second)
        for first, second in conflict.pairs[:1]
        for part in (parts or {}).get(first, ())[:PARTS_MAX]
    ]
    first = _side(conflict.first, lanes, is_write=conflict.first_writes)
    second = _side(conflict.second, lanes, is_write=conflict.second_writes)
    text = "\n".join(
        (place_of(first.label), str(first.is_write), place_of(second.label), str(second.is_write))
    )
    return Race(
        signature=hashlib.sha256(text.encode()).hexdigest()[:12],
        hazard=hazard_of(
            first_writes=first.is_write,
            second_writes=second.is_write,
            is_reuse=reused_at is not None,
        ),
        buffer=buffer,
        nbytes=conflict.nbytes,
        count=conflict.count,
        first=first,
        second=second,
        edge=_edge(conflict, lanes, first, second, reused_at),
        pairs=(*conflict.pairs, *inner),
    )


def _side(access: Access, lanes: Lanes, *, is_write: bool) -> Side:
    return Side(
        operation=access.label.partition("@")[0],
        label=access.label,
        lane=lanes.names[access.lane],
        is_host=lanes.is_host(access.lane),
        is_write=is_write,
        stack=access.stack,
    )


def _edge(
    conflict: Conflict, lanes: Lanes, first: Side, second: Side, reused_at: Stack | None
) -> str:
    here = first.place
    if reused_at is not None:
        return (
            f"the memory was freed and handed out again at {place_name(reused_at)} while {here} "
            f"may still run on {first.lane}: call record_stream({first.lane}) on the tensor before "
            f"it is freed, or keep it until {second.lane} has waited for an event recorded after "
            f"{here}"
        )
    if lanes.stream_of(conflict.first.lane) == lanes.stream_of(conflict.second.lane):
        return (
            f"two threads give {first.lane} work in either order, which no event on it changes: "
            f"the thread of {here} has to hand over after it, and the thread of {second.place} to "
            f"take over before it (a queue, a lock, an event of threads or a join)"
        )
    if moved := conflict.remedies.moved:
        wait, access = _in_one_function(moved.stack, second.stack)
        return (
            f"the wait at {place_name(wait)} stands too late: move it before {place_name(access)}"
        )
    return f"{_to_put_in(conflict, first, second)}{_only(conflict.remedies.late, second)}"


def _to_put_in(conflict: Conflict, first: Side, second: Side) -> str:
    """An edge that orders every pair, wherever anything else stands."""
    here, there = first.place, second.place
    if first.is_host:
        return (
            f"{first.lane} has to hand over after {here}, and {second.lane} to take over before "
            f"{there} (a queue, a lock, an event or a join)"
        )
    how = "event.synchronize()" if second.is_host else f"{second.lane}.wait_event(event)"
    if conflict.early:
        return (
            f"{second.lane} waits for {first.lane} only up to {place_name(conflict.early)}, which "
            f"stands before {here}: record the event after {here} and wait for it before {there} "
            f"({how})"
        )
    return f"record an event after {here} on {first.lane} and wait for it before {there} ({how})"


def _only(late: LateWait | None, second: Side) -> str:
    """What orders the two after all, where it is nothing that could be moved."""
    if late is None or not late.by:
        return ""
    wait, _ = _in_one_function(late.stack, second.stack)
    return f"; only {late.by} at {place_name(wait)} orders them, behind {second.place}"


def _in_one_function(wait: Stack, access: Stack) -> tuple[Stack, Stack]:
    """Both from the innermost function on that they share: not the helper through which every wait
    goes, but its caller, which also comes to the access.
    """
    at = {
        (file, function): number for number, (file, _, function) in reversed([*enumerate(access)])
    }
    for number, (file, _, function) in enumerate(wait):
        if (file, function) in at:
            return wait[number:], access[at[file, function] :]
    return wait, access
