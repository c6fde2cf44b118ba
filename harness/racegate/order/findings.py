"""A conflict in words: which bytes, which two places, and the edge that is missing or too late."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from racegate.history.finding import Race, Side, Stack, hazard_of, place_name
from racegate.history.schedule import place_of
from racegate.order.causes import UnorderedInterval, fewest_edges
from racegate.order.lanes import Lanes
from racegate.order.memory import Access
from racegate.order.recorder import Conflict
from racegate.order.remedies import LateWait

PARTS_MAX = 6  # of a graph, named for the search
Parts = Mapping[str, Sequence[str]]
Within = Callable[[Stack], Stack]
Made = Callable[[int], Stack]


class NamedConflict(NamedTuple):
    """A conflict, and what holds its bytes. reused_at: where the memory was handed out again
    between the two accesses, if it was; allocated: where it was asked for, if that is known
    """

    conflict: Conflict
    buffer: str
    reused_at: Stack | None = None
    allocated: Stack = ()


def races_of(
    found: Sequence[NamedConflict],
    lanes: Lanes,
    *,
    parts: Parts | None = None,
    within: Within | None = None,
    made: Made | None = None,
) -> list[Race]:
    """The conflicts of a run in words, each with the edge that orders all of its cause. parts,
    within: as of `race_of`; made: where the stream of a lane was made
    """
    races = [
        _with_origins(
            race_of(
                one.conflict,
                lanes,
                buffer=one.buffer,
                parts=parts,
                reused_at=one.reused_at,
                within=within,
            ),
            one,
            made or _nowhere,
        )
        for one in found
    ]
    for group in fewest_edges([_gap(one) for one in found]):
        if len(group) > 1:
            cause = _common_edge([found[at] for at in group], [races[at] for at in group], lanes)
            for at in group:
                races[at] = msgspec.structs.replace(races[at], cause=cause)
    return races


def _with_origins(race: Race, named: NamedConflict, made: Made) -> Race:
    """With where its memory and its streams come from."""
    conflict = named.conflict
    return msgspec.structs.replace(
        race,
        allocated=named.allocated,
        first=msgspec.structs.replace(race.first, made=made(conflict.first.lane)),
        second=msgspec.structs.replace(race.second, made=made(conflict.second.lane)),
    )


def _nowhere(lane: int) -> Stack:
    return ()


def _gap(one: NamedConflict) -> UnorderedInterval:
    """Of memory that was freed, what orders the one tensor does not keep the other. An event orders
    what its own thread has given the stream, and not what others gave it meanwhile.
    """
    first, second = one.conflict.first, one.conflict.second
    between = (first.lane, second.lane, one.reused_at and one.buffer)
    return UnorderedInterval(between, first.index, second.index)


def _common_edge(found: Sequence[NamedConflict], races: Sequence[Race], lanes: Lanes) -> str:
    """The edge after the last of all first accesses, and before the first of the second ones, which
    is that of the first conflict.
    """
    last = max(range(len(found)), key=lambda at: found[at].conflict.first.index)
    moved = [one.conflict.remedies.moved for one in found]
    is_moved = all(one is not None and moved[0] and one.source == moved[0].source for one in moved)
    if found[0].reused_at is None and is_moved:
        return races[0].edge
    conflict = found[last].conflict
    first, second = races[last].first, races[0].second
    return _new_edge(conflict, lanes, first, second, found[0].reused_at)


def race_of(
    conflict: Conflict,
    lanes: Lanes,
    *,
    buffer: str,
    parts: Parts | None = None,
    reused_at: Stack | None = None,
    within: Within | None = None,
) -> Race:
    """reused_at: where the memory was handed out again between the two, if it was.
    parts: by the label of a graph's replay its operations, which can be held one by one
    within: of a stack of the program, the frames of torch inside its innermost
    """
    is_same = conflict.first.stack[:1] == conflict.second.stack[:1]
    inside = within if within is not None and is_same else _nothing_within
    inner = [
        (part, second)
        for first, second in conflict.pairs[:1]
        for part in (parts or {}).get(first, ())[:PARTS_MAX]
    ]
    first = _side(conflict.first, lanes, inside, is_write=conflict.first_writes)
    second = _side(conflict.second, lanes, inside, is_write=conflict.second_writes)
    return Race(
        signature=race_signature(first, second),
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
        late=_late(conflict, second, reused_at),
    )


def race_signature(first: Side, second: Side) -> str:
    """What a race is known by, in every run and when lines move."""
    sides = ((place_of(side.label), str(side.is_write)) for side in (first, second))
    text = "\n".join(word for side in sides for word in side)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _late(conflict: Conflict, second: Side, reused_at: Stack | None) -> Stack:
    """Of the wait that would order them before the second access."""
    moved = conflict.remedies.moved
    if moved is None or reused_at is not None:
        return ()
    return _in_one_function(moved.stack, second.stack)[0]


def _nothing_within(stack: Stack) -> Stack:
    return ()


def _side(access: Access, lanes: Lanes, within: Within, *, is_write: bool) -> Side:
    return Side(
        operation=access.label.partition("@")[0],
        label=access.label,
        lane=lanes.names[access.lane],
        is_host=lanes.is_host(access.lane),
        is_write=is_write,
        stack=access.stack,
        within=within(access.stack),
    )


def _edge(
    conflict: Conflict, lanes: Lanes, first: Side, second: Side, reused_at: Stack | None
) -> str:
    edge, stream = _new_edge(conflict, lanes, first, second, reused_at), lanes.stream_of
    if reused_at is not None or stream(conflict.first.lane) == stream(conflict.second.lane):
        return edge
    if moved := conflict.remedies.moved:
        wait, access = _in_one_function(moved.stack, second.stack)
        return (
            f"the wait at {place_name(wait)} stands too late: move it before {place_name(access)}"
        )
    return f"{edge}{_only(conflict.remedies.late, second)}"


def _new_edge(
    conflict: Conflict, lanes: Lanes, first: Side, second: Side, reused_at: Stack | None
) -> str:
    """What to put in, wherever anything else stands."""
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
    return _to_put_in(conflict, first, second)


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
