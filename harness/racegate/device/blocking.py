"""A device drained behind every operation: what blocking launches, or a synchronisation everywhere,
make of a program. Used to show what such a debugging aid hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from racegate.device.protocol import Device, Event, MeetingDevice, Stream
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
        _drain(self._device, self._drained, step)


class BlockingTurns:
    """Makes the host of each rank wait for its streams whenever the first rank's turn comes, so
    behind whatever all ranks have issued. Behind each operation a rank cannot wait: the others may
    not have been given their part of a collective. Everything else goes to the device itself.

    lanes: of all ranks, by rank
    """

    def __init__(self, device: MeetingDevice, lanes: Sequence[Sequence[str]]) -> None:
        self._device = device
        self._drained = [
            [(device.stream(lane), device.event(f"drained:{lane}")) for lane in own]
            for own in lanes
        ]

    def __getattr__(self, name: str) -> object:
        return getattr(self._device, name)

    def turn(self, rank: int) -> None:
        """What the host does from now on is done by this rank's."""
        for other, drained in enumerate(self._drained if rank == 0 else ()):
            self._device.turn(other)
            _drain(self._device, drained, -1)
        self._device.turn(rank)


def _drain(device: Device, drained: Sequence[tuple[Stream, Event]], step: int) -> None:
    """drained: streams, each with an event for this alone"""
    for stream, event in drained:
        device.record(stream, event)
        device.wait_host(event, DRAINED, step=step)
