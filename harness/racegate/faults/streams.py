"""Faults of work beside the compute stream and of idle steps, and of what carries prefixes
(docs/faults.md#streams-and-idle-steps and #tiers).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

import numpy as np

from racegate.device.protocol import Device, Event, HostBuffer, Stream
from racegate.engine.cache.carriers import (
    Carrier,
    NicCarrier,
    StepSave,
    UnconfirmedSaves,
    carrier_with,
)
from racegate.engine.cache.fresh_blocks import FreshBlocks
from racegate.engine.cache.parts import CacheParts
from racegate.engine.cache.pools import Pools
from racegate.engine.decode.grammar import PrivateHandOff
from racegate.engine.decode.parts import DecodeParts
from racegate.engine.rows.parts import RowParts
from racegate.engine.scheduling.parts import SchedulingParts
from racegate.engine.state import edges
from racegate.engine.state.blocks import Key
from racegate.engine.state.lanes import Lane
from racegate.engine.state.plan import StepPlan
from racegate.engine.state.setup import Setup
from racegate.engine.state.tracked import Tracked
from racegate.faults.fault import Fault, FaultKind, Need, the_parts
from racegate.faults.mutations import Mutation, MutationOperator

X = (Need.SECOND_STREAM,)
HX = (Need.HYBRID, Need.SECOND_STREAM)
HP = (Need.HYBRID, Need.PREFIX_CACHE)
HPX = (Need.HYBRID, Need.PREFIX_CACHE, Need.SECOND_STREAM)


def uses_what_is_there(tracked: Tracked) -> bool:
    """A load that failed is taken for one that came."""
    return False


def unguarded(device: Device, prepared: Event, step: int) -> None:
    """An idle step takes no part in the protocol of the pinned inputs: it does not wait."""


def unrecorded(device: Device, stream: Stream, prepared: Event) -> None:
    """Nor does it tell when its own copies have read them."""


class OneList(FreshBlocks):
    """Every list of blocks goes through the same pinned memory."""

    def __init__(self, setup: Setup, pools: Pools) -> None:
        super().__init__(setup, pools)
        self._lists: dict[str, HostBuffer] = {}

    def pinned_list(self, name: str, count: int) -> HostBuffer:
        """The same memory for every list of a kind, as long as the longest."""
        if name not in self._lists:
            most = next(side.list_gpu.shape[0] for side in self._sides if side.name == name)
            self._lists[name] = self._setup.device.host_buffer(f"{name}_cpu", (most,), np.int32)
        return self._lists[name]

    def recycle(self, buffers: Sequence[HostBuffer]) -> None:
        """They are in use for good."""


class OneSlot(PrivateHandOff):
    """Drafts are handed over in one place that does not say whose step they are of."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._landing = super().landing()

    def landing(self) -> tuple[HostBuffer, ...]:
        """The one there is."""
        return self._landing

    def taken(self, landing: tuple[HostBuffer, ...]) -> None:
        """It is used again."""


class CountedSaves(UnconfirmedSaves):
    """Completions are counted, not told apart: each that comes stands for the oldest save."""

    def take(self, plan: StepPlan, loads: Set[Key]) -> list[Event]:
        """As many as a plan needs, the first ones that were posted."""
        needed = len(super().take(plan, loads))
        return self._posted[:needed]

    def __init__(self) -> None:
        super().__init__()
        self._posted: list[Event] = []

    def add(self, saving: StepSave, done: Event) -> None:
        """One more."""
        super().add(saving, done)
        self._posted.append(done)


def counts_completions(setup: Setup) -> Carrier:
    """The carrier of a scenario, with completions that are counted."""
    return carrier_with(setup, CountedSaves())


