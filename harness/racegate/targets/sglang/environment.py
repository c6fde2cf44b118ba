"""How SGLang is packaged: what is installed of a release, and what is left out."""

from __future__ import annotations

from racegate.targets.common.environment import EnginePackage

# Nothing that a step of the scheduler calls.
LEFT_OUT = frozenset({
    "torch", "torchao", "torchaudio", "torchcodec", "torch_memory_saver", "ipython",
    "anthropic", "apache-tvm-ffi", "av", "blobfile", "build", "cuda-python", "datasets", "decord2",
    "flash-attn-4", "kernels", "mistral_common", "modelscope", "ninja", "openai-harmony", "py-spy",
    "quack-kernels", "sgl-deep-gemm", "sgl-kernel", "sglang-kernel", "smg-grpc-servicer",
    "soundfile", "tilelang", "timm", "tokenspeed_mla",
})  # fmt: skip
SGLANG = EnginePackage(
    title="SGLang",
    name="sglang",
    packages=("sglang",),
    module="sglang",
    sources="python",
    left_out=LEFT_OUT,
    tried=("0.5.12.post1", "0.5.23"),
    families=("nvidia-", "flashinfer", "sglang-", "sgl-"),
    # What it imports and has from a package that is left out; and the last NumPy that makes a
    # number of an array of one element, as the interpreter of Triton 3.6 asks it to.
    added=("dill", "numpy<2.4"),
)
