"""The engine's replaceable parts. A seeded fault exchanges one of them; the engine never asks which
it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer, Event, HostBuffer, Stream
from racegate.engine.cache.align_cache import AlignCache
from racegate.engine.cache.fresh_blocks import FreshBlocks
from racegate.engine.decode.grammar import HandOff, PrivateHandOff
from racegate.engine.model.layers import inside
from racegate.engine.model.padding import Padding, is_uniform_decode
from racegate.engine.rows.accepted_counts import AcceptedCounts, DeviceCounts, SnapshotCounts
from racegate.engine.state.buffers import Inputs, Work
from racegate.engine.state.edges import INPUT_PREP_GUARD
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.request_state import RequestState, enter
from racegate.engine.state.sizes import Sizes
from racegate.engine.state.tracked import Tracked
from racegate.engine.state.view import PrevStep
from racegate.scenario.spec import CacheMode
from racegate_kernels.numerics import Array


class CountPath(Protocol):
    """Makes the path of accepted counts of an engine."""

    def __call__(self, device: Device, stream: Stream, *, rows_max: int) -> AcceptedCounts: ...


def count_path(cache_mode: CacheMode) -> CountPath:
    return SnapshotCounts if cache_mode.has_columns else DeviceCounts


# The scheduler


def drafts_after_gap(tracked: Tracked) -> int:
    """Drafts to schedule for a request that was not in the last plan: the device has lost them."""
    return 0


def reserved(tracked: Tracked) -> int:
    """Tokens that blocks must be there for before the next step's: all in flight, drafts
    included.
    """
    return tracked.computed


def take_late(tracked: Tracked, entry: PlanEntry, tokens: list[int]) -> None:
    """A frame of an earlier incarnation: its tokens are delivered, no counter changes."""
    tracked.stale -= 1
    tracked.deliver(tokens)


# The host's mirrors and the rows


def corrected(prev: PrevStep, row_of: Mapping[str, int]) -> range | list[int]:
    """Rows of the previous step whose mirrors the host corrects: those of requests that skip this
    step too. row_of: the batch.
    """
    return range(len(prev.requests))


def row_tables(inputs: Inputs) -> tuple[HostBuffer, ...]:
    """Pinned tables that move with the rows."""
    return tuple(
        twin.cpu
        for twin in (inputs.block_table, inputs.state_table, inputs.temperature, inputs.seed)
    )


def swap_rows(table: HostBuffer, first: int, second: int) -> None:
    table.swap_rows(first, second)


# What the device is told


def correction_rows(prev_positions: np.ndarray) -> np.ndarray:
    """[R] int32: the previous row each row's computed count is corrected from; -1 takes the host's
    count.
    """
    return prev_positions


def length_source(inputs: Inputs, work: Work) -> DeviceBuffer:
    """The computed counts from which positions, sequence lengths and slots are built: the corrected
    ones.
    """
    return work.computed


def host_computed(entry: PlanEntry, state: RequestState) -> int:
    """The computed count uploaded for rows that the device does not correct: the runner's own, all
    steps but the last one settled.
    """
    return state.computed


def backup_index(computed: int, tokens: int, *, drafts_in_batch: int, known: int) -> int:
    """Where a discarded row's backup token stands: right behind its chunk.

    drafts_in_batch: the most drafts of any row in the step; known: the request's known tokens
    """
    return computed + tokens


def draft_start(
    positions: Array,  # [T] int32
    last_index: Array,  # [R] int32, each row's last input that stays
    query_start: Array,  # [R + 1] int32
) -> Array:
    """[R] int32: the position behind which the drafter's further passes go on."""
    return positions[inside(last_index, positions)]


# The pinned inputs of idle steps


def dummy_guard(device: Device, prepared: Event, step: int) -> None:
    """Before an idle step rewrites pinned inputs: the last step's copies are done with them."""
    device.wait_host(prepared, INPUT_PREP_GUARD, step=step)


def dummy_staged(device: Device, stream: Stream, prepared: Event) -> None:
    """Its own copies are issued; they still read."""
    device.record(stream, prepared)


# Memory of the sampled tokens


def tokens_sent(device: Device, sampled: DeviceBuffer, step: int) -> None:
    """The copy of a step's tokens to the host has been issued; it still reads them."""


def tokens_received(device: Device, sampled: DeviceBuffer, step: int) -> None:
    """The copy has landed: nothing reads the tokens any more."""
    device.free(sampled, step=step)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """The parts of a correct engine."""

    drafts_after_gap: Callable[[Tracked], int] = drafts_after_gap
    reserved: Callable[[Tracked], int] = reserved
    take_late: Callable[[Tracked, PlanEntry, list[int]], None] = take_late
    enter: Callable[[PlanEntry, RequestState | None], RequestState] = enter
    corrected: Callable[[PrevStep, Mapping[str, int]], range | list[int]] = corrected
    row_tables: Callable[[Inputs], tuple[HostBuffer, ...]] = row_tables
    swap_rows: Callable[[HostBuffer, int, int], None] = swap_rows
    count_path: Callable[[CacheMode], CountPath] = count_path
    correction_rows: Callable[[np.ndarray], np.ndarray] = correction_rows
    length_source: Callable[[Inputs, Work], DeviceBuffer] = length_source
    host_computed: Callable[[PlanEntry, RequestState], int] = host_computed
    backup_index: Callable[..., int] = backup_index
    draft_start: Callable[[Array, Array, Array], Array] = draft_start
    align_cache: Callable[..., AlignCache] = AlignCache
    fresh_blocks: Callable[..., FreshBlocks] = FreshBlocks
    hand_off: Callable[[Device, Sizes], HandOff] = PrivateHandOff
    dummy_guard: Callable[[Device, Event, int], None] = dummy_guard
    dummy_staged: Callable[[Device, Stream, Event], None] = dummy_staged
    dispatch: Callable[..., bool] = is_uniform_decode
    padding: Callable[..., Padding] = Padding
    tokens_sent: Callable[[Device, DeviceBuffer, int], None] = tokens_sent
    tokens_received: Callable[[Device, DeviceBuffer, int], None] = tokens_received
