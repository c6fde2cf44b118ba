"""Faults of memory that copies still use (docs/faults.md#pinned-and-device-memory)."""

from __future__ import annotations

from racegate.device.protocol import Device, DeviceBuffer
from racegate.engine.decode.parts import DecodeParts
from racegate.engine.state import edges
from racegate.faults.fault import Fault, FaultKind, Need, the_parts
from racegate.faults.mutations import Mutation, Operator


def free_when_sent(device: Device, sampled: DeviceBuffer, step: int) -> None:
    """Gives the tokens' memory back as soon as their copy is issued."""
    device.free(sampled, step=step)


def keep(device: Device, sampled: DeviceBuffer, step: int) -> None:
    """It has been freed already."""


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
            edge=edges.INPUT_PREP_GUARD.name, operator=Operator.WAIT_LATE, place="reorder"
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
