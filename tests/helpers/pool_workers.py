"""Workers for tests of the pool: made by functions of a module, which a process can import."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

from racegate.jobs.pools.driver import Ready
from racegate.jobs.pools.pool import SayAlive, Task
from racegate.jobs.pools.transport import Transport
from racegate.scenario.errors import BadInputError


class Squarer:
    """Squares numbers; at its end it says its own and that of its process."""

    def __init__(self, number: int) -> None:
        self._number = number

    def work(self, task: int) -> int:
        return task * task

    def end(self) -> tuple[int, int]:
        return self._number, os.getpid()


class Doomed(Squarer):
    """Kills itself at 3, raises at 4, refuses 5, hangs at 6 until it is killed, ends at 7."""

    def work(self, task: int) -> int:
        if task == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if task == 4:
            raise ValueError("planted")
        if task == 5:
            raise BadInputError("5 is no number")
        if task == 6:
            threading.Event().wait()
        if task == 7:
            raise SystemExit(9)
        return super().work(task)


class Patient(Squarer):
    """Gives as many signs of life as its number says, and then squares it."""

    def work_on(self, task: int, say_alive: SayAlive) -> int:
        for _ in range(task):
            say_alive()
        return self.work(task)


class Uneven(Squarer):
    """Even numbers wait until the file exists that an odd one makes."""

    def __init__(self, number: int, path: str) -> None:
        super().__init__(number)
        self._path = path

    def work(self, task: int) -> int:
        if task == 1:
            open(self._path, "w").close()
        while task == 0 and not os.path.exists(self._path):
            threading.Event().wait(0.01)
        return super().work(task)


def make_uneven(path: str, number: int) -> Uneven:
    return Uneven(number, path)


def signs_of_one(transport: Transport[Any], number: int) -> int:
    """How many signs of life a worker elsewhere gives at its task."""
    handle = transport.open(Patient, 0)
    try:
        assert isinstance(handle.hear(), Ready)
        handle.send(Task(name="signs", content=number))
        assert handle.hear() == number * number
        while not (signs := handle.signs()):  # a message of its own, where it is one
            threading.Event().wait(0.01)
        return signs
    finally:
        handle.kill()
        handle.close()
        transport.close()


def numbered(numbers: Iterator[int] | range | None = None) -> Iterator[Task[int]]:
    """A task per number, without end if there are none."""
    for number in count() if numbers is None else numbers:
        yield Task(name=f"number {number}", content=number)


def drive() -> None:
    """A driver with two workers and tasks without end: says when both have done something."""
    from racegate.jobs.pools.pool import Done, spread
    from racegate.jobs.pools.processes import process_pool

    seen: set[int] = set()
    for event in process_pool().run(Squarer, spread(numbered(), 2)):
        if isinstance(event, Done):
            seen.add(event.worker)
        if len(seen) == 2:
            print("both", flush=True)
            seen = {-1, -2, -3}


if __name__ == "__main__":
    # A shell starts what it puts in the background with Ctrl-C ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    drive()
