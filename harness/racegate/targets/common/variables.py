"""What a device needs in the environment of a process, asked of the Python that will run there:
`PYTHON -m racegate.targets.common.variables DEVICE` prints as JSON the variables to set.

It runs in the environment of an engine, so it imports nothing that this may lack.
"""

from __future__ import annotations

import json
import os
import sys

from racegate.interpose.build import (
    Toolkit,
    build_forward,
    build_library,
    build_nccl,
    build_nvml,
    find_toolkit,
)
from racegate.interpose.device.frames import COMPILED
from racegate.interpose.errors import BadInput
from racegate.interpose.gpu.presence import why_no_gpu
from racegate.interpose.outcome import DEVICE, DeviceKind


def environment_for(toolkit: Toolkit, kind: DeviceKind) -> dict[str, str]:
    """What a process with a device is started with. Raises BadInput if there is no GPU."""
    common = {
        **os.environ,
        DEVICE: kind.value,
    }
    if kind is DeviceKind.VIRTUAL:
        libraries = (build_library(toolkit), build_nvml(toolkit), *build_nccl(toolkit))
        return {
            **common,
            "LD_PRELOAD": ":".join(map(str, libraries)),
            "TRITON_INTERPRET": "1",
            # Inductor's files say nothing of who runs them: they are not those of a real GPU.
            "TORCHINDUCTOR_CACHE_DIR": str(COMPILED),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # other processes have no device
            "TORCHINDUCTOR_BENCHMARK_EPILOGUE_FUSION": "0",  # times of an interpreter say nothing
            "CUDA_VISIBLE_DEVICES": "0",
        }
    if missing := why_no_gpu():
        raise BadInput(missing)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    return {
        **common,
        "LD_PRELOAD": str(build_forward(toolkit)),
        "RACEGATE_CUDART": str(toolkit.runtime),
        "CUDA_VISIBLE_DEVICES": visible,
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",  # or streams share a queue, and wait for each other
    }


def main(kind: str) -> None:
    """Prints the variables that differ from this process's. Exits with what is missing if the
    device cannot be put under this Python's torch.
    """
    try:
        made = environment_for(find_toolkit(), DeviceKind(kind))
    except BadInput as error:
        raise SystemExit(str(error)) from None
    made["TORCHDYNAMO_DISABLE"] = "1"  # an engine's compiled regions run as plain Python
    print(json.dumps({key: value for key, value in made.items() if os.environ.get(key) != value}))


if __name__ == "__main__":
    main(sys.argv[1])
