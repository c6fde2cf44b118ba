"""What is wrong in a run of ranks that stands still or is over, with the stacks of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from racegate.history.finding import FindingKind, Stack, place_name
from racegate.interpose.ranks.group.findings import (
    RankFinding,
    RankPlace,
    rank_finding,
)
from racegate.interpose.ranks.group.matching import Matching, Wait
from racegate.interpose.ranks.group.meetings import GroupNode, Key, Meeting
from racegate.interpose.ranks.group.messages import JoinMessage, SplitMessage, WaitMessage

_ENDED = "has ended{how}"


def findings_in(matching: Matching) -> tuple[RankFinding, ...]:
    """All that is wrong in a run that stands still: causes before effects. What follows from a
    mismatch is not told.
    """
    if found := tuple(_mismatch(matching, meeting) for meeting in _disagreed(matching)):
        return found
    if not matching.is_over:
        return (_deadlock(matching),)
    if found := tuple(_left(matching)):
        return found
    return tuple(orders(matching))


# ---- mismatches


def _disagreed(matching: Matching) -> list[Meeting]:
    """Meetings whose ranks mean different things, the first of each communicator and pair."""
    first: dict[tuple[int, tuple[int, int]], Meeting] = {}
    for meeting in matching.meetings.all.values():
        known = first.get(meeting.key[:2])
        if not meeting.is_agreed and (known is None or meeting.key[2] < known.key[2]):
            first[meeting.key[:2]] = meeting
    return [first[key] for key in sorted(first)]


def _mismatch(matching: Matching, meeting: Meeting, *, hint: str = "") -> RankFinding:
    places = {part.rank: RankPlace(rank=part.rank, what=part.operation.words, stack=part.stack)
              for part in meeting.parts.values()}  # fmt: skip
    for rank in matching.meetings.lacking(meeting):
        places.setdefault(rank, _absent(matching, rank))
    return rank_finding(
        FindingKind.MISMATCH,
        matching.meetings.title(meeting),
        [places[rank] for rank in sorted(places)],
        hint=hint or _first_apart(matching, meeting.key),
    )


def _absent(matching: Matching, rank: int) -> RankPlace:
    """A rank that has not issued its part, and where it stands."""
    state = matching.states[rank]
    wait = next(iter(state.waits.values()), None)
    if state.ended is not None:
        return RankPlace(rank=rank, what=f"never issues it: it has ended{state.ended}")
    stack = () if wait is None else wait.stack
    return RankPlace(rank=rank, what="has not issued it, and waits", stack=stack)


def _left(matching: Matching) -> Iterator[RankFinding]:
    """Behind the end of all scripts: what not all ranks have issued, the first of each
    communicator, or what each rank orders behind another.
    """
    seen = set()
    for meeting in matching.meetings.all.values():
        if len(meeting.parts) < meeting.size and meeting.key[:2] not in seen:
            seen.add(meeting.key[:2])
            yield _mismatch(matching, meeting)
    stuck = [node for node in matching.meetings.nodes.values() if _is_stuck(node)]
    if not seen and stuck:
        places = [
            RankPlace(rank=node.rank, what=_waits_for(matching, node), stack=node.stack)
            for node in _first_of_each_rank(stuck)
        ]
        yield rank_finding(FindingKind.DEADLOCK, "the devices cannot go on", places)


def _is_stuck(node: GroupNode) -> bool:
    return node.is_needed and not node.is_answered


def _first_of_each_rank(nodes: Sequence[GroupNode]) -> list[GroupNode]:
    first: dict[int, GroupNode] = {}
    for node in sorted(nodes, key=lambda node: (node.rank, node.number)):
        first.setdefault(node.rank, node)
    return list(first.values())


# ---- deadlocks


def _deadlock(matching: Matching) -> RankFinding:
    waits = dict(matching.hosts)
    places = []
    for rank, state in matching.states.items():
        if not state.is_member:
            continue
        if rank in waits:
            wait = waits[rank]
            places.append(RankPlace(rank=rank, what=_why(matching, rank, wait), stack=wait.stack))
        elif state.ended is not None:
            places.append(RankPlace(rank=rank, what=_ENDED.format(how=state.ended)))
        else:
            stack = next((place.stack for place in state.places), ())
            places.append(RankPlace(rank=rank, what="waits in torch.distributed", stack=stack))
    keys = [key for rank, wait in waits.items() for key in _keys(matching, rank, wait)]
    return rank_finding(
        FindingKind.DEADLOCK,
        "no rank can go on",
        places,
        hint=next(filter(None, (_first_apart(matching, key) for key in keys)), ""),
    )


def _keys(matching: Matching, rank: int, wait: Wait) -> list[Key]:
    if not isinstance(wait, WaitMessage):
        return []
    node = matching.meetings.nodes[rank, wait.node]
    return [meeting.key for meeting in node.meetings if not meeting.is_ready]


def _why(matching: Matching, rank: int, wait: Wait) -> str:
    """What a thread waits for, and why that does not come."""
    if isinstance(wait, SplitMessage):
        lacking = ", ".join(f"rank {at}" for at in matching.meetings.lacking_split(wait))
        name = matching.meetings.name(wait.comm)
        return f"waits in the split {wait.number} of {name}, to which {lacking} has not come"
    if isinstance(wait, JoinMessage):
        come, ranks = len(matching.meetings.members[wait.comm]), wait.ranks
        name = matching.meetings.name(wait.comm)
        return f"waits until NCCL has made {name}, to which {come} of {ranks} ranks have come"
    return _waits_for(matching, matching.meetings.nodes[rank, wait.node])


def _waits_for(matching: Matching, node: GroupNode) -> str:
    kind = node.label.partition("@")[0]
    reasons = []
    for meeting in node.meetings:
        for rank in matching.meetings.lacking(meeting):
            reasons.append(f"rank {rank} has not issued it")
        for part in meeting.parts.values():
            other = matching.meetings.nodes[part.rank, part.node]
            if not other.is_posted and part.rank != node.rank:
                reasons.append(_behind(matching, other))
    number = matching.meetings.title(node.meetings[0])
    text = f"waits for {kind} of {place_name(node.stack)}, {number}"
    return f"{text}: {'; '.join(dict.fromkeys(reasons))}" if reasons else text


def _behind(matching: Matching, node: GroupNode) -> str:
    """Why the device of another rank does not come to what it has issued."""
    first = (
        other
        for other in matching.meetings.of_rank(node.rank)
        if other is not node and other.is_posted and not other.is_answered and other.is_needed
    )
    text = f"rank {node.rank} issued it at {place_name(node.stack)}"
    before = next(first, None)
    if before is None:
        return text
    kind = before.label.partition("@")[0]
    return f"{text}, and its stream stands at {kind} of {place_name(before.stack)} before it"


def _first_apart(matching: Matching, key: Key) -> str:
    """Where ranks first come to a communicator from different lines, which may be the cause."""
    meetings = matching.meetings.all
    for number in range(1, key[2] + 1):
        meeting = meetings.get((key[0], key[1], number))
        if meeting is None or key[1][0] >= 0:
            return ""
        places = {part.rank: place_name(part.stack) for part in meeting.parts.values()}
        if len(set(places.values())) > 1 and number < key[2]:
            told = ", ".join(f"rank {rank} at {places[rank]}" for rank in sorted(places))
            return f"the ranks come from different lines since operation {number}: {told}"
    return ""


# ---- orders


def orders(matching: Matching) -> Iterator[RankFinding]:
    """Pairs of operations of two communicators that two ranks issue in opposite orders, one of each
    two communicators.
    """
    issued = {rank: _keys_of(matching, rank) for rank in matching.states}
    seen: set[frozenset[int]] = set()
    for one, other in combinations(issued, 2):
        at = {key: number for number, key in enumerate(issued[other])}
        common = [key for key in issued[one] if key in at]
        for first, second in pairwise(common):
            comms = frozenset((first[0], second[0]))
            if len(comms) == 2 and at[first] > at[second] and comms not in seen:
                seen.add(comms)
                yield _order(matching, (one, other), (first, second))


def _keys_of(matching: Matching, rank: int) -> list[Key]:
    return [meeting.key for node in matching.meetings.of_rank(rank) for meeting in node.meetings]


def _order(matching: Matching, ranks: tuple[int, int], keys: tuple[Key, Key]) -> RankFinding:
    meetings = [matching.meetings.all[key] for key in keys]
    names = [matching.meetings.title(meeting) for meeting in meetings]
    places = []
    for rank, order in zip(ranks, (meetings, meetings[::-1]), strict=True):
        stacks = [_stack(meeting, rank) for meeting in order]
        places.append(
            RankPlace(
                rank=rank,
                what=f"issues {place_name(stacks[0])} before {place_name(stacks[1])}",
                stack=stacks[0],
            )
        )
    return rank_finding(
        FindingKind.ORDER,
        f"{names[0]} and {names[1]} are issued in opposite orders",
        places,
        hint="on a GPU each may wait for the other to leave it room: issue them in one order",
    )


def _stack(meeting: Meeting, rank: int) -> Stack:
    return next(part.stack for part in meeting.parts.values() if part.rank == rank)
