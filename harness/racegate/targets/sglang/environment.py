"""An environment per SGLang release, in the user's cache directory: the release's Python as the
package index has it, and a CUDA build of the torch that it wants, shared between releases and with
vLLM's.

Compiled kernels are not installed: none is called. What serves models over a network is left out.
"""

from __future__ import annotations

from pathlib import Path

from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import DeviceKind
from racegate.targets.common.environment import (
    DONE,
    Environment,
    Run,
    Say,
    Wanted,
    cache_folder,
    fetch_wheel,
    install_release,
    install_torch,
    metadata_of,
    read_wanted,
    run_pip,
    torch_folder,
)

ENGINE = "sglang"
PACKAGES = ("sglang",)
# Nothing that a step of the scheduler calls.
LEFT_OUT = frozenset({
    "torch", "torchao", "torchaudio", "torchcodec", "torch_memory_saver", "ipython",
    "anthropic", "apache-tvm-ffi", "av", "blobfile", "build", "cuda-python", "datasets", "decord2",
    "flash-attn-4", "kernels", "mistral_common", "modelscope", "ninja", "openai-harmony", "py-spy",
    "quack-kernels", "sgl-deep-gemm", "sgl-kernel", "sglang-kernel", "smg-grpc-servicer",
    "soundfile", "tilelang", "timm", "tokenspeed_mla",
})  # fmt: skip
# What SGLang imports and has from a package that is left out; and the last NumPy that makes a
# number of an array of one element, as the interpreter of Triton 3.6 asks it to.
ADDED = ("dill", "numpy<2.4")
LEFT_OUT_FAMILIES = ("nvidia-", "flashinfer", "sglang-", "sgl-")


def is_left_out(name: str) -> bool:
    """Whether no step of the scheduler calls this package. name: in lower case"""
    return name in LEFT_OUT or name.startswith(LEFT_OUT_FAMILIES)


def environment_of(release: str, *, checkout: Path | None = None) -> Environment:
    """An environment that was set up. Raises BadInput with the command to set it up if not."""
    python = None if checkout is None else checkout / "python"
    if python is not None and not (python / "sglang" / "__init__.py").is_file():
        raise BadInput(f"{checkout} holds no SGLang: a checkout has python/sglang/__init__.py")
    found = Environment(release, cache_folder(ENGINE) / release, python)
    if not found.is_ready:
        raise BadInput(
            f"SGLang {release} is not set up here: racegate sglang setup --release {release}"
        )
    return found


def set_up(release: str, say: Say, *, run: Run | None = None) -> Environment:
    """Installs what is missing of a release; what is there already is kept. Raises BadInput."""
    run = run_pip if run is None else run
    environment = Environment(release, cache_folder(ENGINE) / release)
    if environment.is_ready:
        say(f"SGLang {release} is set up in {environment.folder}")
        return environment
    say(f"1/4 the wheel of SGLang {release}")
    wheel = fetch_wheel(cache_folder(ENGINE) / "wheels", PACKAGES, release, run)
    read = read_wanted(metadata_of(wheel), is_left_out)
    wanted = Wanted(read.torch, (*read.requirements, *ADDED))
    base = torch_folder(wanted.torch)
    say(f"2/4 torch {wanted.torch} with CUDA, shared between releases (about 4 GB)")
    install_torch(base, wanted.torch, run)
    say(f"3/4 {len(wanted.requirements)} requirements of SGLang")
    install_release(environment, base, wanted, wheel, run)
    say("4/4 the virtual CUDA runtime")
    environment.device(DeviceKind.VIRTUAL)
    (environment.folder / DONE).write_text(f"{release}\n")
    say(f"SGLang {release} is set up in {environment.folder}")
    return environment
