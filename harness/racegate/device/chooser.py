"""HoldChooser: the eager baseline with holds. What orders device work on the virtual device by
default.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate

from racegate.history.schedule import FORCED, Hold, Schedule, step_alias, with_step
from racegate.history.trace import HoldOutcome


class Ticket:
    """The hold on one pending operation, or on none."""

    __slots__ = ("holds", "is_held")

    def __init__(self, holds: list[_Watch]) -> None:
        self.holds = holds
        self.is_held = bool(holds)


class _Watch:
    """One hold, with the tickets that still wait for its point."""

    __slots__ = ("hold", "matched", "op", "realised", "stem", "tickets", "until")

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.op = _pattern(hold.op if "/" in hold.op else f"*/{hold.op}")
        self.until = None if hold.until == FORCED else _pattern(hold.until)
        # What every match contains: a quick look before the pattern.
        stem = hold.op.partition("@")[0]
        self.stem = None if "*" in stem else stem
        self.tickets: list[Ticket] = []
        self.matched = 0
        self.realised = 0

    def resolve(self, alias: str, step: int) -> None:
        """The step named `@alias` is this one."""
        if self.op is None and step_alias(self.hold.op) == alias:
            op = with_step(self.hold.op, step)
            self.op = re.compile(translate(op if "/" in op else f"*/{op}"))
        if self.until is None and step_alias(self.hold.until) == alias:
            self.until = re.compile(translate(with_step(self.hold.until, step)))

    def holds_op(self, full_name: str) -> bool:
        if self.stem is not None and self.stem not in full_name:
            return False
        return self.op is not None and self.op.match(full_name) is not None

    def ends_at(self, point: str) -> bool:
        return self.until is not None and self.until.match(point) is not None


def _pattern(name: str) -> re.Pattern[str] | None:
    """A name with wildcards; None while it names its step by an alias that is not known yet."""
    return re.compile(translate(name)) if step_alias(name) is None else None


class HoldChooser:
    """Every operation completes at once, except the held ones, which wait for their points."""

    def __init__(
        self, schedule: Schedule, *, on_landing: Callable[[str], None] | None = None
    ) -> None:
        """on_landing: is told the name of each operation that a hold kept back, when it has run"""
        self._on_landing = on_landing
        self._kept: set[str] = set()
        self._watches = [_Watch(hold) for hold in schedule.holds]
        self.has_holds = bool(self._watches)
        self.watches_accesses = any("#" in hold.until for hold in schedule.holds)

    def mark(self, alias: str, step: int) -> None:
        """A step can from now on be named `@alias`."""
        for watch in self._watches:
            watch.resolve(alias, step)

    def tear_row(self, lane: str, name: str) -> int | None:
        """The first row that a hold keeps of a copy, if one names the copy by row."""
        full = f"{lane}/{name}"
        for watch in self._watches:
            if watch.hold.row_first is not None and watch.holds_op(full):
                return watch.hold.row_first
        return None

    def ticket(self, lane: str, name: str) -> Ticket | None:
        """For an operation that holds name; None if it may run at once."""
        if not self._watches:
            return None
        full = f"{lane}/{name}"
        base, torn, _ = full.partition("[")
        holds = []
        for watch in self._watches:
            # A hold with a row names only the torn-off part of the copy.
            is_part = watch.hold.row_first is not None
            if is_part == bool(torn) and watch.holds_op(base):
                holds.append(watch)
        if not holds:
            return None
        ticket = Ticket(holds)
        for watch in holds:
            watch.matched += 1
            watch.tickets.append(ticket)
        self._kept.add(name)
        return ticket

    def reach(self, point: str) -> bool:
        """The holds until this point end; whether that let any operation go. An operation that has
        run is a point.
        """
        if point in self._kept:
            self._kept.remove(point)
            if self._on_landing is not None:
                self._on_landing(point)
        released = False
        for watch in self._watches:
            if watch.tickets and watch.ends_at(point):
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
                if watch.hold.until == FORCED:
                    watch.realised += 1
                watch.tickets = [other for other in watch.tickets if other is not ticket]
            ticket.is_held = False

    def outcomes(self) -> tuple[HoldOutcome, ...]:
        """What has become of every hold."""
        return tuple(
            HoldOutcome(hold=watch.hold.text(), matched=watch.matched, realised=watch.realised)
            for watch in self._watches
        )
