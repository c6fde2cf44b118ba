"""Being told to stop: by Ctrl-C, by SIGTERM as a scheduler or a CI service sends it, by SIGHUP when
a terminal is closed, or by SIGQUIT.

Each is a KeyboardInterrupt, which ends workers as it goes up; a job adds what it has done.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from types import FrameType
from typing import TypeVar

from racegate.history.exit_code import INTERRUPTED, code_of_signal
from racegate.scenario.untrusted.signals import TERMINATING

T = TypeVar("T")

NAMES_SHOWN_MAX = 8
ANEW = "the same command begins anew"


class TerminatedError(KeyboardInterrupt):
    """The process was told to end. number: of the signal that told it"""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__()
        self.number = number


class StoppedError(KeyboardInterrupt):
    """A job was told to stop. by: how; results: of the tasks that were done

    done: what is done, in words; go_on: how what is missing is done
    """

    def __init__(
        self,
        by: KeyboardInterrupt,
        *,
        done: str,
        go_on: str = ANEW,
        results: Sequence[object] = (),
    ) -> None:
        super().__init__(done)
        self.by = by
        self.done = done
        self.go_on = go_on
        self.results = results


def known_result(stop: StoppedError, kind: type[T]) -> T:
    """What a job of one result knew when it was told to stop."""
    (result,) = stop.results
    assert isinstance(result, kind)
    return result


def listen_for_stops() -> None:
    """From now on SIGTERM, SIGHUP and SIGQUIT end this process as Ctrl-C does. One that is ignored,
    as SIGHUP is under nohup, stays so.
    """
    for number in TERMINATING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminate)


def _terminate(number: int, frame: FrameType | None) -> None:
    # Once: a second one ends what takes too long to end.
    signal.signal(number, signal.SIG_DFL)
    raise TerminatedError(number)


def code_of(stop: KeyboardInterrupt) -> int:
    """What a command that was stopped ends with, as shells have it."""
    by = stop.by if isinstance(stop, StoppedError) else stop
    return code_of_signal(by.number) if isinstance(by, TerminatedError) else INTERRUPTED


def words_of(stop: KeyboardInterrupt) -> str:
    """What a person is told."""
    how = "interrupted" if code_of(stop) == INTERRUPTED else "terminated"
    if not isinstance(stop, StoppedError):
        return how
    return f"{how}: {stop.done}; to go on: {stop.go_on}"


def done_of(done: int, left: Sequence[str]) -> str:
    """How many tasks are done, and what is not."""
    names = list(dict.fromkeys(left))
    shown = ", ".join(names[:NAMES_SHOWN_MAX])
    more = " and others" if len(names) > NAMES_SHOWN_MAX else ""
    return f"{done} of {done + len(left)} done" + (f", not {shown}{more}" if left else "")
