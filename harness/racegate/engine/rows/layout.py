"""The stages of a batch whose requests stand in rows, and move."""

from __future__ import annotations

from racegate.device.protocol import DeviceBuffer
from racegate.engine.cache.align_cache import Columns
from racegate.engine.cache.fresh_blocks import BlockZeroing
from racegate.engine.cache.parts import CacheParts
from racegate.engine.cache.pools import Pools
from racegate.engine.decode.draft_weights import DraftWeights
from racegate.engine.decode.parts import DecodeParts
from racegate.engine.model.model import Model
from racegate.engine.rows.accepted_counts import AcceptedCounts
from racegate.engine.rows.batch_rows import BatchRows
from racegate.engine.rows.correction import HostCorrection, UploadGuard
from racegate.engine.rows.input_prep import InputPrep
from racegate.engine.rows.parts import RowParts
from racegate.engine.rows.stages import Carry, LayoutStages
from racegate.engine.state.setup import Setup
from racegate.scenario.settings import CacheMode


class RowLayout:
    """Makes what depends on how a batch is laid out: here in rows, which move."""

    def __init__(
        self, setup: Setup, rows: RowParts, *, cache: CacheParts, decode: DecodeParts
    ) -> None:
        self.setup = setup
        self._rows = rows
        self._cache = cache
        self._decode = decode

    def prep(self) -> InputPrep:
        """Pinned inputs and their uploads."""
        return InputPrep(self.setup, self._rows)

    def count_path(self) -> AcceptedCounts:
        """As the cache mode needs it."""
        return self._rows.count_path(self.setup.scenario.engine.cache_mode)(self.setup)

    def columns(self, model: Model) -> Columns:
        """The host says where states go; in cache mode all the device does, from anchors."""
        mode = self.setup.scenario.engine.cache_mode
        if mode is CacheMode.ALL:
            return self._cache.all_cache(self.setup, model)
        if mode.has_columns:
            return self._cache.align_cache(self.setup, model)
        return Columns(self.setup)

    def device_windows(self) -> DeviceBuffer | None:
        """The host knows where running states stand, but in cache mode all."""
        if self.setup.scenario.engine.cache_mode is CacheMode.ALL:
            return self.setup.inputs.window_table.gpu
        return None

    def zeroing(self, pools: Pools) -> BlockZeroing:
        """Lists in pinned memory of each step."""
        return self._cache.fresh_blocks(self.setup, pools)

    def draft_weights(self) -> DraftWeights:
        """In the rows of the step that drew them."""
        return self._decode.draft_weights(self.setup)

    def laid_out(self, count_path: AcceptedCounts, weights: DraftWeights) -> LayoutStages:
        """Rows, and the host's mirrors of them."""
        batch = BatchRows(self.setup, count_path, self._rows, others=weights.row_tables)
        return LayoutStages(
            batch=batch,
            guard=UploadGuard(self.setup, self._rows),
            correction=HostCorrection(self.setup, count_path, batch),
            carry=Carry(),
        )
