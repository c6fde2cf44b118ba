"""The memo tells kernels apart by what they compute, not only by their code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from racegate.device.protocol import reads, writes
from racegate.device.virtual.device import VirtualDevice
from racegate.device.virtual.memo import OpMemo
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array


def filling(value: int) -> Callable[[Backend, Array], None]:
    """Kernels of one code that close over another value each."""

    def fill(kernels: Backend, target: Array) -> None:
        target[...] = value

    return fill


def filled_by(kernel: Callable[[Backend, Array], None], memo: OpMemo) -> int:
    device = VirtualDevice(("compute",), memo=memo)
    stream = device.stream("compute")
    buffer = device.device_buffer("buffer", (2,), np.int32, stream=stream)
    landed = device.host_buffer("landed", (2,), np.int32)
    device.launch(stream, kernel, "fill", step=0, uses=(writes(buffer),))
    device.download(stream, landed, buffer, "landed", step=0, rows=2)
    device.finish()
    return int(landed.peek()[0])


def test_what_a_kernel_closes_over_is_part_of_what_it_computes() -> None:
    memo = OpMemo()
    assert [filled_by(filling(value), memo) for value in (1, 2)] == [1, 2]


def test_the_same_kernel_on_the_same_content_is_computed_once() -> None:
    calls = []

    def counted(kernels: Backend, target: Array) -> None:
        calls.append(target.shape)
        target[...] = 7

    memo = OpMemo()
    assert [filled_by(counted, memo) for _ in range(2)] == [7, 7]
    assert len(calls) == 1


def test_a_constant_is_known_by_its_name() -> None:
    """Kernels that read constants of one shape and of other names compute other things."""

    def double(kernels: Backend, source: Array, target: Array) -> None:
        target[...] = 2 * source

    def doubled(value: int, memo: OpMemo) -> int:
        device = VirtualDevice(("compute",), memo=memo)
        stream = device.stream("compute")
        given = device.constant(f"given {value}", np.full(2, value, np.int32))
        buffer = device.device_buffer("buffer", (2,), np.int32, stream=stream)
        landed = device.host_buffer("landed", (2,), np.int32)
        device.launch(stream, double, "double", step=0, uses=(reads(given), writes(buffer)))
        device.download(stream, landed, buffer, "landed", step=0, rows=2)
        device.finish()
        return int(landed.peek()[0])

    memo = OpMemo()
    assert [doubled(value, memo) for value in (1, 2)] == [2, 4]
