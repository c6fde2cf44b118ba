"""The stages of a batch whose requests keep a slot while they run."""

from __future__ import annotations

from racegate.device.protocol import DeviceBuffer
from racegate.engine.cache.align_cache import Columns
from racegate.engine.cache.fresh_blocks import BlockZeroing
from racegate.engine.cache.pools import Pools
from racegate.engine.decode.draft_weights import DraftWeights
from racegate.engine.model.model import Model
from racegate.engine.rows.accepted_counts import AcceptedCounts, DeviceCounts
from racegate.engine.rows.parts import RowParts
from racegate.engine.rows.stages import Correction, LayoutStages
from racegate.engine.slots.batch_slots import BatchSlots
from racegate.engine.slots.carry import SlotCarry
from racegate.engine.slots.draft_weights import SlotDraftWeights
from racegate.engine.slots.memory import SlotMemory
from racegate.engine.slots.parts import SlotParts
from racegate.engine.slots.pool import HostPool
from racegate.engine.slots.prep import SlotPrep
from racegate.engine.state.setup import Setup
from racegate.scenario.settings import CacheMode


class SlotLayout:
    """Makes what depends on how a batch is laid out: here in slots. pool: where the setup's inputs
    are
    """

    def __init__(self, setup: Setup, parts: SlotParts, *, rows: RowParts, pool: HostPool) -> None:
        self.setup = setup
        self._parts = parts
        self._rows = rows
        self._pool = pool
        self._memory = SlotMemory(setup, parts, pool)

    def prep(self) -> SlotPrep:
        """Inputs in the pool, and rows gathered from slots."""
        return SlotPrep(self.setup, self._rows, self._memory)

    def count_path(self) -> AcceptedCounts:
        """Counts never leave the device."""
        return DeviceCounts(self.setup)

    def columns(self, model: Model) -> Columns:
        """The device says where states go."""
        mode = self.setup.scenario.engine.cache_mode
        if mode is CacheMode.ALL:
            return self._parts.anchors(self.setup, model, self._memory)
        if mode.has_columns:
            return self._parts.columns(self.setup, model, self._memory)
        return Columns(self.setup)

    def device_windows(self) -> DeviceBuffer | None:
        """Only the device knows where they stand, if they move."""
        inputs = self.setup.inputs
        has_columns = self.setup.scenario.engine.cache_mode.has_columns
        return inputs.window_table.gpu if has_columns else None

    def zeroing(self, pools: Pools) -> BlockZeroing:
        """Lists in the pool."""
        return self._parts.zeroing(self.setup, pools, self._pool)

    def draft_weights(self) -> DraftWeights:
        """In slots."""
        return SlotDraftWeights(self.setup, self._memory)

    def laid_out(self, count_path: AcceptedCounts, weights: DraftWeights) -> LayoutStages:
        """Slots, of which the host knows who has them."""
        return LayoutStages(
            batch=BatchSlots(self.setup, self._memory, self._rows, self._parts),
            guard=self._pool,
            correction=Correction(),
            carry=SlotCarry(self.setup, self._memory, self._parts),
        )
