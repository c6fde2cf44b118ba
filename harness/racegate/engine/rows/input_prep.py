"""Input preparation: pinned staging, uploads, and the kernels that correct the host's optimism
(docs/mechanism.md#correction).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from racegate.device.protocol import Device, Stream, Use, reads, updates, writes
from racegate.engine.cache.align_cache import Moves
from racegate.engine.rows.accepted_counts import CountAnswer
from racegate.engine.rows.parts import RowParts
from racegate.engine.rows.planning import make_planner
from racegate.engine.rows.preparation import logit_index
from racegate.engine.state.buffers import Inputs, StepOutputs, Twin, Work
from racegate.engine.state.view import PrevStep, StepView, host_input_ids
from racegate.history.trace import Owner
from racegate.scenario.spec import Scenario


class InputPrep:
    """Writes one step's inputs to pinned memory, copies them and derives the rest on the device."""

    def __init__(
        self,
        scenario: Scenario,
        device: Device,
        stream: Stream,
        *,
        inputs: Inputs,
        work: Work,
        parts: RowParts,
    ) -> None:
        self._engine = scenario.engine
        self._planner = make_planner(scenario, device, stream)
        self._index = {request.name: i for i, request in enumerate(scenario.requests)}
        self._device = device
        self._stream = stream
        self._inputs = inputs
        self._work = work
        self._parts = parts

    def backup_tokens(self, view: StepView) -> np.ndarray:
        """[R] int32: what discarded rows take for their next token; -1 elsewhere."""
        tokens = np.full(view.shape.rows, -1, np.int32)
        drafts_in_batch = int(view.draft_lens.max(initial=0))
        for row in np.flatnonzero(view.discarded):
            state, entry = view.states[row], view.entries[row]
            index = self._parts.backup_index(
                state.computed,
                entry.tokens,
                drafts_in_batch=drafts_in_batch,
                known=len(state.tokens),
            )
            tokens[row] = state.token_at(index)
        return tokens

    def stage(
        self,
        view: StepView,
        prev: PrevStep | None,
        answer: CountAnswer,
        *,
        backup: np.ndarray,
        targets: np.ndarray,
    ) -> np.ndarray:
        """Host side: every per-row and per-token input. Returns the correction's source rows."""
        inputs = self._inputs
        source = self._parts.correction_rows(view.prev_positions)
        pairs = zip(view.entries, view.states, strict=True)
        computed = np.array([self._parts.host_computed(*pair) for pair in pairs], np.int32)
        self._put(view, inputs.input_ids, host_input_ids(view))
        self._put(view, inputs.query_start, view.query_start)
        self._put(view, inputs.computed_host, computed)
        self._put(view, inputs.accepted_host, answer.host)
        self._put(view, inputs.prev_positions, view.prev_positions)
        self._put(view, inputs.computed_source, source)
        self._put(view, inputs.count_source, answer.source)
        self._put(view, inputs.draft_lens, view.draft_lens)
        self._put(view, inputs.discarded, view.discarded)
        self._put(view, inputs.backup_token, backup)
        self._put(view, inputs.is_decode, view.is_decode)
        index = logit_index(view, drafts_max=self._engine.draft_len_max)
        self._put(view, inputs.logit_index, index)
        request_index = np.array([self._index[name] for name in view.rows], np.int32)
        self._put(view, inputs.request_index, request_index)
        self._put(view, inputs.accept_target, targets)
        if prev is not None:
            self._put(view, inputs.prev_scheduled, prev.tokens)
            self._put(view, inputs.prev_draft_lens, prev.draft_lens)
        # Rows of these tables were written, and moved, where requests entered and left the batch.
        for table in (inputs.block_table, inputs.state_table, inputs.temperature, inputs.seed):
            self._upload(view, table, view.shape.rows)
        return source

    def stage_padding(self, view: StepView) -> None:
        """Host side of an idle step: every input that decides where a padding row reads and writes.

        Its tables hold null blocks, so that it touches no request's memory (vllm#49757).
        """
        inputs, rows = self._inputs, view.shape.rows
        zeros, nothing = np.zeros(rows, np.int32), np.full(rows, -1, np.int32)
        self._put(view, inputs.input_ids, zeros)
        self._put(view, inputs.query_start, view.query_start)
        self._put(view, inputs.computed_host, zeros)
        self._put(view, inputs.accepted_host, zeros + 1)
        self._put(view, inputs.prev_positions, nothing)
        self._put(view, inputs.computed_source, nothing)
        self._put(view, inputs.count_source, nothing)
        self._put(view, inputs.draft_lens, zeros)
        self._put(view, inputs.is_decode, view.is_decode)
        for table in (inputs.block_table, inputs.state_table, inputs.window_table):
            self._put(view, table, np.zeros((rows, table.cpu.shape[1]), np.int32))

    def stage_moves(self, view: StepView, moves: Moves) -> None:
        """Host side of columns: windows, and where running states go."""
        inputs = self._inputs
        self._put(view, inputs.window_table, moves.window)
        # These two follow the forward pass.
        inputs.scheduled.cpu.write(view.tokens)
        inputs.column.cpu.write(moves.column)
        self._put(view, inputs.migrate_source, moves.source)
        self._put(view, inputs.migrate_window, moves.window_source)
        self._put(view, inputs.migrate_target, moves.target)
        self._put(view, inputs.migrate_offset, moves.offset)

    def derive(
        self,
        view: StepView,
        prev: PrevStep | None,
        previous: StepOutputs,
        *,
        correction_source: np.ndarray,
        count_source: np.ndarray,
    ) -> None:
        """Device side: correction, positions, slots, and the previous step's tokens and drafts."""
        inputs, work, rows = self._inputs, self._work, view.shape.rows
        corrected = expected_owners(view, prev, correction_source)
        counted = expected_owners(view, prev, count_source)
        scattered = expected_owners(view, prev, view.prev_positions)
        has_drafts = np.where(view.draft_lens > 0, view.prev_positions, -1)
        drafted = expected_owners(view, prev, has_drafts)
        self._launch(
            view,
            "correct_computed",
            updates(work.computed, expect=corrected, own=view.owners),
            reads(inputs.computed_host.gpu, rows),
            reads(inputs.computed_source.gpu, rows),
            reads(inputs.prev_scheduled.gpu),
            reads(inputs.prev_draft_lens.gpu),
            reads(previous.valid_count, expect=corrected),
        )
        self._launch(
            view,
            "select_accepted",
            updates(work.accepted),
            reads(inputs.accepted_host.gpu, rows),
            reads(inputs.count_source.gpu, rows),
            reads(previous.valid_count, expect=counted),
        )
        with self._planner.building(view.shape.step) as plan_stream:
            self._launch(
                view,
                "positions",
                reads(self._parts.length_source(inputs, work), rows),
                reads(inputs.query_start.gpu, rows + 1),
                writes(work.positions),
                writes(work.seq_lens),
                stream=plan_stream,
            )
            self._launch(
                view,
                "slot_mapping",
                reads(work.positions),
                reads(inputs.query_start.gpu, rows + 1),
                reads(inputs.block_table.gpu, rows),
                writes(work.slot_mapping),
                stream=plan_stream,
                block_size=self._engine.block_size,
            )
        self._launch(
            view,
            "scatter_inputs",
            updates(inputs.input_ids.gpu, view.shape.tokens),
            reads(inputs.query_start.gpu, rows + 1),
            reads(inputs.prev_positions.gpu, rows),
            reads(inputs.draft_lens.gpu, rows),
            reads(previous.next_token, expect=scattered),
            reads(previous.drafts, expect=drafted),
        )

    def _put(self, view: StepView, twin: Twin, values: np.ndarray) -> None:
        twin.cpu.write(values)
        self._upload(view, twin, len(values))

    def _upload(self, view: StepView, twin: Twin, rows: int) -> None:
        self._device.upload(self._stream, twin.gpu, twin.cpu, step=view.shape.step, rows=rows)

    def _launch(
        self,
        view: StepView,
        name: str,
        *uses: Use,
        stream: Stream | None = None,
        **scalars: Any,
    ) -> None:
        """A kernel of the backend, by its name there; on the compute stream if none is named."""

        def kernel(k: Any, *arrays: Any, **values: Any) -> None:
            getattr(k, name)(*arrays, **values)

        where = self._stream if stream is None else stream
        self._device.launch(where, kernel, name, step=view.shape.step, uses=uses, **scalars)


def expected_owners(
    view: StepView, prev: PrevStep | None, source: np.ndarray
) -> tuple[tuple[int, Owner], ...]:
    """(previous row, owner) pairs: whose value of the previous step each row means to read."""
    if prev is None:
        return ()
    return tuple(
        (row, (name, prev.step))
        for name, row in zip(view.rows, source.tolist(), strict=True)
        if row >= 0
    )
