"""BoundBuffers: the buffers that a forward pass works on."""

from __future__ import annotations

from dataclasses import dataclass

from racegate.device.protocol import DeviceBuffer
from racegate.engine.state.buffers import Inputs, WorkBuffers


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundBuffers:
    """Those of a graph are bound when it is captured.

    window_table: [R, 1 + K] int32, the blocks of each row's running state window; in cache mode all
        [R, 1 + N], the blocks of its tokens' states and of the one that it starts from
    """

    inputs: Inputs
    work: WorkBuffers
    window_table: DeviceBuffer
