"""The interposer: an unmodified PyTorch program on a virtual CUDA device that records everything.

`order/` judges, `program/` stands under torch, `native/` is the CUDA runtime on host memory; the
modules here build, launch, search and report. Nothing else of racegate is needed or imported, and
nothing of racegate imports this room. A program uses `recording` and `observe`; both do nothing
outside of `python -m racegate.interpose`.
"""

from __future__ import annotations

from racegate.interpose.surface import Recording, observe, recording

__all__ = ["Recording", "observe", "recording"]
