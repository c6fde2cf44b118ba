"""The model runner: one step from the plan to device work, with the host one step ahead
(docs/mechanism.md#step).

Streams: engine/state/lanes. In the steady state the host waits in three places only: before
    rewriting pinned inputs (INPUT_PREP_GUARD), before the deferred correction (VALID_COUNT_LANDED),
    and for the output of the oldest step (OUTPUT_LANDED).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from racegate.device.protocol import Device, HostBuffer, Stream, writes
from racegate.engine.cache.align_cache import AlignCache, Moves
from racegate.engine.cache.fresh_blocks import FreshBlocks
from racegate.engine.cache.store import PrefixStore
from racegate.engine.decode.drafter import Drafter
from racegate.engine.decode.grammar import GrammarMasks
from racegate.engine.decode.sampling import Frame, Sampling
from racegate.engine.model import layers
from racegate.engine.model.graphs import ForwardPass
from racegate.engine.model.model import Model
from racegate.engine.observe.probe import Probe
from racegate.engine.rows.accepted_counts import AcceptedCounts, CountQuery, owners_of
from racegate.engine.rows.input_batch import InputBatch
from racegate.engine.rows.input_prep import InputPrep
from racegate.engine.rows.parts import RowParts
from racegate.engine.rows.preparation import accepted_known, dummy_view, view_step
from racegate.engine.state import edges
from racegate.engine.state.buffers import Inputs, StepOutputs, Work, no_outputs
from racegate.engine.state.counters import Counters
from racegate.engine.state.plan import PlanEntry, StepPlan
from racegate.engine.state.request_state import RequestState
from racegate.engine.state.sizes import Sizes
from racegate.engine.state.view import PrevStep, StepView
from racegate.scenario.spec import Rotate, Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What a runner works with."""

    compute: Stream
    sizes: Sizes
    inputs: Inputs
    work: Work
    model: Model
    drafter: Drafter
    prep: InputPrep
    sampling: Sampling
    counts: AcceptedCounts
    align: AlignCache | None
    fresh: FreshBlocks | None
    store: PrefixStore | None
    grammar: GrammarMasks | None
    batch: InputBatch
    forward: ForwardPass
    parts: RowParts


