"""What all pieces of one engine share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from racegate.device.protocol import Device, Stream
from racegate.engine.state.buffers import Inputs, Twin, WorkBuffers, make_inputs, make_work
from racegate.engine.state.counters import Counters
from racegate.engine.state.kernels import KernelStream
from racegate.engine.state.lanes import Lane
from racegate.engine.state.sizes import Sizes, sizes_of
from racegate.scenario.spec import OwnScenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The scenario, the device, and the memory that a step is prepared in.

    compute: the stream of uploads, kernels and the drafter; kernels: launches on it
    """

    scenario: OwnScenario
    device: Device
    compute: Stream
    kernels: KernelStream
    sizes: Sizes
    inputs: Inputs
    work: WorkBuffers
    counters: Counters

    def put(self, twin: Twin, values: np.ndarray, *, step: int) -> None:
        """Writes rows to pinned memory and copies them to the device. values: [n, ...]"""
        twin.cpu.write(values)
        self.upload(twin, len(values), step=step)

    def upload(self, twin: Twin, rows: int, *, step: int) -> None:
        """Gives the device the first rows of pinned memory."""
        twin.send(self.device, self.compute, rows, step=step)


def make_setup(
    scenario: OwnScenario,
    device: Device,
    counters: Counters,
    *,
    inputs: Callable[[Device, Stream, Sizes], Inputs] = make_inputs,
) -> Setup:
    """Takes the memory of inputs and work from the device. inputs: makes those of a layout"""
    compute = device.stream(Lane.COMPUTE)
    sizes = sizes_of(scenario)
    return Setup(
        scenario=scenario,
        device=device,
        compute=compute,
        kernels=KernelStream(device, compute),
        sizes=sizes,
        inputs=inputs(device, compute, sizes),
        work=make_work(device, compute, sizes),
        counters=counters,
    )
