"""Views of a step: its shape, its rows as the host sees them, and what the next step remembers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from racegate.device.protocol import RowMask
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.request_state import RequestState
from racegate.history.trace import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """What the host knows of a step's footprint.

    rows, tokens: counts
    blocks, state_blocks: bit masks of the attention and state blocks the step may touch; for a
        captured pass the names under which a replay gives them
    written, state_written: of those that it may write
    """

    step: int
    rows: int
    tokens: int
    blocks: RowMask
    state_blocks: RowMask
    written: RowMask
    state_written: RowMask


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One step in row order, as the host sees it.

    entries, states, rows: per row; prev_positions: [R] int32; tokens, draft_lens: [R] int32;
        query_start: [R + 1] int32
    discarded, is_decode: [R] int32; owners: whose values this step writes
    """

    shape: BatchShape
    rows: tuple[str, ...]
    entries: list[PlanEntry]
    states: list[RequestState]
    prev_positions: np.ndarray
    tokens: np.ndarray
    draft_lens: np.ndarray
    query_start: np.ndarray
    discarded: np.ndarray
    is_decode: np.ndarray
    owners: tuple[Owner, ...]


@dataclass(slots=True)
class PrevStep:
    """The last executed step, in its own row order; without rows, if the next one is to find none.

    row_of: request -> row, of requests that sampled and have not left the batch since
    """

    step: int
    requests: tuple[str, ...]
    incarnations: tuple[int, ...]
    row_of: dict[str, int]
    tokens: np.ndarray  # [R] int32, scheduled
    draft_lens: np.ndarray  # [R] int32
    discarded: np.ndarray  # [R] int32

    @property
    def is_none(self) -> bool:
        """Whether there was no step, or nothing of it is left on the device."""
        return not self.requests

    @property
    def owners(self) -> tuple[Owner, ...]:
        """Whose values a buffer of this step holds, by row."""
        return tuple((name, self.step) for name in self.requests)


def no_step() -> PrevStep:
    """Stands in for the previous step when there is none."""
    nothing = np.zeros(0, np.int32)
    return PrevStep(-1, (), (), {}, tokens=nothing, draft_lens=nothing, discarded=nothing)


def as_previous(view: StepView) -> PrevStep:
    """The step as the next one will look back at it."""
    rows = zip(view.rows, view.discarded.tolist(), strict=True)
    return PrevStep(
        step=view.shape.step,
        requests=view.rows,
        incarnations=tuple(entry.incarnation for entry in view.entries),
        row_of={name: row for row, (name, discarded) in enumerate(rows) if not discarded},
        tokens=view.tokens,
        draft_lens=view.draft_lens,
        discarded=view.discarded,
    )


def host_input_ids(view: StepView) -> np.ndarray:
    """[T] int32: known tokens; -1 where the device has to fill in what it sampled or drafted."""
    ids = np.full(view.shape.tokens, -1, np.int32)
    for row, (entry, state) in enumerate(zip(view.entries, view.states, strict=True)):
        known = state.tokens[entry.computed : entry.computed + entry.tokens - entry.drafts]
        if view.prev_positions[row] < 0:
            first = view.query_start[row]
            ids[first : first + len(known)] = known
    return ids


def expected_owners(
    view: StepView,
    prev: PrevStep,
    source: np.ndarray,  # [R] int32
) -> tuple[tuple[int, Owner], ...]:
    """(previous row, owner) pairs: whose value of the previous step each row means to read."""
    if prev.is_none:
        return ()
    return tuple(
        (row, (name, prev.step))
        for name, row in zip(view.rows, source.tolist(), strict=True)
        if row >= 0
    )
