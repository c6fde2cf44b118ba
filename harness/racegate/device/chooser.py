"""Chooser: what orders device work on the virtual device. The eager baseline with holds is one
chooser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from typing import Protocol

from racegate.schedule import FORCED, Hold, Schedule
from racegate.trace import HoldOutcome


class Ticket:
    """The hold on one pending operation, or on none."""

    __slots__ = ("holds", "is_held")

    def __init__(self, holds: list[_Watch]) -> None:
        self.holds = holds
        self.is_held = bool(holds)


class Chooser(Protocol):
    """Decides when an operation at the head of its stream may complete.

    is_eager: operations complete as soon as they can unless a ticket holds them; else the device
    offers the ready ones before every host access, wait and query, and `pick` chooses.
    """

    @property
    def is_eager(self) -> bool: ...

    def pick(self, ready: Sequence[str]) -> int | None:
        """Which of the ready operations (lane/name) completes next; None: no more for now."""
        ...

    def tear_row(self, lane: str, name: str) -> int | None:
        """The row at which a copy is torn in two, if at all."""
        ...

    def ticket(self, lane: str, name: str) -> Ticket | None:
        """The ticket of an operation held when it is issued; None lets it complete at once."""
        ...

    def reach(self, point: str) -> bool:
        """A point has been reached; whether anything was released by it."""
        ...

    def forced(self, ticket: Ticket) -> None:
        """A wait needed a held operation before its point came."""
        ...

    def outcomes(self) -> tuple[HoldOutcome, ...]: ...


class SteppingChooser:
    """Base of choosers that pick every completion; they hold and tear nothing."""

    @property
    def is_eager(self) -> bool:
        return False

    def pick(self, ready: Sequence[str]) -> int | None:
        raise NotImplementedError

    def tear_row(self, lane: str, name: str) -> int | None:
        return None

    def ticket(self, lane: str, name: str) -> Ticket | None:
        return None

    def reach(self, point: str) -> bool:
        return False

    def forced(self, ticket: Ticket) -> None:
        pass

    def outcomes(self) -> tuple[HoldOutcome, ...]:
        return ()


class _Watch:
    """One hold, with the tickets that still wait for its point."""

    __slots__ = ("hold", "matched", "op", "realised", "tickets", "until")

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.op = re.compile(translate(hold.op if "/" in hold.op else f"*/{hold.op}"))
        self.until = None if hold.until == FORCED else re.compile(translate(hold.until))
        self.tickets: list[Ticket] = []
        self.matched = 0
        self.realised = 0


class HoldChooser:
    """Every operation completes at once, except the held ones, which wait for their points."""

    def __init__(self, schedule: Schedule) -> None:
        self._watches = [_Watch(hold) for hold in schedule.holds]

    @property
    def is_eager(self) -> bool:
        return True

    def pick(self, ready: Sequence[str]) -> int | None:
        raise AssertionError("an eager chooser is never asked")

    def tear_row(self, lane: str, name: str) -> int | None:
        full = f"{lane}/{name}"
        for watch in self._watches:
            if watch.hold.row_first is not None and watch.op.match(full):
                return watch.hold.row_first
        return None

    def ticket(self, lane: str, name: str) -> Ticket | None:
        if not self._watches:
            return None
        full = f"{lane}/{name}"
        base, torn, _ = full.partition("[")
        holds = []
        for watch in self._watches:
            # A hold with a row names only the torn-off part of the copy.
            is_part = watch.hold.row_first is not None
            if is_part == bool(torn) and watch.op.match(base):
                holds.append(watch)
        if not holds:
            return None
        ticket = Ticket(holds)
        for watch in holds:
            watch.matched += 1
            watch.tickets.append(ticket)
        return ticket

    def reach(self, point: str) -> bool:
        released = False
        for watch in self._watches:
            if watch.tickets and watch.until is not None and watch.until.match(point):
                for ticket in watch.tickets:
                    if ticket.is_held:
                        # Still pending at its point: the hold did what it says.
                        watch.realised += 1
                        ticket.holds = [other for other in ticket.holds if other is not watch]
                        ticket.is_held = bool(ticket.holds)
                        released = True
                watch.tickets = [ticket for ticket in watch.tickets if watch in ticket.holds]
        return released

    def forced(self, ticket: Ticket) -> None:
        """A wait needed the operation before its point came."""
        if ticket.is_held:
            for watch in ticket.holds:
                if watch.until is None:
                    watch.realised += 1
                watch.tickets = [other for other in watch.tickets if other is not ticket]
            ticket.is_held = False

    def outcomes(self) -> tuple[HoldOutcome, ...]:
        return tuple(
            HoldOutcome(hold=watch.hold.text(), matched=watch.matched, realised=watch.realised)
            for watch in self._watches
        )
