"""A device drained behind every operation: what blocking launches, or a synchronisation everywhere,
make of a program. Used to show what such a debugging aid hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from racegate.device.protocol import Device
from racegate.history.edge import Edge

DRAINED = Edge(
    name="device-drained",
    before="every operation issued so far",
    after="whatever the host does next",
    buffers=(),
    reason="this edge is no part of the engine",
)
ISSUING = frozenset(
    ("launch", "replay", "upload", "download", "upload_blocks", "download_blocks", "free")
)


class BlockingDevice:
    """Makes the host wait for all streams behind every operation; everything else goes to the
    device itself. The waits are edges, so the ordering oracle counts them.
    """

    def __init__(self, device: Device, lanes: Sequence[str]) -> None:
        self._device = device
        self._drained = [(device.stream(lane), device.event(f"drained:{lane}")) for lane in lanes]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._device, name)
        if name not in ISSUING:
            return found

        def issue(*handles: object, step: int, **rest: object) -> None:
            found(*handles, step=step, **rest)
            self._drain(step)

        return issue

    def _drain(self, step: int) -> None:
        for stream, event in self._drained:
            self._device.record(stream, event)
            self._device.wait_host(event, DRAINED, step=step)
