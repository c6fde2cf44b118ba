"""What of the rows and the host's mirrors can be exchanged, and what a correct engine has there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer, Event, HostBuffer, Stream
from racegate.engine.rows.accepted_counts import AcceptedCounts, DeviceCounts, PrivateCounts
from racegate.engine.state.buffers import Inputs, WorkBuffers
from racegate.engine.state.edges import INPUT_PREP_GUARD
from racegate.engine.state.plan import PlanEntry, StepPlan
from racegate.engine.state.request_state import RequestState, enter
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import PrevStep
from racegate.scenario.settings import CacheMode

# Makes the path of accepted counts of an engine.
CountPathMaker = Callable[[Setup], AcceptedCounts]

# Whether a rank runs an idle step, by what its host knows of requests, and by the plan.
JoinsIdle = Callable[[Mapping[str, RequestState], StepPlan], bool]


def count_path(cache_mode: CacheMode) -> CountPathMaker:
    """On the device alone where the host does not need the counts."""
    return PrivateCounts if cache_mode.splits_chunks else DeviceCounts


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
    """Exchanges two rows of a table."""
    table.swap_rows(first, second)


# What the device is told


def correction_rows(
    prev_positions: np.ndarray,  # [R] int32
) -> np.ndarray:
    """[R] int32: the previous row each row's computed count is corrected from; -1 takes the host's
    count.
    """
    return prev_positions


def length_source(inputs: Inputs, work: WorkBuffers) -> DeviceBuffer:
    """The computed counts from which positions, sequence lengths and slots are built: the corrected
    ones.
    """
    return work.computed


def mrope_source(inputs: Inputs, work: WorkBuffers) -> DeviceBuffer:
    """The computed counts that three-dimensional positions are corrected to: the corrected ones."""
    return work.computed


def host_computed(entry: PlanEntry, state: RequestState) -> int:
    """The computed count uploaded for rows that the device does not correct: the runner's own, all
    steps but the last one settled.
    """
    return state.computed


class BackupIndex(Protocol):
    """Where a discarded row's backup token stands among its request's known tokens.

    computed, tokens: the row's; drafts_in_batch: the most drafts of any row in the step
    known_len: how many tokens are known
    """

    def __call__(
        self, computed: int, tokens: int, *, drafts_in_batch: int, known_len: int
    ) -> int: ...


def backup_index(computed: int, tokens: int, *, drafts_in_batch: int, known_len: int) -> int:
    """Right behind its chunk."""
    return computed + tokens


# The pinned inputs of idle steps


def dummy_guard(device: Device, prepared: Event, step: int) -> None:
    """Before an idle step rewrites pinned inputs: the last step's copies are done with them."""
    device.wait_host(prepared, INPUT_PREP_GUARD, step=step)


def joins_idle(states: Mapping[str, RequestState], plan: StepPlan) -> bool:
    """Whether a step without requests runs, because other ranks do: by the plan, which all have.
    states: what this rank's host knows of requests
    """
    return plan.dummy_rows > 0


def dummy_staged(device: Device, stream: Stream, prepared: Event) -> None:
    """Its own copies are issued; they still read."""
    device.record(stream, prepared)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowParts:
    """The runner's parts."""

    enter: Callable[[PlanEntry, RequestState | None], RequestState] = enter
    corrected: Callable[[PrevStep, Mapping[str, int]], range | list[int]] = corrected
    row_tables: Callable[[Inputs], tuple[HostBuffer, ...]] = row_tables
    swap_rows: Callable[[HostBuffer, int, int], None] = swap_rows
    count_path: Callable[[CacheMode], CountPathMaker] = count_path
    correction_rows: Callable[[np.ndarray], np.ndarray] = correction_rows
    length_source: Callable[[Inputs, WorkBuffers], DeviceBuffer] = length_source
    mrope_source: Callable[[Inputs, WorkBuffers], DeviceBuffer] = mrope_source
    host_computed: Callable[[PlanEntry, RequestState], int] = host_computed
    backup_index: BackupIndex = backup_index
    dummy_guard: Callable[[Device, Event, int], None] = dummy_guard
    joins_idle: JoinsIdle = joins_idle
    dummy_staged: Callable[[Device, Stream, Event], None] = dummy_staged
