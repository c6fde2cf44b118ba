"""Zeroing of the blocks that a step took, before the step uses them. vllm#48085, #48399.

The list of blocks goes to the device through pinned memory of its own for every step: it is written
when the plan arrives, while copies of earlier lists may still be queued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from racegate.device.masks import mask_of
from racegate.device.protocol import DeviceBuffer, HostBuffer, reads, writes
from racegate.engine.cache.pools import Pools
from racegate.engine.state.plan import StepPlan
from racegate.engine.state.setup import Setup


class BlockZeroing:
    """What becomes of the blocks that a step took: they stay as their last owner left them.

    zeroes: whether there is anything to observe
    """

    zeroes = False

    def note(self, plan: StepPlan) -> None:
        """The plan is here."""

    def zero(self, step: int) -> None:
        """The step is about to use them."""


@dataclass(slots=True)
class _Side:
    """One kind of blocks: the pools they index, and the list on the device."""

    name: str
    pools: dict[str, DeviceBuffer]
    list_gpu: DeviceBuffer
    blocks: list[int] = field(default_factory=list)
    staged: HostBuffer | None = None
    landing: list[HostBuffer] = field(default_factory=list)


class FreshBlocks(BlockZeroing):
    """Zeroes what was taken from the free lists."""

    zeroes = True

    def __init__(self, setup: Setup, pools: Pools) -> None:
        self._setup = setup
        self._sides = (
            self._side("zero_list", pools.attention),
            self._side("zero_state_list", pools.state),
        )

    def _side(self, name: str, pools: dict[str, DeviceBuffer]) -> _Side:
        most = max((pool.shape[0] for pool in pools.values()), default=0)
        shape, stream = (max(1, most),), self._setup.compute
        list_gpu = self._setup.device.device_buffer(f"{name}_gpu", shape, np.int32, stream=stream)
        return _Side(name, pools, list_gpu)

    def note(self, plan: StepPlan) -> None:
        """The plan is here: notes its new blocks. May come before any copy of the last step ran."""
        attention, state = self._sides
        with self._setup.device.action("note_blocks", step=plan.step):
            attention.blocks = [b for entry in plan.entries for b in entry.fresh_blocks]
            state.blocks = [b for entry in plan.entries for b in entry.fresh_state_blocks]
            for side in self._sides:
                if side.blocks and side.pools:
                    side.staged = self.pinned_list(side.name, len(side.blocks))
                    side.staged.write(np.array(side.blocks, np.int32))

    def pinned_list(self, name: str, count: int) -> HostBuffer:
        """Pinned memory that no copy uses."""
        return self._setup.device.host_buffer(f"{name}_cpu", (count,), np.int32)

    def recycle(self, buffers: Sequence[HostBuffer]) -> None:
        """These lists have landed."""
        for buffer in buffers:
            self._setup.device.free_host(buffer)

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
        setup, count = self._setup, len(side.blocks)
        setup.counters.add("zeroed_blocks", count)
        setup.device.upload(setup.compute, side.list_gpu, staged, step=step, rows=count)
        for name, pool in side.pools.items():
            setup.kernels.launch_kernel(
                "zero_blocks",
                {
                    "pool": writes(pool, mask=mask_of(side.blocks)),
                    "blocks": reads(side.list_gpu, count),
                },
                name=f"zero.{name}",
                step=step,
            )
