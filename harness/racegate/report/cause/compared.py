"""What the engine showed beside what the reference shows: a table of steps, and how far the states
of each layer differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from racegate.history.finding import Finding, FindingKind
from racegate.history.observe import Boundary, Observation, of_rank

STEPS_BEFORE, STEPS_BEHIND = 3, 2
STEPS_MAX = 24  # of the heat map
ROWS_MAX = 24
VALUES_SHOWN_MAX = 6
_STATES = ("state", "conv", "kv", "draft_kv")
_COLUMNS = (
    (Boundary.INPUTS, "computed"),
    (Boundary.INPUTS, "accepted"),
    (Boundary.INPUTS, "input_ids"),
    (Boundary.SAMPLED, "sampled"),
    (Boundary.SAMPLED, "drafts"),
    (Boundary.PROCESSED, "delivered"),
)
_Seen = Mapping[tuple[int, str], Observation]


class ComparedValue(NamedTuple):
    """One field of one request in one step, as text. role: same, differs, or first: the first
    divergence
    """

    reference: str
    engine: str
    role: str


class StepEntry(NamedTuple):
    """One request in one step."""

    step: int
    request: str
    cells: tuple[ComparedValue, ...]


class Heat(NamedTuple):
    """How far a state differs, step by step. shares: of its values; None where it was not seen"""

    name: str
    shares: tuple[float | None, ...]


class ValueComparison(msgspec.Struct, frozen=True, kw_only=True):
    """columns: boundary.field of the table; steps: of the heat map"""

    columns: tuple[str, ...]
    lines: tuple[StepEntry, ...]
    steps: tuple[int, ...]
    heats: tuple[Heat, ...]


def compared(
    engine: Sequence[Observation], reference: Sequence[Observation], findings: Sequence[Finding]
) -> ValueComparison:
    """Around the first divergence; without one, around the first step that a finding names."""
    first = next((f for f in findings if f.kind is FindingKind.DIVERGENCE), None)
    rank = 0 if first is None or first.rank is None else first.rank
    mine, right = _by_place(of_rank(engine, rank)), _by_place(of_rank(reference, rank))
    seen = sorted({step for step, _ in mine})
    named = [f.step for f in (*filter(None, (first,)), *findings) if f.step is not None]
    around = next(iter((*named, *seen[-1:])), 0)
    columns = _columns(first, mine)
    shown = [s for s in seen if around - STEPS_BEFORE <= s <= around + STEPS_BEHIND]
    lines = [
        StepEntry(step, request, _cells(mine, right, (step, request), columns, first))
        for step in shown
        for request in _requests(mine, right, step)
    ]
    steps = tuple(step for step in seen if step <= around + STEPS_BEHIND)[-STEPS_MAX:]
    return ValueComparison(
        columns=tuple(f"{boundary}.{field}" for boundary, field in columns),
        lines=tuple(lines[-ROWS_MAX:]),
        steps=steps,
        heats=tuple(_heats(mine, right, steps)),
    )


def _by_place(observations: Sequence[Observation]) -> _Seen:
    return {(seen.step, seen.boundary): seen for seen in observations}


def _columns(first: Finding | None, mine: _Seen) -> tuple[tuple[Boundary, str], ...]:
    """Those that are always shown, and the field that differs first."""
    fields = {(b, name) for (_, b), seen in mine.items() for name in seen.values}
    shown = [column for column in _COLUMNS if column in fields]
    if first is not None:
        boundary, _, field = (first.field or "").partition(".")
        name = field if first.layer is None else f"{field}.{first.layer}"
        own = (Boundary(boundary), name)
        if own in fields and own not in shown:
            shown.append(own)
    return tuple(sorted(shown, key=lambda column: list(Boundary).index(column[0])))


def _requests(mine: _Seen, right: _Seen, step: int) -> tuple[str, ...]:
    rows = [seen.values.get("rows", ()) for seen in _at(mine, right, step, Boundary.PREPARED)]
    return tuple(dict.fromkeys(name for names in rows for name in names))


def _at(mine: _Seen, right: _Seen, step: int, boundary: Boundary) -> list[Observation]:
    return [seen[step, boundary] for seen in (mine, right) if (step, boundary) in seen]


def _cells(
    mine: _Seen,
    right: _Seen,
    place: tuple[int, str],
    columns: Sequence[tuple[Boundary, str]],
    first: Finding | None,
) -> tuple[ComparedValue, ...]:
    """place: (step, request)"""
    step, request = place
    cells = []
    for boundary, field in columns:
        engine = _value(mine, step, boundary, field, request)
        reference = _value(right, step, boundary, field, request)
        role = "same"
        if not _equal(engine, reference):
            role = "differs"
            if first is not None and _is_first(first, place, boundary, field):
                role = "first"
        cells.append(ComparedValue(_text(reference, reference), _text(engine, reference), role))
    return tuple(cells)


def _is_first(first: Finding, place: tuple[int, str], boundary: Boundary, field: str) -> bool:
    name = f"{boundary}.{field.partition('.')[0]}"
    return (first.step, first.field) == (place[0], name) and first.request in (None, place[1])


def _value(seen: _Seen, step: int, boundary: Boundary, field: str, request: str) -> object:
    """What an observation says of one request; None where it says nothing."""
    at = seen.get((step, boundary))
    if at is None or field not in at.values:
        return None
    value = at.values[field]
    if isinstance(value, Mapping):
        return value.get(request)
    if not isinstance(value, np.ndarray):
        return next((entry for entry in value if entry and entry[0] == request), None)
    prepared = seen.get((step, Boundary.PREPARED))
    rows = () if prepared is None else prepared.values.get("rows", ())
    if request not in rows:
        return None
    row = rows.index(request)
    starts = _starts(seen, step)
    if len(value) == len(rows):
        return value[row]
    if starts is not None and row + 1 < len(starts) and len(value) == starts[-1]:
        return value[starts[row] : starts[row + 1]]
    return value


def _starts(seen: _Seen, step: int) -> np.ndarray | None:
    """[R + 1]: where each row's tokens begin."""
    at = seen.get((step, Boundary.INPUTS))
    return None if at is None else at.values.get("query_start")


