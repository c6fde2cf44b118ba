"""What was asked of a device is done again under other holds, while the host reads the same."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from racegate.device.chooser import HoldChooser
from racegate.device.memory import HostBuffer
from racegate.device.nodes import Event, Flag
from racegate.device.protocol import DeadlockError
from racegate.device.recorder import Version
from racegate.device.virtual.memo import OpMemo
from racegate.device.virtual.storage import storage_of
from racegate.device.virtual.tape import TapedDevice, TapeDivergedError
from racegate.history.edge import Edge
from racegate.history.schedule import parse_schedule
from racegate.history.trace import Owner

EDGE = Edge(
    name="landed",
    before="the copy",
    after="the read",
    buffers=("target",),
    first=("d2h:back",),
    second=("host:look",),
    reason="it reads what was there before",
)
OWNER: Owner = ("A", 0)


class Program:
    """The host fills a pinned row, sends it to the device and back, and reads what came. is_late:
    it waits for that
    """

    def __init__(self, *, is_late: bool = True) -> None:
        self.device = TapedDevice(("compute",), memo=OpMemo())
        self.stream = self.device.stream("compute")
        self.source, self.target = (
            self.device.host_buffer(name, (4,), np.int32) for name in ("source", "target")
        )
        self.middle = self.device.device_buffer("middle", (4,), np.int32, stream=self.stream)
        self.event = Event("landed")
        self.is_late = is_late
        self.device.tape.begin()
        self.run()
        self.device.tape.end()
        self.read = self.target.peek()

    def run(self) -> None:
        device = self.device
        device.mark("A.0", step=1)
        self.source.write([1, 2, 3], own=[OWNER] * 3)
        self.source.write_row(3, 4)
        self.source.move_row(3, 0)
        self.source.swap_rows(0, 1)
        device.upload(self.stream, self.middle, self.source, step=1, rows=4)
        device.download(self.stream, self.target, self.middle, "back", step=1, rows=4)
        device.record(self.stream, self.event)
        with device.action("look", step=1):
            if self.is_late:
                device.wait_host(self.event, EDGE, step=1)
            self.target.read(expect=[None, None, OWNER])
            self.target.read_row(1)

    def again(self, *holds: str) -> tuple[int, ...]:
        """How much of each hold was realised, after the same from poisoned memory."""
        for buffer in (self.source, self.target):
            buffer.storage.poison()
        chooser = HoldChooser(parse_schedule(list(holds)))
        self.device.use_chooser(chooser)
        self.device.again(1)
        return tuple(outcome.realised for outcome in chooser.outcomes())


def landed(buffer: HostBuffer) -> list[int]:
    """What stands in pinned memory."""
    return buffer.storage.array.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("hold", ["d2h:back@1 until forced", "d2h:back@A.0 until forced"])
def test_what_is_asked_again_leaves_the_same(hold: str) -> None:
    program = Program()
    events = len(program.device.recorder.events)
    assert program.again(hold) == (1,)
    assert landed(program.target) == program.read.tolist() == [2, 4, 3, 4]
    assert program.target.storage.owners[2] == OWNER
    assert len(program.device.recorder.events) == events, "nothing is told twice"


def test_a_read_of_other_content_ends_it() -> None:
    """The host does not wait here, so a held copy is read before it lands."""
    program = Program(is_late=False)
    assert program.again() == ()
    with pytest.raises(TapeDivergedError):
        program.again("d2h:back@1 until host:look@1")


def test_a_row_of_another_owner_ends_it() -> None:
    """The same words, of another request: an ownership oracle would speak."""
    program = Program()
    assert program.again() == ()
    asked = program.device.tape.parts[1]
    write = program.source.storage.write
    asked.insert(0, partial(write, np.array([1, 2, 3], np.int32), 0, (("B", 0),) * 3))
    own = next(place for place, ask in enumerate(asked[1:], 1) if write == getattr(ask, "func", 0))
    del asked[own]
    with pytest.raises(TapeDivergedError):
        program.again()


def test_an_answer_that_is_another_ends_it() -> None:
    device = TapedDevice(("compute",), memo=OpMemo())
    stream, event = device.stream("compute"), Event("landed")
    buffer = device.host_buffer("source", (1,), np.int32)
    target = device.device_buffer("target", (1,), np.int32, stream=stream)
    device.tape.begin()
    device.upload(stream, target, buffer, step=0, rows=1)
    device.record(stream, event)
    assert device.query(event, step=0)
    device.tape.end()
    device.again(1)
    device.use_chooser(HoldChooser(parse_schedule(["h2d:target@0 until forced"])))
    with pytest.raises(TapeDivergedError):
        device.again(1)


@pytest.mark.parametrize("dropped", [frozenset[str](), frozenset({EDGE.name})])
def test_who_waits_for_an_arrival_waits_for_that_of_this_time(dropped: frozenset[str]) -> None:
    """A stream that waits before the other one has been given its part, and where it does not."""
    device = TapedDevice(("sends", "takes"), memo=OpMemo(), dropped=dropped)
    sends, takes = map(device.stream, ("sends", "takes"))
    source, target = (device.host_buffer(name, (2,), np.int32) for name in ("source", "target"))
    middle = device.device_buffer("middle", (2,), np.int32, stream=sends)
    source.write([1, 2])
    arrival = Version(event="sent", number=0, lane=sends.index, clock=())
    poison = landed(target)
    device.tape.begin()
    device.wait_arrival(takes, arrival, EDGE, step=0)
    device.download(takes, target, middle, "back", step=0, rows=2)
    device.upload(sends, middle, source, step=0, rows=2)
    device.arrive(sends, arrival)
    device.tape.end()
    assert landed(target) == (poison if dropped else [1, 2])
    for buffer in (middle, target):
        storage_of(buffer).poison()
    device.again(1)
    assert landed(target) == (poison if dropped else [1, 2])


def test_a_flag_is_not_on_the_tape() -> None:
    device = TapedDevice(("compute",), memo=OpMemo())
    assert device.tape.is_whole
    device.wait_flag(device.stream("compute"), Flag("latch", lambda: None))
    assert not device.tape.is_whole
    with pytest.raises(DeadlockError):
        device.finish()
