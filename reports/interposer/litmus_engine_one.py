"""Runs one of the engine's litmus programs as plain torch calls: the text is the argument.

Each statement of `litmus_run` is the torch call that a program would make.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "helpers"))
from litmus_run import LitmusRun
from racegate.interpose import observe


class HostArray:
    """Two rows of pinned memory, touched through NumPy."""

    def __init__(self, rows: int) -> None:
        self.tensor = torch.empty(rows, dtype=torch.int32, pin_memory=True)
        self._array = self.tensor.numpy()

    def write(self, values: np.ndarray) -> None:  # [rows] int32
        self._array[:] = values

    def write_row(self, row: int, value: int) -> None:
        self._array[row] = value

    def read_row(self, row: int) -> int:
        return int(self._array[row])


class DeviceArray:
    """Two rows of device memory of the stream that it was made on."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor: torch.Tensor | None = tensor


class TorchCalls:
    """What LitmusRun asks of a device, as torch calls."""

    def stream(self, lane: str) -> torch.cuda.Stream:
        return torch.cuda.Stream()

    def event(self, name: str) -> torch.cuda.Event:
        return torch.cuda.Event()

    def host_buffer(self, name: str, shape: tuple[int, ...], dtype: Any) -> HostArray:
        return HostArray(*shape)

    def device_buffer(
        self, name: str, shape: tuple[int, ...], dtype: Any, *, stream: torch.cuda.Stream
    ) -> DeviceArray:
        with torch.cuda.stream(stream):
            return DeviceArray(torch.empty(shape, dtype=torch.int32, device="cuda"))

    def free(self, buffer: DeviceArray, *, step: int) -> None:
        buffer.tensor = None

    def launch(
        self,
        stream: torch.cuda.Stream,
        kernel: Callable[..., None],
        name: str,
        *,
        step: int,
        uses: tuple[Any, ...],
        constants: tuple[()],
        **scalars: int,
    ) -> None:
        with torch.cuda.stream(stream):
            kernel(TorchBackend(), *(use.buffer.tensor for use in uses), **scalars)

    def upload(
        self, stream: torch.cuda.Stream, to: DeviceArray, source: HostArray, **_: object
    ) -> None:
        with torch.cuda.stream(stream):
            to.tensor.copy_(source.tensor, non_blocking=True)

    def download(
        self, stream: torch.cuda.Stream, to: HostArray, source: DeviceArray, name: str, **_: object
    ) -> None:
        with torch.cuda.stream(stream):
            to.tensor.copy_(source.tensor, non_blocking=True)

    def record(self, stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
        event.record(stream)

    def wait_stream(
        self, stream: torch.cuda.Stream, event: torch.cuda.Event, edge: object, *, step: int
    ) -> None:
        stream.wait_event(event)

    def wait_host(self, event: torch.cuda.Event, edge: object, *, step: int) -> None:
        event.synchronize()

    def query(self, event: torch.cuda.Event, *, step: int) -> bool:
        return event.query()

    @contextmanager
    def action(self, name: str, *, step: int) -> Iterator[None]:
        yield

    def finish(self) -> None:
        torch.cuda.synchronize()


class TorchBackend:
    """The one kernel that litmus programs take from the engine."""

    def fill(self, target: torch.Tensor, *, value: int) -> None:
        target.fill_(value)


def main() -> None:
    seen, _ = LitmusRun(TorchCalls()).run(sys.argv[1])
    observe("outcome", list(seen))


if __name__ == "__main__":
    main()