class LateCarrier(NicCarrier):
    """Saves are posted a plan later than they could be, behind everything that is issued by then,
    and awaited at once: no access is left without an order.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup, UnconfirmedSaves(), loading=Lane.LOAD, saving=Lane.SAVE)
        self._compute = setup.compute
        self._issued, self._stored = setup.device.event("issued"), setup.device.event("stored")
        self._late: list[tuple[StepSave, Callable[[], None], Event]] = []

    def free(self, plan: StepPlan, loads: Set[Key]) -> None:
        """Posts what was left by the step before the last one."""
        device = self._device
        for save, copies, _ in self._late:
            device.record(self._compute, self._issued)
            device.wait_host(self._issued, edges.SAVE_POSTED, step=save.step)
            copies()
            device.record(self.saving, self._stored)
            device.wait_host(self._stored, edges.SAVE_CONFIRMED, step=plan.step)
        self._late, self._unposted = self._unposted, []
        super().free(plan, loads)


FAULTS = (
    Fault(
        name="dummy-step-unguarded",
        number=6,
        kind=FaultKind.ORDERING,
        origin="vllm#34866, #35137, #34619",
        summary="an idle step rewrites pinned inputs without waiting and records no event",
        expect="inputs.slot_mapping",
        note=(
            "Before it rewrites lengths an idle step waits for the last step's valid counts, "
            "and so for its uploads. The block table rows that it clears come before that "
            "wait."
        ),
        scenarios=("idle-rank-dummy-steps",),
        parts=the_parts(rows=RowParts(dummy_guard=unguarded, dummy_staged=unrecorded)),
        holds={"idle-rank-dummy-steps": ("h2d:block_table@2 until host:update_states@3",)},
    ),
    Fault(
        name="row-update-before-postprocess",
        number=7,
        kind=FaultKind.ORDERING,
        needs=(Need.HYBRID, Need.SPECULATION, Need.PREFIX_CACHE),
        origin="vllm#53613, #50021",
        summary="rows move while the last step's state migration has yet to read their tables",
        expect="sampled.checkpoint",
        scenarios=("align-boundary-and-prefix-hit",),
        drops=frozenset({edges.POSTPROCESS_GUARD.name}),
        holds={
            "align-boundary-and-prefix-hit": ("h2d:boundary_table@9 until host:update_states@10",)
        },
    ),
    Fault(
        name="zero-list-restage",
        number=8,
        kind=FaultKind.ORDERING,
        needs=(Need.HYBRID,),
        origin="vllm#48085, #48399",
        summary="the lists of blocks to zero go through one pinned buffer that copies still read",
        expect="inputs.fresh_dirty",
        scenarios=("fresh-blocks-zeroed",),
        parts=the_parts(cache=CacheParts(fresh_blocks=OneList)),
        holds={"fresh-blocks-zeroed": ("h2d:zero_list@1 until host:note_blocks@2",)},
    ),
    Fault(
        name="zero-after-load",
        number=9,
        kind=FaultKind.ORDERING,
        needs=HPX,
        origin="vllm#48481",
        summary="a prefix is loaded into blocks whose zeroing is still queued",
        expect="inputs.state",
        scenarios=("offload-save-and-load",),
        holds={"offload-save-and-load": ("kernel:zero.state.0@6 until h2d:load.state.0.B@6",)},
        moved=Mutation(
            edge=edges.LOAD_AFTER_RELEASE.name,
            operator=MutationOperator.RECORD_EARLY,
            event="blocks_ready",
            place="kernel:zero.kv.2",
        ),
    ),
    Fault(
        name="plan-before-producer",
        number=10,
        kind=FaultKind.ORDERING,
        needs=(Need.SPECULATION, Need.SECOND_STREAM),
        origin="sglang#28034, #22113, flashinfer#4476",
        summary="the plan stream builds positions and slots before the counts are corrected",
        expect="inputs.seq_lens",
        scenarios=("plan-on-side-stream",),
        drops=frozenset({edges.PLAN_AFTER_COUNTS.name}),
        holds={"plan-on-side-stream": ("kernel:correct_computed@2 until kernel:positions@2",)},
    ),
    Fault(
        name="checkpoint-before-forward",
        number=11,
        kind=FaultKind.ORDERING,
        needs=HPX,
        origin="sglang#24221, #24954",
        summary="a chunk's states are saved without waiting for its forward pass",
        expect="inputs.state",
        scenarios=("offload-save-and-load",),
        drops=frozenset({edges.SAVE_AFTER_FORWARD.name}),
        holds={"offload-save-and-load": ("kernel:layer.0@1 until d2h:save.state.0.A@1",)},
    ),
    Fault(
        name="recycle-in-flight",
        number=12,
        kind=FaultKind.ORDERING,
        needs=HX,
        origin="vllm#45357, sglang#18803",
        summary="a prefix is loaded into blocks that a step in flight of their last owner writes",
        expect="sampled.kv",
        note=(
            "The last owner shows it: its step in flight is observed after the load has "
            "refilled its blocks. At a load the host knows the forward pass complete (columns "
            "wait for counts), so it is the drafter that still writes."
        ),
        scenarios=("offload-recycled-blocks",),
        drops=frozenset({edges.LOAD_AFTER_RELEASE.name}),
        holds={"offload-recycled-blocks": ("kernel:draft@5 until h2d:load.draft_kv.B@6",)},
    ),
    Fault(
        name="draft-handoff-latest-wins",
        number=15,
        kind=FaultKind.ORDERING,
        needs=(Need.SPECULATION,),
        origin="vllm#54437, #30495",
        summary="the host masks with whichever step's drafts landed last in the one slot for them",
        expect="sampled.sampled",
        note=(
            "It loses by reading early: the reader is always issued before the next write, so "
            "the one slot shows the tokens and drafts of the step before."
        ),
        scenarios=("constrained-rows",),
        holds={"constrained-rows": ("d2h:next_token@4 until host:mask@5",)},
        drops=frozenset({edges.DRAFTS_LANDED.name}),
        parts=the_parts(decode=DecodeParts(hand_off=OneSlot)),
    ),
)

# A thread or a NIC carries prefixes between the tiers.
TIERS = (
    Fault(
        name="blocks-freed-before-confirmed",
        number=59,
        kind=FaultKind.ORDERING,
        needs=HPX,
        origin="sglang#31427, #35769, vllm#45704",
        summary="blocks go to the next request while a store that nobody confirmed reads them",
        expect="inputs.loaded_kv",
        scenarios=("offload-thread-preempted",),
        drops=frozenset({edges.SAVE_CONFIRMED.name}),
        holds={"offload-thread-preempted": ("d2h:save.kv.2.D@1 until kernel:layer.2@5",)},
    ),
    Fault(
        name="store-posted-before-forward",
        number=60,
        kind=FaultKind.ORDERING,
        needs=HPX,
        origin="sglang#33970, vllm#31341",
        summary="a NIC is told to read a chunk's blocks while its forward pass still writes them",
        expect="inputs.state",
        scenarios=("offload-nic-zeroed", "offload-nic-recycled"),
        drops=frozenset({edges.SAVE_POSTED.name}),
        holds={"offload-nic-zeroed": ("kernel:layer.0@0 until d2h:save.state.0.A@0",)},
    ),
    Fault(
        name="load-posted-before-last-reader",
        number=61,
        kind=FaultKind.ORDERING,
        needs=HPX,
        origin="vllm#47282, sglang#36738",
        summary="a NIC writes into blocks that a step in flight of their last owner still uses",
        expect="inputs.loaded_draft_kv",
        scenarios=("offload-nic-recycled",),
        drops=frozenset({edges.LOAD_POSTED.name}),
        holds={"offload-nic-recycled": ("kernel:draft.1@8 until h2d:load.draft_kv.B@9",)},
    ),
    Fault(
        name="load-posted-before-zeroing",
        number=61,
        kind=FaultKind.ORDERING,
        needs=HPX,
        origin="vllm#48481, #50696",
        summary="a NIC fills blocks whose zeroing is still queued",
        expect="inputs.state",
        scenarios=("offload-nic-zeroed",),
        holds={"offload-nic-zeroed": ("kernel:zero.state.0@2 until h2d:load.state.0.B@2",)},
        moved=Mutation(
            edge=edges.LOAD_POSTED.name,
            operator=MutationOperator.RECORD_EARLY,
            event="blocks_ready",
            place="kernel:zero.kv.2",
        ),
    ),
    Fault(
        name="load-taken-for-done",
        number=62,
        kind=FaultKind.ORDERING,
        needs=HPX,
        origin="vllm#45704, #44238",
        summary="a step goes on from blocks that were posted to be filled, and not seen filled",
        expect="inputs.conv",
        scenarios=("offload-thread-aborted", "offload-nic-recycled"),
        drops=frozenset({edges.LOAD_CONFIRMED.name}),
        holds={"offload-thread-aborted": ("h2d:load.conv.0.C@5 until kernel:layer.0@5",)},
    ),
    Fault(
        name="completions-counted",
        number=63,
        kind=FaultKind.ORDERING,
        needs=HPX,
        origin="sglang#38480, nixl#1811",
        summary="a completion is taken for that of another transfer: only their number counts",
        expect="inputs.state",
        scenarios=("offload-nic-zeroed",),
        parts=the_parts(cache=CacheParts(carrier=counts_completions)),
        holds={"offload-nic-zeroed": ("d2h:save.state.0.A@1 until h2d:load.state.0.C@5",)},
    ),
    Fault(
        name="prefix-evicted-under-load",
        number=64,
        kind=FaultKind.ORDERING,
        needs=HPX,
        origin="sglang#31427",
        summary="host memory of a prefix is given back while the prefix is loaded from it",
        expect="inputs.conv",
        scenarios=("offload-evicted-load",),
        drops=frozenset({edges.EVICT_AFTER_LOAD.name}),
        holds={"offload-evicted-load": ("h2d:load.state.0.B@4 until host:evict@5",)},
    ),
    Fault(
        name="failed-load-used",
        number=65,
        kind=FaultKind.LOGIC,
        needs=HP,
        origin="vllm#40364, #49250",
        summary="a request goes on from blocks of which a load that failed has filled a part",
        expect="scheduled.plan",
        scenarios=("offload-nic-lost",),
        parts=the_parts(scheduling=SchedulingParts(starts_again=uses_what_is_there)),
    ),
    Fault(
        name="failed-load-still-writes",
        number=66,
        kind=FaultKind.ORDERING,
        needs=HPX,
        origin="vllm#40364",
        summary="blocks of a load that is taken for failed go on while the transfer still writes",
        expect="sampled.state",
        scenarios=("offload-nic-lost",),
        drops=frozenset({edges.LOAD_CONFIRMED.name}),
        holds={"offload-nic-lost": ("h2d:load.state.0.B@4 until kernel:layer.0@7",)},
    ),
    Fault(
        name="store-posted-after-reuse",
        number=67,
        kind=FaultKind.LOGIC,
        needs=HP,
        origin="vllm#48596, #29870",
        summary="a store is posted, in order, when its blocks are the next request's already",
        expect="owner",
        note=(
            "Everything is waited for, and nobody hits the prefix in this script: only whose the "
            "blocks are shows that the store keeps another request's pages under its key."
        ),
        scenarios=("offload-nic-preempted",),
        parts=the_parts(cache=CacheParts(carrier=LateCarrier)),
    ),
)
