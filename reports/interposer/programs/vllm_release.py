"""vLLM's Python alone: its compiled parts are named, and never called, and its platform is CUDA."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

COMPILED = ("_C", "_C_stable_libtorch", "_moe_C", "_moe_C_stable_libtorch")


def name_compiled_parts() -> None:
    """vLLM's own kernels are not installed with its Python alone, and its CUDA platform imports
    them. One that is called is an error of torch's.
    """
    folders = importlib.util.find_spec("vllm").submodule_search_locations
    for name in COMPILED:
        if importlib.machinery.PathFinder.find_spec(name, folders) is None:
            sys.modules[f"vllm.{name}"] = ModuleType(f"vllm.{name}")


def be_on_cuda() -> None:
    """The CPU wheel has the same Python in fewer bytes, and takes itself for a CPU's."""
    import vllm.platforms
    from vllm.platforms.cuda import CudaPlatform

    vllm.platforms.current_platform = CudaPlatform()
