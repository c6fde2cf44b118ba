"""Input preparation: pinned staging, uploads, and the kernels that correct the host's optimism
(docs/mechanism.md#correction).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from racegate.device.protocol import DeviceBuffer, Use, reads, updates, writes
from racegate.engine.rows.accepted_counts import CountAnswer
from racegate.engine.rows.mrope import mrope_host
from racegate.engine.rows.parts import RowParts
from racegate.engine.rows.planning import make_planner
from racegate.engine.rows.preparation import logit_index
from racegate.engine.state.buffers import StepOutputs, Twin
from racegate.engine.state.kernels import KernelStream
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import PrevStep, StepView, expected_owners, host_input_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Previous rows that device values are taken from, -1 where the host's stands. [R] int32 each.

    computed: for computed counts; count: the row whose valid count the row takes
    """

    computed: np.ndarray
    count: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSource:
    """Where the last tokens and drafts stand. rows: [R] int32, the place of each row's among them,
    or -1
    """

    rows: DeviceBuffer
    next_token: Use
    drafts: Use


class InputPrep:
    """Writes one step's inputs to pinned memory, copies them and derives the rest on the device."""

    def __init__(self, setup: Setup, parts: RowParts) -> None:
        self._setup = setup
        self._planner = make_planner(setup)
        self._index = {request.name: i for i, request in enumerate(setup.scenario.requests)}
        self._images = {request.name: request.images for request in setup.scenario.requests}
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
                known_len=len(state.tokens),
            )
            tokens[row] = state.token_at(index)
        return tokens

    def stage(
        self, view: StepView, prev: PrevStep, answer: CountAnswer, *, backup: np.ndarray
    ) -> Sources:
        """Host side: every per-row and per-token input. backup: [R] int32, backup tokens.

        Returns what the device takes from the previous step.
        """
        inputs = self._setup.inputs
        computed_source = self._parts.correction_rows(view.prev_positions)
        pairs = zip(view.entries, view.states, strict=True)
        computed = np.array([self._parts.host_computed(*pair) for pair in pairs], np.int32)
        self._put(view, inputs.input_ids, host_input_ids(view))
        self._put(view, inputs.query_start, view.query_start)
        self._put(view, inputs.computed_host, computed)
        self._put(view, inputs.accepted_host, answer.accepted_host)
        self._put(view, inputs.prev_positions, view.prev_positions)
        self._put(view, inputs.computed_source, computed_source)
        self._put(view, inputs.count_source, answer.count_source)
        self._put(view, inputs.draft_lens, view.draft_lens)
        self._put(view, inputs.discarded, view.discarded)
        self._put(view, inputs.backup_token, backup)
        self._put(view, inputs.is_decode, view.is_decode)
        index = logit_index(view, drafts_max=self._setup.sizes.drafts)
        self._put(view, inputs.logit_index, index)
        self.stage_coordinates(view, computed)
        return Sources(computed=computed_source, count=answer.count_source)

    def stage_coordinates(self, view: StepView, computed: np.ndarray) -> None:
        """Three-dimensional positions, if the model turns by them. computed: [R] int32, the host's
        counts
        """
        if self._setup.scenario.model.has_mrope:
            host = mrope_host(view, computed, self._images)
            self._put(view, self._setup.inputs.mrope_host, host)

    def stage_drafting(self, view: StepView, prev: PrevStep, *, targets: np.ndarray) -> None:
        """Host side of the drafter, and of what the device is told of the previous step.

        targets: [R] int32, accept targets
        """
        inputs = self._setup.inputs
        self.stage_targets(view, targets)
        if not prev.is_none:
            self._put(view, inputs.prev_scheduled, prev.tokens)
            self._put(view, inputs.prev_draft_lens, prev.draft_lens)

    def stage_targets(self, view: StepView, targets: np.ndarray) -> None:
        """Whose drafts they are, and what they aim at. targets: [R] int32"""
        inputs = self._setup.inputs
        request_index = np.array([self._index[name] for name in view.rows], np.int32)
        self._put(view, inputs.request_index, request_index)
        self._put(view, inputs.accept_target, targets)

    def send_tables(self, view: StepView) -> None:
        """Tables whose rows were written, and moved, where requests entered and left the batch."""
        inputs = self._setup.inputs
        for table in (inputs.block_table, inputs.state_table, inputs.temperature, inputs.seed):
            self._setup.upload(table, view.shape.rows, step=view.shape.step)

    def stage_padding(self, view: StepView) -> None:
        """Host side of an idle step: every input that decides where a padding row reads and writes.

        Its tables hold null blocks, so that it touches no request's memory (vllm#49757).
        """
        inputs, rows = self._setup.inputs, view.shape.rows
        zeros, nothing = np.zeros(rows, np.int32), np.full(rows, -1, np.int32)
        if self._setup.scenario.model.has_mrope:
            self._put(view, inputs.mrope_host, np.zeros((rows, 3), np.int32))
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

    def derive(
        self, view: StepView, prev: PrevStep, outputs: StepOutputs, sources: Sources
    ) -> None:
        """Device side: correction, positions, slots, and the previous step's tokens and drafts.

        outputs: those of the previous step
        """
        self._correct(view, prev, outputs, sources)
        self.place(view)
        has_drafts = np.where(view.draft_lens > 0, view.prev_positions, -1)
        scattered = expected_owners(view, prev, view.prev_positions)
        drafted = expected_owners(view, prev, has_drafts)
        self.fill_in(
            view,
            TokenSource(
                rows=self._setup.inputs.prev_positions.gpu,
                next_token=reads(outputs.next_token, expect=scattered),
                drafts=reads(outputs.drafts, expect=drafted),
            ),
        )

    def _correct(
        self, view: StepView, prev: PrevStep, outputs: StepOutputs, sources: Sources
    ) -> None:
        inputs, work, rows = self._setup.inputs, self._setup.work, view.shape.rows
        corrected = expected_owners(view, prev, sources.computed)
        counted = expected_owners(view, prev, sources.count)
        self._setup.kernels.launch_kernel(
            "correct_computed",
            {
                "computed": updates(work.computed, expect=corrected, own=view.owners),
                "computed_host": reads(inputs.computed_host.gpu, rows),
                "computed_source": reads(inputs.computed_source.gpu, rows),
                "prev_scheduled": reads(inputs.prev_scheduled.gpu),
                "prev_draft_lens": reads(inputs.prev_draft_lens.gpu),
                "prev_valid_count": reads(outputs.valid_count, expect=corrected),
            },
            step=view.shape.step,
        )
        self._setup.kernels.launch_kernel(
            "select_accepted",
            {
                "accepted": updates(work.accepted),
                "accepted_host": reads(inputs.accepted_host.gpu, rows),
                "count_source": reads(inputs.count_source.gpu, rows),
                "prev_valid_count": reads(outputs.valid_count, expect=counted),
            },
            step=view.shape.step,
        )

    def place(self, view: StepView) -> None:
        """Positions, lengths and slots."""
        inputs, work, rows = self._setup.inputs, self._setup.work, view.shape.rows
        with self._planner.building(view.shape.step) as kernels:
            kernels.launch_kernel(
                "positions",
                {
                    "computed": reads(self._parts.length_source(inputs, work), rows),
                    "query_start": reads(inputs.query_start.gpu, rows + 1),
                    "positions": writes(work.positions),
                    "seq_lens": writes(work.seq_lens),
                },
                step=view.shape.step,
            )
            kernels.launch_kernel(
                "slot_mapping",
                {
                    "positions": reads(work.positions),
                    "query_start": reads(inputs.query_start.gpu, rows + 1),
                    "block_table": reads(inputs.block_table.gpu, rows),
                    "slot_mapping": writes(work.slot_mapping),
                },
                step=view.shape.step,
                block_size=self._setup.scenario.engine.block_size,
            )
            if self._setup.scenario.model.has_mrope:
                self._place_mrope(view, kernels)

    def _place_mrope(self, view: StepView, kernels: KernelStream) -> None:
        """Three-dimensional positions: the host's optimism is taken off them as well."""
        inputs, work, shape = self._setup.inputs, self._setup.work, view.shape
        kernels.launch_kernel(
            "correct_mrope",
            {
                "mrope_host": reads(inputs.mrope_host.gpu, shape.tokens),
                "computed": reads(self._parts.mrope_source(inputs, work), shape.rows),
                "computed_host": reads(inputs.computed_host.gpu, shape.rows),
                "query_start": reads(inputs.query_start.gpu, shape.rows + 1),
                "mrope_positions": writes(work.mrope_positions),
            },
            step=shape.step,
        )

    def fill_in(self, view: StepView, source: TokenSource) -> None:
        """The last tokens and drafts go where this step's rows want them. Only the device knows how
        many drafts there are.
        """
        inputs, rows = self._setup.inputs, view.shape.rows
        self._setup.kernels.launch_kernel(
            "scatter_inputs",
            {
                "input_ids": updates(inputs.input_ids.gpu, view.shape.tokens),
                "query_start": reads(inputs.query_start.gpu, rows + 1),
                "prev_positions": reads(source.rows, rows),
                "draft_lens": reads(inputs.draft_lens.gpu, rows),
                "prev_next_token": source.next_token,
                "prev_drafts": source.drafts,
            },
            step=view.shape.step,
        )
        if self._setup.scenario.engine.drafter.may_miss:
            self._trim(view, source)

    def _trim(self, view: StepView, source: TokenSource) -> None:
        inputs, shape = self._setup.inputs, view.shape
        self._setup.kernels.launch_kernel(
            "trim_drafts",
            {
                "prev_drafts": source.drafts,
                "prev_positions": reads(source.rows, shape.rows),
                "draft_lens": reads(inputs.draft_lens.gpu, shape.rows),
                "query_start": reads(inputs.query_start.gpu, shape.rows + 1),
                "logit_index": updates(inputs.logit_index.gpu, shape.rows),
                "input_ids": updates(inputs.input_ids.gpu, shape.tokens),
            },
            step=shape.step,
        )

    def _put(self, view: StepView, twin: Twin, values: np.ndarray) -> None:
        self._setup.put(twin, values, step=view.shape.step)
