"""Stepwise oracle: observations of the two engines, boundary by boundary, field by field, stopping
at the first difference.

Exact quantities are compared exactly: there is no tolerance anywhere in an exact run. Float
quantities are compared with a float64 reference within `FLOAT_TOLERANCE`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest

import msgspec
import numpy as np

from racegate.history.observe import Boundary, Observation

# |a - b| <= FLOAT_TOLERANCE * (1 + |b|): float32 against float64 over the longest sequences of the
# gate. How it was measured: docs/decisions/03-numerics.md.
FLOAT_TOLERANCE = 1e-4

# The order of fields within a boundary: causes before effects, so that the first difference names
# the cause.
FIELDS: dict[str, tuple[str, ...]] = {
    Boundary.SCHEDULED: ("plan", "preempted", "block_table", "state_table"),
    Boundary.PREPARED: ("rows", "discarded", "backup_token", "accept_target"),
    Boundary.INPUTS: (
        "query_start",
        "computed",
        "accepted",
        "seq_lens",
        "common_prefix",
        "positions",
        "mrope_positions",
        "slot_mapping",
        "input_ids",
        "fresh_dirty",
        "conv",
        "state",
        "loaded_kv",
        "loaded_draft_kv",
    ),
    Boundary.SAMPLED: (
        "conv",
        "state",
        "kv",
        "sampled",
        "accepted",
        "valid_count",
        "next_token",
        "draft_kv",
        "drafts",
        "draft_weights",
        "checkpoint",
    ),
    Boundary.PROCESSED: ("delivered", "computed", "placeholders"),
}
WHOLE_ROW = 1 << 30
LOADED_FIELDS = frozenset({"loaded_kv", "loaded_draft_kv"})
TOKEN_FIELDS = frozenset(
    {"positions", "mrope_positions", "slot_mapping", "input_ids", "kv", "draft_kv"}
)


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where the engines differ. index: within the row or token; None for plain
    data. rank: whose value it is, of an engine of several
    """

    step: int
    boundary: str
    field: str
    layer: int | None
    request: str | None
    index: tuple[int, ...] | None
    expected: object
    actual: object
    rank: int | None = None


def find_divergence(
    actual: Sequence[Observation], expected: Sequence[Observation], *, agreed: int = 0
) -> Divergence | None:
    """The first difference between the asynchronous engine's and the reference's observations.

    agreed: of so many of the first it is known that they do not differ
    """
    layout = _Layout()
    for right in expected[:agreed]:
        layout.follow(right)
    for mine, right in zip(actual[agreed:], expected[agreed:], strict=False):
        if mine.rank != right.rank or (mine.step, mine.boundary) != (right.step, right.boundary):
            return _out_of_step(mine, right)
        layout.follow(right)
        found = _compare(mine, right, layout)
        if found is not None:
            return found
    if len(actual) != len(expected):
        longer = actual if len(actual) > len(expected) else expected
        extra = longer[min(len(actual), len(expected))]
        return Divergence(
            step=extra.step,
            boundary=extra.boundary,
            field="boundaries",
            layer=None,
            request=None,
            index=None,
            expected=len(expected),
            actual=len(actual),
            rank=extra.rank,
        )
    return None


def _out_of_step(mine: Observation, right: Observation) -> Divergence:
    return Divergence(
        step=right.step,
        boundary=right.boundary,
        field="boundary",
        layer=None,
        request=None,
        index=None,
        expected=f"{right.boundary}@{right.step}",
        actual=f"{mine.boundary}@{mine.step}",
        rank=mine.rank,
    )


