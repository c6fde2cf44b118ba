"""Litmus programs: tiny programs in a text form, for what a device may and may not do.

One statement per line; a program's outcome is what its `read` and `query` statements saw.

    h0[1] = 5            host write                 s0: d0 = 5          kernel: all rows
    read h0[1]           host read                  s0: d0[1] = 5       kernel: one row
    wait e               host wait                  s0: d0 = d1 * 3 + 1 kernel
    query e              is e complete: 1 or 0      s0: d0 <- h0        copy host to device
    if e: STATEMENT      query, then maybe          s0: h0 <- d0        copy device to host
    set f                set a flag                 s0: record e        s0: wait e
    free d0              back to its stream's pool  s0: wait flag f
    alloc d1 on s0       a fresh, poisoned buffer

Buffers are two rows of int32, created on first use: `h*` pinned, zero at first; `d*` on the device,
owned by stream s0, zero at first (`alloc` gives uninitialised ones). Streams are s0, s1, s2.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from racegate.device.protocol import (
    Device,
    DeviceBuffer,
    Event,
    Flag,
    HostBuffer,
    Use,
    reads,
    writes,
)
from racegate.history.edge import Edge
from racegate.history.trace import Trace
from racegate.scenario.errors import BadInputError
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array

LITMUS_LANES = ("s0", "s1", "s2")
ROWS = 2

EDGE = Edge(name="litmus", before="", after="", buffers=(), reason="")

Outcome = tuple[int, ...]


class LitmusError(BadInputError):
    """A statement that cannot be read."""


class LitmusRun:
    """Runs one program on a device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._streams = {lane: device.stream(lane) for lane in LITMUS_LANES}
        self._hosts: dict[str, HostBuffer] = {}
        self._devices: dict[str, DeviceBuffer] = {}
        self._events: dict[str, Event] = {}
        self._flags: dict[str, Flag] = {}
        self._seen: list[int] = []
        self._line = 0

    def run(self, text: str) -> tuple[Outcome, Trace]:
        """The outcome and the trace. Raises LitmusError, DeadlockError."""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        self._create(lines)
        for number, line in enumerate(lines):
            self._line = number
            with self._device.action(line, step=number):
                self._execute(line)
        trace = self._device.finish()
        return tuple(self._seen), trace

    def _create(self, lines: list[str]) -> None:
        """Buffers, zeroed, before the program begins."""
        fresh = set(re.findall(r"alloc (d\w+)", "\n".join(lines)))
        names = sorted(set(re.findall(r"\b([hd]\d)\b", "\n".join(lines))) - fresh)
        ready = self._device.event("created")
        for name in names:
            if name.startswith("h"):
                self._hosts[name] = self._device.host_buffer(name, (ROWS,), np.int32)
                self._hosts[name].write(np.zeros(ROWS, np.int32))
            else:
                self._devices[name] = self._allocate(name, "s0")
                self._launch("s0", f"create {name}", _fill, writes(self._devices[name]), value=0)
        self._device.record(self._streams["s0"], ready)
        self._device.wait_host(ready, EDGE, step=-1)

    def _allocate(self, name: str, lane: str) -> DeviceBuffer:
        stream = self._streams[lane]
        return self._device.device_buffer(name, (ROWS,), np.int32, stream=stream)

    def _execute(self, line: str) -> None:
        for pattern, method in _STATEMENTS:
            match = pattern.fullmatch(line)
            if match is not None:
                method(self, **match.groupdict())
                return
        raise LitmusError(f"line {self._line + 1}: cannot read {line!r}")

    def _host_write(self, buffer: str, row: str, value: str) -> None:
        self._hosts[buffer].write_row(int(row), int(value))

    def _host_read(self, buffer: str, row: str) -> None:
        self._seen.append(int(self._hosts[buffer].read_row(int(row))))

    def _wait(self, event: str) -> None:
        self._device.wait_host(self._event(event), EDGE, step=self._line)

    def _query(self, event: str) -> None:
        self._seen.append(int(self._device.query(self._event(event), step=self._line)))

    def _branch(self, event: str, then: str) -> None:
        is_done = self._device.query(self._event(event), step=self._line)
        self._seen.append(int(is_done))
        if is_done:
            self._execute(then)

    def _set(self, flag: str) -> None:
        self._flag(flag).set()

    def _free(self, buffer: str) -> None:
        self._device.free(self._devices.pop(buffer), step=self._line)

    def _alloc(self, buffer: str, lane: str) -> None:
        self._devices[buffer] = self._allocate(buffer, lane)

    def _record(self, lane: str, event: str) -> None:
        self._device.record(self._streams[lane], self._event(event))

    def _stream_wait(self, lane: str, event: str) -> None:
        self._device.wait_stream(self._streams[lane], self._event(event), EDGE, step=self._line)

    def _flag_wait(self, lane: str, flag: str) -> None:
        self._device.wait_flag(self._streams[lane], self._flag(flag))

    def _upload(self, lane: str, target: str, source: str) -> None:
        self._device.upload(
            self._streams[lane],
            self._devices[target],
            self._hosts[source],
            step=self._line,
            rows=ROWS,
        )

    def _download(self, lane: str, target: str, source: str) -> None:
        self._device.download(
            self._streams[lane],
            self._hosts[target],
            self._devices[source],
            source,
            step=self._line,
            rows=ROWS,
        )

    def _fill(self, lane: str, target: str, value: str) -> None:
        use = writes(self._devices[target])
        self._launch(lane, f"{target}={value}", _fill, use, value=int(value))

    def _fill_row(self, lane: str, target: str, row: str, value: str) -> None:
        use = writes(self._devices[target], mask=1 << int(row))
        name = f"{target}[{row}]={value}"
        self._launch(lane, name, _fill_row, use, row=int(row), value=int(value))

    def _compute(self, lane: str, target: str, source: str, factor: str, term: str) -> None:
        uses = (writes(self._devices[target]), reads(self._devices[source]))
        name = f"{target}={source}*{factor}+{term}"
        self._launch(lane, name, _scale, *uses, factor=int(factor), term=int(term))

    def _launch(
        self, lane: str, name: str, kernel: Callable[..., None], *uses: Use, **scalars: int
    ) -> None:
        stream = self._streams[lane]
        self._device.launch(
            stream, kernel, name, step=self._line, uses=uses, constants=(), **scalars
        )

    def _event(self, name: str) -> Event:
        if name not in self._events:
            self._events[name] = self._device.event(name)
        return self._events[name]

    def _flag(self, name: str) -> Flag:
        if name not in self._flags:
            self._flags[name] = self._device.flag(name)
        return self._flags[name]


