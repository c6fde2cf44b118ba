"""Which request has which row, block and token, step by step, as a run was observed."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from racegate.history.observe import Boundary, Observation
from racegate.history.schedule import step_alias, with_step

_BY_TOKEN = ("input_ids", "positions", "slot_mapping", "shifted_ids", "hidden")
_BY_BLOCK = ("kv", "draft_kv")
_BY_STATE = ("state", "conv")
_BY_ENTRY = ("zero_list", "zero_state_list", "saved")
T = TypeVar("T")
_Tables = Mapping[str, tuple[int, ...]]


class RowAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """By step. rows: requests in the order of rows; blocks, states: request -> its blocks of the
    attention caches and of the recurrent states; starts: [R + 1], where each row's tokens begin
    aliases: `REQUEST.N` -> the step in which the request was scheduled for the N-th time, from 0
    """

    rows: dict[int, tuple[str, ...]]
    blocks: dict[int, _Tables]
    states: dict[int, _Tables]
    starts: dict[int, tuple[int, ...]]
    aliases: dict[str, int]

    def rows_in(self, step: int) -> tuple[str, ...]:
        """The requests of a step's rows, or of the last step before it that had any."""
        return _latest(self.rows, step) or ()

    def named(self, name: str) -> str:
        """An operation or point of a hold with its step as a number."""
        alias = step_alias(name)
        return with_step(name, self.aliases[alias]) if alias in self.aliases else name

    def request_at(self, buffer: str, row: int, step: int) -> str | None:
        """Whose a row of a buffer is in a step; None if it is nobody's."""
        base = _base(buffer)
        if base.startswith(_BY_ENTRY):
            return None
        if base in _BY_BLOCK:
            return _owner(_latest(self.blocks, step) or {}, row)
        if base in _BY_STATE:
            return _owner(_latest(self.states, step) or {}, row)
        if base in _BY_TOKEN:
            row = bisect_right(_latest(self.starts, step) or (), row) - 1
        rows = self.rows_in(step)
        return rows[row] if 0 <= row < len(rows) else None


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A request changes its row between two steps.

    row_from: None for a request that enters; row_to: None for one that leaves
    """

    request: str
    row_from: int | None
    row_to: int | None

    @property
    def text(self) -> str:
        """In words."""
        if self.row_from is None:
            return f"{self.request} takes row {self.row_to}"
        if self.row_to is None:
            return f"{self.request} left row {self.row_from}"
        return f"{self.request} moves from row {self.row_from} to row {self.row_to}"

    @property
    def short(self) -> str:
        """The same for where there is little room."""
        if self.row_from is None:
            return self.text
        if self.row_to is None:
            return f"{self.request} left"
        return f"{self.request}: row {self.row_from} → {self.row_to}"


def assignment_of(observations: Iterable[Observation]) -> RowAssignment:
    """The row assignment of a run, from what was observed."""
    found = RowAssignment(rows={}, blocks={}, states={}, starts={}, aliases={})
    scheduled: Counter[str] = Counter()
    for seen in observations:
        values = seen.values
        if seen.boundary is Boundary.SCHEDULED:
            found.blocks[seen.step] = values.get("block_table", {})
            found.states[seen.step] = values.get("state_table", {})
            for request, *_ in values.get("plan", ()):
                found.aliases[f"{request}.{scheduled[request]}"] = seen.step
                scheduled[request] += 1
        elif seen.boundary is Boundary.PREPARED:
            found.rows[seen.step] = tuple(values.get("rows", ()))
        elif seen.boundary is Boundary.INPUTS and "query_start" in values:
            found.starts[seen.step] = tuple(int(start) for start in values["query_start"])
    return found


def moves_between(before: tuple[str, ...], after: tuple[str, ...]) -> tuple[Move, ...]:
    """What changed in the rows from one step to the next: who moved, who left, who came."""
    then, now = _row_by_request(before), _row_by_request(after)
    moves = [
        Move(request=name, row_from=then.get(name), row_to=now.get(name))
        for name in dict.fromkeys((*after, *before))
        if then.get(name) != now.get(name)
    ]
    return tuple(sorted(moves, key=lambda m: (m.row_from is None, m.row_to is None)))


def noun_of(buffer: str) -> str:
    """What a row of a buffer is."""
    base = _base(buffer)
    if base.startswith(_BY_ENTRY):
        return "entry"
    if base in _BY_BLOCK or base in _BY_STATE:
        return "block"
    return "token" if base in _BY_TOKEN else "row"


def _row_by_request(rows: tuple[str, ...]) -> dict[str, int]:
    return {name: row for row, name in enumerate(rows)}


def _base(buffer: str) -> str:
    return buffer.removesuffix("_cpu").removesuffix("_gpu").partition(".")[0]


def _owner(tables: _Tables, block: int) -> str | None:
    return next((name for name, blocks in tables.items() if block in blocks), None)


def _latest(by_step: Mapping[int, T], step: int) -> T | None:
    if step in by_step:
        return by_step[step]
    known = [at for at in by_step if at <= step]
    return by_step[max(known)] if known else None
