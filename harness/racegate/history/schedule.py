"""Hold and Schedule: which operations complete later than at once, until when, by name.

Text form of a hold: ``d2h:accepted_counts@3 until host:condense@4``. The operation is
``kind:name@step``, optionally with its lane in front (``output/d2h:sampled@3``) and ``*`` as a
wildcard; a copy may be torn, ``OP[2:]`` holds its rows from 2 on. The point is the name of another
operation (reached when it completed) or of a host action (reached when the host has done it), or
``forced``: until a wait needs the operation.
"""

from __future__ import annotations

import re

import msgspec

from racegate.scenario.errors import BadInputError
from racegate.scenario.outside.text import quoted

FORCED = "forced"
HOLDS_MAX = 256
HOLD_LENGTH_MAX = 1_000

_NAME = r"[A-Za-z0-9_.*:@/#\-]+"
_STEP = re.compile(r"@(?P<alias>[A-Za-z_][A-Za-z0-9_.\-]*\.\d+)(?=#|$)")
_STEP_NUMBER = re.compile(r"@(?P<step>\d+)(?=#|\[|$)")
_HOLD = re.compile(rf"^(?P<op>{_NAME}?)(?:\[(?P<row>[0-9]{{1,9}}):\])? until (?P<until>{_NAME})$")


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


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """The operation `op` does not complete before the point `until`.

    row_first: for a torn copy, the first row that is held; None holds the whole operation.
    """

    op: str
    until: str
    row_first: int | None = None

    def text(self) -> str:
        """The text form, which `parse_hold` reads back."""
        rows = "" if self.row_first is None else f"[{self.row_first}:]"
        return f"{self.op}{rows} until {self.until}"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Holds over the eager baseline, in which every operation completes when it is issued."""

    holds: tuple[Hold, ...] = ()

    def texts(self) -> tuple[str, ...]:
        """The text forms of its holds, which `parse_schedule` reads back."""
        return tuple(hold.text() for hold in self.holds)


EAGER = Schedule()
LATE = Schedule(holds=(Hold(op="*", until=FORCED),))


def lane_late(lane: str) -> Schedule:
    """Operations of one lane complete only when a wait needs them."""
    return Schedule(holds=(Hold(op=f"{lane}/*", until=FORCED),))


def parse_hold(text: str) -> Hold:
    """The hold in its text form. Raises ScheduleError."""
    is_short = len(text) <= HOLD_LENGTH_MAX
    match = _HOLD.match(" ".join(text.split())) if is_short else None
    if match is None:
        raise ScheduleError(
            f"cannot read the hold {quoted(text)}: write it as 'OP until POINT', "
            "for example 'd2h:accepted_counts@3 until host:condense@4'"
        )
    row = match["row"]
    return Hold(op=match["op"], until=match["until"], row_first=None if row is None else int(row))


def parse_schedule(texts: tuple[str, ...] | list[str]) -> Schedule:
    """The schedule of the given holds. Raises ScheduleError."""
    if len(texts) > HOLDS_MAX:
        raise ScheduleError(f"{len(texts)} holds, at most {HOLDS_MAX}")
    return Schedule(holds=tuple(parse_hold(text) for text in texts))
