"""What ran on a GPU and when: by torch's profiler, through the file that it exports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from racegate.measure.bench.intervals import DeviceSpan

# Categories of operations on the device in the exported file.
_KERNEL = "kernel"
_DEVICE = (_KERNEL, "gpu_memcpy", "gpu_memset")


class TorchTracer:
    """Looks at the device only: what the host does is not slowed down more than it must be."""

    def trace(self, job: Callable[[], None]) -> list[DeviceSpan]:
        """The operations on the device while a job ran, which ends by waiting for them."""
        from torch.profiler import ProfilerActivity, profile

        with TemporaryDirectory() as folder:
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                job()
            path = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            return spans_of(json.loads(path.read_bytes()))


def spans_of(exported: Any) -> list[DeviceSpan]:
    """The device's operations in an exported file, whose times are microseconds."""
    return [
        DeviceSpan(
            name=event["name"],
            stream=int(event.get("args", {}).get("stream", event.get("tid", 0))),
            first=round(1e3 * event["ts"]),
            end=round(1e3 * (event["ts"] + event["dur"])),
            is_kernel=event["cat"] == _KERNEL,
        )
        for event in exported["traceEvents"]
        if event.get("ph") == "X" and event.get("cat") in _DEVICE
    ]
