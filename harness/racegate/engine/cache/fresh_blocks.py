"""Zeroing of the blocks that a step took, before the step uses them. vllm#48085, #48399.

The list of blocks goes to the device through pinned memory of its own for every step: it is written
when the plan arrives, while copies of earlier lists may still be queued.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from racegate.device.masks import mask_of
from racegate.device.protocol import Device, DeviceBuffer, HostBuffer, Stream, reads, writes
from racegate.engine.state.counters import Counters
from racegate.engine.state.plan import StepPlan

Pools = dict[str, DeviceBuffer]


class _Side:
    """One kind of blocks: the pools they index, and the list on the device."""

    __slots__ = ("blocks", "landing", "list_gpu", "name", "pools", "staged")

    def __init__(self, name: str, pools: Pools, list_gpu: DeviceBuffer) -> None:
        self.name = name
        self.pools = pools
        self.list_gpu = list_gpu
        self.blocks: list[int] = []
        self.staged: HostBuffer | None = None
        self.landing: list[HostBuffer] = []


class FreshBlocks:
    """attention, state: the pools that blocks of each kind index, by name."""

    def __init__(
        self, device: Device, stream: Stream, counters: Counters, *, attention: Pools, state: Pools
    ) -> None:
        self._device = device
        self._stream = stream
        self._counters = counters
        self._sides = (self._side("zero_list", attention), self._side("zero_state_list", state))

    def _side(self, name: str, pools: Pools) -> _Side:
        most = max((pool.shape[0] for pool in pools.values()), default=0)
        shape = (max(1, most),)
        list_gpu = self._device.device_buffer(f"{name}_gpu", shape, np.int32, stream=self._stream)
        return _Side(name, pools, list_gpu)

    def stage(self, plan: StepPlan) -> None:
        """The plan is here: notes its new blocks. May come before any copy of the last step ran."""
        attention, state = self._sides
        attention.blocks = [b for entry in plan.entries for b in entry.fresh_blocks]
        state.blocks = [b for entry in plan.entries for b in entry.fresh_state_blocks]
        for side in self._sides:
            if side.blocks and side.pools:
                side.staged = self.pinned_list(side.name, len(side.blocks))
                side.staged.write(np.array(side.blocks, np.int32))

    def pinned_list(self, name: str, count: int) -> HostBuffer:
        """Pinned memory that no copy uses."""
        return self._device.host_buffer(f"{name}_cpu", (count,), np.int32)

    def recycle(self, buffers: Sequence[HostBuffer]) -> None:
        """These lists have landed."""
        for buffer in buffers:
            self._device.free_host(buffer)

    def zero(self, step: int) -> None:
        """Zeroes them. The lists of earlier steps have landed (input-prep-guard)."""
        for side in self._sides:
            self.recycle(side.landing)
            side.landing = []
            if side.staged is not None:
                self._zero(side, side.staged, step)
                side.landing.append(side.staged)
                side.staged = None

    def _zero(self, side: _Side, staged: HostBuffer, step: int) -> None:
        count = len(side.blocks)
        self._counters.zeroed_blocks += count
        self._device.upload(self._stream, side.list_gpu, staged, step=step, rows=count)
        for name, pool in side.pools.items():
            self._device.launch(
                self._stream,
                lambda k, *arrays: k.zero_blocks(*arrays),
                f"zero.{name}",
                step=step,
                uses=(writes(pool, mask=mask_of(side.blocks)), reads(side.list_gpu, count)),
            )
