"""Faults of prefixes that a thread or a NIC carries between the tiers (docs/faults.md#tiers)."""

from __future__ import annotations

from collections.abc import Set

from racegate.device.protocol import Event
from racegate.engine.cache.carriers import Saving, Unconfirmed
from racegate.engine.cache.parts import CacheParts
from racegate.engine.state import edges
from racegate.engine.state.blocks import Key
from racegate.engine.state.plan import StepPlan
from racegate.faults.fault import Fault, FaultKind, Need, the_parts
from racegate.faults.mutations import Mutation, MutationOperator

HPX = (Need.HYBRID, Need.PREFIX_CACHE, Need.SECOND_STREAM)


class CountedCompletions(Unconfirmed):
    """Completions are counted, not told apart: each that comes stands for the oldest save."""

    def take(self, plan: StepPlan, loads: Set[Key]) -> list[Event]:
        """As many as a plan needs, the first ones that were posted."""
        needed = len(super().take(plan, loads))
        return self._posted[:needed]

    def __init__(self) -> None:
        super().__init__()
        self._posted: list[Event] = []

    def add(self, saving: Saving, done: Event) -> None:
        """One more."""
        super().add(saving, done)
        self._posted.append(done)


FAULTS = (
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
        holds={"offload-nic-zeroed": ("kernel:zero.state.0@1 until h2d:load.state.0.B@1",)},
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
        expect="inputs.state",
        scenarios=("offload-thread-aborted", "offload-nic-recycled"),
        drops=frozenset({edges.LOAD_CONFIRMED.name}),
        holds={"offload-thread-aborted": ("h2d:load.state.0.C@5 until kernel:layer.0@5",)},
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
        parts=the_parts(cache=CacheParts(unconfirmed=CountedCompletions)),
        holds={"offload-nic-zeroed": ("d2h:save.state.0.A@1 until h2d:load.state.0.C@5",)},
    ),
)
