"""Ranks that stand still without having said for what they wait: in a store, in gloo, in a lock.

What a rank waits for outside of NCCL nobody sees. But if all of its threads sleep, none has been
woken for some time, and every one of them is in a call of torch.distributed, it waits for another
rank. If all others do so too, nobody can go on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from racegate.interpose.program.timeouts import (
    DEADLOCK_S,
    SILENCE_S,
    TaskWait,
    tasks_below,
    wait_of,
    woken,
)
from racegate.interpose.ranks.group.matching import RankState
from racegate.interpose.ranks.group.messages import ThreadPlace

GROUP_S = 3.0  # without having been woken, in a call of torch.distributed


class StillState(Enum):
    """What is known. IN_GROUP: all wait for each other; HANGS: they stand still for another reason;
    NO: somebody may go on
    """

    NO = "no"
    IN_GROUP = "in group"
    HANGS = "hangs"


class RanksStillness:
    """How long all ranks have been still, and what they have started."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}
        self._since_s = time.monotonic()

    def look(self, states: Mapping[int, RankState], pids: Mapping[int, int]) -> StillState:
        """To be asked again and again, after ranks have said where they stand. pids: of their
        processes, by number
        """
        tasks = list(_tasks(states, pids))
        helpers = [task for pid in _working(states, pids) for task in tasks_below(pid)]
        now = {str(task): woken(task) for task in (*(task for task, _ in tasks), *helpers)}
        is_still = now == self._seen and all(map(_sleeps, (*(task for task, _ in tasks), *helpers)))
        if not tasks or not is_still:
            self._seen, self._since_s = now, time.monotonic()
            return StillState.NO
        still_s = time.monotonic() - self._since_s
        if all(place.is_in_group for _, place in tasks):
            return StillState.IN_GROUP if still_s > GROUP_S else StillState.NO
        waits = {wait_of(task) for task, place in tasks if not place.is_in_group}
        limit_s = SILENCE_S if TaskWait.OUTSIDE in waits else DEADLOCK_S
        is_over = TaskWait.TIME not in waits and still_s > limit_s
        return StillState.HANGS if is_over else StillState.NO


def _working(states: Mapping[int, RankState], pids: Mapping[int, int]) -> Iterator[int]:
    """The processes that may do something by themselves, but for one whose threads all wait for
    processes that it started as ranks.
    """
    for number, state in states.items():
        if not state.is_still and not (not state.is_member and _only_launches(state)):
            yield pids[number]


def _only_launches(state: RankState) -> bool:
    return bool(state.standing) and all(one.is_launching for one in state.standing.values())


def _tasks(
    states: Mapping[int, RankState], pids: Mapping[int, int]
) -> Iterator[tuple[Path, ThreadPlace]]:
    """The threads that may do something, by their folders in /proc."""
    working = set(_working(states, pids))
    for number, state in states.items():
        if pids[number] in working:
            for thread, place in state.standing.items():
                yield Path(f"/proc/{pids[number]}/task/{thread}"), place


def _sleeps(task: Path) -> bool:
    try:
        return bool(re.search(r"State:\tS", (task / "status").read_text()))
    except OSError:
        return False
