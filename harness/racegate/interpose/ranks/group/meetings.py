"""Operations of ranks that belong together: by communicator and number, whoever comes first."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from racegate.history.finding import Stack
from racegate.interpose.ranks.group.collectives import GroupOperation, result_of
from racegate.interpose.ranks.group.messages import IssueMessage, JoinMessage, SplitMessage

Key = tuple[int, tuple[int, int], int]  # communicator, pair of ranks or (-1, -1), number


@dataclass(frozen=True, slots=True)
class RankPart:
    """What one rank gives to a meeting. at: its place in what it issued together"""

    rank: int
    node: int
    at: int
    operation: GroupOperation
    label: str
    stack: Stack


@dataclass(slots=True)
class Meeting:
    """One operation of a communicator, as far as its ranks have come. parts, data: by part; left:
    who has not had the result
    """

    key: Key
    parts: dict[int, RankPart] = field(default_factory=dict)
    data: dict[int, bytes] = field(default_factory=dict)
    answered: int = 0
    is_wanted: bool = False

    @property
    def size(self) -> int:
        """How many parts it has when all have come."""
        return next(iter(self.parts.values())).operation.parts

    @property
    def is_agreed(self) -> bool:
        """Whether all that have come mean the same."""
        return len({part.operation.agreed for part in self.parts.values()}) < 2

    @property
    def is_ready(self) -> bool:
        """Whether it can complete."""
        return len(self.data) == self.size and self.is_agreed

    def result(self, operation: GroupOperation) -> bytes:
        """What it gives a rank."""
        if operation.kind.is_point_to_point:
            return result_of(operation, {operation.root: self.data[0]})
        return result_of(operation, self.data)

    def leave(self) -> None:
        """One rank has had its result; with the last one the bytes go."""
        self.answered += 1
        if self.answered == self.size:
            self.data = dict.fromkeys(self.data, b"")


@dataclass(slots=True)
class GroupNode:
    """What one rank issued together, and what completes together."""

    rank: int
    number: int
    label: str
    stack: Stack
    operations: tuple[GroupOperation, ...]
    meetings: list[Meeting]
    is_posted: bool = False
    is_needed: bool = False
    is_answered: bool = False

    def post(self, data: tuple[bytes, ...]) -> None:
        """Its rank gives this, operation by operation."""
        self.is_posted = True
        for meeting, operation, given in zip(self.meetings, self.operations, data, strict=True):
            meeting.data[operation.part] = given

    def need(self) -> None:
        """Its rank waits for it: all that take part are wanted."""
        self.is_needed = True
        for meeting in self.meetings:
            meeting.is_wanted = True

    def answer(self) -> tuple[bytes, ...]:
        """What its rank gets, operation by operation."""
        self.is_answered = True
        pairs = zip(self.meetings, self.operations, strict=True)
        data = tuple(meeting.result(operation) for meeting, operation in pairs)
        for meeting in self.meetings:
            meeting.leave()
        return data

    @property
    def is_ready(self) -> bool:
        """Whether all that it belongs to can complete."""
        return all(meeting.is_ready for meeting in self.meetings)


class Meetings:
    """All of a run: of operations, and of splits of communicators.

    nodes: what ranks issued, by rank and number; members: of a communicator, rank there to rank
    """

    def __init__(self) -> None:
        self.all: dict[Key, Meeting] = {}
        self.nodes: dict[tuple[int, int], GroupNode] = {}
        self.members: dict[int, dict[int, int]] = {}
        self.sizes: dict[int, int] = {}
        self._gpus: dict[int, dict[int, str]] = {}
        self._names: dict[int, str] = {}
        self._splits: dict[tuple[int, int], dict[int, tuple[int, SplitMessage]]] = {}

    def join(self, rank: int, told: JoinMessage) -> None:
        """A rank has made a communicator."""
        self.members.setdefault(told.comm, {})[told.rank] = rank
        self._gpus.setdefault(told.comm, {})[told.rank] = told.gpu
        self.sizes[told.comm] = told.ranks
        if told.name:
            self._names[told.comm] = told.name

    def lacks_members(self, comm: int) -> bool:
        """Whether not all of its ranks have made the communicator."""
        return len(self.members[comm]) < self.sizes[comm]

    def shared_gpu(self, comm: int) -> str:
        """A GPU that two ranks of a communicator have; empty: each has one of its own."""
        counted = Counter(self._gpus[comm].values())
        return next((gpu for gpu, count in counted.items() if count > 1), "")

    def issue(self, rank: int, told: IssueMessage) -> GroupNode:
        """A rank has issued operations."""
        node = GroupNode(rank, told.node, told.label, told.stack, told.operations, [])
        for at, (operation, number) in enumerate(zip(told.operations, told.numbers, strict=True)):
            key = (operation.comm, operation.pair, number)
            meeting = self.all.setdefault(key, Meeting(key))
            part = RankPart(rank, told.node, at, operation, told.label, told.stack)
            meeting.parts[operation.part] = part
            node.meetings.append(meeting)
        self.nodes[rank, told.node] = node
        return node

    def of_rank(self, rank: int) -> Iterator[GroupNode]:
        """What a rank issued, in its order."""
        return (node for (of, _), node in self.nodes.items() if of == rank)

    def split(self, rank: int, told: SplitMessage) -> dict[int, SplitMessage]:
        """A rank has said its colour: what all have said, by rank, if they have."""
        said = self._splits.setdefault((told.comm, told.number), {})
        said[told.rank] = (rank, told)
        if len(said) < self.sizes[told.comm]:
            return {}
        return dict(said[at] for at in sorted(said))

    def lacking_split(self, told: SplitMessage) -> list[int]:
        """Ranks that have not said their colour."""
        said = self._splits[told.comm, told.number]
        members = self.members[told.comm]
        return [
            members[at] for at in range(self.sizes[told.comm]) if at in members and at not in said
        ]

    def lacking(self, meeting: Meeting) -> list[int]:
        """Ranks that have not issued their part, as far as they have made the communicator."""
        members, (give, take) = self.members[meeting.key[0]], meeting.key[1]
        if give >= 0:
            wanted = [at for part, at in enumerate((give, take)) if part not in meeting.parts]
        else:
            wanted = [at for at in range(meeting.size) if at not in meeting.parts]
        return [members[at] for at in wanted if at in members]

    def name(self, comm: int) -> str:
        """Of a communicator: torch's, with its ranks."""
        ranks = ", ".join(map(str, sorted(self.members.get(comm, {}).values())))
        purpose, _, number = self._names.get(comm, "").partition(":")
        told = f"group {number}" if purpose == "undefined" else purpose or "a communicator"
        return f"{told} (ranks {ranks})"

    def title(self, meeting: Meeting) -> str:
        """Which operation it is, in words."""
        comm, (give, take), number = meeting.key
        if give < 0:
            return f"operation {number} of {self.name(comm)}"
        members = self.members[comm]
        pair = f"from rank {members.get(give, give)} to rank {members.get(take, take)}"
        return f"message {number} {pair} on {self.name(comm)}"


def split_number(told: SplitMessage) -> int:
    """Of the communicator that a colour makes: the same in each run, and on all of its ranks."""
    text = f"{told.comm} {told.number} {told.colour}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
