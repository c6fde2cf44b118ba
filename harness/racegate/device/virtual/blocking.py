"""A device drained behind every operation: what blocking launches, or a synchronisation everywhere,
make of a program. Used to show what such a debugging aid hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from racegate.history.edge import Edge

DRAINED = Edge(
    name="device-drained",
    before="every operation issued so far",
    after="whatever the host does next",
    buffers=(),
    reason="this edge is no part of the engine",
)


class BlockingDevice:
    """Makes the host wait for all streams behind every operation; everything else goes to the
    device itself. The waits are edges, so the ordering oracle counts them.
    """

    def __init__(self, device: Any, lanes: Sequence[str]) -> None:
        self._device = device
        self._drained = [(device.stream(lane), device.event(f"drained:{lane}")) for lane in lanes]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def launch(self, stream: Any, kernel: Any, name: str, *, step: int, **rest: Any) -> None:
        self._device.launch(stream, kernel, name, step=step, **rest)
        self._drain(step)

    def upload(self, stream: Any, target: Any, source: Any, *, step: int, rows: int) -> None:
        self._device.upload(stream, target, source, step=step, rows=rows)
        self._drain(step)

    def download(
        self, stream: Any, target: Any, source: Any, name: str, *, step: int, rows: int
    ) -> None:
        self._device.download(stream, target, source, name, step=step, rows=rows)
        self._drain(step)

    def upload_blocks(
        self, stream: Any, target: Any, source: Any, name: str, *, step: int, blocks: Sequence[int]
    ) -> None:
        self._device.upload_blocks(stream, target, source, name, step=step, blocks=blocks)
        self._drain(step)

    def download_blocks(
        self, stream: Any, target: Any, source: Any, name: str, *, step: int, blocks: Sequence[int]
    ) -> None:
        self._device.download_blocks(stream, target, source, name, step=step, blocks=blocks)
        self._drain(step)

    def replay(self, stream: Any, graph: Any, *, step: int, **rest: Any) -> None:
        self._device.replay(stream, graph, step=step, **rest)
        self._drain(step)

    def free(self, buffer: Any, *, step: int) -> None:
        self._device.free(buffer, step=step)
        self._drain(step)

    def _drain(self, step: int) -> None:
        for stream, event in self._drained:
            self._device.record(stream, event)
            self._device.wait_host(event, DRAINED, step=step)
