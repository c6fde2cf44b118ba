"""Triton without its driver: targets, sizes and NVIDIA's own functions, for kernels that are
interpreted.
"""

from __future__ import annotations

from typing import Any

import torch


def answer_for_triton() -> None:
    """Triton asks its driver for a target and sizes, also where kernels are interpreted."""
    from triton.backends import backends
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    class Driver:
        """What engines ask for, as a Hopper GPU answers."""

        class utils:
            """Sizes."""

            @staticmethod
            def get_device_properties(device: int = 0) -> dict[str, int]:
                return {"multiprocessor_count": 132, "max_shared_mem": 232448}

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int = 0) -> int:
            return int(torch._C._cuda_getCurrentRawStream(0))

        def set_current_device(self, device: int) -> None:
            """There is one."""

        def get_active_torch_device(self) -> Any:
            return torch.device("cuda", 0)

        def get_device_interface(self) -> Any:
            return torch.cuda

        def get_benchmarker(self) -> Any:
            return lambda *args, **kwargs: [0.0, 0.0, 0.0]

        def is_active(self) -> bool:
            return True

    backends.pop("cpu", None)
    driver.set_active(Driver())
    _compute_libdevice()


def _compute_libdevice() -> None:
    """NVIDIA's own functions, of which the interpreter has none, by those of the language."""
    import triton.language as tl
    from triton.language.extra import libdevice

    libdevice.log1p = lambda x: tl.log(x + 1.0)
