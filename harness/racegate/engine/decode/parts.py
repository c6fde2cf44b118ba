"""What can be exchanged between the hidden states and the tokens on the host, and what a correct
engine has there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from racegate.device.protocol import Device, DeviceBuffer
from racegate.engine.decode.draft_weights import DeviceDraftWeights, DraftWeights
from racegate.engine.decode.drafter import Drafter
from racegate.engine.decode.grammar import PrivateHandOff
from racegate.engine.model.head import inside
from racegate.engine.state.setup import Setup
from racegate_kernels.numerics import Array


def draft_start(
    positions: Array,  # [T] int32
    last_index: Array,  # [R] int32, each row's last input that stays
    query_start: Array,  # [R + 1] int32
    mrope_positions: Array | None,  # [T, 3] int32, with a model that turns by them
) -> Array:
    """[R] int32: the position behind which the drafter's further passes go on."""
    return positions[inside(last_index, positions)]


def tokens_sent(device: Device, sampled: DeviceBuffer, step: int) -> None:
    """The copy of a step's tokens [R, 1 + K] to the host has been issued; it still reads them."""


def tokens_received(device: Device, sampled: DeviceBuffer, step: int) -> None:
    """The copy has landed: nothing reads the tokens any more."""
    device.free(sampled, step=step)


def drafter(setup: Setup, made: Drafter) -> Drafter:
    """The one that was made for the scenario."""
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeParts:
    """drafter: who proposes, given whom the scenario asks for; draft_start: where the drafter goes
    on; hand_off: where drafts land for grammar masks;
    draft_weights: where what they were drawn from stands;
    tokens_sent, tokens_received: the memory of the sampled tokens.
    """

    drafter: Callable[[Setup, Drafter], Drafter] = drafter
    draft_start: Callable[[Array, Array, Array, Array | None], Array] = draft_start
    hand_off: Callable[[Setup], PrivateHandOff] = PrivateHandOff
    draft_weights: Callable[[Setup], DraftWeights] = DeviceDraftWeights
    tokens_sent: Callable[[Device, DeviceBuffer, int], None] = tokens_sent
    tokens_received: Callable[[Device, DeviceBuffer, int], None] = tokens_received