def _equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and _share(a, b) == 0.0
    return type(a) is type(b) and bool(np.all(a == b))


def _text(value: object, right: object) -> str:
    """A value; of many, how many are not the right ones."""
    if value is None:
        return "-"
    if isinstance(value, np.ndarray):
        if value.size > VALUES_SHOWN_MAX:
            wrong = 0
            if isinstance(right, np.ndarray) and right.shape == value.shape:
                wrong = round(_share(value, right) * value.size)
            return f"{value.size} values" + (f", {wrong} of them wrong" if wrong else "")
        return " ".join(str(item) for item in value.ravel().tolist())
    if isinstance(value, tuple):
        shown = [str(item) for item in value[-VALUES_SHOWN_MAX:]]
        return " ".join(["...", *shown] if len(value) > len(shown) else shown) or "none"
    return str(value)


def _heats(mine: _Seen, right: _Seen, steps: Sequence[int]) -> list[Heat]:
    names = {
        name: None
        for (_, boundary), seen in mine.items()
        if boundary is Boundary.SAMPLED
        for name in seen.values
        if name.partition(".")[0] in _STATES
    }
    ordered = sorted(names, key=lambda n: (int(n.partition(".")[2] or 1 << 30), n))
    return [Heat(name, tuple(_difference(mine, right, s, name) for s in steps)) for name in ordered]


def _difference(mine: _Seen, right: _Seen, step: int, name: str) -> float | None:
    """The share of a state's values that differ behind a step."""
    seen = [at.values.get(name) for at in _at(mine, right, step, Boundary.SAMPLED)]
    both = [value for value in seen if isinstance(value, np.ndarray)]
    return _share(both[0], both[1]) if len(both) == 2 else None


def _share(a: np.ndarray, b: np.ndarray) -> float:
    """The share of values that differ, 1 where the shapes do. a, b: of any one shape"""
    if a.shape != b.shape:
        return 1.0
    if not a.size:
        return 0.0
    same = np.isclose(a, b, rtol=1e-4, atol=1e-4) if a.dtype.kind == "f" else a == b
    return 1.0 - float(same.mean())
