"""Zeroing of the blocks that a step took, in slots: kernels read the lists where the host wrote
them (vllm#48085).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from racegate.device.masks import mask_of
from racegate.device.protocol import DeviceBuffer, reads, writes
from racegate.engine.cache.fresh_blocks import BlockZeroing
from racegate.engine.cache.pools import Pools
from racegate.engine.slots.pool import HostPool, PooledTwin
from racegate.engine.state.plan import StepPlan
from racegate.engine.state.setup import Setup


@dataclass(slots=True)
class _Side:
    """One kind of blocks: the pools they index, and the list of a step."""

    pools: dict[str, DeviceBuffer]
    twin: PooledTwin
    blocks: list[int]


class PooledZeroing(BlockZeroing):
    """Zeroes what was taken from the free lists, by lists in the step's place of the pool."""

    zeroes = True

    def __init__(self, setup: Setup, pools: Pools, pool: HostPool) -> None:
        self._setup = setup
        self._pool = pool
        self._sides = (
            self._side("zero_list", pools.attention),
            self._side("zero_state_list", pools.state),
        )

    def _side(self, name: str, pools: dict[str, DeviceBuffer]) -> _Side:
        most = max((pool.shape[0] for pool in pools.values()), default=1)
        twin = PooledTwin(self._pool, self._setup.device, name, (most,), np.int32)
        return _Side(pools, twin, [])

    def note(self, plan: StepPlan) -> None:
        """The plan is here, and the step's place may still be read: nothing is written yet."""
        attention, state = self._sides
        attention.blocks = [b for entry in plan.entries for b in entry.fresh_blocks]
        state.blocks = [b for entry in plan.entries for b in entry.fresh_state_blocks]

    def zero(self, step: int) -> None:
        """Writes the lists, and zeroes."""
        self.write(step)
        self.launch(step)

    def write(self, step: int) -> None:
        """The lists, to where kernels will read them."""
        with self._setup.device.action("note_blocks", step=step):
            for side in self._sides:
                if side.blocks and side.pools:
                    side.twin.cpu.write(np.array(side.blocks, np.int32))

    def launch(self, step: int) -> None:
        """The kernels that read them."""
        for side in self._sides:
            if side.blocks:
                self._zero(side, step)

    def _zero(self, side: _Side, step: int) -> None:
        count = len(side.blocks)
        self._setup.counters.add("zeroed_blocks", count)
        for name, pool in side.pools.items():
            self._setup.kernels.launch_kernel(
                "zero_blocks",
                {
                    "pool": writes(pool, mask=mask_of(side.blocks)),
                    "blocks": reads(side.twin.gpu, count),
                },
                name=f"zero.{name}",
                step=step,
            )