def _fill(backend: Backend, target: Array, *, value: int) -> None:
    backend.fill(target, value=value)


def _fill_row(backend: Backend, target: Array, *, row: int, value: int) -> None:
    backend.fill(target[row : row + 1], value=value)


def _scale(backend: Backend, target: Array, source: Array, *, factor: int, term: int) -> None:
    target[...] = source * factor + term


_STATEMENTS: tuple[tuple[re.Pattern[str], Callable[..., None]], ...] = tuple(
    (re.compile(pattern), method)
    for pattern, method in (
        (r"(?P<buffer>h\d)\[(?P<row>\d)\] = (?P<value>\d+)", LitmusRun._host_write),
        (r"read (?P<buffer>h\d)\[(?P<row>\d)\]", LitmusRun._host_read),
        (r"wait (?P<event>\w+)", LitmusRun._wait),
        (r"query (?P<event>\w+)", LitmusRun._query),
        (r"if (?P<event>\w+): (?P<then>.+)", LitmusRun._branch),
        (r"set (?P<flag>\w+)", LitmusRun._set),
        (r"free (?P<buffer>d\d)", LitmusRun._free),
        (r"alloc (?P<buffer>d\d) on (?P<lane>s\d)", LitmusRun._alloc),
        (r"(?P<lane>s\d): record (?P<event>\w+)", LitmusRun._record),
        (r"(?P<lane>s\d): wait flag (?P<flag>\w+)", LitmusRun._flag_wait),
        (r"(?P<lane>s\d): wait (?P<event>\w+)", LitmusRun._stream_wait),
        (r"(?P<lane>s\d): (?P<target>d\d) <- (?P<source>h\d)", LitmusRun._upload),
        (r"(?P<lane>s\d): (?P<target>h\d) <- (?P<source>d\d)", LitmusRun._download),
        (r"(?P<lane>s\d): (?P<target>d\d) = (?P<value>\d+)", LitmusRun._fill),
        (r"(?P<lane>s\d): (?P<target>d\d)\[(?P<row>\d)\] = (?P<value>\d+)", LitmusRun._fill_row),
        (
            r"(?P<lane>s\d): (?P<target>d\d) = (?P<source>d\d) \* (?P<factor>\d+) \+ (?P<term>\d+)",
            LitmusRun._compute,
        ),
    )
)
