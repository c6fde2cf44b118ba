"""What an A/B run was made on."""

from __future__ import annotations

from racegate.bench import environment
from racegate.device.cuda_torch import gpu_environment


def environment_of(device: str) -> dict[str, str]:
    """Versions, machine, commit and, on CUDA, GPU and driver."""
    found = environment() | {"device": device}
    return found | gpu_environment() if device == "cuda" else found
