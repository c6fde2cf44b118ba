"""What a device says of itself: of the virtual one, which GPU a program is told that it has."""

from __future__ import annotations

from typing import Protocol

import msgspec


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as a program may ask for it.

    memory_bytes: 0 for half of the host's memory; compute_capability: major and minor
    sm_threads, sm_shared_bytes: threads and shared memory that a multiprocessor has room for
    """

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int]
    sm_count: int
    sm_threads: int
    sm_shared_bytes: int
    l2_bytes: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """All but its name and memory, as the native runtime is told them."""
        return (
            *self.compute_capability,
            self.sm_count,
            self.sm_threads,
            self.sm_shared_bytes,
            self.l2_bytes,
        )

    @property
    def text(self) -> str:
        """The name with what programs ask for most."""
        major, minor = self.compute_capability
        memory_gib = self.memory_bytes / (1 << 30)
        return f"{self.name}, {memory_gib:.3g} GiB, compute capability {major}.{minor}"


def _gpu(
    name: str, memory_gib: float, capability: tuple[int, int], sm_count: int, *sizes: int
) -> GpuFacts:
    """sizes: threads and KiB of shared memory per multiprocessor, MiB of the L2 cache"""
    threads, shared_kib, l2_mib = sizes
    return GpuFacts(
        name=name,
        memory_bytes=int(memory_gib * (1 << 30)),
        compute_capability=capability,
        sm_count=sm_count,
        sm_threads=threads,
        sm_shared_bytes=shared_kib << 10,
        l2_bytes=l2_mib << 20,
    )


VIRTUAL_GPU = _gpu("racegate virtual GPU", 0, (9, 0), 132, 2048, 228, 50)

# By the vendor's data sheets and the CUDA programming guide's table of compute capabilities. Memory
# is what a data sheet says in GB, taken as GiB: a driver leaves a program a little less.
GPUS = {
    "a100-40g": _gpu("NVIDIA A100-SXM4-40GB", 40, (8, 0), 108, 2048, 164, 40),
    "a100-80g": _gpu("NVIDIA A100-SXM4-80GB", 80, (8, 0), 108, 2048, 164, 40),
    "b200-180g": _gpu("NVIDIA B200", 180, (10, 0), 148, 2048, 228, 126),
    "h100-80g": _gpu("NVIDIA H100 80GB HBM3", 80, (9, 0), 132, 2048, 228, 50),
    "h100-pcie-80g": _gpu("NVIDIA H100 PCIe", 80, (9, 0), 114, 2048, 228, 50),
    "h200-141g": _gpu("NVIDIA H200", 141, (9, 0), 132, 2048, 228, 50),
    "l4-24g": _gpu("NVIDIA L4", 24, (8, 9), 58, 1536, 100, 48),
    "l40s-48g": _gpu("NVIDIA L40S", 48, (8, 9), 142, 1536, 100, 96),
    "rtx4090-24g": _gpu("NVIDIA GeForce RTX 4090", 24, (8, 9), 128, 1536, 100, 72),
    "rtx5090-32g": _gpu("NVIDIA GeForce RTX 5090", 32, (12, 0), 170, 1536, 100, 96),
    "t4-16g": _gpu("Tesla T4", 16, (7, 5), 40, 1024, 64, 4),
}


class _Properties(Protocol):
    """What torch says of any device."""

    name: str
    total_memory: int
    major: int
    minor: int
    multi_processor_count: int
    max_threads_per_multi_processor: int


def facts_seen(properties: _Properties) -> GpuFacts:
    """properties: as `torch.cuda.get_device_properties` returns them, of any device"""
    return GpuFacts(
        name=properties.name,
        memory_bytes=properties.total_memory,
        compute_capability=(properties.major, properties.minor),
        sm_count=properties.multi_processor_count,
        sm_threads=properties.max_threads_per_multi_processor,
        sm_shared_bytes=getattr(properties, "shared_memory_per_multiprocessor", 0),
        l2_bytes=getattr(properties, "L2_cache_size", 0),
    )
