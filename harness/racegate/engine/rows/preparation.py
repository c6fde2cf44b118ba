"""Host arrays of one step, computed from the plan and the rows, before any of them is written to
pinned memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from racegate.device.masks import mask_of
from racegate.engine.state.plan import PlanEntry, StepPlan
from racegate.engine.state.request_state import RequestState
from racegate.engine.state.view import BatchShape, PrevStep, StepView
from racegate.scenario.settings import EngineSpec, TransferMode


def view_step(
    plan: StepPlan,
    rows: tuple[str, ...],
    states: Mapping[str, RequestState],
    prev: PrevStep,
    *,
    engine: EngineSpec,
) -> StepView:
    """The plan laid out by rows."""
    by_name = {entry.request: entry for entry in plan.entries}
    entries = [by_name[name] for name in rows]
    tokens = np.array([entry.tokens for entry in entries], np.int32)
    blocks = mask_of([block for entry in entries for block in entry.blocks])
    # Bit 0 is the null block: a migration kernel looks at it for rows that do not move.
    state_blocks = mask_of([block for entry in entries for block in entry.state_blocks])
    written, state_written = blocks, state_blocks
    if engine.transfers is not TransferMode.STREAMS:
        written, state_written = _written(entries, engine)
    query_start = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(tokens, out=query_start[1:])
    shape = BatchShape(
        step=plan.step,
        rows=len(rows),
        tokens=int(query_start[-1]),
        blocks=blocks,
        state_blocks=state_blocks,
        written=written,
        state_written=state_written,
    )
    return StepView(
        shape=shape,
        rows=rows,
        entries=entries,
        states=[states[name] for name in rows],
        prev_positions=np.array([prev.row_of.get(name, -1) for name in rows], np.int32),
        tokens=tokens,
        draft_lens=np.array([entry.drafts for entry in entries], np.int32),
        query_start=query_start,
        discarded=np.array([entry.is_discarded for entry in entries], np.int32),
        is_decode=np.array([entry.is_decode for entry in entries], np.int32),
        owners=tuple((name, plan.step) for name in rows),
    )


def _written(entries: Sequence[PlanEntry], engine: EngineSpec) -> tuple[int, int]:
    """Attention and state blocks that a step may write, as masks, where only the host waits for
    saves: they still read what a prompt's earlier chunks have filled, and its steps leave it alone.
    """
    blocks: list[int] = []
    state_blocks: list[int] = []
    for entry in entries:
        first = min(entry.computed, entry.prefill_len)
        blocks += entry.blocks[first // engine.block_size :]
        state_blocks += entry.state_blocks[first // engine.state_interval :]
    return mask_of(blocks), mask_of(state_blocks)


def dummy_view(step: int, rows: int) -> StepView:
    """A step of padding rows, one token each, in null blocks (bit 0)."""
    nothing = np.full(rows, -1, np.int32)
    return StepView(
        shape=BatchShape(
            step=step, rows=rows, tokens=rows, blocks=1, state_blocks=1, written=1, state_written=1
        ),
        rows=(),
        entries=[],
        states=[],
        prev_positions=nothing,
        tokens=np.ones(rows, np.int32),
        draft_lens=np.zeros(rows, np.int32),
        query_start=np.arange(rows + 1, dtype=np.int32),
        discarded=np.zeros(rows, np.int32),
        is_decode=np.ones(rows, np.int32),
        owners=(),
    )


def logit_index(view: StepView, *, drafts_max: int) -> np.ndarray:
    """[R, 1 + K] int32: token index of each position to verify, -1 behind the row's last draft."""
    place = np.arange(1 + drafts_max, dtype=np.int32)
    index = view.query_start[1:, None] - 1 - view.draft_lens[:, None] + place
    return np.where(place <= view.draft_lens[:, None], index, -1).astype(np.int32)


def accepted_last(view: StepView) -> np.ndarray:
    """[R] int32: the count of each row's last step as far as the host has learned it."""
    return np.array([state.accepted_last for state in view.states], np.int32)
