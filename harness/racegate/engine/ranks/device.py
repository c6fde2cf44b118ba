"""RankDevice: the device as one rank has it, whose streams and events carry its number."""

from __future__ import annotations

from racegate.device.protocol import Event, MeetingDevice, Stream


def lane_of(lane: str, rank: int) -> str:
    """What a rank's stream is called on the device of all."""
    return f"{lane}.rank{rank}"


class RankDevice:
    """Names the streams and events of one rank; everything else goes to the device itself.

    lanes: the names of a rank's streams, without its number
    """

    def __init__(self, device: MeetingDevice, lanes: tuple[str, ...], *, rank: int) -> None:
        self.lanes = lanes
        self._device = device
        self._rank = rank

    def __getattr__(self, name: str) -> object:
        return getattr(self._device, name)

    def stream(self, lane: str) -> Stream:
        """The rank's stream of that name."""
        return self._device.stream(lane_of(lane, self._rank))

    def event(self, name: str) -> Event:
        """An event of the rank."""
        base, at, step = name.partition("@")
        return self._device.event(f"{lane_of(base, self._rank)}{at}{step}")
