"""The interposer: an unmodified PyTorch program on a virtual CUDA device that records everything.

From the bottom: `order/` judges, `device/` is the CUDA runtime on host memory, `kernels/` computes,
`program/` watches the host; the modules here build, launch, search and report. It imports nothing
else of racegate, and nothing of racegate imports it. A program may call `recording` and `observe`.
"""

from __future__ import annotations

from racegate.interpose.surface import Recording, observe, recording

__all__ = ["Recording", "observe", "recording"]
