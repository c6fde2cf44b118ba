"""A pytest plugin for vLLM's own tests on the virtual device: the stand-ins that `racegate vllm`
uses for what a machine without a GPU cannot load.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from racegate.interpose.outcome import DeviceKind
from racegate.targets.vllm.inside import standins
from racegate.targets.vllm.wire import CaptureMode, ModelRunner, PositionMode

_session: Any = SimpleNamespace(kind=DeviceKind.VIRTUAL)
_cell: Any = SimpleNamespace(
    runner=ModelRunner.V2, graphs=CaptureMode.FULL, positions=PositionMode.TEXT
)
_kept = standins.prepare(_session, _cell)
standins.use_cuda_platform()
