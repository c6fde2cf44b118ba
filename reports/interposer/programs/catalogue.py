"""Which programs are judged, in which releases, and what is expected of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Expected(StrEnum):
    """Whether the release has a missing order that the script reaches."""

    RACY = "racy"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Removed:
    """A wait taken out of a library while it is imported: `text` of `module` becomes `by`."""

    module: str
    text: str
    by: str = "pass"


@dataclass(frozen=True, slots=True)
class Case:
    """One script in one release. releases: as pip is told them, none if torch itself is judged;
    public: the issue or pull request that says the same; removed: what the silent case hinges on.
    """

    name: str
    script: str
    arguments: tuple[str, ...]
    releases: tuple[str, ...]
    expected: Expected
    public: str = ""
    removed: Removed | None = None


_VLLM = "https://github.com/vllm-project/vllm"
_DIFFUSERS = "https://github.com/huggingface/diffusers/pull"
_STAGING = "torch.distributed.checkpoint.staging"
_FSDP = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
_STAGED = "self._staging_stream.synchronize() if self._staging_stream else torch.accelerator"


def _pair(
    script: str, *arguments: str, faulty: str, repaired: str, public: str, beside: tuple[str, ...]
) -> list[Case]:
    """A faulty and a repaired release. beside: what else has to be installed with both."""
    stem = "_".join((script, *arguments))
    return [
        Case(
            f"{stem}-{release.partition('==')[2]}",
            f"{script}.py",
            arguments,
            (release, *beside),
            expected,
            public,
        )
        for release, expected in ((faulty, Expected.RACY), (repaired, Expected.SILENT))
    ]


def _transformers(kind: str) -> list[Case]:
    return _pair(
        "transformers_cache",
        kind,
        faulty="transformers==5.3.0",
        repaired="transformers==5.23.0",
        public="",
        beside=(),
    )


def _diffusers(level: str, order: str, place: str, number: int) -> list[Case]:
    return _pair(
        "diffusers_group_offload",
        level,
        order,
        place,
        faulty="diffusers==0.35.2",
        repaired="diffusers==0.42.1",
        public=f"{_DIFFUSERS}/{number}",
        beside=("accelerate==1.15.0",),
    )


def _silent(script: str, *arguments: str, releases: tuple[str, ...] = ()) -> Case:
    name = "_".join((script, *arguments))
    return Case(name, f"{script}.py", arguments, releases, Expected.SILENT)


def _without(case: Case, module: str, text: str, by: str = "pass") -> list[Case]:
    """The case, and the same without a wait: the tool must tell them apart."""
    removed = Removed(module, text, by)
    name = f"{case.name}-without"
    racy = Case(name, case.script, case.arguments, case.releases, Expected.RACY, removed=removed)
    return [case, racy]


TRANSFORMERS = [*_transformers("offloaded"), *_transformers("offloaded_static")]
CASES = [
    *TRANSFORMERS,
    *_diffusers("leaf", "sync", "disk", 14657),
    *_diffusers("leaf", "record", "memory", 12721),
    *_pair(
        "timm_prefetch",
        faulty="timm==1.0.29",
        repaired="timm==1.0.30",
        public="https://github.com/huggingface/pytorch-image-models/pull/2784",
        beside=(),
    ),
    *_pair(
        "trl_offload_activations",
        faulty="trl==1.13.0",
        repaired="trl==1.14.0",
        public="https://github.com/huggingface/trl/pull/7195",
        beside=(),
    ),
    *_pair(
        "vllm_simple_offload",
        "store",
        faulty="vllm==0.22.1",
        repaired="vllm==0.24.0",
        public=f"{_VLLM}/issues/45704",
        beside=(),
    ),
    *_pair(
        "vllm_offload",
        "store",
        faulty="vllm==0.13.0",
        repaired="vllm==0.14.0",
        public=f"{_VLLM}/pull/31341",
        beside=(),
    ),
    *_pair(
        "vllm_offload",
        "load",
        faulty="vllm==0.14.0",
        repaired="vllm==0.33.0",
        public=f"{_VLLM}/pull/50696",
        beside=(),
    ),
    *_pair(
        "sglang_hicache",
        faulty="sglang==0.5.18",
        repaired="sglang==0.5.19",
        public="https://github.com/sgl-project/sglang/pull/36738",
        beside=("--no-deps",),
    ),
    *_pair(
        "sglang_hicache",
        "write",
        faulty="sglang==0.5.22",
        repaired="sglang==0.5.23",
        public="https://github.com/sgl-project/sglang/pull/20611",
        beside=("--no-deps",),
    ),
    *_pair(
        "deepspeed_zero",
        "device",
        faulty="deepspeed==0.17.4",
        repaired="deepspeed==0.17.5",
        public="https://github.com/deepspeedai/DeepSpeed/pull/7371",
        beside=("hjson", "ninja", "py-cpuinfo", "psutil", "msgpack", "nvidia-ml-py"),
    ),
    Case(
        "vllm_simple_offload_load-0.33.0",
        "vllm_simple_offload.py",
        ("load",),
        ("vllm==0.33.0",),
        Expected.RACY,
        f"{_VLLM}/issues/47282",
    ),
    Case(
        "geometric_prefetch",
        "geometric_prefetch.py",
        (),
        ("torch-geometric==2.8.1",),
        Expected.RACY,
    ),
    *_without(
        _silent("torchao_cpu_offload", "keep", releases=("torchao==0.18.0",)),
        "torchao.optim.cpu_offload",
        "grad_d2h_event.synchronize()",
    ),
    *_without(
        _silent("torchao_cpu_offload", "offload", releases=("torchao==0.18.0",)),
        "torchao.optim.cpu_offload",
        "self.stream.synchronize()",
    ),
    *_without(_silent("checkpoint_async", "default"), _STAGING, f"{_STAGED}.synchronize()"),
    _silent("checkpoint_async", "blocking"),
    *_without(_silent("fsdp_cpu_offload"), _FSDP, "fsdp_param.grad_offload_event.synchronize()"),
    _silent("accelerate_offload", "cpu", releases=("accelerate==1.15.0",)),
    _silent("accelerate_offload", "disk", releases=("accelerate==1.15.0",)),
    _silent("save_on_cpu"),
    _silent("data_loader", "0"),
    _silent("data_loader", "1"),
]
