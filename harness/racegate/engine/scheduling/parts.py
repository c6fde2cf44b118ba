"""What of the scheduler can be exchanged, and what a correct engine has there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.tracked import Finish, Tracked


def drafts_after_gap(tracked: Tracked) -> int:
    """Drafts to schedule for a request that was not in the last plan: the device has lost them."""
    return 0


def reserved(tracked: Tracked) -> int:
    """Tokens that blocks must be there for before the next step's: all in flight, drafts
    included.
    """
    return tracked.computed


def take_late(tracked: Tracked, entry: PlanEntry, tokens: list[int]) -> None:
    """A frame of an earlier incarnation: its tokens are delivered, no counter changes."""
    tracked.stale -= 1
    tracked.deliver(tokens)


def finishes(tracked: Tracked) -> bool:
    """Whether a request ends here, with the output that was just taken."""
    return tracked.finish is not Finish.UNFINISHED


def starts_again(tracked: Tracked) -> bool:
    """Whether a request gives up what a failed load left in its blocks: always."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingParts:
    """The scheduler's parts."""

    drafts_after_gap: Callable[[Tracked], int] = drafts_after_gap
    reserved: Callable[[Tracked], int] = reserved
    take_late: Callable[[Tracked, PlanEntry, list[int]], None] = take_late
    finishes: Callable[[Tracked], bool] = finishes
    starts_again: Callable[[Tracked], bool] = starts_again
