"""The engine's replaceable parts. A seeded fault exchanges one of them; the engine never asks which
it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer, Stream
from racegate.engine.accepted_counts import AcceptedCounts, DeviceCounts, SnapshotCounts
from racegate.engine.buffers import Inputs, Work
from racegate.scenario import CacheMode
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array


class CountPath(Protocol):
    """Makes the path of accepted counts of an engine."""

    def __call__(self, device: Device, stream: Stream, *, rows_max: int) -> AcceptedCounts: ...


def count_path(cache_mode: CacheMode) -> CountPath:
    return SnapshotCounts if cache_mode is CacheMode.ALIGN else DeviceCounts


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


def backup_index(computed: int, tokens: int, *, drafts_in_batch: int) -> int:
    """Where a discarded row's backup token stands: right behind its chunk.

    drafts_in_batch: the most drafts of any row in the step.
    """
    return computed + tokens


def select_accepted(
    k: Backend,
    accepted: Array,  # [R_max] int32, written
    accepted_host: Array,  # [R] int32
    count_source: Array,  # [R] int32
    valid_count: Array,  # [R_max] int32, previous-row order
) -> None:
    """accepted = the previous row's count, else the host's."""
    k.select_accepted(accepted, accepted_host, count_source, valid_count)


def accepted_count(k: Backend, sampled: Array, accepted: Array) -> None:
    """accepted [R] = tokens emitted per row of sampled [R, 1 + K]."""
    k.accepted_count(sampled, accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """The parts of a correct engine."""

    count_path: Callable[[CacheMode], CountPath] = count_path
    correction_rows: Callable[[np.ndarray], np.ndarray] = correction_rows
    length_source: Callable[[Inputs, Work], DeviceBuffer] = length_source
    backup_index: Callable[..., int] = backup_index
    select_accepted: Callable[..., None] = select_accepted
    accepted_count: Callable[..., None] = accepted_count
