"""Faults of a batch in slots (docs/faults.md#slots-and-the-pinned-pool)."""

from __future__ import annotations

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer
from racegate.engine.cache.pools import Pools
from racegate.engine.model.model import Model
from racegate.engine.slots.anchors import SlotAnchors
from racegate.engine.slots.columns import SlotColumns
from racegate.engine.slots.memory import SlotMemory, StagedWrites
from racegate.engine.slots.parts import SlotParts, entry_rows
from racegate.engine.slots.pool import HostPool, PooledTwin
from racegate.engine.slots.zeroing import PooledZeroing
from racegate.engine.state import edges
from racegate.engine.state.plan import PlanEntry, StepPlan
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import StepView
from racegate.faults.fault import Fault, FaultKind, Need, the_parts
from racegate.history.trace import Owner
from racegate.scenario.spec import Request
from racegate_kernels.numerics import Array

S = (Need.SPECULATION,)
HP = (Need.HYBRID, Need.PREFIX_CACHE)
HSP = (Need.HYBRID, Need.SPECULATION, Need.PREFIX_CACHE)


class ReadWhenStaged(HostPool):
    """A place counts as read when the step's inputs are built, as if uploads had read it."""

    def staged(self, step: int) -> None:
        """From here on the host may write there."""
        super().issued()

    def issued(self) -> None:
        """What reads behind that is forgotten."""


class IdleBlindPool(HostPool):
    """Idle steps take a place and tell nobody: they make no output that somebody waits for."""

    def __init__(self, device: Device, places: int) -> None:
        super().__init__(device, places)
        self._is_idle = False

    def wait(self, plan: StepPlan) -> None:
        """Not before an idle step."""
        self._is_idle = plan.dummy_rows > 0
        if self._is_idle:
            self.place = plan.step % self.places
        else:
            super().wait(plan)

    def issued(self) -> None:
        """Not behind one."""
        if not self._is_idle:
            super().issued()


class LiveList(PooledZeroing):
    """The lists of new blocks are written when the plan arrives, where the last ones stand."""

    def __init__(self, setup: Setup, pools: Pools, pool: HostPool) -> None:
        super().__init__(setup, pools, OnePlace(setup.device, 1))

    def note(self, plan: StepPlan) -> None:
        """Nothing is waited for."""
        super().note(plan)
        self.write(plan.step)

    def zero(self, step: int) -> None:
        """They are written."""
        self.launch(step)


class OnePlace(HostPool):
    """Pinned memory that is there once, and that nothing guards."""


class LiveWrites(StagedWrites):
    """The table itself is pinned memory, which kernels read and the host writes when it likes."""

    def __init__(self, setup: Setup, pool: HostPool, name: str, table: DeviceBuffer) -> None:
        super().__init__(setup, pool, name, table)
        self._live = setup.device.host_buffer(f"slot_{name}_pool", table.shape, table.dtype)
        self._live.write(np.zeros(table.shape, table.dtype))
        self.table = setup.device.mapped(self._live)

    def stage(self, slot: int, row: object, *, own: Owner) -> None:
        """At once."""
        self._live.write_row(slot, row, own=own)


def live_map(setup: Setup, pool: HostPool) -> PooledTwin:
    """The host's own map of rows to slots, read where it stands while the host keeps it."""
    once = OnePlace(setup.device, 1)
    return PooledTwin(once, setup.device, "slot_of", (setup.sizes.rows,), np.int32)


def live_parameters(setup: Setup, pool: HostPool, name: str, table: DeviceBuffer) -> StagedWrites:
    """Temperature and seed are written in place; all else is staged."""
    make = LiveWrites if name in ("temperature", "seed") else StagedWrites
    return make(setup, pool, name, table)


def without_count(entry: PlanEntry, spec: Request, *, interval: int) -> dict[str, object]:
    """The accepted count of the slot's last request stays."""
    rows = entry_rows(entry, spec, interval=interval)
    del rows["accepted"]
    return rows


def without_column(entry: PlanEntry, spec: Request, *, interval: int) -> dict[str, object]:
    """The column of the slot's last request stays."""
    rows = entry_rows(entry, spec, interval=interval)
    del rows["column"]
    return rows


def by_row(
    slot_of: Array,  # [R] int32
) -> Array:
    """[R]: results are kept as if row i were of slot i + 1."""
    return (slot_of * 0 + 1).cumsum(0)


class PlannedPerLayer(SlotColumns):
    """Every layer plans for itself, from counts that the first one has reset."""

    def migrate(self, view: StepView) -> None:
        """Layer by layer."""
        for layer in self.layers:
            self.plan(view)
            self.copy_states("migrate", view.shape, (layer,), self.chosen(view.shape))


class StagedAnchors(SlotAnchors):
    """The host works anchors out, and stages them as it does tables: it counts every draft."""

    def keep_anchors(self, view: StepView) -> None:
        """With the next step's tables."""
        staged = self._memory.writes["column"]
        for row, (entry, state) in enumerate(zip(view.entries, view.states, strict=True)):
            anchor = (state.computed + entry.tokens) // self._interval
            staged.stage(self._memory.slots[row], anchor, own=(entry.request, view.shape.step))


class AnchorsByRow(SlotAnchors):
    """Anchors go to the slots of row numbers."""

    def __init__(self, setup: Setup, model: Model, memory: SlotMemory) -> None:
        super().__init__(setup, model, memory)
        self._slots = np.arange(1, 1 + setup.sizes.rows, dtype=np.int32)
        self._slot_of = setup.device.constant("slot_by_row", self._slots)

    def keep_anchors(self, view: StepView) -> None:
        """Row i's to slot i + 1."""
        self.keep_in(view, self._slots[: view.shape.rows].tolist(), self._slot_of)


