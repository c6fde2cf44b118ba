"""The pinned pool: the host writes a step there, and kernels read it (docs/mechanism.md#slots).

No copy stands between the host and the kernels: they read pinned memory when they run. So there are
several places, used in turn, and the host waits until all that read a place has run.
"""

from __future__ import annotations

from numpy.typing import DTypeLike

from racegate.device.protocol import Device, DeviceBuffer, HostBuffer, Stream, reads, writes
from racegate.engine.state.buffers import Inputs, Twin, input_shapes
from racegate.engine.state.edges import POOL_PLACE_REUSE
from racegate.engine.state.kernels import KernelStream
from racegate.engine.state.plan import StepPlan
from racegate.engine.state.sizes import Sizes
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array

# What kernels write as well, or graphs and other streams read: it is copied to the device.
COPIED = frozenset({"input_ids", "query_start", "logit_index", "common_prefix"})
# What is gathered on the device, from the slots.
GATHERED = frozenset({"block_table", "state_table", "window_table", "temperature", "seed"})


class HostPool:
    """Pinned memory in `places`, of which a step has one. It is the guard of all that it holds."""

    def __init__(self, device: Device, places: int) -> None:
        self._device = device
        self._read = [device.event(f"pool_read@{place}") for place in range(places)]
        self._compute: Stream
        self.place = 0

    @property
    def places(self) -> int:
        """How many steps can have their inputs here."""
        return len(self._read)

    def wait(self, plan: StepPlan) -> None:
        """Until the step that had this place has read everything."""
        self.place = plan.step % self.places
        self._device.wait_host(self._read[self.place], POOL_PLACE_REUSE, step=plan.step)

    def staged(self, step: int) -> None:
        """Kernels read the place until the step's end."""

    def staged_idle(self) -> None:
        """So they do in an idle step."""

    def issued(self) -> None:
        """The last kernel that reads the place is issued."""
        self._device.record(self._compute, self._read[self.place])

    def memory(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> list[HostBuffer]:
        """Pinned memory, once for each place."""
        return [self._device.host_buffer(f"{name}_pool", shape, dtype) for _ in self._read]

    def inputs(self, device: Device, stream: Stream, sizes: Sizes) -> Inputs:
        """The inputs of a step."""
        self._compute = stream
        twins = {}
        for name, (shape, dtype) in input_shapes(sizes).items():
            twins[name] = self._twin(device, stream, name, shape, dtype)
        return Inputs(**twins)

    def _twin(
        self, device: Device, stream: Stream, name: str, shape: tuple[int, ...], dtype: DTypeLike
    ) -> Twin:
        if name not in COPIED | GATHERED:
            return PooledTwin(self, device, name, shape, dtype)
        on_device = device.device_buffer(f"{name}_gpu", shape, dtype, stream=stream)
        if name in GATHERED:
            return GatheredTwin(on_device)
        return CopiedTwin(self, device, name, shape, dtype, on_device)


class PooledTwin:
    """Kernels read what the host wrote where it wrote it."""

    def __init__(
        self, pool: HostPool, device: Device, name: str, shape: tuple[int, ...], dtype: DTypeLike
    ) -> None:
        self._pool = pool
        self._cpu = pool.memory(name, shape, dtype)
        self._mapped = [device.mapped(memory) for memory in self._cpu]

    @property
    def cpu(self) -> HostBuffer:
        """The step's place."""
        return self._cpu[self._pool.place]

    @property
    def gpu(self) -> DeviceBuffer:
        """The same."""
        return self._mapped[self._pool.place]

    def send(self, device: Device, stream: Stream, rows: int, *, step: int) -> None:
        """It is there."""


class CopiedTwin(PooledTwin):
    """A kernel reads what the host wrote, and leaves it in device memory."""

    def __init__(
        self,
        pool: HostPool,
        device: Device,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        copy: DeviceBuffer,
    ) -> None:
        super().__init__(pool, device, name, shape, dtype)
        self._name = name
        self._copy = copy

    @property
    def gpu(self) -> DeviceBuffer:
        """The copy."""
        return self._copy

    def send(self, device: Device, stream: Stream, rows: int, *, step: int) -> None:
        """The kernel."""
        KernelStream(device, stream).launch_kernel(
            copy_rows,
            {"source": reads(super().gpu, rows), "target": writes(self._copy, rows)},
            name=f"take.{self._name}",
            step=step,
        )


class GatheredTwin:
    """The host writes no rows of this: the device lays them out, from the slots."""

    def __init__(self, gathered: DeviceBuffer) -> None:
        self._gathered = gathered

    @property
    def cpu(self) -> HostBuffer:
        """There is none."""
        raise AssertionError(f"{self._gathered.name} is laid out on the device")

    @property
    def gpu(self) -> DeviceBuffer:
        """The step's rows."""
        return self._gathered

    def send(self, device: Device, stream: Stream, rows: int, *, step: int) -> None:
        """They are gathered, not sent."""


def copy_rows(
    kernels: Backend,
    source: Array,  # [R, ...]
    target: Array,  # [R, ...], written
) -> None:
    """target = source"""
    target[...] = source
