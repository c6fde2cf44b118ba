"""The model runner: one step from the plan to device work, with the host one step ahead
(docs/mechanism.md#step).

Streams: engine/state/lanes. In the steady state the host waits in three places only: before
    rewriting pinned inputs (the guard), before the deferred correction (rows only), and for the
    output of the oldest step (OUTPUT_LANDED). How the batch is laid out is up to its stages.
"""

from __future__ import annotations

from racegate.device.protocol import DeviceBuffer, writes
from racegate.engine.decode.sampling import Frame
from racegate.engine.model import layers
from racegate.engine.observe.probe import Preparation, Probe
from racegate.engine.rows.accepted_counts import CountQuery
from racegate.engine.rows.input_prep import Sources
from racegate.engine.rows.parts import JoinsIdle
from racegate.engine.rows.preparation import accepted_last, dummy_view, view_step
from racegate.engine.rows.stages import Stages
from racegate.engine.state.buffers import StepOutputs, no_outputs
from racegate.engine.state.plan import StepPlan
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import StepView, as_previous, no_step
from racegate.scenario.settings import OutputEvent


class Runner:
    """Executes plans on a device."""

    def __init__(
        self, setup: Setup, stages: Stages, *, probe: Probe, joins_idle: JoinsIdle
    ) -> None:
        self._joins_idle = joins_idle
        self._setup = setup
        self._device = setup.device
        self._stages = stages
        self._sends_early = setup.scenario.engine.output_event is OutputEvent.BEFORE_DRAFTER
        self._probe = probe
        self._initialise()
        self._no_step = no_step()
        self._prev = self._no_step
        self._no_outputs = no_outputs(setup.device, setup.sizes)
        self._outputs: StepOutputs = self._no_outputs

    @property
    def unmet_events(self) -> list[str]:
        """Rotations that the script asked for and the rows did not allow."""
        return self._stages.batch.unmet_events

    def _initialise(self) -> None:
        """No row holds a block, and every row's count is 1, before the first request enters."""
        self._stages.batch.clear_tables()
        work = self._setup.work
        self._setup.kernels.launch_kernel(
            layers.reset_counts,
            {"accepted": writes(work.accepted), "computed": writes(work.computed)},
            name="reset_counts",
            step=-1,
        )

    def execute(self, plan: StepPlan) -> Frame | None:
        """Issues one step and returns before the device has done it; None if there is nothing to
        run.
        """
        batch = self._stages.batch
        self._guard(plan)
        self._stages.count_path.begin_step(plan.step)
        batch.update(plan, self._prev)
        if not plan.entries:
            self._idle(plan)
            return None
        batch.move(plan)
        view = view_step(
            plan, batch.names(), batch.states, self._prev, engine=self._setup.scenario.engine
        )
        self._fill_blocks(plan, view)
        self._prepare(view)
        self._run_model(view)
        return self._sample(plan, view)

    def receive(self, frame: Frame, *, step: int) -> dict[str, list[int]]:
        """The tokens of a frame by request; waits for them."""
        return self._stages.sampling.receive(frame, step=step)

    def _guard(self, plan: StepPlan) -> None:
        """Until what the host is about to rewrite has been copied. New blocks are noted before."""
        self._stages.fresh.note(plan)
        self._stages.guard.wait(plan)
        self._stages.columns.guard(plan.step)

    def _fill_blocks(self, plan: StepPlan, view: StepView) -> None:
        """New blocks become zeros, or what was saved."""
        fresh, store = self._stages.fresh, self._stages.store
        store.release_blocks(plan)
        fresh.zero(plan.step)
        if fresh.zeroes:
            self._probe.zeroed(view)
        store.load(plan)

    def _idle(self, plan: StepPlan) -> None:
        """A step without requests; with padding rows if it has to keep other ranks company."""
        self._stages.correction.correct(plan.step, self._prev)
        self._release_outputs(plan.step)
        if not self._joins_idle(self._stages.batch.states, plan):
            return
        view, prep = dummy_view(plan.step, plan.dummy_rows), self._stages.prep
        nothing = Sources(computed=view.prev_positions, count=view.prev_positions)
        with self._device.action("prepare_dummy", step=plan.step):
            prep.stage_padding(view)
            self._stages.prefix.stage_idle(plan.step)
            prep.derive(view, self._prev, self._outputs, nothing)
        self._stages.guard.staged_idle()
        self._stages.forward.run(view)
        self._stages.guard.issued()
        self._setup.counters.add("dummy_steps")

    def _prepare(self, view: StepView) -> None:
        """Everything up to the forward pass."""
        at, step = self._stages, view.shape.step
        with self._device.action("prepare_inputs", step=step):
            if at.columns.needs_counts:
                at.correction.correct(step, self._prev)
            answer = at.count_path.answer(self._query(view))
            moves = at.columns.decide(view, answer.accepted_host)
            backup = at.prep.backup_tokens(view)
            targets = at.drafter.targets(view.entries)
            sources = at.prep.stage(view, self._prev, answer, backup=backup)
            at.prep.stage_drafting(view, self._prev, targets=targets)
            at.prep.send_tables(view)
            at.columns.stage(view, moves)
            at.prefix.stage(view)
            at.draft_weights.stage(view, self._prev)
            at.prep.derive(view, self._prev, self._outputs, sources)
        at.guard.staged(step)
        preparation = Preparation(
            prev=self._prev,
            row_of=at.batch.row_of,
            tables=at.batch.tables,
            slots=at.batch.slots(),
            backup=backup,
            targets=targets,
        )
        self._probe.prepared(view, preparation)
        at.columns.move(view, moves)

    def _query(self, view: StepView) -> CountQuery:
        return CountQuery(
            step=view.shape.step,
            rows=view.rows,
            prev=self._prev,
            prev_positions=view.prev_positions,
            accepted_last=accepted_last(view),
        )

    def _run_model(self, view: StepView) -> None:
        """The forward pass, and while it runs the correction that nothing before it needed."""
        self._probe.inputs(view)
        self._stages.forward.run(view)
        self._probe.forwarded(view)
        if not self._stages.columns.needs_counts:
            self._stages.correction.correct(view.shape.step, self._prev)

    def _sample(self, plan: StepPlan, view: StepView) -> Frame:
        """Everything behind the forward pass, drafter and output copy included."""
        at, step = self._stages, view.shape.step
        with self._device.action("sample", step=step):
            sampled = at.sampling.fresh_tokens()
            grammar_mask = at.grammar_masks.upload(view, self._prev)
            weighed = at.draft_weights.given(view, self._prev, self._outputs)
            at.model.verify(view, sampled, grammar_mask=grammar_mask, weighed=weighed)
            at.sampling.count_accepted(view, sampled)
            accepted = at.columns.keep_boundaries(view)
            at.count_path.land(step, accepted, rows=view.shape.rows)
            at.carry.note(accepted)
            self._release_outputs(step)
            outputs = at.sampling.next_tokens(view, sampled)
            at.correction.send(view, outputs)
            frame = at.sampling.send(plan, view, sampled) if self._sends_early else None
            self._draft(view, sampled, outputs)
            self._outputs, self._prev = outputs, as_previous(view)
            for entry, state in zip(view.entries, view.states, strict=True):
                state.computed += entry.tokens
            self._probe.sampled(view, outputs, sampled)
            return at.sampling.send(plan, view, sampled) if frame is None else frame

    def _draft(self, view: StepView, sampled: DeviceBuffer, outputs: StepOutputs) -> None:
        """Drafts, and what the next step finds. sampled: [R, 1 + K] int32"""
        at = self._stages
        at.drafter.propose(view, sampled, outputs)
        at.draft_weights.drawn(view, outputs)
        at.grammar_masks.send(view, outputs)
        at.store.save(view)
        at.carry.keep(view, outputs)
        at.guard.issued()

    def _release_outputs(self, step: int) -> None:
        """The previous step's outputs are not needed any more."""
        if self._outputs is not self._no_outputs:
            self._stages.grammar_masks.release(step)
            self._stages.correction.release(step)
            self._stages.sampling.release(self._outputs, step=step)
        self._outputs = self._no_outputs
        self._prev = self._no_step
