"""Hold and Schedule: which operations complete later than at once, until when, by name.

A hold reads ``OPERATION until POINT``: ``d2h:accepted_counts@3 until host:condense@4``. The point
is the name of another operation (reached when it completed) or of a host action or access (reached
when the host has done it, or comes to it), or ``forced``: until a wait needs the operation. An
operation alone is held until then.

An operation of our own engine is ``kind:name@step``, optionally with its lane in front
(``output/d2h:sampled@3``) and ``*`` as a wildcard; one of a program is ``kind@file:function#count``
or any other text that its recorder gave it. A copy may be torn: ``OP[2:]`` holds its rows from 2
on, ``start of OP`` and ``rest of OP`` one half of its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.text import quoted

FORCED = "forced"
HOLDS_MAX = 256
HOLD_LENGTH_MAX = 1_000

_NAME = r"[A-Za-z0-9_.*:@/#\-]+"
_STEP = re.compile(r"@(?P<alias>[A-Za-z_][A-Za-z0-9_.\-]*\.\d+)(?=#|$)")
_STEP_NUMBER = re.compile(r"@(?P<step>\d+)(?=#|\[|$)")
_HOLD = re.compile(
    r"^(?:(?P<half>start of |rest of ))?(?P<op>(?!until\b|(?:start|rest) of )\S.*?)"
    r"(?:\[(?P<row>[0-9]{1,9}):\])?(?: until (?P<until>\S.*))?$"
)
_OWN = re.compile(rf"^{_NAME}$")
_UNTIL = " until "


def step_alias(name: str) -> str | None:
    """The `REQUEST.N` that names the step of an operation or point, if one does."""
    match = _STEP.search(name)
    return None if match is None else match["alias"]


def step_number(name: str) -> int | None:
    """The step of an operation or point, if it is named by number."""
    match = _STEP_NUMBER.search(name)
    return None if match is None else int(match["step"])


def with_step(name: str, step: int | str) -> str:
    """The name with another step, a number or `REQUEST.N`."""
    pattern = _STEP if step_alias(name) is not None else _STEP_NUMBER
    return pattern.sub(f"@{step}", name)


class ScheduleError(BadInputError):
    """A hold that cannot be read: says which and why."""


class Half(Enum):
    """One half of the bytes of a copy, as a hold names it: the other half lands when the copy is
    issued.
    """

    START = "start of "
    REST = "rest of "


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that does not complete before a point. op: its name; until: the point

    row_first: for a torn copy, the first row that is held; None holds the whole operation
    half: for a copy torn into two halves, the one that is held; None holds the whole operation
    """

    op: str
    until: str = FORCED
    row_first: int | None = None
    half: Half | None = None

    @property
    def operation(self) -> str:
        """What is held, in its text form: the operation, or the part of a copy that is late."""
        half = "" if self.half is None else self.half.value
        rows = "" if self.row_first is None else f"[{self.row_first}:]"
        return f"{half}{self.op}{rows}"

    def text(self) -> str:
        """The text form, which `parse_hold` reads back."""
        return f"{self.operation}{_UNTIL}{self.until}"


Holds = tuple[Hold, ...]


class AccessPlace(NamedTuple):
    """Where an operation or access stands in a run in which nothing is held. lane: its stream or
    thread, by number; at: its place among all events
    """

    lane: int
    at: int


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Holds over the eager baseline, in which every operation completes when it is issued."""

    holds: Holds = ()

    def texts(self) -> tuple[str, ...]:
        """The text forms of its holds, which `parse_schedule` reads back."""
        return texts_of(self.holds)


EAGER = Schedule()
LATE = Schedule(holds=(Hold(op="*", until=FORCED),))


def place_of(label: str) -> str:
    """The label of an operation without its count: kind and place."""
    return label.rpartition("#")[0]


def lane_late(lane: str) -> Schedule:
    """Operations of one lane complete only when a wait needs them."""
    return Schedule(holds=(Hold(op=f"{lane}/*", until=FORCED),))


def parse_hold(text: str) -> Hold:
    """The hold in its text form, of any target. Raises ScheduleError."""
    line = " ".join(text.split())
    match = _HOLD.match(line) if len(text) <= HOLD_LENGTH_MAX and line.isprintable() else None
    if match is None or line.count(_UNTIL) > 1 or line.endswith(_UNTIL.rstrip()):
        raise _unreadable(text)
    row, half = match["row"], match["half"]
    return Hold(
        op=match["op"],
        until=match["until"] or FORCED,
        row_first=None if row is None else int(row),
        half=None if half is None else Half(half),
    )


def parse_holds(texts: Sequence[str]) -> Holds:
    """The holds in their text form, of any target. Raises ScheduleError."""
    if len(texts) > HOLDS_MAX:
        raise ScheduleError(f"{len(texts)} holds, at most {HOLDS_MAX}")
    return tuple(parse_hold(text) for text in texts)


def texts_of(holds: Sequence[Hold]) -> tuple[str, ...]:
    """The text forms of holds, which `parse_holds` reads back."""
    return tuple(hold.text() for hold in holds)


def fewest(holds: Holds, fails: Callable[[Holds], bool | None]) -> tuple[Holds, bool]:
    """By delta debugging (Zeller and Hildebrandt 2002): as few of the holds as still fail, and
    whether none of these can be left out. fails: whether so few do; None if no more may be tried
    """
    size = max(1, len(holds) // 2)
    while holds:
        start, before = 0, len(holds)
        while start < len(holds):
            fewer = holds[:start] + holds[start + size :]
            is_failing = fails(fewer)
            if is_failing is None:
                return holds, False
            if is_failing:
                holds = fewer
            else:
                start += size
        if size == 1 and len(holds) == before:
            break
        size = max(1, size // 2)
    return holds, True


def parse_schedule(texts: Sequence[str]) -> Schedule:
    """The schedule of the given holds of our own engine or of an adapter, whose operations have
    names of one word. Raises ScheduleError.
    """
    holds = parse_holds(texts)
    for hold, text in zip(holds, texts, strict=True):
        if hold.half is not None or not (_OWN.match(hold.op) and _OWN.match(hold.until)):
            raise _unreadable(text)
    return Schedule(holds=holds)


def _unreadable(text: str) -> ScheduleError:
    return ScheduleError(
        f"cannot read the hold {quoted(text)}: write it as 'OP until POINT', "
        "for example 'd2h:accepted_counts@3 until host:condense@4'"
    )
