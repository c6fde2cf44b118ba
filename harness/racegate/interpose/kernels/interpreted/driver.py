"""The driver that Triton asks for a target and sizes, also where its kernels are interpreted."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import torch


def answer_for_driver(module: ModuleType) -> None:
    """module: triton.backends, just imported. NVIDIA's own driver looks for a library of the real
    one and compiles C; ours takes its place wherever Triton, Inductor or a program asks.
    """
    known = module.backends.get("nvidia")
    if known is not None:
        module.backends["nvidia"] = replace(known, driver=VirtualDriver)


class _Sizes:
    """What kernels are fitted to."""

    @staticmethod
    def get_device_properties(device: int = 0) -> dict[str, int]:
        """Of those that the real one tells, what callers read."""
        known = torch.cuda.get_device_properties(device)
        return {
            "multiprocessor_count": known.multi_processor_count,
            "max_shared_mem": known.shared_memory_per_block_optin,
            "warpSize": known.warp_size,
        }


class VirtualDriver:
    """Answers as torch does for the virtual device."""

    utils = _Sizes

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        known = torch.cuda.get_device_properties(0)
        return GPUTarget("cuda", known.major * 10 + known.minor, known.warp_size)

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return torch.cuda.get_device_capability(device)  # type: ignore[no-any-return]

    def get_current_device(self) -> int:
        return int(torch.cuda.current_device())

    def set_current_device(self, device: int) -> None:
        torch.cuda.set_device(device)

    def get_current_stream(self, device: int = 0) -> int:
        return int(torch._C._cuda_getCurrentRawStream(device))

    def get_active_torch_device(self) -> Any:
        return torch.device("cuda", torch.cuda.current_device())

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Any:
        """The times of an interpreter say nothing: all are equal."""
        return lambda *args, quantiles=None, **kwargs: [0.0] * (len(quantiles or ()) or 1)
