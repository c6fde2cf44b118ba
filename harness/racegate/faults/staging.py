"""Faults of what the host stages: memory that copies still use
(docs/faults.md#pinned-and-device-memory), and common prefixes (docs/faults.md#common-prefix).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from msgspec.structs import replace

from racegate.device.protocol import Device, DeviceBuffer, Use, reads
from racegate.engine.decode.parts import DecodeParts
from racegate.engine.model.cascade import SharedPrefix, common_tokens
from racegate.engine.model.parts import ModelParts
from racegate.engine.parts import EngineParts
from racegate.engine.state import edges
from racegate.engine.state.buffers import Inputs
from racegate.engine.state.setup import Setup
from racegate.engine.state.sizes import ceil_div
from racegate.engine.state.view import StepView
from racegate.faults.fault import Fault, FaultKind, Need, the_parts
from racegate.faults.mutations import Mutation, MutationOperator
from racegate.scenario.settings import CacheMode


def free_when_sent(device: Device, sampled: DeviceBuffer, step: int) -> None:
    """Gives the tokens' memory back as soon as their copy is issued."""
    device.free(sampled, step=step)


def keep(device: Device, sampled: DeviceBuffer, step: int) -> None:
    """It has been freed already."""


class LastPrefix(SharedPrefix):
    """Counted from the rows of the step before, as long as there was one."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._last: int | None = None

    def tokens(self, view: StepView) -> int:
        """That of the last step; who has joined since is not asked."""
        found = super().tokens(view)
        last, self._last = self._last, found
        return found if last is None else last


class MirroredPrefix(SharedPrefix):
    """Up to the lengths of the runner's own mirrors, which still hold the last step's drafts."""

    def tokens(self, view: StepView) -> int:
        """Behind the first rejected draft, until the mirrors are corrected."""
        block_size = self.setup.scenario.engine.block_size
        entries = [
            replace(entry, computed=state.computed)
            for entry, state in zip(view.entries, view.states, strict=True)
        ]
        return common_tokens(entries, block_size=block_size)


class RoundedUpPrefix(SharedPrefix):
    """Up to the end of the block in which the shortest row goes on."""

    def tokens(self, view: StepView) -> int:
        """One block too many, but where a row goes on at the start of one."""
        block_size = self.setup.scenario.engine.block_size
        entries = [
            replace(entry, computed=ceil_div(entry.computed, block_size) * block_size)
            for entry in view.entries
        ]
        return common_tokens(entries, block_size=block_size)


class PinnedPrefix(SharedPrefix):
    """Layers read a pinned count where the host wrote it, a pool of one place: no step waits until
    the one before has read it.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._pool = setup.device.host_buffer("common_prefix_pool", (1,), np.int32)

    def _put(self, tokens: int, *, step: int) -> None:
        super()._put(tokens, step=step)
        self._pool.write(np.array([tokens], np.int32))

    def uses(self, inputs: Inputs) -> Mapping[str, Use]:
        """The host's, not the step's."""
        return {"common_prefix": reads(self.setup.device.mapped(self._pool))}


def _fault_parts(make: Callable[[Setup], SharedPrefix]) -> Callable[[CacheMode], EngineParts]:
    return the_parts(model=ModelParts(common_prefix=make))


FAULTS = (
    Fault(
        name="pinned-input-overwrite",
        number=4,
        kind=FaultKind.ORDERING,
        origin="vllm#24527, #25279, #31841",
        summary="pinned inputs are rewritten while the previous step's copies may still read them",
        expect="inputs.computed",
        note="The uploaded count differs before the lengths that are built from it.",
        scenarios=("finish-and-condense", "steady-mixed-accepts"),
        holds={"finish-and-condense": ("h2d:input_ids@3 until host:prepare_inputs@4",)},
        drops=frozenset({edges.INPUT_PREP_GUARD.name}),
    ),
    Fault(
        name="pinned-guard-too-narrow",
        number=5,
        kind=FaultKind.ORDERING,
        origin="vllm#24527, then #25279",
        summary="the guard covers input preparation, but rows are updated before it",
        expect="sampled.sampled",
        scenarios=("random-rows-change-hands",),
        moved=Mutation(
            edge=edges.INPUT_PREP_GUARD.name, operator=MutationOperator.WAIT_LATE, place="reorder"
        ),
        holds={"random-rows-change-hands": ("h2d:seed@4 until host:update_states@5",)},
    ),
    Fault(
        name="output-copy-lifetime",
        number=13,
        kind=FaultKind.ORDERING,
        needs=(Need.SECOND_STREAM,),
        origin="vllm#29623, sglang#34076",
        summary="the sampled tokens' memory is given back while their copy is in flight",
        expect="processed.delivered",
        scenarios=("finish-and-condense", "steady-mixed-accepts"),
        parts=the_parts(decode=DecodeParts(tokens_sent=free_when_sent, tokens_received=keep)),
        holds={"finish-and-condense": ("d2h:sampled@1 until free:sampled_gpu@1",)},
    ),
)

COMMON_PREFIX = (
    Fault(
        name="common-prefix-stale",
        number=50,
        kind=FaultKind.LOGIC,
        needs=(Need.PREFIX_CACHE,),
        origin="vllm#11635, vllm#55227",
        summary="the common prefix is that of the last step's rows: one that joins has another",
        expect="inputs.common_prefix",
        scenarios=("cascade-prefix-hits", "cascade-slots-graphs"),
        parts=_fault_parts(LastPrefix),
    ),
    Fault(
        name="common-prefix-optimistic",
        number=51,
        kind=FaultKind.LOGIC,
        needs=(Need.SPECULATION,),
        origin="vllm#31998",
        summary="the common prefix ends where rows would be if all their drafts were accepted",
        expect="inputs.common_prefix",
        scenarios=("cascade-synchronous",),
        parts=_fault_parts(MirroredPrefix),
    ),
    Fault(
        name="common-prefix-optimistic:resolved-in-one-place",
        number=51,
        kind=FaultKind.LOGIC,
        needs=(Need.SPECULATION,),
        origin="vllm#31998",
        summary="the options say that cascade is off, and who builds a step's metadata is not told",
        expect="sampled.sampled",
        note="Where cascade is off nobody compares prefixes: what attention makes of them differs.",
        scenarios=("cascade-excluded",),
        parts=_fault_parts(SharedPrefix),
    ),
    Fault(
        name="common-prefix-too-long",
        number=52,
        kind=FaultKind.LOGIC,
        origin="vllm#11635",
        summary="the common prefix takes in the block in which the shortest row goes on",
        expect="inputs.common_prefix",
        scenarios=("cascade-synchronous", "cascade-prefix-hits"),
        parts=_fault_parts(RoundedUpPrefix),
    ),
    Fault(
        name="common-prefix-overtakes",
        number=53,
        kind=FaultKind.ORDERING,
        origin="vllm#48085, tensorrt-llm#16088",
        summary="layers read the pinned common prefix, which the host rewrites for the next step",
        expect="sampled.sampled",
        scenarios=("cascade-prefix-hits",),
        parts=_fault_parts(PinnedPrefix),
        holds={"cascade-prefix-hits": ("kernel:layer.2@10 until host:prepare_inputs@11",)},
    ),
)