class Runner:
    """Executes plans on a device."""

    def __init__(
        self,
        scenario: Scenario,
        device: Device,
        equipment: Equipment,
        *,
        counters: Counters,
        probe: Probe,
    ) -> None:
        self._scenario = scenario
        self._device = device
        self._counters = counters
        self._probe = probe
        self._compute = equipment.compute
        self._inputs = equipment.inputs
        self._work = equipment.work
        self._model = equipment.model
        self._drafter = equipment.drafter
        self._prep = equipment.prep
        self._sampling = equipment.sampling
        self._accepted = equipment.counts
        self._align = equipment.align
        self._fresh = equipment.fresh
        self._store = equipment.store
        self._grammar = equipment.grammar
        self.batch = equipment.batch
        self._parts = equipment.parts
        self._forward = equipment.forward
        self._initialise()
        self._specs = {request.name: request for request in scenario.requests}
        self._requests: dict[str, RequestState] = {}
        self._prev: PrevStep | None = None
        self._no_outputs = no_outputs(device, equipment.sizes)
        self._outputs: StepOutputs | None = None
        self._prepared = device.event("input_preparation")
        self.unmet_events: list[str] = []

    def _initialise(self) -> None:
        """No row holds a block, and every row's count is 1, before the first request enters."""
        for table in (self._inputs.block_table.cpu, self._inputs.state_table.cpu):
            table.write(np.zeros(table.shape, np.int32))
        self._device.launch(
            self._compute,
            layers.reset_counts,
            "reset_counts",
            step=-1,
            uses=(writes(self._work.accepted), writes(self._work.computed)),
        )

    def execute(self, plan: StepPlan) -> Frame | None:
        """Issues one step and returns before the device has done it; None if there is nothing to
        run.
        """
        step = plan.step
        self._guard(plan)
        self._accepted.begin_step(step)
        self._update_states(plan)
        if not plan.entries:
            self._idle(plan)
            return None
        self._move_rows(plan)
        view = view_step(plan, self.batch.names(), self._requests, self._prev)
        self._fill_blocks(plan, view)
        self._prepare(view)
        self._probe.inputs(view, self._inputs, self._work, self._model, self._drafter.cache)
        self._forward.run(view)
        self._probe.forwarded(view, self._model)
        if self._align is None:
            self._correct(step)
        return self._sample(plan, view)

    def _guard(self, plan: StepPlan) -> None:
        """Until what the host is about to rewrite has been copied. New blocks are noted before."""
        if self._fresh is not None:
            with self._device.action("note_blocks", step=plan.step):
                self._fresh.stage(plan)
        if plan.dummy_rows:
            self._parts.dummy_guard(self._device, self._prepared, plan.step)
        else:
            self._device.wait_host(self._prepared, edges.INPUT_PREP_GUARD, step=plan.step)
        if self._align is not None:
            self._align.guard(plan.step)

    def _fill_blocks(self, plan: StepPlan, view: StepView) -> None:
        """New blocks become zeros, or what was saved."""
        if self._store is not None:
            self._store.release_blocks(plan.step)
        if self._fresh is not None:
            self._fresh.zero(plan.step)
            self._probe.zeroed(view, self._model, self._drafter.cache)
        if self._store is not None:
            self._store.load(plan.step, plan.entries)

    def _idle(self, plan: StepPlan) -> None:
        """A step without requests; with padding rows if it has to keep other ranks company."""
        self._correct(plan.step)
        self._release_outputs(plan.step)
        if not plan.dummy_rows:
            return
        view = dummy_view(plan.step, plan.dummy_rows)
        with self._device.action("prepare_dummy", step=plan.step):
            self._prep.stage_padding(view)
            self._prep.derive(
                view,
                None,
                self._no_outputs,
                correction_source=view.prev_positions,
                count_source=view.prev_positions,
            )
        self._parts.dummy_staged(self._device, self._compute, self._prepared)
        self._forward.run(view)
        self._counters.dummy_steps += 1

    def receive(self, frame: Frame, *, step: int) -> dict[str, list[int]]:
        """The tokens of a frame by request; waits for them."""
        return self._sampling.receive(frame, step=step)

    def _update_states(self, plan: StepPlan) -> None:
        """Rows and mirrors follow the plan; existing rows keep the previous step's order."""
        planned = {entry.request for entry in plan.entries}
        with self._device.action("update_states", step=plan.step):
            for name in (*plan.ended, *plan.preempted):
                self._leave(name)
            for name in plan.ended:
                self._requests.pop(name, None)
            for name in [name for name in self.batch.row_of if name not in planned]:
                self._leave(name)
            for entry in plan.entries:
                self._update_request(entry)

    def _leave(self, name: str) -> None:
        if name in self.batch.row_of:
            self.batch.remove(name)
        if self._prev is not None:
            self._prev.row_of.pop(name, None)

    def _update_request(self, entry: PlanEntry) -> None:
        state = self._requests.get(entry.request)
        if state is None or state.incarnation != entry.incarnation:
            state = self._requests[entry.request] = self._parts.enter(entry, state)
        if entry.request not in self.batch.row_of:
            assert entry.known_tokens is not None
            # From here on the runner counts for itself: with more than two steps in flight the
            # scheduler's count holds the optimism of several steps, and only the last one's is
            # corrected here.
            state.computed = entry.computed
            state.tokens = entry.known_tokens
            state.blocks = state.state_blocks = 0
            self._add_row(entry)
        row = self.batch.row_of[entry.request]
        tables = self._inputs
        state.blocks = _append(tables.block_table.cpu, row, entry.blocks, state.blocks)
        state.state_blocks = _append(
            tables.state_table.cpu, row, entry.state_blocks, state.state_blocks
        )

    def _add_row(self, entry: PlanEntry) -> None:
        row = self.batch.add(entry.request)
        spec = self._specs[entry.request]
        self._inputs.block_table.cpu.write_row(row, 0)
        self._inputs.state_table.cpu.write_row(row, 0)
        self._inputs.temperature.cpu.write_row(row, spec.temperature)
        self._inputs.seed.cpu.write_row(row, spec.seed)
        self._accepted.add_row(row)

    def _move_rows(self, plan: StepPlan) -> None:
        """Condense, reorder and scripted rotations: the row moves that results in flight do not
        follow.
        """
        step = plan.step
        threshold = 1 + self._scenario.engine.draft_len_max
        with self._device.action("condense", step=step):
            self.batch.condense()
        entries = {entry.request: entry for entry in plan.entries}
        with self._device.action("reorder", step=step):
            self.batch.reorder(entries, threshold=threshold)
        for event in self._scenario.events:
            if isinstance(event, Rotate) and event.step == step:
                with self._device.action("rotate", step=step):
                    done = self.batch.rotate(event.requests, entries, threshold=threshold)
                if not done:
                    self.unmet_events.append(f"rotate {' '.join(event.requests)} @{step}")

    def _prepare(self, view: StepView) -> None:
        """Everything up to the forward pass; ends with the record that frees the pinned inputs for
        the next step.
        """
        with self._device.action("prepare_inputs", step=view.shape.step):
            if self._align is not None:
                self._correct(view.shape.step)
            query = CountQuery(
                step=view.shape.step,
                rows=view.rows,
                prev=self._prev,
                prev_positions=view.prev_positions,
                known=accepted_known(view),
            )
            answer = self._accepted.answer(query)
            moves: Moves | None = None
            if self._align is not None:
                moves = self._align.decide(view.entries, view.states, answer.host)
            backup = self._prep.backup_tokens(view)
            targets = self._drafter.targets(view.entries)
            source = self._prep.stage(view, self._prev, answer, backup=backup, targets=targets)
            if moves is not None:
                self._prep.stage_moves(view, moves)
            self._prep.derive(
                view,
                self._prev,
                self._no_outputs if self._outputs is None else self._outputs,
                correction_source=source,
                count_source=answer.source,
            )
        self._device.record(self._compute, self._prepared)
        self._probe.prepared(
            view, self.batch.row_of, self._inputs, self._prev, backup=backup, targets=targets
        )
        if self._align is not None and moves is not None and moves.any:
            self._align.move(view.shape, self._inputs)

    def _correct(self, step: int) -> None:
        """Deferred correction: the host's mirrors become exact, from the previous step's counts."""
        prev = self._prev
        if prev is None:
            return
        with self._device.action("correct", step=step):
            settled = self._accepted.settle(step, prev)
            has_drafts = bool((prev.draft_lens > 0).any())
            counts = self._sampling.landed_counts(step, owners_of(prev)) if has_drafts else None
            for row in self._parts.corrected(prev, self.batch.row_of):
                state = self._requests.get(prev.requests[row])
                if state is None or state.incarnation != prev.incarnations[row]:
                    continue
                if prev.discarded[row]:
                    continue
                valid = 1 if counts is None else int(counts[row])
                state.accepted_last = valid if settled is None else int(settled[row])
                if prev.draft_lens[row] > 0:
                    state.computed -= int(prev.draft_lens[row]) + 1 - valid

    def _sample(self, plan: StepPlan, view: StepView) -> Frame:
        """Everything behind the forward pass, drafter and output copy included."""
        step = view.shape.step
        with self._device.action("sample", step=step):
            sampled = self._sampling.fresh_tokens()
            mask = None if self._grammar is None else self._grammar.masks(view, self._prev)
            self._model.verify(
                view.shape, self._inputs, self._work, sampled, mask=mask, owners=view.owners
            )
            self._sampling.count(view, sampled)
            counts = self._work.accepted
            if self._align is not None:
                self._align.send_tables(view.shape, self._inputs, self._work)
                self._align.keep_boundaries(view.shape, self._inputs, self._work, view.owners)
                counts = self._work.accepted_out
            self._accepted.land(step, counts, rows=view.shape.rows)
            self._release_outputs(step)
            outputs = self._sampling.next_tokens(view, sampled)
            self._drafter.propose(
                view.shape, self._inputs, self._work, sampled, outputs, owners=view.owners
            )
            if self._grammar is not None:
                self._grammar.send(view, outputs)
            if self._store is not None:
                tokens = (state.tokens for state in view.states)
                self._store.save(step, zip(view.entries, tokens, strict=True))
            self._outputs = outputs
            self._prev = _as_previous(view)
            for entry, state in zip(view.entries, view.states, strict=True):
                state.computed += entry.tokens
            self._probe.sampled(
                view, self._work, self._model, self._drafter.cache, outputs, sampled
            )
            return self._sampling.send(plan, view, sampled)

    def _release_outputs(self, step: int) -> None:
        """The previous step's outputs are not needed any more."""
        if self._outputs is not None:
            if self._grammar is not None:
                self._grammar.release(step)
            self._sampling.release(self._outputs, step=step)
        self._outputs = None
        self._prev = None


def _append(table: HostBuffer, row: int, blocks: tuple[int, ...], known: int) -> int:
    """Writes a table's new columns; returns how many columns the row has now."""
    if len(blocks) > known:
        table.write_columns(row, known, blocks[known:])
    return len(blocks)


def _as_previous(view: StepView) -> PrevStep:
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
