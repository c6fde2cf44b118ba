"""Ranks that stand still without having said for what they wait: in a store, in gloo, in a lock.

What a rank waits for outside of NCCL nobody sees. But if all of its threads sleep, none has been
woken for some time, and every one of them is in a call of torch.distributed, it waits for another
rank. If all others do so too, nobody can go on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path

from racegate.interpose.program.timeouts import (
    DEADLOCK_S,
    SILENCE_S,
    TaskWait,
    wait_of,
    woken,
)
from racegate.interpose.ranks.group.matching import RankState
from racegate.interpose.ranks.group.messages import ThreadPlace

GROUP_S = 3.0  # without having been woken, in a call of torch.distributed


class Standstill(Enum):
    """What is known. IN_GROUP: all wait for each other; HANGS: they stand still for another reason;
    NO: somebody may go on
    """

    NO = "no"
    IN_GROUP = "in group"
    HANGS = "hangs"


class RanksStillness:
    """How long all ranks have been still. pids: of their processes"""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._seen: dict[str, str] = {}
        self._since_s = time.monotonic()

    def look(self, states: Sequence[RankState]) -> Standstill:
        """To be asked again and again, after ranks have said where they stand."""
        tasks = list(self._tasks(states))
        now = {str(task): woken(task) for task, _ in tasks}
        if now != self._seen or not tasks or not all(_sleeps(task) for task, _ in tasks):
            self._seen, self._since_s = now, time.monotonic()
            return Standstill.NO
        still_s = time.monotonic() - self._since_s
        if all(place.is_in_group for _, place in tasks):
            return Standstill.IN_GROUP if still_s > GROUP_S else Standstill.NO
        waits = {wait_of(task) for task, place in tasks if not place.is_in_group}
        limit_s = SILENCE_S if TaskWait.OUTSIDE in waits else DEADLOCK_S
        is_over = TaskWait.TIME not in waits and still_s > limit_s
        return Standstill.HANGS if is_over else Standstill.NO

    def _tasks(self, states: Sequence[RankState]) -> Iterator[tuple[Path, ThreadPlace]]:
        """The threads that may do something, by their folders in /proc."""
        for pid, state in zip(self._pids, states, strict=True):
            if not state.is_still:
                for thread, place in state.standing.items():
                    yield Path(f"/proc/{pid}/task/{thread}"), place


def _sleeps(task: Path) -> bool:
    try:
        return bool(re.search(r"State:\tS", (task / "status").read_text()))
    except OSError:
        return False
