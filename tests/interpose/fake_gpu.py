"""The GPU mode without a GPU: the virtual runtime plays the real one, and kernels run at once.

It shows what the recorder makes of a program; what real streams and latches do is for a GPU.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from racegate.interpose import child
from racegate.interpose.build import Toolkit, build_forward, build_library
from racegate.interpose.gpu.install import GpuDevice
from racegate.interpose.gpu.kernels import GpuKernels
from racegate.interpose.kernels.aliases import alias_of
from racegate.interpose.kernels.operators import Operator
from racegate.interpose.kernels.run import Kernels
from racegate.interpose.outcome import DEVICE, DeviceKind
from racegate.targets.program import launch

# Of these torch's own CUDA body runs here too: it calls another operator, which is computed.
REDISPATCHING = ("aten::pow.Scalar", "aten::pow.Scalar_out")


class ComputedKernels(GpuKernels):
    """torch's CUDA kernels are computed as the virtual device does it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._computing = Kernels(self._session, self._library, self._graphs, self._refuse)

    def _launch(
        self, operator: Operator, original: Any, keyset: Any, args: Any, kwargs: Any
    ) -> Any:
        if operator.name in REDISPATCHING:
            return super()._launch(operator, original, keyset, args, kwargs)
        if operator.short == "_local_scalar_dense":
            with self._session.own():
                return alias_of(self._session, args[0]).item()
        with self._session.own():
            bound = self._computing._bind(operator, args, kwargs)
            made = self._computing._call(operator, bound)
            return self._computing._to_device(made, bound, [], ())

    def fetch(self, tensor: Any) -> Any:
        with self._session.own():
            return alias_of(self._session, tensor).clone()

    @staticmethod
    def _refuse(name: str) -> None:
        raise NotImplementedError(name)


class FakeInstalled(GpuDevice):
    def make_kernels(self) -> GpuKernels:
        return ComputedKernels(self.session, self.library, self.graphs, self.calls)


@contextmanager
def open_fake_gpu() -> Iterator[launch.DeviceServer]:
    """A device of kind CUDA whose GPU is the virtual runtime."""
    environment = launch.environment_for

    def faked(toolkit: Toolkit, kind: DeviceKind) -> dict[str, str]:
        runtime = build_library(toolkit)
        return {
            **environment(toolkit, DeviceKind.VIRTUAL),
            DEVICE: kind.value,
            "TRITON_INTERPRET": "0",
            "LD_PRELOAD": f"{build_forward(toolkit)}:{runtime}",
            "RACEGATE_CUDART": str(runtime),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }

    open_server = launch.open_server

    def start(command: list[str], *args: Any, **kwargs: Any) -> Any:
        at = command.index("racegate.interpose.child")
        return open_server([*command[: at - 1], __file__, *command[at + 1 :]], *args, **kwargs)

    with (
        mock.patch.object(launch, "environment_for", faked),
        mock.patch.object(launch, "open_server", start),
        launch.open_device(DeviceKind.CUDA) as device,
    ):
        yield device


if __name__ == "__main__":
    with mock.patch.object(child, "GpuDevice", FakeInstalled):
        child.main()