class _Layout:
    """Which request stands at a row or token of the current step."""

    def __init__(self) -> None:
        self._rows: tuple[str, ...] = ()
        self._starts = np.zeros(1, np.int32)

    def follow(self, observation: Observation) -> None:
        self._rows = observation.values.get("rows", self._rows)
        self._starts = observation.values.get("query_start", self._starts)

    def cut(self, field: str, values: object, lengths: np.ndarray) -> object:
        """The values without those behind each row's agreed length. lengths: [R]."""
        base = field.partition(".")[0]
        if base not in ("conv", "state", "kv") or not isinstance(values, np.ndarray):
            return values
        kept = values.copy()
        for row in np.flatnonzero(lengths < WHOLE_ROW):
            if base == "conv":
                kept[row] = 0
            elif base == "state":
                kept[row, lengths[row] :] = 0
            else:
                kept[self._starts[row] + lengths[row] : self._starts[row + 1]] = 0
        return kept

    def request(self, field: str, place: int) -> str | None:
        if field in LOADED_FIELDS:
            return None
        row = place
        if field in TOKEN_FIELDS:
            row = int(np.searchsorted(self._starts, place, side="right")) - 1
        return self._rows[row] if 0 <= row < len(self._rows) else None


def _compare(mine: Observation, right: Observation, layout: _Layout) -> Divergence | None:
    lengths = _agreed_lengths(mine, right)
    for field in field_order(right):
        a, b = mine.values.get(field), right.values[field]
        is_same = _equal(a, b)
        if not is_same and lengths is not None:
            a, b = layout.cut(field, a, lengths), layout.cut(field, b, lengths)
            is_same = _equal(a, b)
        if not is_same:
            base, _, layer = field.partition(".")
            request, index, expected, actual = _first(base, a, b, layout)
            return Divergence(
                step=right.step,
                boundary=right.boundary,
                field=base,
                layer=int(layer) if layer else None,
                request=request,
                index=index,
                expected=expected,
                actual=actual,
                rank=mine.rank,
            )
    return None


def _agreed_lengths(mine: Observation, right: Observation) -> np.ndarray | None:
    """[R]: up to how many accepted tokens both engines agree, if not in all rows.

    What is behind is kept by one engine only: that it differs is an effect of the tokens.
    """
    if right.boundary is not Boundary.SAMPLED:
        return None
    a, b = mine.values.get("accepted"), right.values["accepted"]
    if a is None or a.shape != b.shape or _equal(a, b):
        return None
    return np.where(a == b, WHOLE_ROW, np.minimum(a, b))


def field_order(observation: Observation) -> Sequence[str]:
    """The fields of an observation, causes first, layers ascending."""
    return _ordered(observation.boundary, tuple(observation.values))


@lru_cache(maxsize=256)
def _ordered(boundary: Boundary, names: tuple[str, ...]) -> tuple[str, ...]:
    order = FIELDS[boundary]
    parts = [(*name.partition("."), name) for name in names]
    parts.sort(key=lambda part: (order.index(part[0]), int(part[2] or 0)))
    return tuple(name for *_, name in parts)


def _equal(a: object, b: object) -> bool:
    if not isinstance(b, np.ndarray):
        return bool(a == b)
    if not isinstance(a, np.ndarray) or a.shape != b.shape:
        return False
    if b.dtype.kind == "f":
        return bool(_close(a, b).all())
    # The same bytes of one dtype are the same numbers, and sooner compared.
    return (a.dtype == b.dtype and a.tobytes() == b.tobytes()) or np.array_equal(a, b)


def _close(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(a - b) <= FLOAT_TOLERANCE * (1.0 + np.abs(b)))


def _first(
    base: str, a: object, b: object, layout: _Layout
) -> tuple[str | None, tuple[int, ...] | None, object, object]:
    """(request, index, expected, actual) of the first difference in a field."""
    if isinstance(b, Mapping) and isinstance(a, Mapping):
        key = next(k for k in (*b, *a) if a.get(k) != b.get(k))
        return key, None, b.get(key), a.get(key)
    if base == "plan" and isinstance(a, tuple) and isinstance(b, tuple):
        i = next(i for i, (p, q) in enumerate(zip_longest(a, b)) if p != q)
        entries = b[i : i + 1] or a[i : i + 1]
        return entries[0][0], None, b, a
    if not isinstance(b, np.ndarray) or not isinstance(a, np.ndarray) or a.shape != b.shape:
        return None, None, _plain(b), _plain(a)
    wrong = ~_close(a, b) if b.dtype.kind == "f" else a != b
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return layout.request(base, index[0]), index, b[index].item(), a[index].item()


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value
