"""The chooser of holds against one that says in sets what every hold means."""

from __future__ import annotations

from fnmatch import fnmatchcase
from random import Random

import pytest

from racegate.device.chooser import HoldChooser, Ticket
from racegate.history.schedule import FORCED, Hold, Schedule, parse_schedule

OPS = ("d2h:a@0", "d2h:a@1", "h2d:a@1", "kernel:b@1", "kernel:b@2")
LANES = ("main", "copy")
POINTS = ("host:see@1", "kernel:b@1", "kernel:b@2", "host:see@2#a")
HELD = (*OPS, "*", "d2h:*", "main/d2h:a@1", "copy/*", "kernel:b@A.0", "main/kernel:b@A.0")
UNTIL = (*POINTS, FORCED, "kernel:*", "host:see@A.0")
ROWS = (None, None, None, 1, 2)


class Literal:
    """What holds mean. waiting: per ticket the holds that still keep it"""

    def __init__(self, holds: tuple[Hold, ...]) -> None:
        self.holds = holds
        self.steps: dict[str, int] = {}
        self.waiting: list[set[int]] = []
        self.matched, self.realised = ([0] * len(holds) for _ in range(2))

    def is_match(self, pattern: str, name: str) -> bool:
        for alias, step in self.steps.items():
            pattern = pattern.replace(f"@{alias}", f"@{step}")
        return fnmatchcase(name, pattern)

    def keeps(self, number: int, lane: str, name: str) -> bool:
        op = self.holds[number].op
        return self.is_match(op if "/" in op else f"*/{op}", f"{lane}/{name}")

    def ticket(self, lane: str, name: str) -> int | None:
        base, torn, _ = name.partition("[")
        by = {
            number
            for number, hold in enumerate(self.holds)
            if (hold.row_first is None) == (not torn) and self.keeps(number, lane, base)
        }
        if not by:
            return None
        for number in by:
            self.matched[number] += 1
        self.waiting.append(by)
        return len(self.waiting) - 1

    def reach(self, point: str) -> bool:
        is_released = False
        for number, hold in enumerate(self.holds):
            if self.is_match(hold.until, point):
                for by in self.waiting:
                    if number in by:
                        by.remove(number)
                        self.realised[number] += 1
                        is_released = True
        return is_released

    def forced(self, ticket: int) -> None:
        for number in self.waiting[ticket]:
            self.realised[number] += self.holds[number].until == FORCED
        self.waiting[ticket].clear()

    def tear_row(self, lane: str, name: str) -> int | None:
        rows = [
            hold.row_first
            for number, hold in enumerate(self.holds)
            if hold.row_first is not None and self.keeps(number, lane, name)
        ]
        return rows[0] if rows else None


def drawn_holds(random: Random) -> tuple[Hold, ...]:
    return tuple(
        Hold(op=random.choice(HELD), until=random.choice(UNTIL), row_first=random.choice(ROWS))
        for _ in range(random.randrange(4))
    )


@pytest.mark.parametrize("seed", range(150))
def test_it_holds_and_lets_go_as_said(seed: int) -> None:
    random = Random(seed)
    holds = drawn_holds(random)
    chooser, literal = HoldChooser(Schedule(holds=holds)), Literal(holds)
    assert chooser.has_holds == bool(holds)
    tickets: list[tuple[int, Ticket]] = []
    for _ in range(30):
        match random.randrange(5):
            case 0 | 1:
                lane, name = random.choice(LANES), random.choice(OPS)
                assert chooser.tear_row(lane, name) == literal.tear_row(lane, name)
                name += random.choice(("", "", "[1:]"))
                ticket, expected = chooser.ticket(lane, name), literal.ticket(lane, name)
                assert (ticket is None) == (expected is None)
                if ticket is not None and expected is not None:
                    tickets.append((expected, ticket))
            case 2 | 3:
                point = random.choice(POINTS)
                assert chooser.reach(point) == literal.reach(point)
            case _ if random.randrange(4) == 0:
                chooser.mark("A.0", 1)
                literal.steps.setdefault("A.0", 1)
            case _ if tickets:
                place, ticket = random.choice(tickets)
                chooser.forced(ticket)
                literal.forced(place)
        for place, ticket in tickets:
            assert ticket.is_held == bool(literal.waiting[place])
    found = [(each.hold, each.matched, each.realised) for each in chooser.outcomes()]
    texts = [hold.text() for hold in holds]
    assert found == list(zip(texts, literal.matched, literal.realised, strict=True))


@pytest.mark.parametrize(
    ("until", "watches"), [("host:see@1#a", True), ("host:see@1", False), (FORCED, False)]
)
def test_it_watches_accesses_only_for_points_that_are_accesses(
    until: str,
    watches: bool,  # noqa: FBT001
) -> None:
    holds = parse_schedule([f"d2h:a@0 until {until}", "d2h:a@1 until host:see@2"])
    assert HoldChooser(holds).watches_accesses is watches
    assert not HoldChooser(Schedule()).watches_accesses


def test_an_alias_is_resolved_once() -> None:
    chooser = HoldChooser(parse_schedule(["kernel:b@A.0 until forced"]))
    assert chooser.ticket("main", "kernel:b@1") is None
    chooser.mark("A.1", 1)
    assert chooser.ticket("main", "kernel:b@1") is None
    chooser.mark("A.0", 1)
    chooser.mark("A.0", 2)
    assert chooser.ticket("main", "kernel:b@1") is not None
    assert chooser.ticket("main", "kernel:b@2") is None