FAULTS = (
    Fault(
        name="pool-place-reused-early",
        number=40,
        kind=FaultKind.ORDERING,
        needs=S,
        origin="vllm#53057, #54269",
        summary="the host rewrites a place of the pinned pool that a late kernel still reads",
        expect="sampled.drafts",
        note=(
            "The tokens' copy does not wait for the drafter, so they do not tell that its "
            "inputs have been read."
        ),
        scenarios=("slots-steady", "slots-place-per-step"),
        drops=frozenset({edges.POOL_PLACE_REUSE.name}),
        holds={"slots-steady": ("kernel:draft@4 until host:prepare_inputs@6",)},
    ),
    Fault(
        name="pool-guard-too-narrow",
        number=40,
        kind=FaultKind.ORDERING,
        needs=S,
        origin="tensorrt-llm#16088",
        summary="the guard of the pool covers input preparation, but the drafter reads it too",
        expect="sampled.drafts",
        scenarios=("slots-steady",),
        parts=the_parts(slots=SlotParts(pool=ReadWhenStaged)),
        holds={"slots-steady": ("kernel:draft@4 until host:prepare_inputs@6",)},
    ),
    Fault(
        name="pool-idle-unguarded",
        number=41,
        kind=FaultKind.ORDERING,
        origin="vllm#53057, #54269",
        summary="an idle step takes a place of the pool without waiting, and records no event",
        expect="inputs.computed",
        scenarios=("slots-idle-steps",),
        parts=the_parts(slots=SlotParts(pool=IdleBlindPool)),
        holds={"slots-idle-steps": ("kernel:carry_over@4 until host:prepare_dummy@6",)},
    ),
    Fault(
        name="zero-list-live",
        number=42,
        kind=FaultKind.ORDERING,
        needs=(Need.HYBRID,),
        origin="vllm#48085",
        summary="the list of blocks to zero is rewritten while the device still reads it",
        expect="inputs.fresh_dirty",
        scenarios=("slots-fresh-blocks",),
        parts=the_parts(slots=SlotParts(zeroing=LiveList)),
        holds={"slots-fresh-blocks": ("kernel:zero.state.0@1 until host:note_blocks@2",)},
    ),
    Fault(
        name="slot-map-live",
        number=43,
        kind=FaultKind.ORDERING,
        origin="vllm#48085, tensorrt-llm#16088",
        summary="kernels read the host's live map of rows to slots, not a snapshot of their step",
        expect="inputs.computed",
        scenarios=("slots-place-per-step",),
        parts=the_parts(slots=SlotParts(slot_map=live_map)),
        holds={"slots-place-per-step": ("kernel:carry_over@3 until host:prepare_inputs@4",)},
    ),
    Fault(
        name="slot-parameters-in-place",
        number=43,
        kind=FaultKind.ORDERING,
        origin="tensorrt-llm#16088",
        summary="sampling parameters of a slot are overwritten under the last request's late step",
        expect="sampled.sampled",
        note="Only a preempted request shows it: its step in flight still delivers.",
        scenarios=("slots-preempted-parameters",),
        parts=the_parts(slots=SlotParts(writes=live_parameters)),
        holds={
            "slots-preempted-parameters": (
                "kernel:gather.temperature@3 until host:update_states@4",
            )
        },
    ),
    Fault(
        name="slot-not-reset",
        number=44,
        kind=FaultKind.LOGIC,
        needs=HSP,
        origin="vllm#45100",
        summary="a request goes on with the accepted count that its slot's last request left",
        expect="inputs.accepted",
        scenarios=("slots-steady", "slots-align-hits"),
        parts=the_parts(slots=SlotParts(entry_rows=without_count)),
    ),
    Fault(
        name="slot-not-reset:column",
        number=44,
        kind=FaultKind.LOGIC,
        needs=HP,
        origin="vllm#53142",
        summary="a request's state is looked for in the column that its slot's last request left",
        expect="inputs.conv",
        scenarios=("slots-align-hits",),
        parts=the_parts(slots=SlotParts(entry_rows=without_column)),
    ),
    Fault(
        name="results-kept-by-row",
        number=45,
        kind=FaultKind.LOGIC,
        origin="vllm#55951, #55506",
        summary="a step's results go to the slots of its row numbers",
        expect="inputs.computed",
        scenarios=("slots-place-per-step", "slots-steady"),
        parts=the_parts(slots=SlotParts(kept_slots=by_row)),
    ),
    Fault(
        name="slot-count-reset-in-place",
        number=46,
        kind=FaultKind.LOGIC,
        needs=HSP,
        origin="vllm#56736, #50432",
        summary="layers plan their moves from counts that the first layer's plan has reset",
        expect="inputs.conv",
        scenarios=("slots-align-boundary",),
        parts=the_parts(slots=SlotParts(columns=PlannedPerLayer)),
    ),
    Fault(
        name="anchor-moved-by-drafts:staged",
        number=48,
        kind=FaultKind.LOGIC,
        needs=HSP,
        origin="vllm#41233, #33997",
        summary="in slots the host stages anchors, which count drafts that were rejected",
        expect="inputs.conv",
        scenarios=("slots-all-hits", "slots-all-preempted"),
        parts=the_parts(slots=SlotParts(anchors=StagedAnchors)),
    ),
    Fault(
        name="anchor-of-another-step:by-row",
        number=49,
        kind=FaultKind.LOGIC,
        needs=HP,
        origin="vllm#54637, #55951",
        summary="in slots a step's anchors go to the slots of its row numbers",
        expect="inputs.conv",
        scenarios=("slots-all-preempted",),
        parts=the_parts(slots=SlotParts(anchors=AnchorsByRow)),
    ),
)
